"""One question of the statistics page: its title, the drawing, the table, what it is made of, the sessions behind."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import streamlit as st
from streamlit_extras.scroll_to_element import scroll_to_element

from chat_core.analytics.analytics import Analytics, ChartData
from chat_core.analytics.behind import Narrowing
from chat_core.analytics.files import as_csv, as_parquet
from chat_core.analytics.filters import Filters
from chat_core.analytics.footer import Footer
from chat_core.errors import InvalidInput
from chat_core.ui.chart_table import column_config, links_to_sessions, rows_of, shown_table
from chat_core.ui.charts import PICK, Spec
from chat_core.ui.markdown import plain
from chat_core.ui.viewer import Viewer

ROW_PIXELS = 35
LINK_COLUMN = "message_link"

Narrow = Callable[[Mapping[str, Any]], Narrowing | None]
"""From a row, or what was clicked in a drawing, to the rows behind it."""


@dataclass(frozen=True, slots=True)
class Board:
    """What all cards of one page run share."""

    viewer: Viewer
    analytics: Analytics
    filters: Filters
    words: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def shown_card(self) -> str:
        """The card whose sessions are shown."""
        return st.query_params.get("at", "")


@dataclass(frozen=True, slots=True)
class _Columns:
    hidden: frozenset[str]
    first: Sequence[str]

    def order(self, names: Sequence[str]) -> list[str]:
        """What matters most comes first, and the link early: a wide table must not hide them."""
        shown = [name for name in self.first if name in names]
        shown += [name for name in names if name not in self.hidden and name not in self.first]
        if LINK_COLUMN in shown:
            shown.remove(LINK_COLUMN)
            shown.insert(2, LINK_COLUMN)
        return shown


def card(
    board: Board,
    data: ChartData,
    narrow: Narrow,
    *,
    drawings: Sequence[tuple[str, Spec]] = (),
    echart: Spec | None = None,
    columns: int = 1,
    table_first: bool = False,
    words: Mapping[str, Mapping[str, str]] | None = None,
    hidden: frozenset[str] = frozenset(),
    first: Sequence[str] = (),
) -> None:
    """Draw one card. Without rows it says so and why that may be."""
    t = board.viewer.texts
    with st.container(key=f"card-{data.name}", gap="small"):
        st.subheader(plain(t.t(f"analytics.chart.{data.name}.title")), anchor=data.name)
        st.caption(plain(t.t(f"analytics.chart.{data.name}.note")))
        if data.table.num_rows == 0:
            st.markdown(plain(t.t(_emptiness(data))))
        else:
            places = st.columns(columns) if columns > 1 and drawings else [st.container()]
            for number, (name, spec) in enumerate(drawings):
                with places[number % len(places)]:
                    _draw(board, data.name, name, spec, narrow)
            if echart is not None:
                alt = t.t(f"analytics.chart.{data.name}.title")
                st.echarts_chart(echart, height=360, alt=alt, key=f"drawing-{data.name}")
            _draw_table(board, data, narrow, words or {}, _Columns(hidden, first), is_open=table_first)
        st.caption(plain(footer_text(data.footer, board.viewer, data.table.num_rows)))
        if board.shown_card == data.name:
            sessions_behind(board)


def _emptiness(data: ChartData) -> str:
    if data.footer.counted == 0:
        return "analytics.empty.window"
    if data.name == "change_notice":
        return "analytics.empty.change_notice"
    return "analytics.empty.nothing"


def _draw(board: Board, card_name: str, name: str, spec: Spec, narrow: Narrow) -> None:
    t, key = board.viewer.texts, f"drawing-{card_name}-{name}"
    title = t.t(f"analytics.chart.{card_name}.title")
    # One picture, its own title: a saved PNG says what it shows.
    picture = {**spec, "usermeta": {"embedOptions": {"downloadFileName": f"parley-{card_name}"}}}
    st.vega_lite_chart(
        spec=picture, key=key, on_select=partial(_picked, card_name, key, narrow), selection_mode=PICK, alt=title
    )


def _picked(card_name: str, key: str, narrow: Narrow) -> None:
    selected = st.session_state.get(key)
    points = selected.selection.get(PICK, []) if selected else []
    show_behind(card_name, narrow(points[0]) if points else None)


def _draw_table(
    board: Board,
    data: ChartData,
    narrow: Narrow,
    words: Mapping[str, Mapping[str, str]],
    columns: _Columns,
    *,
    is_open: bool,
) -> None:
    t = board.viewer.texts
    if is_open:
        _draw_rows(board, data, narrow, words, columns)
        _draw_downloads(board, data)
        return
    with st.expander(t.t("analytics.table"), key=f"table-{data.name}", on_change="rerun") as fold:
        if fold.open:
            _draw_rows(board, data, narrow, words, columns)
            _draw_downloads(board, data)


def _draw_rows(
    board: Board, data: ChartData, narrow: Narrow, words: Mapping[str, Mapping[str, str]], columns: _Columns
) -> None:
    t = board.viewer.texts
    shown = shown_table(data.table, t, {**board.words, **words})
    config = column_config(shown, t, board.viewer.zone)
    if "session_uuid" in data.table.column_names:
        links = links_to_sessions(data.table, board.viewer.base)
        shown = shown.append_column(LINK_COLUMN, pa.array(links))
        config[LINK_COLUMN] = st.column_config.LinkColumn(
            t.t("analytics.column.message_link"), display_text=t.t("analytics.open"), width="small"
        )
    key = f"rows-{data.name}"
    st.dataframe(
        shown,
        key=key,
        hide_index=True,
        height=min(ROW_PIXELS * (shown.num_rows + 1) + 3, 400),
        column_config=config,
        column_order=columns.order(shown.column_names),
        on_select=partial(_picked_row, data.name, key, rows_of(data.table), narrow),
        selection_mode="single-row",
    )


def _picked_row(card_name: str, key: str, rows: Sequence[Mapping[str, Any]], narrow: Narrow) -> None:
    selected = st.session_state[key].selection.rows
    place = selected[0] if selected else None
    show_behind(card_name, narrow(rows[place]) if place is not None and place < len(rows) else None)


def _draw_downloads(board: Board, data: ChartData) -> None:
    t = board.viewer.texts
    with st.container(horizontal=True, gap="small", key=f"files-{data.name}"):
        for label, suffix, mime, make in (
            ("CSV", "csv", "text/csv", as_csv),
            ("Parquet", "parquet", "application/vnd.apache.parquet", as_parquet),
        ):
            st.download_button(
                label,
                data=partial(make, data.table),
                file_name=f"parley-{data.name}.{suffix}",
                mime=mime,
                key=f"{suffix}-{data.name}",
                type="tertiary",
                icon=":material/download:",
                on_click="ignore",
                help=t.t("analytics.download"),
            )


def footer_text(footer: Footer, viewer: Viewer, shown: int) -> str:
    """Zone, window, rows counted, rows left out and why, last row seen: one line."""
    t = viewer.texts
    begin, end = (moment.astimezone(viewer.zone) for moment in (footer.start, footer.end))
    parts = [
        t.t("analytics.footer.window", start=f"{begin:%Y-%m-%d %H:%M}", end=f"{end:%Y-%m-%d %H:%M}", zone=footer.zone),
        t.n(f"analytics.footer.counted.{footer.basis}", footer.counted),
    ]
    for reason, count in footer.left_out.items():
        parts.append(t.n(f"analytics.footer.{reason}", count))
    if footer.last_at is not None:
        last = footer.last_at.astimezone(viewer.zone)
        parts.append(t.t("analytics.footer.last", number=footer.last_log_id, at=f"{last:%Y-%m-%d %H:%M:%S}"))
    return " · ".join(parts)


def show_behind(card_name: str, narrowing: Narrowing | None) -> None:
    """Put into the URL which number's sessions are shown, or that none are."""
    if narrowing is None:
        for name in ("at", "behind", "before"):
            st.query_params.pop(name, None)
        return
    st.query_params["at"] = card_name
    st.query_params["behind"] = narrowing.to_text()


def sessions_behind(board: Board) -> None:
    """The sessions of the number that was clicked, each with the link to its message."""
    t = board.viewer.texts
    try:
        narrowing = Narrowing.from_text(st.query_params.get("behind", ""))
        table = board.analytics.sessions_behind(board.viewer.user, board.filters, narrowing, board.viewer.now)
    except InvalidInput:
        return
    with st.container(key="sessions-behind", border=True, gap="small"):
        with st.container(horizontal=True, vertical_alignment="center"):
            total = table.column("total_sessions")[0].as_py() if table.num_rows else 0
            rows = table.column("total_rows")[0].as_py() if table.num_rows else 0
            what = describe(narrowing, board)
            counted = t.n(f"analytics.footer.counted.{narrowing.fact}s", rows)
            st.markdown(f"**{plain(t.n('analytics.behind.title', total))}** · {plain(counted)} · {plain(what)}")
            st.button(
                t.t("analytics.close"),
                key="close-behind",
                type="tertiary",
                icon=":material/close:",
                on_click=show_behind,
                args=("", None),
            )
        if table.num_rows == 0:
            return
        shown = shown_table(table, t, {})
        shown = shown.append_column(LINK_COLUMN, pa.array(links_to_sessions(table, board.viewer.base)))
        config = column_config(shown, t, board.viewer.zone)
        config[LINK_COLUMN] = st.column_config.LinkColumn(
            t.t("analytics.column.message_link"), display_text=t.t("analytics.open"), width="small"
        )
        st.dataframe(
            shown,
            hide_index=True,
            key="behind-rows",
            column_config=config,
            height=min(ROW_PIXELS * (shown.num_rows + 1) + 3, 320),
            column_order=["title", LINK_COLUMN, "rows", "errors", "total_ms", "last_at"],
        )
        if total > table.num_rows:
            st.caption(plain(t.t("analytics.behind.more", shown=table.num_rows, total=t.number(total))))
    _scroll_once(st.query_params.get("at", "") + narrowing.to_text())


def _scroll_once(place: str) -> None:
    """Bring the sessions into view when they have just been asked for, not at every run of the page."""
    if st.session_state.get("behind-seen") != place:
        st.session_state["behind-seen"] = place
        scroll_to_element("sessions-behind", alignment="nearest")


def describe(narrowing: Narrowing, board: Board) -> str:
    """What was clicked, in words."""
    t = board.viewer.texts
    parts = []
    for name, value in (narrowing.conditions or {}).items():
        words = board.words.get(name, {})
        key = f"analytics.column.{name}"
        label = t.t(key) if t.has(key) else name
        parts.append(f"{label}: {words.get(value, value)}" if value != "yes" else label)
    return ", ".join(parts) or t.t("analytics.behind.all")
