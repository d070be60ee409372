"""The process that runs one console query, under limits of the system and of DuckDB.

Run as `python -m chat_core.analytics.console_process`. Standard input: one JSON object `{file, sql,
time_limit_seconds}`. Standard output: one JSON object with the answer or the error.
"""

import json
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any

ROW_LIMIT = 1000
CELL_CHARS = 2000
MEMORY_LIMIT_MB = 512
TOO_MUCH_MEMORY = f"The query needed more than {MEMORY_LIMIT_MB} MB of memory. Ask for less at once."
ADDRESS_SPACE_MB = 1800
"""Python, DuckDB and its threads map about 700 MB before a query begins."""


def main() -> None:
    request = json.load(sys.stdin)
    limit = ADDRESS_SPACE_MB * 1024 * 1024
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    seconds = float(request["time_limit_seconds"])
    # Enough for the query on two threads; the system ends the process hard a little later.
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds * 2) + 4, int(seconds * 2) + 6))
    try:
        answer = answer_query(Path(request["file"]), str(request["sql"]), seconds)
    except MemoryError:
        answer = {"error": TOO_MUCH_MEMORY}
    sys.stdout.write(json.dumps(answer, ensure_ascii=True, default=str))


def answer_query(file: Path, sql: str, time_limit_seconds: float) -> dict[str, Any]:
    """Run one SELECT read-only and return columns, rows and whether there was more; or the reason why not."""
    import duckdb

    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        return {"error": str(error)}
    if len(statements) != 1:
        return {"error": "One query at a time, please."}
    if statements[0].type not in {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN}:
        return {"error": "Only SELECT is possible here: the console reads, it never changes anything."}
    connection = duckdb.connect(
        str(file),
        read_only=True,
        config={
            "enable_external_access": "false",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "python_enable_replacements": "false",
            "memory_limit": f"{MEMORY_LIMIT_MB}MB",
            "temp_directory": "",
            "max_temp_directory_size": "0GB",
            "threads": "2",
            "lock_configuration": "true",
        },
    )
    begun = time.monotonic()
    over = threading.Event()

    def interrupt() -> None:
        over.set()
        connection.interrupt()

    timer = threading.Timer(time_limit_seconds, interrupt)
    timer.daemon = True
    timer.start()
    try:
        cursor = connection.execute(sql)
        columns = [str(column[0]) for column in cursor.description or []]
        types = [str(column[1]) for column in cursor.description or []]
        rows = cursor.fetchmany(ROW_LIMIT + 1)
    except duckdb.InterruptException:
        return {"timeout": True}
    except duckdb.OutOfMemoryException:
        return {"error": TOO_MUCH_MEMORY}
    except duckdb.Error as error:
        return {"timeout": True} if over.is_set() else {"error": _plain(str(error), file)}
    finally:
        timer.cancel()
    cells = [[_cell(value) for value in row] for row in rows[:ROW_LIMIT]]
    return {
        "columns": columns,
        "types": types,
        "rows": cells,
        "cut": len(rows) > ROW_LIMIT,
        "seconds": round(time.monotonic() - begun, 3),
    }


def _cell(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= CELL_CHARS else text[: CELL_CHARS - 1] + "…"


def _plain(message: str, file: Path) -> str:
    """The error without the place of the file on this machine."""
    return message.replace(str(file), file.name)


if __name__ == "__main__":
    main()
