"""Reads from SQLite what is new or changed since the last time, as Arrow, in one snapshot.

Two ways lead to the same batches. A small top-up is read with Python's own `sqlite3`. A large one is read by
`adbc-driver-sqlite` in a process of its own: the driver brings a second copy of SQLite, and two copies in one
process do not see each other's locks (POSIX locks belong to the process), so a checkpoint of the store could
take the write-ahead log from under the driver's reader. Between processes the locks work as SQLite means them.
"""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from chat_core.analytics.arguments import read_arguments
from chat_core.errors import StoreUnavailable

BUSY_TIMEOUT_SECONDS = 10.0
BULK_ROWS = 20_000
"""From this many new log rows on, the other process is worth its start (about half a second)."""
BATCH_ROWS = 20_000

COPIED_KINDS = (
    "tool_call",
    "tool_result",
    "clarify_request",
    "approval_request",
    "usage",
    "run_started",
    "run_finished",
    "run_failed",
    "run_stopped",
    "run_interrupted",
)
FINAL_STATUS = ("SENT", "SUCCESS", "FAILED", "STOPPED", "INTERRUPTED", "SUMMARY", "RESET")


@dataclass(frozen=True, slots=True)
class Marks:
    """How far the copy has come. All zero: nothing is copied yet."""

    log_id: int = 0
    entry_id: int = 0
    """The newest copied log row; rows of these kinds never change."""
    message_id: int = 0
    session_id: int = 0
    session_updated_at: str = ""
    open_messages: list[int] = field(default_factory=list)
    """Copied messages whose run had not ended: they are read again."""


@dataclass(frozen=True, slots=True)
class Head:
    """Where SQLite stands, and fingerprints of what was copied before (they tell changes without reading them)."""

    log_id: int
    last_log_seen: str
    """Message, seq and time of the row `Marks.entry_id` (empty when it is gone): another file has another row there."""
    old_messages: int
    active_fingerprint: str
    old_sessions: int
    deleted_sessions: list[int]
    """Sessions that are deleted but can still be brought back; they count nowhere."""
    pruned_runs: int
    """Runs whose old records were removed."""


ACTIVE_FINGERPRINT = """
    SELECT COUNT(*) || '/' || COALESCE(SUM(id), 0) || '/' || COALESCE(SUM((id * 40503) % 65537), 0)
    FROM {table} WHERE is_active = 1 AND role <> 'SYSTEM' AND +id <= ?
"""
"""The same sentence for SQLite and for the copy. Another chosen version changes it.

In SQLite the plus keeps the search off the table, whose rows hold whole answers: an index alone is read.
"""

# Three counts over indexes; the table itself holds large requests.
PRUNED_RUNS = """
    SELECT (SELECT COUNT(*) FROM run) - (SELECT COUNT(*) FROM run WHERE status IN ('RUNNING', 'WAITING'))
         - (SELECT COUNT(*) FROM run WHERE ended_at IS NOT NULL AND pruned_at IS NULL)
"""

TABLES = ("session", "message", "run", "question", "entry")

# Values are never NULL: the Arrow driver takes a column's type from its first rows.
_TOUCHED = """
    SELECT id FROM chat_message WHERE id > :message_id
    UNION SELECT message_id FROM chat_message_log WHERE id > :log_id AND id <= :head_id
    UNION SELECT value FROM json_each(:open_messages)
"""
_META = "CASE WHEN json_valid(meta_json) THEN meta_json ELSE '' END"

QUERIES: dict[str, str] = {
    "session": """
        SELECT id, session_uuid, owner, title, status, runtime, model_id, skill_folder, created_at, updated_at
        FROM chat_session WHERE id > :session_id OR updated_at >= :session_updated_at
    """,
    "message": f"""
        SELECT id, message_uuid, session_id, COALESCE(parent_id, 0) AS parent_id, is_active,
               COALESCE(run_id, '') AS run_id, role, status, runtime, model_id, skill_folder, created_at,
               COALESCE(completed_at, '') AS completed_at
        FROM chat_message WHERE id IN ({_TOUCHED})
    """,
    "run": f"""
        SELECT run_id, message_id, session_id, status, first_seq, started_at, COALESCE(ended_at, '') AS ended_at
        FROM run WHERE message_id IN ({_TOUCHED})
    """,
    "question": f"""
        SELECT question_id, q.run_id AS run_id, r.message_id AS message_id, kind, q.status AS status,
               COALESCE(answer, '') AS answer, asked_at, COALESCE(answered_at, '') AS answered_at
        FROM run_question q JOIN run r ON r.run_id = q.run_id WHERE r.message_id IN ({_TOUCHED})
    """,
    "entry": f"""
        SELECT id, message_id, seq, kind, tool_name, call_id, COALESCE(duration_ms, -1) AS duration_ms, is_error,
               CASE WHEN kind = 'tool_call' THEN content ELSE '' END AS arguments,
               CASE WHEN kind <> 'tool_result' THEN 0
                    WHEN json_valid(meta_json) AND json_type(meta_json, '$.bytes') = 'integer'
                        THEN json_extract(meta_json, '$.bytes')
                    ELSE length(CAST(content AS BLOB)) END AS bytes,
               CASE WHEN kind = 'tool_result' AND is_error THEN substr(content, 1, 300) ELSE '' END AS error_text,
               CASE WHEN kind IN ('tool_call', 'tool_result') THEN '' ELSE COALESCE({_META}, '') END AS meta,
               created_at
        FROM chat_message_log
        WHERE id > :log_id AND id <= :head_id AND kind IN ({", ".join(f"'{kind}'" for kind in COPIED_KINDS)})
    """,
}

_TEXT, _INT = pa.string(), pa.int64()


def _schema(numbers: str, texts: str, flags: str = "") -> pa.Schema:
    return pa.schema(
        [
            *((name, _INT) for name in numbers.split()),
            *((name, _TEXT) for name in texts.split()),
            *((name, pa.bool_()) for name in flags.split()),
        ]
    )


SCHEMAS: dict[str, pa.Schema] = {
    "session": _schema("id", "session_uuid owner title status runtime model_id skill_folder created_at updated_at"),
    "message": _schema(
        "id session_id parent_id is_active",
        "message_uuid run_id role status runtime model_id skill_folder created_at completed_at",
    ),
    "run": _schema("message_id session_id first_seq", "run_id status started_at ended_at"),
    "question": _schema("message_id", "question_id run_id kind status answer asked_at answered_at"),
    "entry": _schema(
        "id message_id seq duration_ms is_error bytes args_hash",
        "kind tool_name call_id error_text meta created_at args_preview",
        "args_parsed",
    ),
}


def prepared(table: str, batch: pa.RecordBatch) -> pa.Table:
    """Return a batch as SQLite gave it in the form the copy takes: of a call's arguments only what is kept."""
    schema = SCHEMAS[table]
    if table != "entry":
        return pa.table([batch.column(name).cast(schema.field(name).type) for name in schema.names], schema=schema)
    is_call = pc.equal(batch.column("kind"), "tool_call")
    parts = []
    for rows, with_arguments in ((batch.filter(is_call), True), (batch.filter(pc.invert(is_call)), False)):
        kept = _read_arguments(rows) if with_arguments else _no_arguments(rows.num_rows)
        columns = [
            (kept[name] if name in kept else rows.column(name)).cast(schema.field(name).type) for name in schema.names
        ]
        parts.append(pa.table(columns, schema=schema))
    return pa.concat_tables(parts)


def _read_arguments(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    """Equal texts are read once."""
    encoded = rows.column("arguments").dictionary_encode()
    read = read_arguments(encoded.dictionary.to_pylist())
    return {
        "args_hash": pa.array(read.fingerprints, _INT).take(encoded.indices),
        "args_preview": pa.array(read.previews, _TEXT).take(encoded.indices),
        "args_parsed": pa.array(read.parsed, pa.bool_()).take(encoded.indices),
    }


def _no_arguments(count: int) -> dict[str, pa.Array]:
    values = {"args_hash": pa.scalar(0, _INT), "args_preview": pa.scalar("", _TEXT), "args_parsed": pa.scalar(True)}
    return {name: pa.repeat(value, count) for name, value in values.items()}


class Source:
    """The SQLite file as the statistics see it; every visit opens it read-only and closes it again."""

    def __init__(self, database_file: Path) -> None:
        self.file = database_file

    @contextmanager
    def visit(self, marks: Marks) -> Iterator["Visit"]:
        """One snapshot of the file. Raises `StoreUnavailable` when it cannot be read; never waits for the writer."""
        try:
            connection = sqlite3.connect(
                f"{self.file.absolute().as_uri()}?mode=ro",
                uri=True,
                timeout=BUSY_TIMEOUT_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
        except sqlite3.Error as error:
            raise StoreUnavailable(f"The statistics cannot read the database: {error}") from error
        try:
            connection.execute("BEGIN")
            yield Visit(self.file, connection, marks)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"The statistics cannot read the database: {error}") from error
        finally:
            connection.close()


class Visit:
    """What can be read in one snapshot."""

    def __init__(self, file: Path, connection: sqlite3.Connection, marks: Marks) -> None:
        self._file = file
        self._connection = connection
        self._marks = marks

    def head(self) -> Head:
        one, marks = self._number, self._marks
        return Head(
            log_id=one("SELECT MAX(id) FROM chat_message_log"),
            last_log_seen=self.log_row(marks.entry_id),
            old_messages=one("SELECT COUNT(*) FROM chat_message WHERE +id <= ?", marks.message_id),
            active_fingerprint=str(self._one(ACTIVE_FINGERPRINT.format(table="chat_message"), marks.message_id)),
            old_sessions=one("SELECT COUNT(*) FROM chat_session WHERE +id <= ?", marks.session_id),
            deleted_sessions=[
                row[0] for row in self._connection.execute("SELECT id FROM chat_session WHERE deleted_at IS NOT NULL")
            ],
            pruned_runs=one(PRUNED_RUNS),
        )

    def log_row(self, log_id: int) -> str:
        """Message, seq and time of one log row; empty when there is no such row in this snapshot."""
        sql = "SELECT message_id || '|' || seq || '|' || created_at FROM chat_message_log WHERE id = ?"
        return str(self._one(sql, log_id) or "")

    def message_ids(self) -> pa.Table:
        """All messages, as ids."""
        return self._ids("SELECT id FROM chat_message")

    def active_ids(self) -> pa.Table:
        """The messages that are the chosen version of their fork. Served by the partial index alone."""
        return self._ids("SELECT id FROM chat_message WHERE is_active = 1 AND role <> 'SYSTEM'")

    def pruned_messages(self) -> tuple[pa.Table, pa.Table]:
        """The messages of which old records were removed, and the log rows that they still have."""
        messages = "SELECT message_id AS id FROM run WHERE pruned_at IS NOT NULL"
        return self._ids(messages), self._ids(f"SELECT id FROM chat_message_log WHERE message_id IN ({messages})")

    def session_ids(self) -> pa.Table:
        return self._ids("SELECT id FROM chat_session")

    def batches(self, head_log_id: int, bulk: bool) -> Iterator[tuple[str, pa.RecordBatchReader]]:
        """Yield each table's new and touched rows; read one reader to its end before asking for the next."""
        return self._bulk_batches() if bulk else self._own_batches(head_log_id)

    def _own_batches(self, head_log_id: int) -> Iterator[tuple[str, pa.RecordBatchReader]]:
        values = query_values(self._marks, head_log_id)
        for table in TABLES:
            yield table, pa.RecordBatchReader.from_batches(SCHEMAS[table], self._read(table, values))

    def _read(self, table: str, values: dict[str, object]) -> Iterator[pa.RecordBatch]:
        cursor = self._connection.execute(QUERIES[table], values)
        names = [column[0] for column in cursor.description]
        while rows := cursor.fetchmany(BATCH_ROWS):
            columns = [pa.array(column) for column in zip(*rows, strict=True)]
            yield from prepared(table, pa.RecordBatch.from_arrays(columns, names=names)).to_batches()

    def _bulk_batches(self) -> Iterator[tuple[str, pa.RecordBatchReader]]:
        """Let the other process read; it has its own snapshot, which may be a moment newer than this one."""
        root = str(Path(__file__).parents[2])
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
        request = json.dumps({"database": str(self._file.absolute()), "marks": asdict(self._marks)})
        with subprocess.Popen(
            [sys.executable, "-m", "chat_core.analytics.bulk_reader"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        ) as process:
            to_process, from_process, complaints = process.stdin, process.stdout, process.stderr
            if to_process is None or from_process is None or complaints is None:
                raise StoreUnavailable("The statistics could not start their reader.")
            try:
                to_process.write(request.encode("ascii"))
                to_process.close()
                for table in TABLES:
                    yield table, pa.ipc.open_stream(from_process)
            except (pa.ArrowInvalid, OSError) as error:
                reason = complaints.read().decode("utf-8", "replace").strip().splitlines()
                last = reason[-1] if reason else str(error)
                raise StoreUnavailable(f"The statistics cannot read the database: {last}") from error
            finally:
                process.kill()

    def _one(self, sql: str, *values: object) -> object:
        row = self._connection.execute(sql, values).fetchone()
        return row[0] if row else None

    def _number(self, sql: str, *values: object) -> int:
        return int(str(self._one(sql, *values) or 0))

    def _ids(self, sql: str) -> pa.Table:
        return pa.table({"id": pa.array([row[0] for row in self._connection.execute(sql)], _INT)})


def query_values(marks: Marks, head_log_id: int) -> dict[str, object]:
    """The named values of `QUERIES`."""
    values: dict[str, object] = asdict(marks)
    values["open_messages"] = json.dumps(marks.open_messages)
    values["head_id"] = head_log_id
    return values
