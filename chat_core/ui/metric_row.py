"""The numbers at the top of the statistics page, each with its change and the sessions behind it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import streamlit as st

from chat_core.analytics.analytics import ChartData
from chat_core.analytics.behind import Narrowing
from chat_core.ui.chart_card import Board, footer_text, sessions_behind, show_behind
from chat_core.ui.chart_table import rows_of
from chat_core.ui.markdown import plain


@dataclass(frozen=True, slots=True)
class _Metric:
    name: str
    kind: Literal["count", "share", "duration"]
    behind: Narrowing
    good: Literal["normal", "inverse", "off"] = "off"
    """Whether more is better, worse, or neither."""


LEAST_TO_COMPARE = 30
"""Calls in the period before; with fewer a change says nothing."""

_METRICS = (
    _Metric("calls", "count", Narrowing("call", {})),
    _Metric("sessions", "count", Narrowing("call", {})),
    _Metric("error_rate", "share", Narrowing("call", {"outcome": "error"}), "inverse"),
    _Metric("p50_ms", "duration", Narrowing("call", {"timed": "yes"}), "inverse"),
    _Metric("p95_ms", "duration", Narrowing("call", {"timed": "yes"}), "inverse"),
    _Metric("tool_ms", "duration", Narrowing("call", {"timed": "yes"})),
    _Metric("waiting_ms", "duration", Narrowing("question", {})),
)


def draw_metric_row(board: Board, data: ChartData) -> None:
    t = board.viewer.texts
    rows = {row["period"]: row for row in rows_of(data.table)}
    now, before = rows["now"], rows.get("before", {})
    is_compared = before.get("calls", 0) >= LEAST_TO_COMPARE
    with st.container(key="metrics", horizontal=True, gap="small"):
        for metric in _METRICS:
            with st.container(key=f"metric-{metric.name}", width=160, gap=None):
                value = now[metric.name]
                narrowing = metric.behind
                if metric.name == "p95_ms" and value is not None:
                    narrowing = Narrowing("call", {"min_ms": str(int(value))})
                st.metric(
                    t.t(f"analytics.card.{metric.name}"),
                    _text(board, metric, value),
                    delta=_change(board, metric, value, before.get(metric.name)) if is_compared else None,
                    delta_color=metric.good,
                )
                st.button(
                    t.t("analytics.show_sessions"),
                    key=f"behind-{metric.name}",
                    type="tertiary",
                    on_click=show_behind,
                    args=("cards", narrowing),
                )
    note = footer_text(data.footer, board.viewer, 1)
    if before:
        note += " · " + t.t("analytics.compared" if is_compared else "analytics.not_compared")
    st.caption(plain(note))
    if board.shown_card == "cards":
        sessions_behind(board)


def _text(board: Board, metric: _Metric, value: Any) -> str:
    if value is None:
        return "–"
    match metric.kind:
        case "count":
            return f"{int(value):,}" if value < 1_000_000 else board.viewer.texts.count(int(value))
        case "share":
            return f"{value:.1%}"
        case "duration":
            return duration(board, value)


def duration(board: Board, milliseconds: float) -> str:
    if milliseconds < 950:
        return f"{milliseconds:.0f} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    return board.viewer.texts.duration(milliseconds)


def _change(board: Board, metric: _Metric, value: Any, before: Any) -> str | None:
    """In percent of the period before; shares in percentage points. None where there is nothing to compare with."""
    if value is None or before is None:
        return None
    if metric.kind == "share":
        return f"{(value - before) * 100:+.1f} {board.viewer.texts.t('analytics.unit.points')}"
    if not before:
        return None
    percent = (value - before) / before * 100
    return f"{percent:+.0f} %" if abs(percent) < 1000 else f"× {value / before:.0f}"


def values_of(row: Mapping[str, Any], *names: str) -> dict[str, str]:
    """The named values of a row as conditions."""
    return {name: str(row[name]) for name in names if row.get(name) is not None}
