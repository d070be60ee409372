"""Serves the files of our own script and style from one folder, by name."""

import hashlib
import re
from pathlib import Path

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from chat_core.api.endpoint import method_refused
from chat_core.api.errors import error_response
from chat_core.errors import NotFound

_NAME = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*\.(?P<kind>js|css|map|svg|png|woff2|txt|json)")
_TYPES = {
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "map": "application/json",
    "json": "application/json",
    "svg": "image/svg+xml",
    "png": "image/png",
    "woff2": "font/woff2",
    "txt": "text/plain; charset=utf-8",
}


class Assets:
    """The route `GET /assets/{file}`. A URL with `?v=` never changes its content and may be kept for ever."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method not in {"GET", "HEAD"}:
            await method_refused(request.method, ["GET"])(scope, receive, send)
            return
        try:
            response = await anyio.to_thread.run_sync(self._answer, request)
        except Exception as error:
            response = error_response(error)
        await response(scope, receive, send)

    def _answer(self, request: Request) -> Response:
        name: str = request.path_params["file"]
        match = _NAME.fullmatch(name)
        file = self._folder / name
        if not match or not file.is_file():
            raise NotFound(f"there is no asset {name!r}")
        content = file.read_bytes()
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        keep = "public, max-age=31536000, immutable" if request.query_params.get("v") else "no-cache"
        headers = {"ETag": tag, "Cache-Control": keep}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=_TYPES[match["kind"]], headers=headers)
