"""Parts add up to wholes: on random logs the page's totals equal plain SQL over SQLite, after every sync."""

import json
import random
import sqlite3
import tempfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chat_core.analytics.analytics import Analytics
from chat_core.analytics.behind import Narrowing
from chat_core.analytics.filters import Filters
from chat_core.analytics.zone import Zone
from chat_core.config import load_settings
from chat_core.i18n import zone_named
from chat_core.models import LOCAL_USER
from tests.analytics.recorder import START, RecordedRun, Recorder

NOW = START + timedelta(days=40)
EVERYTHING = Filters(zone=Zone(zone_named("Europe/Berlin")), range="all", branches="all")

# Nothing but SQLite: a call, its result by call id (unique here), the run's status.
PLAIN = """
    WITH active AS (
        WITH RECURSIVE reached(id) AS (
            SELECT id FROM chat_message WHERE parent_id IS NULL AND is_active = 1
            UNION ALL
            SELECT m.id FROM chat_message m JOIN reached r ON m.parent_id = r.id WHERE m.is_active = 1
        ) SELECT id FROM reached
    )
    SELECT c.tool_name AS tool, c.created_at AS at, m.model_id AS model, m.id IN (SELECT id FROM active) AS on_branch,
           CASE WHEN r.id IS NOT NULL THEN CASE WHEN r.is_error THEN 'error' ELSE 'ok' END
                WHEN run.status IN ('RUNNING', 'WAITING') THEN 'running' ELSE 'cut' END AS outcome,
           r.duration_ms AS ms, s.session_uuid AS session, length(CAST(r.content AS BLOB)) AS bytes
    FROM chat_message_log c
    JOIN chat_message m ON m.id = c.message_id JOIN chat_session s ON s.id = m.session_id
    JOIN run ON run.message_id = m.id
    LEFT JOIN chat_message_log r ON r.message_id = c.message_id AND r.call_id = c.call_id AND r.kind = 'tool_result'
    WHERE c.kind = 'tool_call' AND s.owner = 'local' AND s.deleted_at IS NULL
"""


def _random_step(chance: random.Random, recorder: Recorder, open_runs: list[RecordedRun]) -> None:
    """Something that may happen between two syncs."""
    action = chance.choice(("run", "run", "version", "end", "delete", "undo", "switch"))
    if action == "run" or not open_runs:
        session = recorder.session(owner=chance.choice(("local", "local", "local", "she")))
        open_runs.append(_run(chance, recorder, session, recorder.user_message(session)))
    elif action == "version":
        run = chance.choice(open_runs)
        if recorder.sql("SELECT 1 FROM chat_session WHERE id = ?", run.session_id):
            # One session has one run at work; the others of this session have ended by then.
            for other in [one for one in open_runs if one.session_id == run.session_id]:
                other.end(chance.choice(("SUCCESS", "STOPPED")))
                open_runs.remove(other)
            parent = recorder.sql("SELECT parent_id FROM chat_message WHERE id = ?", run.message_id)[0][0]
            order = recorder.sql("SELECT COUNT(*) FROM chat_message WHERE parent_id = ?", parent)[0][0]
            recorder.sql("UPDATE chat_message SET is_active = 0 WHERE parent_id = ?", parent)
            open_runs.append(_run(chance, recorder, run.session_id, parent, order))
    elif action == "end":
        open_runs.pop(chance.randrange(len(open_runs))).end(chance.choice(("SUCCESS", "FAILED", "STOPPED")))
    elif action == "delete":
        gone = chance.choice(open_runs).session_id
        open_runs[:] = [run for run in open_runs if run.session_id != gone]
        recorder.sql("DELETE FROM chat_session WHERE id = ?", gone)
    elif action == "undo":
        run = chance.choice(open_runs)
        recorder.sql(
            "UPDATE chat_session SET deleted_at = CASE WHEN deleted_at IS NULL THEN 'now' END WHERE id = ?",
            run.session_id,
        )
    else:
        run = chance.choice(open_runs)
        parent = recorder.sql("SELECT parent_id FROM chat_message WHERE id = ?", run.message_id)[0][0]
        recorder.sql("UPDATE chat_message SET is_active = 0 WHERE parent_id = ?", parent)
        recorder.sql("UPDATE chat_message SET is_active = 1 WHERE id = ?", run.message_id)


def _run(chance: random.Random, recorder: Recorder, session: int, parent: int, order: int = 0) -> RecordedRun:
    at = START + timedelta(hours=chance.randrange(24 * 30))
    model = chance.choice(("large", "small"))
    run = recorder.run(session, parent, status="RUNNING", model=model, order=order, at=at)
    for _ in range(chance.randrange(8)):
        tool = chance.choice(("terminal", "read_file", "web_search"))
        arguments = json.dumps({"n": chance.randrange(2)})
        run.call(
            tool,
            arguments,
            ms=chance.randrange(5_000),
            error=chance.random() < 0.3,
            finished=chance.random() < 0.85,
            result="é" * chance.randrange(20),
        )
    return run


def _check_totals(analytics: Analytics, database: Path) -> None:
    analytics.sync(LOCAL_USER, NOW)
    with sqlite3.connect(database) as db:
        db.row_factory = sqlite3.Row
        plain = [dict(row) for row in db.execute(PLAIN)]
    db.close()
    for filters, calls in (
        (EVERYTHING, plain),
        (replace(EVERYTHING, branches="active"), [call for call in plain if call["on_branch"]]),
        (replace(EVERYTHING, models=("small",)), [call for call in plain if call["model"] == "small"]),
        (replace(EVERYTHING, outcomes=("error",)), [call for call in plain if call["outcome"] == "error"]),
    ):
        names = ["cards", "scorecard", "trend", "heatmap", "latency_distribution", "slowest"]
        data = analytics.charts(LOCAL_USER, names, filters, NOW)
        tables = {name: data[name].table.to_pylist() for name in names}
        finished = [call for call in calls if call["outcome"] in {"ok", "error"}]
        card = tables["cards"][0]
        assert card["calls"] == len(calls) == data["cards"].footer.counted
        assert card["sessions"] == len({call["session"] for call in calls})
        assert (card["finished"], card["errors"]) == (len(finished), _errors(calls))
        assert card["tool_ms"] == sum(call["ms"] for call in finished)
        for part in ("scorecard", "trend", "heatmap"):
            assert _sum(tables[part], "calls") == len(calls), part
            assert _sum(tables[part], "errors") == _errors(calls), part
            assert _sum(tables[part], "finished") == len(finished), part
        assert _sum(tables["scorecard"], "result_bytes") == sum(call["bytes"] for call in finished)
        assert _sum(tables["latency_distribution"], "calls") == len(finished)
        slowest = sorted((call["ms"] for call in finished), reverse=True)[:50]
        assert [row["duration_ms"] for row in tables["slowest"]] == slowest
        assert data["cards"].footer.left_out.get("running", 0) == sum(call["outcome"] == "running" for call in calls)
        behind = analytics.sessions_behind(
            LOCAL_USER, filters, Narrowing("call", {"tool": "terminal"}), NOW
        ).to_pylist()
        assert _sum(behind, "rows") == sum(call["tool"] == "terminal" for call in calls)


def _sum(rows: list[dict[str, Any]], name: str) -> int:
    return sum(row[name] for row in rows)


def _errors(calls: list[dict[str, Any]]) -> int:
    return sum(call["outcome"] == "error" for call in calls)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_the_totals_of_the_page_equal_plain_sql_after_every_sync(seed: int) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        chosen = load_settings({"data_dir": Path(folder)})
        recorder, analytics = Recorder(chosen.database_file), Analytics(chosen)
        try:
            open_runs: list[RecordedRun] = []
            for _ in range(3):
                for _ in range(chance.randrange(1, 8)):
                    _random_step(chance, recorder, open_runs)
                _check_totals(analytics, chosen.database_file)
        finally:
            analytics.close()
            recorder.close()
