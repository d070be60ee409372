"""The message tree, and that the agent remembers exactly the active branch above the new message."""

from typing import Any

import pytest

from chat_core.errors import InvalidInput, SessionBusy
from chat_core.models import Session, User
from chat_core.workbench import Workbench
from tests.support.runs import contents, finish
from tests.support.runtimes import EchoRuntime, GatedRuntime, answers, emits


def say(workbench: Workbench, user: User, session: Session, text: str) -> str:
    """Ask and wait; returns the id of the answer."""
    started = workbench.ask(user, session.uuid, text)
    finish(workbench, user, started.run_id)
    return started.message_uuid


def remembered(echo: EchoRuntime) -> list[str]:
    """What the agent was given in its last run, as texts in order."""
    turns: list[list[dict[str, Any]]] = echo.requests[-1].contexts
    return [message["content"] for turn in turns for message in turn]


def versions(workbench: Workbench, user: User, session: Session) -> list[tuple[int, int]]:
    return [(shown.version_index, shown.version_count) for shown in workbench.branch(user, session.uuid).messages]


def test_regenerate_adds_an_active_version_and_keeps_the_old_one(
    workbench: Workbench, session: Session, user: User
) -> None:
    first = say(workbench, user, session, "one")
    again = workbench.regenerate(user, first)
    finish(workbench, user, again.run_id)
    both = workbench.versions(user, first)
    assert [(message.branch_order, message.is_active) for message in both] == [(1, False), (2, True)]
    assert versions(workbench, user, session) == [(1, 1), (2, 2)]
    assert workbench.store.check() == []


def test_regenerate_gives_the_agent_nothing_of_the_old_answer(
    workbench: Workbench, session: Session, echo: EchoRuntime, user: User
) -> None:
    say(workbench, user, session, "one")
    second = say(workbench, user, session, "two")
    finish(workbench, user, workbench.regenerate(user, second).run_id)
    assert remembered(echo) == ["one", "one"]
    assert echo.requests[-1].message == "two"


def test_editing_the_very_first_message_makes_root_siblings(
    workbench: Workbench, session: Session, echo: EchoRuntime, user: User
) -> None:
    say(workbench, user, session, "one")
    say(workbench, user, session, "two")
    root = workbench.branch(user, session.uuid).messages[0].message
    finish(workbench, user, workbench.edit_and_run(user, root.uuid, "uno").run_id)
    assert contents(workbench, user, session) == ["uno", "uno"]
    assert versions(workbench, user, session)[0] == (2, 2)
    assert remembered(echo) == []
    assert workbench.store.check() == []


def test_switching_moves_only_the_clicked_fork(workbench: Workbench, session: Session, user: User) -> None:
    first = say(workbench, user, session, "one")
    deep = say(workbench, user, session, "two")
    finish(workbench, user, workbench.regenerate(user, deep).run_id)
    workbench.activate(user, deep)
    finish(workbench, user, workbench.regenerate(user, first).run_id)
    assert contents(workbench, user, session) == ["one", "one"]
    workbench.activate(user, first)
    shown = workbench.branch(user, session.uuid).messages
    assert [(item.version_index, item.version_count) for item in shown] == [(1, 1), (1, 2), (1, 1), (1, 2)]
    assert shown[-1].message.uuid == deep
    assert workbench.store.check() == []


def test_after_a_switch_the_agent_gets_the_turns_of_that_path(
    workbench: Workbench, session: Session, echo: EchoRuntime, user: User
) -> None:
    say(workbench, user, session, "one")
    root = workbench.branch(user, session.uuid).messages[0].message
    finish(workbench, user, workbench.edit_and_run(user, root.uuid, "uno").run_id)
    say(workbench, user, session, "due")
    assert remembered(echo) == ["uno", "uno"]
    workbench.activate(user, root.uuid)
    say(workbench, user, session, "two")
    assert remembered(echo) == ["one", "one"]


def test_reset_hides_everything_before_it_from_the_agent(
    workbench: Workbench, session: Session, echo: EchoRuntime, user: User
) -> None:
    say(workbench, user, session, "one")
    before = workbench.get_session(user, session.uuid).agent_session
    workbench.reset(user, session.uuid)
    say(workbench, user, session, "two")
    assert remembered(echo) == []
    say(workbench, user, session, "three")
    assert remembered(echo) == ["two", "two"]
    assert workbench.get_session(user, session.uuid).agent_session != before
    assert [item.message.status for item in workbench.branch(user, session.uuid).messages][2] == "RESET"
    assert workbench.store.check() == []


def test_compaction_makes_a_summary_and_replaces_the_context_before_it(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    gated.release()
    gated.steps = [answers("a1")]
    finish(workbench, user, workbench.ask(user, gated_session.uuid, "one").run_id)
    compact = {"base": True, "messages": [{"role": "assistant", "content": "SUMMARY"}]}
    gated.steps = [
        emits("context_compacted", summary="We talked.", condensed=2),
        emits("final", text="a2", interrupted=False, context=compact, model="m"),
    ]
    finish(workbench, user, workbench.ask(user, gated_session.uuid, "two").run_id)
    gated.steps = [answers("a3")]
    finish(workbench, user, workbench.ask(user, gated_session.uuid, "three").run_id)
    assert gated.requests[-1].contexts == [compact["messages"]]
    shown = workbench.branch(user, gated_session.uuid).messages
    assert [item.message.content for item in shown if item.message.role == "SYSTEM"] == ["We talked."]
    assert workbench.get_session(user, gated_session.uuid).last_summarized_at is not None
    assert workbench.store.check() == []


def test_a_turn_of_another_runtime_is_told_in_plain_text(
    workbench: Workbench, session: Session, gated: GatedRuntime, user: User
) -> None:
    say(workbench, user, session, "one")
    with workbench.store.database.write() as db:
        db.execute("UPDATE chat_session SET runtime = 'gated'")
    gated.release()
    finish(workbench, user, workbench.ask(user, session.uuid, "two").run_id)
    assert gated.requests[-1].contexts == [
        [{"role": "user", "content": "one"}, {"role": "assistant", "content": "one"}]
    ]


def test_edit_and_regenerate_are_refused_while_a_run_works(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    started = workbench.ask(user, gated_session.uuid, "one")
    with pytest.raises(SessionBusy):
        workbench.regenerate(user, started.message_uuid)
    with pytest.raises(SessionBusy):
        workbench.edit_and_run(user, started.user_message_uuid, "two")
    assert len(workbench.tree(user, gated_session.uuid)) == 2
    gated.release()
    finish(workbench, user, started.run_id)


def test_only_answers_can_be_regenerated_and_only_questions_edited(
    workbench: Workbench, session: Session, user: User
) -> None:
    answer = say(workbench, user, session, "one")
    question = workbench.branch(user, session.uuid).messages[0].message.uuid
    with pytest.raises(InvalidInput):
        workbench.regenerate(user, question)
    with pytest.raises(InvalidInput):
        workbench.edit(user, answer, "x")


def test_a_window_of_a_long_branch_continues_upwards(workbench: Workbench, session: Session, user: User) -> None:
    for number in range(6):
        say(workbench, user, session, f"q{number}")
    window = workbench.branch(user, session.uuid, limit=4)
    assert [item.message.content for item in window.messages] == ["q4", "q4", "q5", "q5"]
    assert window.has_more
    earlier = workbench.branch(user, session.uuid, before=window.messages[0].message.uuid, limit=100)
    assert [item.message.content for item in earlier.messages] == [f"q{n}" for n in range(4) for _ in (0, 1)]
    assert not earlier.has_more


def test_a_link_to_a_message_shows_its_branch_and_changes_nothing_stored(
    workbench: Workbench, session: Session, user: User
) -> None:
    say(workbench, user, session, "one")
    old = say(workbench, user, session, "two")
    root = workbench.branch(user, session.uuid).messages[0].message
    finish(workbench, user, workbench.edit_and_run(user, root.uuid, "uno").run_id)
    linked = workbench.branch(user, session.uuid, message=old)
    assert [item.message.content for item in linked.messages] == ["one", "one", "two", "two"]
    assert contents(workbench, user, session) == ["uno", "uno"]


def test_activities_count_tools_and_todos(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [
        emits("tool_call", call_id="a", name="todo", args={}),
        emits("tool_result", call_id="a", name="todo", result="{}", duration_ms=3, is_error=True),
        emits(
            "todo_update",
            todos=[
                {"id": "1", "content": "x", "status": "completed"},
                {"id": "2", "content": "y", "status": "pending"},
            ],
        ),
    ]
    gated.release()
    started = workbench.ask(user, gated_session.uuid, "go")
    finish(workbench, user, started.run_id)
    activity = workbench.activities(user, gated_session.uuid, [started.message_uuid])[started.message_uuid]
    assert (activity.tool_calls, activity.tool_errors) == (1, 1)
    assert (activity.todos_done, activity.todos_total) == (1, 2)
