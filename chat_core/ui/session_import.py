"""Brings a conversation in from the JSON file of an export."""

import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from chat_core.process_workbench import process_workbench
from chat_core.ui.actions import attempt
from chat_core.ui.address import go_to_session
from chat_core.ui.markdown import plain
from chat_core.ui.view_state import view_state
from chat_core.ui.viewer import Viewer, current_viewer

LIMIT_MB = 50
_PLACE = "import"


def open_import() -> None:
    view_state().dialog = "import"


def draw_import(viewer: Viewer) -> None:
    """Draw the dialog when it is open."""
    if view_state().dialog == "import":
        st.dialog(viewer.texts.t("desk.import_title"), on_dismiss=_close)(_draw)()


def _close() -> None:
    view = view_state()
    view.dialog = ""
    view.notices.pop(_PLACE, None)
    view.imports += 1  # the next dialog begins without the file of this one


def _draw() -> None:
    t, view = current_viewer().texts, view_state()
    st.markdown(plain(t.t("desk.import_text")))
    key = f"import-file-{view.imports}"
    st.file_uploader(
        t.t("desk.import_file"),
        type="json",
        key=key,
        max_upload_size=LIMIT_MB,
        on_change=_import_chosen,
        args=(key,),
    )
    if _PLACE in view.notices:
        with st.container(key="notice-import"):
            st.markdown(f":material/error: {plain(view.notices[_PLACE])}")


def _import_chosen(key: str) -> None:
    chosen = st.session_state.get(key)
    if isinstance(chosen, UploadedFile):
        import_file(chosen.getvalue())
    else:
        view_state().notices.pop(_PLACE, None)


def import_file(data: bytes) -> None:
    """Store the conversation and open it; the same file again opens the one that is there."""
    workbench, viewer, view = process_workbench(), current_viewer(), view_state()
    found = attempt(_PLACE, lambda: workbench.import_session(viewer.user, data))
    if found is None:
        return
    session, created = found
    _close()
    view.notices["page"] = viewer.texts.t("desk.imported" if created else "desk.imported_before")
    go_to_session(session.uuid)
    st.rerun()
