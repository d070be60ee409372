"""The event stream of a run: its log entries as Server-Sent Events, from any point, to any number of readers.

The log is the only source. A reader that is slow, gone or back again costs the run nothing: it reads a bounded
number of entries, sends them, and is woken when there are more.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from chat_core.api.endpoint import GetWorkbench, method_refused
from chat_core.api.errors import error_response
from chat_core.api.stream_events import encode_block, encode_entry
from chat_core.bridge.protocol import KEEPALIVE_SECONDS
from chat_core.errors import ParleyError
from chat_core.models import LOCAL_USER, LogEntry, User, utc_text
from chat_core.workbench import Workbench

# One read, and so one write, holds at most this many entries.
ENTRIES_AT_ONCE = 500
STREAM_THREADS = 8
KEEPALIVE = b": keepalive\n\n"
# How soon a browser comes back after the connection was cut.
RETRY = b"retry: 1000\n\n"

_CURSOR = re.compile(r"[0-9]{1,18}")
_HEADERS = {
    "Cache-Control": "no-cache, no-store, no-transform",
    # nginx would collect the events otherwise.
    "X-Accel-Buffering": "no",
}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Resume:
    """Where a reader goes on: after `after`; `reason` says why it has to start anew."""

    message_id: str
    after: int
    reason: str | None = None
    nothing_left: bool = False


class OpenStreams:
    """The streams that are open now, so that they can be ended when the app stops.

    The server waits for open answers before it lets the app clean up; therefore `close` is for the signal handler.
    """

    def __init__(self, keepalive_seconds: float = KEEPALIVE_SECONDS) -> None:
        self.keepalive_seconds = keepalive_seconds
        self._wakers: set[Waker] = set()
        self._closing = False

    @property
    def closing(self) -> bool:
        return self._closing

    @property
    def count(self) -> int:
        return len(self._wakers)

    def add(self, waker: "Waker") -> None:
        self._wakers.add(waker)

    def remove(self, waker: "Waker") -> None:
        self._wakers.discard(waker)

    def close(self) -> None:
        """End every stream now and later. Takes no lock: safe in a signal handler and from any thread."""
        self._closing = True
        for waker in list(self._wakers):
            waker.wake()


class Waker:
    """Lets any thread wake one reader on the event loop, with at most one call pending."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._pending = False

    def wake(self) -> None:
        if self._pending:
            return
        self._pending = True
        try:
            self._loop.call_soon_threadsafe(self._ring)
        except RuntimeError:
            # The loop is closed, so the reader is gone too.
            self._pending = False

    async def wait(self, seconds: float) -> bool:
        """Return True once woken since the last return; read the log after it, not before."""
        try:
            await asyncio.wait_for(self._news.wait(), seconds)
        except TimeoutError:
            return False
        self._news.clear()
        return True

    def _ring(self) -> None:
        self._pending = False
        self._news.set()


class RunStream:
    """The route `GET /runs/{run_id}/stream`."""

    def __init__(self, get_workbench: GetWorkbench, streams: OpenStreams) -> None:
        self._get_workbench = get_workbench
        self._streams = streams
        self._limiter = anyio.CapacityLimiter(STREAM_THREADS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method != "GET":
            await method_refused(request.method, ["GET"])(scope, receive, send)
            return
        try:
            response = await self._open(request)
        except Exception as error:
            response = error_response(error)
        await response(scope, receive, send)

    async def _open(self, request: Request) -> Response:
        run_id: str = request.path_params["run_id"]
        cursor = request.headers.get("last-event-id") or request.query_params.get("last_event_id") or ""
        workbench = self._get_workbench()
        resume = await anyio.to_thread.run_sync(
            resume_point, workbench, LOCAL_USER, run_id, cursor.strip(), limiter=self._limiter
        )
        if resume.nothing_left:
            # Any other status would make a browser's EventSource come back for ever.
            return Response(status_code=204, headers=_HEADERS)
        return StreamingResponse(
            self._events(workbench, LOCAL_USER, run_id, resume), media_type="text/event-stream", headers=_HEADERS
        )

    async def _events(self, workbench: Workbench, user: User, run_id: str, resume: Resume) -> AsyncIterator[bytes]:
        waker = Waker()
        # Subscribed before the first read: what is committed after the read wakes us.
        unsubscribe = workbench.subscribe(run_id, waker.wake)
        self._streams.add(waker)
        try:
            yield RETRY + (_resync(resume.reason) if resume.reason else b"")
            after = resume.after
            while not self._streams.closing:
                try:
                    entries = await anyio.to_thread.run_sync(
                        workbench.entries, user, run_id, after, ENTRIES_AT_ONCE, limiter=self._limiter
                    )
                except ParleyError as error:
                    # Deleted, or the store is away: the reader comes back and is told.
                    _log.info("the stream of run %s ends: %s", run_id, error.message)
                    return
                if entries:
                    after = entries[-1].seq_to or entries[-1].seq
                    yield b"".join(encode_entry(entry, resume.message_id) for entry in entries)
                    if any(entry.is_terminal for entry in entries):
                        return
                elif not await waker.wait(self._streams.keepalive_seconds):
                    yield KEEPALIVE
        finally:
            self._streams.remove(waker)
            unsubscribe()


def resume_point(workbench: Workbench, user: User, run_id: str, cursor: str) -> Resume:
    """Decide where a reader with this last event id goes on. Raises `NotFound` for no such run.

    An id is served only when the entry after it is the next one it has not seen. Everything else (unknown, too
    high, of another run, inside entries that were joined or dropped since) means: the whole run from its start.
    """
    message_id = workbench.run_state(user, run_id).message_uuid
    before_run = workbench.first_seq(user, run_id) - 1
    if not cursor:
        return Resume(message_id, before_run)
    if not _CURSOR.fullmatch(cursor):
        return Resume(message_id, before_run, "the last event id is not a number")
    seen = int(cursor)
    if seen == 0:
        return Resume(message_id, before_run)
    if seen <= before_run:
        return Resume(message_id, before_run, "the last event id is of another run")
    around = workbench.entries(user, run_id, seen - 1, 2)
    if not around:
        return Resume(message_id, before_run, "the last event id is higher than any of this run")
    if not _is_followed(around, seen):
        return Resume(message_id, before_run, "the entries around the last event id were condensed")
    return Resume(message_id, seen, nothing_left=around[0].seq == seen and around[0].is_terminal)


def _is_followed(around: list[LogEntry], seen: int) -> bool:
    """Whether an entry ends exactly at `seen` and nothing is missing between it and the next one."""
    first = around[0]
    if first.seq > seen:
        return first.seq == seen + 1
    if first.seq_to not in {None, seen}:
        return False
    return len(around) == 1 or around[1].seq == seen + 1


def _resync(reason: str) -> bytes:
    # Id 0, so that a reader cut off right here starts at the beginning and not at its wrong id again.
    body = {"v": 1, "seq": 0, "kind": "resync", "at": utc_text(datetime.now(UTC)), "reason": reason}
    return encode_block(0, "resync", body)
