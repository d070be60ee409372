"""Two versions of an answer side by side: what they took, what the agent did for them, and what they say."""

import streamlit as st

from chat_core.errors import NotFound
from chat_core.i18n import Texts
from chat_core.models import Activity, Message
from chat_core.process_workbench import process_workbench
from chat_core.ui import actions
from chat_core.ui.address import shown_session
from chat_core.ui.live_panel import record_panel
from chat_core.ui.markdown import plain, safe_markdown
from chat_core.ui.transcript import Choices
from chat_core.ui.view_state import view_state
from chat_core.ui.viewer import Viewer, current_viewer

_ACTIVE = ("PENDING", "RUNNING", "WAITING")
_TOKENS = ("input_tokens", "output_tokens")
SIDES = ("left", "right")


def draw_comparison(viewer: Viewer, choices: Choices) -> None:
    """Draw the dialog when somebody asked for it. Call it from the page itself, never from a fragment."""
    view = view_state()
    if view.dialog == "compare":
        dialog = st.dialog(viewer.texts.t("tree.compare.title"), width="large", on_dismiss=close_comparison)
        dialog(_draw)(choices, view.comparing)


def close_comparison() -> None:
    view = view_state()
    view.dialog, view.comparing = "", ""


def _draw(choices: Choices, message_id: str) -> None:
    workbench, viewer = process_workbench(), current_viewer()
    t = viewer.texts
    try:
        versions = workbench.versions(viewer.user, message_id)
        ids = [version.uuid for version in versions]
        activities = workbench.activities(viewer.user, shown_session(), ids)
        follow_ups = workbench.follow_ups(viewer.user, shown_session(), ids)
    except NotFound:
        versions, activities = [], {}
    if not activities:  # gone, or of another session than the one that is open by now
        st.caption(t.t("chat.unknown_message"))
        return
    if len(versions) < 2:
        st.caption(t.t("tree.compare.single"))
        return
    names = {version.uuid: _name(t, at, version) for at, version in enumerate(versions, start=1)}
    first = ids.index(message_id)
    proposed = (ids[first - 1], message_id) if first else (message_id, ids[1])
    chosen: list[Message] = []
    for side, column, version_id in zip(SIDES, st.columns(2), proposed, strict=True):
        picked = column.selectbox(
            t.t(f"tree.compare.{side}"),
            ids,
            index=ids.index(version_id),
            format_func=lambda version: names[version],
            key=f"compare-{side}",
        )
        chosen.append(versions[ids.index(picked)])
    if chosen[0] is chosen[1]:
        st.caption(t.t("tree.compare.same"))
        return
    facts = [facts_of(viewer, choices, item, activities[item.uuid], follow_ups.get(item.uuid, 0)) for item in chosen]
    with st.container(key="compare-facts"):
        st.markdown(_table(t, [names[item.uuid] for item in chosen], facts))
    for side, column, item in zip(SIDES, st.columns(2), chosen, strict=True):
        with column, st.container(key=f"compare-answer-{side}", gap="small"):
            _draw_side(viewer, item, names[item.uuid], side)


def facts_of(
    viewer: Viewer, choices: Choices, message: Message, activity: Activity, follow_ups: int
) -> list[tuple[str, str]]:
    """Return what can be told of an answer in a word or a number, each with the key of its name."""
    t, usage = viewer.texts, message.usage or {}
    none = t.t("tree.compare.none")
    tools = t.number(activity.tool_calls) if activity.tool_calls else none
    if activity.tool_errors:
        tools = t.t("tree.compare.failed", count=tools, failed=t.number(activity.tool_errors))
    tokens = [t.number(value) if isinstance(value := usage.get(name), int) else "–" for name in _TOKENS]
    plan = t.t("activity.todos", done=activity.todos_done, total=activity.todos_total)
    return [
        ("status", t.t(f"tree.status.{message.status}")),
        ("model", choices.model_label(message.model_id) if message.model_id else t.t("tree.compare.default_model")),
        ("skill", choices.skill_label(message.skill_folder) if message.skill_folder else none),
        ("begun", t.moment(message.created_at, viewer.zone, viewer.now)),
        ("took", t.duration(activity.thinking_ms)),
        ("tools", tools),
        ("todos", plan if activity.todos_total else none),
        ("tokens", t.t("tree.compare.in_out", given=tokens[0], written=tokens[1]) if usage else none),
        ("length", t.t("tree.compare.characters", count=t.number(len(message.content)))),
        ("follow_ups", t.number(follow_ups) if follow_ups else none),
    ]


def _name(t: Texts, index: int, version: Message) -> str:
    name = t.t("tree.compare.version", index=index)
    return t.t("tree.compare.active", version=name) if version.is_active else name


def _table(t: Texts, names: list[str], facts: list[list[tuple[str, str]]]) -> str:
    """Return the facts as a Markdown table; what differs is set off, what neither has is left out."""
    none = t.t("tree.compare.none")
    lines = [f"| | {plain(names[0])} | {plain(names[1])} |", "|:--|:--|:--|"]
    for (name, left), (_, right) in zip(*facts, strict=True):
        if left == right == none:
            continue
        both = [f"**{plain(text)}**" if left != right and plain(text) else plain(text) for text in (left, right)]
        lines.append(f"| {plain(t.t(f'tree.compare.{name}'))} | {both[0]} | {both[1]} |")
    return "\n".join(lines)


def _draw_side(viewer: Viewer, message: Message, name: str, side: str) -> None:
    t = viewer.texts
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown(f"**{plain(name)}**", width="content")
        if not message.is_active:
            st.button(
                t.t("tree.compare.show"),
                key=f"compare-show-{side}",
                type="tertiary",
                icon=":material/arrow_forward:",
                on_click=_show,
                args=(message.uuid,),
            )
    if message.status not in _ACTIVE:
        record_panel(
            message,
            line=t.t("tree.compare.record"),
            texts=t.group("panel"),
            base=viewer.base,
            key=f"compare-record-{side}-{message.uuid}",
            opened=True,
        )
    if message.error is not None:
        st.markdown(f":red[{plain(message.error.message)}]")
    if message.content.strip():
        st.markdown(safe_markdown(message.content), anchors=False)
    elif message.status not in _ACTIVE:
        st.caption(t.t("message.empty"))


def _show(message_id: str) -> None:
    close_comparison()
    actions.show_version(shown_session(), message_id, message_id)
    st.rerun()
