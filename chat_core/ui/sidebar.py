"""The sidebar: *New chat*, search, and the list of sessions, which refreshes itself only while a run is at work."""

from collections.abc import Iterator

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from chat_core.errors import NotFound
from chat_core.i18n import Texts, day_group
from chat_core.models import SearchHit, SessionPage, SessionRow, SessionStatus
from chat_core.process_workbench import process_workbench
from chat_core.ui.actions import attempt
from chat_core.ui.address import shown_session
from chat_core.ui.chrome import draw_language
from chat_core.ui.deletion import delete, draw_undo, undo_is_offered
from chat_core.ui.markdown import plain, plain_part, preview_words
from chat_core.ui.session_import import open_import
from chat_core.ui.session_selection import begin_selection, draw_selectable_rows, draw_selection_bar, end_selection
from chat_core.ui.view_state import view_state
from chat_core.ui.viewer import Viewer, current_viewer
from chat_core.workbench import Workbench

PAGE_ROWS = 30
TICK_SECONDS = 3
IDLE_SECONDS = 20
"""How soon a quiet tab learns of a run that was started in another one."""
MAX_ROWS = 150
"""Rows on one page of the list; more come on further pages, so that it stays quick with thousands of sessions."""
_LIST_MENU_KEY = "list-menu"
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
        st.fragment(draw_session_list, run_every=TICK_SECONDS if ticking else IDLE_SECONDS)(chat_page, ticking)
        with st.container(key="sidebar-foot", horizontal=True, vertical_alignment="center", gap="small"):
            for page in pages:
                st.page_link(page, label=page.title)
            draw_language(viewer)


def draw_session_list(chat_page: StreamlitPage, ticking: bool) -> None:
    """Draw search and rows. Runs by itself as a fragment; changes its own pace by one run of the whole page."""
    workbench, viewer, view = process_workbench(), current_viewer(), view_state()
    if ticking != _must_look_again(viewer, workbench):
        st.rerun()
    t = viewer.texts
    with st.container(key="list-head", horizontal=True, vertical_alignment="center", gap="small"):
        st.text_input(
            t.t("nav.search"),
            key=_SEARCH_KEY,
            type="search",
            placeholder=t.t("nav.search"),
            label_visibility="collapsed",
            live=True,
            on_change=_search,
        )
        st.menu_button(
            t.t("desk.list_menu"),
            ["select", "import"],
            key=_LIST_MENU_KEY,
            type="tertiary",
            icon=":material/more_vert:",
            format_func=lambda option: t.t(f"desk.{option}"),
            on_click=_list_menu_chosen,
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
    draw_undo(viewer)
    draw_selection_bar(viewer)
    for place in ("sidebar", "download"):
        if place in view.notices:
            with st.container(key=f"notice-{place}"):
                st.markdown(plain(view.notices[place]))
    if view.list_pages_before and not view.list_query:
        st.button(
            t.t("desk.newer"), key="list-newer", type="tertiary", icon=":material/expand_less:", on_click=_show_newer
        )
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
    return workbench.has_activity(viewer.user) or undo_is_offered(viewer)


def _draw_rows(viewer: Viewer, chat_page: StreamlitPage, limit: int) -> bool:
    """Draw the sessions in their groups; return whether there are more."""
    view, current = view_state(), shown_session()
    status: SessionStatus = "ARCHIVED" if view.list_archived else "ACTIVE"
    found = _page_of_sessions(viewer, status, limit)
    if view.selected is not None:
        draw_selectable_rows(viewer, found.rows)
        return found.has_more
    for group, rows in _grouped(found.rows, viewer):
        st.caption(viewer.texts.t(f"session.group.{group}"))
        for row in rows:
            _draw_row(viewer, chat_page, row, current)
    if not found.rows:
        st.caption(viewer.texts.t("session.none_archived" if view.list_archived else "session.none"))
    if found.has_more and limit >= MAX_ROWS:
        st.button(
            viewer.texts.t("desk.older"),
            key="list-older",
            type="tertiary",
            icon=":material/expand_more:",
            on_click=_show_older,
            args=(found.rows[-1].session.uuid,),
        )
    return found.has_more


def _page_of_sessions(viewer: Viewer, status: SessionStatus, limit: int) -> SessionPage:
    workbench, view = process_workbench(), view_state()
    before = view.list_pages_before[-1] if view.list_pages_before else None
    try:
        return workbench.list_sessions(viewer.user, status=status, before=before, limit=limit)
    except NotFound:  # where the page before ended is gone for good
        view.list_pages_before.clear()
        return workbench.list_sessions(viewer.user, status=status, limit=limit)


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
    t, parts, last = viewer.texts, [], 0
    if hit.session.status == "ARCHIVED":
        parts.append(f"{plain(t.t('search.archived'))} · ")
    if not hit.on_active_branch:
        parts.append(f"{plain(t.t('search.other_branch'))} · ")
    for start, end in hit.matches:
        parts += [plain_part(hit.snippet[last:start]), f":primary[**{plain_part(hit.snippet[start:end])}**]"]
        last = end
    parts.append(plain_part(hit.snippet[last:]))
    return f"**{title}** :gray[{time}] :small[{''.join(parts)}]"


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


def _show_older(last: str) -> None:
    view = view_state()
    view.list_pages_before.append(last)
    view.list_pages = 1


def _show_newer() -> None:
    view = view_state()
    if view.list_pages_before:
        view.list_pages_before.pop()
    view.list_pages = MAX_ROWS // PAGE_ROWS


def _show_archived(archived: bool) -> None:
    view = view_state()
    end_selection()
    view.list_pages_before.clear()
    view.list_archived, view.list_pages = archived, 1


def _list_menu_chosen() -> None:
    match st.session_state.get(_LIST_MENU_KEY):
        case "select":
            begin_selection()
        case "import":
            open_import()
            st.rerun()


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
    _leave_row()
    delete([session_id], title)
