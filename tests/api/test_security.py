import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from chat_core.api.routes import middleware
from chat_core.api.security import BODY_LIMIT_BYTES, IMPORT_LIMIT_BYTES, IMPORT_PATH, SecurityMiddleware
from chat_core.config import Settings

OWN = "http://127.0.0.1:8501"


async def _size(request: Request) -> PlainTextResponse:
    return PlainTextResponse(str(len(await request.body())))


async def _socket(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text("hello")
    await websocket.close()


def client(host: str = "127.0.0.1", allowed_hosts: tuple[str, ...] = (), base_url: str = OWN) -> TestClient:
    app = Starlette(
        routes=[
            WebSocketRoute("/_stcore/stream", _socket),
            Route("/{rest:path}", _size, methods=["GET", "POST", "PUT", "DELETE", "PATCH"]),
        ],
        middleware=[Middleware(SecurityMiddleware, host=host, allowed_hosts=allowed_hosts)],
    )
    return TestClient(app, base_url=base_url)


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8501", "localhost:8501", "LOCALHOST", "[::1]:8501", "127.0.0.2", "localhost."]
)
def test_loopback_is_known_under_all_its_names(host: str) -> None:
    assert client().get("/api/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/api/health", "/_stcore/health"])
@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8501", "127.0.0.1.evil.example", "192.168.1.7", "localhost@evil.example", "", "a b"],
)
def test_a_name_that_is_not_ours_is_refused_everywhere(host: str, path: str) -> None:
    answer = client().get(path, headers={"host": host})
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "forbidden_host"


def test_two_host_headers_are_refused() -> None:
    answer = client().get("/api/health", headers=[("host", "127.0.0.1"), ("host", "evil.example")])
    assert answer.status_code == 403


def test_a_configured_host_and_a_proxy_name_are_known() -> None:
    ours = client(host="chat.local", allowed_hosts=("Chat.Example.com", ""))
    assert ours.get("/api/health", headers={"host": "chat.local:8501"}).status_code == 200
    assert ours.get("/api/health", headers={"host": "chat.example.com"}).status_code == 200
    assert ours.get("/api/health", headers={"host": "other.example.com"}).status_code == 403


def test_served_on_all_addresses_any_address_is_known_but_no_foreign_name() -> None:
    ours = client(host="0.0.0.0")
    assert ours.get("/", headers={"host": "192.168.1.7:8501"}).status_code == 200
    assert ours.get("/", headers={"host": "[fe80::1]:8501"}).status_code == 200
    assert ours.get("/", headers={"host": "evil.example"}).status_code == 403


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE", "PUT"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": OWN},
        {"origin": OWN, "sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
    ],
)
def test_programs_and_our_own_page_may_use_the_api(method: str, headers: dict[str, str]) -> None:
    assert client().request(method, "/api/chat/sessions", headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/api/chat/sessions", "/api", "/_stcore/upload_file/x", "/media/x.png", "/wb/api/x"])
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "null"},
        {"origin": "http://evil.example"},
        {"origin": "http://evil.example:8501"},
        {"origin": "http://127.0.0.1:3000"},
        {"origin": "http://127.0.0.1"},
        {"origin": "http://localhost:8501"},
        {"origin": "http://127.0.0.1:8501.evil.example"},
        {"origin": "http://127.0.0.1:99999"},
        {"origin": "file://"},
        {"origin": ""},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site", "origin": OWN},
        {"sec-fetch-site": "something new"},
    ],
)
def test_a_page_of_another_origin_can_neither_read_nor_write(path: str, method: str, headers: dict[str, str]) -> None:
    answer = client().request(method, path, headers=headers)
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "forbidden_origin"


def test_a_link_from_another_site_opens_the_page_but_a_form_does_not_reach_it() -> None:
    foreign = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client().get("/?session=1", headers=foreign).status_code == 200
    assert client().post("/", headers={"origin": "http://evil.example"}).status_code == 403


def test_behind_a_tls_proxy_the_public_origin_is_our_own() -> None:
    ours = client(allowed_hosts=("chat.example.com",), base_url="http://chat.example.com")
    assert ours.post("/api/x", headers={"origin": "https://chat.example.com"}).status_code == 200
    assert ours.post("/api/x", headers={"origin": "https://chat.example.com:444"}).status_code == 403


@pytest.mark.parametrize("origin", [OWN, None])
def test_the_websocket_opens_for_our_page_and_for_programs(origin: str | None) -> None:
    headers = {"host": "127.0.0.1:8501"} | ({"origin": origin} if origin else {})
    with client().websocket_connect("/_stcore/stream", headers=headers) as socket:
        assert socket.receive_text() == "hello"


@pytest.mark.parametrize(
    "headers",
    [{"origin": "http://evil.example"}, {"origin": "null"}, {"host": "evil.example"}, {"origin": "http://127.0.0.1:1"}],
)
def test_the_websocket_handshake_of_another_site_is_refused(headers: dict[str, str]) -> None:
    headers = {"host": "127.0.0.1:8501", **headers}
    with pytest.raises(WebSocketDisconnect) as refused, client().websocket_connect("/_stcore/stream", headers=headers):
        pass
    assert refused.value.code == 1008


def test_every_answer_carries_the_security_headers() -> None:
    for path in ("/", "/api/health", "/_stcore/health"):
        headers = client().get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "default-src 'none'" in client().get("/api/health").headers["content-security-policy"]
    assert "script-src 'self'" in client().get("/").headers["content-security-policy"]


@pytest.mark.parametrize(
    ("path", "limit"),
    [("/api/chat/sessions", BODY_LIMIT_BYTES), (IMPORT_PATH, IMPORT_LIMIT_BYTES)],
)
def test_a_body_over_the_limit_is_refused_with_the_limit(path: str, limit: int) -> None:
    assert client().post(path, content=b"x" * limit).text == str(limit)
    answer = client().post(path, content=b"x" * (limit + 1))
    assert answer.status_code == 413
    assert answer.json()["error"] == {
        "code": "too_large",
        "message": f"The body may have {limit} bytes at most.",
        "detail": {"limit_bytes": limit},
    }


def test_a_body_that_does_not_announce_its_length_is_counted() -> None:
    def chunks() -> object:
        for _ in range(BODY_LIMIT_BYTES // 1000 + 1):
            yield b"x" * 1000

    assert client().post("/api/chat/sessions", content=chunks()).status_code == 413  # type: ignore[arg-type]


def test_uploads_of_the_pages_have_their_own_limit() -> None:
    assert client().put("/_stcore/upload_file/x", content=b"x" * (BODY_LIMIT_BYTES + 1)).status_code == 200


def test_the_settings_name_the_host_and_the_further_names(settings: Settings) -> None:
    chosen = settings.model_copy(update={"host": "192.168.1.7", "allowed_hosts": "chat.example.com, other.example.com"})
    app = Starlette(routes=[Route("/{rest:path}", _size)], middleware=middleware(chosen))
    ours = TestClient(app, base_url=OWN)
    for host in ("127.0.0.1", "192.168.1.7:8501", "chat.example.com", "other.example.com"):
        assert ours.get("/", headers={"host": host}).status_code == 200
    assert ours.get("/", headers={"host": "example.com"}).status_code == 403
