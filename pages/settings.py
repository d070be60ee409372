"""The settings page: what is set up, what is wrong with it, and how to change it. It never shows a key."""

import streamlit as st

from chat_core.errors import ParleyError
from chat_core.i18n import LOCALES
from chat_core.process_workbench import process_workbench
from chat_core.ui.first_screen import MODEL_EXAMPLE
from chat_core.ui.markdown import plain
from chat_core.ui.theme_choice import draw_theme_choice
from chat_core.ui.viewer import choose_language, current_viewer

viewer, workbench = current_viewer(), process_workbench()
t, user, settings = viewer.texts, viewer.user, workbench.settings
HOST_TOOLSETS = ("terminal", "file")

try:
    health = workbench.bridge_health(user) if workbench.bridge_state().status == "ready" else None
except ParleyError:
    health = None


def code(text: object) -> str:
    return f"`{str(text).replace('`', '')}`"


def heading(name: str) -> None:
    st.subheader(plain(t.t(f"settings.{name}")), anchor=False)


def choose_locale() -> None:
    choose_language(str(st.session_state.get("settings-language", "")))


st.header(plain(t.t("settings.title")), anchor=False)

with st.container(key="settings-models"):
    heading("models")
    if health is None:
        st.markdown(f":material/info: {plain(t.t('settings.bridge_away'))}")
    for problem in health.problems if health else []:
        st.markdown(f":red[:material/error:] {plain(problem)}")
    for model in workbench.models(user) if health else []:
        parts = [t.t(f"settings.model.{model.kind}")]
        if model.context_window:
            parts.append(t.t("settings.model.window", count=t.number(model.context_window)))
        if not model.tools:
            parts.append(t.t("settings.model.no_tools"))
        mark = f" :blue-badge[{plain(t.t('settings.model.default'))}]" if model.is_default else ""
        st.markdown(f"**{plain(model.label)}**{mark}  \n:small[:gray[{plain(' · '.join(parts))}]]")
    with st.expander(t.t("settings.add"), key="settings-add", type="compact"):
        where = "settings.add_elsewhere" if settings.bridge_url else "settings.add_text"
        st.markdown(t.t(where, file=code(settings.models_file)))
        st.code(MODEL_EXAMPLE, language="toml")
        st.markdown(t.t("settings.add_key"))
        st.markdown(t.t("settings.add_environment"))

with st.container(key="settings-tools"):
    heading("tools")
    toolsets = health.toolsets if health else [] if settings.bridge_url else settings.toolsets.split(",")
    for name in toolsets:
        words = t.t(f"settings.toolset.{name}") if t.has(f"settings.toolset.{name}") else ""
        st.markdown(f"{code(name)} {plain(words)}")
    if not toolsets:
        st.markdown(plain(t.t("settings.tools_unknown")))
    reaches_host = any(name in toolsets for name in HOST_TOOLSETS)
    with st.container(key="notice-sandbox" if reaches_host else "settings-sandbox"):
        st.markdown(t.t("settings.sandbox" if reaches_host else "settings.no_host"))
    st.caption(t.t("settings.tools_change"))

with st.container(key="settings-data"):
    heading("data")
    st.markdown(t.t("settings.data_folder", folder=code(settings.data_dir)))
    st.markdown(t.t("settings.backup"))
    st.code("make backup", language=None)
    st.markdown(t.t("settings.restore"))
    st.code("make restore FROM=/path/to/file.tar.gz", language=None)
    days = settings.log_retention_days
    st.caption(t.n("settings.retention", days) if days else t.t("settings.retention_none"))

with st.container(key="settings-look"):
    heading("look")
    st.session_state["settings-language"] = t.locale
    st.segmented_control(
        t.t("settings.language"),
        list(LOCALES),
        format_func=LOCALES.__getitem__,
        key="settings-language",
        required=True,
        on_change=choose_locale,
    )
    st.caption(t.t("settings.theme"))
    draw_theme_choice(viewer, ("", "analytics", "settings"))
