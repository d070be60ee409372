"""The SQL console: one SELECT over a copy of the asker's own facts, in a process with hard limits.

DuckDB's own limits are set (read-only file, no other files, locked configuration, memory), but a single function
call can still take gigabytes or run without a break. So the query runs in a process of its own, which the system
limits in memory and which is ended when its time is over.
"""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from chat_core.analytics.console_process import ROW_LIMIT, TOO_MUCH_MEMORY
from chat_core.errors import InvalidInput
from chat_core.models import User

TIME_LIMIT_SECONDS = 10.0
QUERY_CHARS = 20_000
ANSWER_BYTES = 8_000_000

__all__ = ["EXAMPLES", "ROW_LIMIT", "TIME_LIMIT_SECONDS", "Console", "ConsoleAnswer"]

# What the console shows: the facts with the uuids that links need, without keys that mean nothing outside.
_VIEWS: dict[str, str] = {
    "call": """
        SELECT c.* EXCLUDE (session_id, message_id, owner, loop_id), s.session_uuid, m.message_uuid
        FROM "call" c JOIN raw_session s ON s.id = c.session_id JOIN raw_message m ON m.id = c.message_id
        WHERE c.owner = ?""",
    "run": """
        SELECT r.* EXCLUDE (session_id, message_id, owner), s.session_uuid, m.message_uuid
        FROM "run" r JOIN raw_session s ON s.id = r.session_id JOIN raw_message m ON m.id = r.message_id
        WHERE r.owner = ?""",
    "question": """
        SELECT q.* EXCLUDE (session_id, message_id, owner), s.session_uuid, m.message_uuid
        FROM "question" q JOIN raw_session s ON s.id = q.session_id JOIN raw_message m ON m.id = q.message_id
        WHERE q.owner = ?""",
    "session": """
        SELECT session_uuid, title, status, runtime, model_id, skill_folder,
               TRY_CAST(NULLIF(created_at, '') AS TIMESTAMPTZ) AT TIME ZONE 'UTC' AS created_at
        FROM raw_session WHERE owner = ? AND NOT is_deleted""",
}

EXAMPLES: dict[str, str] = {
    "errors": """SELECT tool, error_text, count(*) AS times, max(started_at) AS last
FROM call
WHERE outcome = 'error'
GROUP BY ALL ORDER BY times DESC LIMIT 20""",
    "argument": """SELECT tool, args_preview, count(*) AS calls, count(DISTINCT session_uuid) AS sessions
FROM call
GROUP BY ALL HAVING count(*) > 3 ORDER BY calls DESC LIMIT 50""",
    "first_tool": """SELECT c.tool AS first_tool, r.status, count(*) AS runs
FROM call c JOIN run r USING (run_id)
WHERE c.step = 1
GROUP BY ALL ORDER BY runs DESC""",
    "week": """SELECT date_trunc('week', started_at) AS week, tool,
       round(quantile_cont(duration_ms, 0.95)) AS p95_ms, count(*) AS calls
FROM call
GROUP BY ALL ORDER BY week DESC, calls DESC""",
    "questions": """SELECT date_trunc('day', asked_at) AS day, kind, status, count(*) AS questions,
       round(median(wait_ms) / 60000, 1) AS median_minutes
FROM question
GROUP BY ALL ORDER BY day DESC""",
}


@dataclass(frozen=True, slots=True)
class ConsoleAnswer:
    """`cut` is true when there are more rows than were read."""

    columns: list[str]
    types: list[str]
    rows: list[list[object]]
    cut: bool
    seconds: float


class Console:
    """Keeps one copy for each owner, made again when the facts have changed."""

    def __init__(self, folder: Path, time_limit_seconds: float = TIME_LIMIT_SECONDS) -> None:
        self._folder = folder
        self._time_limit_seconds = time_limit_seconds
        self._copies: dict[str, tuple[int, Path]] = {}

    def close(self) -> None:
        """Remove the copies."""
        for _, file in self._copies.values():
            file.unlink(missing_ok=True)
        self._copies.clear()
        with contextlib.suppress(OSError):
            self._folder.rmdir()

    def copy_for(self, user: User, cursor: duckdb.DuckDBPyConnection) -> Path:
        """Return the file with this owner's facts as of the last sync."""
        version = int(cursor.execute("SELECT version FROM state").fetchall()[0][0])
        known = self._copies.get(user.key)
        if known and known[0] == version and known[1].exists():
            return known[1]
        name = hashlib.sha256(user.key.encode("utf-8")).hexdigest()[:16]
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Another name for each version: a query still at work keeps the file it has opened.
        file = self._folder / f"{name}-{version}.duckdb"
        file.unlink(missing_ok=True)
        cursor.execute(f"ATTACH '{str(file).replace(chr(39), chr(39) * 2)}' AS console_copy")
        try:
            for view, sql in _VIEWS.items():
                cursor.execute(f'CREATE TABLE console_copy."{view}" AS {sql}', [user.key])
        finally:
            cursor.execute("DETACH console_copy")
        file.chmod(0o600)
        if known:
            known[1].unlink(missing_ok=True)
        self._copies[user.key] = (version, file)
        return file

    def ask(self, file: Path, sql: str) -> ConsoleAnswer:
        """Run one SELECT. Raises `InvalidInput` for a wrong, forbidden or too expensive one."""
        if not sql.strip():
            raise InvalidInput("Write a query first.", name="sql")
        if len(sql) > QUERY_CHARS:
            raise InvalidInput(f"The query may have {QUERY_CHARS} characters at most.", name="sql")
        root = str(Path(__file__).parents[2])
        request = json.dumps({"file": str(file), "sql": sql, "time_limit_seconds": self._time_limit_seconds})
        with subprocess.Popen(
            [sys.executable, "-m", "chat_core.analytics.console_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Nothing of the app's environment: it may hold keys.
            env={"PYTHONPATH": root, "PATH": os.environ.get("PATH", ""), "OPENBLAS_NUM_THREADS": "1"},
        ) as process:
            try:
                output, _ = process.communicate(request.encode("ascii"), timeout=self._time_limit_seconds + 5)
            except subprocess.TimeoutExpired:
                raise InvalidInput(_too_long(self._time_limit_seconds), name="sql") from None
            finally:
                process.kill()
        if not output:
            raise InvalidInput(TOO_MUCH_MEMORY, name="sql")
        if len(output) > ANSWER_BYTES:
            raise InvalidInput("The answer is too big to show. Ask for fewer or shorter columns.", name="sql")
        answer: dict[str, Any] = json.loads(output)
        if answer.get("timeout"):
            raise InvalidInput(_too_long(self._time_limit_seconds), name="sql")
        if "error" in answer:
            raise InvalidInput(str(answer["error"]), name="sql")
        return ConsoleAnswer(answer["columns"], answer["types"], answer["rows"], answer["cut"], answer["seconds"])


def _too_long(seconds: float) -> str:
    return f"The query took longer than {seconds:g} s and was ended. Narrow it, for example by started_at."
