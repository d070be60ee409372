"""Sessions: create, find, list, change, delete."""

import sqlite3
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from chat_core.errors import NotFound
from chat_core.fail_point import fail_point
from chat_core.models import Session, SessionPage, SessionRow, SessionStatus, User, utc_text, utc_time
from chat_core.store.database import Database
from chat_core.store.rows import SESSION_COLUMNS, session_from
from chat_core.store.search import folded_query, session_holds
from chat_core.text import plain_words

PREVIEW_CHARS = 140

_LIST = f"""
    SELECT {SESSION_COLUMNS}, s.seen_at, s.last_ended_at,
           substr(CASE WHEN leaf.content <> '' THEN leaf.content ELSE above.content END, 1, {PREVIEW_CHARS}) AS preview,
           leaf.status AS leaf_status, r.status AS run_status, r.started_at AS run_started_at,
           (SELECT min(q.asked_at) FROM run_question q WHERE q.run_id = r.run_id AND q.status = 'WAITING') AS asked_at
    FROM chat_session s
    LEFT JOIN chat_message leaf ON leaf.id = s.leaf_id
    LEFT JOIN chat_message above ON above.id = leaf.parent_id
    LEFT JOIN run r ON r.session_id = s.id AND r.status IN ('RUNNING', 'WAITING')
"""

_OWNED = "s.session_uuid = ? AND s.owner = ? AND s.deleted_at IS NULL"


@dataclass(frozen=True, slots=True)
class Expired:
    """A hidden session that is to go for good, and its run if that is still at work."""

    session_id: int
    agent_session: str
    run_id: str | None


class Sessions:
    def __init__(self, database: Database) -> None:
        self._database = database

    def create(
        self, user: User, *, title: str, model_id: str, skill_folder: str, runtime: str, now: datetime
    ) -> Session:
        """Add an empty session; a title that is given counts as the user's own."""
        at = utc_text(now)
        with self._database.write() as db:
            cursor = db.execute(
                """
                INSERT INTO chat_session (session_uuid, owner, project, title, title_source, runtime, model_id,
                                          skill_folder, agent_session, seen_at, created_at, last_message_at, updated_at)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
                """,
                (
                    str(uuid.uuid4()),
                    user.key,
                    user.project,
                    title,
                    "user" if title else "auto",
                    runtime,
                    model_id,
                    skill_folder,
                    uuid.uuid4().hex,
                    at,
                    at,
                    at,
                    at,
                ),
            )
            row = db.execute(f"SELECT {SESSION_COLUMNS} FROM chat_session s WHERE s.id = ?", (cursor.lastrowid,))
            return session_from(row.fetchone())

    def get(self, user: User, session_uuid: str) -> Session:
        """Raises `NotFound` also for somebody else's session."""
        with self._database.read() as db:
            return owned_session(db, user, session_uuid)

    def row(self, user: User, session_uuid: str) -> SessionRow:
        with self._database.read() as db:
            found = db.execute(f"{_LIST} WHERE {_OWNED}", (session_uuid, user.key)).fetchone()
            if found is None:
                raise NotFound(f"there is no session {session_uuid!r}")
            return _list_row(found)

    def list_for(self, user: User, *, status: SessionStatus, query: str, before: str | None, limit: int) -> SessionPage:
        """Pinned first, then by newest activity. `before` is the uuid of the last row already seen.

        With `query` only sessions whose title or one of whose messages holds it as plain text.
        """
        conditions = ["s.owner = ?", "s.status = ?", "s.deleted_at IS NULL"]
        values: list[object] = [user.key, status]
        wanted = folded_query(query)
        with self._database.read() as db:
            if wanted:
                holds = session_holds(db, wanted)
                conditions.append(holds.sql)
                values += holds.values
            if before is not None:
                last = _last_seen(db, user, before)
                conditions.append("(s.pinned, s.last_message_at, s.id) < (?, ?, ?)")
                values += [int(last.pinned), utc_text(last.last_message_at), last.id]
            rows = db.execute(
                f"{_LIST} WHERE {' AND '.join(conditions)} "
                "ORDER BY s.pinned DESC, s.last_message_at DESC, s.id DESC LIMIT ?",
                (*values, limit + 1),
            ).fetchall()
        return SessionPage([_list_row(row) for row in rows[:limit]], has_more=len(rows) > limit)

    def update(
        self,
        user: User,
        session_uuid: str,
        *,
        title: str | None,
        model_id: str | None,
        skill_folder: str | None,
        pinned: bool | None,
        status: SessionStatus | None,
        now: datetime,
    ) -> Session:
        """Change what is given and leave the rest. A title that is given is the user's own from then on."""
        changes: dict[str, object] = {"updated_at": utc_text(now)}
        if title is not None:
            changes |= {"title": title, "title_source": "user"}
        if model_id is not None:
            changes["model_id"] = model_id
        if skill_folder is not None:
            changes["skill_folder"] = skill_folder
        if pinned is not None:
            changes["pinned"] = int(pinned)
        if status is not None:
            changes["status"] = status
        with self._database.write() as db:
            session = owned_session(db, user, session_uuid)
            assignments = ", ".join(f"{column} = ?" for column in changes)
            db.execute(f"UPDATE chat_session SET {assignments} WHERE id = ?", (*changes.values(), session.id))
            return owned_session(db, user, session_uuid)

    def mark_seen(self, user: User, session_uuid: str, now: datetime) -> None:
        """Remember that the user has looked. Writes only when there is something unseen."""
        with self._database.read() as db:
            unseen = db.execute(
                f"SELECT 1 FROM chat_session s WHERE {_OWNED} AND s.last_ended_at > s.seen_at",
                (session_uuid, user.key),
            ).fetchone()
        if unseen:
            with self._database.write() as db:
                db.execute("UPDATE chat_session SET seen_at = ? WHERE session_uuid = ?", (utc_text(now), session_uuid))

    def hide(self, user: User, session_uuids: Sequence[str], now: datetime, purge_at: datetime) -> None:
        """Delete for everybody's eyes, all of them or none; until `purge_at` they can be brought back."""
        with self._database.write() as db:
            for session_uuid in session_uuids:
                session = owned_session(db, user, session_uuid)
                db.execute(
                    "UPDATE chat_session SET deleted_at = ?, purge_at = ? WHERE id = ?",
                    (utc_text(now), utc_text(purge_at), session.id),
                )
                fail_point("delete.one_hidden")

    def restore(self, user: User, session_uuids: Sequence[str]) -> list[Session]:
        """Bring back hidden sessions as they were. Raises `NotFound` when one is gone for good; then none is."""
        with self._database.write() as db:
            for session_uuid in session_uuids:
                db.execute(
                    "UPDATE chat_session SET deleted_at = NULL, purge_at = NULL WHERE session_uuid = ? AND owner = ?",
                    (session_uuid, user.key),
                )
            return [owned_session(db, user, session_uuid) for session_uuid in session_uuids]

    def expired(self, now: datetime) -> list[Expired]:
        """The hidden sessions whose time to be brought back is over."""
        with self._database.read() as db:
            rows = db.execute(
                """
                SELECT s.id, s.agent_session,
                       (SELECT run_id FROM run r WHERE r.session_id = s.id AND r.status IN ('RUNNING', 'WAITING'))
                FROM chat_session s WHERE s.deleted_at IS NOT NULL AND s.purge_at <= ? ORDER BY s.id
                """,
                (utc_text(now),),
            )
            return [Expired(*row) for row in rows]

    def purge(self, session_id: int) -> None:
        """Remove a hidden session and everything below it in one transaction; harmless when it was restored."""
        with self._database.write() as db:
            hidden = "id = ? AND deleted_at IS NOT NULL"
            if not db.execute(f"UPDATE chat_session SET leaf_id = NULL WHERE {hidden}", (session_id,)).rowcount:
                return
            # Newest first, so that no message has messages below it: SQLite ends a cascade that is 1,000 deep.
            ids = db.execute(
                "SELECT id FROM chat_message WHERE session_id = ? ORDER BY id DESC", (session_id,)
            ).fetchall()
            db.executemany("DELETE FROM chat_message WHERE id = ?", ids)
            fail_point("purge.between")
            db.execute("DELETE FROM chat_session WHERE id = ?", (session_id,))

    def set_status(self, user: User, session_uuids: Sequence[str], status: SessionStatus, now: datetime) -> None:
        """Archive or bring back many, all of them or none."""
        with self._database.write() as db:
            for session_uuid in session_uuids:
                session = owned_session(db, user, session_uuid)
                db.execute(
                    "UPDATE chat_session SET status = ?, updated_at = ? WHERE id = ?",
                    (status, utc_text(now), session.id),
                )

    def set_agent_session(self, db: sqlite3.Connection, session_id: int, agent_session: str) -> None:
        db.execute("UPDATE chat_session SET agent_session = ? WHERE id = ?", (agent_session, session_id))

    def remember_choices(
        self, db: sqlite3.Connection, session: Session, model_id: str | None, skill_folder: str | None
    ) -> Session:
        """Keep what the composer chose for the next message of this session."""
        model_id = session.model_id if model_id is None else model_id
        skill_folder = session.skill_folder if skill_folder is None else skill_folder
        if (model_id, skill_folder) == (session.model_id, session.skill_folder):
            return session
        db.execute(
            "UPDATE chat_session SET model_id = ?, skill_folder = ? WHERE id = ?", (model_id, skill_folder, session.id)
        )
        return session_by_id(db, session.id)


def owned_session(db: sqlite3.Connection, user: User, session_uuid: str) -> Session:
    """Return the user's session inside a transaction that is already open."""
    row = db.execute(
        f"SELECT {SESSION_COLUMNS} FROM chat_session s WHERE {_OWNED}", (session_uuid, user.key)
    ).fetchone()
    if row is None:
        raise NotFound(f"there is no session {session_uuid!r}")
    return session_from(row)


def _last_seen(db: sqlite3.Connection, user: User, session_uuid: str) -> Session:
    """The last row of the page before, even if it was deleted since."""
    row = db.execute(
        f"SELECT {SESSION_COLUMNS} FROM chat_session s WHERE s.session_uuid = ? AND s.owner = ?",
        (session_uuid, user.key),
    ).fetchone()
    if row is None:
        raise NotFound(f"there is no session {session_uuid!r}")
    return session_from(row)


def session_by_id(db: sqlite3.Connection, session_id: int) -> Session:
    row = db.execute(f"SELECT {SESSION_COLUMNS} FROM chat_session s WHERE s.id = ?", (session_id,)).fetchone()
    if row is None:
        raise NotFound(f"there is no session with id {session_id}")
    return session_from(row)


def _list_row(row: sqlite3.Row) -> SessionRow:
    unseen = row["last_ended_at"] is not None and (row["seen_at"] or "") < row["last_ended_at"]
    since = row["asked_at"] or row["run_started_at"]
    ended = (
        row["leaf_status"] if unseen and row["leaf_status"] in ("SUCCESS", "FAILED", "STOPPED", "INTERRUPTED") else None
    )
    return SessionRow(
        session=session_from(row),
        preview=plain_words(row["preview"] or ""),
        run_status=row["run_status"] or ended,
        unseen=unseen,
        since=utc_time(since) if since else None,
    )
