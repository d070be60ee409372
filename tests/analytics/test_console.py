"""The SQL console reads the asker's facts and nothing else, within its limits."""

import time
from pathlib import Path

import pytest

from chat_core.analytics.analytics import Analytics
from chat_core.analytics.console import EXAMPLES, Console
from chat_core.analytics.console_process import ROW_LIMIT
from chat_core.config import Settings
from chat_core.errors import InvalidInput
from chat_core.models import LOCAL_USER, User
from tests.analytics.conftest import NOW
from tests.analytics.recorder import Recorder


@pytest.fixture
def filled(recorder: Recorder, analytics: Analytics) -> Analytics:
    run = recorder.run(recorder.session(title="Mine"))
    run.call("my_tool", {"n": 1}, ms=40)
    run.question("approval", wait_ms=10)
    run.end()
    recorder.run(recorder.session(owner="she", title="Hers")).call("her_tool")
    analytics.sync(LOCAL_USER, NOW)
    return analytics


def test_a_query_is_answered_with_columns_and_rows(filled: Analytics) -> None:
    answer = filled.ask_sql(
        LOCAL_USER, "SELECT tool, count(*) AS calls, max(started_at) AS last FROM call GROUP BY ALL"
    )
    assert answer.columns == ["tool", "calls", "last"]
    assert answer.rows == [["my_tool", 1, "2026-03-10 09:00:00"]]
    assert not answer.cut


@pytest.mark.parametrize("table", ["call", "run", "question", "session"])
def test_only_the_askers_rows_are_there(filled: Analytics, table: str) -> None:
    mine = filled.ask_sql(LOCAL_USER, f"SELECT * FROM {table}")
    assert len(mine.rows) == 1
    assert "her_tool" not in str(mine.rows)
    assert "Hers" not in str(mine.rows)
    hers = filled.ask_sql(User("she"), f"SELECT count(*) FROM {table}")
    assert hers.rows == [[0 if table == "question" else 1]]


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_every_example_query_is_answered(filled: Analytics, name: str) -> None:
    assert filled.ask_sql(LOCAL_USER, EXAMPLES[name]).columns


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM read_blob('analytics.duckdb')",
        "COPY call TO '/tmp/stolen.csv'",
        "ATTACH '/tmp/other.duckdb' AS other",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "PRAGMA enable_profiling",
        "CREATE TABLE mine (a INTEGER)",
        "CREATE TEMP TABLE mine AS SELECT 1",
        "DELETE FROM call",
        "UPDATE call SET tool = 'x'",
        "SELECT 1; DROP TABLE call",
        "SELECT * FROM raw_entry",
        "SELECT * FROM statements",
        "CALL pragma_version()",
        "EXPORT DATABASE '/tmp/stolen'",
        "not sql at all",
        "",
    ],
)
def test_what_is_no_reading_of_the_own_facts_is_refused(filled: Analytics, sql: str) -> None:
    with pytest.raises(InvalidInput):
        filled.ask_sql(LOCAL_USER, sql)
    assert not Path("/tmp/stolen.csv").exists()
    assert filled.ask_sql(LOCAL_USER, "SELECT count(*) FROM call").rows == [[1]]


def test_an_endless_query_is_ended(filled: Analytics, settings: Settings) -> None:
    with filled._cache.reader() as cursor:
        console = Console(settings.data_dir / "quick", time_limit_seconds=0.3)
        file = console.copy_for(LOCAL_USER, cursor)
    begun = time.monotonic()
    with pytest.raises(InvalidInput, match=r"longer than 0\.3 s"):
        console.ask(file, "SELECT sum(sin(i)) FROM range(100000000000) t(i)")
    assert time.monotonic() - begun < 8
    console.close()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT repeat('x', 2000000000)",
        "SELECT list(i) FROM range(400000000) t(i)",
    ],
)
def test_a_query_that_wants_too_much_memory_is_ended(filled: Analytics, sql: str) -> None:
    with pytest.raises(InvalidInput, match="needed more than 512 MB"):
        filled.ask_sql(LOCAL_USER, sql)


def test_more_rows_than_the_limit_are_cut_and_said_so(filled: Analytics) -> None:
    answer = filled.ask_sql(LOCAL_USER, "SELECT * FROM range(100000)")
    assert (len(answer.rows), answer.cut) == (ROW_LIMIT, True)


def test_long_cells_are_cut(filled: Analytics) -> None:
    [[cell]] = filled.ask_sql(LOCAL_USER, "SELECT repeat('x', 100000)").rows
    assert len(str(cell)) == 2000


def test_the_copy_follows_the_facts(filled: Analytics, recorder: Recorder) -> None:
    filled.ask_sql(LOCAL_USER, "SELECT 1")
    recorder.run(recorder.session()).call("later")
    filled.sync(LOCAL_USER, NOW)
    assert filled.ask_sql(LOCAL_USER, "SELECT count(*) FROM call").rows == [[2]]


def test_closing_leaves_no_copy_behind(filled: Analytics, settings: Settings) -> None:
    filled.ask_sql(LOCAL_USER, "SELECT 1")
    filled.close()
    assert not (settings.data_dir / "analytics-console").exists()


def test_nothing_of_the_services_environment_is_visible(filled: Analytics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "MARKER")
    for sql in (
        "SELECT getenv('OPENAI_API_KEY')",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM duckdb_databases()",
    ):
        try:
            answer = str(filled.ask_sql(LOCAL_USER, sql).rows)
        except InvalidInput as error:
            answer = error.message
        assert "MARKER" not in answer
