"""The statistics page: what the tools really do."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from chat_core.analytics.behind import Narrowing
from chat_core.analytics.charts.trend import bucket_of
from chat_core.analytics.filters import Window
from chat_core.errors import StoreUnavailable
from chat_core.process_workbench import process_workbench
from chat_core.ui import charts
from chat_core.ui.chart_card import Board, card
from chat_core.ui.chart_table import rows_of
from chat_core.ui.definitions import draw_definitions
from chat_core.ui.filter_row import draw_filter_row, filters_of_address
from chat_core.ui.markdown import plain
from chat_core.ui.metric_row import draw_metric_row, values_of
from chat_core.ui.sql_console import draw_sql_console
from chat_core.ui.viewer import current_viewer

SECTIONS = {
    "overview": ["cards", "scorecard", "trend", "heatmap", "change_notice"],
    "time": ["latency", "latency_distribution", "slowest", "largest"],
    "behaviour": ["sequences", "steps", "after_error", "loops_by_tool", "loops"],
    "people": ["people"],
    "compare": ["models", "skills", "runtimes"],
    "sql": [],
    "definitions": [],
}
FRESH_SECONDS = 15
STYLE = Path(__file__).parents[1] / "chat_core" / "ui" / "assets" / "analytics.css"

viewer = current_viewer()
t, user = viewer.texts, viewer.user
analytics = process_workbench().analytics
filters = filters_of_address(viewer)

st.html(STYLE)

with st.container(key="analytics-head", horizontal=True, vertical_alignment="center"):
    st.header(plain(t.t("analytics.title")), anchor=False)
    wants_sync = st.button(t.t("analytics.refresh"), key="refresh", type="tertiary", icon=":material/refresh:")

try:
    last_sync = st.session_state.get("analytics-synced-at")
    if wants_sync or last_sync is None or (viewer.now - last_sync).total_seconds() > FRESH_SECONDS:
        with st.spinner(t.t("analytics.syncing"), show_time=True):
            analytics.sync(user)
        st.session_state["analytics-synced-at"] = viewer.now
    choices = analytics.choices(user, filters)
except StoreUnavailable as error:
    st.error(plain(t.t("analytics.unavailable", reason=error.message)), icon=":material/error:")
    st.stop()

if choices.runs == 0:
    with st.container(key="analytics-empty"):
        st.markdown(f"**{plain(t.t('analytics.empty.title'))}**")
        st.markdown(plain(t.t("analytics.empty.text")))
        st.caption(plain(t.t("analytics.empty.demo")))
    st.stop()

title = analytics.session_title(user, filters.session) if filters.session else None
draw_filter_row(viewer, filters, choices, title)

asked = st.query_params.get("view", "overview")
section = asked if asked in SECTIONS else "overview"


def choose_section() -> None:
    for name in ("at", "behind"):
        st.query_params.pop(name, None)
    st.query_params["view"] = st.session_state["section"] or "overview"


st.session_state["section"] = section
st.segmented_control(
    t.t("analytics.section"),
    list(SECTIONS),
    format_func=lambda name: t.t(f"analytics.section.{name}"),
    key="section",
    label_visibility="collapsed",
    required=True,
    on_change=choose_section,
)

if SECTIONS[section]:
    st.caption(plain(t.t("analytics.hint")))

none = {"": t.t("analytics.none")}
board = Board(
    viewer,
    analytics,
    filters,
    words={
        "outcome": {name: t.t(f"analytics.outcome.{name}") for name in ("ok", "error", "running", "cut")},
        "reaction": {
            name: t.t(f"analytics.reaction.{name}") for name in ("same_call", "same_tool", "other_tool", "gave_up")
        },
        "loop_kind": {name: t.t(f"analytics.loop.{name}") for name in ("repeat", "alternate")},
        "kind": {name: t.t(f"analytics.question.{name}") for name in ("clarify", "approval")},
        "run_status": {
            name: t.t(f"analytics.run.{name}") for name in ("SUCCESS", "FAILED", "STOPPED", "INTERRUPTED", "RUNNING")
        },
        "measure": {name: t.t(f"analytics.measure.{name}") for name in ("error_rate", "p50_ms")},
        "direction": {name: t.t(f"analytics.direction.{name}") for name in ("above", "below")},
        "model": none,
        "skill": none,
    },
)
palette = charts.palette_of(st.context.theme.type)
data = analytics.charts(user, SECTIONS[section], filters, viewer.now)


def calls_of(*names: str, **fixed: str) -> Any:
    """From a row to the calls with the same values."""

    def narrow(row: Mapping[str, Any]) -> Narrowing:
        return Narrowing("call", {**values_of(row, *names), **fixed})

    return narrow


if section == "overview":
    draw_metric_row(board, data["cards"])

    scores = rows_of(data["scorecard"].table)
    series = charts.series_of(choices.tools, [row["tool"] for row in scores], palette, t.t("analytics.other_tools"))
    rated = [row for row in scores if row["error_rate"] is not None][: charts.MAX_ROWS]
    card(
        board,
        data["scorecard"],
        calls_of("tool"),
        drawings=[("error_rate", charts.intervals(rated, "tool", "error_rate", t, palette))] if rated else [],
        table_first=True,
        first=("tool", "calls", "error_rate", "lost_ms", "p50_ms", "p95_ms", "tool_ms", "repeated"),
        hidden=frozenset({"error_rate_low", "error_rate_high", "finished", "p99_ms", "result_bytes_p50"}),
    )

    days = rows_of(data["trend"].table)
    footer = data["trend"].footer
    bucket = bucket_of(filters, Window(footer.start, footer.end))
    card(
        board,
        data["trend"],
        calls_of("tool", "since", "until"),
        drawings=[
            ("calls", charts.trend(days, series, bucket, t, palette)),
            ("errors", charts.error_trend(days, bucket, t, palette)),
        ],
        hidden=frozenset({"finished", "running"}),
    )

    week = rows_of(data["heatmap"].table)
    card(
        board,
        data["heatmap"],
        calls_of("weekday", "hour"),
        drawings=[("week", charts.heatmap(week, t, palette))],
    )

    card(
        board,
        data["change_notice"],
        lambda row: Narrowing(
            "call",
            {
                "tool": row["tool"],
                "finished": "yes",
                "since": filters.zone.midnight(row["day"]).replace(tzinfo=None).isoformat(),
                "until": filters.zone.midnight_after(row["day"]).replace(tzinfo=None).isoformat(),
            },
        ),
        table_first=True,
        hidden=frozenset({"message_uuid", "band_days"}),
    )

elif section == "time":
    spans = rows_of(data["latency"].table)
    slow = spans[: charts.MAX_ROWS]
    series = charts.series_of(choices.tools, [row["tool"] for row in slow], palette, t.t("analytics.other_tools"))
    card(
        board,
        data["latency"],
        calls_of("tool", timed="yes"),
        drawings=[("spans", charts.latency(slow, series, t, palette))],
    )
    shown = [row["tool"] for row in slow]
    bins = [row for row in rows_of(data["latency_distribution"].table) if row["tool"] in shown]
    card(
        board,
        data["latency_distribution"],
        calls_of("tool", timed="yes"),
        drawings=[("bins", charts.distribution(bins, shown, t, palette))],
    )
    for name in ("slowest", "largest"):
        card(board, data[name], calls_of("tool", "outcome"), table_first=True, hidden=frozenset({"error"}))

elif section == "behaviour":
    pairs = rows_of(data["sequences"].table)
    tools = [row["tool"] for row in pairs] + [row["next_tool"] for row in pairs]
    series = charts.series_of(choices.tools, tools, palette, t.t("analytics.other_tools"))
    card(
        board,
        data["sequences"],
        calls_of("tool", "next_tool"),
        drawings=[("matrix", charts.followers(pairs, series, t, palette))],
    )

    links = rows_of(data["steps"].table)
    tools = [row["source"] for row in links] + [row["target"] for row in links if row["target_kind"] == "tool"]
    series = charts.series_of(choices.tools, tools, palette, t.t("analytics.other_tools"))
    card(
        board,
        data["steps"],
        lambda row: Narrowing("run", {"link": f"{row['step']}:{row['source']}>{row['target']}"}),
        echart=charts.steps(links, series, t, palette) if links else None,
        hidden=frozenset({"target_kind"}),
    )

    reactions = [
        {**row, "reaction_word": board.words["reaction"][row["reaction"]]} for row in rows_of(data["after_error"].table)
    ]
    card(
        board,
        data["after_error"],
        calls_of("reaction"),
        drawings=[
            (
                "reactions",
                charts.bars(
                    reactions,
                    "reaction_word",
                    [("errors", t.t("analytics.column.errors"))],
                    t.t("analytics.column.errors"),
                    palette,
                    ["reaction"],
                ),
            ),
            ("helped", charts.intervals(reactions, "reaction_word", "next_ok", t, palette, pick="reaction")),
        ],
        hidden=frozenset({"next_ok_low", "next_ok_high", "run_ok_low", "run_ok_high"}),
    )

    circles = [
        {
            **row,
            "label": f"{row['tools']} ({board.words['loop_kind'][row['loop_kind']]})",
            "minutes": row["burnt_ms"] / 60_000,
        }
        for row in rows_of(data["loops_by_tool"].table)
    ]
    card(
        board,
        data["loops_by_tool"],
        lambda row: Narrowing("call", {"looped": "yes", "loop_kind": row["loop_kind"], "loop_tools": row["tools"]}),
        drawings=[
            (
                "burnt",
                charts.bars(
                    circles[: charts.MAX_ROWS],
                    "label",
                    [("minutes", t.t("analytics.column.burnt_ms"))],
                    f"{t.t('analytics.column.burnt_ms')} ({t.t('analytics.unit.min')})",
                    palette,
                    ["loop_kind", "tools"],
                ),
            )
        ],
    )
    card(
        board,
        data["loops"],
        lambda row: Narrowing("call", {"looped": "yes", "loop_kind": row["loop_kind"], "loop_tools": row["tools"]}),
        table_first=True,
    )

elif section == "people":
    kinds = [
        {**row, "kind_word": board.words["kind"].get(row["kind"], row["kind"])} for row in rows_of(data["people"].table)
    ]
    parts = [(name, t.t(f"analytics.column.{name}")) for name in ("answered", "closed", "open")]
    card(
        board,
        data["people"],
        lambda row: Narrowing("question", values_of(row, "kind")),
        first=("kind", "asked", "answered", "p50_answer_ms", "p95_answer_ms", "waiting_ms", "closed", "open", "denied"),
        drawings=[("asked", charts.bars(kinds, "kind_word", parts, t.t("analytics.column.asked"), palette, ["kind"]))],
        table_first=True,
    )

elif section == "compare":
    for name, condition in (("models", "model"), ("skills", "skill"), ("runtimes", "runtime")):
        compared = [{**row, "value": row["value"] or none[""]} for row in rows_of(data[name].table)][: charts.MAX_ROWS]
        back = {row["value"] or none[""]: row["value"] for row in rows_of(data[name].table)}
        card(
            board,
            data[name],
            lambda row, condition=condition, back=back: Narrowing(
                "run", {condition: back.get(row["value"], row["value"])}
            ),
            drawings=[
                ("success", charts.intervals(compared, "value", "success", t, palette)),
                ("error_rate", charts.intervals(compared, "value", "error_rate", t, palette)),
                ("calls", charts.intervals(compared, "value", "calls_per_run", t, palette, unit="")),
                ("duration", charts.intervals(compared, "value", "run_ms", t, palette, unit="s", scale=0.001)),
            ]
            if len(compared) > 1
            else [],
            columns=2,
            first=("value", "runs", "success", "error_rate", "calls_per_run", "run_ms", "tokens_p50"),
            words={"value": none},
            table_first=True,
            hidden=frozenset(
                f"{column}_{side}"
                for column in ("calls_per_run", "error_rate", "run_ms", "success")
                for side in ("low", "high")
            ),
        )

elif section == "sql":
    draw_sql_console(board)

elif section == "definitions":
    draw_definitions(board)
