"""The process that reads a large part of SQLite through Arrow and writes it to its standard output.

Run as `python -m chat_core.analytics.bulk_reader`; see `source.py` for why it is a process of its own.
Standard input: one JSON object `{database, marks}`. Standard output: one Arrow stream for each table.
"""

import json
import sys
from pathlib import Path

import adbc_driver_sqlite
import adbc_driver_sqlite.dbapi
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
    with adbc_driver_sqlite.dbapi.connect(uri, autocommit=False) as connection:
        with connection.cursor() as cursor:
            cursor.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_SECONDS * 1000)}")
            cursor.execute("SELECT COALESCE(MAX(id), 0) FROM chat_message_log")
            head_log_id = cursor.fetchone()[0]
        for table in TABLES:
            with (
                connection.cursor(adbc_stmt_kwargs={_BATCH_ROWS_OPTION: BATCH_ROWS}) as cursor,
                pa.ipc.new_stream(sys.stdout.buffer, SCHEMAS[table]) as stream,
            ):
                cursor.execute(_with_values(QUERIES[table], query_values(marks, head_log_id)))
                for batch in cursor.fetch_record_batch():
                    if batch.num_rows:
                        stream.write_table(prepared(table, batch))
    sys.stdout.buffer.flush()


def _with_values(sql: str, values: dict[str, object]) -> str:
    """Write the values into the sentence: the driver binds by place only, and these are numbers and our own texts."""
    for name, value in values.items():
        literal = str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"
        sql = sql.replace(f":{name}", literal)
    return sql


if __name__ == "__main__":
    main()
