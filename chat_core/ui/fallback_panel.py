"""A run drawn by the page itself, twice a second, for browsers whose live panel has no stream."""

import streamlit as st

from chat_core.errors import NotFound
from chat_core.models import Question, RunState
from chat_core.process_workbench import process_workbench
from chat_core.ui.actions import answer_question
from chat_core.ui.markdown import plain, safe_markdown
from chat_core.ui.run_picture import RunPicture, ToolPicture
from chat_core.ui.viewer import Viewer, current_viewer

REFRESH_SECONDS = 0.5
_SHOWN_TOOLS = 8
_LONGEST_RESULT = 2000


def draw_fallback_panel(run: RunState) -> None:
    """Draw the run and keep it fresh; when it has ended the whole page is drawn once more."""
    st.fragment(_draw, run_every=REFRESH_SECONDS)(run.run_id)


def _draw(run_id: str) -> None:
    workbench, viewer = process_workbench(), current_viewer()
    pictures: dict[str, RunPicture] = st.session_state.setdefault("run-pictures", {})
    picture = pictures.setdefault(run_id, RunPicture())
    try:
        state = workbench.run_state(viewer.user, run_id)
        for entry in workbench.entries(viewer.user, run_id, picture.after):
            picture.apply(entry)
    except NotFound:
        st.rerun()
    if picture.has_ended:
        pictures.pop(run_id, None)
        st.rerun()
    # All places first, then their content: a place that comes later would move everything below it.
    names = ("status", "thinking", "tools", "todos", "question", "answer", "note")
    places = {name: st.container(key=f"fallback-{name}-{run_id}") for name in names}
    kind = "shimmer" if state.question is None else "orange-badge"
    places["status"].markdown(f":{kind}[{plain(_status(viewer, picture, state))}]")
    if picture.thinking:
        tail = "\n".join(picture.thinking.rstrip().split("\n")[-2:])[-300:]
        places["thinking"].caption(plain(tail))
    with places["tools"]:
        for tool in picture.tools[-_SHOWN_TOOLS:]:
            _draw_tool(viewer, run_id, tool)
    if picture.todos:
        places["todos"].markdown("\n".join(_todo_line(todo) for todo in picture.todos))
    with places["question"]:
        if state.question is not None:
            _draw_question(viewer, state.question)
    places["answer"].markdown(safe_markdown(picture.answer), anchors=False)
    places["note"].caption(viewer.texts.t("fallback.note"))


def _status(viewer: Viewer, picture: RunPicture, state: RunState) -> str:
    t = viewer.texts
    if state.question is not None:
        return t.t("session.waiting")
    if picture.current_tool is not None:
        return t.t("fallback.tool", tool=picture.current_tool.name)
    if picture.status:
        return picture.status
    if picture.answer:
        return t.t("fallback.answering")
    return t.t("fallback.thinking" if picture.thinking else "fallback.working")


def _draw_tool(viewer: Viewer, run_id: str, tool: ToolPicture) -> None:
    duration = viewer.texts.duration(tool.duration_ms) if tool.duration_ms is not None else ""
    icon = ":material/error:" if tool.is_error else ":material/check:" if tool.is_done else "spinner"
    with st.expander(
        f"{plain(tool.name)} :gray[{plain(duration)}]",
        type="step",
        icon=icon,
        key=f"fallback-tool-{run_id}-{tool.call_id}",
    ):
        st.code(tool.arguments[:_LONGEST_RESULT], language="json", wrap_lines=True)
        if tool.result:
            st.code(tool.result[:_LONGEST_RESULT], language=None, wrap_lines=True)


def _todo_line(todo: dict[str, object]) -> str:
    box = "x" if todo.get("status") == "completed" else " "
    return f"- [{box}] {plain(str(todo.get('content', '')))}"


def _draw_question(viewer: Viewer, question: Question) -> None:
    t, key = viewer.texts, f"answer-{question.question_id}"
    st.markdown(safe_markdown(question.question), anchors=False)
    with st.container(horizontal=True):
        for at, choice in enumerate(question.choices):
            label = t.t(f"fallback.approval.{choice}") if question.kind == "approval" else choice
            st.button(
                plain(label),
                key=f"{key}-{at}",
                on_click=answer_question,
                args=(question.run_id, question.question_id, choice),
            )
    if question.kind == "clarify":
        st.text_input(t.t("fallback.own_answer"), key=key)
        st.button(
            t.t("fallback.send_answer"),
            key=f"{key}-send",
            on_click=answer_question,
            args=(question.run_id, question.question_id, "", key),
        )
