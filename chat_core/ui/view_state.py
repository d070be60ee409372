"""What one browser tab looks at. Nothing here is missed after a reload: the rest is in the URL and the database."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import streamlit as st

from chat_core.i18n import Locale
from chat_core.ui.composer import Prefill, Refused


@dataclass(frozen=True, slots=True)
class Deleted:
    """Sessions that can be brought back until a moment; `shown` is the one of them that was on screen."""

    session_ids: tuple[str, ...]
    title: str
    until: datetime
    shown: str = ""


@dataclass(frozen=True, slots=True)
class Download:
    """A file of our API: `path` below the app's base path; with `body` it is asked for by POST."""

    number: int
    path: str
    body: dict[str, Any] | None = None


@dataclass(slots=True)
class MemoryEdit:
    """One of the agent's memory files while somebody edits it: the text that was read, and what was typed."""

    base: str
    text: str


@dataclass(slots=True)
class ViewState:
    language: Locale | None = None
    last_session: str = ""
    """The session shown last, to come back to from another page."""
    last_address: str = ""
    """The session the address named last, whether it is there or not."""
    rescued: Prefill | None = None
    """A text that was sent into a session that is gone: the composer takes it back."""
    loaded: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """How many windows are loaded above and below, by session and the message it was opened at."""
    shown_at: dict[str, str] = field(default_factory=dict)
    """The last message shown, by session: it says which branch somebody was looking at."""
    hold: str = ""
    """The message that stays where it is on the screen while others come above or below it."""
    hold_count: int = 0
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
    """What was deleted last, while it can still be brought back."""
    selected: set[str] | None = None
    """The sessions ticked in the list; None while nobody selects."""
    list_pages_before: list[str] = field(default_factory=list)
    """The session each earlier page of the list ended with."""
    dialog: Literal["", "memory", "import", "map", "compare"] = ""
    unfolded: dict[str, int] = field(default_factory=dict)
    """How many messages of a folded run the branch map shows, by the name of the run."""
    comparing: str = ""
    """The answer whose versions are compared."""
    download: Download | None = None
    """The file the browser was last asked to fetch."""
    imports: int = 0
    memory_edits: dict[str, MemoryEdit] = field(default_factory=dict)
    memory_saved: str = ""


def view_state() -> ViewState:
    """Return the view of this browser tab."""
    if "view" not in st.session_state:
        st.session_state["view"] = ViewState()
    state: ViewState = st.session_state["view"]
    return state
