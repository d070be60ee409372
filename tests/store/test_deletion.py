"""Deleting a session: hidden at once, brought back within the time, gone for good after it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from chat_core.errors import NotFound
from chat_core.models import Session, User
from chat_core.workbench import Workbench
from tests.support.runs import contents, finish, wait_for
from tests.support.runtimes import GatedRuntime, answers, calls_tool, hangs_until_stop
from tests.support.stored import add_message, add_session
from tests.support.waiting import until

TABLES = (
    "chat_session",
    "chat_message",
    "chat_message_log",
    "run",
    "run_question",
    "turn_context",
    "tool_result",
    "search_trigram_docsize",
)


def rows_left(workbench: Workbench) -> dict[str, int]:
    with workbench.store.database.read() as db:
        counts = {table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES}
    return {table: count for table, count in counts.items() if count}


def test_a_deleted_session_is_found_by_nobody_and_comes_back_as_it_was(
    workbench: Workbench, session: Session, user: User
) -> None:
    started = workbench.ask(user, session.uuid, "remember me")
    finish(workbench, user, started.run_id)
    before = workbench.session_row(user, session.uuid), contents(workbench, user, session)
    workbench.delete_session(user, session.uuid)
    assert workbench.list_sessions(user).rows == []
    assert workbench.list_sessions(user, query="remember").rows == []
    assert workbench.search(user, "remember").hits == []
    for read in (
        lambda: workbench.get_session(user, session.uuid),
        lambda: workbench.session_row(user, session.uuid),
        lambda: workbench.branch(user, session.uuid),
        lambda: workbench.message(user, started.message_uuid),
        lambda: workbench.log(user, started.message_uuid),
        lambda: workbench.versions(user, started.message_uuid),
        lambda: workbench.run_state(user, started.run_id),
        lambda: workbench.entries(user, started.run_id),
        lambda: workbench.ask(user, session.uuid, "again"),
        lambda: workbench.regenerate(user, started.message_uuid),
        lambda: workbench.activate(user, started.message_uuid),
        lambda: workbench.delete_session(user, session.uuid),
        lambda: workbench.update_session(user, session.uuid, title="x"),
    ):
        with pytest.raises(NotFound):
            read()
    assert workbench.restore_session(user, session.uuid).uuid == session.uuid
    assert (workbench.session_row(user, session.uuid), contents(workbench, user, session)) == before
    assert workbench.store.check() == []


def test_nobody_else_can_bring_a_session_back(workbench: Workbench, session: Session, user: User) -> None:
    workbench.delete_session(user, session.uuid)
    with pytest.raises(NotFound):
        workbench.restore_session(User("other"), session.uuid)
    with pytest.raises(NotFound):
        workbench.get_session(user, session.uuid)


def test_after_the_time_everything_of_the_session_goes(workbench: Workbench, session: Session, user: User) -> None:
    finish(workbench, user, workbench.ask(user, session.uuid, "hello 你好").run_id)
    workbench.delete_session(user, session.uuid, undo_seconds=60)
    workbench._purge(datetime.now(UTC) + timedelta(seconds=59))
    assert rows_left(workbench)["chat_session"] == 1
    workbench._purge(datetime.now(UTC) + timedelta(seconds=61))
    assert rows_left(workbench) == {}
    with pytest.raises(NotFound):
        workbench.restore_session(user, session.uuid)
    assert workbench.store.check() == []


def test_a_deletion_whose_time_ran_out_while_parley_was_off_is_done_at_the_start(
    open_bench: Callable[[], Workbench], user: User
) -> None:
    first = open_bench()
    add_message(first, add_session(first, user), "old")
    session = first.list_sessions(user).rows[0].session
    first.store.sessions.hide(user, [session.uuid], datetime.now(UTC), datetime.now(UTC))
    first.close()
    second = open_bench()
    until(lambda: rows_left(second) == {})


def test_deleting_at_work_stops_the_run_and_an_undo_shows_what_it_had_done(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [calls_tool("todo"), answers("partial"), hangs_until_stop()]
    gated.release()
    started = workbench.ask(user, gated_session.uuid, "go")
    wait_for(workbench, user, started.run_id, "answer")
    workbench.delete_session(user, gated_session.uuid)
    gated.wait_until_ended()
    until(lambda: not workbench.has_activity(user))
    workbench.restore_session(user, gated_session.uuid)
    message = workbench.message(user, started.message_uuid)
    assert (message.status, message.content) == ("STOPPED", "partial")
    assert workbench.store.check() == []


def test_of_many_sessions_all_or_none_are_deleted(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [hangs_until_stop()]
    gated.release()
    running = workbench.ask(user, gated_session.uuid, "go")
    gated.wait_until_started()
    ids = [gated_session.uuid, *(add_session(workbench, user).uuid for _ in range(3))]
    theirs = add_session(workbench, User("other"))
    with pytest.raises(NotFound):
        workbench.delete_sessions(user, [*ids, theirs.uuid])
    assert len(workbench.list_sessions(user).rows) == 4
    assert workbench.run_state(user, running.run_id).stop_requested is False
    workbench.delete_sessions(user, ids)
    assert workbench.list_sessions(user).rows == []
    gated.wait_until_ended(running.run_id)
    assert len(workbench.restore_sessions(user, ids)) == 4


def test_many_sessions_are_archived_and_brought_back_together(workbench: Workbench, user: User) -> None:
    ids = [add_session(workbench, user).uuid for _ in range(3)]
    with pytest.raises(NotFound):
        workbench.archive_sessions(user, [ids[0], "nothing"])
    assert len(workbench.list_sessions(user).rows) == 3
    workbench.archive_sessions(user, ids[:2])
    assert [row.session.uuid for row in workbench.list_sessions(user).rows] == [ids[2]]
    workbench.archive_sessions(user, ids, "ACTIVE")
    assert len(workbench.list_sessions(user).rows) == 3


def test_the_list_goes_on_after_its_last_row_was_deleted(workbench: Workbench, user: User) -> None:
    ids = [add_session(workbench, user).uuid for _ in range(5)]
    page = workbench.list_sessions(user, limit=2)
    workbench.delete_session(user, page.rows[-1].session.uuid)
    rest = workbench.list_sessions(user, before=page.rows[-1].session.uuid)
    assert {row.session.uuid for row in page.rows + rest.rows} == set(ids)


def test_a_session_of_thousands_of_messages_can_be_deleted(workbench: Workbench, session: Session, user: User) -> None:
    for number in range(2_500):
        add_message(workbench, session, f"message {number}")
    workbench.delete_session(user, session.uuid, undo_seconds=0)
    assert rows_left(workbench) == {}
    assert workbench.store.check() == []
