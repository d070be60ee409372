"""The statistics page: it helps with nothing, one row, running rows only, and a full month."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from chat_core.analytics.analytics import Analytics
from chat_core.analytics.demo_data import fill
from chat_core.config import Settings
from chat_core.errors import StoreUnavailable
from chat_core.i18n import Texts, load_texts
from chat_core.process_workbench import set_process_workbench
from chat_core.workbench import Workbench
from tests.analytics.recorder import Recorder
from tests.pages.reading import words

PAGE = Path(__file__).parents[2] / "pages" / "analytics.py"
SECTIONS = ("overview", "time", "behaviour", "people", "compare", "sql", "definitions")
T = Texts()
OpenPage = Callable[..., AppTest]


@pytest.fixture
def recorder(settings: Settings) -> Iterator[Recorder]:
    recorder = Recorder(settings.database_file)
    yield recorder
    recorder.close()


@pytest.fixture
def open_page(
    settings: Settings, open_bench: Callable[[], Workbench], caplog: pytest.LogCaptureFixture
) -> Iterator[OpenPage]:
    """Open the page over whatever the data folder holds by then."""
    opened: list[Workbench] = []

    def open_at(**query: str | list[str]) -> AppTest:
        if not opened:
            opened.append(open_bench())
            set_process_workbench(opened[0])
        page = AppTest.from_file(str(PAGE), default_timeout=30)
        for name, value in query.items():
            page.query_params[name] = value
        page.run()
        assert not page.exception, page.exception
        return page

    yield open_at
    set_process_workbench(None)
    missing = [record.getMessage() for record in caplog.records if "no text for the key" in record.getMessage()]
    assert missing == []


@pytest.fixture
def month(settings: Settings) -> None:
    fill(settings.database_file, datetime.now(UTC))


def test_without_a_run_the_page_says_what_to_do(open_page: OpenPage) -> None:
    page = open_page()
    assert T.t("analytics.empty.title") in words(page)
    assert "make demo-data" in words(page)
    assert not page.dataframe


@pytest.mark.parametrize("section", SECTIONS)
def test_one_call_fills_every_section_without_an_error(recorder: Recorder, open_page: OpenPage, section: str) -> None:
    run = recorder.run(recorder.session(), at=datetime.now(UTC) - timedelta(hours=1))
    run.call("terminal", ms=20)
    run.end()
    recorder.close()
    page = open_page(view=section)
    assert not page.error


@pytest.mark.parametrize("section", SECTIONS)
def test_running_calls_only_give_a_helpful_page(recorder: Recorder, open_page: OpenPage, section: str) -> None:
    run = recorder.run(recorder.session(), status="RUNNING", at=datetime.now(UTC) - timedelta(minutes=1))
    recorder.sql("UPDATE run SET lease_until = '2999-01-01T00:00:00.000Z'")
    run.call("terminal", finished=False)
    recorder.close()
    page = open_page(view=section)
    assert not page.error
    if section == "overview":
        said = words(page)
        assert T.n("analytics.footer.counted.calls", 1) in said


@pytest.mark.parametrize("section", SECTIONS)
def test_a_month_of_use_is_shown(month: None, open_page: OpenPage, section: str) -> None:
    page = open_page(view=section)
    assert not page.error
    said = words(page)
    if section == "overview":
        for chart in ("scorecard", "trend", "heatmap", "change_notice"):
            assert T.t(f"analytics.chart.{chart}.title") in _subheaders(page)
        assert "calls counted" in said
        assert "on other branches left out" in said
        assert "last row seen: no." in said
        assert "UTC" in said
        assert len(page.metric) == 7
    if section in {"overview", "time", "behaviour", "people", "compare"}:
        assert len(page.get("vega_lite_chart")) >= 1
        assert len(page.dataframe) >= 1


def test_the_titles_are_questions(month: None, open_page: OpenPage) -> None:
    for section in SECTIONS[:5]:
        titles = _subheaders(open_page(view=section))
        assert titles
        assert all(title.endswith("?") for title in titles), titles


def test_the_filters_are_read_from_the_url(month: None, open_page: OpenPage) -> None:
    page = open_page(tool=["terminal"], range="7d", branches="all")
    assert page.multiselect(key="tools").value == ["terminal"]
    assert page.radio(key="range").value == "7d"
    assert page.radio(key="branches").value == "all"
    table = page.dataframe[0].value
    assert list(table["tool"]) == ["terminal"]


def test_a_choice_is_written_to_the_url(month: None, open_page: OpenPage) -> None:
    page = open_page(view="time")
    page.multiselect(key="tools").select("terminal").run()
    assert page.query_params["tool"] == "terminal"
    page.radio(key="range").set_value("all").run()
    assert page.query_params["range"] == "all"
    assert page.query_params["view"] == "time"
    page.button(key="filter-clear").click().run()
    assert "tool" not in page.query_params
    assert page.multiselect(key="tools").value == []


def test_an_old_or_mistyped_url_still_opens(month: None, open_page: OpenPage) -> None:
    page = open_page(view="nonsense", range="forever", outcome="fine", at="pie", behind="call;owner=she")
    assert len(page.metric) == 7


def test_a_number_opens_the_sessions_behind_it(month: None, open_page: OpenPage) -> None:
    page = open_page()
    page.button(key="behind-error_rate").click().run()
    assert page.query_params["behind"] == "call;outcome=error"
    assert "sessions" in words(page)
    found = next(frame.value for frame in page.dataframe if {"message_link", "rows"} <= set(frame.value.columns))
    assert found["message_link"].str.match(r"^/\?session=[0-9a-f-]{36}&message=[0-9a-f-]{36}$").all()
    page.button(key="close-behind").click().run()
    assert "behind" not in page.query_params


def test_a_session_of_the_url_restricts_the_page_and_can_be_let_go(month: None, open_page: OpenPage) -> None:
    page = open_page(range="all")
    page.button(key="behind-calls").click().run()
    found = next(frame.value for frame in page.dataframe if "rows" in frame.value.columns)
    session = found["message_link"].iloc[0].split("session=")[1].split("&")[0]
    page = open_page(range="all", session=session)
    assert page.metric[1].value == "1"
    page.button(key="filter-session").click().run()
    assert "session" not in page.query_params


def test_a_query_is_answered_on_the_page(month: None, open_page: OpenPage) -> None:
    page = open_page(view="sql")
    page.text_area(key="console-sql").set_value("SELECT count(*) AS n FROM run").run()
    page.button(key="console-run").click().run()
    assert page.dataframe[0].value["n"].iloc[0] > 100
    page.text_area(key="console-sql").set_value("DROP TABLE call").run()
    page.button(key="console-run").click().run()
    assert "Only SELECT" in page.code[0].value


def test_a_held_statistics_file_is_explained(
    recorder: Recorder, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object) -> None:
        raise StoreUnavailable("The statistics file is in use by another program.")

    monkeypatch.setattr(Analytics, "sync", refuse)
    recorder.close()
    page = open_page()
    assert "in use by another program" in page.error[0].value.replace("\\", "")


def test_a_tools_name_is_shown_as_text(recorder: Recorder, open_page: OpenPage) -> None:
    run = recorder.run(recorder.session(title="<script>alert(1)</script>"), at=datetime.now(UTC) - timedelta(hours=1))
    run.call("<b>bold</b> **tool** :red[x]")
    run.end()
    recorder.close()
    page = open_page(tool=["<b>bold</b> **tool** :red[x]"])
    label = next(
        element.proto.popover.label for element in page.get("popover") if "bold" in element.proto.popover.label
    )
    assert "**tool**" not in label


def test_both_languages_have_the_same_texts() -> None:
    english, chinese = load_texts("en"), load_texts("zh-CN")
    assert {key for key in english if key.startswith("analytics.")} == {
        key for key in chinese if key.startswith("analytics.")
    }


def _subheaders(page: AppTest) -> list[str]:
    return [element.value.replace("\\", "") for element in page.subheader]
