"""The choice between light, dark and the system's theme. Streamlit keeps it in the browser, and so do we."""

from collections.abc import Sequence
from functools import cache

import streamlit as st
from streamlit.components.v2.types import ComponentRenderer

from chat_core.ui.viewer import Viewer

THEMES = ("System", "Light", "Dark")
# Streamlit remembers the theme for each path under this name (its frontend, version 2 of the entry).
_SCRIPT = """
const entry = (path) => `stActiveTheme-${path}-v2`;

export default function ({ data, parentElement }) {
  const group = parentElement.querySelector("[role=radiogroup]");
  group.setAttribute("aria-label", data.label);
  let chosen = "System";
  try {
    chosen = JSON.parse(localStorage.getItem(entry(location.pathname))) ?? "System";
  } catch { /* nothing was chosen that can be read */ }
  group.replaceChildren(...data.themes.map(([name, words]) => {
    const label = document.createElement("label");
    const box = document.createElement("input");
    Object.assign(box, { type: "radio", name: "theme", value: name, checked: name === chosen });
    box.onchange = () => {
      for (const path of data.paths) localStorage.setItem(entry(path), JSON.stringify(name));
      location.reload();
    };
    label.append(box, words);
    return label;
  }));
}
"""
_STYLE = """
[role=radiogroup] { display: flex; flex-wrap: wrap; gap: 0.4rem 1.25rem; font-size: 0.95rem; }
label { display: inline-flex; align-items: center; gap: 0.4rem; cursor: pointer; color: var(--st-text-color); }
input { accent-color: var(--st-primary-color); width: 1rem; height: 1rem; margin: 0; }
"""


def draw_theme_choice(viewer: Viewer, pages: Sequence[str]) -> None:
    """Draw the choice; it holds for all `pages` (their names in the address)."""
    t = viewer.texts
    _component()(
        key="theme-choice",
        data={
            "label": t.t("settings.theme"),
            "themes": [[name, t.t(f"settings.theme.{name.lower()}")] for name in THEMES],
            "paths": [f"{viewer.base}/{page}" for page in pages],
        },
    )


@cache
def _component() -> ComponentRenderer:
    return st.components.v2.component("parley_theme", html="<div role='radiogroup'></div>", css=_STYLE, js=_SCRIPT)
