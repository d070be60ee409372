"""The message tree: append, read a branch, switch a version.

A message never changes its place. Among the siblings under one parent exactly one that is not a SYSTEM message
is active; the session remembers the leaf that the active children lead to, so that appending costs the same in
a long session as in a short one.
"""

import json
import sqlite3
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chat_core.errors import NotFound
from chat_core.models import (
    Branch,
    BranchMessage,
    Message,
    MessageStatus,
    OutlineMessage,
    Role,
    Session,
    User,
    utc_time,
)
from chat_core.store.database import Database
from chat_core.store.rows import MESSAGE_COLUMNS, message_from
from chat_core.store.sessions import owned_session

# From a message down through the active children to the leaf they lead to.
_DOWN = """
    WITH RECURSIVE down (id, depth) AS (
        SELECT ?, 0
        UNION ALL
        SELECT child.id, down.depth + 1 FROM down
        JOIN chat_message child ON child.session_id = ? AND COALESCE(child.parent_id, 0) = down.id
            AND child.is_active = 1 AND child.role <> 'SYSTEM'
        WHERE down.depth < ?
    )
    SELECT id FROM down ORDER BY depth DESC LIMIT 1
"""
# From a message up to its first ancestor, nearest first.
_UP = f"""
    WITH RECURSIVE up (id, parent_id, depth) AS (
        SELECT id, parent_id, 0 FROM chat_message WHERE id = ?
        UNION ALL
        SELECT parent.id, parent.parent_id, up.depth + 1 FROM up JOIN chat_message parent ON parent.id = up.parent_id
        WHERE up.depth + 1 < ?
    )
    SELECT {MESSAGE_COLUMNS} FROM up JOIN chat_message m ON m.id = up.id ORDER BY up.depth
"""
# How far each of some messages reaches down the branch it leads to.
_BELOW = """
    WITH RECURSIVE down (root, id, depth) AS (
        -- "+id": as an expression it has no affinity, and only then the index on COALESCE(parent_id, 0) can serve.
        SELECT m.message_uuid, +m.id, 0 FROM json_each(?) wanted CROSS JOIN chat_message m
        WHERE m.message_uuid = wanted.value AND m.session_id = ? AND m.role <> 'SYSTEM'
        UNION ALL
        SELECT down.root, child.id, down.depth + 1 FROM down
        JOIN chat_message child ON child.session_id = ? AND COALESCE(child.parent_id, 0) = down.id
            AND child.is_active = 1 AND child.role <> 'SYSTEM'
        WHERE down.depth < ?
    )
    SELECT root, max(depth) AS below FROM down GROUP BY root
"""
# The versions on the way up from a message that are not the chosen ones of their forks.
_NOT_CHOSEN_ABOVE = """
    WITH RECURSIVE up (id, parent_id) AS (
        SELECT id, parent_id FROM chat_message WHERE id = ?
        UNION ALL
        SELECT parent.id, parent.parent_id FROM up JOIN chat_message parent ON parent.id = up.parent_id
    )
    SELECT m.id, m.parent_id FROM up JOIN chat_message m ON m.id = up.id WHERE m.is_active = 0 AND m.role <> 'SYSTEM'
"""
NO_LIMIT = 1_000_000_000
MOST_COUNTED = 100
OUTLINE_CHARS = 160


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message before it has its place among its siblings."""

    role: Role
    content: str
    status: MessageStatus
    runtime: str = ""
    model_id: str = ""
    skill_folder: str = ""
    run_id: str | None = None


class Messages:
    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, user: User, message_uuid: str) -> Message:
        """Raises `NotFound` also for somebody else's message."""
        with self._database.read() as db:
            return owned_message(db, user, message_uuid)

    def branch(
        self,
        user: User,
        session_uuid: str,
        *,
        before: str | None,
        limit: int,
        message_uuid: str | None,
        later: int | None = None,
    ) -> Branch:
        """Return a window of at most `limit` messages (SYSTEM messages come on top) of one branch.

        The branch is the active one, or, with `message_uuid`, the one that holds that message; the window is then
        around it, with at most `later` messages below it (half the window when that is not given). `before` continues
        upwards: the window ends above that message.
        """
        later = limit // 2 if later is None else later
        with self._database.read() as db:
            session = owned_session(db, user, session_uuid)
            end, has_later = self._window_end(db, user, session, before, later, message_uuid)
            path = path_above(db, end, limit + 1) if end is not None else []
            shown = list(reversed(path[:limit]))
            is_active = end is None or db.execute(_NOT_CHOSEN_ABOVE, (end,)).fetchone() is None
            messages = _with_versions(db, session.id, shown)
            return Branch(messages, has_more=len(path) > limit, has_later=has_later, is_active=is_active)

    def _window_end(
        self,
        db: sqlite3.Connection,
        user: User,
        session: Session,
        before: str | None,
        later: int,
        message_uuid: str | None,
    ) -> tuple[int | None, bool]:
        if before is not None:
            first = message_of(db, user, session, before)
            return first.parent_id, True
        if message_uuid is None:
            return leaf_of(db, session.id), False
        target = message_of(db, user, session, message_uuid)
        start = target.parent_id if target.role == "SYSTEM" and target.parent_id is not None else target.id
        end = leaf_below(db, session.id, start, max_depth=later)
        return end, leaf_below(db, session.id, end, max_depth=1) != end

    def versions(self, user: User, message_uuid: str) -> list[Message]:
        """The message and its siblings by `branch_order`; a SYSTEM message has no versions."""
        with self._database.read() as db:
            message = owned_message(db, user, message_uuid)
            if message.role == "SYSTEM":
                return []
            rows = db.execute(
                f"""
                SELECT {MESSAGE_COLUMNS} FROM chat_message m
                WHERE m.session_id = ? AND COALESCE(m.parent_id, 0) = ? AND m.role <> 'SYSTEM' ORDER BY m.branch_order
                """,
                (message.session_id, message.parent_id or 0),
            )
            return [message_from(row) for row in rows]

    def ids_of(self, session_id: int, message_uuids: Sequence[str]) -> dict[str, int]:
        """Row ids by public id, for those that are messages of this session."""
        with self._database.read() as db:
            rows = db.execute(
                """
                SELECT message_uuid, id FROM chat_message
                WHERE session_id = ? AND message_uuid IN (SELECT value FROM json_each(?))
                """,
                (session_id, json.dumps(list(message_uuids))),
            )
            return {row["message_uuid"]: row["id"] for row in rows}

    def tree(self, user: User, session_uuid: str) -> list[Message]:
        """Every message of the session, oldest first."""
        with self._database.read() as db:
            session = owned_session(db, user, session_uuid)
            rows = db.execute(
                f"SELECT {MESSAGE_COLUMNS} FROM chat_message m WHERE m.session_id = ? ORDER BY m.id", (session.id,)
            )
            return [message_from(row) for row in rows]

    def outline(self, user: User, session_uuid: str) -> list[OutlineMessage]:
        """Every message of the session with the start of its text only, oldest first."""
        with self._database.read() as db:
            session = owned_session(db, user, session_uuid)
            rows = db.execute(
                """
                SELECT id, message_uuid, parent_id, is_active, branch_order, role, status, model_id, skill_folder,
                       created_at, substr(content, 1, ?) AS start
                FROM chat_message WHERE session_id = ? ORDER BY id
                """,
                (OUTLINE_CHARS, session.id),
            )
            return [
                OutlineMessage(
                    id=row["id"],
                    uuid=row["message_uuid"],
                    parent_id=row["parent_id"],
                    is_active=bool(row["is_active"]),
                    branch_order=row["branch_order"],
                    role=row["role"],
                    status=row["status"],
                    start=row["start"],
                    model_id=row["model_id"],
                    skill_folder=row["skill_folder"],
                    created_at=utc_time(row["created_at"]),
                )
                for row in rows
            ]

    def follow_ups(
        self, user: User, session_uuid: str, message_uuids: Sequence[str], most: int = MOST_COUNTED
    ) -> dict[str, int]:
        """How many messages each of these has below it on the branch that it leads to; counted up to `most`."""
        with self._database.read() as db:
            session = owned_session(db, user, session_uuid)
            rows = db.execute(_BELOW, (json.dumps(list(message_uuids)), session.id, session.id, most))
            return {row["root"]: row["below"] for row in rows}

    def activate_branch(self, user: User, message_uuid: str) -> None:
        """Make the branch that holds this message the active one; forks that lead there already stay as they are."""
        with self._database.write() as db:
            activate_path(db, owned_message(db, user, message_uuid))

    def activate(self, user: User, message_uuid: str) -> None:
        """Make this version the active one of its fork; every other fork keeps its chosen child."""
        with self._database.write() as db:
            message = owned_message(db, user, message_uuid)
            if message.role == "SYSTEM" or message.is_active:
                return
            deactivate_siblings(db, message.session_id, message.parent_id)
            db.execute("UPDATE chat_message SET is_active = 1 WHERE id = ?", (message.id,))
            refresh_leaf(db, message.session_id)

    def first_user_text(self, db: sqlite3.Connection, session_id: int) -> str:
        row = db.execute(
            "SELECT content FROM chat_message WHERE session_id = ? AND role = 'USER' ORDER BY id LIMIT 1", (session_id,)
        ).fetchone()
        return "" if row is None else str(row["content"])


def owned_message(db: sqlite3.Connection, user: User, message_uuid: str) -> Message:
    """Return the user's message inside a transaction that is already open."""
    row = db.execute(
        f"""
        SELECT {MESSAGE_COLUMNS} FROM chat_message m JOIN chat_session s ON s.id = m.session_id
        WHERE m.message_uuid = ? AND s.owner = ? AND s.deleted_at IS NULL
        """,
        (message_uuid, user.key),
    ).fetchone()
    if row is None:
        raise NotFound(f"there is no message {message_uuid!r}")
    return message_from(row)


def message_of(db: sqlite3.Connection, user: User, session: Session, message_uuid: str) -> Message:
    """Return the user's message when it is one of this session."""
    message = owned_message(db, user, message_uuid)
    if message.session_id != session.id:
        raise NotFound(f"there is no message {message_uuid!r} in session {session.uuid!r}")
    return message


def message_by_id(db: sqlite3.Connection, message_id: int) -> Message:
    row = db.execute(f"SELECT {MESSAGE_COLUMNS} FROM chat_message m WHERE m.id = ?", (message_id,)).fetchone()
    if row is None:
        raise NotFound(f"there is no message with id {message_id}")
    return message_from(row)


def append(db: sqlite3.Connection, session_id: int, parent_id: int | None, new: NewMessage, at: str) -> Message:
    """Add a message as the newest version under its parent, make it active and the leaf of its branch.

    SYSTEM messages hang under the message they follow and change neither versions nor the leaf.
    """
    is_system = new.role == "SYSTEM"
    if is_system:
        order = 0
    else:
        deactivate_siblings(db, session_id, parent_id)
        order = next_order(db, session_id, parent_id)
    cursor = db.execute(
        """
        INSERT INTO chat_message (message_uuid, session_id, parent_id, is_active, branch_order, run_id, role, content,
                                  status, runtime, model_id, skill_folder, created_at, completed_at)
        VALUES (?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        """,
        (
            str(uuid.uuid4()),
            session_id,
            parent_id,
            order,
            new.run_id,
            new.role,
            new.content,
            new.status,
            new.runtime,
            new.model_id,
            new.skill_folder,
            at,
            None if new.role == "ASSISTANT" else at,
        ),
    )
    message_id = int(cursor.lastrowid or 0)
    if not is_system:
        if leaf_of(db, session_id) == parent_id:
            db.execute("UPDATE chat_session SET leaf_id = ? WHERE id = ?", (message_id, session_id))
        else:
            refresh_leaf(db, session_id)
        db.execute("UPDATE chat_session SET last_message_at = ?, updated_at = ? WHERE id = ?", (at, at, session_id))
    return message_by_id(db, message_id)


def deactivate_siblings(db: sqlite3.Connection, session_id: int, parent_id: int | None) -> None:
    db.execute(
        """
        UPDATE chat_message SET is_active = 0
        WHERE session_id = ? AND COALESCE(parent_id, 0) = ? AND is_active = 1 AND role <> 'SYSTEM'
        """,
        (session_id, parent_id or 0),
    )


def activate_path(db: sqlite3.Connection, message: Message) -> None:
    """Choose, at every fork above the message, the child that leads to it."""
    if leaf_of(db, message.session_id) == message.id:
        return
    rows = db.execute(_NOT_CHOSEN_ABOVE, (message.id,)).fetchall()
    for row in rows:
        deactivate_siblings(db, message.session_id, row["parent_id"])
        db.execute("UPDATE chat_message SET is_active = 1 WHERE id = ?", (row["id"],))
    if rows:
        refresh_leaf(db, message.session_id)


def next_order(db: sqlite3.Connection, session_id: int, parent_id: int | None) -> int:
    row = db.execute(
        """
        SELECT COALESCE(max(branch_order), 0) + 1 FROM chat_message
        WHERE session_id = ? AND COALESCE(parent_id, 0) = ? AND role <> 'SYSTEM'
        """,
        (session_id, parent_id or 0),
    ).fetchone()
    return int(row[0])


def leaf_of(db: sqlite3.Connection, session_id: int) -> int | None:
    row = db.execute("SELECT leaf_id FROM chat_session WHERE id = ?", (session_id,)).fetchone()
    return None if row is None or row["leaf_id"] is None else int(row["leaf_id"])


def leaf_below(db: sqlite3.Connection, session_id: int, message_id: int, max_depth: int = NO_LIMIT) -> int:
    """Follow the active children from `message_id` (0 stands for above the first message) downwards."""
    return int(db.execute(_DOWN, (message_id, session_id, max_depth)).fetchone()[0])


def refresh_leaf(db: sqlite3.Connection, session_id: int) -> None:
    """Derive the session's leaf anew from the active children."""
    leaf = leaf_below(db, session_id, 0)
    db.execute("UPDATE chat_session SET leaf_id = ? WHERE id = ?", (leaf or None, session_id))


def path_above(db: sqlite3.Connection, message_id: int, limit: int) -> list[Message]:
    """The message and its ancestors, nearest first, at most `limit`."""
    return [message_from(row) for row in db.execute(_UP, (message_id, limit))]


def system_children(db: sqlite3.Connection, parent_ids: Iterable[int]) -> dict[int, list[Message]]:
    """SYSTEM messages by the message they follow, oldest first."""
    ids = list(parent_ids)
    found: dict[int, list[Message]] = {}
    for row in db.execute(
        f"""
        SELECT {MESSAGE_COLUMNS} FROM chat_message m
        WHERE m.role = 'SYSTEM' AND m.parent_id IN (SELECT value FROM json_each(?)) ORDER BY m.id
        """,
        (str(ids),),
    ):
        message = message_from(row)
        found.setdefault(message.parent_id or 0, []).append(message)
    return found


def _with_versions(db: sqlite3.Connection, session_id: int, path: list[Message]) -> list[BranchMessage]:
    if not path:
        return []
    uuids = {message.id: message.uuid for message in path}
    first_parent = path[0].parent_id
    if first_parent is not None:
        uuids[first_parent] = message_by_id(db, first_parent).uuid
    siblings: dict[int, list[str]] = {}
    for row in db.execute(
        """
        SELECT COALESCE(parent_id, 0) AS parent, message_uuid FROM chat_message
        WHERE session_id = ? AND COALESCE(parent_id, 0) IN (SELECT value FROM json_each(?)) AND role <> 'SYSTEM'
        ORDER BY branch_order
        """,
        (session_id, str([message.parent_id or 0 for message in path])),
    ):
        siblings.setdefault(row["parent"], []).append(row["message_uuid"])
    system = system_children(db, [message.id for message in path])
    shown: list[BranchMessage] = []
    for message in path:
        versions = siblings[message.parent_id or 0]
        parent_uuid = uuids.get(message.parent_id) if message.parent_id else None
        shown.append(
            BranchMessage(message, parent_uuid, versions.index(message.uuid) + 1, len(versions), tuple(versions))
        )
        shown += [BranchMessage(child, message.uuid, 1, 1, ()) for child in system.get(message.id, [])]
    return shown
