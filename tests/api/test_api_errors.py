import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from chat_core.api.errors import status_of
from chat_core.api.routes import api_routes
from chat_core.errors import (
    AlreadyAnswered,
    BridgeUnavailable,
    Conflict,
    InvalidInput,
    LeaseLost,
    LimitReached,
    NotFound,
    QuestionClosed,
    SessionBusy,
    StoreUnavailable,
    TooLarge,
)
from chat_core.models import Session
from chat_core.workbench import Workbench

CHAT = "/api/chat"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidInput("x"), 400),
        (NotFound("x"), 404),
        (Conflict("x"), 409),
        (SessionBusy("x"), 409),
        (AlreadyAnswered("x"), 409),
        (QuestionClosed("x"), 409),
        (TooLarge("x"), 413),
        (LimitReached("x"), 429),
        (BridgeUnavailable("x"), 503),
        (StoreUnavailable("x"), 503),
        (LeaseLost("x"), 500),
        (ValueError("x"), 500),
    ],
)
def test_each_error_has_its_status(error: Exception, status: int) -> None:
    assert status_of(error) == status


def test_an_error_nobody_foresaw_is_logged_and_told_without_its_trace(
    client: TestClient, workbench: Workbench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("the secret marker 4711")

    monkeypatch.setattr(workbench, "list_sessions", broken)
    answer = client.get(f"{CHAT}/sessions")
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal"
    assert "4711" not in answer.text
    assert "4711" in caplog.text


def test_a_store_that_is_not_open_is_a_503() -> None:
    def closed() -> Workbench:
        raise StoreUnavailable("Parley is not started.")

    client = TestClient(Starlette(routes=api_routes(closed)))
    for path in ("/api/health", f"{CHAT}/sessions", f"{CHAT}/runs/x/stream"):
        answer = client.get(path)
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "store_unavailable"


@pytest.mark.parametrize(
    "path", ["/api", "/api/", "/api/nope", "/api/chat", "/api/chat/sessions/", "/api/chat/x/y/z", "/api/assets/a/b"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_an_unknown_path_is_not_found_in_our_shape(client: TestClient, path: str, method: str) -> None:
    answer = client.request(method, path)
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("DELETE", "/api/chat/sessions", "GET, POST"),
        ("OPTIONS", "/api/chat/sessions", "GET, POST"),
        ("PUT", "/api/chat/sessions/x", "DELETE, GET, PATCH"),
        ("GET", "/api/chat/runs/x/stop", "POST"),
        ("POST", "/api/chat/runs/x/stream", "GET"),
        ("HEAD", "/api/chat/runs/x/stream", "GET"),
        ("POST", "/api/health", "GET"),
        ("POST", "/api/openapi.json", "GET"),
        ("POST", "/api/assets/live.js", "GET"),
    ],
)
def test_a_wrong_method_is_refused_in_our_shape(client: TestClient, method: str, path: str, allow: str) -> None:
    answer = client.request(method, path)
    assert answer.status_code == 405
    assert answer.headers["allow"] == allow
    if method != "HEAD":
        assert answer.json()["error"]["code"] == "method_not_allowed"
    assert "access-control-allow-origin" not in answer.headers


def test_head_answers_like_get_without_a_body(client: TestClient) -> None:
    assert client.head("/api/health").status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"not json",
        b"[]",
        b'"text"',
        b"5",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"title":' + b"[" * 100_000,
        b'{"title": ' + b"9" * 5_000 + b"}",
    ],
)
def test_a_body_that_is_no_json_object_is_refused(client: TestClient, body: bytes) -> None:
    answer = client.post(f"{CHAT}/sessions", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_input"


def test_text_that_cannot_be_stored_is_made_storable_at_the_door(client: TestClient) -> None:
    body = rb'{"title": "a\ud83d\ude00b\udc88c\u0000d"}'
    session_id = client.post(f"{CHAT}/sessions", content=body).json()["session_id"]
    assert client.get(f"{CHAT}/sessions/{session_id}").json()["session"]["title"] == "a\U0001f600b\ufffdc\ufffdd"


def test_a_body_over_the_limit_is_refused_by_every_call(client: TestClient, session: Session) -> None:
    for method, path in (
        ("POST", "sessions"),
        ("PATCH", f"sessions/{session.uuid}"),
        ("POST", f"sessions/{session.uuid}/runs"),
    ):
        answer = client.request(method, f"{CHAT}/{path}", content=b" " * 1_000_001)
        assert answer.status_code == 413
        assert answer.json()["error"]["code"] == "too_large"


def test_answers_are_never_kept_by_a_cache(client: TestClient, session: Session) -> None:
    for path in ("sessions", f"sessions/{session.uuid}", "sessions/nope"):
        assert client.get(f"{CHAT}/{path}").headers["cache-control"] == "no-store"


def test_json_is_escaped_so_that_line_readers_cannot_split_it(client: TestClient) -> None:
    session_id = client.post(f"{CHAT}/sessions", json={"title": "x\u2028y"}).json()["session_id"]
    client.patch(f"{CHAT}/sessions/{session_id}", json={"model_id": "a\u2028b"})
    answer = client.get(f"{CHAT}/sessions/{session_id}")
    assert answer.content.isascii()
    assert answer.json()["session"]["model_id"] == "a\u2028b"
