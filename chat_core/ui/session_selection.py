"""Selecting many conversations in the sidebar, to archive, export or delete them together."""

from collections.abc import Sequence

import streamlit as st

from chat_core.models import SessionRow, SessionStatus
from chat_core.process_workbench import process_workbench
from chat_core.ui.actions import attempt
from chat_core.ui.deletion import delete
from chat_core.ui.download import download
from chat_core.ui.markdown import plain
from chat_core.ui.view_state import view_state
from chat_core.ui.viewer import Viewer, current_viewer

MOST = 500
"""As many as the API exports in one archive."""


def begin_selection() -> None:
    view = view_state()
    view.selected, view.deleting, view.renaming = set(), None, None


def end_selection() -> None:
    view = view_state()
    view.selected, view.deleting = None, None


def draw_selection_bar(viewer: Viewer) -> None:
    """Draw how many are selected and what can be done with them; only while somebody selects."""
    view, t = view_state(), viewer.texts
    if view.selected is None:
        return
    chosen, nothing = tuple(sorted(view.selected)), not view.selected
    with st.container(key="selection", gap="small"):
        with st.container(key="selection-head", horizontal=True, vertical_alignment="center", gap="small"):
            st.markdown(plain(t.n("desk.selected", len(chosen))), width="stretch")
            st.button(t.t("desk.select_end"), key="select-end", type="tertiary", on_click=end_selection)
        if view.deleting == "many":
            st.markdown(plain(f"{t.n('desk.delete_many_ask', len(chosen))} {t.t('desk.delete_many_running')}"))
            with st.container(horizontal=True, gap="small"):
                st.button(t.t("session.delete_yes"), key="delete-many-yes", on_click=_delete, args=(chosen,))
                st.button(t.t("session.cancel"), key="delete-many-no", type="tertiary", on_click=_keep)
            return
        archive = "restore" if view.list_archived else "archive"
        with st.container(key="selection-actions", horizontal=True, gap="small"):
            st.button(
                t.t(f"session.{archive}"), key="select-archive", disabled=nothing, on_click=_archive, args=(chosen,)
            )
            st.button(t.t("desk.export"), key="select-export", disabled=nothing, on_click=_export, args=(chosen,))
            st.button(t.t("desk.delete"), key="select-delete", disabled=nothing, on_click=_ask, args=(chosen,))


def draw_selectable_rows(viewer: Viewer, rows: Sequence[SessionRow]) -> None:
    """Draw a box to tick for each session, and one for all of them."""
    view, t = view_state(), viewer.texts
    selected = view.selected or set()
    shown = tuple(row.session.uuid for row in rows)
    if len(shown) > 1:
        st.session_state["select-all"] = selected.issuperset(shown)
        st.checkbox(t.t("desk.select_all"), key="select-all", on_change=_toggle_all, args=(shown,))
    for row in rows:
        key = f"select-{row.session.uuid}"
        st.session_state[key] = row.session.uuid in selected
        title = plain(row.session.title or row.preview[:60]) or t.t("session.untitled")
        time = plain(t.row_time(row.session.last_message_at, viewer.zone, viewer.now))
        st.checkbox(f"{title} :gray[:small[{time}]]", key=key, on_change=_toggle, args=(row.session.uuid, key))


def _toggle(session_id: str, key: str) -> None:
    view = view_state()
    view.selected, view.deleting = view.selected or set(), None
    if st.session_state.get(key) and len(view.selected) < MOST:
        view.selected.add(session_id)
    else:
        view.selected.discard(session_id)


def _toggle_all(shown: Sequence[str]) -> None:
    view = view_state()
    selected = view.selected or set()
    view.selected = set(list(selected.union(shown))[:MOST]) if st.session_state.get("select-all") else set()


def _archive(chosen: Sequence[str]) -> None:
    workbench, user, view = process_workbench(), current_viewer().user, view_state()
    status: SessionStatus = "ACTIVE" if view.list_archived else "ARCHIVED"

    def act() -> bool:
        workbench.archive_sessions(user, chosen, status)
        return True

    if attempt("sidebar", act):
        end_selection()


def _export(chosen: Sequence[str]) -> None:
    view_state().notices.clear()
    download("/api/chat/sessions/export", {"session_ids": list(chosen), "format": "json"})
    end_selection()
    st.rerun()


def _ask(chosen: Sequence[str]) -> None:
    """Delete at once; ask first when a run would be stopped by it."""
    workbench, user = process_workbench(), current_viewer().user
    busy = attempt("sidebar", lambda: any(workbench.active_run(user, session_id) for session_id in chosen))
    if busy:
        view_state().deleting = "many"
    elif busy is not None:
        _delete(chosen)


def _delete(chosen: Sequence[str]) -> None:
    workbench, user = process_workbench(), current_viewer().user
    end_selection()
    title = workbench.get_session(user, chosen[0]).title if len(chosen) == 1 else ""
    delete(chosen, title or current_viewer().texts.t("session.untitled"))


def _keep() -> None:
    view_state().deleting = None
