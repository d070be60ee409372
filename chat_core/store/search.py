"""Search over titles and messages: finds exactly what reading everything would find, by two indexes.

`search_trigram` holds the trigrams of each folded message, `search_pair` the pairs around characters outside
ASCII. Both only name candidates; the text itself decides. Triggers keep them in step with `chat_message`.
"""

import json
import sqlite3
from dataclasses import dataclass

from chat_core.errors import InvalidInput, TooLarge
from chat_core.models import Role, SearchHit, SearchPage, User, utc_time
from chat_core.store.database import Database
from chat_core.store.rows import SESSION_COLUMNS, session_from
from chat_core.store.search_text import fold, pair_term, trigram_terms

MAX_QUERY_CHARS = 1_000
SNIPPET_CHARS = 200
SNIPPET_BEFORE_CHARS = 50
FEW_CANDIDATES = 2_000


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition in SQL with its values."""

    sql: str
    values: tuple[object, ...]


class Search:
    def __init__(self, database: Database) -> None:
        self._database = database

    def search(self, user: User, query: str, *, before: str | None, limit: int) -> SearchPage:
        """Return what holds `query` as plain text: titles first, newest activity first, then messages, newest first.

        `before` is the `next_before` of the page before. An empty query finds nothing.
        """
        wanted = folded_query(query)
        if not wanted:
            return SearchPage([], None)
        place, last = _cursor(before)
        with self._database.read() as db:
            hits: list[tuple[str, SearchHit]] = []
            if place == "title":
                hits = _titles(db, user, wanted, last, limit + 1)
            if len(hits) <= limit:
                hits += _messages(db, user, wanted, last if place == "message" else None, limit + 1 - len(hits))
        shown = hits[:limit]
        return SearchPage([hit for _, hit in shown], shown[-1][0] if len(hits) > limit else None)


def folded_query(query: str) -> str:
    """Return what is compared. Raises `TooLarge` for a query nobody types."""
    wanted = query.strip()
    if len(wanted) > MAX_QUERY_CHARS:
        raise TooLarge(
            f"The search has {len(wanted):,} characters; at most {MAX_QUERY_CHARS:,} are looked for.",
            limit=MAX_QUERY_CHARS,
        )
    return fold(wanted)


def session_holds(db: sqlite3.Connection, wanted: str) -> Condition:
    """The condition for a session `s` whose title, or one of whose messages, holds the folded query.

    A rare word names its sessions by the index; for a common one each session in turn is looked into, and the
    list is full after a few.
    """
    messages = _few_sessions(db, wanted)
    if messages is None:
        holds = _scan(wanted)
        messages = Condition(
            f"EXISTS (SELECT 1 FROM chat_message m WHERE m.session_id = s.id AND {holds.sql})", holds.values
        )
    return Condition(f"(parley_holds(s.title, ?) OR {messages.sql})", (wanted, *messages.values))


def _few_sessions(db: sqlite3.Connection, wanted: str) -> Condition | None:
    if len(wanted) >= 3:
        table, term = "search_trigram", trigram_terms(wanted)
    elif not wanted.isascii():
        table, term = "search_pair", pair_term(wanted)
    else:
        return None
    query = f"SELECT rowid FROM {table} WHERE {table} MATCH ? ORDER BY rowid DESC LIMIT ?"
    candidates = [row[0] for row in db.execute(query, (term, FEW_CANDIDATES + 1))]
    if len(candidates) > FEW_CANDIDATES:
        return None
    rows = db.execute(
        """
        SELECT DISTINCT m.session_id FROM chat_message m
        WHERE m.id IN (SELECT value FROM json_each(?)) AND parley_holds(m.content, ?)
        """,
        (json.dumps(candidates), wanted),
    )
    sessions = json.dumps([row[0] for row in rows])
    return Condition("s.id IN (SELECT value FROM json_each(?))", (sessions,))


def _scan(wanted: str) -> Condition:
    if not wanted.isascii():
        return Condition("parley_holds(m.content, ?)", (wanted,))
    # LIKE folds ASCII as `fold` does and costs no call into Python.
    pattern = wanted.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    return Condition(r"m.content LIKE ? ESCAPE '\'", (f"%{pattern}%",))


def _titles(
    db: sqlite3.Connection, user: User, wanted: str, last: tuple[str, int] | None, limit: int
) -> list[tuple[str, SearchHit]]:
    after = "" if last is None else "AND (s.last_message_at, s.id) < (?, ?)"
    rows = db.execute(
        f"""
        SELECT {SESSION_COLUMNS} FROM chat_session s
        WHERE s.owner = ? AND s.deleted_at IS NULL AND parley_holds(s.title, ?) {after}
        ORDER BY s.last_message_at DESC, s.id DESC LIMIT ?
        """,
        (user.key, wanted, *(last or ()), limit),
    )
    hits = []
    for row in rows:
        session = session_from(row)
        snippet, matches = snippet_of(session.title, wanted)
        hit = SearchHit(session, None, None, snippet, matches, True, session.last_message_at)
        hits.append((f"title {row['last_message_at']} {session.id}", hit))
    return hits


def _messages(
    db: sqlite3.Connection, user: User, wanted: str, last: tuple[str, int] | None, limit: int
) -> list[tuple[str, SearchHit]]:
    rows = _message_rows(db, user, wanted, None if last is None else last[1], limit)
    active: dict[int, set[int]] = {}
    hits = []
    for row in rows:
        session = session_from(row)
        if session.id not in active:
            active[session.id] = _active_branch(db, session.id)
        place = row["parent_id"] if row["role"] == "SYSTEM" else row["message_id"]
        snippet, matches = snippet_of(row["content"], wanted)
        role: Role = row["role"]
        hit = SearchHit(
            session, row["message_uuid"], role, snippet, matches, place in active[session.id], utc_time(row["at"])
        )
        hits.append((f"message - {row['message_id']}", hit))
    return hits


def _message_rows(db: sqlite3.Connection, user: User, wanted: str, below: int | None, limit: int) -> list[sqlite3.Row]:
    columns = (
        f"{SESSION_COLUMNS}, m.id AS message_id, m.message_uuid, m.parent_id, m.role, m.content, m.created_at AS at"
    )
    owned = "s.owner = ? AND s.deleted_at IS NULL"
    if len(wanted) < 3 and wanted.isascii():
        holds = _scan(wanted)
        source, order = "chat_message m", "m.id"
        condition, values = f"{holds.sql} AND (? IS NULL OR m.id < ?)", (*holds.values, below, below)
    else:
        table = "search_trigram" if len(wanted) >= 3 else "search_pair"
        term = trigram_terms(wanted) if len(wanted) >= 3 else pair_term(wanted)
        # CROSS JOIN keeps the order: the index walks from the newest row and stops when the page is full.
        source, order = f"{table} f CROSS JOIN chat_message m ON m.id = f.rowid", "f.rowid"
        older = "" if below is None else "AND f.rowid < ?"
        condition = f"{table} MATCH ? {older} AND parley_holds(m.content, ?)"
        values = (term, wanted) if below is None else (term, below, wanted)
    return db.execute(
        f"""
        SELECT {columns} FROM {source} CROSS JOIN chat_session s ON s.id = m.session_id
        WHERE {condition} AND {owned} ORDER BY {order} DESC LIMIT ?
        """,
        (*values, user.key, limit),
    ).fetchall()


def _active_branch(db: sqlite3.Connection, session_id: int) -> set[int]:
    rows = db.execute(
        """
        WITH RECURSIVE up (id, parent_id) AS (
            SELECT m.id, m.parent_id FROM chat_session s JOIN chat_message m ON m.id = s.leaf_id WHERE s.id = ?
            UNION ALL
            SELECT m.id, m.parent_id FROM up JOIN chat_message m ON m.id = up.parent_id
        )
        SELECT id FROM up
        """,
        (session_id,),
    )
    return {row[0] for row in rows}


def snippet_of(text: str, wanted: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Return one line of text around the first match, and where in it the matches begin and end."""
    folded = fold(text)
    first = max(folded.find(wanted), 0)
    start = max(0, min(first - SNIPPET_BEFORE_CHARS, len(text) - SNIPPET_CHARS))
    end = min(len(text), start + SNIPPET_CHARS)
    front = "…" if start > 0 else ""
    line = "".join(" " if character.isspace() else character for character in text[start:end])
    matches = []
    found = folded.find(wanted, start, end)
    while found >= 0:
        matches.append((found - start + len(front), found + len(wanted) - start + len(front)))
        found = folded.find(wanted, found + len(wanted), end)
    if not matches:
        # The match is longer than the snippet.
        matches = [(first - start + len(front), end - start + len(front))]
    return front + line + ("…" if end < len(text) else ""), tuple(matches)


def _cursor(before: str | None) -> tuple[str, tuple[str, int] | None]:
    if before is None:
        return "title", None
    place, _, rest = before.partition(" ")
    at, _, number = rest.partition(" ")
    if place not in ("title", "message") or not number.isdecimal() or len(number) > 18:
        raise InvalidInput(f"{before[:60]!r} is not the end of a page of this search.")
    return place, (at, int(number))
