"""From table rows to the frozen values of `models`."""

import json
import math
import sqlite3
from datetime import datetime
from typing import Any

from chat_core.models import ErrorNote, LogEntry, Message, Question, Run, Session, utc_time

SESSION_COLUMNS = (
    "s.id, s.session_uuid, s.owner, s.project, s.title, s.title_source, s.runtime, s.model_id, s.skill_folder, "
    "s.agent_session, s.status, s.pinned, s.last_summarized_at, s.created_at, s.last_message_at, s.updated_at"
)
MESSAGE_COLUMNS = (
    "m.id, m.message_uuid, m.session_id, m.parent_id, m.is_active, m.branch_order, m.run_id, m.role, m.content, "
    "m.status, m.runtime, m.model_id, m.skill_folder, m.usage_json, m.error, m.created_at, m.completed_at"
)
LOG_COLUMNS = (
    "l.id, l.message_id, l.seq, l.seq_to, l.kind, l.content, l.tool_name, l.call_id, l.duration_ms, l.is_error, "
    "l.meta_json, l.created_at"
)
RUN_COLUMNS = (
    "r.run_id, r.message_id, r.session_id, r.status, r.lease_owner, r.lease_until, r.fence, r.bridge_seq, "
    "r.first_seq, r.stop_requested, r.started_at, r.ended_at"
)
QUESTION_COLUMNS = (
    "q.question_id, q.run_id, q.kind, q.question, q.choices_json, q.detail_json, q.status, q.answer, q.answered_by, "
    "q.asked_at, q.answered_at, q.delivered"
)


def _maybe_time(text: str | None) -> datetime | None:
    return None if text is None else utc_time(text)


def dump(value: Any) -> str:
    """Return compact JSON that SQLite can read: what is no number in JSON (NaN, infinity) becomes null."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"), default=str)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def session_from(row: sqlite3.Row) -> Session:
    return Session(
        id=row["id"],
        uuid=row["session_uuid"],
        owner=row["owner"],
        project=row["project"],
        title=row["title"],
        title_source=row["title_source"],
        runtime=row["runtime"],
        model_id=row["model_id"],
        skill_folder=row["skill_folder"],
        agent_session=row["agent_session"],
        status=row["status"],
        pinned=bool(row["pinned"]),
        last_summarized_at=_maybe_time(row["last_summarized_at"]),
        created_at=utc_time(row["created_at"]),
        last_message_at=utc_time(row["last_message_at"]),
        updated_at=utc_time(row["updated_at"]),
    )


def message_from(row: sqlite3.Row) -> Message:
    error = json.loads(row["error"]) if row["error"] else None
    return Message(
        id=row["id"],
        uuid=row["message_uuid"],
        session_id=row["session_id"],
        parent_id=row["parent_id"],
        is_active=bool(row["is_active"]),
        branch_order=row["branch_order"],
        run_id=row["run_id"],
        role=row["role"],
        content=row["content"],
        status=row["status"],
        runtime=row["runtime"],
        model_id=row["model_id"],
        skill_folder=row["skill_folder"],
        usage=json.loads(row["usage_json"]) if row["usage_json"] else None,
        error=ErrorNote(error["code"], error["message"]) if error else None,
        created_at=utc_time(row["created_at"]),
        completed_at=_maybe_time(row["completed_at"]),
    )


def entry_from(row: sqlite3.Row) -> LogEntry:
    return LogEntry(
        id=row["id"],
        message_id=row["message_id"],
        seq=row["seq"],
        seq_to=row["seq_to"],
        kind=row["kind"],
        content=row["content"],
        tool_name=row["tool_name"],
        call_id=row["call_id"],
        duration_ms=row["duration_ms"],
        is_error=bool(row["is_error"]),
        meta=json.loads(row["meta_json"]) if row["meta_json"] else {},
        created_at=utc_time(row["created_at"]),
    )


def run_from(row: sqlite3.Row) -> Run:
    return Run(
        run_id=row["run_id"],
        message_id=row["message_id"],
        session_id=row["session_id"],
        status=row["status"],
        lease_owner=row["lease_owner"],
        lease_until=_maybe_time(row["lease_until"]),
        fence=row["fence"],
        bridge_seq=row["bridge_seq"],
        first_seq=row["first_seq"],
        stop_requested=bool(row["stop_requested"]),
        started_at=utc_time(row["started_at"]),
        ended_at=_maybe_time(row["ended_at"]),
    )


def question_from(row: sqlite3.Row) -> Question:
    return Question(
        question_id=row["question_id"],
        run_id=row["run_id"],
        kind=row["kind"],
        question=row["question"],
        choices=tuple(json.loads(row["choices_json"])),
        detail=json.loads(row["detail_json"]),
        status=row["status"],
        answer=row["answer"],
        answered_by=row["answered_by"],
        asked_at=utc_time(row["asked_at"]),
        answered_at=_maybe_time(row["answered_at"]),
        delivered=bool(row["delivered"]),
    )
