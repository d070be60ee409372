"""Where the page is scrolled to. Only the browser can do that: `assets/scrolling.js`."""

import streamlit as st

from chat_core.ui.components import asset_url, component
from chat_core.ui.view_state import view_state
from chat_core.ui.viewer import Viewer


def draw_scrolling(viewer: Viewer, *, linked: str, end_of: str) -> None:
    """Scroll to the message `linked`, else to the end each time `end_of` names something new. It shows nothing.

    The words searched for are set off in the linked message. A message that the view holds stays where it was when
    others come above it.
    """
    view = view_state()
    with st.container(key="services-scrolling", height=1):
        component("scrolling")(
            key="page-scrolling",
            data={
                "module": asset_url("scrolling.js", viewer.base),
                "scroll_to": linked,
                "find": view.list_query if linked else "",
                "end_of": end_of,
                "hold": view.hold,
                "hold_count": view.hold_count,
            },
            on_offline_change=_nothing,
        )


def _nothing() -> None:
    """A callback is what makes Streamlit know the name of an event."""
