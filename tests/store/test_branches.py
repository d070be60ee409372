"""Reading and choosing branches: follow-ups, the outline, windows around a message, a whole branch made active."""

import pytest

from chat_core.errors import NotFound, SessionBusy
from chat_core.models import Session, User
from chat_core.store.messages import MOST_COUNTED, OUTLINE_CHARS
from chat_core.workbench import Workbench
from tests.support.runs import contents, finish
from tests.support.runtimes import GatedRuntime
from tests.support.stored import add_turns


def answer_of(workbench: Workbench, user: User, session: Session, text: str) -> str:
    started = workbench.ask(user, session.uuid, text)
    finish(workbench, user, started.run_id)
    return started.message_uuid


def again(workbench: Workbench, user: User, message_id: str) -> str:
    started = workbench.regenerate(user, message_id)
    finish(workbench, user, started.run_id)
    return started.message_uuid


def test_follow_ups_are_counted_on_the_branch_each_version_leads_to(
    workbench: Workbench, user: User, session: Session
) -> None:
    first = answer_of(workbench, user, session, "one")
    two = answer_of(workbench, user, session, "two")
    again(workbench, user, two)
    answer_of(workbench, user, session, "three")
    other = again(workbench, user, first)
    assert workbench.follow_ups(user, session.uuid, [first, other]) == {first: 4, other: 0}
    workbench.activate(user, two)
    assert workbench.follow_ups(user, session.uuid, [first, other]) == {first: 2, other: 0}


def test_follow_ups_are_counted_only_so_far_and_never_for_another_session(
    workbench: Workbench, user: User, session: Session
) -> None:
    top = add_turns(workbench, session, 80)[0]
    assert workbench.follow_ups(user, session.uuid, [top]) == {top: MOST_COUNTED}
    elsewhere = workbench.create_session(user, runtime="echo")
    assert workbench.follow_ups(user, elsewhere.uuid, [top]) == {}


def test_the_outline_holds_every_message_with_the_start_of_its_text(
    workbench: Workbench, user: User, session: Session
) -> None:
    first = answer_of(workbench, user, session, "x" * 1000)
    other = again(workbench, user, first)
    outline = {message.uuid: message for message in workbench.outline(user, session.uuid)}
    assert len(outline) == 3
    assert (outline[first].is_active, outline[other].is_active) == (False, True)
    assert outline[first].parent_id == outline[other].parent_id
    assert len(outline[other].start) == OUTLINE_CHARS
    with pytest.raises(NotFound):
        workbench.outline(User("somebody"), session.uuid)


def test_a_window_round_a_message_grows_to_either_side(workbench: Workbench, user: User, session: Session) -> None:
    messages = add_turns(workbench, session, 50)
    middle = messages[50]

    def shown(limit: int, later: int) -> tuple[int, int, bool, bool]:
        branch = workbench.branch(user, session.uuid, message=middle, limit=limit, later=later)
        at = [messages.index(item.message.uuid) for item in branch.messages]
        assert at == list(range(at[0], at[-1] + 1))
        return at[0], at[-1], branch.has_more, branch.has_later

    assert shown(20, 10) == (41, 60, True, True)
    assert shown(40, 10) == (21, 60, True, True)
    assert shown(40, 30) == (41, 80, True, True)
    assert shown(200, 100) == (0, 99, False, False)


def test_a_branch_is_made_active_as_a_whole_and_the_forks_off_it_keep_their_child(
    workbench: Workbench, user: User, session: Session
) -> None:
    one = answer_of(workbench, user, session, "one")
    two = answer_of(workbench, user, session, "two")
    newer = again(workbench, user, two)
    again(workbench, user, one)
    assert contents(workbench, user, session) == ["one", "one"]
    workbench.activate_branch(user, two)
    shown = workbench.branch(user, session.uuid).messages
    assert [item.message.uuid for item in shown][1::2] == [one, two]
    again(workbench, user, one)
    workbench.activate_branch(user, one)
    assert workbench.branch(user, session.uuid).messages[-1].message.uuid == two
    workbench.activate(user, newer)
    workbench.activate_branch(user, one)
    assert workbench.branch(user, session.uuid).messages[-1].message.uuid == newer
    assert workbench.store.check() == []


def test_a_question_goes_on_with_the_branch_it_names(workbench: Workbench, user: User, session: Session) -> None:
    one = answer_of(workbench, user, session, "one")
    two = answer_of(workbench, user, session, "two")
    again(workbench, user, one)
    started = workbench.ask(user, session.uuid, "three", branch=one)
    finish(workbench, user, started.run_id)
    shown = workbench.branch(user, session.uuid).messages
    assert [item.message.uuid for item in shown][1::2] == [one, two, started.message_uuid]
    assert workbench.store.check() == []


def test_a_run_started_on_another_branch_makes_it_the_active_one(
    workbench: Workbench, user: User, session: Session
) -> None:
    one = answer_of(workbench, user, session, "one")
    two = answer_of(workbench, user, session, "two")
    again(workbench, user, one)
    newest = again(workbench, user, two)
    assert workbench.branch(user, session.uuid).messages[-1].message.uuid == newest
    assert workbench.store.check() == []


def test_a_refused_question_leaves_the_active_branch_as_it_was(
    workbench: Workbench, user: User, gated: GatedRuntime, gated_session: Session
) -> None:
    gated.release(2)
    one = answer_of(workbench, user, gated_session, "one")
    running = workbench.regenerate(user, one)
    gated.wait_until_started(count=2)
    with pytest.raises(SessionBusy):
        workbench.ask(user, gated_session.uuid, "two", branch=one)
    assert workbench.branch(user, gated_session.uuid).messages[-1].message.uuid == running.message_uuid
    with pytest.raises(NotFound):
        workbench.ask(user, workbench.create_session(user).uuid, "two", branch=one)
