"""The composer: the box where people write, with model and skill, and *Send* or *Stop*.

Drawn by `assets/composer.js`. Drafts live in the viewer's browser, one for each session, and are forgotten only when
the page confirms that it took the text (`accepted`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from chat_core.bridge.protocol import ModelChoice, SkillChoice
from chat_core.models import RunState
from chat_core.ui.components import asset_url, component

MAX_CHARACTERS = 100_000
_SCRIPT = "composer.js"


@dataclass(frozen=True, slots=True)
class Sent:
    """What a person sent. `nonce` names this one try: give it back as accepted or refused.

    `session_id` is the session that was on screen at that moment, empty for a new chat. Empty `model_id` and
    `skill_folder` mean "default" and "the agent decides".
    """

    nonce: str
    session_id: str
    text: str
    model_id: str
    skill_folder: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a text was not taken; it stays in the box with this sentence above it."""

    nonce: str
    message: str


@dataclass(frozen=True, slots=True)
class Prefill:
    """A text to put into the box, after what is there, once per `nonce`; None leaves the choice as it is."""

    nonce: str
    text: str
    model_id: str | None = None
    skill_folder: str | None = None


def composer(
    *,
    session_id: str,
    models: Sequence[ModelChoice],
    skills: Sequence[SkillChoice],
    model_id: str,
    skill_folder: str,
    run: RunState | None,
    accepted: str | None,
    refused: Refused | None,
    texts: Mapping[str, str],
    on_send: Callable[[], None],
    prefill: Prefill | None = None,
    base: str = "",
    key: str = "composer",
    autofocus: bool = True,
) -> None:
    """Show the box for `session_id` (empty: a new chat); keep `key` the same for all sessions.

    `on_send` is called when somebody sends; it gets the text by `sent_value(key)` and must see to it that this script
    run passes the nonce back as `accepted` or `refused`. `texts` are those under `composer.`. `run` is the active run:
    while there is one, *Stop* stands in the place of *Send*.
    """
    component("composer")(
        key=key,
        data={
            "module": asset_url(_SCRIPT, base),
            "base": base,
            "session": session_id,
            "models": [{"id": model.id, "label": model.label, "tools": model.tools} for model in models],
            "skills": [
                {"folder": skill.folder, "name": skill.name, "description": skill.description} for skill in skills
            ],
            "model_id": model_id,
            "skill_folder": skill_folder,
            "run": None
            if run is None
            else {"run_id": run.run_id, "status": run.status, "stop_requested": run.stop_requested},
            "accepted": accepted,
            "refused": None if refused is None else {"nonce": refused.nonce, "message": refused.message},
            "prefill": None
            if prefill is None
            else {
                "nonce": prefill.nonce,
                "text": prefill.text,
                "model": prefill.model_id,
                "skill": prefill.skill_folder,
            },
            "limit": MAX_CHARACTERS,
            "autofocus": autofocus,
            "texts": dict(texts),
        },
        on_send_change=on_send,
        on_offline_change=_nothing,
    )


def sent_value(key: str = "composer") -> Sent | None:
    """Return what was just sent; only inside the `on_send` callback. None when the browser sent nonsense."""
    state = st.session_state.get(key)
    value: Any = state.get("send") if state is not None else None
    if not isinstance(value, dict):
        return None
    fields = [value.get(name) for name in ("nonce", "session", "text", "model", "skill")]
    texts = [field for field in fields if isinstance(field, str)]
    if len(texts) != len(fields):
        return None
    nonce, session_id, text, model_id, skill_folder = texts
    return Sent(nonce=nonce, session_id=session_id, text=text, model_id=model_id, skill_folder=skill_folder)


def _nothing() -> None:
    """A callback is what makes Streamlit know the name of an event."""
