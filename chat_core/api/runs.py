"""Calls that start, watch, answer and stop runs."""

from chat_core.api.endpoint import Call, Endpoint
from chat_core.api.wire import (
    QuestionAnswer,
    QuestionAnswered,
    QuestionView,
    RunDraft,
    RunStarted,
    RunStateView,
    StopAccepted,
)
from chat_core.errors import InvalidInput


def start_run(call: Call, body: RunDraft) -> RunStarted:
    """Ask: add a USER message and run it; with a USER message as parent and no `message`, run that message."""
    if body.message is None:
        if body.parent_message_id is None:
            raise InvalidInput("There is nothing to run: give a message, or the USER message to run as its parent.")
        _require_in_session(call, body.parent_message_id)
        started = call.workbench.run_message(
            call.user,
            body.parent_message_id,
            model_id=body.model_id,
            skill_folder=body.skill_folder,
            max_iterations=body.max_iterations,
        )
    else:
        started = call.workbench.ask(
            call.user,
            call.ids["session_id"],
            body.message,
            model_id=body.model_id,
            skill_folder=body.skill_folder,
            max_iterations=body.max_iterations,
            parent=body.parent_message_id,
        )
    return RunStarted.of(started)


def get_run_state(call: Call) -> RunStateView:
    """Return the state of a run and the question that waits for an answer."""
    return RunStateView.of(call.workbench.run_state(call.user, call.ids["run_id"]))


def answer_question(call: Call, body: QuestionAnswer) -> QuestionAnswered:
    """Answer the question a run waits for; the first answer wins, the same one again is harmless."""
    question = call.workbench.answer(call.user, call.ids["run_id"], body.question_id, body.answer)
    return QuestionAnswered(question=QuestionView.of(question))


def stop_run(call: Call) -> StopAccepted:
    """Interrupt a run; what it has done is kept. Harmless twice and after the end."""
    run_id = call.ids["run_id"]
    call.workbench.stop(call.user, run_id)
    return StopAccepted(run_id=run_id)


def _require_in_session(call: Call, message_id: str) -> None:
    session = call.workbench.get_session(call.user, call.ids["session_id"])
    message = call.workbench.message(call.user, message_id)
    if message.session_id != session.id:
        raise InvalidInput(f"The message {message_id!r} is not in this session.")


ENDPOINTS = (
    Endpoint("POST", "/sessions/{session_id}/runs", start_run, status=202, errors=(409, 429, 503)),
    Endpoint("GET", "/runs/{run_id}/state", get_run_state),
    Endpoint("POST", "/runs/{run_id}/resume", answer_question, errors=(409, 503)),
    Endpoint("POST", "/runs/{run_id}/stop", stop_run, status=202),
)
