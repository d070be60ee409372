"""The words that cross the wire between app and Bridge, and the one interface both ends share.

The wire is HTTP with JSON and Server-Sent Events (WHATWG HTML, section 9.2). JSON is ASCII-escaped: line
readers such as httpx's also split at U+2028 and other separators, which JSON would leave as they are.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

KEEPALIVE_SECONDS = 5.0

EventKind = Literal[
    "thinking",  # {text}
    "answer",  # {text}
    "answer_break",  # {}: the answer text so far was commentary before tools
    "status",  # {text, level: info|warning|error, code?}
    "tool_call",  # {call_id, name, args}
    "tool_result",  # {call_id, name, result, duration_ms, is_error}
    "todo_update",  # {todos: [{id, content, status}]}
    "clarify_request",  # {question_id, question, choices}
    "approval_request",  # {question_id, command, description, choices}
    "context_compacted",  # {summary, condensed}
    "subagent",  # {event, ...}
    "usage",  # {input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens,
    #            context_tokens, context_window, cost_usd}; absent when not known
    "final",  # {text, interrupted, context: {base, messages}, model}
    "error",  # {code, message, context}
]
TERMINAL_EVENTS: frozenset[str] = frozenset({"final", "error"})

ErrorCode = Literal[
    "model_auth",  # 401, 403: the key is wrong
    "model_not_found",  # 404: no such model or address
    "model_rate_limit",  # 429 after retries
    "model_server_error",  # 5xx after retries
    "model_bad_request",  # other 4xx
    "model_unreachable",  # refused connection, no such host
    "model_timeout",  # accepted, but silent
    "model_no_answer",  # only empty answers
    "context_too_long",
    "unknown_model",  # the Bridge has no model of that id
    "unknown_skill",
    "local_model_failed",  # the model server on this machine did not start
    "agent_failed",  # anything else the agent reported
    "internal",
]


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a run; `seq` counts from 1 without gaps, `at` is seconds since the epoch (UTC)."""

    seq: int
    kind: str
    at: float
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def is_terminal(self) -> bool:
        return self.kind in TERMINAL_EVENTS


class Wire(BaseModel):
    """Base of the request and answer bodies: unknown fields are ignored, so either end may be newer."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class RunRequest(Wire):
    run_id: str = Field(min_length=1, max_length=100)
    agent_session: str = Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9_-]+$")
    runtime: str = "hermes"
    model: str = ""
    """Empty: the Bridge's default model."""
    skill_folder: str = ""
    message: str
    contexts: list[list[dict[str, Any]]] = Field(default_factory=list)
    """The turns the agent remembers, oldest first; each is that turn's messages (OpenAI chat format)."""
    max_iterations: int | None = Field(default=None, ge=1, le=500)


class OpenQuestion(Wire):
    question_id: str
    kind: Literal["clarify", "approval"]
    question: str
    choices: list[str] = Field(default_factory=list)


class RunSnapshot(Wire):
    run_id: str
    status: Literal["running", "waiting", "ended"]
    last_seq: int
    questions: list[OpenQuestion] = Field(default_factory=list)


class ModelChoice(Wire):
    id: str
    label: str
    runtime: str = "hermes"
    context_window: int | None = None
    tools: bool = True
    kind: Literal["local", "tour", "endpoint"] = "endpoint"
    """`local` runs on the Bridge's machine, `tour` is scripted, `endpoint` is somebody's API."""
    is_default: bool = False


class SkillChoice(Wire):
    folder: str
    name: str
    description: str = ""


class Health(Wire):
    status: Literal["ok", "starting"] = "ok"
    version: str = ""
    runtimes: list[str] = Field(default_factory=list)
    active_runs: int = 0
    toolsets: list[str] = Field(default_factory=list)
    """What the agent may use."""
    problems: list[str] = Field(default_factory=list)
    """Plain sentences about what is set up wrongly; no secrets."""


class MemoryText(Wire):
    """One of the agent's own memory files. `used` and `limit` count characters of the whole file."""

    text: str
    limit: int
    used: int


class Answer(Wire):
    answer: str = Field(max_length=20_000)


class RunControl(Protocol):
    """What a runtime gets to act with while it works on one run."""

    def emit(self, kind: EventKind, **data: Any) -> None:
        """Record one event; safe from any thread, never blocks on readers."""

    def ask(self, kind: Literal["clarify", "approval"], question: str, choices: list[str], **data: Any) -> str | None:
        """Emit the request, wait for a person and return the answer; None when the run is being stopped."""

    @property
    def stop_requested(self) -> bool: ...

    def on_stop(self, callback: Callable[[], None]) -> None:
        """Call `callback` (from another thread) once a stop is requested, at once if it already was."""


class Runtime(Protocol):
    """An agent engine: one function that works on a run and emits its events, the last one terminal."""

    name: str

    def run(self, request: RunRequest, control: RunControl) -> None: ...

    def forget(self, agent_session: str) -> None:
        """Drop what is cached for this session; harmless when there is nothing."""


class RunHost(Protocol):
    """Where runs live: the Bridge's own host, and the client that reaches it over HTTP, look the same.

    Raises `BridgeUnavailable` when it cannot be reached and `RunUnknown` for a run it does not hold.
    """

    def start(self, request: RunRequest) -> None:
        """Begin the run; the same run_id again changes nothing. Raises `LimitReached` when full."""

    def events(self, run_id: str, after: int = 0) -> Iterator[Event]:
        """Yield the run's events after `after`, then live ones, until the terminal one. Bounded waits inside."""

    def snapshot(self, run_id: str) -> RunSnapshot: ...

    def stop(self, run_id: str) -> None: ...

    def answer(self, run_id: str, question_id: str, answer: str) -> None:
        """Raises `AlreadyAnswered` for another answer than the recorded one, `NotFound` for no such question."""

    def forget(self, agent_session: str) -> None: ...


def dump_json(value: object) -> str:
    """Return compact, ASCII-escaped JSON: lone surrogates and line separators pass unharmed."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"), default=str)


def encode_event(event: Event) -> bytes:
    """Return the event as one SSE block: `id`, `event`, and `data` holding `{at, ...}`."""
    body = dump_json({"at": event.at, **event.data})
    return f"id: {event.seq}\nevent: {event.kind}\ndata: {body}\n\n".encode("ascii", "backslashreplace")


def decode_event(event_id: str, kind: str, data: str) -> Event:
    """Read one SSE block back. Raises ValueError when it is not one of ours."""
    body = json.loads(data)
    if not isinstance(body, dict) or not event_id.isdigit():
        raise ValueError(f"not a Bridge event: id {event_id!r}, kind {kind!r}")
    at = body.pop("at", 0.0)
    return Event(seq=int(event_id), kind=kind, at=float(at), data=body)
