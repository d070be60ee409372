"""The list of sessions: groups, rows and their states, search, paging, and what a row's menu does."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from chat_core.models import LOCAL_USER, Session, SessionRow, Started, User
from chat_core.ui.sidebar import MAX_ROWS, PAGE_ROWS, row_label
from chat_core.ui.viewer import Viewer, current_viewer
from chat_core.workbench import Workbench
from tests.pages.reading import rows, words
from tests.support.runtimes import GatedRuntime, asks

OpenPage = Callable[..., AppTest]
Finish = Callable[[Started], Started]


def choose(page: AppTest, session: Session, option: str) -> None:
    page.get_by_key(f"menu-{session.uuid}").set_value(option)
    page.run()
    assert not page.exception


@pytest.fixture
def aged(workbench: Workbench, user: User) -> Callable[[str, timedelta], Session]:
    """Make a session whose last message is this old."""

    def make(title: str, age: timedelta) -> Session:
        session = workbench.create_session(user, title=title, runtime="echo")
        moment = (session.last_message_at - age).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        with workbench.store.database.write() as db:
            db.execute("UPDATE chat_session SET last_message_at = ? WHERE id = ?", (moment, session.id))
        return session

    return make


def test_sessions_are_grouped_by_the_viewers_days_with_pinned_ones_first(
    open_page: OpenPage, workbench: Workbench, user: User, aged: Callable[[str, timedelta], Session]
) -> None:
    aged("from long ago", timedelta(days=9))
    aged("of this moment", timedelta())
    pinned = aged("kept on top", timedelta(days=30))
    workbench.update_session(user, pinned.uuid, pinned=True)
    page = open_page()
    captions = [caption.value for caption in page.sidebar.caption]
    assert [caption for caption in captions if caption in ("Pinned", "Today", "Yesterday", "Earlier")] == [
        "Pinned",
        "Today",
        "Earlier",
    ]
    assert [label.split("**")[1] for label in rows(page)] == ["kept on top", "of this moment", "from long ago"]


def test_a_row_says_that_it_works_and_that_it_waits_for_an_answer(
    open_page: OpenPage, workbench: Workbench, user: User, gated: GatedRuntime, gated_session: Session
) -> None:
    gated.steps = [asks("Which one?")]
    started = workbench.ask(user, gated_session.uuid, "hello")
    gated.wait_until_started()
    page = open_page()
    assert "working" in rows(page)[0]
    assert page.get("page_link")[1].proto.icon == "spinner"
    gated.release()
    for entry in workbench.follow(user, started.run_id):
        if entry.kind == "clarify_request":
            break
    assert "waiting for you" in rows(open_page())[0]


def test_the_list_looks_again_often_only_while_something_works(
    open_page: OpenPage,
    workbench: Workbench,
    user: User,
    gated: GatedRuntime,
    gated_session: Session,
    finish: Finish,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks: list[Any] = []
    import streamlit as st

    real = st.fragment
    monkeypatch.setattr(
        st, "fragment", lambda *args, **options: (ticks.append(options.get("run_every")), real(*args, **options))[1]
    )
    open_page()
    assert ticks == [20]
    started = workbench.ask(user, gated_session.uuid, "hello")
    ticks.clear()
    open_page()
    assert ticks == [3]
    gated.release()
    finish(started)


def test_search_is_by_plain_text(open_page: OpenPage, workbench: Workbench, user: User) -> None:
    for title in ("50% done", "重跑gen-itgc后修复", "something else"):
        workbench.create_session(user, title=title, runtime="echo")
    page = open_page()
    for query, found in (("0%", 1), ("修复", 1), ("itgc", 1), ("e", 3), ("_", 0), ("' OR 1=1 --", 0)):
        page.text_input(key="session-search").set_value(query).run()
        assert len(rows(page)) == found, query
    assert "Nothing matches “' OR 1=1 --”." in words(page)


def test_a_hit_in_a_message_leads_to_that_message_with_the_match_set_off(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, finish: Finish
) -> None:
    first = finish(workbench.ask(user, session.uuid, "where is the <needle> of the compass"))
    finish(workbench.edit_and_run(user, first.user_message_uuid, "another wording"))
    page = open_page()
    page.text_input(key="session-search").set_value("needle").run()
    hits = [link.proto for link in page.get("page_link") if "needle" in link.proto.label]
    assert any(":primary[**needle**]" in hit.label and "\\<" in hit.label for hit in hits)
    assert f"message={first.user_message_uuid}" in " ".join(hit.query_string for hit in hits)


def test_a_title_is_shown_to_the_letter(open_page: OpenPage, workbench: Workbench, user: User) -> None:
    workbench.create_session(user, title=":red[x] **b** <script> $1 $2", runtime="echo")
    label = rows(open_page())[0]
    assert label.startswith("**\\:red\\[x\\] \\*\\*b\\*\\* \\<script\\> \\$1 \\$2**")


def test_more_rows_come_on_request(open_page: OpenPage, workbench: Workbench, user: User) -> None:
    for number in range(PAGE_ROWS + 2):
        workbench.create_session(user, title=f"number {number}", runtime="echo")
    page = open_page()
    assert len(rows(page)) == PAGE_ROWS
    page.button(key="list-more").click().run()
    assert len(rows(page)) == PAGE_ROWS + 2
    assert "list-more" not in [button.key for button in page.button]
    assert MAX_ROWS % PAGE_ROWS == 0


def test_a_row_is_renamed_in_place(open_page: OpenPage, workbench: Workbench, user: User) -> None:
    session = workbench.create_session(user, title="old", runtime="echo")
    page = open_page()
    choose(page, session, "rename")
    page.text_input(key=f"title-{session.uuid}").set_value("  a new\nname ").run()
    assert workbench.get_session(user, session.uuid).title == "a new name"
    assert rows(page)[0].startswith("**a new name**")


def test_an_empty_name_changes_nothing(open_page: OpenPage, workbench: Workbench, user: User) -> None:
    session = workbench.create_session(user, title="old", runtime="echo")
    page = open_page()
    choose(page, session, "rename")
    page.text_input(key=f"title-{session.uuid}").set_value("   ").run()
    assert workbench.get_session(user, session.uuid).title == "old"


def test_pinning_and_archiving(open_page: OpenPage, workbench: Workbench, user: User) -> None:
    session = workbench.create_session(user, title="mine", runtime="echo")
    page = open_page()
    choose(page, session, "pin")
    assert workbench.get_session(user, session.uuid).pinned
    choose(page, session, "archive")
    assert rows(page) == []
    page.button(key="archive-open").click().run()
    assert len(rows(page)) == 1
    choose(page, session, "restore")
    page.button(key="archive-close").click().run()
    assert len(rows(page)) == 1


def test_a_deleted_session_can_be_brought_back_for_a_moment(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, finish: Finish
) -> None:
    finish(workbench.ask(user, session.uuid, "hello"))
    page = open_page(session=session.uuid)
    choose(page, session, "delete")
    assert rows(page) == []
    assert "session" not in page.query_params
    assert page.header[0].value == "What should the agent do?"
    assert "Deleted “hello”." in words(page)
    page.button(key="undo-delete").click().run()
    assert len(rows(page)) == 1
    assert "Deleted" not in words(page)
    assert workbench.branch(user, session.uuid).messages[0].message.content == "hello"


def test_an_undo_that_comes_too_late_says_so(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session, finish: Finish
) -> None:
    finish(workbench.ask(user, session.uuid, "hello"))
    page = open_page()
    choose(page, session, "delete")
    workbench.restore_session(user, session.uuid)
    workbench.delete_session(user, session.uuid, undo_seconds=0)
    page.button(key="undo-delete").click().run()
    assert not page.exception
    assert "there is no session" in words(page)


def test_deleting_a_session_at_work_asks_first(
    open_page: OpenPage, workbench: Workbench, user: User, gated: GatedRuntime, gated_session: Session
) -> None:
    started = workbench.ask(user, gated_session.uuid, "hello")
    gated.wait_until_started()
    page = open_page(session=gated_session.uuid)
    choose(page, gated_session, "delete")
    assert "Its run is stopped first." in words(page)
    page.button(key=f"delete-no-{gated_session.uuid}").click().run()
    assert len(rows(page)) == 1
    choose(page, gated_session, "delete")
    page.button(key=f"delete-yes-{gated_session.uuid}").click().run()
    assert rows(page) == []
    gated.wait_until_ended(started.run_id)


def test_a_refused_action_says_why_in_the_list(
    open_page: OpenPage, workbench: Workbench, user: User, gated: GatedRuntime, gated_session: Session, finish: Finish
) -> None:
    page = open_page()
    choose(page, gated_session, "reset")
    assert "nothing to forget" in words(page)


@pytest.fixture
def viewer(monkeypatch: pytest.MonkeyPatch) -> Viewer:
    monkeypatch.setattr("streamlit.session_state", {})
    return current_viewer()


def row(session: Session, **fields: Any) -> SessionRow:
    values: dict[str, Any] = {"preview": "", "run_status": None, "unseen": False, "since": None} | fields
    return SessionRow(session=session, **values)


def test_a_row_without_a_title_shows_what_was_asked(workbench: Workbench, viewer: Viewer) -> None:
    session = workbench.create_session(LOCAL_USER, runtime="echo")
    assert row_label(row(session, preview="what I asked"), viewer, False).startswith("**what I asked**")
    assert row_label(row(session), viewer, False).startswith("**New conversation**")


def test_a_row_says_since_when_somebody_is_waited_for(workbench: Workbench, viewer: Viewer) -> None:
    session = workbench.create_session(LOCAL_USER, title="x", runtime="echo")
    since: datetime = viewer.now - timedelta(minutes=3)
    label = row_label(row(session, run_status="WAITING", since=since), viewer, False)
    assert ":orange-badge[waiting for you · 3 min]" in label


def test_the_open_session_has_no_dot(workbench: Workbench, viewer: Viewer) -> None:
    session = workbench.create_session(LOCAL_USER, title="x", runtime="echo")
    unseen = row(session, unseen=True, run_status="SUCCESS")
    assert "●" in row_label(unseen, viewer, False)
    assert "●" not in row_label(unseen, viewer, True)
