"""The tree on the chat page: follow-ups, the map, two versions compared, windows of a long session, search, links."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from chat_core.bridge.protocol import ModelChoice
from chat_core.errors import SessionBusy
from chat_core.models import Session, Started, User
from chat_core.ui.window import WINDOW
from chat_core.workbench import Workbench
from tests.pages.reading import component, has_component, rows, words
from tests.support.runtimes import EchoRuntime, GatedRuntime, answers, calls_tool, emits, reports_error
from tests.support.stored import add_turns

OpenPage = Callable[..., AppTest]
Finish = Callable[[Started], Started]
HOSTILE = "<img src=x onerror=alert(1)> \u202egnp [a](javascript:x) **b**"


def keys(page: AppTest) -> list[str]:
    return [str(button.key) for button in page.button]


def map_rows(page: AppTest) -> list[dict[str, Any]]:
    rows_of_map: list[dict[str, Any]] = component(page, "branch_map.js")["rows"]
    return rows_of_map


# --- versions ---


def test_a_fork_says_what_follows_on_the_versions_that_are_hidden(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, finish: Finish
) -> None:
    first = finish(workbench.ask(user, session.uuid, "one"))
    finish(workbench.ask(user, session.uuid, "two"))
    again = finish(workbench.regenerate(user, first.message_uuid))
    page = open_page(session=session.uuid)
    assert "2 follow-up messages in version 1" in words(page)
    page.button(key=f"previous-{again.message_uuid}").click().run()
    assert "follow-up" not in words(page)


def test_the_answer_to_another_wording_is_no_follow_up(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, finish: Finish
) -> None:
    first = finish(workbench.ask(user, session.uuid, "one"))
    finish(workbench.edit_and_run(user, first.user_message_uuid, "uno"))
    assert "follow-up" not in words(open_page(session=session.uuid))
    workbench.activate(user, first.user_message_uuid)
    finish(workbench.ask(user, session.uuid, "two"))
    finish(workbench.edit_and_run(user, first.user_message_uuid, "eins"))
    assert "2 follow-up messages in version 1" in words(open_page(session=session.uuid))


def test_many_versions_are_listed_with_their_follow_ups(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, finish: Finish
) -> None:
    first = finish(workbench.ask(user, session.uuid, "one"))
    add_turns(workbench, session, 60)
    finish(workbench.regenerate(user, first.message_uuid))
    finish(workbench.ask(user, session.uuid, "two"))
    finish(workbench.regenerate(user, first.message_uuid))
    assert "Follow-up messages: 100+ in version 1, 2 in version 2" in words(open_page(session=session.uuid))


def test_a_failed_answer_can_be_tried_with_another_model_at_once(
    open_page: OpenPage,
    workbench: Workbench,
    user: User,
    gated: GatedRuntime,
    gated_session: Session,
    finish: Finish,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workbench, "models", lambda user: [ModelChoice(id="other", label="Other")])
    gated.steps = [reports_error("model_auth", "The model refused the key.")]
    gated.release()
    failed = finish(workbench.ask(user, gated_session.uuid, "hello"))
    gated.steps = [answers("fine")]
    page = open_page(session=gated_session.uuid)
    page.session_state[f"regenerate-with-{failed.message_uuid}"] = True
    page.run()
    page.selectbox(key=f"model-{failed.message_uuid}").set_value("other")
    page.button(key=f"regenerate-now-{failed.message_uuid}").click().run()
    newest = workbench.versions(user, failed.message_uuid)[-1]
    assert newest.model_id == "other"
    finish(Started(str(newest.run_id), newest.uuid, ""))


# --- two tabs ---


def test_a_tab_that_shows_another_branch_goes_on_with_what_it_shows(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, finish: Finish, echo: EchoRuntime
) -> None:
    first = finish(workbench.ask(user, session.uuid, "one"))
    two = finish(workbench.ask(user, session.uuid, "two"))
    page = open_page(session=session.uuid)
    finish(workbench.regenerate(user, first.message_uuid))
    assert len(workbench.branch(user, session.uuid).messages) == 2
    page.button(key=f"regenerate-{two.message_uuid}").click().run()
    shown = [item.message for item in workbench.branch(user, session.uuid).messages]
    assert [shown[1].uuid, shown[2].uuid] == [first.message_uuid, two.user_message_uuid]
    finish(Started(str(shown[3].run_id), shown[3].uuid, ""))
    assert workbench.store.check() == []


def test_a_refusal_changes_no_branch(
    open_page: OpenPage,
    workbench: Workbench,
    user: User,
    session: Session,
    finish: Finish,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = finish(workbench.ask(user, session.uuid, "one"))
    again = finish(workbench.regenerate(user, first.message_uuid))
    page = open_page(session=session.uuid, message=first.message_uuid)

    def refused(*args: object, **options: object) -> None:
        raise SessionBusy("A run is at work.")

    monkeypatch.setattr(workbench, "regenerate", refused)
    page.button(key=f"regenerate-{first.message_uuid}").click().run()
    assert "A run is at work." in words(page)
    assert workbench.branch(user, session.uuid).messages[-1].message.uuid == again.message_uuid


# --- the map ---


def test_the_map_shows_every_branch_with_its_words_and_marks_where_one_is(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, finish: Finish
) -> None:
    first = finish(workbench.ask(user, session.uuid, f"one {HOSTILE}"))
    finish(workbench.edit_and_run(user, first.user_message_uuid, "uno"))
    page = open_page(session=session.uuid)
    assert not has_component(page, "branch_map.js")
    page.button(key="open-map").click().run()
    shown = map_rows(page)
    assert [(row["kind"], row["lane"], row["active"]) for row in shown] == [
        ("start", 0, True),
        ("message", 1, False),
        ("message", 1, False),
        ("message", 0, True),
        ("message", 0, True),
    ]
    assert shown[1]["words"].startswith("one <img src=x onerror=alert(1)>")
    assert shown[1]["facts"][:2] == ["You", "version 1 of 2"]
    assert [row["here"] for row in shown[1:]] == [False, False, False, True]


def test_the_map_is_closed_and_leads_to_the_message_without_changing_what_is_stored(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, finish: Finish
) -> None:
    first = finish(workbench.ask(user, session.uuid, "one"))
    again = finish(workbench.regenerate(user, first.message_uuid))
    page = open_page(session=session.uuid)
    page.button(key="open-map").click().run()
    assert page.session_state["view"].dialog == "map"
    page.session_state["view"].dialog = ""
    page.query_params["message"] = first.message_uuid
    page.run()
    assert "another branch" in words(page)
    assert workbench.branch(user, session.uuid).messages[-1].message.uuid == again.message_uuid
    page.button(key="to-active").click().run()
    assert "message" not in page.query_params
    assert "another branch" not in words(page)


# --- two versions side by side ---


def test_two_versions_are_compared_with_what_they_took(
    open_page: OpenPage, workbench: Workbench, user: User, gated: GatedRuntime, gated_session: Session, finish: Finish
) -> None:
    gated.release()
    gated.steps = [calls_tool("read_file", path="a"), answers("First <b>answer</b>."), emits("usage", input_tokens=12)]
    first = finish(workbench.ask(user, gated_session.uuid, "hello"))
    gated.steps = [calls_tool("todo", is_error=True), calls_tool("todo"), answers("Second answer.")]
    second = finish(workbench.regenerate(user, first.message_uuid))
    page = open_page(session=gated_session.uuid)
    assert f"compare-{second.message_uuid}" in keys(page)
    page.button(key=f"compare-{second.message_uuid}").click().run()
    said = words(page)
    assert "First <b>answer</b>." in said
    assert "Second answer." in said
    assert "| Tool calls | **1** | **2 (1 failed)** |" in said
    assert "| Tokens | **12 in · – out** | **none** |" in said
    panels = [json.loads(item.proto.json) for item in page.get("bidi_component")]
    compared = [panel["message"] for panel in panels if panel.get("mode") == "record"]
    assert compared == [first.message_uuid, second.message_uuid]
    page.selectbox(key="compare-right").set_value(first.message_uuid).run()
    assert "Choose two different versions." in words(page)


def test_a_single_version_offers_nothing_to_compare(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, finish: Finish
) -> None:
    finish(workbench.ask(user, session.uuid, "hello"))
    assert [key for key in keys(open_page(session=session.uuid)) if key.startswith("compare-")] == []


# --- long sessions ---


@pytest.fixture
def long_session(workbench: Workbench, session: Session) -> list[str]:
    """The ids of its 2,000 messages."""
    return add_turns(workbench, session, 1000)


def test_a_link_far_up_shows_what_is_round_it_and_the_way_in_both_directions(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, long_session: list[str]
) -> None:
    page = open_page(session=session.uuid, message=long_session[1000])
    said = words(page)
    assert "Question 500 of" in said
    assert "Question 999 of" not in said
    assert {"earlier", "later", "to-active"} <= set(keys(page))
    assert "Back to the latest" in said
    assert "has no answer yet" not in said
    page.button(key="later").click().run()
    assert "Question 559 of" in words(page)
    page.button(key="earlier").click().run()
    assert "Question 442 of" in words(page)
    assert page.session_state["view"].hold == long_session[1000 + WINDOW // 2 - WINDOW + 1]
    page.button(key="to-active").click().run()
    assert "Question 999 of" in words(page)
    assert "later" not in keys(page)


def test_the_message_of_a_link_is_marked_and_handed_to_the_browser_to_scroll_to(
    open_page: OpenPage, session: Session, long_session: list[str]
) -> None:
    page = open_page(session=session.uuid, message=long_session[7])
    assert component(page, "scrolling.js")["scroll_to"] == long_session[7]
    page = open_page(session=session.uuid)
    assert component(page, "scrolling.js")["scroll_to"] == ""
    assert component(page, "scrolling.js")["end_of"]


def test_switching_a_version_far_from_the_end_stays_at_that_fork(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, long_session: list[str]
) -> None:
    with workbench.store.database.read() as db:
        at = db.execute("SELECT id FROM chat_message WHERE message_uuid = ?", (long_session[101],)).fetchone()[0]
    short = add_turns(workbench, session, 1, at=at)
    page = open_page(session=session.uuid)
    assert "99+ follow-up messages in version 1" in words(page)
    page.button(key=f"previous-{short[0]}").click().run()
    assert page.query_params["message"] == long_session[102]
    assert "Question 51 of" in words(page)
    assert workbench.branch(user, session.uuid).messages[-1].message.uuid == long_session[-1]


# --- search ---


def test_search_sets_off_the_match_and_says_where_it_is(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, finish: Finish
) -> None:
    workbench.update_session(user, session.uuid, title="Compass")
    first = finish(workbench.ask(user, session.uuid, "the first needle *and* more"))
    finish(workbench.edit_and_run(user, first.user_message_uuid, "重跑gen-itgc后修复"))
    page = open_page()
    page.text_input(key="session-search").set_value("修").run()
    assert ":primary[**修**]" in rows(page)[0]
    page.text_input(key="session-search").set_value("needle *").run()
    assert len(rows(page)) == 2
    assert all("other branch" in row for row in rows(page))
    assert ":primary[**needle \\***]" in rows(page)[0]
    for operator in ('"needle', "needle AND first", "needle OR first", "NOT needle", "nee*", "%"):
        page.text_input(key="session-search").set_value(operator).run()
        assert rows(page) == [], operator


def test_a_hit_opens_its_session_at_the_message_on_its_branch(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, finish: Finish
) -> None:
    workbench.update_session(user, session.uuid, title="Compass")
    first = finish(workbench.ask(user, session.uuid, "the needle"))
    finish(workbench.edit_and_run(user, first.user_message_uuid, "other"))
    page = open_page()
    page.text_input(key="session-search").set_value("needle").run()
    [hit, _] = [link for link in page.get("page_link") if "needle" in link.proto.label]
    assert f"session={session.uuid}" in hit.proto.query_string
    assert "message=" in hit.proto.query_string
    opened = open_page(session=session.uuid, message=first.user_message_uuid)
    assert "the needle" in words(opened)


# --- links ---


def test_the_link_to_a_message_is_copied(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, finish: Finish
) -> None:
    started = finish(workbench.ask(user, session.uuid, "hello"))
    page = open_page(session=session.uuid)
    page.button(key=f"copy-link-{started.message_uuid}").click().run()
    view = page.session_state["view"]
    assert view.copy_text.endswith(f"/?session={session.uuid}&message={started.message_uuid}")
    assert view.copy_count == 1
    assert "Link copied" in words(page)
