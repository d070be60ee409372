"""Reaches a Bridge over HTTP: `BridgeClient` looks like the Bridge's own run host."""

import http.client
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self, TypeVar
from urllib.parse import quote, urlsplit

import httpx
from pydantic import ValidationError

from chat_core.bridge.protocol import (
    KEEPALIVE_SECONDS,
    Answer,
    Event,
    Health,
    MemoryText,
    ModelChoice,
    RunRequest,
    RunSnapshot,
    SkillChoice,
    Wire,
    decode_event,
    dump_json,
)
from chat_core.errors import (
    AlreadyAnswered,
    BridgeUnavailable,
    InvalidInput,
    LimitReached,
    NotFound,
    ParleyError,
    QuestionClosed,
    RunUnknown,
    TooLarge,
)
from chat_core.text import storable_json

CONNECT_SECONDS = 5.0
CALL_DELAYS_SECONDS = (0.2, 0.8)
STREAM_DELAYS_SECONDS = (0.05, 0.1, 0.3, 1.0, 2.0, 5.0)
MAX_BLOCK_BYTES = 64 * 1024 * 1024
JOINED_EVENTS: frozenset[str] = frozenset({"answer", "thinking"})
"""The Bridge may join neighbouring deltas into one event with the last seq of them: only these may skip numbers."""

MemoryFile = Literal["memory", "user"]
_Model = TypeVar("_Model", bound=Wire)


@dataclass(frozen=True, slots=True)
class BridgeAddress:
    """Where a Bridge listens, and the token it asks for (never shown in its repr)."""

    url: str
    token: str = field(default="", repr=False)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


class BridgeClient:
    """A `RunHost` in another process. Safe to share between threads; `close()` ends every reader at once.

    `address` is asked before each attempt, because a restarted Bridge has another port and token; it may
    raise `BridgeUnavailable`. All calls of the protocol may be repeated without harm, so a call whose answer
    was lost is sent again a few times.

    `on_reconnecting(run_id, seconds)` is told, from the reading thread, each time the events of a run cannot
    be read: `seconds` since that began. Once they are read again it is told 0.0 a last time.
    """

    def __init__(
        self,
        address: Callable[[], BridgeAddress],
        *,
        on_reconnecting: Callable[[str, float], None] | None = None,
        silence_seconds: float = 3 * KEEPALIVE_SECONDS,
        give_up_seconds: float = 600.0,
        call_delays_seconds: Sequence[float] = CALL_DELAYS_SECONDS,
        stream_delays_seconds: Sequence[float] = STREAM_DELAYS_SECONDS,
    ) -> None:
        self._address = address
        self._on_reconnecting = on_reconnecting
        self._silence_seconds = silence_seconds
        self._give_up_seconds = give_up_seconds
        self._call_delays_seconds = call_delays_seconds
        self._stream_delays_seconds = stream_delays_seconds
        self._http = httpx.Client(
            timeout=httpx.Timeout(silence_seconds, connect=CONNECT_SECONDS),
            trust_env=False,  # a proxy meant for the internet must not see a Bridge on the loopback
        )
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()

    def close(self) -> None:
        """End every `events()` at once, without an error and without a terminal event, and refuse new calls."""
        self._closing.set()
        with self._lock:
            for open_socket in self._sockets:
                # Closing alone would not wake a thread that waits in recv().
                with suppress(OSError):
                    open_socket.shutdown(socket.SHUT_RDWR)
        self._http.close()

    # What a RunHost does

    def start(self, request: RunRequest) -> None:
        self._call("POST", "/v1/runs", request.model_dump())

    def snapshot(self, run_id: str) -> RunSnapshot:
        return self._read(RunSnapshot, "GET", f"/v1/runs/{_part(run_id)}", run_id=run_id)

    def stop(self, run_id: str) -> None:
        self._call("POST", f"/v1/runs/{_part(run_id)}/stop", {}, run_id=run_id)

    def answer(self, run_id: str, question_id: str, answer: str) -> None:
        path = f"/v1/runs/{_part(run_id)}/questions/{_part(question_id)}"
        self._call("POST", path, Answer(answer=answer).model_dump(), run_id=run_id)

    def forget(self, agent_session: str) -> None:
        self._call("POST", f"/v1/sessions/{_part(agent_session)}/reset", {})

    def events(self, run_id: str, after: int = 0) -> Iterator[Event]:
        """Yield the run's events after `after`, each once and in order, until the terminal one.

        A cut, silent or damaged stream is opened again from the last event yielded. Raises `RunUnknown` when
        the Bridge does not hold the run, and `BridgeUnavailable` when nothing was heard of it for
        `give_up_seconds`, or at once when the address says that waiting is in vain (`values["permanent"]`).
        Ends without a terminal event only when there is none after `after`, or after `close()`.
        """
        last_seq = after
        lost_at: float | None = None
        failures = 0
        while not self._closing.is_set():
            try:
                with _EventStream(self, run_id, last_seq) as stream:
                    for event in stream:
                        if event is not None and event.seq <= last_seq:
                            continue
                        if event is not None and event.seq != last_seq + 1 and event.kind not in JOINED_EVENTS:
                            raise _StreamCut(f"event {event.seq} came after event {last_seq}")
                        if lost_at is not None:
                            lost_at, failures = None, 0
                            self._tell(run_id, 0.0)
                        if event is None:
                            continue
                        last_seq = event.seq
                        yield event
                        if event.is_terminal:
                            return
                if self._has_ended(run_id, last_seq):
                    return
                reason = "the stream ended too early"
            except _StreamCut as cut:
                reason = str(cut)
            except BridgeUnavailable as error:
                if error.values.get("permanent"):
                    raise
                reason = error.message
            if self._closing.is_set():
                return
            now = time.monotonic()
            lost_at = now if lost_at is None else lost_at
            lost_seconds = now - lost_at
            if lost_seconds >= self._give_up_seconds:
                raise BridgeUnavailable(f"The Bridge was not heard for {lost_seconds:.0f} seconds: {reason}.")
            self._tell(run_id, lost_seconds)
            delay = self._stream_delays_seconds[min(failures, len(self._stream_delays_seconds) - 1)]
            failures += 1
            self._closing.wait(delay * random.uniform(0.8, 1.2))  # noqa: S311  (many runs must not return in step)

    # What can be chosen, and the rest

    def models(self) -> list[ModelChoice]:
        return self._read_list(ModelChoice, "/v1/models", "models")

    def skills(self) -> list[SkillChoice]:
        return self._read_list(SkillChoice, "/v1/skills", "skills")

    def memory(self, which: MemoryFile) -> MemoryText:
        return self._read(MemoryText, "GET", f"/v1/memory/{which}")

    def write_memory(self, which: MemoryFile, text: str) -> MemoryText:
        """Replace the file. Raises `InvalidInput` with the reason when the agent could not read it back."""
        return self._read(MemoryText, "PUT", f"/v1/memory/{which}", {"text": text})

    def health(self, timeout_seconds: float = 3.0) -> Health:
        """Ask once, without a second try. This is also the heartbeat that keeps an embedded Bridge alive."""
        return _parsed(Health, self._request("GET", "/health", None, "", timeout_seconds))

    # Calls

    def _read(
        self, model: type[_Model], method: str, path: str, body: Mapping[str, Any] | None = None, run_id: str = ""
    ) -> _Model:
        return _parsed(model, self._call(method, path, body, run_id))

    def _read_list(self, model: type[_Model], path: str, key: str) -> list[_Model]:
        found = self._call("GET", path)
        rows = found.get(key) if isinstance(found, dict) else found
        if not isinstance(rows, list):
            raise BridgeUnavailable(f"The Bridge gave an answer to {path} that cannot be read.")
        return [_parsed(model, row) for row in rows]

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None, run_id: str = "") -> Any:
        for delay in self._call_delays_seconds:
            try:
                return self._request(method, path, body, run_id)
            except _ConnectionLost:
                self._closing.wait(delay)
        return self._request(method, path, body, run_id)

    def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None, run_id: str, timeout_seconds: float | None = None
    ) -> Any:
        if self._closing.is_set():
            raise BridgeUnavailable("Parley is shutting down.")
        address = self._address()
        headers = address.headers
        content = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            content = dump_json(body)
        timeout = httpx.USE_CLIENT_DEFAULT if timeout_seconds is None else timeout_seconds
        try:
            response = self._http.request(method, address.url + path, content=content, headers=headers, timeout=timeout)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _ConnectionLost(f"The Bridge cannot be reached ({type(error).__name__}).") from None
        except RuntimeError:  # the client was closed while we were about to send
            raise BridgeUnavailable("Parley is shutting down.") from None
        if response.is_success:
            return _json(response.content)
        raise _refusal(response.status_code, response.content, response.headers.get("retry-after"), run_id)

    def _has_ended(self, run_id: str, last_seq: int) -> bool:
        snapshot = self.snapshot(run_id)
        return snapshot.status == "ended" and snapshot.last_seq <= last_seq

    # Streams

    def _tell(self, run_id: str, seconds: float) -> None:
        if self._on_reconnecting is not None:
            self._on_reconnecting(run_id, seconds)

    def _watch(self, open_socket: socket.socket) -> None:
        with self._lock:
            if self._closing.is_set():
                raise _StreamCut("Parley is shutting down")
            self._sockets.add(open_socket)

    def _unwatch(self, open_socket: socket.socket) -> None:
        with self._lock:
            self._sockets.discard(open_socket)


class _StreamCut(Exception):
    """The stream cannot be read further; it is to be opened again."""


class _ConnectionLost(BridgeUnavailable):
    """No answer came; the call may be sent again."""


class _EventStream:
    """One HTTP answer with a run's events: yields each event, and None for each keepalive.

    Built on http.client, not on httpx: the socket is known from the start, so `close()` can wake a blocked
    reader, and 2,000 events cost 0.06 s of processor time instead of 0.18 s.
    """

    def __init__(self, client: BridgeClient, run_id: str, after: int) -> None:
        self._client = client
        self._run_id = run_id
        self._after = after
        self._connection: http.client.HTTPConnection | None = None
        self._response: http.client.HTTPResponse | None = None
        self._socket: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._socket is not None:
            self._client._unwatch(self._socket)
        if self._response is not None:
            self._response.close()
        if self._connection is not None:
            self._connection.close()

    def __iter__(self) -> Iterator[Event | None]:
        try:
            yield from self._events(self._open())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _StreamCut(f"{type(error).__name__}: {error}"[:200]) from None

    def _open(self) -> http.client.HTTPResponse:
        address = self._client._address()
        url = urlsplit(address.url)
        secure = url.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        self._connection = connection = kind(url.hostname or "", url.port, timeout=CONNECT_SECONDS)
        connection.connect()
        self._socket = connection.sock
        self._client._watch(connection.sock)
        connection.sock.settimeout(self._client._silence_seconds)
        path = f"{url.path}/v1/runs/{_part(self._run_id)}/events?after={self._after}"
        connection.request("GET", path, headers={"Accept": "text/event-stream", **address.headers})
        self._response = response = connection.getresponse()
        if response.status != 200:
            refusal = _refusal(response.status, response.read(65536), response.getheader("Retry-After"), self._run_id)
            raise refusal if isinstance(refusal, RunUnknown) else _StreamCut(refusal.message)
        if not (response.getheader("Content-Type") or "").startswith("text/event-stream"):
            raise _StreamCut("the answer is not an event stream")
        return response

    def _events(self, response: http.client.HTTPResponse) -> Iterator[Event | None]:
        buffer = bytearray()
        searched = 0
        while chunk := response.read1(65536):
            buffer += chunk
            while (end := buffer.find(b"\n\n", searched)) >= 0:
                block = bytes(buffer[:end])
                del buffer[: end + 2]
                searched = 0
                yield _read_block(block)
            searched = max(len(buffer) - 1, 0)
            if len(buffer) > MAX_BLOCK_BYTES:
                raise _StreamCut(f"an event is longer than {MAX_BLOCK_BYTES} bytes")


def _read_block(block: bytes) -> Event | None:
    """Return the event of one SSE block, None for a comment. Raises ValueError for what the Bridge never sends."""
    if block.startswith((b":", b"retry:")):
        return None
    lines = block.decode("ascii").split("\n")
    if len(lines) != 3 or not (
        lines[0].startswith("id: ") and lines[1].startswith("event: ") and lines[2].startswith("data: ")
    ):
        raise ValueError("not an event of the Bridge")
    event_id, kind, data = lines[0][4:], lines[1][7:], lines[2][6:]
    try:
        return decode_event(event_id, kind, data)
    except RecursionError:  # asking again would bring the same: say so in its place
        text = f"An event of kind {kind!r} was nested too deeply to be read."
        return Event(seq=int(event_id), kind="status", at=time.time(), data={"text": text, "level": "warning"})


def _part(name: str) -> str:
    return quote(name, safe="")


def _json(content: bytes) -> Any:
    if not content:
        return None
    try:
        return storable_json(json.loads(content))
    except (ValueError, RecursionError):
        raise BridgeUnavailable("The Bridge gave an answer that cannot be read.") from None


def _parsed(model: type[_Model], value: object) -> _Model:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise BridgeUnavailable(
            f"The Bridge gave an answer that cannot be read ({error.error_count()} faults)."
        ) from None


def _refusal(status: int, content: bytes, retry_after: str | None, run_id: str) -> ParleyError:
    """Return the named error behind a refusal. What does not have the Bridge's own shape is not believed."""
    body: Any = None
    error: dict[str, Any] = {}
    with suppress(ValueError):
        body = json.loads(content)
        if isinstance(body, dict) and isinstance(body.get("error"), dict):
            error = body["error"]
    code, message = str(error.get("code", "")), str(error.get("message", ""))
    if not error or status >= 500:
        return BridgeUnavailable(message or f"The Bridge answered with status {status}.")
    if status in {401, 403}:
        return BridgeUnavailable("The Bridge refused the token. Check PARLEY_BRIDGE_TOKEN.")
    if status == 404 and run_id and code in {"run_unknown", ""}:
        return RunUnknown(message or f"The Bridge does not hold run {run_id!r}.", run_id=run_id)
    if status == 404:
        return NotFound(message or "The Bridge does not know it.")
    if status == 409 and code == QuestionClosed.code:
        return QuestionClosed(message)
    if status == 409:
        answer = error.get("answer", body.get("answer"))
        return AlreadyAnswered(message or "Another answer was recorded before.", answer=answer)
    if status == 429:
        return LimitReached(message or "The Bridge has no room for another run.", retry_after=retry_after)
    if status == 413:
        return TooLarge(message or "The Bridge refused it: too large.")
    return InvalidInput(message or f"The Bridge refused it with status {status}.")
