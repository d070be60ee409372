"""Keeps pages of other sites away from Parley: Host and Origin checks, security headers, body limits.

A browser on this machine reaches loopback for every page it shows. Three facts carry the defence: a page cannot
forge `Host`, `Origin` and `Sec-Fetch-*`; a name an attacker points at 127.0.0.1 (DNS rebinding) still arrives as
`Host`; and a program such as curl sends none of the last two and is not driven by a foreign page.
"""

import ipaddress
import re
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chat_core.api.errors import error_response, refusal
from chat_core.errors import TooLarge

API_PREFIX = "/api"
IMPORT_PATH = "/api/chat/sessions/import"
BODY_LIMIT_BYTES = 1_000_000
IMPORT_LIMIT_BYTES = 64_000_000

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_ANY_ADDRESS = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 (compared with, not bound to)
_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_HOST = re.compile(r"^(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?$")
# What a page of another site could read or write. Other paths are Streamlit's static page, which anybody may link to.
_GUARDED = (API_PREFIX, "/_stcore", "/media")
_READ_METHODS = frozenset({"GET", "HEAD"})

# The one inline script of Streamlit's index.html (it sets window.prerenderReady).
INDEX_SCRIPT_HASH = "sha256-THxz9J9+wf7rhwR2YkXJoSZ13UCmYyC+3lNDv2+8ugA="
# Inline scripts and eval, which is where foreign text could become code, stay forbidden (Streamlit lets Vega
# interpret its expressions). blob: is how Streamlit loads the script of a component.
PAGE_POLICY = "; ".join(
    (
        "default-src 'self'",
        f"script-src 'self' blob: '{INDEX_SCRIPT_HASH}'",
        "style-src 'self' 'unsafe-inline' blob:",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "media-src 'self' data: blob:",
        "connect-src 'self' data: blob:",
        "worker-src 'self' blob:",
        "frame-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
API_POLICY = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not no-referrer: that would make browsers send `Origin: null` with forms of our own pages.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


class SecurityMiddleware:
    """Pure ASGI, so streams pass through unbuffered. Stands before everything else of the app, pages included."""

    def __init__(self, app: ASGIApp, host: str = "127.0.0.1", allowed_hosts: Iterable[str] = ()) -> None:
        """`host` is the address served on; `allowed_hosts` are further names, such as a proxy's public one."""
        self._app = app
        self._names = _LOOPBACK_NAMES | {name.strip().lower() for name in (host, *allowed_hosts) if name.strip()}
        # Served on all addresses: people come by any address of the machine or by its name. An address is safe
        # from rebinding, which needs a name.
        self._any_address = host in _ANY_ADDRESS
        if self._any_address:
            self._names |= {socket.gethostname().lower(), f"{socket.gethostname().lower()}.local"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        problem = self._problem(scope)
        if problem:
            await _refuse(scope, receive, send, *problem)
        elif scope["type"] == "websocket":
            await self._app(scope, receive, send)
        else:
            await self._guarded(scope, receive, send)

    def _problem(self, scope: Scope) -> tuple[str, str] | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_own_host(hosts[0]):
            return "forbidden_host", (
                "This address is not known to Parley. Open it under the address it was started with, "
                "or add the name to PARLEY_ALLOWED_HOSTS."
            )
        if _needs_own_origin(scope) and _is_foreign(scope, headers, hosts[0]):
            return "forbidden_origin", "Pages of other sites cannot use Parley."
        return None

    def _is_own_host(self, host: str) -> bool:
        match = _HOST.match(host)
        if not match:
            return False
        name = match["name"].strip("[]").lower().rstrip(".")
        return name in self._names or _is_loopback(name) or (self._any_address and _is_address(name))

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                _add_headers(MutableHeaders(scope=message), scope["path"])
            await send(message)

        limited = _limited(scope, receive) if _is_api(scope["path"]) else receive
        try:
            await self._app(scope, limited, send_with_headers)
        except TooLarge as error:
            if started:
                raise
            await error_response(error)(scope, receive, send_with_headers)


def _is_foreign(scope: Scope, headers: Headers, host: str) -> bool:
    """True when a browser says that a page of another origin is behind the request."""
    site = headers.get("sec-fetch-site")
    # Browsers do not agree on the site of ws://, but all of them send Origin with it.
    if scope["type"] == "http" and site is not None and site not in {"same-origin", "none"}:
        return True
    origin = headers.get("origin")
    return origin is not None and not _is_same_origin(origin, host)


def _needs_own_origin(scope: Scope) -> bool:
    if scope["type"] == "websocket" or scope["method"] not in _READ_METHODS:
        return True
    path: str = scope["path"]
    return any(f"{prefix}/" in f"{path}/" for prefix in _GUARDED)


def _is_same_origin(origin: str, host: str) -> bool:
    """Compare name and port. The scheme may differ: a proxy in front speaks TLS, we do not."""
    try:
        parts = urlsplit(origin)
        origin_port = parts.port
    except ValueError:
        return False
    match = _HOST.match(host)
    default = _DEFAULT_PORTS.get(parts.scheme)
    if not match or default is None or not parts.hostname:
        return False
    port = int(match["port"]) if match["port"] else default
    return parts.hostname == match["name"].strip("[]").lower() and (origin_port or default) == port


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(name: str) -> bool:
    return _is_address(name) and ipaddress.ip_address(name).is_loopback


def _is_api(path: str) -> bool:
    # Anywhere in the path: the app may be served below a base path.
    return f"{API_PREFIX}/" in f"{path}/"


def _add_headers(headers: MutableHeaders, path: str) -> None:
    for name, value in _HEADERS.items():
        headers.setdefault(name, value)
    headers.setdefault("Content-Security-Policy", API_POLICY if _is_api(path) else PAGE_POLICY)


def _limited(scope: Scope, receive: Receive) -> Receive:
    """Count the body as it comes; raise `TooLarge` from the read that goes over the limit."""
    limit = IMPORT_LIMIT_BYTES if scope["path"].endswith(IMPORT_PATH) else BODY_LIMIT_BYTES
    announced = Headers(scope=scope).get("content-length", "")
    received = 0

    async def receive_within_limit() -> Message:
        nonlocal received
        message = await receive()
        if message["type"] == "http.request":
            received += len(message.get("body", b""))
            if received > limit or (announced.isdecimal() and int(announced) > limit):
                raise TooLarge(f"The body may have {limit} bytes at most.", limit_bytes=limit)
        return message

    return receive_within_limit


async def _refuse(scope: Scope, receive: Receive, send: Send, code: str, message: str) -> None:
    if scope["type"] == "websocket":
        # Closing before accepting makes the server answer the handshake with 403.
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": message[:120]})
        return
    await refusal(403, code, message)(scope, receive, send)
