"""One sentence above the composer while the agent cannot work; reading goes on."""

import streamlit as st

from chat_core.process_workbench import process_workbench
from chat_core.ui.markdown import plain
from chat_core.ui.viewer import Viewer
from chat_core.workbench import Workbench

_TICK_SECONDS = 1.5


def draw_bridge_notice(viewer: Viewer, workbench: Workbench) -> None:
    """Say what is wrong with the Bridge or the store, and look again by itself until it is right."""
    t, state = viewer.texts, workbench.bridge_state()
    trouble = workbench.trouble()
    if trouble:
        _draw("bridge-trouble", plain(t.t("bridge.trouble", reason=trouble)))
    if state.status == "ready":
        return
    words = t.t(f"bridge.{state.status}")
    if state.status == "down" and state.detail and t.locale == "en":
        words = state.detail
    _draw(f"bridge-{state.status}", words if state.status == "not_installed" else plain(words))
    if state.status != "not_installed":
        st.fragment(_look_again, run_every=_TICK_SECONDS)(state.status)


def _look_again(seen: str) -> None:
    if process_workbench().bridge_state().status != seen:
        st.rerun()


def _draw(key: str, words: str) -> None:
    with st.container(key=key):
        st.markdown(f":material/info: {words}")
