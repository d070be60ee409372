"""How long the statistics take: first sync, top-up, the whole page, a filter change, memory.

`python -m bench.analytics [--rows N]` makes a database of N log rows (default 1,000,000) in a temporary folder,
measures, prints one JSON object a line and removes the folder.
"""

import argparse
import json
import random
import resource
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from chat_core.analytics.analytics import Analytics
from chat_core.analytics.catalog import CHARTS
from chat_core.analytics.filters import Filters
from chat_core.analytics.zone import Zone
from chat_core.config import load_settings
from chat_core.i18n import zone_named
from chat_core.models import LOCAL_USER, utc_text
from chat_core.store.database import Database

NOW = datetime(2026, 6, 30, 18, tzinfo=UTC)
TOOLS = (
    "terminal",
    "read_file",
    "write_file",
    "web_search",
    "fetch_page",
    "todo",
    "process",
    "clarify",
    "memory",
    "grep",
)
ROWS_PER_MESSAGE = 20
"""Of one answer: run_started, usage, run_finished, and pairs of a call and its result between thinking."""
BATCH_MESSAGES = 5_000


def fill(database_file: Path, rows: int, seed: int = 3) -> None:
    """Write about `rows` log rows, with their messages, runs and sessions, spread over 90 days."""
    store = Database.open(database_file)
    chance = random.Random(seed)
    answers = rows // ROWS_PER_MESSAGE
    begin = NOW - timedelta(days=90)
    try:
        for first in range(0, answers, BATCH_MESSAGES):
            with store.write() as db:
                numbers = range(first, min(first + BATCH_MESSAGES, answers))
                made = [_answer(chance, number, begin + timedelta(days=90) * number / answers) for number in numbers]
                db.executemany(_INSERT["session"], [row for one in made for row in one["session"]])
                db.executemany(_INSERT["message"], [row for one in made for row in one["message"]])
                db.executemany(_INSERT["run"], [row for one in made for row in one["run"]])
                db.executemany(_INSERT["log"], [row for one in made for row in one["log"]])
    finally:
        store.close()


_INSERT = {
    "session": "INSERT INTO chat_session (id, session_uuid, owner, project, runtime, agent_session, created_at,"
    " last_message_at, updated_at) VALUES (?, ?, 'local', 'default', 'hermes', '', ?, ?, ?)",
    "message": "INSERT INTO chat_message (id, message_uuid, session_id, parent_id, branch_order, run_id, role, content,"
    " status, runtime, model_id, skill_folder, created_at) VALUES (?, ?, ?, ?, 0, ?, ?, ?, ?, 'hermes', ?, ?, ?)",
    "run": "INSERT INTO run (run_id, message_id, session_id, owner, request_json, status, started_at, ended_at)"
    " VALUES (?, ?, ?, 'local', '{}', 'SUCCESS', ?, ?)",
    "log": "INSERT INTO chat_message_log (message_id, seq, kind, content, tool_name, call_id, duration_ms, is_error,"
    " meta_json, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
}
ANSWERS_PER_SESSION = 5


def _answer(chance: random.Random, number: int, at: datetime) -> dict[str, list[tuple[Any, ...]]]:
    session_id, place = divmod(number, ANSWERS_PER_SESSION)
    session_id += 1
    user_id, message_id = number * 2 + 1, number * 2 + 2
    run_id, moment = f"run-{number}", utc_text(at)
    log: list[tuple[Any, ...]] = [
        (message_id, 1, "run_started", "", "", "", None, 0, json.dumps({"run_id": run_id}), moment)
    ]
    for call in range((ROWS_PER_MESSAGE - 4) // 2):
        tool = TOOLS[min(int(chance.expovariate(0.35)), len(TOOLS) - 1)]
        arguments = json.dumps({"path": f"src/file_{chance.randrange(400)}.py", "offset": chance.randrange(900)})
        duration = int(chance.lognormvariate(6, 1.5))
        is_error = int(chance.random() < 0.07)
        called, ended = utc_text(at), utc_text(at + timedelta(milliseconds=duration))
        log.append((message_id, len(log) + 1, "tool_call", arguments, tool, f"c{call}", None, 0, None, called))
        log.append(
            (message_id, len(log) + 1, "tool_result", "x" * 120, tool, f"c{call}", duration, is_error, None, ended)
        )
        at += timedelta(milliseconds=duration + 500)
    log.append(
        (message_id, len(log) + 1, "thinking", "That is all I need to know.", "", "", None, 0, None, utc_text(at))
    )
    usage = json.dumps({"input_tokens": 4000, "output_tokens": 300})
    log.append((message_id, len(log) + 1, "usage", "", "", "", None, 0, usage, utc_text(at)))
    end = json.dumps({"run_id": run_id, "status": "SUCCESS"})
    log.append((message_id, len(log) + 1, "run_finished", "Done.", "", "", None, 0, end, utc_text(at)))
    model, skill = ("large", "small")[number % 2], ("", "review", "research")[number % 3]
    parent = None if place == 0 else user_id - 1
    session = (session_id, str(uuid.UUID(int=number, version=4)), moment, moment, moment)
    return {
        "session": [session] if place == 0 else [],
        "message": [
            (user_id, f"u{number}", session_id, parent, None, "USER", "A question", "SENT", "", "", moment),
            (message_id, f"a{number}", session_id, user_id, run_id, "ASSISTANT", "An answer. " * 60, "SUCCESS", model,
             skill, moment),
        ],
        "run": [(run_id, message_id, session_id, moment, utc_text(at))],
        "log": log,
    }  # fmt: skip


def add_answers(database_file: Path, first: int, count: int) -> None:
    """Add `count` ended answers after the answers there are: what happens between two looks at the page."""
    chance = random.Random(first)
    store = Database.open(database_file)
    try:
        with store.write() as db:
            for number in range(first, first + count):
                made = _answer(chance, number, NOW - timedelta(minutes=5))
                for table in ("session", "message", "run", "log"):
                    db.executemany(_INSERT[table], made[table])
    finally:
        store.close()


def add_to_one_run(database_file: Path, rows: int) -> None:
    """Add `rows` tool calls and results to the newest message, as one very long run does."""
    store = Database.open(database_file)
    try:
        with store.write() as db:
            message_id, seq = db.execute(
                "SELECT message_id, MAX(seq) FROM chat_message_log WHERE message_id = (SELECT MAX(message_id) FROM"
                " chat_message_log)"
            ).fetchone()
            moment = utc_text(NOW - timedelta(minutes=1))
            for pair in range(rows // 2):
                for offset, kind in enumerate(("tool_call", "tool_result")):
                    values = (message_id, seq + 1 + pair * 2 + offset, kind, "{}", "grep", f"t{seq}-{pair}", 5, 0, None)
                    db.execute(_INSERT["log"], (*values, moment))
    finally:
        store.close()


def measure(folder: Path, rows: int) -> Iterator[dict[str, Any]]:
    begun = time.perf_counter()
    settings = load_settings({"data_dir": folder})
    fill(settings.database_file, rows)
    yield {"measure": "made the database", "seconds": _since(begun), "log_rows": rows}
    analytics = Analytics(settings)
    # What a process pays once, whatever the size: modules and the empty file.
    filters = Filters(zone=Zone(zone_named("Europe/Berlin")), range="all")
    try:
        before = _processor_seconds()
        seconds = _timed(lambda: analytics.sync(LOCAL_USER, NOW))
        yield {
            "measure": "first sync",
            "seconds": seconds,
            "processor_seconds": round(_processor_seconds() - before, 1),
            "target": 5.0 if rows <= 1_000_000 else None,
        }
        yield {"measure": "sync without news", "seconds": _timed(lambda: analytics.sync(LOCAL_USER, NOW))}
        answers, made = rows // ROWS_PER_MESSAGE, 1000 // ROWS_PER_MESSAGE
        top_ups = []
        for turn in range(5):
            add_answers(settings.database_file, answers + turn * made, made)
            top_ups.append(_timed(lambda: analytics.sync(LOCAL_USER, NOW)))
        median = round(statistics.median(top_ups), 3)
        yield {
            "measure": "top-up of 1,000 rows",
            "seconds": median,
            "all": top_ups,
            "target": 0.1 if rows <= 1_000_000 else None,
        }
        add_to_one_run(settings.database_file, 1000)
        seconds = _timed(lambda: analytics.sync(LOCAL_USER, NOW))
        yield {"measure": "top-up of 1,000 rows, all of one run", "seconds": seconds}
        names = list(CHARTS)
        for run in ("first", "again"):
            seconds = _timed(lambda: analytics.charts(LOCAL_USER, names, filters, NOW))
            yield {"measure": f"all charts, {run}", "seconds": seconds, "target": 2.0 if rows <= 1_000_000 else 6.0}
        for name in names:
            yield {
                "measure": f"chart {name}",
                "seconds": _timed(lambda name=name: analytics.charts(LOCAL_USER, [name], filters, NOW)),
            }
        for label, changed in (
            ("one tool", replace(filters, tools=("terminal",))),
            ("last 30 days", replace(filters, range="30d")),
            ("all branches", replace(filters, branches="all")),
        ):
            seconds = _timed(lambda changed=changed: analytics.charts(LOCAL_USER, names, changed, NOW))
            yield {
                "measure": f"filter change: {label}",
                "seconds": seconds,
                "target": 1.0 if rows <= 1_000_000 else None,
            }
        begun = time.perf_counter()
        analytics.ask_sql(LOCAL_USER, "SELECT tool, count(*) FROM call GROUP BY ALL")
        yield {"measure": "console, first query (makes its copy)", "seconds": _since(begun)}
        begun = time.perf_counter()
        analytics.ask_sql(LOCAL_USER, "SELECT tool, count(*) FROM call GROUP BY ALL")
        yield {"measure": "console, next query", "seconds": _since(begun)}
    finally:
        analytics.close()
    peaks = [resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    yield {"measure": "peak memory", "process_mb": round(peaks[0]), "reader_mb": round(peaks[1]), "target": 2048}
    yield {
        "measure": "file sizes",
        "sqlite_mb": round(settings.database_file.stat().st_size / 1e6),
        "duckdb_mb": round((folder / "analytics.duckdb").stat().st_size / 1e6),
    }


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return _since(begun)


def _processor_seconds() -> float:
    """Of this process and its ended children: what a busy machine does not change."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _since(begun: float) -> float:
    return round(time.perf_counter() - begun, 3)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the statistics.")
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory(prefix="parley-bench-") as folder:
        for result in measure(Path(folder), rows):
            print(json.dumps({"bench": "analytics", "rows": rows, **result}), flush=True)


if __name__ == "__main__":
    main()
