"""Who looks at the page: the user, their language, their time zone, and this moment."""

from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import streamlit as st

from chat_core.i18n import Texts, choose_locale, zone_named
from chat_core.models import LOCAL_USER, User
from chat_core.ui.view_state import view_state

LANGUAGE_COOKIE = "parley_language"


@dataclass(frozen=True, slots=True)
class Viewer:
    """What every piece of a page needs to know of the person in front of it."""

    user: User
    texts: Texts
    zone: ZoneInfo
    now: datetime
    base: str
    """The path the app is served under: empty, or `/name`."""


def current_viewer() -> Viewer:
    """Read the viewer of this script run from the browser's connection."""
    chosen = view_state().language or st.context.cookies.get(LANGUAGE_COOKIE)
    path = str(st.get_option("server.baseUrlPath") or "").strip("/")
    return Viewer(
        user=LOCAL_USER,
        texts=Texts(choose_locale(chosen, st.context.locale)),
        zone=zone_named(st.context.timezone),
        now=datetime.now(UTC),
        base=f"/{path}" if path else "",
    )


def choose_language(locale: str) -> None:
    """Speak this language from now on; the browser is asked to remember it."""
    view_state().language = choose_locale(locale, None)
