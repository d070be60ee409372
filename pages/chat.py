"""The chat page: one conversation, and the box to write in."""

import streamlit as st

from chat_core.errors import NotFound
from chat_core.process_workbench import process_workbench
from chat_core.ui import actions
from chat_core.ui.address import keep_in_address_bar, linked_message, open_session
from chat_core.ui.branch_map import draw_branch_map
from chat_core.ui.bridge_notice import draw_bridge_notice
from chat_core.ui.chrome import draw_services, set_title
from chat_core.ui.comparison import draw_comparison
from chat_core.ui.composer import composer
from chat_core.ui.first_screen import draw_first_screen
from chat_core.ui.markdown import plain
from chat_core.ui.memory_drawer import draw_memory_drawer
from chat_core.ui.scrolling import draw_scrolling
from chat_core.ui.session_menu import draw_session_menu
from chat_core.ui.transcript import Choices, Conversation, draw_place, draw_transcript
from chat_core.ui.view_state import view_state
from chat_core.ui.viewer import current_viewer
from chat_core.ui.window import window_of

viewer, view, workbench = current_viewer(), view_state(), process_workbench()
t, user = viewer.texts, viewer.user

session, is_unknown = open_session(workbench, user)
is_ready = workbench.bridge_state().status == "ready"
choices = Choices(workbench.models(user), workbench.skills(user)) if is_ready else Choices([], [])
run = workbench.active_run(user, session.uuid) if session else None
shown = session.uuid if session else ""
view.last_session = shown
address = st.query_params.get("session", "")
if view.last_address != address:  # also that of a session which is not there: the bar must not keep it
    view.last_address = address
    keep_in_address_bar()

linked, conversation, is_message_unknown = linked_message(), None, False
if session:
    window = window_of(view, session.uuid, linked)
    try:
        branch = workbench.branch(user, session.uuid, limit=window.limit, message=linked or None, later=window.later)
    except NotFound:
        branch, linked, is_message_unknown = workbench.branch(user, session.uuid, limit=window.limit), "", True
    view.shown_at[session.uuid] = next(
        (item.message.uuid for item in reversed(branch.messages) if item.message.role != "SYSTEM"), ""
    )
    versions = [version for item in branch.messages if item.version_count > 1 for version in item.sibling_uuids]
    follow_ups = workbench.follow_ups(user, session.uuid, versions) if versions else {}
    answers = [item.message.uuid for item in branch.messages if item.message.role == "ASSISTANT"]
    activities = workbench.activities(user, session.uuid, answers)
    condensed = workbench.condensed_counts(
        user, [item.message for item in branch.messages if item.message.status == "SUMMARY"]
    )
    conversation = Conversation(session, branch, run, activities, choices, linked, condensed, follow_ups)
    if session.title:
        set_title(t.t("app.page_title", title=session.title))
    if workbench.session_row(user, session.uuid).unseen:
        workbench.mark_seen(user, session.uuid)

if "page" in view.notices:
    with st.container(key="notice-page"):
        st.markdown(f":material/info: {plain(view.notices['page'])}")
if is_unknown:
    with st.container(key="notice-unknown"):
        st.markdown(f":material/info: {plain(t.t('chat.unknown_session'))}")
if is_message_unknown:
    with st.container(key="notice-unknown-message"):
        st.markdown(f":material/info: {plain(t.t('chat.unknown_message'))}")
if conversation and conversation.branch.messages:
    draw_session_menu(viewer, conversation.session, run)
    draw_memory_drawer(viewer, conversation.session)
    draw_branch_map(viewer, conversation.session, choices)
    draw_comparison(viewer, choices)
    with st.container(key="transcript", gap="medium"):
        draw_transcript(viewer, conversation)
elif not is_unknown:
    draw_first_screen(viewer, choices, workbench.settings.models_file, shown)

draw_services(viewer)
draw_scrolling(viewer, linked=linked, end_of=f"{session.uuid} {view.accepted}" if session else "")

with st.bottom, st.container(key="bottom", gap="small"):
    draw_bridge_notice(viewer, workbench)
    if conversation:
        draw_place(viewer, conversation)
    if "composer" in view.notices:
        with st.container(key="notice-composer"):
            st.markdown(f":material/info: {plain(view.notices['composer'])}")
    model_id = session.model_id if session else ""
    composer(
        session_id=shown,
        models=choices.models,
        skills=choices.skills,
        model_id=model_id,
        skill_folder=session.skill_folder if session else "",
        run=run,
        accepted=view.accepted,
        refused=view.refused,
        prefill=view.rescued,
        texts=t.group("composer"),
        on_send=actions.send,
        base=viewer.base,
    )
    kind = next(
        (model.kind for model in choices.models if model.id == model_id or (model.is_default and not model_id)), ""
    )
    if kind in ("local", "tour"):
        st.caption(t.t(f"model.{kind}_hint"))
