"""What one browser tab looks at. Nothing here is missed after a reload: the rest is in the URL and the database."""

from dataclasses import dataclass, field
from datetime import datetime

import streamlit as st

from chat_core.i18n import Locale
from chat_core.ui.composer import Refused


@dataclass(frozen=True, slots=True)
class Deleted:
    session_id: str
    title: str
    until: datetime


@dataclass(slots=True)
class ViewState:
    language: Locale | None = None
    last_session: str = ""
    """The session shown last, to come back to from another page."""
    earlier_windows: dict[str, int] = field(default_factory=dict)
    """How many windows of older messages are loaded, by session."""
    opened_records: set[str] = field(default_factory=set)
    """Messages whose record has been opened."""
    editing: str | None = None
    """The USER message whose text is being edited."""
    copy_text: str = ""
    copied: str | None = None
    """The message that was copied last."""
    copy_count: int = 0
    notices: dict[str, str] = field(default_factory=dict)
    """Why an action was refused, by the place where it was asked for."""
    accepted: str | None = None
    refused: Refused | None = None
    offline_runs: set[str] = field(default_factory=set)
    """Runs whose live panel has no stream; the page draws them itself."""
    scrolled_to: str = ""
    """The linked message that has already been scrolled to."""
    adding_model: bool = False
    list_query: str = ""
    list_pages: int = 1
    list_archived: bool = False
    renaming: str | None = None
    deleting: str | None = None
    deleted: Deleted | None = None
    """The session deleted last, while it can still be brought back."""


def view_state() -> ViewState:
    """Return the view of this browser tab."""
    if "view" not in st.session_state:
        st.session_state["view"] = ViewState()
    state: ViewState = st.session_state["view"]
    return state
