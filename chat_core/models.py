"""The words of Parley as frozen values: what the store returns and every floor above it speaks.

Times are aware datetimes in UTC with millisecond precision; durations carry their unit in the name.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

Role = Literal["USER", "ASSISTANT", "SYSTEM"]
SessionStatus = Literal["ACTIVE", "ARCHIVED"]
MessageStatus = Literal[
    "SENT", "PENDING", "RUNNING", "WAITING", "SUCCESS", "FAILED", "STOPPED", "INTERRUPTED", "SUMMARY", "RESET"
]
RunStatus = Literal["RUNNING", "WAITING", "SUCCESS", "FAILED", "STOPPED", "INTERRUPTED"]
EndStatus = Literal["SUCCESS", "FAILED", "STOPPED", "INTERRUPTED"]
QuestionKind = Literal["clarify", "approval"]
QuestionStatus = Literal["WAITING", "ANSWERED", "CLOSED"]
EntryKind = Literal[
    "run_started",
    "thinking",
    "answer",
    "answer_break",
    "status",
    "tool_call",
    "tool_result",
    "todo_update",
    "clarify_request",
    "clarify_answer",
    "approval_request",
    "approval_decision",
    "context_compacted",
    "subagent",
    "usage",
    "run_finished",
    "run_failed",
    "run_stopped",
    "run_interrupted",
]

ACTIVE_RUN: frozenset[str] = frozenset({"RUNNING", "WAITING"})
END_KIND: dict[EndStatus, EntryKind] = {
    "SUCCESS": "run_finished",
    "FAILED": "run_failed",
    "STOPPED": "run_stopped",
    "INTERRUPTED": "run_interrupted",
}
TERMINAL_KINDS: frozenset[str] = frozenset(END_KIND.values())


def utc_text(moment: datetime) -> str:
    """Return the one form in which times are stored and sent: ISO 8601, UTC, milliseconds, `Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def utc_time(text: str) -> datetime:
    """Read back what `utc_text` wrote."""
    return datetime.fromisoformat(text)


@dataclass(frozen=True, slots=True)
class User:
    """Who acts: `key` owns sessions, `project` groups them. Without sign-in there is one local user."""

    key: str = "local"
    project: str = "default"


LOCAL_USER = User()


@dataclass(frozen=True, slots=True)
class ErrorNote:
    """Why a message is FAILED, STOPPED or INTERRUPTED: a stable code and a plain sentence."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation. `uuid` is its public name; `agent_session` is the agent's key in the Bridge."""

    id: int
    uuid: str
    owner: str
    project: str
    title: str
    title_source: Literal["auto", "user"]
    runtime: str
    model_id: str
    skill_folder: str
    agent_session: str
    status: SessionStatus
    pinned: bool
    last_summarized_at: datetime | None
    created_at: datetime
    last_message_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session as the list shows it."""

    session: Session
    preview: str
    run_status: RunStatus | None
    """RUNNING or WAITING while a run is active, the status of an unseen end, else None."""
    unseen: bool
    """A run has ended since the session was last looked at."""
    since: datetime | None
    """When the active run started, or when the waiting question was asked."""


@dataclass(frozen=True, slots=True)
class SessionPage:
    rows: list[SessionRow]
    has_more: bool


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A message, or a session's title, that holds what was searched for."""

    session: Session
    message_uuid: str | None
    """None: the title of the session matched."""
    role: Role | None
    snippet: str
    """One line of plain text around the first match, at most about 200 characters."""
    matches: tuple[tuple[int, int], ...]
    """Where in `snippet` the matches begin and end, in characters."""
    on_active_branch: bool
    at: datetime


@dataclass(frozen=True, slots=True)
class SearchPage:
    hits: list[SearchHit]
    next_before: str | None
    """Hand it back as `before` for the next page; None when this is the last one."""


@dataclass(frozen=True, slots=True)
class Message:
    """One node of the message tree."""

    id: int
    uuid: str
    session_id: int
    parent_id: int | None
    is_active: bool
    branch_order: int
    run_id: str | None
    role: Role
    content: str
    status: MessageStatus
    runtime: str
    model_id: str
    skill_folder: str
    usage: dict[str, Any] | None
    error: ErrorNote | None
    created_at: datetime
    completed_at: datetime | None


@dataclass(frozen=True, slots=True)
class OutlineMessage:
    """A message as a picture of the whole tree needs it: its place, its state and the start of its text."""

    id: int
    uuid: str
    parent_id: int | None
    is_active: bool
    branch_order: int
    role: Role
    status: MessageStatus
    start: str
    model_id: str
    skill_folder: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class BranchMessage:
    """A message on a branch, with its place among its siblings (`version_index` counts from 1)."""

    message: Message
    parent_uuid: str | None
    version_index: int
    version_count: int
    sibling_uuids: tuple[str, ...]
    """All versions in `branch_order`, this message included; empty for SYSTEM messages."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A window of one branch, oldest message first."""

    messages: list[BranchMessage]
    has_more: bool
    """There are earlier messages on this branch than the first one here."""
    has_later: bool = False
    """There are later messages on this branch than the last one here."""
    is_active: bool = True
    """It is the active branch of the session."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One thing that happened in a run. `seq` counts from 1 within the message and is never reused."""

    id: int
    message_id: int
    seq: int
    seq_to: int | None
    kind: EntryKind
    content: str
    tool_name: str
    call_id: str
    duration_ms: int | None
    is_error: bool
    meta: dict[str, Any]
    created_at: datetime

    @property
    def is_terminal(self) -> bool:
        return self.kind in TERMINAL_KINDS


@dataclass(frozen=True, slots=True)
class NewEntry:
    """A log entry before the store has given it its number."""

    kind: EntryKind
    content: str = ""
    tool_name: str = ""
    call_id: str = ""
    duration_ms: int | None = None
    is_error: bool = False
    meta: dict[str, Any] = field(default_factory=dict)
    created_at: datetime | None = None
    """When it happened; None means when it is stored."""


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of the agent for one assistant message.

    `fence` grows each time another worker takes the run over; a writer with an older fence is refused.
    `first_seq` is the seq of its `run_started` entry: a continued message has more than one run in its log.
    """

    run_id: str
    message_id: int
    session_id: int
    status: RunStatus
    lease_owner: str
    lease_until: datetime | None
    fence: int
    bridge_seq: int
    first_seq: int
    stop_requested: bool
    started_at: datetime
    ended_at: datetime | None

    @property
    def is_active(self) -> bool:
        return self.status in ACTIVE_RUN


@dataclass(frozen=True, slots=True)
class Question:
    """The agent waits for a person. `choices` may be empty (free text only)."""

    question_id: str
    run_id: str
    kind: QuestionKind
    question: str
    choices: tuple[str, ...]
    detail: dict[str, Any]
    status: QuestionStatus
    answer: str | None
    answered_by: str | None
    asked_at: datetime
    answered_at: datetime | None
    delivered: bool
    """The Bridge has confirmed the answer."""


@dataclass(frozen=True, slots=True)
class RunState:
    """What a reader needs to know of a run besides its log."""

    run_id: str
    session_uuid: str
    message_uuid: str
    status: RunStatus
    stop_requested: bool
    last_seq: int
    question: Question | None


@dataclass(frozen=True, slots=True)
class Started:
    """A run has been accepted: its id, its ASSISTANT message and the USER message it answers."""

    run_id: str
    message_uuid: str
    user_message_uuid: str


@dataclass(frozen=True, slots=True)
class TurnContext:
    """The agent's own messages of one turn; `base` means they replace everything before them."""

    runtime: str
    messages: list[dict[str, Any]]
    base: bool = False


@dataclass(frozen=True, slots=True)
class Activity:
    """What the activity line of a turn shows; counts are of the whole message."""

    thinking_ms: int
    """Time from the start of the run to its end, less the time people were waited for."""
    tool_calls: int
    tool_errors: int
    todos_done: int
    todos_total: int
