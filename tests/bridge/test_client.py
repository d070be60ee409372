"""The client of the Bridge: the same events as without a network, whatever the network does."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from chat_core.bridge.client import BridgeAddress, BridgeClient
from chat_core.bridge.event_buffer import join_deltas
from chat_core.bridge.protocol import Event, RunRequest
from chat_core.bridge.run_host import LocalRunHost
from chat_core.errors import (
    AlreadyAnswered,
    BridgeUnavailable,
    InvalidInput,
    LimitReached,
    NotFound,
    RunUnknown,
)
from tests.support.breaking_proxy import NO_FAULT, Fault, breaking_proxy
from tests.support.canned_server import canned_server, json_answer, stream_of
from tests.support.runtimes import EchoRuntime, GatedRuntime, asks, breaks, calls_tool, chunks, thinks
from tests.support.served_bridge import TOKEN, served_bridge

FAST: dict[str, Any] = {"stream_delays_seconds": (0.001, 0.01), "call_delays_seconds": (0.001,)}
RICH_STEPS = [
    thinks("Hmm \u2028 \x0c \x85 end"),
    chunks(3, "before "),
    breaks(),
    *[calls_tool("terminal", result=f"line {number}\nπ 🙂" * 50) for number in range(8)],
    chunks(20, "ünï "),
    calls_tool("todo", is_error=True, deep={"a": [1, 2, {"b": None}]}),
    chunks(20, "word "),
]


@pytest.fixture
def gated() -> GatedRuntime:
    return GatedRuntime()


@pytest.fixture
def host(gated: GatedRuntime) -> LocalRunHost:
    return LocalRunHost({"echo": EchoRuntime(), "gated": gated}, max_active_runs=2)


@pytest.fixture
def bridge(host: LocalRunHost) -> Iterator[BridgeAddress]:
    with served_bridge(host) as address:
        yield address
        host.close(2)


@pytest.fixture
def client(bridge: BridgeAddress) -> Iterator[BridgeClient]:
    client = BridgeClient(lambda: bridge, **FAST)
    yield client
    client.close()


def a_run(run_id: str = "run-1", runtime: str = "gated", message: str = "hello there") -> RunRequest:
    return RunRequest(run_id=run_id, agent_session="session-1", runtime=runtime, message=message)


def port_of(address: BridgeAddress) -> int:
    return int(address.url.rsplit(":", 1)[1])


def shape_of(events: list[Event]) -> list[tuple[int, str, dict[str, object]]]:
    """What must be equal however the deltas were joined on their way."""
    return [(event.seq, event.kind, event.data) for event in join_deltas(events)]


def collect(client: BridgeClient, run_id: str, after: int = 0) -> list[Event]:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: list(client.events(run_id, after))).result(timeout=20)


# --- a whole stream ---


def test_events_over_http_equal_those_of_the_host(
    client: BridgeClient, host: LocalRunHost, gated: GatedRuntime
) -> None:
    gated.steps = RICH_STEPS
    gated.release()
    client.start(a_run())
    assert shape_of(collect(client, "run-1")) == shape_of(list(host.events("run-1")))


@pytest.mark.parametrize(
    "fault_of",
    [
        pytest.param(lambda number: Fault(after_blocks=1 + number % 3), id="cut before, after and between events"),
        pytest.param(lambda number: Fault(after_blocks=2, pieces=7), id="cut, and seven bytes a packet"),
        pytest.param(lambda number: Fault(after_blocks=2 + number % 4, kind="garbage"), id="garbage put in"),
        pytest.param(lambda number: Fault(3, "mute") if number < 3 else NO_FAULT, id="half-open three times"),
        pytest.param(lambda number: Fault(pieces=1), id="one byte a packet"),
    ],
)
def test_a_breaking_network_changes_no_event(
    bridge: BridgeAddress, host: LocalRunHost, gated: GatedRuntime, fault_of: Callable[[int], Fault]
) -> None:
    gated.steps = RICH_STEPS
    gated.release()
    host.start(a_run())
    gated.wait_until_ended()
    with breaking_proxy(port_of(bridge), fault_of) as proxy:
        client = BridgeClient(lambda: BridgeAddress(proxy.url, TOKEN), silence_seconds=0.3, **FAST)
        seen = collect(client, "run-1")
        client.close()
    assert shape_of(seen) == shape_of(list(host.events("run-1")))


def test_a_live_run_is_followed_through_cuts_to_its_end(
    bridge: BridgeAddress, host: LocalRunHost, gated: GatedRuntime
) -> None:
    gated.steps = RICH_STEPS
    with (
        breaking_proxy(port_of(bridge), lambda number: Fault(after_blocks=2)) as proxy,
        ThreadPoolExecutor(1) as pool,
    ):
        client = BridgeClient(lambda: BridgeAddress(proxy.url, TOKEN), **FAST)
        client.start(a_run())
        reading = pool.submit(lambda: list(client.events("run-1")))
        for _ in RICH_STEPS:
            gated.release(1)
        seen = reading.result(timeout=20)
        client.close()
    assert proxy.streams > 3
    assert shape_of(seen) == shape_of(list(host.events("run-1")))


def test_reading_on_from_any_event_gives_exactly_the_rest(
    client: BridgeClient, host: LocalRunHost, gated: GatedRuntime
) -> None:
    gated.steps = RICH_STEPS
    gated.release()
    client.start(a_run())
    everything = list(host.events("run-1"))
    for after in (1, 5, len(everything) - 1):
        rest = shape_of([event for event in everything if event.seq > after])
        assert shape_of(collect(client, "run-1", after)) == rest


def test_reading_after_the_last_event_ends_without_one(
    client: BridgeClient, host: LocalRunHost, gated: GatedRuntime
) -> None:
    gated.release()
    client.start(a_run())
    last_seq = list(host.events("run-1"))[-1].seq
    assert collect(client, "run-1", last_seq) == []


# --- damaged streams ---

ONE = Event(1, "thinking", 1.0, {"text": "a"})
TWO = Event(2, "tool_call", 2.0, {"call_id": "c", "name": "todo", "args": {}})
THREE = Event(3, "final", 3.0, {"text": "a"})


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(stream_of(ONE, THREE), id="gap"),
        pytest.param(stream_of(ONE, b"id: 2\nevent: status\ndata: {\n\n"), id="half a JSON"),
        pytest.param(stream_of(ONE, b"id: 2\nevent: status\ndata: []\n\n"), id="not an object"),
        pytest.param(stream_of(ONE, b'id: -2\nevent: status\ndata: {"text":"x"}\n\n'), id="negative id"),
        pytest.param(stream_of(ONE, b"data: {}\n\n"), id="no id"),
        pytest.param(stream_of(ONE, b'id: 2\nevent: status\ndata: {"text":"\xff"}\n\n'), id="not ASCII"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi", id="a web page"),
        pytest.param(json_answer(404, b"<html>not found</html>"), id="a 404 that is not the Bridge's"),
        pytest.param(json_answer(503, b'{"error":{"code":"x","message":"y"}}'), id="503"),
        pytest.param(json_answer(401, b'{"error":{"code":"unauthorized","message":"y"}}'), id="401"),
        pytest.param(b"220 mail.example ESMTP\r\n", id="not HTTP"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_what_is_not_the_bridges_stream_is_read_again(broken: bytes) -> None:
    with canned_server(broken, stream_of(ONE, TWO, THREE)) as server:
        client = BridgeClient(lambda: BridgeAddress(server.url), **FAST)
        assert [event.seq for event in collect(client, "run-1")] == [1, 2, 3]
        client.close()


def test_a_stream_that_ends_before_its_run_is_read_on() -> None:
    status = json_answer(200, b'{"run_id":"run-1","status":"running","last_seq":1}')
    with canned_server(stream_of(ONE), status, stream_of(TWO, THREE)) as server:
        client = BridgeClient(lambda: BridgeAddress(server.url), **FAST)
        assert collect(client, "run-1") == [ONE, TWO, THREE]
        assert server.requests[2] == "GET /v1/runs/run-1/events?after=1 HTTP/1.1"
        client.close()


def test_a_repeated_event_is_dropped() -> None:
    with canned_server(stream_of(ONE, ONE, b": keepalive\n\n", TWO, ONE, TWO, THREE)) as server:
        client = BridgeClient(lambda: BridgeAddress(server.url), **FAST)
        assert collect(client, "run-1") == [ONE, TWO, THREE]
        client.close()


def test_joined_deltas_may_skip_numbers() -> None:
    joined = Event(7, "answer", 1.0, {"text": "seven deltas"})
    end = Event(8, "final", 1.0, {"text": "seven deltas"})
    with canned_server(stream_of(joined, end)) as server:
        client = BridgeClient(lambda: BridgeAddress(server.url), **FAST)
        assert collect(client, "run-1") == [joined, end]
        assert server.requests == ["GET /v1/runs/run-1/events?after=0 HTTP/1.1"]
        client.close()


def test_an_event_nested_too_deeply_is_replaced_by_a_warning() -> None:
    deep = b'id: 1\nevent: tool_call\ndata: {"args":' + b"[" * 60_000 + b"]" * 60_000 + b"}\n\n"
    with canned_server(stream_of(deep, Event(2, "final", 1.0, {"text": ""}))) as server:
        client = BridgeClient(lambda: BridgeAddress(server.url), **FAST)
        seen = collect(client, "run-1")
        client.close()
    assert [(event.seq, event.kind) for event in seen] == [(1, "status"), (2, "final")]
    assert "tool_call" in seen[0].data["text"]


# --- silence, restarts, giving up ---


def test_a_run_the_bridge_does_not_hold_is_unknown(client: BridgeClient) -> None:
    with pytest.raises(RunUnknown):
        collect(client, "no-such-run")
    with pytest.raises(RunUnknown):
        client.snapshot("no-such-run")
    with pytest.raises(RunUnknown):
        client.stop("no-such-run")


def test_a_bridge_that_is_gone_is_given_up_after_the_given_time() -> None:
    def nowhere() -> BridgeAddress:
        raise BridgeUnavailable("The Bridge is starting.")

    client = BridgeClient(nowhere, give_up_seconds=0.05, **FAST)
    with pytest.raises(BridgeUnavailable, match=r"not heard for .* starting"):
        collect(client, "run-1")
    client.close()


def test_a_bridge_that_is_not_installed_is_not_waited_for() -> None:
    def nowhere() -> BridgeAddress:
        raise BridgeUnavailable("It is not installed.", permanent=True)

    client = BridgeClient(nowhere, give_up_seconds=60, **FAST)
    with pytest.raises(BridgeUnavailable, match="not installed"):
        next(client.events("run-1"))
    client.close()


def test_reconnecting_is_told_while_it_lasts_and_when_it_is_over() -> None:
    told: list[tuple[str, float]] = []
    answers = [b"", b"", stream_of(ONE, TWO, THREE)]
    with canned_server(*answers) as server:
        client = BridgeClient(
            lambda: BridgeAddress(server.url),
            on_reconnecting=lambda run_id, seconds: told.append((run_id, seconds)),
            **FAST,
        )
        collect(client, "run-1")
        client.close()
    assert [run_id for run_id, _ in told] == ["run-1"] * 3
    assert told[0][1] == 0.0
    assert told[1][1] > 0.0
    assert told[2][1] == 0.0


def test_a_bridge_is_followed_to_its_new_address(host: LocalRunHost, gated: GatedRuntime) -> None:
    addresses: list[BridgeAddress] = []
    client = BridgeClient(lambda: addresses[-1], **FAST)
    with served_bridge(host) as first:
        addresses.append(first)
        client.start(a_run())
        reader = client.events("run-1")
        gated.release(1)
        assert next(reader).kind == "thinking"
    with served_bridge(host) as second:
        addresses.append(second)
        gated.release()
        assert [event.kind for event in reader] == ["answer", "final"]
    client.close()


@pytest.mark.parametrize("fault", [NO_FAULT, Fault(after_blocks=0, kind="mute")], ids=["quiet run", "half-open"])
def test_close_ends_a_waiting_reader_at_once(
    bridge: BridgeAddress, host: LocalRunHost, gated: GatedRuntime, fault: Fault
) -> None:
    host.start(a_run())
    with breaking_proxy(port_of(bridge), lambda number: fault) as proxy, ThreadPoolExecutor(1) as pool:
        client = BridgeClient(lambda: BridgeAddress(proxy.url, TOKEN), silence_seconds=30, **FAST)
        reading = pool.submit(lambda: list(client.events("run-1")))
        wait_until(lambda: bool(client._sockets))
        closed_at = time.monotonic()
        client.close()
        assert reading.result(timeout=5) == []
        assert time.monotonic() - closed_at < 1
    with pytest.raises(BridgeUnavailable, match="shutting down"):
        client.snapshot("run-1")


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "it did not happen within 5 s"
        pause.wait(0.005)


# --- calls ---


def test_starting_twice_changes_nothing(client: BridgeClient, gated: GatedRuntime) -> None:
    gated.release()
    client.start(a_run())
    client.start(a_run())
    collect(client, "run-1")
    assert len(gated.requests) == 1


def test_a_call_whose_answer_was_lost_is_sent_again() -> None:
    with canned_server(b"", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}") as server:
        client = BridgeClient(lambda: BridgeAddress(server.url), **FAST)
        client.stop("run-1")
        assert len(server.requests) == 2
        client.close()


def test_a_full_bridge_refuses_with_its_reason(client: BridgeClient, gated: GatedRuntime) -> None:
    client.start(a_run("run-1"))
    client.start(a_run("run-2"))
    with pytest.raises(LimitReached, match="2 runs are active") as refusal:
        client.start(a_run("run-3"))
    assert refusal.value.values["retry_after"] == "2"


def test_an_unknown_runtime_is_refused_with_its_name(client: BridgeClient) -> None:
    with pytest.raises(InvalidInput, match="no runtime 'nope'"):
        client.start(a_run(runtime="nope"))


def test_the_first_answer_wins_and_the_second_is_told_which(
    client: BridgeClient, host: LocalRunHost, gated: GatedRuntime
) -> None:
    gated.steps = [asks("Which one?", ["red", "blue"])]
    gated.release()
    client.start(a_run())
    request = next(event for event in client.events("run-1") if event.kind == "clarify_request")
    question_id = request.data["question_id"]
    assert client.snapshot("run-1").status == "waiting"
    client.answer("run-1", question_id, "red")
    client.answer("run-1", question_id, "red")
    with pytest.raises(AlreadyAnswered) as refusal:
        client.answer("run-1", question_id, "blue")
    assert refusal.value.values["answer"] == "red"
    with pytest.raises(NotFound):
        client.answer("run-1", "no-such-question", "red")
    assert collect(client, "run-1")[-1].data["text"] == "You said red."


def test_a_stopped_run_ends_and_says_it_was_interrupted(client: BridgeClient, gated: GatedRuntime) -> None:
    client.start(a_run())
    gated.wait_until_started()
    client.stop("run-1")
    client.stop("run-1")
    assert collect(client, "run-1")[-1].data["interrupted"] is True


def test_choices_memory_and_health_are_read(client: BridgeClient) -> None:
    assert [model.id for model in client.models()] == ["echo"]
    assert [skill.folder for skill in client.skills()] == ["notes"]
    assert client.memory("memory").text == "Likes tea."
    assert client.write_memory("user", "Likes coffee.").used == len("Likes coffee.")
    with pytest.raises(InvalidInput, match="cannot be read back"):
        client.write_memory("user", "")
    assert client.health().version == "test"


def test_a_wrong_token_is_a_plain_sentence_and_never_shown(bridge: BridgeAddress) -> None:
    client = BridgeClient(lambda: BridgeAddress(bridge.url, "secret-marker"), **FAST)
    with pytest.raises(BridgeUnavailable, match="refused the token") as refusal:
        client.models()
    client.close()
    assert "secret-marker" not in str(refusal.value) + repr(BridgeAddress(bridge.url, "secret-marker"))


def test_an_answer_that_is_not_json_is_a_plain_sentence() -> None:
    with canned_server(json_answer(200, b"<html>")) as server:
        client = BridgeClient(lambda: BridgeAddress(server.url), **FAST)
        with pytest.raises(BridgeUnavailable, match="cannot be read"):
            client.models()
        client.close()
