"""Every page passes here: its frame, the sidebar, and which page is shown."""

import logging
from pathlib import Path

import streamlit as st

from chat_core.errors import StoreUnavailable
from chat_core.process_workbench import process_workbench
from chat_core.ui.chrome import draw_services, draw_style, set_page
from chat_core.ui.download import draw_download
from chat_core.ui.markdown import plain
from chat_core.ui.session_import import draw_import
from chat_core.ui.sidebar import draw_sidebar
from chat_core.ui.viewer import current_viewer

viewer = current_viewer()
t = viewer.texts
set_page(t.t("app.name"))
draw_style()

folder = Path(__file__).resolve().parent
chat = st.Page(folder / "chat.py", title=t.t("nav.chat"), default=True)
others = [
    st.Page(folder / f"{name}.py", title=t.t(f"nav.{name}"), url_path=name)
    for name in ("analytics", "settings")
    if (folder / f"{name}.py").exists()
]
page = st.navigation([chat, *others], position="hidden")

try:
    workbench = process_workbench()
except StoreUnavailable as error:
    st.error(plain(t.t("app.not_started", reason=error.message)))
    st.stop()

try:
    draw_sidebar(viewer, workbench, chat, others)
    page.run()
    if page != chat:
        draw_services(viewer)
    draw_download(viewer)
    draw_import(viewer)
except Exception:
    # The edge of the app: what nobody foresaw is logged with its trace and told without it.
    logging.getLogger("chat_core.pages").exception("a page could not be drawn")
    st.error(plain(t.t("app.page_failed")))
