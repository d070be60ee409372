"""What a new chat shows before anything was asked: what this is, three examples, and where to add a model."""

from pathlib import Path

import streamlit as st

from chat_core.bridge.protocol import ModelChoice
from chat_core.ui import actions
from chat_core.ui.markdown import plain
from chat_core.ui.transcript import Choices
from chat_core.ui.view_state import view_state
from chat_core.ui.viewer import Viewer

LOCAL_MODEL = "local"
TOUR_MODEL = "tour"


def draw_first_screen(viewer: Viewer, choices: Choices, models_file: Path, session_id: str = "") -> None:
    t = viewer.texts
    with st.container(key="first-screen"):
        st.header(t.t("first.title"), anchor=False)
        st.markdown(plain(t.t("first.text")))
        with st.container(key="examples", horizontal=True, gap="small"):
            _draw_example(viewer, "local", LOCAL_MODEL, t.t("first.local.label"), session_id)
            _draw_example(viewer, "tour", TOUR_MODEL, t.t("first.tour.label"), session_id)
            endpoint = _first_endpoint(choices)
            if endpoint is not None:
                _draw_example(viewer, "endpoint", endpoint.id, endpoint.label, session_id)
            else:
                with st.container(key="example-add"):
                    st.button(
                        _card(t.t("first.add.label"), t.t("first.add.ask"), t.t("first.add.note")),
                        key="add-model",
                        on_click=_show_adding,
                        width="stretch",
                    )
        if view_state().adding_model:
            with st.container(key="add-model-text"):
                st.markdown(t.t("first.add.text", file=str(models_file).replace("`", "")))
                st.code(MODEL_EXAMPLE, language="toml")
        elif endpoint is not None:
            st.button(t.t("first.add.title"), key="add-model", type="tertiary", on_click=_show_adding)


MODEL_EXAMPLE = """[[models]]
id = "my-model"
label = "My model"
base_url = "https://api.example.com/v1"
model = "model-name"
api_key_env = "MY_MODEL_KEY"
context_window = 128000"""


def _draw_example(viewer: Viewer, name: str, model_id: str, label: str, session_id: str) -> None:
    t = viewer.texts
    question = t.t(f"first.{name}.ask")
    with st.container(key=f"example-{name}"):
        st.button(
            _card(label, question, t.t(f"first.{name}.note")),
            key=f"ask-{name}",
            on_click=_ask,
            args=(question, model_id, session_id),
            width="stretch",
        )


def _card(label: str, question: str, note: str) -> str:
    return f":gray[{plain(label)}] **{plain(question)}** :small[{plain(note)}]"


def _first_endpoint(choices: Choices) -> ModelChoice | None:
    return next((model for model in choices.models if model.kind == "endpoint"), None)


def _ask(question: str, model_id: str, session_id: str) -> None:
    actions.ask(question, session_id=session_id, model_id=model_id)


def _show_adding() -> None:
    view = view_state()
    view.adding_model = not view.adding_model
