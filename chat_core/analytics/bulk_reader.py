"""The process that reads a large part of SQLite through Arrow and writes it to its standard output.

Run as `python -m chat_core.analytics.bulk_reader`; see `source.py` for why it is a process of its own.
Standard input: one JSON object `{database, marks}`. Standard output: one Arrow stream for each table.
"""

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import adbc_driver_manager
import adbc_driver_sqlite
import pyarrow as pa

from chat_core.analytics.source import (
    BATCH_ROWS,
    BUSY_TIMEOUT_SECONDS,
    QUERIES,
    SCHEMAS,
    TABLES,
    Marks,
    prepared,
    query_values,
)

_BATCH_ROWS_OPTION = adbc_driver_sqlite.StatementOptions.BATCH_ROWS.value


def main() -> None:
    request = json.load(sys.stdin)
    marks = Marks(**request["marks"])
    uri = f"{Path(request['database']).as_uri()}?mode=ro"
    # The driver's own level: its DB-API layer would load pandas first, a third of a second.
    with adbc_driver_sqlite.connect(uri) as database, adbc_driver_manager.AdbcConnection(database) as connection:
        with _reading(connection, f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_SECONDS * 1000)}") as batches:
            batches.read_all()
        connection.set_autocommit(False)
        with _reading(connection, "SELECT COALESCE(MAX(id), 0) AS head FROM chat_message_log") as batches:
            values = query_values(marks, batches.read_all().column("head")[0].as_py())
        for table in TABLES:
            with (
                _reading(connection, _with_values(QUERIES[table], values)) as batches,
                pa.ipc.new_stream(sys.stdout.buffer, SCHEMAS[table]) as stream,
            ):
                for batch in _read_ahead(batches):
                    if batch.num_rows:
                        stream.write_table(prepared(table, batch))
    sys.stdout.buffer.flush()


def _read_ahead(batches: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Let SQLite read the next batch (without the interpreter's lock) while this one is worked on."""
    with ThreadPoolExecutor(max_workers=1) as reader:
        pending = reader.submit(next, batches, None)
        while (batch := pending.result()) is not None:
            pending = reader.submit(next, batches, None)
            yield batch


@contextmanager
def _reading(connection: adbc_driver_manager.AdbcConnection, sql: str) -> Iterator[pa.RecordBatchReader]:
    with adbc_driver_manager.AdbcStatement(connection) as statement:
        statement.set_options(**{_BATCH_ROWS_OPTION: str(BATCH_ROWS)})
        statement.set_sql_query(sql)
        handle, _ = statement.execute_query()
        with pa.RecordBatchReader._import_from_c(handle.address) as batches:
            yield batches


def _with_values(sql: str, values: dict[str, object]) -> str:
    """Write the values into the sentence: the driver binds by place only, and these are numbers and our own texts."""
    for name, value in values.items():
        literal = str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"
        sql = sql.replace(f":{name}", literal)
    return sql


if __name__ == "__main__":
    main()
