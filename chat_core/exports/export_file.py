"""The JSON form of a session: the models say what a file holds, and refuse a file that could not be a session."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, PlainSerializer, model_validator

from chat_core.models import (
    TERMINAL_KINDS,
    EntryKind,
    MessageStatus,
    QuestionKind,
    QuestionStatus,
    Role,
    RunStatus,
    SessionStatus,
    utc_text,
)

FORMAT = "parley-session"
VERSION = 1


def _stored(moment: datetime) -> datetime:
    """Return the moment as the store keeps it: UTC, cut to milliseconds."""
    try:
        utc = moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("this time is out of range") from None
    return utc.replace(microsecond=utc.microsecond // 1000 * 1000)


Time = Annotated[AwareDatetime, AfterValidator(_stored), PlainSerializer(utc_text, return_type=str, when_used="json")]
Id = Annotated[str, Field(min_length=1, max_length=200)]
Seq = Annotated[int, Field(ge=1, le=2**53)]
Json = dict[str, Any]


class Part(BaseModel):
    """Unknown fields are refused: they would be lost without a word."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ErrorPart(Part):
    code: str
    message: str


class EntryPart(Part):
    """One entry of a message's log. `seq_to` is there when the entry stands for several numbers."""

    seq: Seq
    seq_to: Seq | None = None
    kind: EntryKind
    content: str = ""
    tool_name: str = ""
    call_id: str = ""
    duration_ms: int | None = Field(default=None, ge=0, le=2**53)
    is_error: bool = False
    meta: Json = Field(default_factory=dict)
    at: Time


class QuestionPart(Part):
    question_id: Id
    kind: QuestionKind
    question: str
    choices: list[str] = Field(default_factory=list)
    detail: Json = Field(default_factory=dict)
    status: QuestionStatus
    answer: str | None = None
    answered_by: str | None = None
    asked_at: Time
    answered_at: Time | None = None
    delivered: bool = False

    @model_validator(mode="after")
    def _answered_with_an_answer(self) -> Self:
        if (self.status == "ANSWERED") != (self.answer is not None):
            raise ValueError(f"question {self.question_id!r} is {self.status} but its answer says otherwise")
        return self


class RunPart(Part):
    """One run of a message; a continued message has more than one."""

    run_id: Id
    status: RunStatus
    first_seq: Seq = 1
    bridge_seq: int = Field(default=0, ge=0, le=2**53)
    stop_requested: bool = False
    request: Json = Field(default_factory=dict)
    started_at: Time
    ended_at: Time | None = None
    condensed_at: Time | None = None
    """When deltas of the log were joined and dropped; only then may numbers be missing."""
    questions: list[QuestionPart] = Field(default_factory=list)

    @property
    def is_active(self) -> bool:
        return self.status in {"RUNNING", "WAITING"}


class ResultPart(Part):
    """A tool result of which the log holds the start only."""

    result_ref: Id
    call_id: str = ""
    text: str
    at: Time


class ContextPart(Part):
    """What the agent itself kept of the turn, so that any branch can be continued exactly."""

    runtime: str
    messages: list[Json]
    base: bool = False
    """True when it replaces everything before it."""


class MessagePart(Part):
    message_id: Id
    parent_id: Id | None = None
    role: Role
    content: str = ""
    status: MessageStatus
    is_active: bool = True
    branch_order: int = Field(default=0, ge=0, le=2**31)
    run_id: Id | None = None
    runtime: str = ""
    model_id: str = ""
    skill_folder: str = ""
    usage: Json | None = None
    error: ErrorPart | None = None
    created_at: Time
    completed_at: Time | None = None
    log: list[EntryPart] = Field(default_factory=list)
    runs: list[RunPart] = Field(default_factory=list)
    results: list[ResultPart] = Field(default_factory=list)
    context: ContextPart | None = None

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        allowed = _STATUSES[self.role]
        _require(self.status in allowed, self, f"a {self.role} message cannot be {self.status}")
        if self.role != "ASSISTANT":
            nothing = not (self.log or self.runs or self.results or self.context or self.run_id)
            _require(nothing, self, f"a {self.role} message has no runs")
        active = [run.is_active for run in self.runs]
        _require(not any(active[:-1]), self, "only the last run can be at work")
        is_running = self.status in {"PENDING", "RUNNING", "WAITING"}
        _require(is_running == any(active), self, "its status and that of its run differ")
        if self.runs:
            _require(self.run_id == self.runs[-1].run_id, self, "its run_id is not that of its last run")
        self._check_log()
        return self

    def _check_log(self) -> None:
        condensed = any(run.condensed_at is not None for run in self.runs)
        last = 0
        for entry in self.log:
            follows = entry.seq == last + 1 or (condensed and entry.seq > last)
            _require(follows, self, f"its log has entry {entry.seq} after {last}")
            last = entry.seq if entry.seq_to is None else entry.seq_to
            _require(last >= entry.seq, self, f"entry {entry.seq} ends before it starts")
        refs = {result.result_ref for result in self.results}
        for entry in self.log:
            ref = entry.meta.get("result_ref")
            _require(ref is None or ref in refs, self, f"the tool result of entry {entry.seq} is missing")
        ends = [entry.meta.get("run_id") for entry in self.log if entry.kind in TERMINAL_KINDS]
        for run in self.runs:
            wanted = 0 if run.is_active else 1
            _require(ends.count(run.run_id) == wanted, self, f"run {run.run_id!r} has no single end in the log")


class SessionPart(Part):
    session_id: Id
    title: str = Field(default="", max_length=1_000)
    title_source: Literal["auto", "user"] = "auto"
    runtime: str = "hermes"
    model_id: str = ""
    skill_folder: str = ""
    status: SessionStatus = "ACTIVE"
    pinned: bool = False
    last_summarized_at: Time | None = None
    created_at: Time
    last_message_at: Time
    updated_at: Time


class ExportFile(Part):
    """A session with its message tree, logs, runs, questions, large tool results and turn contexts."""

    format: Literal["parley-session"]
    version: Literal[1]
    session: SessionPart
    messages: list[MessagePart]
    """Parents before their children; siblings in the order in which they came to be."""

    @model_validator(mode="after")
    def _is_a_tree(self) -> Self:
        seen: dict[str, MessagePart] = {}
        siblings: dict[str | None, list[MessagePart]] = {}
        for message in self.messages:
            _require(message.message_id not in seen, message, "its id is there twice")
            parent = seen.get(message.parent_id) if message.parent_id is not None else None
            _require(message.parent_id is None or parent is not None, message, "its parent does not come before it")
            _check_place(message, parent)
            seen[message.message_id] = message
            if message.role != "SYSTEM":
                siblings.setdefault(message.parent_id, []).append(message)
        for versions in siblings.values():
            _require(sum(item.is_active for item in versions) == 1, versions[0], "not exactly one version is active")
            orders = {item.branch_order for item in versions}
            _require(len(orders) == len(versions), versions[0], "two versions have the same branch_order")
        runs = [run for message in self.messages for run in message.runs]
        _unique("run", (run.run_id for run in runs))
        _unique("question", (question.question_id for run in runs for question in run.questions))
        _unique("tool result", (result.result_ref for message in self.messages for result in message.results))
        return self


_STATUSES: dict[Role, set[MessageStatus]] = {
    "USER": {"SENT"},
    "ASSISTANT": {"PENDING", "RUNNING", "WAITING", "SUCCESS", "FAILED", "STOPPED", "INTERRUPTED"},
    "SYSTEM": {"SUMMARY", "RESET"},
}


def _check_place(message: MessagePart, parent: MessagePart | None) -> None:
    if message.role == "ASSISTANT":
        _require(parent is not None and parent.role == "USER", message, "an ASSISTANT message answers a USER message")
    elif message.role == "SYSTEM":
        _require(parent is not None and parent.role != "SYSTEM", message, "a SYSTEM message follows another message")
    else:
        _require(parent is None or parent.role != "SYSTEM", message, "nothing follows a SYSTEM message")


def _require(condition: bool, message: MessagePart, problem: str) -> None:
    if not condition:
        raise ValueError(f"message {message.message_id!r}: {problem}")


def _unique(what: str, ids: Iterable[str]) -> None:
    seen: set[str] = set()
    for item in ids:
        if item in seen:
            raise ValueError(f"{what} {item!r} is there twice")
        seen.add(item)


def schema_text() -> str:
    """Return the JSON Schema of a file, as docs/EXPORT.md shows it."""
    return json.dumps(ExportFile.model_json_schema(), indent=2)
