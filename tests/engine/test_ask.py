"""One question, from the text to the stored answer."""

import pytest

from chat_core.arguments import MAX_MESSAGE_CHARS
from chat_core.errors import InvalidInput, LimitReached, NotFound, SessionBusy, TooLarge
from chat_core.models import Session, User
from chat_core.workbench import Workbench
from tests.support.runs import collect_in_thread, contents, finish, wait_for
from tests.support.runtimes import (
    EchoRuntime,
    GatedRuntime,
    answers,
    breaks,
    calls_tool,
    chunks,
    emits,
    reports_error,
    thinks,
)


def test_an_answer_is_stored_as_it_was_told(workbench: Workbench, session: Session, user: User) -> None:
    started = workbench.ask(user, session.uuid, "hello world")
    entries = finish(workbench, user, started.run_id)
    message = workbench.message(user, started.message_uuid)
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert entries[0].kind == "run_started"
    assert entries[-1].kind == "run_finished"
    assert "".join(entry.content for entry in entries if entry.kind == "answer") == "hello world"
    assert (message.content, message.status) == ("hello world", "SUCCESS")
    assert message.usage == {"input_tokens": 11, "output_tokens": 11}
    assert workbench.store.check() == []


def test_reader_joining_midway_sees_every_entry_once(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [thinks("a"), answers("b"), answers("c")]
    started = workbench.ask(user, gated_session.uuid, "go")
    gated.release(1)
    wait_for(workbench, user, started.run_id, "thinking")
    early, late = (collect_in_thread(workbench, user, started.run_id, after) for after in (0, 2))
    gated.release()
    everything = early.result(5)
    assert [entry.seq for entry in everything] == list(range(1, len(everything) + 1))
    assert late.result(5) == everything[2:]


def test_second_send_while_a_run_works_is_refused_and_stores_nothing(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    started = workbench.ask(user, gated_session.uuid, "first")
    with pytest.raises(SessionBusy):
        workbench.ask(user, gated_session.uuid, "second")
    gated.release()
    finish(workbench, user, started.run_id)
    assert contents(workbench, user, gated_session) == ["first", "first"]
    assert workbench.store.check() == []


def test_limits_per_user_and_per_process_are_told_apart(
    open_bench: object, settings: object, gated: GatedRuntime, user: User
) -> None:
    small = settings.model_copy(update={"max_runs_per_user": 1, "max_active_runs": 2})  # type: ignore[attr-defined]
    workbench: Workbench = open_bench(settings=small)  # type: ignore[operator]
    sessions = [workbench.create_session(who, runtime="gated") for who in (user, user, User("b"), User("c"))]
    workbench.ask(user, sessions[0].uuid, "1")
    with pytest.raises(LimitReached) as mine:
        workbench.ask(user, sessions[1].uuid, "2")
    workbench.ask(User("b"), sessions[2].uuid, "3")
    with pytest.raises(LimitReached) as everyone:
        workbench.ask(User("c"), sessions[3].uuid, "4")
    assert (mine.value.values["scope"], everyone.value.values["scope"]) == ("user", "process")
    assert workbench.tree(user, sessions[1].uuid) == []


@pytest.mark.parametrize("text", ["", "  \n\t "])
def test_an_empty_message_is_refused(workbench: Workbench, session: Session, user: User, text: str) -> None:
    with pytest.raises(InvalidInput):
        workbench.ask(user, session.uuid, text)


def test_a_message_over_the_limit_is_refused(workbench: Workbench, session: Session, user: User) -> None:
    with pytest.raises(TooLarge):
        workbench.ask(user, session.uuid, "x" * (MAX_MESSAGE_CHARS + 1))


def test_somebody_elses_session_is_not_found(workbench: Workbench, session: Session) -> None:
    with pytest.raises(NotFound):
        workbench.ask(User("other"), session.uuid, "hello")
    with pytest.raises(NotFound):
        workbench.branch(User("other"), session.uuid)


def test_deltas_are_joined_before_they_are_numbered(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [chunks(1000, "0123456789")]
    gated.release()
    entries = finish(workbench, user, workbench.ask(user, gated_session.uuid, "go").run_id)
    deltas = [entry for entry in entries if entry.kind == "answer"]
    assert "".join(entry.content for entry in deltas) == "0123456789" * 1000
    assert len(deltas) < 100


def test_commentary_before_tools_becomes_an_interim_remark(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [answers("Let me look."), breaks(), calls_tool("todo", result="{}"), answers("Done.")]
    gated.release()
    started = workbench.ask(user, gated_session.uuid, "go")
    entries = finish(workbench, user, started.run_id)
    assert [entry.content for entry in entries if entry.kind == "answer_break"] == ["Let me look."]
    assert workbench.message(user, started.message_uuid).content == "Done."


def test_a_failed_run_keeps_text_and_reason_and_frees_the_session(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [answers("half "), reports_error("model_rate_limit", "The model is busy.")]
    gated.release()
    started = workbench.ask(user, gated_session.uuid, "go")
    entries = finish(workbench, user, started.run_id)
    message = workbench.message(user, started.message_uuid)
    assert entries[-1].kind == "run_failed"
    assert (message.status, message.content) == ("FAILED", "half ")
    assert message.error is not None
    assert (message.error.code, message.error.message) == ("model_rate_limit", "The model is busy.")
    gated.steps = [answers("fine")]
    finish(workbench, user, workbench.ask(user, gated_session.uuid, "again").run_id)
    assert workbench.store.check() == []


def test_a_tool_call_without_a_result_gets_an_end_before_the_run_does(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [emits("tool_call", call_id="c1", name="terminal", args={"command": "sleep"}), reports_error()]
    gated.release()
    entries = finish(workbench, user, workbench.ask(user, gated_session.uuid, "go").run_id)
    assert [entry.kind for entry in entries[-2:]] == ["tool_result", "run_failed"]
    assert entries[-2].meta == {"outcome": "unknown"}


def test_unknown_event_kinds_are_kept_as_status(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [emits("sparkle", text="new", colour="red")]
    gated.release()
    entries = finish(workbench, user, workbench.ask(user, gated_session.uuid, "go").run_id)
    kept = [entry for entry in entries if entry.kind == "status"]
    assert [(entry.content, entry.meta["kind"]) for entry in kept] == [("new", "sparkle")]


def test_a_large_tool_result_is_stored_once_and_previewed(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    huge = "x" * 5_000_000
    gated.steps = [calls_tool("terminal", result=huge)]
    gated.release()
    entries = finish(workbench, user, workbench.ask(user, gated_session.uuid, "go").run_id)
    result = next(entry for entry in entries if entry.kind == "tool_result")
    assert len(result.content) < 600
    assert (result.meta["bytes"], result.meta["lines"]) == (5_000_000, 1)
    assert workbench.tool_result(user, result.meta["result_ref"]) == huge
    with pytest.raises(NotFound):
        workbench.tool_result(User("other"), result.meta["result_ref"])
    assert workbench.store.check() == []


def test_lone_and_split_surrogates_are_stored_and_joined(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [
        answers("ok \ud83d"),
        answers("\ude00 "),
        thinks("bad \udc88 \x00"),
        calls_tool("t\udc88", result="\udc88"),
        answers("end\ud83d"),
    ]
    gated.release()
    started = workbench.ask(user, gated_session.uuid, "go \udc88")
    entries = finish(workbench, user, started.run_id)
    assert "".join(entry.content for entry in entries if entry.kind == "answer") == "ok \N{GRINNING FACE} end\ufffd"
    assert workbench.message(user, started.user_message_uuid).content == "go \ufffd"
    assert workbench.store.check() == []


def test_the_agent_is_asked_with_the_chosen_model_and_skill(
    workbench: Workbench, session: Session, echo: EchoRuntime, user: User
) -> None:
    started = workbench.ask(user, session.uuid, "hi", model_id="m1", skill_folder="s1", max_iterations=7)
    finish(workbench, user, started.run_id)
    request = echo.requests[0]
    assert (request.model, request.skill_folder, request.max_iterations) == ("m1", "s1", 7)
    remembered = workbench.get_session(user, session.uuid)
    assert (remembered.model_id, remembered.skill_folder) == ("m1", "s1")


def test_title_comes_from_the_first_message_after_the_first_answer(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    started = workbench.ask(user, gated_session.uuid, "What is\nthe capital of France and of Spain?")
    assert workbench.get_session(user, gated_session.uuid).title == ""
    gated.release()
    finish(workbench, user, started.run_id)
    assert workbench.get_session(user, gated_session.uuid).title == "What is the capital of France"
    finish(workbench, user, workbench.ask(user, gated_session.uuid, "another").run_id)
    assert workbench.get_session(user, gated_session.uuid).title == "What is the capital of France"


def test_a_title_the_user_typed_is_never_overwritten(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    started = workbench.ask(user, gated_session.uuid, "question")
    workbench.update_session(user, gated_session.uuid, title="Mine")
    gated.release()
    finish(workbench, user, started.run_id)
    assert workbench.get_session(user, gated_session.uuid).title == "Mine"
