"""Runs and their log: begin, append, end, lease.

A run is written to only by the holder of its lease. Each taking-over raises the fence; every append names its
fence and is refused when it is no longer the current one, so a stopped or superseded worker can never write.
"""

import json
import sqlite3
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from chat_core.errors import LeaseLost, LimitReached, NotFound, SessionBusy
from chat_core.fail_point import fail_point
from chat_core.models import (
    END_KIND,
    Activity,
    EndStatus,
    ErrorNote,
    LogEntry,
    Message,
    NewEntry,
    Run,
    Session,
    TurnContext,
    User,
    utc_text,
    utc_time,
)
from chat_core.store import contexts, messages
from chat_core.store.database import Database
from chat_core.store.messages import NewMessage
from chat_core.store.questions import NewQuestion, open_question
from chat_core.store.rows import LOG_COLUMNS, RUN_COLUMNS, dump, entry_from, run_from
from chat_core.text import preview

LARGE_RESULT_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Lease:
    """Who works on a run, until when, and under which fence."""

    run_id: str
    message_id: int
    owner: str
    fence: int


@dataclass(frozen=True, slots=True)
class End:
    """How a run ended; stored in one transaction with its terminal log entry."""

    status: EndStatus
    text: str
    error: ErrorNote | None = None
    usage: dict[str, Any] | None = None
    context: TurnContext | None = None
    model_id: str = ""
    title: str = ""
    """Becomes the session's title if that is still empty."""


@dataclass(frozen=True, slots=True)
class Append:
    """What one run wants stored together: entries, and what must be true with them."""

    lease: Lease
    entries: tuple[NewEntry, ...] = ()
    bridge_seq: int | None = None
    questions: tuple[NewQuestion, ...] = ()
    summaries: tuple[str, ...] = ()
    """The agent condensed its context: each becomes a SYSTEM message under the run's message."""
    end: End | None = None


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to begin: its Bridge-side options and the limits that hold at this moment."""

    run_id: str
    model_id: str
    skill_folder: str
    lease_owner: str
    lease_until: datetime
    now: datetime
    request: dict[str, Any] = field(default_factory=dict)
    max_active_runs: int = 50
    max_runs_per_user: int = 5


class Runs:
    def __init__(self, database: Database) -> None:
        self._database = database

    # -- begin ---------------------------------------------------------------------------------------------------

    def begin(
        self,
        db: sqlite3.Connection,
        user: User,
        session: Session,
        parent: Message,
        new: NewRun,
    ) -> tuple[Run, Message]:
        """Add a RUNNING ASSISTANT message under the USER message `parent`, with its run and lease."""
        self._refuse_when_busy(db, user, session, new)
        message = messages.append(
            db,
            session.id,
            parent.id,
            NewMessage(
                role="ASSISTANT",
                content="",
                status="RUNNING",
                runtime=session.runtime,
                model_id=new.model_id,
                skill_folder=new.skill_folder,
                run_id=new.run_id,
            ),
            utc_text(new.now),
        )
        fail_point("begin.between")
        return self._start(db, user, session, message, new), message

    def begin_again(
        self,
        db: sqlite3.Connection,
        user: User,
        session: Session,
        message: Message,
        new: NewRun,
    ) -> Run:
        """Start another run in a message that was stopped or interrupted; its log goes on counting."""
        self._refuse_when_busy(db, user, session, new)
        db.execute(
            """
            UPDATE chat_message SET status = 'RUNNING', run_id = ?, error = NULL, completed_at = NULL WHERE id = ?
            """,
            (new.run_id, message.id),
        )
        return self._start(db, user, session, message, new)

    def _refuse_when_busy(self, db: sqlite3.Connection, user: User, session: Session, new: NewRun) -> None:
        active = "status IN ('RUNNING', 'WAITING')"
        if db.execute(f"SELECT 1 FROM run WHERE session_id = ? AND {active}", (session.id,)).fetchone():
            raise SessionBusy("This session already has a run at work. Wait for it or stop it; your text is kept.")
        mine = db.execute(f"SELECT count(*) FROM run WHERE owner = ? AND {active}", (user.key,)).fetchone()[0]
        if mine >= new.max_runs_per_user:
            raise LimitReached(
                f"You have {mine} runs at work, which is the limit. Wait for one or stop one; your text is kept.",
                limit=new.max_runs_per_user,
                scope="user",
            )
        everyone = db.execute(f"SELECT count(*) FROM run WHERE {active}").fetchone()[0]
        if everyone >= new.max_active_runs:
            raise LimitReached(
                f"{everyone} runs are at work here, which is the limit. Try again in a moment; your text is kept.",
                limit=new.max_active_runs,
                scope="process",
            )

    def _start(
        self,
        db: sqlite3.Connection,
        user: User,
        session: Session,
        message: Message,
        new: NewRun,
    ) -> Run:
        first_seq = _last_seq(db, message.id) + 1
        db.execute(
            """
            INSERT INTO run (run_id, message_id, session_id, owner, request_json, status, lease_owner, lease_until,
                             first_seq, started_at)
            VALUES (?, ?, ?, ?, ?, 'RUNNING', ?, ?, ?, ?)
            """,
            (
                new.run_id,
                message.id,
                session.id,
                user.key,
                dump(new.request),
                new.lease_owner,
                utc_text(new.lease_until),
                first_seq,
                utc_text(new.now),
            ),
        )
        meta = {"run_id": new.run_id, "model_id": new.model_id, "skill_folder": new.skill_folder}
        insert_entries(db, message.id, [NewEntry("run_started", meta=meta)], utc_text(new.now))
        return _run(db, new.run_id)

    # -- work ----------------------------------------------------------------------------------------------------

    def append(self, batch: Sequence[Append], now: datetime) -> list[LeaseLost | None]:
        """Store what many runs have queued in one transaction; an item whose lease is gone is refused alone.

        The result has one place per item: None when it is stored, else the error.
        """
        at = utc_text(now)
        with self._database.write() as db:
            return [_append(db, item, at) for item in batch]

    def renew(self, owner: str, until: datetime) -> None:
        """Beat: all active runs of this owner stay leased until then."""
        with self._database.write() as db:
            db.execute(
                "UPDATE run SET lease_until = ? WHERE lease_owner = ? AND status IN ('RUNNING', 'WAITING')",
                (utc_text(until), owner),
            )

    def take_over(self, run_id: str, owner: str, until: datetime) -> Run | None:
        """Become the one who may write to an active run; None when it has ended."""
        with self._database.write() as db:
            changed = db.execute(
                """
                UPDATE run SET lease_owner = ?, lease_until = ?, fence = fence + 1
                WHERE run_id = ? AND status IN ('RUNNING', 'WAITING')
                """,
                (owner, utc_text(until), run_id),
            ).rowcount
            return _run(db, run_id) if changed else None

    def request_stop(self, user: User, run_id: str) -> Run:
        """Remember that somebody wants the run stopped; harmless when it has ended or twice."""
        with self._database.write() as db:
            self._owned(db, user, run_id)
            db.execute(
                "UPDATE run SET stop_requested = 1 WHERE run_id = ? AND status IN ('RUNNING', 'WAITING')", (run_id,)
            )
            return _run(db, run_id)

    def is_stop_requested(self, run_id: str) -> bool:
        with self._database.read() as db:
            row = db.execute("SELECT stop_requested FROM run WHERE run_id = ?", (run_id,)).fetchone()
            return row is not None and bool(row["stop_requested"])

    # -- read ----------------------------------------------------------------------------------------------------

    def get(self, user: User, run_id: str) -> Run:
        with self._database.read() as db:
            return self._owned(db, user, run_id)

    def active(self) -> list[Run]:
        """Every run that has not ended, oldest first."""
        with self._database.read() as db:
            return [
                run_from(row)
                for row in db.execute(
                    f"SELECT {RUN_COLUMNS} FROM run r WHERE r.status IN ('RUNNING', 'WAITING') ORDER BY r.started_at"
                )
            ]

    def count_active(self, user: User | None = None) -> int:
        with self._database.read() as db:
            mine = "" if user is None else "AND owner = ?"
            row = db.execute(
                f"SELECT count(*) FROM run WHERE status IN ('RUNNING', 'WAITING') {mine}",
                () if user is None else (user.key,),
            ).fetchone()
            return int(row[0])

    def active_in(self, user: User, session_id: int) -> Run | None:
        with self._database.read() as db:
            row = db.execute(
                f"""
                SELECT {RUN_COLUMNS} FROM run r
                WHERE r.session_id = ? AND r.owner = ? AND r.status IN ('RUNNING', 'WAITING')
                """,
                (session_id, user.key),
            ).fetchone()
            return None if row is None else run_from(row)

    def entries(self, run: Run, after: int, limit: int) -> list[LogEntry]:
        """This run's log entries with a seq greater than `after`, in order, at most `limit`."""
        with self._database.read() as db:
            last = db.execute(
                "SELECT min(first_seq) FROM run WHERE message_id = ? AND first_seq > ?", (run.message_id, run.first_seq)
            ).fetchone()[0]
            rows = db.execute(
                f"""
                SELECT {LOG_COLUMNS} FROM chat_message_log l
                WHERE l.message_id = ? AND l.seq > ? AND l.seq < ? ORDER BY l.seq LIMIT ?
                """,
                (run.message_id, max(after, run.first_seq - 1), last or messages.NO_LIMIT, limit),
            )
            return [entry_from(row) for row in rows]

    def log(self, message_id: int) -> list[LogEntry]:
        """The full record of a message, in order."""
        with self._database.read() as db:
            return log_of(db, message_id)

    def last_seq(self, message_id: int) -> int:
        with self._database.read() as db:
            return _last_seq(db, message_id)

    def names(self, run: Run) -> tuple[str, str]:
        """The public ids of the run's session and message."""
        with self._database.read() as db:
            row = db.execute(
                """
                SELECT s.session_uuid, m.message_uuid FROM chat_message m JOIN chat_session s ON s.id = m.session_id
                WHERE m.id = ?
                """,
                (run.message_id,),
            ).fetchone()
            return row["session_uuid"], row["message_uuid"]

    def tool_result(self, user: User, result_ref: str) -> str:
        """The whole text of a large tool result."""
        with self._database.read() as db:
            row = db.execute(
                """
                SELECT t.body FROM tool_result t JOIN chat_message m ON m.id = t.message_id
                JOIN chat_session s ON s.id = m.session_id
                WHERE t.result_ref = ? AND s.owner = ? AND s.deleted_at IS NULL
                """,
                (result_ref, user.key),
            ).fetchone()
        if row is None:
            raise NotFound(f"there is no tool result {result_ref!r}")
        return zlib.decompress(row["body"]).decode("utf-8")

    def activities(self, message_ids: Sequence[int]) -> dict[int, Activity]:
        """What the activity lines of these messages show."""
        return activities(self._database, message_ids)

    def _owned(self, db: sqlite3.Connection, user: User, run_id: str) -> Run:
        row = db.execute(
            f"""
            SELECT {RUN_COLUMNS} FROM run r JOIN chat_session s ON s.id = r.session_id
            WHERE r.run_id = ? AND r.owner = ? AND s.deleted_at IS NULL
            """,
            (run_id, user.key),
        ).fetchone()
        if row is None:
            raise NotFound(f"there is no run {run_id!r}")
        return run_from(row)


def log_of(db: sqlite3.Connection, message_id: int) -> list[LogEntry]:
    rows = db.execute(
        f"SELECT {LOG_COLUMNS} FROM chat_message_log l WHERE l.message_id = ? ORDER BY l.seq", (message_id,)
    )
    return [entry_from(row) for row in rows]


def last_tool_entries(db: sqlite3.Connection, message_ids: Sequence[int], calls: int) -> list[LogEntry]:
    """The newest tool calls of these messages with their results, newest entry first: a result before its call."""
    rows = db.execute(
        f"""
        WITH last_calls AS (
            SELECT message_id, call_id FROM chat_message_log INDEXED BY chat_message_log_kind
            WHERE message_id IN (SELECT value FROM json_each(?))
            AND kind IN ('tool_call', 'tool_result', 'todo_update') AND kind = 'tool_call'
            ORDER BY message_id DESC, seq DESC LIMIT ?
        )
        SELECT {LOG_COLUMNS} FROM chat_message_log l INDEXED BY chat_message_log_kind
        WHERE l.message_id IN (SELECT message_id FROM last_calls)
        AND l.kind IN ('tool_call', 'tool_result', 'todo_update') AND l.kind <> 'todo_update'
        AND (l.message_id, l.call_id) IN (SELECT message_id, call_id FROM last_calls)
        ORDER BY l.message_id DESC, l.seq DESC
        """,
        (str(list(message_ids)), calls),
    )
    return [entry_from(row) for row in rows]


def compactions(db: sqlite3.Connection, message_ids: Sequence[int]) -> dict[int, list[int]]:
    """How many messages the agent condensed each time it did so in these messages, oldest first; 0 if unknown."""
    found: dict[int, list[int]] = {}
    for row in db.execute(
        """
        SELECT message_id, meta_json FROM chat_message_log
        WHERE message_id IN (SELECT value FROM json_each(?)) AND kind = 'context_compacted' ORDER BY message_id, seq
        """,
        (str(list(message_ids)),),
    ):
        count = json.loads(row["meta_json"] or "{}").get("condensed")
        found.setdefault(row["message_id"], []).append(count if isinstance(count, int) else 0)
    return found


def insert_entries(db: sqlite3.Connection, message_id: int, entries: Sequence[NewEntry], at: str) -> None:
    """Give the entries their numbers and store them; a large tool result goes to its own table, once."""
    seq = _last_seq(db, message_id)
    rows = []
    for number, entry in enumerate(entries, start=seq + 1):
        created_at = utc_text(entry.created_at) if entry.created_at else at
        stored = _with_large_result_apart(db, message_id, entry, created_at)
        rows.append(
            (
                message_id,
                number,
                stored.kind,
                stored.content,
                stored.tool_name,
                stored.call_id,
                stored.duration_ms,
                int(stored.is_error),
                dump(stored.meta) if stored.meta else None,
                created_at,
            )
        )
    db.executemany(
        """
        INSERT INTO chat_message_log (message_id, seq, kind, content, tool_name, call_id, duration_ms, is_error,
                                      meta_json, created_at)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        """,
        rows,
    )


def _with_large_result_apart(db: sqlite3.Connection, message_id: int, entry: NewEntry, at: str) -> NewEntry:
    if entry.kind != "tool_result" or len(entry.content) * 4 <= LARGE_RESULT_BYTES:
        return entry
    body = entry.content.encode("utf-8")
    if len(body) <= LARGE_RESULT_BYTES:
        return entry
    ref = uuid.uuid4().hex
    db.execute(
        "INSERT INTO tool_result (result_ref, message_id, call_id, body, bytes, created_at) VALUES (?, ?, ?, ?, ?, ?)",
        (ref, message_id, entry.call_id, zlib.compress(body, 1), len(body), at),
    )
    meta = entry.meta | {"result_ref": ref, "bytes": len(body), "lines": entry.content.count("\n") + 1}
    return NewEntry(
        kind=entry.kind,
        content=preview(entry.content),
        tool_name=entry.tool_name,
        call_id=entry.call_id,
        duration_ms=entry.duration_ms,
        is_error=entry.is_error,
        meta=meta,
        created_at=entry.created_at,
    )


def _last_seq(db: sqlite3.Connection, message_id: int) -> int:
    row = db.execute(
        "SELECT COALESCE(seq_to, seq) FROM chat_message_log WHERE message_id = ? ORDER BY seq DESC LIMIT 1",
        (message_id,),
    ).fetchone()
    return 0 if row is None else int(row[0])


def _run(db: sqlite3.Connection, run_id: str) -> Run:
    return run_from(db.execute(f"SELECT {RUN_COLUMNS} FROM run r WHERE r.run_id = ?", (run_id,)).fetchone())


def _append(db: sqlite3.Connection, item: Append, at: str) -> LeaseLost | None:
    lease = item.lease
    row = db.execute(
        "SELECT session_id, status, lease_owner, fence FROM run WHERE run_id = ?", (lease.run_id,)
    ).fetchone()
    if row is None or row["status"] not in ("RUNNING", "WAITING"):
        return LeaseLost(f"run {lease.run_id!r} has ended", ended=True)
    if (row["lease_owner"], row["fence"]) != (lease.owner, lease.fence):
        return LeaseLost(f"run {lease.run_id!r} was taken over by another worker")
    insert_entries(db, lease.message_id, item.entries, at)
    fail_point("append.between")
    for question in item.questions:
        open_question(db, lease.run_id, question, at)
    for summary in item.summaries:
        messages.append(db, row["session_id"], lease.message_id, NewMessage("SYSTEM", summary, "SUMMARY"), at)
        db.execute("UPDATE chat_session SET last_summarized_at = ? WHERE id = ?", (at, row["session_id"]))
    if item.bridge_seq is not None:
        db.execute("UPDATE run SET bridge_seq = ? WHERE run_id = ?", (item.bridge_seq, lease.run_id))
    if item.end is not None:
        _end(db, row["session_id"], lease, item.end, at)
    elif item.questions:
        refresh_waiting(db, lease.run_id)
    return None


def refresh_waiting(db: sqlite3.Connection, run_id: str) -> None:
    """A run with an open question is WAITING, without one RUNNING; its message says the same."""
    waiting = db.execute("SELECT 1 FROM run_question WHERE run_id = ? AND status = 'WAITING'", (run_id,)).fetchone()
    status = "WAITING" if waiting else "RUNNING"
    db.execute("UPDATE run SET status = ? WHERE run_id = ? AND status IN ('RUNNING', 'WAITING')", (status, run_id))
    db.execute(
        "UPDATE chat_message SET status = ? WHERE run_id = ? AND status IN ('RUNNING', 'WAITING')", (status, run_id)
    )


def _end(db: sqlite3.Connection, session_id: int, lease: Lease, end: End, at: str) -> None:
    meta: dict[str, Any] = {"run_id": lease.run_id, "status": end.status}
    if end.error is not None:
        meta["error"] = {"code": end.error.code, "message": end.error.message}
    db.execute("UPDATE run_question SET status = 'CLOSED' WHERE run_id = ? AND status = 'WAITING'", (lease.run_id,))
    insert_entries(db, lease.message_id, [NewEntry(END_KIND[end.status], end.text, meta=meta)], at)
    fail_point("end.between")
    db.execute(
        """
        UPDATE chat_message SET content = CASE WHEN content <> '' AND ? <> '' THEN content || char(10, 10) || ?
                                               ELSE content || ? END,
                                status = ?, usage_json = ?, error = ?, completed_at = ?,
                                model_id = CASE WHEN ? <> '' THEN ? ELSE model_id END
        WHERE id = ?
        """,
        (
            end.text,
            end.text,
            end.text,
            end.status,
            dump(end.usage) if end.usage else None,
            dump({"code": end.error.code, "message": end.error.message}) if end.error else None,
            at,
            end.model_id,
            end.model_id,
            lease.message_id,
        ),
    )
    if end.context is not None:
        contexts.put_after(db, lease.message_id, end.context)
    db.execute(
        "UPDATE run SET status = ?, ended_at = ?, lease_until = NULL WHERE run_id = ?", (end.status, at, lease.run_id)
    )
    db.execute(
        "UPDATE chat_session SET last_ended_at = ?, last_message_at = ?, updated_at = ? WHERE id = ?",
        (at, at, at, session_id),
    )
    if end.title:
        db.execute(
            "UPDATE chat_session SET title = ? WHERE id = ? AND title = '' AND title_source = 'auto'",
            (end.title, session_id),
        )


def activities(database: Database, message_ids: Sequence[int]) -> dict[int, Activity]:
    """Count tools and todos and add up the time of the runs, less the time people were waited for."""
    ids = str(list(message_ids))
    with database.read() as db:
        counts = {
            row["message_id"]: row
            for row in db.execute(
                """
                SELECT message_id, sum(kind = 'tool_call') AS calls, sum(kind = 'tool_result' AND is_error) AS errors
                FROM chat_message_log INDEXED BY chat_message_log_kind
                WHERE message_id IN (SELECT value FROM json_each(?))
                AND kind IN ('tool_call', 'tool_result', 'todo_update')
                GROUP BY message_id
                """,
                (ids,),
            )
        }
        todos = {
            row["message_id"]: json.loads(row["content"])
            for row in db.execute(
                """
                SELECT message_id, content, max(seq) FROM chat_message_log INDEXED BY chat_message_log_kind
                WHERE message_id IN (SELECT value FROM json_each(?))
                AND kind IN ('tool_call', 'tool_result', 'todo_update')
                AND kind = 'todo_update' GROUP BY message_id
                """,
                (ids,),
            )
        }
        worked: dict[int, float] = {}
        for row in db.execute(
            """
            SELECT r.message_id, r.started_at, r.ended_at,
                   (SELECT group_concat(q.asked_at || '|' || COALESCE(q.answered_at, r.ended_at))
                    FROM run_question q WHERE q.run_id = r.run_id) AS waits
            FROM run r WHERE r.message_id IN (SELECT value FROM json_each(?)) AND r.ended_at IS NOT NULL
            """,
            (ids,),
        ):
            seconds = (utc_time(row["ended_at"]) - utc_time(row["started_at"])).total_seconds()
            for wait in (row["waits"] or "").split(",") if row["waits"] else []:
                asked, answered = wait.split("|")
                seconds -= (utc_time(answered) - utc_time(asked)).total_seconds()
            worked[row["message_id"]] = worked.get(row["message_id"], 0.0) + max(seconds, 0.0)
    result = {}
    for message_id in message_ids:
        items = todos.get(message_id, [])
        result[message_id] = Activity(
            thinking_ms=round(worked.get(message_id, 0.0) * 1000),
            tool_calls=counts[message_id]["calls"] if message_id in counts else 0,
            tool_errors=counts[message_id]["errors"] if message_id in counts else 0,
            todos_done=sum(1 for item in items if item.get("status") == "completed"),
            todos_total=sum(1 for item in items if item.get("status") != "cancelled"),
        )
    return result
