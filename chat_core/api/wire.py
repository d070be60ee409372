"""The bodies and answers of the REST API. Ids are the public ones, times ISO 8601 in UTC."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from chat_core.bridge.protocol import MemoryText, ModelChoice, SkillChoice
from chat_core.memory import BranchMemory
from chat_core.models import (
    BranchMessage,
    LogEntry,
    Message,
    MessageStatus,
    Question,
    QuestionKind,
    QuestionStatus,
    Role,
    RunState,
    RunStatus,
    SearchHit,
    Session,
    SessionRow,
    SessionStatus,
    Started,
    utc_text,
)
from chat_core.text import preview

PREVIEW_CHARS = 140


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


# Written in lower case in URLs and in upper case in the store; both are understood.
AnyCaseStatus = Annotated[SessionStatus, BeforeValidator(_upper)]
Title = Annotated[str, Field(max_length=200)]
ModelId = Annotated[str, Field(max_length=200)]
SkillFolder = Annotated[str, Field(max_length=200)]


class Body(BaseModel):
    """A request: unknown fields are refused, because a misspelled option would silently do nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Query(BaseModel):
    """The parameters of a URL; unknown ones are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


# -- errors ------------------------------------------------------------------------------------------------------


class ErrorText(Answer):
    code: str
    message: str
    detail: dict[str, Any] | None = None


class ErrorAnswer(Answer):
    error: ErrorText


# -- sessions ----------------------------------------------------------------------------------------------------


class SessionDraft(Body):
    title: Title = ""
    model_id: ModelId = ""
    skill_folder: SkillFolder = ""
    runtime: str = Field(default="hermes", min_length=1, max_length=100)


class SessionChange(Body):
    """What is absent or null stays as it is."""

    title: Title | None = None
    model_id: ModelId | None = None
    skill_folder: SkillFolder | None = None
    pinned: bool | None = None
    status: AnyCaseStatus | None = None


class SessionQuery(Query):
    q: str = Field(default="", max_length=500)
    status: AnyCaseStatus = "ACTIVE"
    before: str | None = Field(default=None, max_length=100)
    limit: int = Field(default=30, ge=1, le=200)


class ResetOptions(Body):
    keep_history: Literal[True] = True


class SessionCreated(Answer):
    session_id: str


class SessionView(Answer):
    session_id: str
    title: str
    runtime: str
    model_id: str
    skill_folder: str
    status: SessionStatus
    pinned: bool
    created_at: str
    updated_at: str
    last_message_at: str
    last_summarized_at: str | None

    @classmethod
    def of(cls, session: Session) -> Self:
        return cls(**_session_fields(session))


class SessionListItem(SessionView):
    preview: str
    has_active_run: bool
    waiting: bool
    unseen: bool
    since: str | None = Field(description="When the active run started, or when the waiting question was asked.")

    @classmethod
    def of_row(cls, row: SessionRow) -> Self:
        return cls(
            **_session_fields(row.session),
            preview=row.preview,
            has_active_run=row.run_status in {"RUNNING", "WAITING"},
            waiting=row.run_status == "WAITING",
            unseen=row.unseen,
            since=utc_text(row.since) if row.since else None,
        )


class SessionList(Answer):
    sessions: list[SessionListItem]
    has_more: bool


def _session_fields(session: Session) -> dict[str, Any]:
    return {
        "session_id": session.uuid,
        "title": session.title,
        "runtime": session.runtime,
        "model_id": session.model_id,
        "skill_folder": session.skill_folder,
        "status": session.status,
        "pinned": session.pinned,
        "created_at": utc_text(session.created_at),
        "updated_at": utc_text(session.updated_at),
        "last_message_at": utc_text(session.last_message_at),
        "last_summarized_at": utc_text(session.last_summarized_at) if session.last_summarized_at else None,
    }


# -- messages ----------------------------------------------------------------------------------------------------


class LogView(Answer):
    seq: int
    seq_to: int | None
    kind: str
    content: str
    tool_name: str
    call_id: str
    duration_ms: int | None
    is_error: bool
    meta: dict[str, Any]
    at: str

    @classmethod
    def of(cls, entry: LogEntry, *, whole: bool = True) -> Self:
        """`whole=False` shortens a long content to its start, for lists of many messages."""
        return cls(
            seq=entry.seq,
            seq_to=entry.seq_to,
            kind=entry.kind,
            content=entry.content if whole else preview(entry.content),
            tool_name=entry.tool_name,
            call_id=entry.call_id,
            duration_ms=entry.duration_ms,
            is_error=entry.is_error,
            meta=entry.meta,
            at=utc_text(entry.created_at),
        )


class Version(Answer):
    index: int = Field(description="Counts from 1.")
    count: int
    message_ids: list[str] = Field(description="All versions in their order, this message included.")


class ErrorNoteView(Answer):
    code: str
    message: str


class MessageView(Answer):
    message_id: str
    parent_id: str | None
    role: Role
    content: str
    status: MessageStatus
    run_id: str | None
    runtime: str
    model_id: str
    skill_folder: str
    usage: dict[str, Any] | None
    error: ErrorNoteView | None
    created_at: str
    completed_at: str | None

    @classmethod
    def of(cls, message: Message, parent_id: str | None) -> Self:
        return cls(**_message_fields(message, parent_id))


class BranchMessageView(MessageView):
    version: Version
    logs: list[LogView] = Field(
        description="What happened, without the deltas of the answer and with long contents cut to their start; "
        "GET /messages/{message_id}/log has it whole."
    )

    @classmethod
    def of_branch(cls, item: BranchMessage, log: Sequence[LogEntry]) -> Self:
        shown = [entry for entry in log if entry.kind != "answer"]
        return cls(
            **_message_fields(item.message, item.parent_uuid),
            version=Version(index=item.version_index, count=item.version_count, message_ids=list(item.sibling_uuids)),
            logs=[LogView.of(entry, whole=False) for entry in shown],
        )


class TreeMessage(MessageView):
    is_active: bool
    branch_order: int

    @classmethod
    def of_tree(cls, message: Message, parent_id: str | None) -> Self:
        return cls(
            **_message_fields(message, parent_id), is_active=message.is_active, branch_order=message.branch_order
        )


class SessionWithMessages(Answer):
    session: SessionListItem
    messages: list[BranchMessageView]


class MessageWindow(Answer):
    messages: list[BranchMessageView]
    has_more: bool


class MessageQuery(Query):
    before: str | None = Field(default=None, max_length=100)
    limit: int = Field(default=50, ge=1, le=500)
    message: str | None = Field(
        default=None, max_length=100, description="Read the branch that holds this message; nothing stored changes."
    )


class Tree(Answer):
    messages: list[TreeMessage]


class MessageLog(Answer):
    message_id: str
    entries: list[LogView]


class MessageVersion(Answer):
    message_id: str
    branch_order: int
    is_active: bool
    status: MessageStatus
    model_id: str
    created_at: str
    preview: str

    @classmethod
    def of(cls, message: Message) -> Self:
        return cls(
            message_id=message.uuid,
            branch_order=message.branch_order,
            is_active=message.is_active,
            status=message.status,
            model_id=message.model_id,
            created_at=utc_text(message.created_at),
            preview=message.content[:PREVIEW_CHARS],
        )


class Edit(Body):
    content: str = Field(min_length=1)


class MessageCreated(Answer):
    new_message_id: str


class MarkerCreated(Answer):
    message_id: str


def _message_fields(message: Message, parent_id: str | None) -> dict[str, Any]:
    error = message.error
    return {
        "message_id": message.uuid,
        "parent_id": parent_id,
        "role": message.role,
        "content": message.content,
        "status": message.status,
        "run_id": message.run_id,
        "runtime": message.runtime,
        "model_id": message.model_id,
        "skill_folder": message.skill_folder,
        "usage": message.usage,
        "error": ErrorNoteView(code=error.code, message=error.message) if error else None,
        "created_at": utc_text(message.created_at),
        "completed_at": utc_text(message.completed_at) if message.completed_at else None,
    }


# -- runs --------------------------------------------------------------------------------------------------------


class RunOptions(Body):
    model_id: ModelId | None = None
    skill_folder: SkillFolder | None = None


class RunDraft(RunOptions):
    message: str | None = None
    max_iterations: int | None = Field(default=None, ge=1, le=500)
    parent_message_id: str | None = Field(default=None, max_length=100)


class RunStarted(Answer):
    run_id: str
    message_id: str = Field(description="The ASSISTANT message that the run writes.")
    user_message_id: str

    @classmethod
    def of(cls, started: Started) -> Self:
        return cls(run_id=started.run_id, message_id=started.message_uuid, user_message_id=started.user_message_uuid)


class Regenerated(Answer):
    run_id: str
    new_message_id: str


class QuestionView(Answer):
    question_id: str
    kind: QuestionKind
    question: str
    choices: list[str]
    detail: dict[str, Any]
    status: QuestionStatus
    answer: str | None
    answered_by: str | None
    asked_at: str
    answered_at: str | None

    @classmethod
    def of(cls, question: Question) -> Self:
        return cls(
            question_id=question.question_id,
            kind=question.kind,
            question=question.question,
            choices=list(question.choices),
            detail=question.detail,
            status=question.status,
            answer=question.answer,
            answered_by=question.answered_by,
            asked_at=utc_text(question.asked_at),
            answered_at=utc_text(question.answered_at) if question.answered_at else None,
        )


class RunStateView(Answer):
    run_id: str
    session_id: str
    message_id: str
    status: RunStatus
    stop_requested: bool
    last_seq: int
    question: QuestionView | None

    @classmethod
    def of(cls, state: RunState) -> Self:
        return cls(
            run_id=state.run_id,
            session_id=state.session_uuid,
            message_id=state.message_uuid,
            status=state.status,
            stop_requested=state.stop_requested,
            last_seq=state.last_seq,
            question=QuestionView.of(state.question) if state.question else None,
        )


class QuestionAnswer(Body):
    question_id: str = Field(min_length=1, max_length=100)
    answer: str = Field(max_length=20_000)


class QuestionAnswered(Answer):
    question: QuestionView


class StopAccepted(Answer):
    run_id: str


# -- choices, memory, health -------------------------------------------------------------------------------------


class Models(Answer):
    models: list[ModelChoice]


class Skills(Answer):
    skills: list[SkillChoice]


class MemoryChange(Body):
    text: str


class Memory(Answer):
    text: str
    limit: int
    used: int

    @classmethod
    def of(cls, memory: MemoryText) -> Self:
        return cls(text=memory.text, limit=memory.limit, used=memory.used)


class RememberedView(Answer):
    role: str
    text: str
    tools: list[str]


class ToolUseView(Answer):
    message_id: str
    tool_name: str
    arguments: str
    result: str | None
    is_error: bool
    duration_ms: int | None
    at: str


class SummaryView(Answer):
    message_id: str
    text: str
    condensed: int | None
    at: str


class SessionMemory(Answer):
    """What the agent has in mind for the active branch of a session."""

    working: list[RememberedView] = Field(description="The messages that the agent's next run begins with.")
    turns: int
    tokens: int | None = Field(description="Context used at the end of the last run that told; null after a reset.")
    window: int | None
    tools: list[ToolUseView] = Field(description="The last tool calls, newest first.")
    summaries: list[SummaryView] = Field(description="What was condensed, newest first.")

    @classmethod
    def of(cls, memory: BranchMemory) -> Self:
        return cls(
            working=[RememberedView(role=item.role, text=item.text, tools=list(item.tools)) for item in memory.working],
            turns=memory.turns,
            tokens=memory.tokens,
            window=memory.window,
            tools=[
                ToolUseView(
                    message_id=use.message_uuid,
                    tool_name=use.tool_name,
                    arguments=use.arguments,
                    result=use.result,
                    is_error=use.is_error,
                    duration_ms=use.duration_ms,
                    at=utc_text(use.at),
                )
                for use in memory.tools
            ],
            summaries=[
                SummaryView(
                    message_id=item.message_uuid, text=item.text, condensed=item.condensed, at=utc_text(item.at)
                )
                for item in memory.summaries
            ],
        )


class HealthAnswer(Answer):
    model_config = ConfigDict(frozen=True, extra="allow")

    status: str
    version: str
    bridge: Any
    active_runs: int


# -- export and import -------------------------------------------------------------------------------------------


class ExportQuery(Query):
    format: Literal["md", "json"] = "md"
    branch: Literal["active", "all"] | None = Field(
        default=None, description="Without it Markdown holds the active branch, JSON the whole tree."
    )


class SessionsToExport(Body):
    session_ids: list[str] = Field(min_length=1, max_length=500)
    format: Literal["md", "json"] = "json"


class SessionImported(Answer):
    session_id: str
    created: bool = Field(description="False when this content had been imported before.")


# -- search ------------------------------------------------------------------------------------------------------


class SearchQuery(Query):
    q: str = Field(max_length=1_000)
    before: str | None = Field(default=None, max_length=200)
    limit: int = Field(default=20, ge=1, le=100)


class SearchHitView(Answer):
    session_id: str
    title: str
    message_id: str | None = Field(description="Null when the title of the session matched.")
    role: Role | None
    snippet: str
    matches: list[tuple[int, int]] = Field(description="Where in the snippet the matches begin and end.")
    on_active_branch: bool
    at: str

    @classmethod
    def of(cls, hit: SearchHit) -> Self:
        return cls(
            session_id=hit.session.uuid,
            title=hit.session.title,
            message_id=hit.message_uuid,
            role=hit.role,
            snippet=hit.snippet,
            matches=list(hit.matches),
            on_active_branch=hit.on_active_branch,
            at=utc_text(hit.at),
        )


class SearchResult(Answer):
    hits: list[SearchHitView]
    next_before: str | None = Field(description="Hand it back as `before`; null on the last page.")
