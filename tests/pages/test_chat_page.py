"""The chat page: reading, versions, editing, ends of runs, refusals, and where the address leads."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from chat_core.bridge.process import BridgeState
from chat_core.bridge.protocol import ModelChoice
from chat_core.models import Session, Started, User
from chat_core.ui import actions
from chat_core.workbench import Workbench
from tests.pages.reading import component, has_component, links, rows, words
from tests.support.runtimes import EchoRuntime, GatedRuntime, answers, asks, calls_tool, emits, reports_error, thinks

OpenPage = Callable[..., AppTest]
Finish = Callable[[Started], Started]
HOSTILE = "<img src=x onerror=alert(1)> :red[x] :material/home: $5 and $10 [a](javascript:alert(1))"


def test_the_first_screen_says_what_this_is_and_offers_three_examples(open_page: OpenPage) -> None:
    page = open_page()
    assert page.header[0].value == "What should the agent do?"
    assert {"ask-local", "ask-tour", "add-model"} <= {button.key for button in page.button}
    assert "cannot call tools" in words(page)
    page.button(key="add-model").click().run()
    assert "models.toml" in words(page)
    assert "OPENAI_API_KEY" in words(page)


def test_an_example_asks_in_a_new_session_with_its_model(open_page: OpenPage, workbench: Workbench, user: User) -> None:
    page = open_page()
    page.button(key="ask-local").click().run()
    session = workbench.list_sessions(user).rows[0].session
    assert page.query_params["session"] == session.uuid
    assert session.model_id == "local"
    assert "What is the capital of France?" in words(page)


def test_a_session_shows_its_active_branch_and_the_way_to_the_other_versions(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, finish: Finish
) -> None:
    first = finish(workbench.ask(user, session.uuid, "first question"))
    finish(workbench.edit_and_run(user, first.user_message_uuid, "second question"))
    page = open_page(session=session.uuid)
    assert "second question" in words(page)
    assert "first question" not in "\n".join(element.value for element in page.markdown)
    assert "2/2" in words(page)
    shown = workbench.branch(user, session.uuid).messages[0].message.uuid
    page.button(key=f"previous-{shown}").click().run()
    assert "1/2" in words(page)
    assert workbench.branch(user, session.uuid).messages[0].message.content == "first question"
    assert open_page(session=session.uuid).button(key=f"next-{first.user_message_uuid}").disabled is False


def test_switching_moves_only_the_clicked_fork(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, finish: Finish
) -> None:
    one = finish(workbench.ask(user, session.uuid, "one"))
    again = finish(workbench.regenerate(user, one.message_uuid))
    two = finish(workbench.ask(user, session.uuid, "two"))
    newer = finish(workbench.regenerate(user, two.message_uuid))
    workbench.activate(user, two.message_uuid)
    page = open_page(session=session.uuid)
    page.button(key=f"previous-{again.message_uuid}").click().run()
    page.button(key=f"next-{one.message_uuid}").click().run()
    assert [item.message.uuid for item in workbench.branch(user, session.uuid).messages][-1] == two.message_uuid
    assert f"next-{newer.message_uuid}" not in [button.key for button in page.button]


def test_the_activity_line_names_tools_todos_and_tokens(
    open_page: OpenPage, workbench: Workbench, user: User, gated: GatedRuntime, gated_session: Session, finish: Finish
) -> None:
    todos = [{"id": "1", "content": "a", "status": "completed"}, {"id": "2", "content": "b", "status": "pending"}]
    gated.steps = [
        calls_tool("todo"),
        calls_tool("read_file", is_error=True),
        emits("todo_update", todos=todos),
        answers("Done."),
        emits("usage", input_tokens=4000, output_tokens=120),
    ]
    gated.release()
    started = finish(workbench.ask(user, gated_session.uuid, "go"))
    page = open_page(session=gated_session.uuid)
    label = page.button(key=f"activity-{started.message_uuid}").label
    assert "2 tools" in label
    assert "1 error" in label
    assert "1\\/2 done" in label or "1/2 done" in label
    assert "4.1 k tokens" in label.replace("\\", "")


def test_the_record_is_drawn_only_when_it_is_opened(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, finish: Finish
) -> None:
    started = finish(workbench.ask(user, session.uuid, "hello"))
    page = open_page(session=session.uuid)
    assert not has_component(page, "panel.js")
    page.button(key=f"activity-{started.message_uuid}").click().run()
    record = component(page, "panel.js")
    assert (record["mode"], record["message"], record["open"]) == ("record", started.message_uuid, True)


def test_a_running_session_shows_the_live_panel_in_the_place_of_its_message(
    open_page: OpenPage, workbench: Workbench, user: User, gated: GatedRuntime, gated_session: Session
) -> None:
    started = workbench.ask(user, gated_session.uuid, "hello")
    gated.wait_until_started()
    page = open_page(session=gated_session.uuid)
    assert component(page, "panel.js")["run"] == started.run_id
    assert component(page, "composer.js")["run"]["run_id"] == started.run_id
    assert [button for button in page.button if "regenerate" in str(button.key)] == []


def test_without_a_stream_the_page_draws_the_run_itself_and_takes_the_answer(
    open_page: OpenPage, workbench: Workbench, user: User, gated: GatedRuntime, gated_session: Session, finish: Finish
) -> None:
    gated.steps = [thinks("hm"), calls_tool("read_file", path="notes"), asks("Which <b>one</b>?", ["red", "blue"])]
    gated.release()
    started = workbench.ask(user, gated_session.uuid, "hello")
    for entry in workbench.follow(user, started.run_id):
        if entry.kind == "clarify_request":
            break
    page = open_page(session=gated_session.uuid)
    page.session_state["view"].offline_runs.add(started.run_id)
    page.run()
    assert component(page, "panel.js")["fallback"] is True
    assert "Which <b>one</b>?" in words(page)
    question = workbench.run_state(user, started.run_id).question
    assert question is not None
    page.button(key=f"answer-{question.question_id}-1").click().run()
    finish(started)
    page.run()
    assert "You said blue." in words(page)


def test_a_failed_answer_says_so_with_its_reason_and_offers_to_try_again(
    open_page: OpenPage, workbench: Workbench, user: User, gated: GatedRuntime, gated_session: Session, finish: Finish
) -> None:
    gated.steps = [reports_error("model_auth", "The model refused the key (401).")]
    gated.release()
    started = finish(workbench.ask(user, gated_session.uuid, "hello"))
    page = open_page(session=gated_session.uuid)
    assert "Failed. The model refused the key (401)." in words(page)
    assert "model_auth" in words(page)
    gated.steps = [answers("Now it works.")]
    page.button(key=f"again-{started.message_uuid}").click().run()
    run = workbench.active_run(user, gated_session.uuid)
    if run is not None:
        finish(Started(run.run_id, "", ""))
    assert "Now it works." in words(open_page(session=gated_session.uuid))


def test_a_stopped_answer_keeps_its_text_and_can_be_continued(
    open_page: OpenPage, workbench: Workbench, user: User, gated: GatedRuntime, gated_session: Session, finish: Finish
) -> None:
    gated.steps = [answers("The first part. "), answers("never")]
    started = workbench.ask(user, gated_session.uuid, "hello")
    gated.wait_until_started()
    gated.release(1)
    for entry in workbench.follow(user, started.run_id):
        if entry.kind == "answer":
            workbench.stop(user, started.run_id)
    page = open_page(session=gated_session.uuid)
    assert "The first part." in words(page)
    assert "Stopped" in words(page)
    gated.release()
    page.button(key=f"continue-{started.message_uuid}").click().run()
    branch = workbench.branch(user, gated_session.uuid).messages
    assert [item.message.uuid for item in branch] == [started.user_message_uuid, started.message_uuid]


def test_a_refused_edit_says_why_and_keeps_the_text(
    open_page: OpenPage, workbench: Workbench, user: User, gated: GatedRuntime, gated_session: Session, finish: Finish
) -> None:
    gated.release(2)
    started = finish(workbench.ask(user, gated_session.uuid, "hello"))
    page = open_page(session=gated_session.uuid)
    page.button(key=f"edit-{started.user_message_uuid}").click().run()
    editor = page.text_area(key=f"edited-{started.user_message_uuid}")
    assert editor.value == "hello"
    other = workbench.ask(user, gated_session.uuid, "from another tab")
    editor.set_value("my new wording")
    page.button(key=f"save-{started.user_message_uuid}").click().run()
    assert not page.exception
    assert page.text_area(key=f"edited-{started.user_message_uuid}").value == "my new wording"
    assert "run is at work" in words(page)
    assert len(workbench.tree(user, gated_session.uuid)) == 4
    gated.release()
    finish(other)
    page.button(key=f"save-{started.user_message_uuid}").click().run()
    assert "my new wording" in words(page)
    assert len(page.text_area) == 0


def test_an_edit_can_be_left_without_a_trace(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, finish: Finish
) -> None:
    started = finish(workbench.ask(user, session.uuid, "hello"))
    page = open_page(session=session.uuid)
    page.button(key=f"edit-{started.user_message_uuid}").click().run()
    page.button(key=f"cancel-{started.user_message_uuid}").click().run()
    assert len(page.text_area) == 0
    assert len(workbench.tree(user, session.uuid)) == 2


def test_a_user_message_without_an_answer_can_be_answered(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, finish: Finish
) -> None:
    started = finish(workbench.ask(user, session.uuid, "hello"))
    edited = workbench.edit(user, started.user_message_uuid, "hello again")
    page = open_page(session=session.uuid)
    page.button(key=f"run-{edited.uuid}").click().run()
    branch = workbench.branch(user, session.uuid).messages
    assert [item.message.role for item in branch] == ["USER", "ASSISTANT"]
    assert branch[0].message.uuid == edited.uuid


def test_copying_hands_the_markdown_to_the_browser(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, finish: Finish
) -> None:
    started = finish(workbench.ask(user, session.uuid, "**bold** $5"))
    page = open_page(session=session.uuid)
    page.button(key=f"copy-{started.message_uuid}").click().run()
    assert page.button(key=f"copy-{started.message_uuid}").label == "Copied"
    assert page.session_state["view"].copy_text == "**bold** $5"


def test_a_reset_is_a_divider_and_the_history_stays(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, finish: Finish
) -> None:
    finish(workbench.ask(user, session.uuid, "before"))
    workbench.reset(user, session.uuid)
    finish(workbench.ask(user, session.uuid, "after"))
    shown = words(open_page(session=session.uuid))
    assert shown.index("before") < shown.index("starts fresh here") < shown.index("after")


def test_foreign_text_reaches_the_page_only_as_text(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, finish: Finish
) -> None:
    finish(workbench.ask(user, session.uuid, HOSTILE))
    workbench.update_session(user, session.uuid, title=HOSTILE)
    page = open_page(session=session.uuid)
    for element in [*page.markdown, *page.caption]:
        assert not element.proto.allow_html
        assert "<img" not in element.value.replace("\\<img", "")
        assert "](javascript:" not in element.value.replace("\\](", "")
    assert "**\\<img" in rows(page)[0]


def test_an_unknown_session_is_said_and_nothing_else_breaks(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, finish: Finish
) -> None:
    finish(workbench.ask(user, session.uuid, "hello"))
    for name in ("00000000-0000-0000-0000-000000000000", "../../etc", "<script>"):
        page = open_page(session=name)
        assert "does not exist" in words(page)
        assert len(rows(page)) == 1
        assert component(page, "composer.js")["session"] == ""


def test_a_link_to_a_message_shows_its_branch_and_stores_nothing_until_somebody_acts(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, finish: Finish
) -> None:
    first = finish(workbench.ask(user, session.uuid, "first wording"))
    second = finish(workbench.edit_and_run(user, first.user_message_uuid, "second wording"))
    page = open_page(session=session.uuid, message=first.message_uuid)
    assert "first wording" in words(page)
    assert "another branch" in words(page)
    assert workbench.branch(user, session.uuid).messages[0].message.uuid == second.user_message_uuid
    page.button(key=f"regenerate-{first.message_uuid}").click().run()
    assert workbench.branch(user, session.uuid).messages[0].message.uuid == first.user_message_uuid
    assert "message" not in page.query_params


def test_a_link_to_a_message_that_is_gone_shows_the_active_branch(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, finish: Finish
) -> None:
    finish(workbench.ask(user, session.uuid, "still here"))
    page = open_page(session=session.uuid, message="00000000-0000-0000-0000-000000000000")
    assert "still here" in words(page)
    assert "does not exist any more" in words(page)


def test_a_long_session_opens_on_its_last_forty_turns(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, finish: Finish
) -> None:
    for number in range(43):
        finish(workbench.ask(user, session.uuid, f"question number {number}."))
    page = open_page(session=session.uuid)
    assert "question number 2." not in words(page)
    assert "question number 3." in words(page)
    page.button(key="earlier").click().run()
    assert "question number 0." in words(page)
    assert "earlier" not in [button.key for button in page.button]


def test_a_link_to_an_early_message_loads_as_far_as_it_stands(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, finish: Finish
) -> None:
    started = [finish(workbench.ask(user, session.uuid, f"question number {number}.")) for number in range(45)]
    page = open_page(session=session.uuid, message=started[1].message_uuid)
    assert "question number 1." in words(page)


def test_a_conversation_can_be_taken_out_as_a_file_and_the_agent_can_start_fresh(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, finish: Finish
) -> None:
    finish(workbench.ask(user, session.uuid, "hello"))
    page = open_page(session=session.uuid)
    assert not [button for button in page.button if str(button.key).startswith("export-")]
    page.session_state["session-actions"] = True
    page.run()
    for name, query in (("md", "format=md&branch=active"), ("json", "format=json&branch=all")):
        page.button(key=f"export-{name}").click().run()
        wanted = page.session_state["view"].download
        assert wanted.path == f"/api/chat/sessions/{session.uuid}/export?{query}"
    assert wanted.number == 2
    page.button(key="session-reset").click().run()
    assert "starts fresh here" in words(page)


def test_looking_at_a_session_takes_its_unseen_dot(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, finish: Finish
) -> None:
    finish(workbench.ask(user, session.uuid, "hello"))
    assert "●" in rows(open_page())[0]
    open_page(session=session.uuid)
    assert "●" not in rows(open_page())[0]


class Box:
    """Stands for the composer: gives `actions.send` what a person sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def holds(self, text: str, session_id: str, nonce: str = "n1") -> None:
        sent = SimpleNamespace(nonce=nonce, session_id=session_id, text=text, model_id="", skill_folder="")
        self._monkeypatch.setattr(actions, "sent_value", lambda: sent)


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Box:
    return Box(monkeypatch)


@pytest.fixture
def tab(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A browser tab without a page: callbacks can be called straight."""
    state: dict[str, Any] = {}
    query: dict[str, str] = {}

    class Query(dict[str, str]):
        def from_dict(self, values: dict[str, str]) -> None:
            self.clear()
            self.update(values)

    monkeypatch.setattr(st, "session_state", state)
    monkeypatch.setattr(st, "query_params", Query(query))
    return state


def test_a_busy_session_refuses_a_second_send_and_the_composer_keeps_the_text(
    open_page: OpenPage,
    workbench: Workbench,
    user: User,
    gated: GatedRuntime,
    gated_session: Session,
    box: Box,
    tab: dict[str, Any],
) -> None:
    workbench.ask(user, gated_session.uuid, "first")
    gated.wait_until_started()
    box.holds("second", gated_session.uuid)
    actions.send()
    view = tab["view"]
    assert view.accepted is None
    assert view.refused.nonce == "n1"
    assert view.refused.message
    assert len(workbench.tree(user, gated_session.uuid)) == 2


def test_a_refused_first_send_leaves_no_empty_session_behind(
    open_page: OpenPage, workbench: Workbench, user: User, box: Box, tab: dict[str, Any]
) -> None:
    box.holds("   ", "")
    actions.send()
    assert tab["view"].refused is not None
    assert workbench.list_sessions(user).rows == []


def test_a_send_goes_to_the_session_that_was_on_screen_and_does_not_pull_the_viewer_back(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, box: Box, tab: dict[str, Any]
) -> None:
    other = workbench.create_session(user, runtime="echo")
    st.query_params["session"] = other.uuid
    box.holds("for the first session", session.uuid)
    actions.send()
    assert tab["view"].accepted == "n1"
    assert st.query_params["session"] == other.uuid
    assert workbench.branch(user, session.uuid).messages[0].message.content == "for the first session"
    assert workbench.branch(user, other.uuid).messages == []


def test_the_page_speaks_the_chosen_language_and_keeps_its_place(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, finish: Finish
) -> None:
    finish(workbench.ask(user, session.uuid, "hello"))
    page = open_page(session=session.uuid)
    assert "New chat" in links(page)
    page.session_state["view"].language = "zh-CN"
    page.run()
    assert "新对话" in links(page)
    assert page.query_params["session"] == session.uuid
    assert not page.exception


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (BridgeState("starting"), "The Bridge is starting"),
        (BridgeState("not_installed", "x"), "make run"),
        (BridgeState("down", "The Bridge crashed. It is started again in a moment."), "started again"),
    ],
)
def test_without_a_bridge_the_page_says_why_and_can_still_be_read(
    open_page: OpenPage,
    workbench: Workbench,
    user: User,
    session: Session,
    finish: Finish,
    monkeypatch: pytest.MonkeyPatch,
    state: BridgeState,
    sentence: str,
) -> None:
    finish(workbench.ask(user, session.uuid, "an old question"))
    monkeypatch.setattr(workbench, "bridge_state", lambda: state)
    shown = words(open_page(session=session.uuid))
    assert sentence in shown
    assert "an old question" in shown


def test_the_small_local_model_and_the_scripted_tour_are_named_for_what_they_are(
    open_page: OpenPage, workbench: Workbench, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [ModelChoice(id="local", label="Local", kind="local"), ModelChoice(id="tour", label="Tour", kind="tour")]
    monkeypatch.setattr(workbench, "models", lambda user: models)
    for model_id, hint in (("local", "cannot call tools"), ("tour", "scripted")):
        session = workbench.create_session(user, runtime="echo", model_id=model_id)
        assert hint in words(open_page(session=session.uuid))


def test_another_model_is_offered_for_one_answer(
    open_page: OpenPage,
    workbench: Workbench,
    user: User,
    session: Session,
    finish: Finish,
    echo: EchoRuntime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workbench, "models", lambda user: [ModelChoice(id="gpt", label="GPT <b>")])
    started = finish(workbench.ask(user, session.uuid, "hello"))
    page = open_page(session=session.uuid)
    model_key = f"model-{started.message_uuid}"
    assert model_key not in [box.key for box in page.selectbox]
    page.session_state[f"regenerate-with-{started.message_uuid}"] = True
    page.run()
    page.selectbox(key=model_key).set_value("gpt")
    page.button(key=f"regenerate-now-{started.message_uuid}").click().run()
    newest = workbench.versions(user, started.message_uuid)[-1]
    finish(Started(str(newest.run_id), newest.uuid, ""))
    assert [request.model for request in echo.requests] == ["", "gpt"]
