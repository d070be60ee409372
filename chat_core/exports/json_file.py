"""Writes a session as JSON that loses nothing, and reads such a file back into values the store can take.

The ids in a file are those of where it came from. What is read gets new ones, derived from the content and the user:
the same file is the same session every time, so importing it again finds it instead of doubling it.
"""

import hashlib
import json
import uuid
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from chat_core.errors import InvalidInput
from chat_core.exports.export_file import (
    FORMAT,
    VERSION,
    ContextPart,
    EntryPart,
    ErrorPart,
    ExportFile,
    MessagePart,
    QuestionPart,
    ResultPart,
    RunPart,
    SessionPart,
)
from chat_core.exports.markdown import active_branch
from chat_core.models import ErrorNote, LogEntry, Message, Question, Run, Session, TurnContext, User
from chat_core.store.transfer import MessageRecord, ResultRecord, RunRecord, SessionRecord
from chat_core.text import storable_json

_NAMESPACE = uuid.UUID("8c9a53a6-3a5f-4f5e-9d6c-1d2b7b1f7a10")
_IDS_IN_META = ("run_id", "question_id", "result_ref")
_INTERRUPTED = ErrorPart(code="imported_while_running", message="The session was exported while this run was at work.")

Rename = Callable[[str], str]


def json_of(record: SessionRecord, *, whole_tree: bool = True) -> str:
    """Return the session as the text of a JSON file: its whole tree, or its active branch alone."""
    return text_of(file_of(record, whole_tree=whole_tree))


def text_of(file: ExportFile) -> str:
    # What has its default is left out: most fields of most log entries.
    return file.model_dump_json(exclude_defaults=True) + "\n"


def file_of(record: SessionRecord, *, whole_tree: bool = True) -> ExportFile:
    """Return the session as a file's model."""
    chosen = {item.message.id for item in (record.messages if whole_tree else active_branch(record.messages))}
    uuids = {item.message.id: item.message.uuid for item in record.messages}
    messages = [_message_part(item, uuids) for item in record.messages if item.message.id in chosen]
    return ExportFile(format="parley-session", version=1, session=_session_part(record.session), messages=messages)


def read_file(data: bytes | str) -> ExportFile:
    """Read and check the text of a file. Raises `InvalidInput` saying what is wrong with it."""
    try:
        value = storable_json(json.loads(data, parse_constant=_no_constant))
    except RecursionError:
        raise InvalidInput("The file is nested too deeply to be a session.") from None
    except ValueError as error:
        raise InvalidInput(f"The file is not JSON: {error}.") from None
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise InvalidInput("The file is not a session exported by Parley as JSON.")
    version = value.get("version")
    if isinstance(version, int) and version > VERSION:
        raise InvalidInput(f"The file was written by a newer Parley (version {version}; {VERSION} can be read).")
    try:
        return ExportFile.model_validate(value)
    except ValidationError as error:
        raise InvalidInput(f"The file cannot be a session: {_first_problem(error)}.") from None


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def record_of(file: ExportFile, user: User) -> SessionRecord:
    """Return the file's session as values to store, under ids of its own.

    A run that was at work when the file was written is interrupted: nobody works on it here.
    """
    over = file.model_copy(update={"messages": [_ended(message) for message in file.messages]})
    ordinals = _renamed(over, _numbered())
    content = ordinals.model_copy(update={"session": ordinals.session.model_copy(update={"session_id": "s"})})
    digest = hashlib.sha256(text_of(content).encode("utf-8")).hexdigest()
    session_uuid = str(uuid.uuid5(_NAMESPACE, f"{user.key}\n{digest}"))
    named = _renamed(content, lambda name: str(uuid.uuid5(uuid.UUID(session_uuid), name)))
    return SessionRecord(
        _session(named.session, user, session_uuid),
        [_message_record(part, index, _places(named)) for index, part in enumerate(named.messages, start=1)],
    )


def _places(file: ExportFile) -> dict[str, int]:
    return {part.message_id: index for index, part in enumerate(file.messages, start=1)}


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    problem = first["msg"].removeprefix("Value error, ")
    return f"{place}: {problem}" if place else problem


# -- from values to the file -------------------------------------------------------------------------------------


def _session_part(session: Session) -> SessionPart:
    return SessionPart(
        session_id=session.uuid,
        title=session.title,
        title_source=session.title_source,
        runtime=session.runtime,
        model_id=session.model_id,
        skill_folder=session.skill_folder,
        status=session.status,
        pinned=session.pinned,
        last_summarized_at=session.last_summarized_at,
        created_at=session.created_at,
        last_message_at=session.last_message_at,
        updated_at=session.updated_at,
    )


def _message_part(item: MessageRecord, uuids: dict[int, str]) -> MessagePart:
    message, context = item.message, item.context
    return MessagePart(
        message_id=message.uuid,
        parent_id=None if message.parent_id is None else uuids[message.parent_id],
        role=message.role,
        content=message.content,
        status=message.status,
        is_active=message.is_active,
        branch_order=message.branch_order,
        run_id=message.run_id,
        runtime=message.runtime,
        model_id=message.model_id,
        skill_folder=message.skill_folder,
        usage=message.usage,
        error=ErrorPart(code=message.error.code, message=message.error.message) if message.error else None,
        created_at=message.created_at,
        completed_at=message.completed_at,
        log=[_entry_part(entry) for entry in item.log],
        runs=[_run_part(run, item.questions) for run in item.runs],
        results=[
            ResultPart(result_ref=result.result_ref, call_id=result.call_id, text=result.text, at=result.created_at)
            for result in item.results
        ],
        context=ContextPart(runtime=context.runtime, messages=context.messages, base=context.base) if context else None,
    )


def _entry_part(entry: LogEntry) -> EntryPart:
    return EntryPart(
        seq=entry.seq,
        seq_to=entry.seq_to,
        kind=entry.kind,
        content=entry.content,
        tool_name=entry.tool_name,
        call_id=entry.call_id,
        duration_ms=entry.duration_ms,
        is_error=entry.is_error,
        meta=entry.meta,
        at=entry.created_at,
    )


def _run_part(record: RunRecord, questions: tuple[Question, ...]) -> RunPart:
    run = record.run
    return RunPart(
        run_id=run.run_id,
        status=run.status,
        first_seq=run.first_seq,
        bridge_seq=run.bridge_seq,
        stop_requested=run.stop_requested,
        request=record.request,
        started_at=run.started_at,
        ended_at=run.ended_at,
        condensed_at=record.condensed_at,
        questions=[_question_part(question) for question in questions if question.run_id == run.run_id],
    )


def _question_part(question: Question) -> QuestionPart:
    return QuestionPart(
        question_id=question.question_id,
        kind=question.kind,
        question=question.question,
        choices=list(question.choices),
        detail=question.detail,
        status=question.status,
        answer=question.answer,
        answered_by=question.answered_by,
        asked_at=question.asked_at,
        answered_at=question.answered_at,
        delivered=question.delivered,
    )


# -- new names, and ends for what was at work --------------------------------------------------------------------


def _numbered() -> Rename:
    """Name each id after the order in which it is met."""
    names: dict[str, str] = {}
    return lambda name: names.setdefault(name, f"id{len(names)}")


def _renamed(file: ExportFile, rename: Rename) -> ExportFile:
    messages = [
        message.model_copy(
            update={
                "message_id": rename(f"m:{message.message_id}"),
                "parent_id": None if message.parent_id is None else rename(f"m:{message.parent_id}"),
                "run_id": None if message.run_id is None else rename(f"r:{message.run_id}"),
                "runs": [_renamed_run(run, rename) for run in message.runs],
                "results": [
                    result.model_copy(update={"result_ref": rename(f"t:{result.result_ref}")})
                    for result in message.results
                ],
                "log": [entry.model_copy(update={"meta": _renamed_meta(entry.meta, rename)}) for entry in message.log],
            }
        )
        for message in file.messages
    ]
    return file.model_copy(update={"messages": messages})


def _renamed_run(run: RunPart, rename: Rename) -> RunPart:
    questions = [
        question.model_copy(update={"question_id": rename(f"q:{question.question_id}")}) for question in run.questions
    ]
    return run.model_copy(update={"run_id": rename(f"r:{run.run_id}"), "questions": questions})


def _renamed_meta(meta: dict[str, Any], rename: Rename) -> dict[str, Any]:
    kinds = {"run_id": "r", "question_id": "q", "result_ref": "t"}
    return {
        key: rename(f"{kinds[key]}:{value}") if key in _IDS_IN_META and isinstance(value, str) else value
        for key, value in meta.items()
    }


def _ended(message: MessagePart) -> MessagePart:
    if not message.runs or not message.runs[-1].is_active:
        return message
    run = message.runs[-1]
    last = message.log[-1] if message.log else None
    at = last.at if last is not None else run.started_at
    questions = [
        question.model_copy(update={"status": "CLOSED"}) if question.status == "WAITING" else question
        for question in run.questions
    ]
    error = {"code": _INTERRUPTED.code, "message": _INTERRUPTED.message}
    end = EntryPart(
        seq=1 if last is None else (last.seq_to or last.seq) + 1,
        kind="run_interrupted",
        content=message.content,
        meta={"run_id": run.run_id, "status": "INTERRUPTED", "error": error},
        at=at,
    )
    ended_run = run.model_copy(update={"status": "INTERRUPTED", "ended_at": at, "questions": questions})
    return message.model_copy(
        update={
            "status": "INTERRUPTED",
            "error": _INTERRUPTED,
            "completed_at": at,
            "log": [*message.log, end],
            "runs": [*message.runs[:-1], ended_run],
        }
    )


# -- from the file to values -------------------------------------------------------------------------------------


def _session(part: SessionPart, user: User, session_uuid: str) -> Session:
    return Session(
        id=0,
        uuid=session_uuid,
        owner=user.key,
        project=user.project,
        title=part.title,
        title_source=part.title_source,
        runtime=part.runtime,
        model_id=part.model_id,
        skill_folder=part.skill_folder,
        agent_session="",
        status=part.status,
        pinned=part.pinned,
        last_summarized_at=part.last_summarized_at,
        created_at=part.created_at,
        last_message_at=part.last_message_at,
        updated_at=part.updated_at,
    )


def _message_record(part: MessagePart, index: int, places: dict[str, int]) -> MessageRecord:
    context = part.context
    return MessageRecord(
        message=Message(
            id=index,
            uuid=part.message_id,
            session_id=0,
            parent_id=None if part.parent_id is None else places[part.parent_id],
            is_active=part.is_active,
            branch_order=part.branch_order,
            run_id=part.run_id,
            role=part.role,
            content=part.content,
            status=part.status,
            runtime=part.runtime,
            model_id=part.model_id,
            skill_folder=part.skill_folder,
            usage=part.usage,
            error=ErrorNote(part.error.code, part.error.message) if part.error else None,
            created_at=part.created_at,
            completed_at=part.completed_at,
        ),
        log=tuple(_entry(entry, index) for entry in part.log),
        runs=tuple(RunRecord(_run(run, index), run.request, run.condensed_at) for run in part.runs),
        questions=tuple(_question(question, run.run_id) for run in part.runs for question in run.questions),
        results=tuple(
            ResultRecord(result.result_ref, result.call_id, result.text, result.at) for result in part.results
        ),
        context=TurnContext(context.runtime, context.messages, context.base) if context else None,
    )


def _entry(part: EntryPart, message_id: int) -> LogEntry:
    return LogEntry(
        id=0,
        message_id=message_id,
        seq=part.seq,
        seq_to=part.seq_to,
        kind=part.kind,
        content=part.content,
        tool_name=part.tool_name,
        call_id=part.call_id,
        duration_ms=part.duration_ms,
        is_error=part.is_error,
        meta=part.meta,
        created_at=part.at,
    )


def _run(part: RunPart, message_id: int) -> Run:
    return Run(
        run_id=part.run_id,
        message_id=message_id,
        session_id=0,
        status=part.status,
        lease_owner="",
        lease_until=None,
        fence=1,
        bridge_seq=part.bridge_seq,
        first_seq=part.first_seq,
        stop_requested=part.stop_requested,
        started_at=part.started_at,
        ended_at=part.ended_at,
    )


def _question(part: QuestionPart, run_id: str) -> Question:
    return Question(
        question_id=part.question_id,
        run_id=run_id,
        kind=part.kind,
        question=part.question,
        choices=tuple(part.choices),
        detail=part.detail,
        status=part.status,
        answer=part.answer,
        answered_by=part.answered_by,
        asked_at=part.asked_at,
        answered_at=part.answered_at,
        delivered=part.delivered,
    )
