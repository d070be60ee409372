"""Reads a whole session as values, and stores one that came from elsewhere."""

import json
import sqlite3
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from chat_core.models import LogEntry, Message, Question, Run, Session, TurnContext, User, utc_text, utc_time
from chat_core.store import contexts
from chat_core.store.database import Database
from chat_core.store.messages import refresh_leaf
from chat_core.store.rows import (
    LOG_COLUMNS,
    MESSAGE_COLUMNS,
    QUESTION_COLUMNS,
    RUN_COLUMNS,
    dump,
    entry_from,
    message_from,
    question_from,
    run_from,
)
from chat_core.store.sessions import owned_session


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run that is over, or is at work, with what was asked of the Bridge."""

    run: Run
    request: dict[str, Any]
    condensed_at: datetime | None
    """When housekeeping joined and dropped deltas of its log."""


@dataclass(frozen=True, slots=True)
class ResultRecord:
    """A tool result that is too large for the log."""

    result_ref: str
    call_id: str
    text: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """A message with everything that belongs to it."""

    message: Message
    log: tuple[LogEntry, ...] = ()
    runs: tuple[RunRecord, ...] = ()
    questions: tuple[Question, ...] = ()
    results: tuple[ResultRecord, ...] = ()
    context: TurnContext | None = None


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A session with its whole tree, oldest message first. Numeric ids count within the record only."""

    session: Session
    messages: list[MessageRecord] = field(default_factory=list)


class Transfer:
    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, user: User, session_uuid: str) -> SessionRecord:
        """Return everything of a session as it is at one moment."""
        with self._database.read() as db:
            session = owned_session(db, user, session_uuid)
            messages = [
                message_from(row)
                for row in db.execute(
                    f"SELECT {MESSAGE_COLUMNS} FROM chat_message m WHERE m.session_id = ? ORDER BY m.id",
                    (session.id,),
                )
            ]
            kept = contexts.get_many(db, [message.id for message in messages])
            return SessionRecord(session, [_message_record(db, message, kept.get(message.id)) for message in messages])

    def insert(self, user: User, record: SessionRecord) -> bool:
        """Store a session with everything in it; False when there is one of this uuid already.

        Every run in the record must be over. Ids are the record's own public ones and must be new.
        """
        with self._database.write() as db:
            session = record.session
            if db.execute("SELECT 1 FROM chat_session WHERE session_uuid = ?", (session.uuid,)).fetchone():
                return False
            session_id = _insert_session(db, user, session)
            ids: dict[int, int] = {}
            for item in record.messages:
                ids[item.message.id] = _insert_message(db, session_id, item, ids)
                _insert_belongings(db, user, session_id, ids[item.message.id], item)
            refresh_leaf(db, session_id)
            return True


def _message_record(db: sqlite3.Connection, message: Message, context: TurnContext | None) -> MessageRecord:
    def rows(query: str) -> Sequence[sqlite3.Row]:
        return db.execute(query, (message.id,)).fetchall()

    log = rows(f"SELECT {LOG_COLUMNS} FROM chat_message_log l WHERE l.message_id = ? ORDER BY l.seq")
    if not log and message.role != "ASSISTANT":
        return MessageRecord(message)
    runs = rows(
        f"""
        SELECT {RUN_COLUMNS}, r.request_json, COALESCE(r.compacted_at, r.compacting_at) AS condensed_at
        FROM run r WHERE r.message_id = ? ORDER BY r.first_seq
        """
    )
    questions = rows(
        f"""
        SELECT {QUESTION_COLUMNS} FROM run_question q JOIN run r ON r.run_id = q.run_id
        WHERE r.message_id = ? ORDER BY q.asked_at, q.rowid
        """
    )
    results = rows("SELECT result_ref, call_id, body, created_at FROM tool_result WHERE message_id = ? ORDER BY id")
    return MessageRecord(
        message=message,
        log=tuple(entry_from(row) for row in log),
        runs=tuple(_run_record(row) for row in runs),
        questions=tuple(question_from(row) for row in questions),
        results=tuple(
            ResultRecord(
                row["result_ref"],
                row["call_id"],
                zlib.decompress(row["body"]).decode("utf-8"),
                utc_time(row["created_at"]),
            )
            for row in results
        ),
        context=context,
    )


def _run_record(row: sqlite3.Row) -> RunRecord:
    condensed_at = row["condensed_at"]
    return RunRecord(run_from(row), json.loads(row["request_json"]), utc_time(condensed_at) if condensed_at else None)


def _insert_session(db: sqlite3.Connection, user: User, session: Session) -> int:
    cursor = db.execute(
        """
        INSERT INTO chat_session (session_uuid, owner, project, title, title_source, runtime, model_id, skill_folder,
                                  agent_session, status, pinned, last_summarized_at, seen_at, created_at,
                                  last_message_at, updated_at)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        """,
        (
            session.uuid,
            user.key,
            user.project,
            session.title,
            session.title_source,
            session.runtime,
            session.model_id,
            session.skill_folder,
            # No agent knows this session yet.
            uuid.uuid4().hex,
            session.status,
            int(session.pinned),
            _time(session.last_summarized_at),
            utc_text(session.updated_at),
            utc_text(session.created_at),
            utc_text(session.last_message_at),
            utc_text(session.updated_at),
        ),
    )
    return int(cursor.lastrowid or 0)


def _insert_message(db: sqlite3.Connection, session_id: int, item: MessageRecord, ids: dict[int, int]) -> int:
    message = item.message
    error = message.error
    cursor = db.execute(
        """
        INSERT INTO chat_message (message_uuid, session_id, parent_id, is_active, branch_order, run_id, role, content,
                                  status, runtime, model_id, skill_folder, usage_json, error, created_at, completed_at)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        """,
        (
            message.uuid,
            session_id,
            None if message.parent_id is None else ids[message.parent_id],
            int(message.is_active),
            message.branch_order,
            message.run_id,
            message.role,
            message.content,
            message.status,
            message.runtime,
            message.model_id,
            message.skill_folder,
            None if message.usage is None else dump(message.usage),
            None if error is None else dump({"code": error.code, "message": error.message}),
            utc_text(message.created_at),
            _time(message.completed_at),
        ),
    )
    return int(cursor.lastrowid or 0)


def _insert_belongings(
    db: sqlite3.Connection, user: User, session_id: int, message_id: int, item: MessageRecord
) -> None:
    db.executemany(
        """
        INSERT INTO chat_message_log (message_id, seq, seq_to, kind, content, tool_name, call_id, duration_ms, is_error,
                                      meta_json, created_at)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        """,
        [
            (
                message_id,
                entry.seq,
                entry.seq_to,
                entry.kind,
                entry.content,
                entry.tool_name,
                entry.call_id,
                entry.duration_ms,
                int(entry.is_error),
                dump(entry.meta) if entry.meta else None,
                utc_text(entry.created_at),
            )
            for entry in item.log
        ],
    )
    for record in item.runs:
        _insert_run(db, user, session_id, message_id, record)
    for question in item.questions:
        _insert_question(db, question)
    for result in item.results:
        body = result.text.encode("utf-8")
        db.execute(
            """
            INSERT INTO tool_result (result_ref, message_id, call_id, body, bytes, created_at) VALUES (?, ?, ?, ?, ?, ?)
            """,
            (
                result.result_ref,
                message_id,
                result.call_id,
                zlib.compress(body, 1),
                len(body),
                utc_text(result.created_at),
            ),
        )
    if item.context is not None:
        contexts.put(db, message_id, item.context)


def _insert_run(db: sqlite3.Connection, user: User, session_id: int, message_id: int, record: RunRecord) -> None:
    run = record.run
    db.execute(
        """
        INSERT INTO run (run_id, message_id, session_id, owner, request_json, status, bridge_seq, first_seq,
                         stop_requested, started_at, ended_at, compacting_at, compacted_at)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        """,
        (
            run.run_id,
            message_id,
            session_id,
            user.key,
            dump(record.request),
            run.status,
            run.bridge_seq,
            run.first_seq,
            int(run.stop_requested),
            utc_text(run.started_at),
            _time(run.ended_at),
            _time(record.condensed_at),
            _time(record.condensed_at),
        ),
    )


def _insert_question(db: sqlite3.Connection, question: Question) -> None:
    db.execute(
        """
        INSERT INTO run_question (question_id, run_id, kind, question, choices_json, detail_json, status, answer,
                                  answered_by, asked_at, answered_at, delivered)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        """,
        (
            question.question_id,
            question.run_id,
            question.kind,
            question.question,
            dump(list(question.choices)),
            dump(question.detail),
            question.status,
            question.answer,
            question.answered_by,
            utc_text(question.asked_at),
            _time(question.answered_at),
            int(question.delivered),
        ),
    )


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else utc_text(moment)
