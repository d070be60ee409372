"""What can be done with a whole conversation: take it out as a file, let the agent start fresh."""

import streamlit as st

from chat_core.models import RunState, Session
from chat_core.ui import actions
from chat_core.ui.viewer import Viewer


def draw_session_menu(viewer: Viewer, session: Session, run: RunState | None) -> None:
    """Draw the menu at the top of the conversation; its body only while it is open."""
    t = viewer.texts
    with st.container(key="session-menu"):
        menu = st.popover(
            t.t("session.actions"),
            key="session-actions",
            type="tertiary",
            icon=":material/more_horiz:",
            on_change="rerun",
        )
    if not menu.open:
        return
    address = f"{viewer.base}/api/chat/sessions/{session.uuid}/export"
    with menu:
        st.link_button(
            t.t("session.export_markdown"), f"{address}?format=md", type="tertiary", icon=":material/download:"
        )
        st.link_button(
            t.t("session.export_json"), f"{address}?format=json", type="tertiary", icon=":material/data_object:"
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
