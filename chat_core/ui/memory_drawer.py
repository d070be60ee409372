"""The memory drawer: what the agent has in mind for this conversation, and what it keeps for all of them."""

from typing import Literal

import streamlit as st

from chat_core.errors import ParleyError
from chat_core.memory import BranchMemory, Remembered, Summary, ToolUse
from chat_core.models import Session
from chat_core.process_workbench import process_workbench
from chat_core.text import preview
from chat_core.ui.actions import attempt
from chat_core.ui.markdown import plain, preview_words, safe_markdown
from chat_core.ui.view_state import MemoryEdit, view_state
from chat_core.ui.viewer import Viewer, current_viewer
from chat_core.workbench import Workbench

MemoryName = Literal["memory", "user"]
FILES: dict[MemoryName, str] = {"memory": "MEMORY.md", "user": "USER.md"}
LISTED_MESSAGES = 60
_WORDS = 160
_ARGUMENTS = 60


def open_memory() -> None:
    view_state().dialog = "memory"


def draw_memory_drawer(viewer: Viewer, session: Session) -> None:
    """Draw the drawer when it is open; closing it keeps what was typed and not saved."""
    if view_state().dialog == "memory":
        drawer = st.dialog(viewer.texts.t("memory.title"), width="medium", position="right", on_dismiss=_close)
        drawer(_draw_views)(session.uuid)


def _close() -> None:
    view = view_state()
    view.dialog = ""
    view.notices.clear()


def _draw_views(session_id: str) -> None:
    viewer, workbench = current_viewer(), process_workbench()
    t = viewer.texts
    memory = workbench.branch_memory(viewer.user, session_id)
    names = ("working", "short", "medium", "long")
    tabs = st.tabs([t.t(f"memory.{name}") for name in names])
    for name, tab in zip(names, tabs, strict=True):
        with tab, st.container(key=f"memory-view-{name}", gap="small"):
            st.caption(t.t(f"memory.{name}_note"))
            match name:
                case "working":
                    _draw_working(viewer, memory)
                case "short":
                    _draw_tools(viewer, memory.tools)
                case "medium":
                    _draw_summaries(viewer, memory.summaries)
                case "long":
                    _draw_files(viewer, workbench)


def _draw_working(viewer: Viewer, memory: BranchMemory) -> None:
    t = viewer.texts
    _draw_gauge(viewer, memory)
    if not memory.working:
        st.markdown(plain(t.t("memory.working_empty")))
        return
    listed = memory.working[-LISTED_MESSAGES:]
    hidden = len(memory.working) - len(listed)
    words = t.n("memory.messages", len(memory.working))
    if hidden:
        words = f"{words} {t.n('memory.not_listed', hidden)}"
    st.markdown(plain(words))
    with st.container(key="memory-messages"):
        st.markdown("\n\n".join(_message_line(viewer, item) for item in listed))


def _draw_gauge(viewer: Viewer, memory: BranchMemory) -> None:
    t, tokens, window = viewer.texts, memory.tokens, memory.window
    if tokens is None:
        st.caption(t.t("memory.gauge_unknown"))
    elif window is None:
        st.caption(t.t("memory.gauge_without_window", tokens=t.number(tokens)))
    else:
        share = tokens / window
        words = t.t("memory.gauge", tokens=t.number(tokens), window=t.number(window), percent=round(share * 100))
        st.progress(min(share, 1.0), text=plain(words))


def _message_line(viewer: Viewer, item: Remembered) -> str:
    t = viewer.texts
    key = f"memory.role.{item.role}"
    who = t.t(key) if t.has(key) else item.role
    tools = " ".join(f"`{_code(name)}`" for name in item.tools)
    words = plain(_start(preview_words(item.text, _WORDS + 1), _WORDS))
    return " ".join(part for part in (f"**{plain(who)}**", tools, words) if part)


def _draw_tools(viewer: Viewer, tools: list[ToolUse]) -> None:
    t = viewer.texts
    if not tools:
        st.markdown(plain(t.t("memory.short_empty")))
    for at, use in enumerate(tools):
        state = "error" if use.is_error else "open" if use.result is None else "done"
        icon = {"error": ":red[:material/error:]", "open": ":material/pending:", "done": ":material/check:"}[state]
        arguments = plain(_start(" ".join(use.arguments.split()), _ARGUMENTS))
        time = t.duration(use.duration_ms) if use.duration_ms is not None else t.t(f"memory.tool_{state}")
        label = f"{icon} `{_code(use.tool_name)}` :small[{plain(time)}] :gray[:small[{arguments}]]"
        with st.expander(label, key=f"memory-tool-{at}", type="compact"):
            st.caption(t.t("memory.arguments"))
            st.code(preview(use.arguments), language=None, wrap_lines=True)
            if use.result is not None:
                st.caption(t.t("memory.tool_failed" if use.is_error else "memory.result"))
                st.code(preview(use.result), language=None, wrap_lines=True)


def _draw_summaries(viewer: Viewer, summaries: list[Summary]) -> None:
    t = viewer.texts
    if not summaries:
        st.markdown(plain(t.t("memory.medium_empty")))
    for at, summary in enumerate(summaries):
        words = t.n("desk.condensed", summary.condensed) if summary.condensed else t.t("message.summary")
        time = t.moment(summary.at, viewer.zone, viewer.now)
        with st.expander(plain(f"{words} · {time}"), expanded=at == 0, key=f"memory-summary-{at}"):
            st.markdown(safe_markdown(summary.text) or plain(t.t("desk.summary_empty")), anchors=False)


def _draw_files(viewer: Viewer, workbench: Workbench) -> None:
    t, state = viewer.texts, workbench.bridge_state()
    if state.status != "ready":
        st.markdown(f":material/info: {plain(t.t('memory.away'))}")
        return
    st.caption(t.t("memory.divider_note"))
    for which, name in FILES.items():
        try:
            stored = workbench.memory(viewer.user, which)
        except ParleyError:
            st.markdown(f":material/info: {plain(t.t('memory.away'))}")
            return
        _draw_file(viewer, which, name, stored.text, stored.limit)


def _draw_file(viewer: Viewer, which: MemoryName, name: str, stored: str, limit: int) -> None:
    t, view, key = viewer.texts, view_state(), f"memory-text-{which}"
    edit = view.memory_edits.get(which)
    if edit is None or edit.text == edit.base:
        edit = view.memory_edits[which] = MemoryEdit(stored, stored)
    st.session_state[key] = edit.text
    with st.container(key=f"memory-file-{which}", gap="small"):
        st.text_area(
            f"**{name}** :gray[{plain(t.t(f'memory.{which}_file'))}]",
            key=key,
            height=180,
            placeholder=t.t("memory.file_empty"),
            on_change=_typed,
            args=(which,),
        )
        place = f"memory-{which}"
        if place in view.notices:
            with st.container(key=f"notice-memory-{which}"):
                st.markdown(f":material/info: {plain(view.notices[place])}")
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            counted = plain(t.t("memory.used", used=t.number(len(edit.text)), limit=t.number(limit)))
            st.caption(f":red[{counted}]" if len(edit.text) > limit else counted, width="stretch")
            if edit.text != edit.base:
                st.button(
                    t.t("memory.revert"), key=f"memory-revert-{which}", type="tertiary", on_click=_revert, args=(which,)
                )
            elif view.memory_saved == which:
                st.caption(t.t("memory.saved"), width="content")
            st.button(t.t("memory.save"), key=f"memory-save-{which}", on_click=_save, args=(which,))


def _typed(which: MemoryName) -> None:
    view = view_state()
    view.memory_edits[which].text = str(st.session_state.get(f"memory-text-{which}") or "")
    view.memory_saved = ""
    view.notices.pop(f"memory-{which}", None)


def _revert(which: MemoryName) -> None:
    view = view_state()
    view.memory_edits.pop(which, None)
    view.notices.pop(f"memory-{which}", None)


def _save(which: MemoryName) -> None:
    """Write the file; when it is refused, or the agent changed it meanwhile, the typed text stays."""
    view, workbench, viewer = view_state(), process_workbench(), current_viewer()
    edit = view.memory_edits[which]
    view.memory_saved = ""

    def act() -> str | None:
        stored = workbench.memory(viewer.user, which).text
        if stored != edit.base:
            edit.base = stored
            return None
        return workbench.write_memory(viewer.user, which, edit.text).text

    place = f"memory-{which}"
    written = attempt(place, act)
    if written is not None:
        view.memory_edits[which] = MemoryEdit(written, written)
        view.memory_saved = which
    elif place not in view.notices:
        view.notices[place] = viewer.texts.t("memory.changed")


def _code(name: str) -> str:
    """Return a name for a code span."""
    return " ".join(name.replace("`", "'").split()) or "?"


def _start(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"
