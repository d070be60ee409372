"""Two things at the same moment: what must not be lost, doubled or left running."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from chat_core.bridge.protocol import Event, RunRequest, RunSnapshot
from chat_core.bridge.run_host import LocalRunHost
from chat_core.config import Settings
from chat_core.context import OUTCOME_UNKNOWN
from chat_core.errors import BridgeUnavailable, Conflict, InvalidInput, NotFound, ParleyError, StoreUnavailable
from chat_core.models import Session, User
from chat_core.store.runs import Runs
from chat_core.workbench import Workbench
from tests.support.runs import contents, finish, wait_for
from tests.support.runtimes import (
    EchoRuntime,
    GatedRuntime,
    Turn,
    answers,
    asks,
    asks_approval,
    calls_tool,
    emits,
    hangs_until_stop,
)
from tests.support.stored import add_session
from tests.support.waiting import until

OpenBench = Callable[..., Workbench]


class HostWithDoor:
    """A run host that can be made unreachable, or held at the start of a run."""

    def __init__(self, host: LocalRunHost) -> None:
        self.host = host
        self.away = threading.Event()
        self.may_start = threading.Event()
        self.may_start.set()
        self.asked_to_start = threading.Event()
        self.stops: list[str] = []

    def _check(self) -> None:
        if self.away.is_set():
            raise BridgeUnavailable("The Bridge is away.")

    def start(self, request: RunRequest) -> None:
        self.asked_to_start.set()
        assert self.may_start.wait(10)
        self._check()
        self.host.start(request)

    def events(self, run_id: str, after: int = 0) -> Iterator[Event]:
        return self.host.events(run_id, after)

    def snapshot(self, run_id: str) -> RunSnapshot:
        self._check()
        return self.host.snapshot(run_id)

    def stop(self, run_id: str) -> None:
        self._check()
        self.stops.append(run_id)
        self.host.stop(run_id)

    def answer(self, run_id: str, question_id: str, answer: str) -> None:
        self._check()
        self.host.answer(run_id, question_id, answer)

    def forget(self, agent_session: str) -> None:
        self.host.forget(agent_session)


@pytest.fixture
def door(host: LocalRunHost) -> HostWithDoor:
    return HostWithDoor(host)


@pytest.fixture
def fast_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chat_core.run_pool.BEAT_SECONDS", 0.05)


def test_a_stop_that_comes_before_the_agent_was_told_to_start_counts(
    open_bench: OpenBench, door: HostWithDoor, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [hangs_until_stop()]
    gated.release()
    door.may_start.clear()
    workbench = open_bench(host=door)
    started = workbench.ask(user, add_session_of(workbench, user, "gated"), "go")
    assert door.asked_to_start.wait(5)
    workbench.stop(user, started.run_id)
    door.may_start.set()
    finish(workbench, user, started.run_id)
    assert workbench.message(user, started.message_uuid).status == "STOPPED"


def test_a_stop_between_the_commit_and_the_worker_counts(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    gated.steps = [hangs_until_stop()]
    gated.release()
    start = workbench._pool.start

    def stopped_first(run: Any, *rest: Any) -> None:
        workbench.stop(user, run.run_id)
        start(run, *rest)

    monkeypatch.setattr(workbench._pool, "start", stopped_first)
    started = workbench.ask(user, gated_session.uuid, "go")
    finish(workbench, user, started.run_id)
    assert workbench.message(user, started.message_uuid).status == "STOPPED"


def add_session_of(workbench: Workbench, user: User, runtime: str) -> str:
    return workbench.create_session(user, runtime=runtime).uuid


def test_stop_at_the_moment_of_the_end_leaves_one_end(workbench: Workbench, gated: GatedRuntime, user: User) -> None:
    for _ in range(20):
        session = add_session_of(workbench, user, "gated")
        gated.steps = [answers("text")]
        started = workbench.ask(user, session, "go")
        gated.wait_until_started(started.run_id)
        gate = threading.Barrier(2)

        def act(stops: bool, run_id: str = started.run_id, gate: threading.Barrier = gate) -> None:
            gate.wait(5)
            if stops:
                workbench.stop(user, run_id)
            else:
                gated.release(run_id=run_id)

        with ThreadPoolExecutor(2) as threads:
            list(threads.map(act, [True, False]))
        entries = finish(workbench, user, started.run_id)
        assert sum(entry.is_terminal for entry in entries) == 1
        assert workbench.message(user, started.message_uuid).status in ("SUCCESS", "STOPPED")
    assert workbench.store.check() == []


def test_an_answer_at_the_moment_of_a_stop_is_recorded_or_refused_never_both(
    workbench: Workbench, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [asks("Which?", [])]
    gated.release()
    for _ in range(20):
        started = workbench.ask(user, add_session_of(workbench, user, "gated"), "go")
        question = wait_for(workbench, user, started.run_id, "clarify_request").meta["question_id"]
        gate = threading.Barrier(2)

        def act(
            stops: bool, run_id: str = started.run_id, question: str = question, gate: threading.Barrier = gate
        ) -> bool:
            gate.wait(5)
            try:
                if stops:
                    workbench.stop(user, run_id)
                else:
                    workbench.answer(user, run_id, question, "red")
            except Conflict:
                return False
            return True

        with ThreadPoolExecutor(2) as threads:
            _, answered = threads.map(act, [True, False])
        entries = finish(workbench, user, started.run_id)
        assert sum(entry.kind == "clarify_answer" for entry in entries) == answered
        assert [item.status for item in workbench.questions(user, started.run_id)] == [
            "ANSWERED" if answered else "CLOSED"
        ]
    assert workbench.store.check() == []


def test_deleting_at_any_moment_of_a_run_leaves_nothing_behind(
    workbench: Workbench, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [answers("a"), asks("Which?", []), answers("b")]
    for released in range(4):
        session = add_session_of(workbench, user, "gated")
        started = workbench.ask(user, session, "go")
        gated.release(released, run_id=started.run_id)
        workbench.delete_session(user, session, undo_seconds=0)
        gated.wait_until_ended(started.run_id)
    until(lambda: workbench._pool.active == 0)
    with workbench.store.database.read() as db:
        for table in ("chat_session", "chat_message", "chat_message_log", "run", "run_question", "turn_context"):
            assert db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] == 0, table
    assert workbench.store.check() == []


def test_an_agent_whose_session_went_before_it_was_started_is_told_to_stop(
    open_bench: OpenBench, door: HostWithDoor, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [answers("a"), hangs_until_stop()]
    gated.release()
    door.may_start.clear()
    workbench = open_bench(host=door)
    session = add_session_of(workbench, user, "gated")
    started = workbench.ask(user, session, "go")
    assert door.asked_to_start.wait(5)
    run = workbench.store.runs.get(user, started.run_id)
    with workbench.store.database.write() as db:
        db.execute("UPDATE chat_session SET leaf_id = NULL")
        db.execute("DELETE FROM chat_session WHERE id = ?", (run.session_id,))
    door.may_start.set()
    gated.wait_until_ended(started.run_id)
    assert started.run_id in door.stops


@pytest.mark.usefixtures("fast_beat")
def test_an_agent_that_could_not_be_told_to_stop_is_told_when_it_can_be_reached(
    open_bench: OpenBench, door: HostWithDoor, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [answers("partial"), hangs_until_stop()]
    gated.release()
    workbench = open_bench(host=door)
    started = workbench.ask(user, add_session_of(workbench, user, "gated"), "go")
    wait_for(workbench, user, started.run_id, "answer")
    door.away.set()
    workbench.stop(user, started.run_id)
    finish(workbench, user, started.run_id)
    message = workbench.message(user, started.message_uuid)
    assert (message.status, message.content) == ("STOPPED", "partial")
    assert message.error is not None
    assert message.error.code == "stopped_unreached"
    door.away.clear()
    gated.wait_until_ended(started.run_id)


def test_what_can_never_be_stored_fails_its_own_run_and_no_other(
    workbench: Workbench, gated: GatedRuntime, session: Session, user: User
) -> None:
    gated.steps = [
        answers("half"),
        emits("tool_call", call_id="c", name="clock", args={}),
        emits("tool_result", call_id="c", name="clock", result="x", duration_ms=1e30, is_error=False),
        hangs_until_stop(),
    ]
    gated.release()
    poisoned = workbench.ask(user, add_session_of(workbench, user, "gated"), "go")
    finish(workbench, user, poisoned.run_id)
    finish(workbench, user, workbench.ask(user, session.uuid, "hello").run_id)
    message = workbench.message(user, poisoned.message_uuid)
    assert (message.status, message.content) == ("FAILED", "half")
    assert contents(workbench, user, session) == ["hello", "hello"]
    assert workbench.trouble() is None
    assert workbench.store.check() == []


def test_numbers_that_are_none_are_stored_as_null(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [emits("usage", input_tokens=float("nan"), cost_usd=float("inf"), parts=[float("nan"), 1])]
    gated.release()
    started = workbench.ask(user, gated_session.uuid, "go")
    finish(workbench, user, started.run_id)
    usage = workbench.message(user, started.message_uuid).usage
    assert usage == {"input_tokens": None, "cost_usd": None, "parts": [None, 1]}
    assert workbench.store.check() == []


def test_two_summaries_in_one_moment_are_both_kept(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [
        emits("context_compacted", summary="first", condensed=1),
        emits("context_compacted", summary="second", condensed=1),
    ]
    gated.release()
    finish(workbench, user, workbench.ask(user, gated_session.uuid, "go").run_id)
    tree = workbench.tree(user, gated_session.uuid)
    assert [message.content for message in tree if message.status == "SUMMARY"] == ["first", "second"]


def test_an_approval_the_agent_would_not_take_is_refused_and_can_be_given_again(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [asks_approval()]
    gated.release()
    started = workbench.ask(user, gated_session.uuid, "go")
    question = wait_for(workbench, user, started.run_id, "approval_request").meta["question_id"]
    with pytest.raises(InvalidInput):
        workbench.answer(user, started.run_id, question, "deny: too risky")
    workbench.answer(user, started.run_id, question, "deny")
    finish(workbench, user, started.run_id)
    assert contents(workbench, user, gated_session)[-1] == "Decision: deny."


def test_an_answer_that_could_not_be_delivered_is_delivered_at_the_next_start(
    open_bench: OpenBench, door: HostWithDoor, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [asks("Which?", [])]
    gated.release()
    first = open_bench(host=door)
    session = add_session_of(first, user, "gated")
    started = first.ask(user, session, "go")
    question = wait_for(first, user, started.run_id, "clarify_request").meta["question_id"]
    door.away.set()
    assert first.answer(user, started.run_id, question, "red").delivered is False
    first.close()
    door.away.clear()
    second = open_bench(host=door)
    finish(second, user, started.run_id)
    assert second.message(user, started.message_uuid).content == "You said red."
    assert [item.delivered for item in second.questions(user, started.run_id)] == [True]


def test_closing_at_any_moment_of_a_run_loses_nothing(open_bench: OpenBench, gated: GatedRuntime, user: User) -> None:
    gated.steps = [answers(f"{number} ") for number in range(40)]
    workbench = open_bench()
    session = workbench.create_session(user, runtime="gated")
    started = workbench.ask(user, session.uuid, "go")
    for _ in range(4):
        gated.release(8)
        workbench.close()
        workbench = open_bench()
    gated.release()
    entries = finish(workbench, user, started.run_id)
    text = "".join(f"{number} " for number in range(40))
    assert "".join(entry.content for entry in entries if entry.kind == "answer") == text
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert workbench.message(user, started.message_uuid).content == text
    assert workbench.store.check() == []


def test_a_run_that_was_deleted_while_the_app_was_starting_does_not_keep_the_others_waiting(
    open_bench: OpenBench, gated: GatedRuntime, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    gated.steps = [answers("done")]
    first = open_bench()
    runs = [first.ask(user, add_session_of(first, user, "gated"), f"{number}") for number in range(2)]
    for run in runs:
        gated.wait_until_started(run.run_id)
    first.close()
    looked_up: list[str] = []

    def gone_once(_self: object, db: object, session_id: int) -> str:
        looked_up.append(str(session_id))
        if len(looked_up) == 1:
            raise NotFound("deleted meanwhile")
        return ""

    monkeypatch.setattr("chat_core.store.messages.Messages.first_user_text", gone_once)
    second = open_bench()
    gated.release()
    finish(second, user, runs[1].run_id)
    assert second.message(user, runs[1].message_uuid).status == "SUCCESS"


def test_recovery_tries_again_while_the_database_cannot_be_used(
    open_bench: OpenBench, gated: GatedRuntime, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chat_core.recovery.RETRY_SECONDS", 0.05)
    gated.steps = [answers("done")]
    first = open_bench()
    started = first.ask(user, add_session_of(first, user, "gated"), "go")
    gated.wait_until_started(started.run_id)
    first.close()
    take_over, tries = Runs.take_over, []

    def unwilling(self: Runs, *rest: Any) -> Any:
        tries.append(1)
        if len(tries) < 3:
            raise StoreUnavailable("locked")
        return take_over(self, *rest)

    monkeypatch.setattr(Runs, "take_over", unwilling)
    second = open_bench()
    gated.release()
    finish(second, user, started.run_id)
    assert second.message(user, started.message_uuid).status == "SUCCESS"


@pytest.mark.usefixtures("fast_beat")
def test_a_run_that_lost_its_worker_is_ended_and_the_session_is_free_again(
    open_bench: OpenBench, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    workbench = open_bench()
    session = add_session(workbench, user)
    with monkeypatch.context() as patch:
        patch.setattr(workbench._pool, "start", lambda *_: None)
        started = workbench.ask(user, session.uuid, "go")
    finish(workbench, user, started.run_id)
    assert workbench.message(user, started.message_uuid).status == "INTERRUPTED"
    finish(workbench, user, workbench.ask(user, session.uuid, "again").run_id)
    assert workbench.store.check() == []


def test_asking_while_parley_stops_is_refused_plainly_and_the_question_is_kept(
    open_bench: OpenBench, user: User, settings: Settings, echo: EchoRuntime
) -> None:
    first = open_bench()
    session = add_session(first, user)
    first._pool.close()
    with pytest.raises(ParleyError, match="stopping"):
        first.ask(user, session.uuid, "kept")
    first.close()
    second = open_bench()
    [message] = [message for message in second.tree(user, session.uuid) if message.role == "ASSISTANT"]
    assert message.run_id is not None
    finish(second, user, message.run_id)
    assert contents(second, user, session)[0] == "kept"
    assert second.store.check() == []


def test_bc18_a_stopped_worker_that_wakes_later_cannot_write_into_the_next_turn(
    open_bench: OpenBench, door: HostWithDoor, gated: GatedRuntime, user: User
) -> None:
    wake = threading.Event()

    def sleeps_through_the_stop(turn: Turn) -> None:
        if turn.request.message == "first":
            assert wake.wait(10)
        turn.answer("late")

    gated.steps = [calls_tool("todo"), calls_tool("todo"), sleeps_through_the_stop]
    gated.release()
    workbench = open_bench(host=door)
    session = workbench.create_session(user, runtime="gated")
    first = workbench.ask(user, session.uuid, "first")
    until(lambda: sum(entry.kind == "tool_result" for entry in workbench.entries(user, first.run_id)) == 2)
    door.away.set()
    workbench.stop(user, first.run_id)
    stopped = finish(workbench, user, first.run_id)
    door.away.clear()
    second = workbench.ask(user, session.uuid, "second")
    finish(workbench, user, second.run_id)
    wake.set()
    gated.wait_until_ended(first.run_id)
    until(lambda: workbench._pool.active == 0)
    assert workbench.message(user, first.message_uuid).status == "STOPPED"
    assert workbench.message(user, first.message_uuid).content == ""
    assert workbench.log(user, first.message_uuid) == stopped
    assert sum(entry.kind == "tool_result" for entry in stopped) == 2
    assert contents(workbench, user, session) == ["first", "", "second", "late"]
    assert workbench.store.check() == []


def test_bc24_an_agent_that_goes_on_is_told_of_the_call_that_was_cut_off(
    open_bench: OpenBench, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [
        calls_tool("todo", result="done"),
        emits("tool_call", call_id="cut", name="mail", args={"to": "a"}),
        answers("never"),
    ]
    first = open_bench()
    started = first.ask(user, add_session_of(first, user, "gated"), "go")
    gated.release(2)
    until(lambda: sum(entry.kind == "tool_call" for entry in first.entries(user, started.run_id)) == 2)
    first.close()
    fresh = GatedRuntime([answers("more")])
    fresh.release()
    second = open_bench(host=LocalRunHost({"gated": fresh}))
    finish(second, user, started.run_id)
    finish(second, user, second.continue_run(user, started.message_uuid).run_id)
    told = [message for turn in fresh.requests[0].contexts for message in turn if message["role"] == "tool"]
    assert [message["content"] for message in told] == ["done", OUTCOME_UNKNOWN]
    assert told[1]["tool_call_id"] == "cut"
