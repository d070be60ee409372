"""What every number of the statistics page means: the columns of the facts, with units, and the rules."""

import streamlit as st

from chat_core.ui.chart_card import Board
from chat_core.ui.markdown import plain

RULES = (
    "call",
    "outcome",
    "duration",
    "wait",
    "branches",
    "days",
    "loop",
    "lost",
    "interval",
    "notice",
    "people",
    "left_out",
)


def draw_definitions(board: Board) -> None:
    t = board.viewer.texts
    st.subheader(plain(t.t("analytics.definitions.title")), anchor="definitions")
    for rule in RULES:
        with st.container(key=f"definition-{rule}", gap=None):
            st.markdown(f"**{plain(t.t(f'analytics.definition.{rule}.title'))}**")
            st.markdown(plain(t.t(f"analytics.definition.{rule}.text")))
    tools = ", ".join(sorted(board.analytics.polling_tools)) or "–"
    st.caption(plain(t.t("analytics.definition.polling", tools=tools)))
