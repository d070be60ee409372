"""Puts the API together: its routes, and the middleware that stands before the whole app."""

from pathlib import Path

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from chat_core.api import choices, messages, runs, sessions, transfer
from chat_core.api.analytics import analytics_operations, analytics_routes
from chat_core.api.assets import Assets
from chat_core.api.endpoint import Endpoint, GetWorkbench, method_refused, routes_of
from chat_core.api.errors import error_response
from chat_core.api.openapi import openapi_document, stream_operation
from chat_core.api.security import SecurityMiddleware
from chat_core.api.stream import OpenStreams, RunStream
from chat_core.bridge.protocol import dump_json
from chat_core.config import Settings
from chat_core.errors import NotFound
from chat_core.workbench import VERSION

API = "/api"
CHAT = "/api/chat"
STREAM_PATH = "/runs/{run_id}/stream"
# Built from frontend/ and shipped.
ASSETS_FOLDER = Path(__file__).parents[1] / "ui" / "assets"

ENDPOINTS: tuple[Endpoint, ...] = (
    *transfer.ENDPOINTS,
    *sessions.ENDPOINTS,
    *runs.ENDPOINTS,
    *messages.ENDPOINTS,
    *choices.ENDPOINTS,
)


def api_routes(
    get_workbench: GetWorkbench,
    streams: OpenStreams | None = None,
    *,
    base_path: str = "",
    assets_folder: Path = ASSETS_FOLDER,
) -> list[BaseRoute]:
    """Return all routes below /api, the last one answering every unknown path.

    Keep `streams` and call its `close` from the signal handler; without it open streams delay the stop. Streamlit's
    base path does not reach our routes, so it is given here too.
    """
    base = base_path.strip("/")
    base = f"/{base}" if base else ""
    return [
        Route(f"{base}{CHAT}{STREAM_PATH}", RunStream(get_workbench, streams or OpenStreams())),
        *routes_of(ENDPOINTS, base + CHAT, get_workbench),
        *routes_of((choices.HEALTH,), base + API, get_workbench),
        *analytics_routes(get_workbench, base_path=base_path),
        Route(f"{base}{API}/openapi.json", _Document(dump_json(api_document()))),
        Route(f"{base}{API}/assets/{{file}}", Assets(assets_folder)),
        Route(f"{base}{API}", _Unknown()),
        Route(f"{base}{API}/{{rest:path}}", _Unknown()),
    ]


def middleware(settings: Settings) -> list[Middleware]:
    """Return what stands before every request of the app, pages included."""
    return [Middleware(SecurityMiddleware, host=settings.host, allowed_hosts=settings.allowed_hosts.split(","))]


def api_document() -> dict[str, object]:
    """Return the OpenAPI document of all calls."""
    document = openapi_document([(CHAT, ENDPOINTS), (API, (choices.HEALTH,))], VERSION)
    document["paths"].update(analytics_operations())
    document["paths"][CHAT + STREAM_PATH] = {"get": stream_operation("stream_run")}
    return document


class _Document:
    def __init__(self, text: str) -> None:
        self._text = text

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method: str = scope["method"]
        response = (
            Response(self._text, media_type="application/json")
            if method in {"GET", "HEAD"}
            else method_refused(method, ["GET"])
        )
        await response(scope, receive, send)


class _Unknown:
    """Streamlit would answer an unknown path with its page and 200."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = Request(scope).url.path
        await error_response(NotFound(f"there is no {path!r} in the API; see /api/openapi.json"))(scope, receive, send)
