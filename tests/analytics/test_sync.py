"""The copy follows the database: what is new, what changes later, what goes."""

import subprocess
import sys

import duckdb
import pytest

from chat_core.analytics import cache
from chat_core.analytics.analytics import Analytics
from chat_core.analytics.filters import Filters
from chat_core.config import Settings
from chat_core.errors import StoreUnavailable
from chat_core.models import LOCAL_USER
from tests.analytics.conftest import NOW, Facts
from tests.analytics.recorder import Recorder

COUNT = 'SELECT COUNT(*) AS calls FROM "call"'


def test_a_second_sync_takes_only_what_is_new(recorder: Recorder, analytics: Analytics) -> None:
    run = recorder.run(recorder.session())
    run.call("terminal")
    first = analytics.sync(LOCAL_USER, NOW)
    again = analytics.sync(LOCAL_USER, NOW)
    run.call("terminal")
    third = analytics.sync(LOCAL_USER, NOW)
    assert (first.new_log_rows, again.new_log_rows, third.new_log_rows) == (3, 0, 2)
    assert (first.rebuilt, again.rebuilt, third.rebuilt) == (True, False, False)


def test_a_sync_without_news_leaves_the_version(recorder: Recorder, analytics: Analytics) -> None:
    run = recorder.run(recorder.session())
    run.call("terminal")
    run.end()
    version = analytics.sync(LOCAL_USER, NOW).version
    assert analytics.sync(LOCAL_USER, NOW).version == version


def test_a_result_that_comes_later_ends_its_call(recorder: Recorder, facts: Facts) -> None:
    run = recorder.run(recorder.session(), status="RUNNING")
    run.call("terminal", finished=False, call_id="a")
    assert facts('SELECT outcome FROM "call"') == [{"outcome": "running"}]
    run.result("terminal", "a", 70)
    assert facts('SELECT outcome, duration_ms FROM "call"') == [{"outcome": "ok", "duration_ms": 70}]


def test_a_run_that_ends_without_a_word_in_the_log_is_seen(recorder: Recorder, facts: Facts) -> None:
    run = recorder.run(recorder.session(), status="RUNNING")
    run.call("terminal", finished=False)
    facts(COUNT)
    recorder.sql("UPDATE run SET status = 'INTERRUPTED', ended_at = started_at WHERE run_id = ?", run.run_id)
    recorder.sql("UPDATE chat_message SET status = 'INTERRUPTED' WHERE id = ?", run.message_id)
    assert facts('SELECT outcome, run_status FROM "call"') == [{"outcome": "cut", "run_status": "INTERRUPTED"}]


def test_another_chosen_version_moves_everything_below_to_the_other_branch(recorder: Recorder, facts: Facts) -> None:
    session = recorder.session()
    question = recorder.user_message(session)
    old = recorder.run(session, question)
    old.call("old_tool")
    below = recorder.run(session, recorder.user_message(session, old.message_id))
    below.call("below_tool")
    sql = 'SELECT tool, on_active_branch AS active FROM "call" ORDER BY tool'
    assert facts(sql) == [{"tool": "below_tool", "active": True}, {"tool": "old_tool", "active": True}]
    recorder.sql("UPDATE chat_message SET is_active = 0 WHERE id = ?", old.message_id)
    recorder.run(session, question, order=1).call("new_tool")
    assert {row["tool"]: row["active"] for row in facts(sql)} == {
        "below_tool": False,
        "new_tool": True,
        "old_tool": False,
    }


def test_switching_versions_back_is_seen_though_no_log_row_is_new(recorder: Recorder, facts: Facts) -> None:
    session = recorder.session()
    question = recorder.user_message(session)
    first = recorder.run(session, question, active=False)
    first.call("first")
    second = recorder.run(session, question, order=1)
    second.call("second")
    sql = 'SELECT tool FROM "call" WHERE on_active_branch'
    assert facts(sql) == [{"tool": "second"}]
    recorder.sql("UPDATE chat_message SET is_active = 0 WHERE id = ?", second.message_id)
    recorder.sql("UPDATE chat_message SET is_active = 1 WHERE id = ?", first.message_id)
    assert facts(sql) == [{"tool": "first"}]


def test_a_removed_session_takes_its_facts_along(recorder: Recorder, facts: Facts) -> None:
    kept, removed = recorder.session(), recorder.session()
    for session in (kept, removed):
        run = recorder.run(session)
        run.call("terminal")
        run.question("approval", wait_ms=5)
        run.end()
    assert facts(COUNT) == [{"calls": 2}]
    recorder.sql("DELETE FROM chat_session WHERE id = ?", removed)
    assert facts(COUNT) == [{"calls": 1}]
    for table in ("run", "question"):
        assert facts(f'SELECT DISTINCT session_id FROM "{table}"') == [{"session_id": kept}]
    assert facts("SELECT COUNT(*) AS rows FROM raw_entry WHERE message_id NOT IN (SELECT id FROM raw_message)") == [
        {"rows": 0}
    ]


def test_a_deleted_session_counts_nowhere_until_the_deletion_is_undone(recorder: Recorder, facts: Facts) -> None:
    session = recorder.session()
    recorder.run(session).call("terminal")
    assert facts(COUNT) == [{"calls": 1}]
    recorder.sql("UPDATE chat_session SET deleted_at = '2026-03-10T10:00:00.000Z' WHERE id = ?", session)
    assert facts(COUNT) == [{"calls": 0}]
    recorder.sql("UPDATE chat_session SET deleted_at = NULL WHERE id = ?", session)
    assert facts(COUNT) == [{"calls": 1}]


def test_removed_old_records_go_from_the_statistics_as_well(recorder: Recorder, facts: Facts) -> None:
    old, new = recorder.run(recorder.session()), recorder.run(recorder.session())
    for run in (old, new):
        run.call("terminal", {"secret plan": run.run_id})
        run.end()
    assert facts(COUNT) == [{"calls": 2}]
    recorder.sql("DELETE FROM chat_message_log WHERE message_id = ? AND kind LIKE 'tool%'", old.message_id)
    recorder.sql("UPDATE run SET pruned_at = ended_at WHERE run_id = ?", old.run_id)
    assert facts('SELECT run_id FROM "call"') == [{"run_id": new.run_id}]
    assert facts("SELECT COUNT(*) AS rows FROM raw_entry WHERE args_preview LIKE '%' || 'plan' || '%'") == [{"rows": 1}]


def test_the_other_process_reads_the_same_as_this_one(
    recorder: Recorder, settings: Settings, everything: Filters, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = recorder.run(recorder.session(title="Ünïcode 会话 'quoted'"))
    for number in range(30):
        run.call("terminal", {"n": number, "text": "é\u2028"}, ms=number, error=number % 3 == 0, result="x" * number)
    run.question("approval", wait_ms=40)
    run.end()
    found = []
    for limit in (1, 10**9):
        monkeypatch.setattr(cache, "BULK_ROWS", limit)
        analytics = Analytics(settings)
        analytics.rebuild(LOCAL_USER, NOW)
        names = ["cards", "scorecard", "people", "slowest", "models"]
        charts = analytics.charts(LOCAL_USER, names, everything, NOW)
        found.append([charts[name].table.to_pylist() for name in names])
        analytics.close()
    assert found[0] == found[1]
    assert found[0][0][0]["calls"] == 30


def test_reading_never_blocks_the_writer(recorder: Recorder, analytics: Analytics) -> None:
    run = recorder.run(recorder.session())
    run.call("terminal")
    marks = cache.Marks()
    with analytics._cache._source.visit(marks) as visit:
        before = visit.head().log_id
        run.call("terminal")
        assert visit.head().log_id == before, "the visit must keep its snapshot"
    assert analytics.sync(LOCAL_USER, NOW).new_log_rows == 5


@pytest.mark.parametrize("content", [b"not a database" * 1000, b""])
def test_a_broken_file_is_made_again(
    recorder: Recorder, settings: Settings, everything: Filters, content: bytes
) -> None:
    recorder.run(recorder.session()).call("terminal")
    (settings.data_dir / "analytics.duckdb").write_bytes(content)
    analytics = Analytics(settings)
    analytics.sync(LOCAL_USER, NOW)
    assert analytics.chart(LOCAL_USER, "cards", everything, NOW).table.to_pylist()[0]["calls"] == 1
    analytics.close()


def test_a_file_of_another_version_is_made_again(recorder: Recorder, settings: Settings, everything: Filters) -> None:
    recorder.run(recorder.session()).call("terminal")
    with duckdb.connect(str(settings.data_dir / "analytics.duckdb")) as other:
        other.execute("CREATE TABLE state AS SELECT 999 AS format, 'something else' AS log_id")
    analytics = Analytics(settings)
    assert analytics.sync(LOCAL_USER, NOW).rebuilt
    assert analytics.choices(LOCAL_USER, everything, NOW).calls == 1
    analytics.close()


def test_a_file_held_by_another_process_is_named_in_a_plain_sentence(settings: Settings) -> None:
    settings.data_dir.mkdir(parents=True)
    file = settings.data_dir / "analytics.duckdb"
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import duckdb, sys; c = duckdb.connect({str(file)!r}); print(1, flush=True); sys.stdin.read()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(StoreUnavailable, match=r"analytics\.duckdb is in use by another program"):
            Analytics(settings).sync(LOCAL_USER, NOW)
    finally:
        holder.communicate(timeout=10)


def test_another_database_in_the_folder_is_noticed(recorder: Recorder, settings: Settings, everything: Filters) -> None:
    run = recorder.run(recorder.session())
    for _ in range(3):
        run.call("old_tool")
    analytics = Analytics(settings)
    analytics.sync(LOCAL_USER, NOW)
    recorder.close()
    for suffix in ("", "-wal", "-shm"):
        settings.database_file.with_name(settings.database_file.name + suffix).unlink(missing_ok=True)
    other = Recorder(settings.database_file)
    run = other.run(other.session())
    for _ in range(5):
        run.wait(10)
        run.call("new_tool")
    analytics.sync(LOCAL_USER, NOW)
    assert analytics.choices(LOCAL_USER, everything, NOW).tools == ["new_tool"]
    analytics.close()
    other.close()


def test_a_missing_database_is_said_plainly(settings: Settings) -> None:
    settings.data_dir.mkdir(parents=True)
    with pytest.raises(StoreUnavailable, match="cannot read the database"):
        Analytics(settings).sync(LOCAL_USER, NOW)
