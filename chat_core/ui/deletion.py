"""Deleting conversations from the sidebar: at once, and for a moment with a way back."""

from collections.abc import Sequence
from datetime import timedelta

import streamlit as st

from chat_core.errors import NotFound
from chat_core.process_workbench import process_workbench
from chat_core.ui.actions import attempt
from chat_core.ui.address import go_to_session, shown_session
from chat_core.ui.markdown import plain
from chat_core.ui.view_state import Deleted, view_state
from chat_core.ui.viewer import Viewer, current_viewer
from chat_core.workbench import UNDO_SECONDS


def delete(session_ids: Sequence[str], title: str) -> None:
    """Delete them together and draw the page anew; when one of them was on screen, a new chat takes its place."""
    workbench, viewer, view, shown = process_workbench(), current_viewer(), view_state(), shown_session()

    def act() -> tuple[str, ...]:
        there = []
        for session_id in session_ids:
            try:
                there.append(workbench.get_session(viewer.user, session_id).uuid)
            except NotFound:
                continue  # another tab was faster
        workbench.delete_sessions(viewer.user, there)
        return tuple(there)

    gone = attempt("sidebar", act)
    if gone is not None:
        until = viewer.now + timedelta(seconds=UNDO_SECONDS)
        view.deleted = Deleted(gone, title, until, shown if shown in gone else "") if gone else None
        if shown in session_ids:
            go_to_session("")
    st.rerun()


def undo_is_offered(viewer: Viewer) -> bool:
    deleted = view_state().deleted
    return deleted is not None and viewer.now < deleted.until


def draw_undo(viewer: Viewer) -> None:
    t, deleted = viewer.texts, view_state().deleted
    if deleted is None or not undo_is_offered(viewer):
        return
    count = len(deleted.session_ids)
    words = t.t("session.deleted", title=deleted.title) if count == 1 else t.n("desk.deleted", count)
    with st.container(key="undo", horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(plain(words), width="stretch")
        st.button(t.t("session.undo"), key="undo-delete", on_click=_undo)


def _undo() -> None:
    workbench, user, view = process_workbench(), current_viewer().user, view_state()
    deleted, view.deleted = view.deleted, None
    if deleted is None:
        return

    def act() -> bool:
        workbench.restore_sessions(user, deleted.session_ids)
        return True

    if attempt("sidebar", act) and deleted.shown and not shown_session():
        go_to_session(deleted.shown)
        st.rerun()
