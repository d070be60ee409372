"""The SQL console of the statistics page: a query, its answer, examples to begin with."""

import streamlit as st

from chat_core.analytics.console import EXAMPLES, ROW_LIMIT, TIME_LIMIT_SECONDS, ConsoleAnswer
from chat_core.analytics.console_process import MEMORY_LIMIT_MB
from chat_core.analytics.files import as_csv_rows
from chat_core.errors import ParleyError
from chat_core.ui.chart_card import Board
from chat_core.ui.markdown import plain

_SQL = "console-sql"
_ANSWER = "console-answer"


def draw_sql_console(board: Board) -> None:
    t = board.viewer.texts
    st.subheader(plain(t.t("analytics.sql.title")), anchor="sql")
    limits = {"seconds": f"{TIME_LIMIT_SECONDS:g}", "rows": t.number(ROW_LIMIT), "megabytes": MEMORY_LIMIT_MB}
    st.caption(plain(t.t("analytics.sql.note", **limits)))
    st.session_state.setdefault(_SQL, EXAMPLES["errors"])
    with st.container(horizontal=True, gap="small", key="console-examples"):
        for name, sql in EXAMPLES.items():
            st.button(t.t(f"analytics.sql.example.{name}"), key=f"console-take-{name}", on_click=_take, args=(sql,))
    st.text_area(t.t("analytics.sql.query"), key=_SQL, height=170)
    st.button(t.t("analytics.sql.run"), key="console-run", type="primary", on_click=_run, args=(board,))
    answer = st.session_state.get(_ANSWER)
    if isinstance(answer, ConsoleAnswer):
        _draw_answer(board, answer)
    elif isinstance(answer, str):
        st.error(t.t("analytics.sql.refused"), icon=":material/error:")
        st.code(answer, language=None, wrap_lines=True)
    with st.expander(t.t("analytics.sql.tables"), key="console-tables"):
        st.markdown(t.t("analytics.sql.tables.text"))


def _draw_answer(board: Board, answer: ConsoleAnswer) -> None:
    t = board.viewer.texts
    rows = [dict(zip(_names(answer.columns), row, strict=True)) for row in answer.rows]
    if rows:
        st.dataframe(rows, hide_index=True, key="console-rows")
    counted = t.n("analytics.sql.rows", len(rows), seconds=f"{answer.seconds:.2f}")
    st.caption(plain(counted + (" " + t.t("analytics.sql.cut") if answer.cut else "")))
    if rows:
        st.download_button(
            "CSV",
            data=lambda: as_csv_rows(answer.columns, answer.rows),
            file_name="parley-query.csv",
            mime="text/csv",
            key="console-csv",
            type="tertiary",
            icon=":material/download:",
            on_click="ignore",
        )


def _names(columns: list[str]) -> list[str]:
    """Column names of a query may be equal; names of a table may not."""
    seen: dict[str, int] = {}
    names = []
    for column in columns:
        seen[column] = seen.get(column, 0) + 1
        names.append(column if seen[column] == 1 else f"{column} ({seen[column]})")
    return names


def _take(sql: str) -> None:
    st.session_state[_SQL] = sql
    st.session_state.pop(_ANSWER, None)


def _run(board: Board) -> None:
    try:
        st.session_state[_ANSWER] = board.analytics.ask_sql(board.viewer.user, st.session_state[_SQL])
    except ParleyError as error:
        st.session_state[_ANSWER] = error.message
