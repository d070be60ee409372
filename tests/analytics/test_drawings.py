"""The drawings: valid, at most eight series, one colour for one tool, readable in both themes and in grey."""

import re
from datetime import UTC, datetime
from pathlib import Path

import altair
import pytest

from chat_core.analytics.analytics import Analytics, ChartData
from chat_core.analytics.catalog import CHARTS
from chat_core.analytics.demo_data import fill
from chat_core.analytics.filters import Filters
from chat_core.analytics.zone import Zone
from chat_core.config import load_settings
from chat_core.i18n import Texts, zone_named
from chat_core.models import LOCAL_USER
from chat_core.ui import charts
from chat_core.ui.charts import DARK, LIGHT, Palette, Spec

NOW = datetime(2026, 5, 20, 18, tzinfo=UTC)
T = Texts()
Data = dict[str, ChartData]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    folder: Path = tmp_path_factory.mktemp("month")
    settings = load_settings({"data_dir": folder})
    fill(settings.database_file, NOW)
    analytics = Analytics(settings)
    analytics.sync(LOCAL_USER, NOW)
    found = analytics.charts(LOCAL_USER, list(CHARTS), Filters(zone=Zone(zone_named("Europe/Berlin"))), NOW)
    analytics.close()
    return found


def _drawings(data: Data, palette: Palette) -> dict[str, Spec]:
    rows = {name: chart.table.to_pylist() for name, chart in data.items()}
    tools = [row["tool"] for row in rows["scorecard"]]
    series = charts.series_of(tools, tools, palette, "other tools")
    return {
        "trend": charts.trend(rows["trend"], series, "day", T, palette),
        "error_trend": charts.error_trend(rows["trend"], "day", T, palette),
        "intervals": charts.intervals(rows["scorecard"], "tool", "error_rate", T, palette),
        "latency": charts.latency(rows["latency"], series, T, palette),
        "distribution": charts.distribution(rows["latency_distribution"], tools, T, palette),
        "heatmap": charts.heatmap(rows["heatmap"], T, palette),
        "followers": charts.followers(rows["sequences"], series, T, palette),
        "bars": charts.bars(
            rows["people"], "kind", [("answered", "Answered"), ("open", "Open")], "x", palette, ["kind"]
        ),
    }


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_every_drawing_is_valid_vega_lite_and_can_be_clicked(data: Data, palette: Palette) -> None:
    for name, spec in _drawings(data, palette).items():
        altair.Chart.from_dict(spec, validate=True)
        assert [param["name"] for param in spec["params"]] == [charts.PICK], name


def test_nothing_is_loaded_from_outside(data: Data) -> None:
    assert "http" not in re.sub(r"https://example\.org", "", str(_drawings(data, LIGHT)))


def test_the_stack_of_a_bucket_is_as_high_as_its_calls(data: Data) -> None:
    rows = data["trend"].table.to_pylist()
    bars = _drawings(data, LIGHT)["trend"]["data"]["values"]
    for since in {bar["since"] for bar in bars}:
        top = max(bar["top"] for bar in bars if bar["since"] == since)
        assert top == sum(row["calls"] for row in rows if row["bucket_start"].isoformat() == since)


def test_the_links_of_the_steps_hold_every_run(data: Data) -> None:
    rows = data["steps"].table.to_pylist()
    tools = sorted({row["source"] for row in rows} | {row["target"] for row in rows if row["target_kind"] == "tool"})
    option = charts.steps(rows, charts.series_of(tools, tools, LIGHT, "other"), T, LIGHT)
    links, names = option["series"][0]["links"], {node["name"] for node in option["series"][0]["data"]}
    assert sum(link["value"] for link in links) == sum(row["runs"] for row in rows)
    assert {link["source"] for link in links} | {link["target"] for link in links} <= names


def test_eight_series_at_most_and_the_rest_together() -> None:
    tools = [f"tool {number}" for number in range(20)]
    series = charts.series_of(tools, tools, LIGHT, "other tools")
    assert len(series.domain) == len(series.range) == 8
    assert series.name_of("tool 19") == "other tools"
    assert len(charts.series_of(tools, tools[:8], LIGHT, "other tools").domain) == 8
    assert "other tools" not in charts.series_of(tools, tools[:8], LIGHT, "other tools").domain


def test_a_tool_keeps_its_colour_whatever_else_is_shown() -> None:
    ranked = [f"tool {number}" for number in range(12)]
    whole = charts.series_of(ranked, ranked[:6], LIGHT, "other")
    alone = charts.series_of(ranked, ["tool 3"], LIGHT, "other")
    assert alone.colours == (whole.colours[3],)


def test_no_two_series_share_a_colour() -> None:
    ranked = [f"tool {number}" for number in range(30)]
    for shown in (ranked[:8], ranked[5:13], ranked[20:28], ["tool 0", "tool 25", "tool 3"]):
        colours = charts.series_of(ranked, shown, LIGHT, "other").range
        assert len(set(colours)) == len(colours)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_marks_stand_out_from_the_page_and_numbers_from_their_cells(palette: Palette) -> None:
    for colour in (*palette.series, palette.error, palette.muted):
        assert _contrast(colour, palette.background) >= 3, colour
    for words_on in (palette.background, palette.low, palette.cell):
        assert _contrast(palette.text, words_on) >= 4.5
    assert _contrast(palette.muted, palette.background) >= 4.5


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_neighbours_of_a_stack_differ_in_grey(palette: Palette) -> None:
    for one, other in zip(palette.series, palette.series[1:], strict=False):
        assert _contrast(one, other) >= 1.25, (one, other)


def _contrast(one: str, other: str) -> float:
    """WCAG 2.2, relative luminance."""
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
