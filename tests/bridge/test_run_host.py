"""The run host: numbered events for any reader, questions, stop, limits, ends."""

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from chat_core.bridge.event_buffer import EventBuffer, join_deltas
from chat_core.bridge.protocol import Event, RunRequest
from chat_core.bridge.run_host import LocalRunHost
from chat_core.errors import AlreadyAnswered, InvalidInput, LimitReached, NotFound, QuestionClosed, RunUnknown
from tests.support.runtimes import (
    EchoRuntime,
    GatedRuntime,
    Step,
    Turn,
    asks,
    asks_approval,
    calls_tool,
    chunks,
    fails,
    hangs_until_stop,
    reports_error,
    thinks,
)

WAIT_SECONDS = 5.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def ask(run_id: str = "run-1", runtime: str = "gated", message: str = "hello") -> RunRequest:
    return RunRequest(run_id=run_id, agent_session="session-1", runtime=runtime, message=message)


def host_of(*steps: Step, **options: Any) -> tuple[LocalRunHost, GatedRuntime]:
    gated = GatedRuntime(steps or None)
    return LocalRunHost({"gated": gated, "echo": EchoRuntime()}, **options), gated


def in_background(work: Callable[[], Any]) -> "Future[Any]":
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def until(events: Iterator[Event], kind: str) -> Event:
    return next(event for event in events if event.kind == kind)


def text_of(events: list[Event], kind: str = "answer") -> str:
    return "".join(event.data["text"] for event in events if event.kind == kind)


# --- events ---


def test_events_are_numbered_from_one_without_gaps_and_end_with_the_terminal_one() -> None:
    host, _ = host_of()

    host.start(ask(runtime="echo", message="hello world"))
    events = list(host.events("run-1"))

    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.kind for event in events if event.is_terminal] == ["final"]
    assert events[-1].kind == "final"
    assert text_of(events) == "hello world"


def test_every_reader_sees_everything_whenever_it_joins() -> None:
    host, gated = host_of(thinks("a"), chunks(5), chunks(5))
    host.start(ask())
    gated.wait_until_started()
    early = in_background(lambda: list(host.events("run-1")))
    gated.release(2)
    until(host.events("run-1"), "answer")
    midway = in_background(lambda: list(host.events("run-1")))
    gated.release()

    late_after_end = [early.result(WAIT_SECONDS), midway.result(WAIT_SECONDS), list(host.events("run-1"))]

    assert late_after_end[0] == late_after_end[1] == late_after_end[2]


def test_reader_resumes_after_the_last_event_it_saw() -> None:
    host, _ = host_of()
    host.start(ask(runtime="echo", message="abcdefgh"))
    everything = list(host.events("run-1"))

    assert list(host.events("run-1", after=3)) == everything[3:]
    assert list(host.events("run-1", after=everything[-1].seq)) == []


def test_a_reader_that_never_reads_does_not_hold_up_the_run() -> None:
    host, gated = host_of(chunks(2000))
    host.start(ask())
    idle = host.events("run-1")
    gated.release()
    assert next(idle).seq == 1

    assert list(host.events("run-1"))[-1].kind == "final"


def test_beyond_the_bound_deltas_are_joined_and_no_cursor_loses_or_repeats_text() -> None:
    buffer = EventBuffer(max_bytes=4_000)
    words = [f"{number:03d} " for number in range(200)]
    for number, word in enumerate(words):
        buffer.append("answer" if number != 100 else "tool_call", {"text": word})

    assert buffer.stored_bytes < 12_000
    for after in range(201):
        events = buffer.read(after)
        assert [event.seq for event in events] == sorted({event.seq for event in events})
        assert "".join(event.data["text"] for event in events) == "".join(words[after:])


def test_joining_again_and_again_keeps_every_cursor_exact() -> None:
    buffer = EventBuffer(max_bytes=1_000_000)
    words = [f"{number} " for number in range(60)]
    for word in words:
        buffer.append("thinking", {"text": word})
        if len(word) == 3:
            buffer.join()

    buffer.join()

    assert len(buffer.read(0)) == 1
    assert ["".join(event.data["text"] for event in buffer.read(after)) for after in range(60)] == [
        "".join(words[after:]) for after in range(60)
    ]


def test_events_that_are_not_text_are_never_joined() -> None:
    events = [Event(1, "answer", 0, {"text": "a"}), Event(2, "answer", 0, {"text": "b"}),
              Event(3, "tool_call", 0, {"name": "x"}), Event(4, "tool_call", 0, {"name": "y"}),
              Event(5, "thinking", 0, {"text": "c"}), Event(6, "answer", 0, {"text": "d"})]  # fmt: skip

    joined = join_deltas(events)

    assert [(event.seq, event.kind, event.data.get("text")) for event in joined] == [
        (2, "answer", "ab"), (3, "tool_call", None), (4, "tool_call", None), (5, "thinking", "c"), (6, "answer", "d")
    ]  # fmt: skip


def test_a_large_tool_result_is_kept_whole_beyond_the_bound() -> None:
    host, gated = host_of(chunks(50), calls_tool(result="x" * 20_000), chunks(50), max_bytes_per_run=5_000)
    host.start(ask())
    gated.release()
    gated.wait_until_ended()

    events = list(host.events("run-1"))

    assert next(event for event in events if event.kind == "tool_result").data["result"] == "x" * 20_000
    assert text_of(events) == "word " * 100


# --- starting ---


def test_the_same_run_id_again_changes_nothing() -> None:
    host, gated = host_of()
    assert host.start_new(ask(message="first"))

    assert not host.start_new(ask(message="second"))

    gated.release()
    assert list(host.events("run-1"))[-1].data["text"] == "first"
    assert len(gated.requests) == 1


def test_more_runs_than_the_limit_are_refused_until_one_has_ended() -> None:
    host, gated = host_of(max_active_runs=1)
    host.start(ask("run-1"))

    with pytest.raises(LimitReached):
        host.start(ask("run-2"))

    gated.release()
    list(host.events("run-1"))
    host.start(ask("run-2"))
    assert list(host.events("run-2"))[-1].kind == "final"


def test_an_unknown_runtime_is_refused() -> None:
    host, _ = host_of()

    with pytest.raises(InvalidInput, match="nothing-like-it"):
        host.start(ask(runtime="nothing-like-it"))


def test_runs_are_kept_for_an_hour_after_their_end() -> None:
    clock = Clock()
    host, gated = host_of(clock=clock)
    host.start(ask())
    gated.release()
    everything = list(host.events("run-1"))
    gated.wait_until_ended()

    clock.now += 3590
    assert text_of(list(host.events("run-1"))) == text_of(everything)

    clock.now += 3600
    with pytest.raises(RunUnknown):
        host.events("run-1")


def test_a_run_at_work_is_kept_however_long_it_takes() -> None:
    clock = Clock()
    host, gated = host_of(clock=clock)
    host.start(ask())
    gated.wait_until_started()

    clock.now += 100_000
    assert host.snapshot("run-1").status == "running"
    gated.release()
    assert list(host.events("run-1"))[-1].kind == "final"


# --- ends ---


def test_a_runtime_that_raises_ends_in_one_error_without_its_words() -> None:
    host, gated = host_of(chunks(1), fails("the key is sk-12345"))
    host.start(ask())
    gated.release()

    events = list(host.events("run-1"))

    assert [event.kind for event in events] == ["answer", "error"]
    assert events[-1].data["code"] == "internal"
    assert "sk-12345" not in str(events[-1].data)


def test_nothing_comes_after_the_terminal_event() -> None:
    host, gated = host_of(reports_error("model_auth", "no"), chunks(3), fails())
    host.start(ask())
    gated.release()
    gated.wait_until_ended()

    events = list(host.events("run-1"))

    assert [event.kind for event in events] == ["error"]
    assert events[0].data["code"] == "model_auth"
    assert host.snapshot("run-1").status == "ended"


def test_a_runtime_that_ends_without_a_word_is_an_error() -> None:
    class Silent(EchoRuntime):
        def run(self, request: RunRequest, control: object) -> None:
            """Say nothing."""

    host = LocalRunHost({"echo": Silent()})
    host.start(ask(runtime="echo"))

    assert [event.kind for event in host.events("run-1")] == ["error"]


# --- questions ---


def waiting_question(host: LocalRunHost, gated: GatedRuntime, kind: str = "clarify_request") -> str:
    host.start(ask())
    gated.release()
    return str(until(host.events("run-1"), kind).data["question_id"])


def test_the_first_answer_wins_and_another_one_is_told_which() -> None:
    host, gated = host_of(asks("Which one?", ("red", "blue")))
    question_id = waiting_question(host, gated)
    assert host.snapshot("run-1").status == "waiting"
    assert host.snapshot("run-1").questions[0].choices == ["red", "blue"]

    host.answer("run-1", question_id, "red")

    host.answer("run-1", question_id, "red")
    with pytest.raises(AlreadyAnswered) as told:
        host.answer("run-1", question_id, "blue")
    assert told.value.values["answer"] == "red"
    assert list(host.events("run-1"))[-1].data["text"] == "You said red."
    with pytest.raises(AlreadyAnswered):
        host.answer("run-1", question_id, "blue")


def test_of_many_answers_at_once_exactly_one_wins() -> None:
    host, gated = host_of(asks())
    question_id = waiting_question(host, gated)
    start = threading.Barrier(8)

    def answer(text: str) -> str:
        start.wait(WAIT_SECONDS)
        try:
            host.answer("run-1", question_id, text)
        except AlreadyAnswered:
            return ""
        return text

    answers = [in_background(lambda text=f"answer {n}": answer(text)) for n in range(8)]
    won = [text for future in answers if (text := future.result(WAIT_SECONDS))]

    assert len(won) == 1
    assert list(host.events("run-1"))[-1].data["text"] == f"You said {won[0]}."


def test_two_questions_with_the_same_words_are_two_questions() -> None:
    host, gated = host_of(asks("Again?"), asks("Again?"))
    host.start(ask())
    gated.release()
    events = host.events("run-1")
    first = until(events, "clarify_request").data["question_id"]
    host.answer("run-1", first, "one")
    second = until(events, "clarify_request").data["question_id"]

    host.answer("run-1", second, "two")

    assert first != second
    assert list(host.events("run-1"))[-1].data["text"] == "You said one.You said two."


def test_an_approval_takes_only_its_choices() -> None:
    host, gated = host_of(asks_approval("rm -rf x"))
    question_id = waiting_question(host, gated, "approval_request")

    for wrong in ("always", "yes", ""):
        with pytest.raises(InvalidInput):
            host.answer("run-1", question_id, wrong)

    host.answer("run-1", question_id, "deny")
    assert list(host.events("run-1"))[-1].data["text"] == "Decision: deny."


def test_an_unknown_question_is_not_found() -> None:
    host, gated = host_of(asks())
    waiting_question(host, gated)

    with pytest.raises(NotFound):
        host.answer("run-1", "nonsense", "red")


# --- stop ---


def test_stop_releases_a_waiting_question_and_closes_it() -> None:
    host, gated = host_of(asks())
    question_id = waiting_question(host, gated)

    host.stop("run-1")

    events = list(host.events("run-1"))
    assert events[-1].data["interrupted"] is True
    assert host.snapshot("run-1").questions == []
    with pytest.raises(QuestionClosed):
        host.answer("run-1", question_id, "red")


def test_stop_calls_back_once_and_is_harmless_twice_and_after_the_end() -> None:
    host, gated = host_of(chunks(3), hangs_until_stop())
    host.start(ask())
    gated.release()
    until(host.events("run-1"), "answer")

    host.stop("run-1")
    host.stop("run-1")

    events = list(host.events("run-1"))
    assert [event.kind for event in events if event.is_terminal] == ["final"]
    assert events[-1].data["text"] == "word word word "
    host.stop("run-1")
    assert list(host.events("run-1")) == events


def test_a_callback_registered_after_the_stop_is_called_too() -> None:
    called = threading.Event()
    host, gated = host_of(lambda turn: (host.stop("run-1"), turn.control.on_stop(called.set), None)[-1])
    host.start(ask())
    gated.release()

    assert called.wait(WAIT_SECONDS)


def test_stopping_an_unknown_run_says_so() -> None:
    host, _ = host_of()

    with pytest.raises(RunUnknown):
        host.stop("nobody")


def test_close_stops_every_run_and_waits_for_their_ends() -> None:
    host, gated = host_of(hangs_until_stop())
    host.start(ask("run-1"))
    host.start(ask("run-2"))
    gated.release()
    gated.wait_until_started(count=2)

    host.close(WAIT_SECONDS)

    assert host.active_runs == 0
    assert [list(host.events(run_id))[-1].kind for run_id in ("run-1", "run-2")] == ["final", "final"]


def test_forget_reaches_every_runtime() -> None:
    echo, gated = EchoRuntime(), GatedRuntime()
    host = LocalRunHost({"echo": echo, "gated": gated})

    host.forget("session-1")

    assert echo.forgotten == gated.forgotten == ["session-1"]


def test_an_ended_run_holds_neither_its_history_nor_what_it_would_have_called() -> None:
    class Agent:
        """Stands for what a runtime's stop callback refers to."""

        def interrupt(self) -> None: ...

    agents: list[weakref.ref[Agent]] = []

    def step(turn: Turn) -> None:
        agent = Agent()
        agents.append(weakref.ref(agent))
        turn.control.on_stop(agent.interrupt)

    host, gated = host_of(step)
    host.start(ask())
    gated.release()
    list(host.events("run-1"))
    host.close(WAIT_SECONDS)
    gc.collect()

    assert agents[0]() is None
