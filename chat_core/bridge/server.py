"""Serves the Bridge protocol over HTTP: thin routes over a run host and what there is to choose."""

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from chat_core.bridge.event_buffer import EventBuffer, join_deltas
from chat_core.bridge.protocol import (
    KEEPALIVE_SECONDS,
    Answer,
    Event,
    Health,
    MemoryText,
    ModelChoice,
    RunRequest,
    SkillChoice,
    dump_json,
    encode_event,
)
from chat_core.bridge.run_host import LocalRunHost
from chat_core.errors import (
    AlreadyAnswered,
    BridgeUnavailable,
    Conflict,
    InvalidInput,
    LimitReached,
    NotFound,
    ParleyError,
    RunUnknown,
    TooLarge,
)

RUN_BODY_BYTES = 64 * 1024 * 1024
SMALL_BODY_BYTES = 256 * 1024
RETRY_AFTER_SECONDS = 2
PACE_SECONDS = 0.015
"""After a piece of stream has been sent the next one waits this long: deltas of a fast model travel together."""
_PIECE_BYTES = 256 * 1024

_STATUS: dict[type[ParleyError], int] = {
    InvalidInput: 400,
    RunUnknown: 404,
    NotFound: 404,
    Conflict: 409,
    TooLarge: 413,
    LimitReached: 429,
    BridgeUnavailable: 503,
}

MemoryName = Literal["memory", "user"]
_Model = TypeVar("_Model", bound=BaseModel)


class Choices(Protocol):
    """What a Bridge offers besides runs. All of it may block, and is called in worker threads."""

    def is_ready(self) -> bool: ...

    def models(self) -> list[ModelChoice]: ...

    def skills(self) -> list[SkillChoice]: ...

    def problems(self) -> list[str]:
        """Return plain sentences about what is set up wrongly; no secrets."""

    def read_memory(self, which: MemoryName) -> MemoryText: ...

    def write_memory(self, which: MemoryName, text: str) -> MemoryText:
        """Raises InvalidInput with the reason when the agent could not read the text back."""


@dataclass
class Door:
    """What `create_app` needs to know. `contacted` is called for each request with the right token."""

    host: LocalRunHost
    choices: Choices
    token: str = field(repr=False)
    version: str = ""
    toolsets: Sequence[str] = ()
    contacted: Callable[[], None] = lambda: None
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set it to end all event streams; runs go on."""


class MemoryBody(BaseModel):
    text: str


def create_app(door: Door, extra_routes: Sequence[BaseRoute] = ()) -> ASGIApp:
    """Return the Bridge's ASGI app. `extra_routes` (the guided tour) do their own authentication."""
    own_routes = [
        Route("/health", partial(_health, door)),
        Route("/v1/models", partial(_models, door)),
        Route("/v1/skills", partial(_skills, door)),
        Route("/v1/runs", partial(_start_run, door), methods=["POST"]),
        Route("/v1/runs/{run_id}", partial(_run_snapshot, door)),
        Route("/v1/runs/{run_id}/events", partial(_run_events, door)),
        Route("/v1/runs/{run_id}/stop", partial(_stop_run, door), methods=["POST"]),
        Route("/v1/runs/{run_id}/questions/{question_id}", partial(_answer_question, door), methods=["POST"]),
        Route("/v1/sessions/{agent_session}/reset", partial(_reset_session, door), methods=["POST"]),
        Route("/v1/memory/{which}", partial(_memory, door), methods=["GET", "PUT"]),
    ]
    app = Starlette(
        routes=[*own_routes, *extra_routes],
        exception_handlers={ParleyError: _parley_error, HTTPException: _http_error, Exception: _internal_error},
    )
    return _TokenCheck(app, door)


class _TokenCheck:
    """Lets only callers with the token into `/v1`; `/health` tells the others no more than its status."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app = app
        self._door = door
        self._expected = f"Bearer {door.token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
            scope["parley_token"] = hmac.compare_digest(given, self._expected)
            if scope["parley_token"]:
                self._door.contacted()
            elif scope["path"].startswith("/v1"):
                await _error(401, "unauthorized", "the Bridge's token is missing or wrong")(scope, receive, send)
                return
        await self._app(scope, receive, send)


# --- routes ---


async def _health(door: Door, request: Request) -> Response:
    status: Literal["ok", "starting"] = "ok" if door.choices.is_ready() else "starting"
    if not request.scope["parley_token"]:
        return _json({"status": status})
    health = Health(
        status=status,
        version=door.version,
        runtimes=door.host.runtimes,
        active_runs=door.host.active_runs,
        toolsets=list(door.toolsets),
        problems=await asyncio.to_thread(door.choices.problems),
    )
    return _json(health.model_dump())


async def _models(door: Door, _request: Request) -> Response:
    models = await asyncio.to_thread(door.choices.models)
    return _json({"models": [model.model_dump() for model in models]})


async def _skills(door: Door, _request: Request) -> Response:
    skills = await asyncio.to_thread(door.choices.skills)
    return _json({"skills": [skill.model_dump() for skill in skills]})


async def _start_run(door: Door, request: Request) -> Response:
    run = _parse(RunRequest, await _body(request, RUN_BODY_BYTES))
    is_new = door.host.start_new(run)
    return _json({"run_id": run.run_id}, status=202 if is_new else 200)


async def _run_snapshot(door: Door, request: Request) -> Response:
    return _json(door.host.snapshot(request.path_params["run_id"]).model_dump())


async def _run_events(door: Door, request: Request) -> Response:
    buffer = door.host.buffer(request.path_params["run_id"])
    after = _cursor(request)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    stream = _event_stream(buffer, after, door.closing)
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)


async def _stop_run(door: Door, request: Request) -> Response:
    door.host.stop(request.path_params["run_id"])
    return _json({}, status=202)


async def _answer_question(door: Door, request: Request) -> Response:
    answer = _parse(Answer, await _body(request, SMALL_BODY_BYTES)).answer
    door.host.answer(request.path_params["run_id"], request.path_params["question_id"], answer)
    return _json({"answer": answer})


async def _reset_session(door: Door, request: Request) -> Response:
    await asyncio.to_thread(door.host.forget, request.path_params["agent_session"])
    return _json({})


async def _memory(door: Door, request: Request) -> Response:
    which = _memory_name(request.path_params["which"])
    if request.method == "PUT":
        text = _parse(MemoryBody, await _body(request, SMALL_BODY_BYTES)).text
        memory = await asyncio.to_thread(door.choices.write_memory, which, text)
    else:
        memory = await asyncio.to_thread(door.choices.read_memory, which)
    return _json(memory.model_dump())


# --- the event stream ---


async def _event_stream(buffer: EventBuffer, after: int, closing: asyncio.Event) -> AsyncIterator[bytes]:
    yield b": parley\n\n"
    while not closing.is_set():
        events = buffer.read(after)
        for piece, last in _pieces(join_deltas(events)):
            yield piece
            after = last.seq
            if last.is_terminal:
                return
        if events:
            await asyncio.sleep(PACE_SECONDS)
        elif buffer.ended and after >= buffer.last_seq:
            return
        elif not await _changed(buffer, after, closing):
            yield b": keepalive\n\n"


def _pieces(events: list[Event]) -> list[tuple[bytes, Event]]:
    """Return the events as few pieces of bytes, each with its last event."""
    pieces: list[tuple[bytes, Event]] = []
    blocks: list[bytes] = []
    size = 0
    for event in events:
        blocks.append(encode_event(event))
        size += len(blocks[-1])
        if size >= _PIECE_BYTES or event is events[-1]:
            pieces.append((b"".join(blocks), event))
            blocks, size = [], 0
    return pieces


async def _changed(buffer: EventBuffer, after: int, closing: asyncio.Event) -> bool:
    """Wait until there is something after `after` or the Bridge closes; False when a keepalive is due first."""
    loop = asyncio.get_running_loop()
    woken = asyncio.Event()

    def wake() -> None:
        with suppress(RuntimeError):  # the loop has ended: nobody waits any more
            loop.call_soon_threadsafe(woken.set)

    take_back = buffer.wake_once(after, wake)
    waits = [asyncio.ensure_future(woken.wait()), asyncio.ensure_future(closing.wait())]
    try:
        done, _ = await asyncio.wait(waits, timeout=KEEPALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    finally:
        take_back()
        for wait in waits:
            wait.cancel()
    return bool(done)


# --- reading requests, writing answers ---


async def _body(request: Request, limit: int) -> bytes:
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > limit:
        raise TooLarge(f"the request has {length} bytes; at most {limit} are accepted", limit=limit)
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise TooLarge(f"the request has more than {limit} bytes", limit=limit)
    except ClientDisconnect:
        raise InvalidInput("the caller left before the request was whole") from None
    return bytes(body)


def _parse(model: type[_Model], body: bytes) -> _Model:
    try:
        return model.model_validate(json.loads(body))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the body"
        raise InvalidInput(f"{where}: {first['msg']}") from None
    except (ValueError, RecursionError):
        raise InvalidInput("the body is not JSON") from None


def _cursor(request: Request) -> int:
    text = request.headers.get("last-event-id") or request.query_params.get("after") or "0"
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise InvalidInput(f"after must be a number of an event, not {text[:40]!r}")
    return int(text)


def _memory_name(text: str) -> MemoryName:
    if text == "memory":
        return "memory"
    if text == "user":
        return "user"
    raise NotFound(f"there is no memory {text!r}; there are memory and user")


def _json(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(dump_json(value), status_code=status, media_type="application/json", headers=headers)


def _error(
    status: int, code: str, message: str, more: dict[str, Any] | None = None, headers: dict[str, str] | None = None
) -> Response:
    error = {"code": code, "message": message, **(more or {})}
    return _json({"error": error}, status=status, headers=headers)


async def _parley_error(_request: Request, error: Exception) -> Response:
    if not isinstance(error, ParleyError):
        raise error
    status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 500)
    more = {"answer": error.values["answer"]} if isinstance(error, AlreadyAnswered) else None
    headers = {"Retry-After": str(RETRY_AFTER_SECONDS)} if status == 429 else None
    return _error(status, error.code, error.message, more, headers)


async def _http_error(_request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http_error")
    return _error(error.status_code, code, error.detail, headers=dict(error.headers or {}))


async def _internal_error(_request: Request, _failure: Exception) -> Response:
    return _error(500, "internal", "Something went wrong inside the Bridge. Its log has the details.")
