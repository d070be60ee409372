"""The conversation: the messages of one branch, each with its activity line, its versions and its actions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import streamlit as st

from chat_core.bridge.protocol import ModelChoice, SkillChoice
from chat_core.models import Activity, Branch, BranchMessage, Message, RunState, Session
from chat_core.store.messages import MOST_COUNTED
from chat_core.ui import actions
from chat_core.ui.address import go_to_session
from chat_core.ui.fallback_panel import draw_fallback_panel
from chat_core.ui.live_panel import live_panel, record_panel
from chat_core.ui.markdown import plain, safe_markdown
from chat_core.ui.view_state import view_state
from chat_core.ui.viewer import Viewer

_ACTIVE = ("PENDING", "RUNNING", "WAITING")


@dataclass(frozen=True, slots=True)
class Choices:
    """What a message can be answered with."""

    models: Sequence[ModelChoice]
    skills: Sequence[SkillChoice]

    def model_label(self, model_id: str) -> str:
        return next((model.label for model in self.models if model.id == model_id), model_id)

    def skill_label(self, folder: str) -> str:
        return next((skill.name for skill in self.skills if skill.folder == folder), folder)


@dataclass(frozen=True, slots=True)
class Conversation:
    """One session as it is shown now."""

    session: Session
    branch: Branch
    run: RunState | None
    activities: Mapping[str, Activity]
    choices: Choices
    linked_message: str
    condensed: Mapping[str, int] = field(default_factory=dict)
    """How many messages each summary stands for, by its id, where it is known."""
    follow_ups: Mapping[str, int] = field(default_factory=dict)
    """How many messages each version of a fork has below it."""


def draw_transcript(viewer: Viewer, conversation: Conversation) -> None:
    """Draw the branch, oldest message first."""
    t, branch = viewer.texts, conversation.branch
    if branch.has_more:
        with st.container(key="load-earlier", horizontal_alignment="center"):
            st.button(
                t.t("chat.load_earlier"),
                key="earlier",
                type="tertiary",
                icon=":material/expand_less:",
                on_click=actions.load_earlier,
                args=(conversation.session.uuid, branch.messages[0].message.uuid),
            )
    last = len(branch.messages) - 1
    for at, item in enumerate(branch.messages):
        message = item.message
        if message.role == "SYSTEM":
            _draw_divider(viewer, conversation, message)
            continue
        linked = "linked-" if message.uuid == conversation.linked_message else ""
        role = "user" if message.role == "USER" else "agent"
        with st.container(key=f"{role}-{linked}{message.uuid}", gap="small"):
            if message.role == "USER":
                _draw_question(viewer, conversation, item, is_last=at == last and not branch.has_later)
            else:
                _draw_answer(viewer, conversation, item)
            _draw_notice(message.uuid)
    if branch.has_later:
        with st.container(key="load-later", horizontal_alignment="center"):
            st.button(
                t.t("tree.load_later"),
                key="later",
                type="tertiary",
                icon=":material/expand_more:",
                on_click=actions.load_later,
                args=(conversation.session.uuid, branch.messages[-1].message.uuid),
            )


def draw_place(viewer: Viewer, conversation: Conversation) -> None:
    """Say when what is shown is not the end of the active branch, and offer the way there."""
    t, branch, run = viewer.texts, conversation.branch, conversation.run
    action: Callable[..., None] = go_to_session
    args: tuple[str, ...] = (conversation.session.uuid,)
    if run is not None and all(item.message.uuid != run.message_uuid for item in branch.messages):
        words, button, icon = "tree.run_elsewhere", "tree.to_run", "autorenew"
        action, args = actions.show_run, (conversation.session.uuid, run.message_uuid)
    elif not branch.is_active:
        words, button, icon = "chat.other_branch", "chat.back_to_active", "alt_route"
    elif branch.has_later:
        words, button, icon = "tree.earlier_part", "tree.to_latest", "history"
    else:
        return
    with st.container(key="notice-place", horizontal=True, vertical_alignment="center"):
        st.markdown(f":material/{icon}: {plain(t.t(words))}", width="stretch")
        st.button(t.t(button), key="to-active", on_click=action, args=args)


def _draw_divider(viewer: Viewer, conversation: Conversation, message: Message) -> None:
    t = viewer.texts
    is_linked = message.uuid == conversation.linked_message
    linked = "linked-" if is_linked else ""
    if message.status == "RESET":
        with st.container(key=f"divider-{linked}{message.uuid}"):
            st.caption(t.t("message.reset"))
        return
    condensed = conversation.condensed.get(message.uuid)
    words = t.n("desk.condensed", condensed) if condensed else t.t("message.summary")
    with (
        st.container(key=f"divider-summary-{linked}{message.uuid}"),
        st.expander(words, type="compact", key=f"summary-{linked}{message.uuid}", expanded=is_linked),
    ):
        st.markdown(safe_markdown(message.content) or plain(t.t("desk.summary_empty")), anchors=False)


def _draw_question(viewer: Viewer, conversation: Conversation, item: BranchMessage, is_last: bool) -> None:
    t, message, session_id = viewer.texts, item.message, conversation.session.uuid
    if view_state().editing == message.uuid:
        _draw_editor(viewer, session_id, message)
        return
    with st.container(key=f"bubble-{message.uuid}"):
        st.markdown(safe_markdown(message.content, line_breaks=True), anchors=False)
    with st.container(key=f"actions-user-{message.uuid}", horizontal=True, gap="small", vertical_alignment="center"):
        _draw_versions(viewer, conversation, item)
        if conversation.run is None:
            st.button(
                t.t("message.edit"),
                key=f"edit-{message.uuid}",
                type="tertiary",
                icon=":material/edit:",
                on_click=actions.begin_edit,
                args=(message.uuid,),
            )
        _draw_link(viewer, session_id, message)
    if is_last and conversation.run is None:
        with st.container(key=f"unanswered-{message.uuid}", horizontal=True, vertical_alignment="center"):
            st.caption(t.t("message.unanswered"), width="content")
            st.button(
                t.t("message.answer_this"),
                key=f"run-{message.uuid}",
                on_click=actions.answer_message,
                args=(session_id, message.uuid),
            )


def _draw_editor(viewer: Viewer, session_id: str, message: Message) -> None:
    t, key = viewer.texts, f"edited-{message.uuid}"
    with st.container(key=f"editor-{message.uuid}"):
        st.text_area(
            t.t("message.edit_label"), value=message.content, key=key, height="content", label_visibility="collapsed"
        )
        with st.container(horizontal=True, gap="small", horizontal_alignment="right"):
            st.button(
                t.t("message.cancel"), key=f"cancel-{message.uuid}", type="tertiary", on_click=actions.cancel_edit
            )
            st.button(
                t.t("message.save_and_send"),
                key=f"save-{message.uuid}",
                type="primary",
                on_click=actions.save_edit,
                args=(session_id, message.uuid, key),
            )


def _draw_answer(viewer: Viewer, conversation: Conversation, item: BranchMessage) -> None:
    message, run = item.message, conversation.run
    if run is not None and run.message_uuid == message.uuid:
        if message.content.strip():  # a run that goes on: what the one before had written stays above it
            with st.container(key=f"kept-{message.uuid}"):
                st.markdown(safe_markdown(message.content), anchors=False)
        _draw_run(viewer, run, follow=not conversation.linked_message)
        _draw_version_row(viewer, conversation, item)
        return
    _draw_activity(viewer, conversation, message)
    if message.content.strip():
        st.markdown(safe_markdown(message.content), anchors=False)
    elif message.status == "SUCCESS":
        st.caption(viewer.texts.t("message.empty"))
    elif message.status in _ACTIVE:
        st.caption(viewer.texts.t("message.working"))
    _draw_end(viewer, conversation, message)
    _draw_answer_actions(viewer, conversation, item)


def _draw_run(viewer: Viewer, run: RunState, follow: bool) -> None:
    view = view_state()
    is_offline = run.run_id in view.offline_runs
    live_panel(
        run,
        texts=viewer.texts.group("panel"),
        base=viewer.base,
        on_offline=lambda: view.offline_runs.add(run.run_id),
        on_online=lambda: view.offline_runs.discard(run.run_id),
        fallback=is_offline,
        follow=follow,
    )
    if is_offline:
        draw_fallback_panel(run)


def activity_line(viewer: Viewer, message: Message, activity: Activity | None, choices: Choices) -> str:
    """Return the one line that says what the agent did, as plain text."""
    t = viewer.texts
    parts = []
    if activity is not None:
        if activity.thinking_ms >= 100:
            parts.append(t.t("activity.thought", duration=t.duration(activity.thinking_ms)))
        if activity.tool_calls:
            parts.append(t.n("activity.tools", activity.tool_calls))
        if activity.tool_errors:
            parts.append(t.n("activity.errors", activity.tool_errors))
        if activity.todos_total:
            parts.append(t.t("activity.todos", done=activity.todos_done, total=activity.todos_total))
    if message.model_id:
        parts.append(choices.model_label(message.model_id))
    tokens = _tokens(message)
    if tokens:
        parts.append(t.t("activity.tokens", count=t.count(tokens)))
    return " · ".join(parts) or t.t("activity.open")


def _draw_activity(viewer: Viewer, conversation: Conversation, message: Message) -> None:
    line = activity_line(viewer, message, conversation.activities.get(message.uuid), conversation.choices)
    if message.uuid in view_state().opened_records:
        record_panel(message, line=line, texts=viewer.texts.group("panel"), base=viewer.base, opened=True)
        return
    st.button(
        plain(line),
        key=f"activity-{message.uuid}",
        type="tertiary",
        icon=":material/chevron_right:",
        width="stretch",
        on_click=actions.open_record,
        args=(message.uuid,),
    )


def _draw_end(viewer: Viewer, conversation: Conversation, message: Message) -> None:
    """Say why an answer is not whole, and what can be done about it."""
    if message.status not in ("FAILED", "STOPPED", "INTERRUPTED"):
        return
    t, session_id = viewer.texts, conversation.session.uuid
    with st.container(key=f"end-{message.status.lower()}-{message.uuid}", gap="small"):
        icon = {"FAILED": "error", "STOPPED": "stop_circle", "INTERRUPTED": "power_off"}[message.status]
        words = plain(end_words(viewer, message))
        st.markdown(f":material/{icon}: {words}")
        if conversation.run is None:
            with st.container(horizontal=True, gap="small"):
                if message.status != "FAILED":
                    st.button(
                        t.t("message.continue"),
                        key=f"continue-{message.uuid}",
                        icon=":material/play_arrow:",
                        on_click=actions.continue_run,
                        args=(session_id, message.uuid),
                    )
                st.button(
                    t.t("message.regenerate"),
                    key=f"again-{message.uuid}",
                    icon=":material/refresh:",
                    on_click=actions.regenerate,
                    args=(session_id, message.uuid),
                )
                _draw_regenerate_menu(viewer, conversation, message)
        if message.error is not None:
            with st.expander(t.t("message.details"), type="compact", key=f"details-{message.uuid}"):
                st.caption(plain(t.t("message.code", code=message.error.code)))
                if plain(message.error.message) not in words:
                    st.code(message.error.message, language=None, wrap_lines=True)


def end_words(viewer: Viewer, message: Message) -> str:
    """Return the sentence that says how the run ended: in the viewer's language where we have the words."""
    t = viewer.texts
    start = t.t(f"message.{message.status.lower()}")
    if message.error is None or not message.error.message:
        return t.t("message.stopped_kept") if message.status == "STOPPED" else start
    key = f"run_error.{message.error.code}"
    sentence = t.t(key) if t.locale != "en" and t.has(key) else message.error.message
    return sentence if sentence.startswith(start) else f"{start} {sentence}"


def _draw_answer_actions(viewer: Viewer, conversation: Conversation, item: BranchMessage) -> None:
    t, message, session_id = viewer.texts, item.message, conversation.session.uuid
    with st.container(key=f"actions-agent-{message.uuid}", horizontal=True, gap="small", vertical_alignment="center"):
        _draw_versions(viewer, conversation, item)
        if message.content.strip():
            copied = view_state().copied == message.uuid
            st.button(
                t.t("message.copied" if copied else "message.copy"),
                key=f"copy-{message.uuid}",
                type="tertiary",
                icon=":material/check:" if copied else ":material/content_copy:",
                on_click=actions.copy_message,
                args=(message.uuid,),
            )
        _draw_link(viewer, session_id, message)
        if conversation.run is None and message.status == "SUCCESS":
            st.button(
                t.t("message.regenerate"),
                key=f"regenerate-{message.uuid}",
                type="tertiary",
                icon=":material/refresh:",
                on_click=actions.regenerate,
                args=(session_id, message.uuid),
            )
            _draw_regenerate_menu(viewer, conversation, message)
        _draw_time(viewer, message)


def _draw_regenerate_menu(viewer: Viewer, conversation: Conversation, message: Message) -> None:
    """Offer another model or skill for this one answer; its body is drawn only while it is open."""
    t, choices = viewer.texts, conversation.choices
    if not choices.models and not choices.skills:
        return
    menu = st.popover(
        t.t("message.regenerate_with"),
        key=f"regenerate-with-{message.uuid}",
        type="tertiary",
        icon=":material/tune:",
        on_change="rerun",
    )
    if not menu.open:
        return
    models = ["", *(model.id for model in choices.models)]
    skills = ["", *(skill.folder for skill in choices.skills)]
    names = {skill.folder: skill.name for skill in choices.skills}
    model_key, skill_key = f"model-{message.uuid}", f"skill-{message.uuid}"
    with menu:
        st.selectbox(
            t.t("chat.model"),
            models,
            index=models.index(message.model_id) if message.model_id in models else 0,
            format_func=lambda model_id: choices.model_label(model_id) if model_id else t.t("chat.default_model"),
            key=model_key,
        )
        st.selectbox(
            t.t("chat.skill"),
            skills,
            index=skills.index(message.skill_folder) if message.skill_folder in skills else 0,
            format_func=lambda folder: names.get(folder, folder) if folder else t.t("chat.no_skill"),
            key=skill_key,
        )
        st.button(
            t.t("message.regenerate"),
            key=f"regenerate-now-{message.uuid}",
            type="primary",
            on_click=actions.regenerate,
            args=(conversation.session.uuid, message.uuid, model_key, skill_key),
        )


def _draw_version_row(viewer: Viewer, conversation: Conversation, item: BranchMessage) -> None:
    if item.version_count > 1:
        with st.container(key=f"actions-live-{item.message.uuid}", horizontal=True, gap="small"):
            _draw_versions(viewer, conversation, item)


def _draw_versions(viewer: Viewer, conversation: Conversation, item: BranchMessage) -> None:
    """Draw `‹ 2/3 ›` when the message has siblings, and what follows on the others."""
    if item.version_count < 2:
        return
    t, at, session_id = viewer.texts, item.version_index - 1, conversation.session.uuid
    with st.container(
        key=f"versions-{item.message.uuid}", horizontal=True, width="content", gap=None, vertical_alignment="center"
    ):
        for name, icon, target in (("previous", "chevron_left", at - 1), ("next", "chevron_right", at + 1)):
            if name == "next":
                count = t.t("message.version", index=item.version_index, count=item.version_count)
                st.markdown(plain(count), width="content")
            exists = 0 <= target < item.version_count
            st.button(
                t.t(f"message.{name}"),
                key=f"{name}-{item.message.uuid}",
                type="tertiary",
                icon=f":material/{icon}:",
                disabled=not exists,
                on_click=actions.show_version,
                args=(session_id, item.sibling_uuids[target] if exists else "", item.message.uuid),
            )
        if item.message.role == "ASSISTANT":
            st.button(
                t.t("tree.compare"),
                key=f"compare-{item.message.uuid}",
                type="tertiary",
                icon=":material/compare:",
                on_click=actions.open_comparison,
                args=(item.message.uuid,),
            )
        words = follow_up_words(viewer, item, conversation.follow_ups)
        if words:
            st.caption(plain(words), width="content")


def follow_up_words(viewer: Viewer, item: BranchMessage, follow_ups: Mapping[str, int]) -> str:
    """Return what the other versions have below them, or nothing. The answer to a question is no follow-up."""
    t, own_answer = viewer.texts, 1 if item.message.role == "USER" else 0
    found = []
    for version, version_id in enumerate(item.sibling_uuids, start=1):
        count = follow_ups.get(version_id, 0) - own_answer
        if version_id != item.message.uuid and count > 0:
            found.append((version, count, f"{count}+" if count + own_answer >= MOST_COUNTED else t.number(count)))
    if not found:
        return ""
    if len(found) == 1:
        [(version, count, number)] = found
        form = "one" if count == 1 else "other"
        return t.t(f"tree.follow_ups.{form}", count=number, version=version)
    listed = ", ".join(t.t("tree.follow_ups_in", count=number, version=version) for version, _, number in found)
    return t.t("tree.follow_ups_on", versions=listed)


def _draw_link(viewer: Viewer, session_id: str, message: Message) -> None:
    copied = view_state().copied == f"link {message.uuid}"
    st.button(
        viewer.texts.t("tree.link_copied" if copied else "tree.link"),
        key=f"copy-link-{message.uuid}",
        type="tertiary",
        icon=":material/check:" if copied else ":material/link:",
        on_click=actions.copy_link,
        args=(session_id, message.uuid),
    )


def _draw_time(viewer: Viewer, message: Message) -> None:
    moment = message.completed_at or message.created_at
    st.caption(plain(viewer.texts.moment(moment, viewer.zone, viewer.now)), width="content")


def _draw_notice(place: str) -> None:
    words = view_state().notices.get(place)
    if words:
        with st.container(key=f"notice-{place}"):
            st.markdown(f":material/info: {plain(words)}")


def _tokens(message: Message) -> int:
    usage = message.usage or {}
    return sum(value for name in ("input_tokens", "output_tokens") if isinstance(value := usage.get(name), int))
