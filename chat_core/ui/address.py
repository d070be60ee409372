"""The address of the chat page: `?session=<uuid>` names the session, `&message=<uuid>` a message in it."""

import re
from urllib.parse import urlencode, urlsplit

import streamlit as st

from chat_core.errors import NotFound
from chat_core.models import Session, User
from chat_core.workbench import Workbench

_UUID = re.compile(r"[0-9a-fA-F-]{8,64}")


def shown_session() -> str:
    """Return the session id of the address, or an empty text for a new chat."""
    return _checked(st.query_params.get("session", ""))


def linked_message() -> str:
    """Return the message id of the address, or an empty text."""
    return _checked(st.query_params.get("message", ""))


def go_to_session(session_id: str) -> None:
    """Show the active branch of a session; the browser's Back returns to what was shown before."""
    if shown_session() != session_id or linked_message():
        st.query_params.from_dict({"session": session_id} if session_id else {})


def go_to_message(session_id: str, message_id: str) -> None:
    """Look at one message of a session, on the branch that holds it; nothing stored changes."""
    if (shown_session(), linked_message()) != (session_id, message_id):
        st.query_params.from_dict({"session": session_id, "message": message_id})


def address_of(session_id: str, message_id: str, base: str = "") -> str:
    """Return the link to a message, as somebody else can open it."""
    here = urlsplit(st.context.url or "")
    start = f"{here.scheme}://{here.netloc}" if here.netloc else ""
    return f"{start}{base}/?{urlencode({'session': session_id, 'message': message_id})}"


def keep_in_address_bar() -> None:
    """Let the browser show the address that is open: it leaves that out when a link leads to the same page."""
    st.query_params.from_dict(st.query_params.to_dict())


def open_session(workbench: Workbench, user: User) -> tuple[Session | None, bool]:
    """Return the session of the address, and whether the address names one that is not there."""
    session_id = st.query_params.get("session", "")
    if not session_id:
        return None, False
    try:
        return workbench.get_session(user, _checked(session_id)), False
    except NotFound:
        return None, True


def _checked(value: str) -> str:
    return value if _UUID.fullmatch(value) else ""
