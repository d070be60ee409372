"""The sidebar: *New chat*, search, and the list of sessions, which refreshes itself only while a run is at work."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from chat_core.errors import NotFound
from chat_core.i18n import Texts, day_group
from chat_core.models import SearchHit, SessionRow, SessionStatus
from chat_core.ui.actions import attempt
from chat_core.ui.address import go_to_session, shown_session
from chat_core.ui.chrome import draw_language
from chat_core.ui.markdown import plain, plain_part, preview_words
from chat_core.ui.view_state import Deleted, view_state
from chat_core.ui.viewer import Viewer, current_viewer
from chat_core.workbench import UNDO_SECONDS, Workbench, process_workbench

PAGE_ROWS = 30
TICK_SECONDS = 3
MAX_ROWS = 600
_SEARCH_KEY = "session-search"
_LONGEST_PREVIEW = 90


def draw_sidebar(viewer: Viewer, workbench: Workbench, chat_page: StreamlitPage, pages: list[StreamlitPage]) -> None:
    """Draw the whole sidebar; `pages` are the pages to offer besides the conversations."""
    with st.sidebar:
        with st.container(key="brand", horizontal=True, vertical_alignment="center", gap="small"):
            st.markdown(f"**{plain(viewer.texts.t('app.name'))}**")
        with st.container(key="new-chat"):
            st.page_link(
                chat_page, label=viewer.texts.t("nav.new_chat"), icon=":material/edit_square:", query_params={}
            )
        ticking = _must_look_again(viewer, workbench)
        st.fragment(draw_session_list, run_every=TICK_SECONDS if ticking else None)(chat_page, ticking)
        with st.container(key="sidebar-foot", horizontal=True, vertical_alignment="center", gap="small"):
            for page in pages:
                st.page_link(page, label=page.title)
            draw_language(viewer)


def draw_session_list(chat_page: StreamlitPage, ticking: bool) -> None:
    """Draw search and rows. Runs by itself as a fragment; ends its own ticking by one run of the whole page."""
    workbench, viewer, view = process_workbench(), current_viewer(), view_state()
    if ticking and not _must_look_again(viewer, workbench):
        st.rerun()
    t = viewer.texts
    st.text_input(
        t.t("nav.search"),
        key=_SEARCH_KEY,
        type="search",
        placeholder=t.t("nav.search"),
        label_visibility="collapsed",
        live=True,
        on_change=_search,
    )
    if view.list_archived:
        st.button(
            t.t("session.back_from_archive"),
            key="archive-close",
            type="tertiary",
            icon=":material/arrow_back:",
            on_click=_show_archived,
            args=(False,),
        )
    _draw_undo(viewer)
    if "sidebar" in view.notices:
        st.caption(plain(view.notices["sidebar"]))
    limit = min(PAGE_ROWS * view.list_pages, MAX_ROWS)
    with st.container(key="session-list", gap=None):
        has_more = _draw_hits(viewer, chat_page, limit) if view.list_query else _draw_rows(viewer, chat_page, limit)
    if has_more and limit < MAX_ROWS:
        st.button(t.t("session.show_more"), key="list-more", type="tertiary", on_click=_show_more)
    if not view.list_archived and not view.list_query:
        st.button(
            t.t("session.show_archived"),
            key="archive-open",
            type="tertiary",
            icon=":material/archive:",
            on_click=_show_archived,
            args=(True,),
        )


def _must_look_again(viewer: Viewer, workbench: Workbench) -> bool:
    """Whether the list changes by itself: a run is at work, or an undo is on offer."""
    deleted = view_state().deleted
    return workbench.has_activity(viewer.user) or (deleted is not None and viewer.now < deleted.until)


def _draw_rows(viewer: Viewer, chat_page: StreamlitPage, limit: int) -> bool:
    """Draw the sessions in their groups; return whether there are more."""
    view, current = view_state(), shown_session()
    status: SessionStatus = "ARCHIVED" if view.list_archived else "ACTIVE"
    found = process_workbench().list_sessions(viewer.user, status=status, limit=limit)
    for group, rows in _grouped(found.rows, viewer):
        st.caption(viewer.texts.t(f"session.group.{group}"))
        for row in rows:
            _draw_row(viewer, chat_page, row, current)
    if not found.rows:
        st.caption(viewer.texts.t("session.none_archived" if view.list_archived else "session.none"))
    return found.has_more


def _draw_hits(viewer: Viewer, chat_page: StreamlitPage, limit: int) -> bool:
    """Draw the titles and messages that hold what was searched for; return whether there are more."""
    view, t = view_state(), viewer.texts
    found = process_workbench().search(viewer.user, view.list_query, limit=limit)
    st.caption(t.t("session.group.found") if found.hits else plain(t.t("session.none_found", query=view.list_query)))
    for at, hit in enumerate(found.hits):
        query = {"session": hit.session.uuid} | ({"message": hit.message_uuid} if hit.message_uuid else {})
        with st.container(key=f"session-hit-{at}", gap=None):
            st.page_link(chat_page, label=hit_label(hit, viewer), query_params=query, width="stretch")
    return found.next_before is not None


def hit_label(hit: SearchHit, viewer: Viewer) -> str:
    """Return a hit's label as Markdown: **title**, time, then the words around the match, which is set off."""
    title = plain(hit.session.title) or plain(viewer.texts.t("session.untitled"))
    time = plain(viewer.texts.row_time(hit.at, viewer.zone, viewer.now))
    parts, last = [], 0
    for start, end in hit.matches:
        parts += [plain_part(hit.snippet[last:start]), f":primary[{plain_part(hit.snippet[start:end])}]"]
        last = end
    parts.append(plain_part(hit.snippet[last:]))
    return f"**{title}** :gray[{time}] :small[{''.join(parts)}]"


def _draw_undo(viewer: Viewer) -> None:
    t, deleted = viewer.texts, view_state().deleted
    if deleted is None or viewer.now >= deleted.until:
        return
    with st.container(key="undo", horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(plain(t.t("session.deleted", title=deleted.title)), width="stretch")
        st.button(t.t("session.undo"), key="undo-delete", on_click=_undo_delete)


def row_label(row: SessionRow, viewer: Viewer, is_current: bool) -> str:
    """Return a row's label as Markdown: **title**, then time or mark, then the preview or what the session does."""
    t = viewer.texts
    title = plain(_title(row, t)) or t.t("session.untitled")
    since = t.since(row.since, viewer.now) if row.since else ""
    time = plain(t.row_time(row.session.last_message_at, viewer.zone, viewer.now))
    unseen = row.unseen and not is_current
    match row.run_status:
        case "WAITING":
            words = t.t("session.waiting_since", since=since) if since else t.t("session.waiting")
            second = f":orange-badge[{plain(words)}]"
        case "RUNNING":
            second = f":small[{plain(t.t('session.running_since', since=since) if since else t.t('session.running'))}]"
        case "FAILED" if unseen:
            second = f":red[{plain(t.t('session.failed'))}]"
        case _:
            second = f":small[{plain(preview_words(row.preview, _LONGEST_PREVIEW))}]"
    mark = " :primary[●]" if unseen else ""
    return f"**{title}** :gray[{time}]{mark} {second}"


def _draw_row(viewer: Viewer, chat_page: StreamlitPage, row: SessionRow, current: str) -> None:
    view, session_id = view_state(), row.session.uuid
    is_current = session_id == current
    if view.renaming == session_id:
        _draw_rename(viewer, row)
        return
    if view.deleting == session_id:
        _draw_delete(viewer, row)
        return
    kind = "current" if is_current else "row"
    with st.container(key=f"session-{kind}-{session_id}", gap=None):
        st.page_link(
            chat_page,
            label=row_label(row, viewer, is_current),
            icon="spinner" if row.run_status == "RUNNING" else "",
            query_params={"session": session_id},
            width="stretch",
        )
        _draw_menu(viewer, row)


def _title(row: SessionRow, t: Texts) -> str:
    return row.session.title or row.preview[:60] or t.t("session.untitled")


def _draw_menu(viewer: Viewer, row: SessionRow) -> None:
    t = viewer.texts
    options = ["rename", "unpin" if row.session.pinned else "pin"]
    if row.run_status not in ("RUNNING", "WAITING"):
        options.append("reset")
    options += ["restore" if row.session.status == "ARCHIVED" else "archive", "delete"]
    key = f"menu-{row.session.uuid}"
    st.menu_button(
        t.t("session.menu_of"),
        options,
        key=key,
        type="tertiary",
        icon=":material/more_horiz:",
        format_func=lambda option: t.t(f"session.{option}"),
        on_click=_menu_chosen,
        args=(row.session.uuid, key, _title(row, t), row.run_status in ("RUNNING", "WAITING")),
    )


def _draw_rename(viewer: Viewer, row: SessionRow) -> None:
    t, session_id = viewer.texts, row.session.uuid
    with st.container(key=f"session-rename-{session_id}", gap="small"):
        st.text_input(
            t.t("session.title_label"),
            value=row.session.title,
            key=f"title-{session_id}",
            max_chars=200,
            label_visibility="collapsed",
            on_change=_renamed,
            args=(session_id,),
        )
        st.button(t.t("session.cancel"), key=f"title-cancel-{session_id}", type="tertiary", on_click=_leave_row)


def _draw_delete(viewer: Viewer, row: SessionRow) -> None:
    t, session_id = viewer.texts, row.session.uuid
    with st.container(key=f"session-delete-{session_id}", gap="small"):
        st.markdown(plain(f"{t.t('session.delete_ask', title=_title(row, t))} {t.t('session.delete_running')}"))
        with st.container(horizontal=True, gap="small"):
            st.button(
                t.t("session.delete_yes"),
                key=f"delete-yes-{session_id}",
                on_click=_delete,
                args=(session_id, _title(row, t)),
            )
            st.button(t.t("session.cancel"), key=f"delete-no-{session_id}", type="tertiary", on_click=_leave_row)


def _grouped(rows: list[SessionRow], viewer: Viewer) -> Iterator[tuple[str, list[SessionRow]]]:
    groups: dict[str, list[SessionRow]] = {}
    for row in rows:
        session = row.session
        group = "pinned" if session.pinned else day_group(session.last_message_at, viewer.zone, viewer.now)
        groups.setdefault(group, []).append(row)
    yield from groups.items()


def _search() -> None:
    view = view_state()
    view.list_query = str(st.session_state.get(_SEARCH_KEY) or "").strip()
    view.list_pages = 1


def _show_more() -> None:
    view_state().list_pages += 1


def _show_archived(archived: bool) -> None:
    view = view_state()
    view.list_archived, view.list_pages = archived, 1


def _leave_row() -> None:
    view = view_state()
    view.renaming = view.deleting = None


def _menu_chosen(session_id: str, key: str, title: str, is_running: bool) -> None:
    view, chosen = view_state(), st.session_state.get(key)
    workbench, user = process_workbench(), current_viewer().user
    _leave_row()
    match chosen:
        case "rename":
            view.renaming = session_id
        case "delete" if is_running:
            view.deleting = session_id
        case "delete":
            _delete(session_id, title)
        case "pin" | "unpin":
            attempt("sidebar", lambda: workbench.update_session(user, session_id, pinned=chosen == "pin"))
        case "reset":
            attempt("sidebar", lambda: workbench.reset(user, session_id))
            st.rerun()
        case "archive":
            attempt("sidebar", lambda: workbench.update_session(user, session_id, status="ARCHIVED"))
        case "restore":
            attempt("sidebar", lambda: workbench.update_session(user, session_id, status="ACTIVE"))


def _renamed(session_id: str) -> None:
    workbench, user = process_workbench(), current_viewer().user
    title = str(st.session_state.get(f"title-{session_id}") or "").strip()
    _leave_row()
    if title:
        attempt("sidebar", lambda: workbench.update_session(user, session_id, title=title))


def _delete(session_id: str, title: str) -> None:
    """Delete at once; for a moment it can be undone."""
    workbench, user, view = process_workbench(), current_viewer().user, view_state()
    _leave_row()

    def act() -> None:
        with suppress(NotFound):  # another tab was faster
            workbench.delete_session(user, session_id)
            view.deleted = Deleted(session_id, title, current_viewer().now + timedelta(seconds=UNDO_SECONDS))
        if shown_session() == session_id:
            go_to_session("")

    attempt("sidebar", act)
    st.rerun()


def _undo_delete() -> None:
    workbench, user, view = process_workbench(), current_viewer().user, view_state()
    deleted, view.deleted = view.deleted, None
    if deleted is not None:
        attempt("sidebar", lambda: workbench.restore_session(user, deleted.session_id))
