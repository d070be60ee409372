"""Stop, questions, delete, and who may write."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from chat_core.errors import AlreadyAnswered, InvalidInput, LeaseLost, NotFound, QuestionClosed, SessionBusy
from chat_core.models import NewEntry, Session, User
from chat_core.store.runs import Append, Lease
from chat_core.workbench import Workbench
from tests.support.runs import contents, finish, wait_for
from tests.support.runtimes import GatedRuntime, answers, asks, asks_approval, calls_tool, hangs_until_stop, thinks


def waiting_run(workbench: Workbench, session: Session, gated: GatedRuntime, user: User) -> tuple[str, str]:
    """A run that waits for an answer: its id and the question's."""
    gated.steps = [asks("Which colour?", ["red", "blue"]), answers(" Bye.")]
    gated.release()
    started = workbench.ask(user, session.uuid, "go")
    wait_for(workbench, user, started.run_id, "clarify_request")
    question = workbench.run_state(user, started.run_id).question
    assert question is not None
    return started.run_id, question.question_id


def test_stop_keeps_what_was_done(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [thinks("Hm."), calls_tool("todo"), answers("partial"), hangs_until_stop()]
    gated.release()
    started = workbench.ask(user, gated_session.uuid, "go")
    wait_for(workbench, user, started.run_id, "answer")
    workbench.stop(user, started.run_id)
    workbench.stop(user, started.run_id)
    entries = finish(workbench, user, started.run_id)
    message = workbench.message(user, started.message_uuid)
    assert (message.status, message.content) == ("STOPPED", "partial")
    assert {"thinking", "tool_call", "tool_result"} <= {entry.kind for entry in entries}
    workbench.stop(user, started.run_id)
    assert workbench.store.check() == []


def test_stop_while_a_question_waits_closes_the_question(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    run_id, question_id = waiting_run(workbench, gated_session, gated, user)
    workbench.stop(user, run_id)
    finish(workbench, user, run_id)
    assert [item.status for item in workbench.questions(user, run_id)] == ["CLOSED"]
    with pytest.raises(QuestionClosed):
        workbench.answer(user, run_id, question_id, "red")


def test_an_answer_reaches_the_agent_and_is_in_the_log(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    run_id, question_id = waiting_run(workbench, gated_session, gated, user)
    assert workbench.run_state(user, run_id).status == "WAITING"
    assert workbench.session_row(user, gated_session.uuid).run_status == "WAITING"
    workbench.answer(user, run_id, question_id, "red")
    entries = finish(workbench, user, run_id)
    assert contents(workbench, user, gated_session)[-1] == "You said red. Bye."
    assert [entry.content for entry in entries if entry.kind == "clarify_answer"] == ["red"]
    assert workbench.store.check() == []


def test_second_answer_to_a_question_is_refused(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    run_id, question_id = waiting_run(workbench, gated_session, gated, user)
    workbench.answer(user, run_id, question_id, "red")
    workbench.answer(user, run_id, question_id, "red")
    with pytest.raises(AlreadyAnswered) as refused:
        workbench.answer(user, run_id, question_id, "blue")
    assert refused.value.values["answer"] == "red"
    finish(workbench, user, run_id)


def test_of_many_answers_at_once_exactly_one_wins(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    run_id, question_id = waiting_run(workbench, gated_session, gated, user)
    gate = threading.Barrier(8)

    def answer(number: int) -> str:
        gate.wait(5)
        try:
            return workbench.answer(user, run_id, question_id, f"a{number}").answer or ""
        except AlreadyAnswered as lost:
            return str(lost.values["answer"])

    with ThreadPoolExecutor(8) as threads:
        told = set(threads.map(answer, range(8)))
    finish(workbench, user, run_id)
    assert len(told) == 1
    assert contents(workbench, user, gated_session)[-1] == f"You said {told.pop()}. Bye."


def test_two_questions_with_the_same_words_are_two_questions(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [asks("Sure?", []), asks("Sure?", [])]
    gated.release()
    started = workbench.ask(user, gated_session.uuid, "go")
    seen = 0
    for entry in workbench.follow(user, started.run_id):
        if entry.kind == "clarify_request":
            seen += 1
            workbench.answer(user, started.run_id, entry.meta["question_id"], f"yes {seen}")
    assert contents(workbench, user, gated_session)[-1] == "You said yes 1.You said yes 2."


def test_an_approval_takes_only_its_choices(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [asks_approval("rm -rf scratch")]
    gated.release()
    started = workbench.ask(user, gated_session.uuid, "go")
    request = wait_for(workbench, user, started.run_id, "approval_request")
    assert request.meta["command"] == "rm -rf scratch"
    with pytest.raises(InvalidInput):
        workbench.answer(user, started.run_id, request.meta["question_id"], "always")
    workbench.answer(user, started.run_id, request.meta["question_id"], "deny")
    finish(workbench, user, started.run_id)
    assert contents(workbench, user, gated_session)[-1] == "Decision: deny."


def test_deleting_a_session_at_work_leaves_nothing_behind(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    run_id, _ = waiting_run(workbench, gated_session, gated, user)
    workbench.delete_session(user, gated_session.uuid, undo_seconds=0)
    gated.wait_until_ended()
    with pytest.raises(NotFound):
        workbench.get_session(user, gated_session.uuid)
    with workbench.store.database.read() as db:
        for table in ("chat_session", "chat_message", "chat_message_log", "run", "run_question", "turn_context"):
            assert db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] == 0, table
    with pytest.raises(NotFound):
        workbench.run_state(user, run_id)


def test_a_worker_without_the_current_fence_cannot_write(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    started = workbench.ask(user, gated_session.uuid, "go")
    gated.wait_until_started()
    run = workbench.store.runs.get(user, started.run_id)
    stale = Lease(run.run_id, run.message_id, run.lease_owner, run.fence)
    taken = workbench.store.runs.take_over(run.run_id, "another", run.started_at)
    assert taken is not None
    assert taken.fence == run.fence + 1
    results = workbench.store.runs.append([Append(stale, (NewEntry("answer", "late"),))], run.started_at)
    assert isinstance(results[0], LeaseLost)
    gated.release()
    gated.wait_until_ended()
    assert [entry.kind for entry in workbench.entries(user, run.run_id)] == ["run_started"]


def test_two_tabs_sending_at_once_give_one_run_and_one_refusal(workbench: Workbench, user: User) -> None:
    for _ in range(20):
        session = workbench.create_session(user, runtime="echo")
        gate = threading.Barrier(2)

        def send(text: str, session: Session = session, gate: threading.Barrier = gate) -> str:
            gate.wait(5)
            try:
                return workbench.ask(user, session.uuid, text).run_id
            except SessionBusy:
                return ""

        with ThreadPoolExecutor(2) as threads:
            runs = [run for run in threads.map(send, ["one", "two"]) if run]
        for run in runs:
            finish(workbench, user, run)
        assert len(workbench.tree(user, session.uuid)) == 2 * len(runs)
    assert workbench.store.check() == []


def test_regenerate_against_a_send_never_loses_a_message(workbench: Workbench, session: Session, user: User) -> None:
    finish(workbench, user, workbench.ask(user, session.uuid, "start").run_id)
    for _ in range(50):
        leaf = workbench.branch(user, session.uuid).messages[-1].message.uuid
        before = len(workbench.tree(user, session.uuid))
        gate = threading.Barrier(2)

        def act(send: bool, leaf: str = leaf, gate: threading.Barrier = gate) -> tuple[str, int]:
            gate.wait(5)
            try:
                if send:
                    return workbench.ask(user, session.uuid, "more").run_id, 2
                return workbench.regenerate(user, leaf).run_id, 1
            except SessionBusy:
                return "", 0

        with ThreadPoolExecutor(2) as threads:
            done = list(threads.map(act, [True, False]))
        for run_id, _ in done:
            if run_id:
                finish(workbench, user, run_id)
        assert len(workbench.tree(user, session.uuid)) == before + sum(added for _, added in done)
        assert any(run_id for run_id, _ in done)
    assert workbench.store.check() == []
