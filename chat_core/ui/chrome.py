"""What every page has round it: title, icon, style, the browser's small services, the language."""

from functools import cache
from pathlib import Path

import streamlit as st
from streamlit.components.v2.types import ComponentRenderer

from chat_core.i18n import LOCALES
from chat_core.ui.components import ASSETS
from chat_core.ui.view_state import view_state
from chat_core.ui.viewer import LANGUAGE_COOKIE, Viewer, choose_language

_STYLE = Path(__file__).parent / "assets" / "page.css"
_LANGUAGE_KEY = "language"

# Copying must begin inside the click: a browser lets a page write to the clipboard only then. The click promises a
# text, and the script run that it causes delivers it.
_SERVICES = """
const services = (globalThis[Symbol.for("parley.services")] ??= { copied: 0, deliver: null });

function onClick(event) {
  if (window.innerWidth <= 768 && event.target.closest?.(".st-key-session-list a, .st-key-new-chat a")) {
    // On a narrow screen the sidebar lies over the conversation that was just chosen.
    setTimeout(() => document.querySelector('[data-testid="stSidebarCollapseButton"] button')?.click(), 0);
  }
  const button = event.target.closest?.('[class*="st-key-copy-"] button');
  if (!button || !navigator.clipboard?.write || !window.ClipboardItem) return;
  const text = new Promise((resolve, reject) => {
    services.deliver = (value) => resolve(new Blob([value], { type: "text/plain" }));
    setTimeout(() => reject(new Error("no text came")), 4000);
  });
  navigator.clipboard.write([new ClipboardItem({ "text/plain": text })]).catch(() => { services.deliver = null; });
}

function copy(text) {
  if (services.deliver) {
    services.deliver(text);
    services.deliver = null;
    return;
  }
  const box = document.createElement("textarea");
  box.value = text;
  document.body.append(box);
  box.select();
  document.execCommand("copy");
  box.remove();
}

export default function ({ data }) {
  if (!services.listening) {
    services.listening = true;
    document.addEventListener("click", onClick, true);
  }
  document.documentElement.lang = data.language;
  if (data.remember) {
    document.cookie = `${data.cookie}=${data.remember}; path=/; max-age=31536000; SameSite=Lax`;
  }
  if (data.copy_count > services.copied) {
    services.copied = data.copy_count;
    copy(data.copy_text);
  } else if (data.copy_count < services.copied) {
    services.copied = data.copy_count;
  }
}
"""


def set_page(title: str) -> None:
    """Name the page in the browser's tab, and fix its frame; before anything else is drawn."""
    st.set_page_config(
        page_title=title, page_icon=str(ASSETS / "favicon.png"), layout="centered", initial_sidebar_state="auto"
    )


def set_title(title: str) -> None:
    """Name what is open in the browser's tab, after the page was set."""
    st.set_page_config(page_title=title)


def draw_style() -> None:
    st.html(_STYLE)


def draw_services(viewer: Viewer) -> None:
    """Mount what only the browser can do: clipboard and cookie. It shows nothing."""
    view = view_state()
    with st.container(key="services", height=1):
        _services()(
            key="page-services",
            data={
                "language": viewer.texts.locale,
                "remember": view.language,
                "cookie": LANGUAGE_COOKIE,
                "copy_text": view.copy_text,
                "copy_count": view.copy_count,
            },
        )


@cache
def _services() -> ComponentRenderer:
    return st.components.v2.component("parley_services", js=_SERVICES)


def draw_language(viewer: Viewer) -> None:
    """Let the viewer choose the language; each is named in itself."""
    st.menu_button(
        LOCALES[viewer.texts.locale],
        list(LOCALES),
        key=_LANGUAGE_KEY,
        type="tertiary",
        icon=":material/translate:",
        format_func=lambda locale: LOCALES[locale],
        on_click=_language_chosen,
    )


def _language_chosen() -> None:
    choose_language(str(st.session_state.get(_LANGUAGE_KEY, "")))
