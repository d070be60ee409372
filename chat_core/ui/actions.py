"""What a click does: one verb of the workbench each. A refusal becomes a notice at the place of the click.

These run as Streamlit callbacks, before the script draws: the page is then drawn once, from what is true afterwards.
"""

import logging
from collections.abc import Callable
from typing import TypeVar

import streamlit as st

from chat_core.errors import NotFound, ParleyError
from chat_core.process_workbench import process_workbench
from chat_core.ui.address import address_of, go_to_message, go_to_session, linked_message, open_session
from chat_core.ui.composer import Prefill, Refused, sent_value
from chat_core.ui.view_state import view_state
from chat_core.ui.viewer import current_viewer
from chat_core.ui.window import load_more, window_of

T = TypeVar("T")
_log = logging.getLogger(__name__)


def attempt(place: str, action: Callable[[], T]) -> T | None:
    """Do `action`; when it is refused, say why at `place` and return None. Earlier notices go."""
    view = view_state()
    view.notices.clear()
    view.copied = None
    try:
        return action()
    except ParleyError as error:
        view.notices[place] = current_viewer().texts.error(error)
    except Exception:
        _log.exception("an action of the page failed")
        view.notices[place] = current_viewer().texts.t("error.internal")
    return None


def send() -> None:
    """Take what the composer sent: ask in the session that was on screen, or in a new one."""
    sent = sent_value()
    if sent is None:
        return
    view = view_state()
    view.refused = None
    if ask(sent.text, session_id=sent.session_id, model_id=sent.model_id, skill_folder=sent.skill_folder):
        view.accepted = sent.nonce
    else:
        view.refused = Refused(sent.nonce, view.notices.pop("composer", ""))
        if sent.session_id and _is_gone(sent.session_id):
            view.rescued = Prefill(f"rescued-{sent.nonce}", sent.text, sent.model_id, sent.skill_folder)


def _is_gone(session_id: str) -> bool:
    try:
        process_workbench().get_session(current_viewer().user, session_id)
    except NotFound:
        return True
    return False


def ask(text: str, *, session_id: str = "", model_id: str = "", skill_folder: str = "") -> bool:
    """Ask in a session, or in a new one that is dropped again when the question is refused."""
    workbench, user = process_workbench(), current_viewer().user

    def act() -> str:
        session = session_id
        if not session:
            session = workbench.create_session(user, model_id=model_id, skill_folder=skill_folder).uuid
        try:
            branch = branch_on_screen(session) if session_id else None
            workbench.ask(user, session, text, model_id=model_id, skill_folder=skill_folder, branch=branch)
        except Exception:
            if not session_id:
                workbench.delete_session(user, session, undo_seconds=0)
            raise
        return session

    asked = attempt("composer", act)
    # Somebody may have gone to another session while this was on its way: then they stay there.
    if asked:
        on_screen, _ = open_session(workbench, user)
        if (on_screen.uuid if on_screen else "") == session_id:
            go_to_session(asked)
    return asked is not None


def branch_on_screen(session_id: str) -> str | None:
    """Return a message of the branch this tab shows: another tab, or a link, may have made that another one."""
    return view_state().shown_at.get(session_id)


def regenerate(session_id: str, message_id: str, model_key: str = "", skill_key: str = "") -> None:
    """Answer again; the keys name the selectors of another model and skill, when they were open."""
    workbench, user = process_workbench(), current_viewer().user
    model_id = st.session_state.get(model_key) if model_key else None
    skill_folder = st.session_state.get(skill_key) if skill_key else None

    def act() -> None:
        workbench.regenerate(user, message_id, model_id=model_id, skill_folder=skill_folder)
        go_to_session(session_id)

    attempt(message_id, act)


def continue_run(session_id: str, message_id: str) -> None:
    workbench, user = process_workbench(), current_viewer().user

    def act() -> None:
        workbench.continue_run(user, message_id)
        go_to_session(session_id)

    attempt(message_id, act)


def answer_message(session_id: str, message_id: str) -> None:
    """Start the run that a USER message still lacks."""
    workbench, user = process_workbench(), current_viewer().user

    def act() -> None:
        workbench.run_message(user, message_id)
        go_to_session(session_id)

    attempt(message_id, act)


def show_version(session_id: str, message_id: str, place: str) -> None:
    """Switch the fork to this version and stay there: a longer branch may put it far above its end."""
    workbench, user, view = process_workbench(), current_viewer().user, view_state()

    def act() -> None:
        workbench.activate_branch(user, message_id)
        hold(message_id)
        window = window_of(view, session_id, "")
        end = workbench.branch(user, session_id, limit=window.limit)
        if any(item.message.uuid == message_id for item in end.messages):
            go_to_session(session_id)
        else:
            go_to_message(session_id, message_id)

    attempt(place, act)


def show_run(session_id: str, message_id: str) -> None:
    """Show the branch the agent works on, wherever somebody has switched to."""
    workbench, user = process_workbench(), current_viewer().user

    def act() -> None:
        workbench.activate_branch(user, message_id)
        go_to_session(session_id)

    attempt("composer", act)


def begin_edit(message_id: str) -> None:
    view = view_state()
    view.notices.clear()
    view.editing = message_id


def cancel_edit() -> None:
    view = view_state()
    view.notices.clear()
    view.editing = None


def save_edit(session_id: str, message_id: str, text_key: str) -> None:
    """Send the new wording as a new version; when it is refused the editor stays open with its text."""
    workbench, user = process_workbench(), current_viewer().user

    def act() -> bool:
        workbench.edit_and_run(user, message_id, str(st.session_state.get(text_key, "")))
        go_to_session(session_id)
        return True

    if attempt(message_id, act):
        view_state().editing = None


def copy_message(message_id: str) -> None:
    """Hand the message's Markdown to the browser, which puts it on the clipboard."""
    workbench, user = process_workbench(), current_viewer().user
    message = attempt(message_id, lambda: workbench.message(user, message_id))
    if message is not None:
        view = view_state()
        view.copy_text, view.copied = message.content, message_id
        view.copy_count += 1


def open_comparison(message_id: str) -> None:
    """Open the dialog that shows two versions of this answer side by side."""
    view = view_state()
    view.dialog, view.comparing = "compare", message_id


def copy_link(session_id: str, message_id: str) -> None:
    """Hand the browser the link to a message."""
    view = view_state()
    view.notices.clear()
    view.copy_text = address_of(session_id, message_id, current_viewer().base)
    view.copied = f"link {message_id}"
    view.copy_count += 1


def open_record(message_id: str) -> None:
    view_state().opened_records.add(message_id)


def reset_context(session_id: str) -> None:
    workbench, user = process_workbench(), current_viewer().user
    attempt("composer", lambda: workbench.reset(user, session_id))


def load_earlier(session_id: str, first: str) -> None:
    """Show more above; the message that was the first one stays where it is on the screen."""
    load_more(view_state(), session_id, linked_message(), earlier=1)
    hold(first)


def load_later(session_id: str, last: str) -> None:
    load_more(view_state(), session_id, linked_message(), later=1)
    hold(last)


def hold(message_id: str) -> None:
    """Let this message stay where the click was, whatever comes above it or goes below it."""
    view = view_state()
    view.hold = message_id
    view.hold_count += 1


def answer_question(run_id: str, question_id: str, choice: str = "", text_key: str = "") -> None:
    """Answer a question of the agent from the page itself (the live panel answers through the API)."""
    workbench, user = process_workbench(), current_viewer().user
    answer = choice or str(st.session_state.get(text_key, ""))
    attempt(question_id, lambda: workbench.answer(user, run_id, question_id, answer))
