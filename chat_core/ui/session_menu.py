"""What can be done with a whole conversation: look into the agent's memory, take it out as a file, start fresh."""

import streamlit as st

from chat_core.models import RunState, Session
from chat_core.ui import actions
from chat_core.ui.branch_map import draw_map_button
from chat_core.ui.download import download
from chat_core.ui.memory_drawer import open_memory
from chat_core.ui.viewer import Viewer

_EXPORTS = {
    "md": ("session.export_markdown", "download", "format=md&branch=active"),
    "md-all": ("desk.export_markdown_all", "download", "format=md&branch=all"),
    "json": ("session.export_json", "data_object", "format=json&branch=all"),
    "json-active": ("desk.export_json_active", "data_object", "format=json&branch=active"),
}


def draw_session_menu(viewer: Viewer, session: Session, run: RunState | None) -> None:
    """Draw the menu at the top of the conversation; its body only while it is open."""
    t = viewer.texts
    with st.container(key="session-menu", horizontal=True, gap=None):
        st.button(
            t.t("memory.title"), key="open-memory", type="tertiary", icon=":material/neurology:", on_click=open_memory
        )
        draw_map_button(viewer)
        menu = st.popover(
            t.t("session.actions"),
            key="session-actions",
            type="tertiary",
            icon=":material/more_horiz:",
            on_change="rerun",
        )
    if not menu.open:
        return
    with menu, st.container(key="session-menu-body", gap=None):
        for name, (words, icon, query) in _EXPORTS.items():
            st.button(
                t.t(words),
                key=f"export-{name}",
                type="tertiary",
                icon=f":material/{icon}:",
                on_click=download,
                args=(f"/api/chat/sessions/{session.uuid}/export?{query}",),
            )
        st.page_link(
            "analytics.py",
            label=t.t("desk.statistics"),
            icon=":material/monitoring:",
            query_params={"session": session.uuid},
        )
        if run is None:
            st.button(
                t.t("session.reset"),
                key="session-reset",
                type="tertiary",
                icon=":material/restart_alt:",
                on_click=actions.reset_context,
                args=(session.uuid,),
            )
