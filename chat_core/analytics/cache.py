"""The DuckDB file: a copy of what the statistics need, and the fact tables made from it.

It is a cache. It may be deleted at any time and is then made again; a broken file, one of another version, or one
made from another database is replaced without asking. Only a file that another process holds is an error.
"""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import duckdb

from chat_core.analytics.facts import FACT_TABLES, QUERIES_OF_FACTS
from chat_core.analytics.source import ACTIVE_FINGERPRINT, BULK_ROWS, FINAL_STATUS, Head, Marks, Source, Visit
from chat_core.errors import StoreUnavailable

FORMAT = 2
"""Raise it when a table here changes: older and newer files are then made again."""
MEMORY_LIMIT = "1GB"
THREADS = 2

_COPIES = """
    CREATE TABLE raw_session (
        id BIGINT, session_uuid VARCHAR, owner VARCHAR, title VARCHAR, status VARCHAR, runtime VARCHAR,
        model_id VARCHAR, skill_folder VARCHAR, created_at VARCHAR, updated_at VARCHAR,
        is_deleted BOOLEAN DEFAULT FALSE);
    CREATE TABLE raw_message (
        id BIGINT, message_uuid VARCHAR, session_id BIGINT, parent_id BIGINT, is_active INTEGER, run_id VARCHAR,
        role VARCHAR, status VARCHAR, runtime VARCHAR, model_id VARCHAR, skill_folder VARCHAR, created_at VARCHAR,
        completed_at VARCHAR, on_active_branch BOOLEAN DEFAULT TRUE);
    CREATE TABLE raw_run (
        run_id VARCHAR, message_id BIGINT, session_id BIGINT, status VARCHAR, first_seq BIGINT, started_at VARCHAR,
        ended_at VARCHAR);
    CREATE TABLE raw_question (
        question_id VARCHAR, run_id VARCHAR, message_id BIGINT, kind VARCHAR, status VARCHAR, answer VARCHAR,
        asked_at VARCHAR, answered_at VARCHAR);
    CREATE TABLE raw_entry (
        id BIGINT, message_id BIGINT, seq BIGINT, kind VARCHAR, tool_name VARCHAR, call_id VARCHAR,
        duration_ms BIGINT, is_error INTEGER, bytes BIGINT, error_text VARCHAR, meta VARCHAR, created_at VARCHAR,
        args_hash BIGINT, args_preview VARCHAR, args_parsed BOOLEAN);
    CREATE TABLE state (
        format INTEGER, log_id BIGINT, last_log_seen VARCHAR, synced_at TIMESTAMP, version BIGINT,
        pruned_runs BIGINT);
"""


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What one sync did. `version` grows whenever something changed."""

    new_log_rows: int
    touched_messages: int
    rebuilt: bool
    seconds: float
    version: int


class Cache:
    """The opened file. One object for each process; readers are cursors of its one connection."""

    def __init__(self, file: Path, source: Source) -> None:
        self.file = file
        self._source = source
        self._sync_lock = threading.Lock()
        self._open_lock = threading.Lock()
        self._connection: duckdb.DuckDBPyConnection | None = None

    def close(self) -> None:
        with self._sync_lock, self._open_lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextlib.contextmanager
    def reader(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor that sees the last committed sync."""
        cursor = self._opened().cursor()
        try:
            yield cursor
        finally:
            cursor.close()

    def sync(self, now: datetime) -> SyncReport:
        """Copy what is new or changed. Several at once: one after the other."""
        with self._sync_lock:
            connection = self._opened()
            marks = _marks(connection)
            with self._source.visit(marks) as visit:
                head = visit.head()
                if _is_other_database(connection, head, marks):
                    return self._sync_from_nothing(now)
                return _top_up(connection, visit, marks, head, now, rebuilt=marks.log_id == 0)

    def rebuild(self, now: datetime) -> SyncReport:
        """Throw the copy away and make it again."""
        with self._sync_lock:
            return self._sync_from_nothing(now)

    def _sync_from_nothing(self, now: datetime) -> SyncReport:
        connection = self._opened()
        version = _version(connection)
        _create_tables(connection, version)
        with self._source.visit(Marks()) as visit:
            return _top_up(connection, visit, Marks(), visit.head(), now, rebuilt=True)

    def _opened(self) -> duckdb.DuckDBPyConnection:
        with self._open_lock:
            if self._connection is None:
                self._connection = _open(self.file)
            return self._connection


def _open(file: Path) -> duckdb.DuckDBPyConnection:
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
    try:
        connection = _connect(file)
    except duckdb.Error as error:
        if "lock" in str(error).lower():
            raise StoreUnavailable(
                f"The statistics file {file.name} is in use by another program. Close it there, then reload.",
                file=file.name,
            ) from error
        try:
            _remove(file)
            connection = _connect(file)
        except (duckdb.Error, OSError) as second:
            raise StoreUnavailable(
                f"The statistics file {file.name} can neither be read nor made again: {second}", file=file.name
            ) from second
    try:
        known = connection.execute("SELECT format FROM state").fetchall()
    except duckdb.Error:
        known = None
    if known != [(FORMAT,)]:
        connection.close()
        _remove(file)
        connection = _connect(file)
        _create_tables(connection, 0)
    file.chmod(0o600)
    return connection


def _connect(file: Path) -> duckdb.DuckDBPyConnection:
    return duckdb.connect(
        str(file),
        config={
            "memory_limit": MEMORY_LIMIT,
            "threads": str(THREADS),
            "preserve_insertion_order": "false",
            # Names in a query mean tables, never variables of this process.
            "python_enable_replacements": "false",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
        },
    )


def _remove(file: Path) -> None:
    for path in (file, file.with_name(file.name + ".wal")):
        path.unlink(missing_ok=True)


def _create_tables(connection: duckdb.DuckDBPyConnection, version: int) -> None:
    with _transaction(connection):
        for name in ("raw_session", "raw_message", "raw_run", "raw_question", "raw_entry", "state", *FACT_TABLES):
            connection.execute(f'DROP TABLE IF EXISTS "{name}"')
        connection.execute(_COPIES)
        for statement in FACT_TABLES.values():
            connection.execute(statement)
        connection.execute("INSERT INTO state VALUES (?, 0, '', NULL, ?, 0)", [FORMAT, version])


@contextlib.contextmanager
def _transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    connection.execute("BEGIN")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(duckdb.Error):
            connection.execute("ROLLBACK")
        raise


def _value(connection: duckdb.DuckDBPyConnection, sql: str, *values: object) -> object:
    # Fetched to the end: DuckDB refuses other work while a result is open.
    rows = connection.execute(sql, list(values)).fetchall()
    return rows[0][0] if rows else None


def _number(connection: duckdb.DuckDBPyConnection, sql: str, *values: object) -> int:
    return int(str(_value(connection, sql, *values) or 0))


def _version(connection: duckdb.DuckDBPyConnection) -> int:
    return _number(connection, "SELECT version FROM state")


def _marks(connection: duckdb.DuckDBPyConnection) -> Marks:
    final = ", ".join(f"'{status}'" for status in FINAL_STATUS)
    open_messages = connection.execute(f"SELECT id FROM raw_message WHERE status NOT IN ({final})").fetchall()
    return Marks(
        log_id=_number(connection, "SELECT log_id FROM state"),
        entry_id=_entry_id(connection),
        message_id=_number(connection, "SELECT MAX(id) FROM raw_message"),
        session_id=_number(connection, "SELECT MAX(id) FROM raw_session"),
        session_updated_at=str(_value(connection, "SELECT MAX(updated_at) FROM raw_session") or ""),
        open_messages=[row[0] for row in open_messages],
    )


def _entry_id(connection: duckdb.DuckDBPyConnection) -> int:
    return _number(connection, "SELECT MAX(id) FROM raw_entry")


def _is_other_database(connection: duckdb.DuckDBPyConnection, head: Head, marks: Marks) -> bool:
    """True when the copy was made from another file: ids are never reused, so the same id is the same row."""
    if not marks.log_id:
        return marks.message_id > 0 and head.old_messages == 0
    seen = str(_value(connection, "SELECT last_log_seen FROM state") or "")
    return bool(seen and head.last_log_seen and seen != head.last_log_seen)


def _top_up(
    connection: duckdb.DuckDBPyConnection, visit: Visit, marks: Marks, head: Head, now: datetime, *, rebuilt: bool
) -> SyncReport:
    started = datetime.now(UTC)
    with _transaction(connection):
        bulk = head.log_id - marks.log_id >= BULK_ROWS
        for table, reader in visit.batches(head.log_id, bulk):
            connection.register("incoming", reader)
            if table == "entry":
                # Log rows are only ever new: no second copy on the way.
                connection.execute("INSERT INTO raw_entry BY NAME FROM incoming")
            else:
                connection.execute(f"CREATE OR REPLACE TEMP TABLE new_{table} AS FROM incoming")
            connection.unregister("incoming")
        # The session with the newest change is always read again; only what differs is a change.
        known = "SELECT * EXCLUDE (is_deleted) FROM raw_session WHERE id IN (SELECT id FROM new_session)"
        retitled = _number(connection, f"SELECT COUNT(*) FROM (FROM new_session EXCEPT {known})")
        _take_over(connection)
        _follow_changes(connection, visit, marks, head)
        touched = _number(connection, "SELECT COUNT(DISTINCT message_id) FROM touched")
        if touched:
            _make_facts(connection)
        new_rows = _number(connection, "SELECT COUNT(*) FROM raw_entry WHERE id > ?", marks.entry_id)
        log_id = max(head.log_id, _entry_id(connection), marks.log_id)
        connection.execute(
            "UPDATE state SET log_id = ?, last_log_seen = ?, synced_at = ?, version = version + ?",
            [
                log_id,
                visit.log_row(_entry_id(connection)),
                now.astimezone(UTC).replace(tzinfo=None),
                int(bool(touched or retitled)),
            ],
        )
        names = ("new_session", "new_message", "new_run", "new_question", "touched")
        connection.execute("; ".join(f"DROP TABLE IF EXISTS {name}" for name in names))
    seconds = (datetime.now(UTC) - started).total_seconds()
    return SyncReport(new_rows, touched, rebuilt, seconds, _version(connection))


def _take_over(connection: duckdb.DuckDBPyConnection) -> None:
    """Put the incoming rows in the place of their older versions."""
    connection.execute("CREATE OR REPLACE TEMP TABLE touched AS SELECT id AS message_id FROM new_message")
    connection.execute("CREATE OR REPLACE TEMP TABLE was_deleted AS SELECT id FROM raw_session WHERE is_deleted")
    connection.execute("DELETE FROM raw_session WHERE id IN (SELECT id FROM new_session)")
    connection.execute(
        "INSERT INTO raw_session BY NAME SELECT *, id IN (SELECT id FROM was_deleted) AS is_deleted FROM new_session"
    )
    connection.execute("DROP TABLE was_deleted")
    # A message that turned inactive keeps its place in the copy until _follow_changes has seen its fork.
    connection.execute("DELETE FROM raw_message WHERE id IN (SELECT message_id FROM touched)")
    connection.execute("INSERT INTO raw_message BY NAME SELECT *, is_active = 1 AS on_active_branch FROM new_message")
    for table in ("run", "question"):
        connection.execute(f"DELETE FROM raw_{table} WHERE message_id IN (SELECT message_id FROM touched)")
        connection.execute(f"INSERT INTO raw_{table} BY NAME SELECT * FROM new_{table}")


def _follow_changes(connection: duckdb.DuckDBPyConnection, visit: Visit, marks: Marks, head: Head) -> None:
    """Reflect what changed without a log row: chosen versions, deleted messages and sessions."""
    forks_changed = _number(connection, "SELECT COUNT(*) FROM touched") > 0
    if marks.message_id:
        if _number(connection, "SELECT COUNT(*) FROM raw_message WHERE id <= ?", marks.message_id) != head.old_messages:
            _forget_missing(connection, visit.message_ids(), "raw_message")
        ours = str(_value(connection, ACTIVE_FINGERPRINT.format(table="raw_message"), marks.message_id))
        if ours != head.active_fingerprint:
            forks_changed = True
            connection.register("incoming", visit.active_ids())
            connection.execute(
                "UPDATE raw_message SET is_active = CASE WHEN id IN (SELECT id FROM incoming) THEN 1 ELSE 0 END"
                " WHERE role <> 'SYSTEM' AND (is_active = 1) <> (id IN (SELECT id FROM incoming))"
            )
            connection.unregister("incoming")
    if (
        marks.session_id
        and _number(connection, "SELECT COUNT(*) FROM raw_session WHERE id <= ?", marks.session_id) != head.old_sessions
    ):
        _forget_missing(connection, visit.session_ids(), "raw_session")
    if forks_changed:
        _mark_branches(connection)
    _follow_deletions(connection, head)
    if _number(connection, "SELECT pruned_runs FROM state") != head.pruned_runs:
        _forget_pruned(connection, visit)
        connection.execute("UPDATE state SET pruned_runs = ?", [head.pruned_runs])


def _follow_deletions(connection: duckdb.DuckDBPyConnection, head: Head) -> None:
    """A deleted session counts nowhere, and again when its deletion is undone."""
    if not head.deleted_sessions and not _number(connection, "SELECT COUNT(*) FROM raw_session WHERE is_deleted"):
        return
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE deleted AS SELECT unnest(?::BIGINT[]) AS id", [head.deleted_sessions]
    )
    wrong = "is_deleted <> (id IN (SELECT id FROM deleted))"
    connection.execute(
        "INSERT INTO touched SELECT m.id FROM raw_message m JOIN raw_session s ON s.id = m.session_id"
        f" WHERE s.{wrong.replace('(id IN', '(s.id IN')}"
    )
    connection.execute(f"UPDATE raw_session SET is_deleted = NOT is_deleted WHERE {wrong}")
    connection.execute("DROP TABLE deleted")


def _forget_pruned(connection: duckdb.DuckDBPyConnection, visit: Visit) -> None:
    """Old records that were removed from the log are removed here as well."""
    messages, left = visit.pruned_messages()
    connection.register("pruned", messages)
    connection.register("left_rows", left)
    gone = "message_id IN (SELECT id FROM pruned) AND id NOT IN (SELECT id FROM left_rows)"
    connection.execute(f"INSERT INTO touched SELECT DISTINCT message_id FROM raw_entry WHERE {gone}")
    connection.execute(f"DELETE FROM raw_entry WHERE {gone}")
    connection.unregister("pruned")
    connection.unregister("left_rows")


def _forget_missing(connection: duckdb.DuckDBPyConnection, ids: object, table: str) -> None:
    connection.register("incoming", ids)
    key = "session_id" if table == "raw_session" else "message_id"
    gone = f"SELECT id FROM {table} WHERE id NOT IN (SELECT id FROM incoming)"
    connection.execute(f"CREATE OR REPLACE TEMP TABLE gone AS {gone}")
    connection.unregister("incoming")
    connection.execute(f"DELETE FROM {table} WHERE id IN (SELECT id FROM gone)")
    if table == "raw_session":
        connection.execute("DELETE FROM raw_message WHERE session_id IN (SELECT id FROM gone)")
    else:
        for raw in ("raw_run", "raw_question", "raw_entry"):
            connection.execute(f"DELETE FROM {raw} WHERE message_id IN (SELECT id FROM gone)")
    for fact in FACT_TABLES:
        connection.execute(f'DELETE FROM "{fact}" WHERE {key} IN (SELECT id FROM gone)')
    connection.execute("UPDATE state SET version = version + 1")
    connection.execute("DROP TABLE gone")


def _mark_branches(connection: duckdb.DuckDBPyConnection) -> None:
    """A message is on the active branch when it and everything above it is the chosen version.

    Walks down from the versions that are not chosen: usually few, whatever the size of the tree.
    """
    if not _number(connection, "SELECT COUNT(*) FROM raw_message WHERE is_active = 0 OR NOT on_active_branch"):
        return
    connection.execute(
        """
        CREATE OR REPLACE TEMP TABLE off_branch AS
        WITH RECURSIVE forked AS MATERIALIZED (
            SELECT id, parent_id, is_active FROM raw_message
            WHERE session_id IN (SELECT session_id FROM raw_message WHERE is_active = 0)
        ), off(id) AS (
            SELECT id FROM forked WHERE is_active = 0
            UNION
            SELECT child.id FROM forked child JOIN off ON child.parent_id = off.id
        )
        SELECT id FROM off
        """
    )
    wrong = "on_active_branch = (id IN (SELECT id FROM off_branch))"
    connection.execute(f"INSERT INTO touched SELECT id FROM raw_message WHERE {wrong}")
    connection.execute(f"UPDATE raw_message SET on_active_branch = NOT on_active_branch WHERE {wrong}")
    connection.execute("DROP TABLE off_branch")


def _make_facts(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the facts of the touched messages again."""
    for table in FACT_TABLES:
        if _number(connection, f'SELECT COUNT(*) FROM "{table}" SEMI JOIN touched USING (message_id)'):
            connection.execute(f'DELETE FROM "{table}" WHERE message_id IN (SELECT message_id FROM touched)')
    for statement in QUERIES_OF_FACTS:
        connection.execute(statement)
