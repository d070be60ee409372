"""The demo month is believable, the same for the same seed, and sound by the store's own check."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from chat_core.analytics.analytics import Analytics
from chat_core.analytics.demo_data import fill, main
from chat_core.analytics.filters import Filters
from chat_core.analytics.zone import Zone
from chat_core.config import Settings
from chat_core.errors import InvalidInput
from chat_core.i18n import zone_named
from chat_core.models import LOCAL_USER
from chat_core.store.check import check
from chat_core.store.database import Database

UNTIL = datetime(2026, 5, 20, 18, tzinfo=UTC)


def test_the_month_shows_what_it_was_made_to_show(settings: Settings) -> None:
    counts = fill(settings.database_file, UNTIL)
    assert counts["chat_session"] > 150
    database = Database.open(settings.database_file)
    assert check(database) == []
    database.close()
    analytics = Analytics(settings)
    analytics.sync(LOCAL_USER, UNTIL)
    filters = Filters(zone=Zone(zone_named("Europe/Berlin")), range="30d")
    charts = analytics.charts(
        LOCAL_USER, ["scorecard", "loops", "people", "models", "change_notice", "after_error"], filters, UNTIL
    )
    rows = {name: chart.table.to_pylist() for name, chart in charts.items()}
    failing = {row["tool"] for row in rows["scorecard"] if row["errors"]}
    assert {"terminal", "read_file", "write_file", "web_search", "fetch_page"} <= failing
    assert {row["loop_kind"] for row in rows["loops"]} == {"repeat", "alternate"}
    assert {row["kind"] for row in rows["people"]} == {"approval", "clarify"}
    assert len(rows["models"]) == 2
    assert ("web_search", "p50_ms", "above") in {
        (row["tool"], row["measure"], row["direction"]) for row in rows["change_notice"]
    }
    assert len(rows["after_error"]) == 4
    assert charts["scorecard"].footer.left_out["other_branch"] > 0
    assert charts["scorecard"].footer.last_at is not None
    assert charts["scorecard"].footer.last_at <= UNTIL
    analytics.close()


def test_the_same_seed_gives_the_same_month(tmp_path: Path) -> None:
    counts = [fill(tmp_path / name / "parley.db", UNTIL, seed) for name, seed in (("a", 1), ("b", 1), ("c", 2))]
    assert counts[0] == counts[1] != counts[2]


def test_demo_data_never_mixes_with_a_database_that_is_there(tmp_path: Path) -> None:
    fill(tmp_path / "parley.db", UNTIL)
    with pytest.raises(InvalidInput, match="needs a folder of its own"):
        fill(tmp_path / "parley.db", UNTIL)
    assert main([str(tmp_path)]) == 1
