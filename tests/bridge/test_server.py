"""The HTTP face of the Bridge: exactly the protocol, only with the token, errors in one shape."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from chat_core.bridge import server
from chat_core.bridge.protocol import Event, decode_event
from chat_core.bridge.run_host import LocalRunHost
from tests.support.runtimes import EchoRuntime, GatedRuntime, asks, chunks, thinks
from tests.support.served_bridge import TOKEN, FewChoices, served_bridge


@pytest.fixture
def gated() -> GatedRuntime:
    return GatedRuntime()


@pytest.fixture
def host(gated: GatedRuntime) -> LocalRunHost:
    return LocalRunHost({"echo": EchoRuntime(), "gated": gated}, max_active_runs=2)


@pytest.fixture
def bridge(host: LocalRunHost, gated: GatedRuntime) -> Iterator[httpx.Client]:
    with (
        served_bridge(host) as address,
        httpx.Client(base_url=address.url, headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False) as client,
    ):
        yield client
        gated.release()


def body(run_id: str = "run-1", runtime: str = "gated", **more: Any) -> dict[str, Any]:
    return {"run_id": run_id, "agent_session": "session-1", "runtime": runtime, "message": "hello", **more}


def read_events(bridge: httpx.Client, run_id: str = "run-1", **how: Any) -> list[Event]:
    with bridge.stream("GET", f"/v1/runs/{run_id}/events", **how) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        return parse("".join(response.iter_text()))


def parse(stream: str) -> list[Event]:
    events = []
    for block in stream.split("\n\n"):
        if not block or block.startswith(":"):
            continue
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        events.append(decode_event(fields["id"], fields["event"], fields["data"]))
    return events


def text_of(events: list[Event]) -> str:
    return "".join(event.data["text"] for event in events if event.kind == "answer")


def error_of(response: httpx.Response) -> tuple[int, str]:
    error = response.json()["error"]
    assert error["message"]
    return response.status_code, error["code"]


# --- the token ---


CALLS = [
    ("GET", "/v1/models"), ("GET", "/v1/skills"), ("POST", "/v1/runs"), ("GET", "/v1/runs/run-1"),
    ("GET", "/v1/runs/run-1/events"), ("POST", "/v1/runs/run-1/stop"), ("POST", "/v1/runs/run-1/questions/q"),
    ("POST", "/v1/sessions/s/reset"), ("GET", "/v1/memory/user"), ("PUT", "/v1/memory/user"), ("GET", "/v1/nothing"),
]  # fmt: skip


def test_without_the_token_nothing_but_the_status_is_told(bridge: httpx.Client) -> None:
    bridge.headers.pop("Authorization")
    for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}):
        assert bridge.get("/health", headers=header).json() == {"status": "ok"}
        for method, path in CALLS:
            answer = bridge.request(method, path, headers=header)
            assert error_of(answer) == (401, "unauthorized"), f"{method} {path} with {header}"


def test_health_with_the_token_tells_more(bridge: httpx.Client) -> None:
    assert bridge.get("/health").json() == {
        "status": "ok", "version": "test", "runtimes": ["echo", "gated"], "active_runs": 0, "toolsets": [],
        "problems": [],
    }  # fmt: skip


# --- runs ---


def test_a_run_is_accepted_once_and_streamed_to_its_end(bridge: httpx.Client) -> None:
    assert bridge.post("/v1/runs", json=body(runtime="echo", message="hello world")).status_code == 202
    events = read_events(bridge)

    assert bridge.post("/v1/runs", json=body(runtime="echo", message="another")).status_code == 200
    assert events[-1].data["text"] == text_of(events) == "hello world"
    assert read_events(bridge)[-1] == events[-1]


def test_a_stream_resumes_after_the_given_event(bridge: httpx.Client) -> None:
    bridge.post("/v1/runs", json=body(runtime="echo", message="abcdefgh"))
    whole = read_events(bridge)

    by_query = read_events(bridge, params={"after": "2"})
    by_header = read_events(bridge, headers={"Last-Event-ID": "2"}, params={"after": "0"})

    assert by_query == by_header
    assert text_of(by_query) == "efgh"
    assert by_query[-1] == whole[-1]
    assert read_events(bridge, params={"after": str(whole[-1].seq)}) == []


def test_two_readers_and_a_slow_one_see_the_same_text(bridge: httpx.Client, gated: GatedRuntime) -> None:
    gated.steps = [thinks("hm"), chunks(400, "some text "), chunks(400, "more text ")]
    bridge.post("/v1/runs", json=body())
    with bridge.stream("GET", "/v1/runs/run-1/events") as slow:
        parts = slow.iter_text()
        first = next(parts)
        gated.release()
        quick = read_events(bridge)
        late = parse(first + "".join(parts))

    assert text_of(quick) == text_of(late) == "some text " * 400 + "more text " * 400
    assert quick[-1] == late[-1]


def test_deltas_that_wait_together_travel_in_few_events(bridge: httpx.Client) -> None:
    bridge.post("/v1/runs", json=body(runtime="echo", message="x" * 4000))
    bridge.get("/v1/runs/run-1")

    events = read_events(bridge)

    assert len(text_of(events)) == 4000
    assert len(events) < 100
    assert [event.seq for event in events] == sorted({event.seq for event in events})


def test_text_that_breaks_line_readers_arrives_unharmed(bridge: httpx.Client) -> None:
    text = "a\u2028b\u0085c\x0cd\r\ne\x00f\ud83dg 好 😀"
    content = json.dumps(body(runtime="echo", message=text))
    bridge.post("/v1/runs", content=content)

    events = read_events(bridge)

    assert events[-1].data["text"] == text


def test_a_silent_stream_is_kept_alive_by_comments(
    bridge: httpx.Client, gated: GatedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "KEEPALIVE_SECONDS", 0.05)
    bridge.post("/v1/runs", json=body())

    with bridge.stream("GET", "/v1/runs/run-1/events") as response:
        seen = ""
        for part in response.iter_text():
            seen += part
            if seen.count(": keepalive\n\n") >= 2:
                break

    assert parse(seen) == []


def test_a_stream_ends_when_the_bridge_closes_and_the_run_goes_on(host: LocalRunHost, gated: GatedRuntime) -> None:
    async def read() -> bytes:
        door = server.Door(host, FewChoices(), TOKEN)
        app = server.create_app(door)
        sent: list[bytes] = []

        async def send(message: Any) -> None:
            sent.append(message.get("body", b""))
            if message["type"] == "http.response.body":
                door.closing.set()

        async def receive() -> Any:
            await asyncio.Event().wait()

        scope = {
            "type": "http", "method": "GET", "path": "/v1/runs/run-1/events", "query_string": b"",
            "headers": [(b"authorization", f"Bearer {TOKEN}".encode())],
        }  # fmt: skip
        await asyncio.wait_for(app(scope, receive, send), 5)
        return b"".join(sent)

    host.start(server.RunRequest(**body()))
    gated.wait_until_started()

    assert b"event:" not in asyncio.run(read())
    assert host.snapshot("run-1").status == "running"
    gated.release()


def test_a_full_bridge_says_when_to_come_back(bridge: httpx.Client) -> None:
    for run_id in ("run-1", "run-2"):
        assert bridge.post("/v1/runs", json=body(run_id)).status_code == 202

    refused = bridge.post("/v1/runs", json=body("run-3"))

    assert error_of(refused) == (429, "limit_reached")
    assert int(refused.headers["Retry-After"]) > 0


def test_a_question_takes_one_answer(bridge: httpx.Client, gated: GatedRuntime) -> None:
    gated.steps = [asks("Which?", ("red", "blue"))]
    bridge.post("/v1/runs", json=body())
    gated.release()
    question_id = wait_for_question(bridge)
    path = f"/v1/runs/run-1/questions/{question_id}"

    assert error_of(bridge.post(path, json={"answer": "  "})) == (400, "invalid_input")
    assert bridge.post(path, json={"answer": "red"}).status_code == 200
    assert bridge.post(path, json={"answer": "red"}).status_code == 200
    other = bridge.post(path, json={"answer": "blue"})

    assert error_of(other) == (409, "already_answered")
    assert other.json()["error"]["answer"] == "red"
    assert error_of(bridge.post("/v1/runs/run-1/questions/no", json={"answer": "x"})) == (404, "not_found")
    assert text_of(read_events(bridge)) == "You said red."


def wait_for_question(bridge: httpx.Client) -> str:
    with bridge.stream("GET", "/v1/runs/run-1/events") as response:
        seen = ""
        for part in response.iter_text():
            seen += part
            if "clarify_request" in seen and seen.endswith("\n\n"):
                break
    snapshot = bridge.get("/v1/runs/run-1").json()
    assert snapshot["status"] == "waiting"
    return str(snapshot["questions"][0]["question_id"])


def test_stop_is_harmless_twice(bridge: httpx.Client, gated: GatedRuntime) -> None:
    bridge.post("/v1/runs", json=body())
    gated.wait_until_started()

    for _ in range(2):
        assert bridge.post("/v1/runs/run-1/stop").status_code == 202

    final = read_events(bridge)[-1]
    assert final.kind == "final"
    assert final.data["interrupted"] is True
    assert bridge.get("/v1/runs/run-1").json() == {
        "run_id": "run-1", "status": "ended", "last_seq": final.seq, "questions": []
    }  # fmt: skip


def test_reset_reaches_the_runtime(bridge: httpx.Client, gated: GatedRuntime) -> None:
    assert bridge.post("/v1/sessions/session-9/reset").status_code == 200
    assert gated.forgotten == ["session-9"]


# --- the rest ---


def test_an_unknown_run_is_told_from_other_unknown_things(bridge: httpx.Client) -> None:
    for answer in (
        bridge.get("/v1/runs/nobody"),
        bridge.get("/v1/runs/nobody/events"),
        bridge.post("/v1/runs/nobody/stop"),
    ):
        assert error_of(answer) == (404, "run_unknown")


def test_unknown_paths_and_methods_have_the_same_shape(bridge: httpx.Client) -> None:
    assert error_of(bridge.get("/v1/nothing")) == (404, "not_found")
    assert error_of(bridge.get("/")) == (404, "not_found")
    assert error_of(bridge.get("/v1/memory/other")) == (404, "not_found")
    assert error_of(bridge.delete("/v1/models")) == (405, "method_not_allowed")


WRONG_BODIES = [
    b"", b"no json", b"[]", b"{}", b"[" * 100_000, b'{"run_id": "", "agent_session": "s", "message": "m"}',
    b'{"run_id": "r", "agent_session": "../x", "message": "m"}', b'{"run_id": "r", "agent_session": "s", "message": 5}',
    b"\xff\xfe",
]  # fmt: skip


def test_a_body_that_cannot_be_right_is_refused_with_a_reason(bridge: httpx.Client) -> None:
    for content in WRONG_BODIES:
        assert error_of(bridge.post("/v1/runs", content=content)) == (400, "invalid_input"), content[:60]


def test_a_cursor_that_is_no_number_is_refused(bridge: httpx.Client) -> None:
    bridge.post("/v1/runs", json=body(runtime="echo"))

    for cursor in ("-1", "abc", "1.5", "9" * 40, "٣"):
        answer = bridge.get("/v1/runs/run-1/events", params={"after": cursor})
        assert error_of(answer) == (400, "invalid_input"), cursor


def test_bodies_have_a_limit_with_and_without_a_length(bridge: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "RUN_BODY_BYTES", 1000)

    assert error_of(bridge.post("/v1/runs", content=b"x" * 1001)) == (413, "too_large")
    assert error_of(bridge.post("/v1/runs", content=iter([b"x" * 600, b"x" * 600]))) == (413, "too_large")


def test_choices_and_memory(bridge: httpx.Client) -> None:
    assert bridge.get("/v1/models").json()["models"][0]["id"] == "echo"
    assert bridge.get("/v1/skills").json()["skills"][0]["folder"] == "notes"
    assert bridge.put("/v1/memory/user", json={"text": "Likes coffee."}).json()["text"] == "Likes coffee."
    assert bridge.get("/v1/memory/user").json() == {"text": "Likes coffee.", "limit": 100, "used": 13}
    assert error_of(bridge.put("/v1/memory/user", json={"text": ""})) == (400, "invalid_input")
