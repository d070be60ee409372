"""The branch map: the whole tree of a session in a dialog. A click looks at a message; it makes no branch active."""

from typing import Any

import streamlit as st

from chat_core.errors import NotFound
from chat_core.i18n import Texts
from chat_core.models import OutlineMessage, Session
from chat_core.process_workbench import process_workbench
from chat_core.ui.address import go_to_message, linked_message
from chat_core.ui.branch_rows import UNFOLD_STEP, MapRow, branch_rows
from chat_core.ui.components import asset_url, component
from chat_core.ui.markdown import preview_words
from chat_core.ui.transcript import Choices
from chat_core.ui.view_state import view_state
from chat_core.ui.viewer import Viewer, current_viewer

_SCRIPT = "branch_map.js"
_KEY = "branch-map"
_LONGEST_START = 120


def draw_map_button(viewer: Viewer) -> None:
    """Draw the button that opens the map."""
    st.button(
        viewer.texts.t("tree.open"), key="open-map", type="tertiary", icon=":material/account_tree:", on_click=_open
    )


def draw_branch_map(viewer: Viewer, session: Session, choices: Choices) -> None:
    """Draw the dialog when somebody opened it. Call it from the page itself, never from a fragment."""
    if view_state().dialog == "map":
        dialog = st.dialog(viewer.texts.t("tree.title"), width="large", on_dismiss=close_branch_map)
        dialog(_draw)(session, choices)


def close_branch_map() -> None:
    view = view_state()
    view.dialog, view.unfolded = "", {}


def _draw(session: Session, choices: Choices) -> None:
    viewer, view = current_viewer(), view_state()
    t = viewer.texts
    try:
        outline = process_workbench().outline(viewer.user, session.uuid)
    except NotFound:
        st.caption(t.t("chat.unknown_session"))
        return
    here = linked_message() or view.shown_at.get(session.uuid, "")
    rows = branch_rows(outline, unfolded=view.unfolded, keep=here)
    component("branch_map")(
        key=_KEY,
        data={
            "module": asset_url(_SCRIPT, viewer.base),
            "rows": [map_row(row, viewer, choices, here) for row in rows],
            "texts": t.group("tree"),
        },
        on_go_change=lambda: _go(session.uuid),
        on_unfold_change=_unfold,
        on_offline_change=_nothing,
    )


def map_row(row: MapRow, viewer: Viewer, choices: Choices, here: str) -> dict[str, Any]:
    """Return a row as the browser draws it: only text and numbers."""
    t, message = viewer.texts, row.message
    place: dict[str, Any] = {
        "lane": row.lane,
        "passing": list(row.passing),
        "link": row.link,
        "goes_on": row.goes_on,
        "active": row.is_active,
    }
    if message is None:
        return place | {"kind": "start", "words": t.t("tree.start")}
    if row.folded:
        return place | {"kind": "fold", "fold": row.fold, "words": t.n("tree.folded", row.folded)}
    facts = [t.t(f"tree.who.{message.role}")]
    if row.versions > 1:
        facts.append(t.t("tree.version", index=row.version, count=row.versions))
    if message.role == "ASSISTANT" and message.model_id:
        facts.append(choices.model_label(message.model_id))
    if message.status not in ("SENT", "SUCCESS", "RESET", "SUMMARY"):
        facts.append(t.t(f"tree.status.{message.status}"))
    facts.append(t.moment(message.created_at, viewer.zone, viewer.now))
    return place | {
        "kind": "message",
        "message": message.uuid,
        "role": message.role,
        "status": message.status,
        "words": _words(message, t),
        "facts": facts,
        "here": message.uuid == here,
        "versions": row.versions,
    }


def _words(message: OutlineMessage, t: Texts) -> str:
    if message.status == "RESET":
        return t.t("tree.reset")
    return preview_words(message.start, _LONGEST_START) or t.t("tree.no_text")


def _open() -> None:
    view = view_state()
    view.dialog, view.unfolded = "map", {}


def _go(session_id: str) -> None:
    message_id = _value("go", "message")
    if not message_id:
        return
    close_branch_map()
    go_to_message(session_id, message_id)
    st.rerun()


def _unfold() -> None:
    fold, unfolded = _value("unfold", "fold"), view_state().unfolded
    if fold:
        unfolded[fold] = unfolded.get(fold, 0) + UNFOLD_STEP


def _value(event: str, name: str) -> str:
    """Return what the browser said; only inside the callback it caused. Nonsense is nothing."""
    state = st.session_state.get(_KEY)
    said = state.get(event) if state is not None else None
    value = said.get(name) if isinstance(said, dict) else None
    return value if isinstance(value, str) else ""


def _nothing() -> None:
    """A callback is what makes Streamlit know the name of an event."""
