"""What the agent has in mind: the views of the active branch."""

from collections.abc import Callable

import pytest

from chat_core.errors import NotFound
from chat_core.models import Session, Started, User
from chat_core.workbench import Workbench
from tests.support.runtimes import GatedRuntime, Step, answers, calls_tool, emits

Run = Callable[..., Started]


@pytest.fixture
def run(workbench: Workbench, user: User, gated: GatedRuntime, gated_session: Session) -> Run:
    """Ask with a script of the agent's steps and wait for the end."""

    def ask(text: str, *steps: Step) -> Started:
        gated.steps = list(steps)
        gated.release()
        started = workbench.ask(user, gated_session.uuid, text)
        for _ in workbench.follow(user, started.run_id):
            pass
        return started

    return ask


def test_the_working_memory_is_the_active_branch_and_nothing_of_a_sibling(
    workbench: Workbench, user: User, gated_session: Session, run: Run
) -> None:
    first = run("first", answers("one"))
    run("second", answers("two"))
    again = workbench.regenerate(user, first.message_uuid)
    for _ in workbench.follow(user, again.run_id):
        pass
    memory = workbench.branch_memory(user, gated_session.uuid)
    assert memory.turns == 1
    assert [(item.role, item.text) for item in memory.working] == [("user", "first"), ("assistant", "two")]


def test_after_a_reset_nothing_is_in_mind_and_no_tokens_are_told(
    workbench: Workbench, user: User, gated_session: Session, run: Run
) -> None:
    run("before", answers("old"), emits("usage", context_tokens=900, context_window=1000))
    assert workbench.branch_memory(user, gated_session.uuid).tokens == 900
    workbench.reset(user, gated_session.uuid)
    memory = workbench.branch_memory(user, gated_session.uuid)
    assert (memory.working, memory.turns, memory.tokens, memory.window) == ([], 0, None, None)


def test_the_last_usage_of_the_branch_gives_tokens_and_window(
    workbench: Workbench, user: User, gated_session: Session, run: Run
) -> None:
    run("a", answers("x"), emits("usage", context_tokens=100, context_window=6144))
    run("b", answers("y"), emits("usage", output_tokens=3))
    memory = workbench.branch_memory(user, gated_session.uuid)
    assert (memory.tokens, memory.window) == (100, 6144)


def test_the_last_tool_calls_come_newest_first_with_their_results(
    workbench: Workbench, user: User, gated_session: Session, run: Run
) -> None:
    run("a", *(calls_tool("search", f"result {number}", query=str(number)) for number in range(8)), answers("x"))
    started = run("b", calls_tool("read_file", "no such file", is_error=True, path="/x"), answers("y"))
    tools = workbench.branch_memory(user, gated_session.uuid).tools
    assert [use.result for use in tools] == ["no such file", *(f"result {number}" for number in reversed(range(8)))]
    assert (tools[0].tool_name, tools[0].is_error, tools[0].message_uuid) == ("read_file", True, started.message_uuid)
    assert '"/x"' in tools[0].arguments
    run("c", *(calls_tool("search", query=str(number)) for number in range(12)), answers("x"))
    assert len(workbench.branch_memory(user, gated_session.uuid).tools) == 10


def test_summaries_tell_how_many_messages_they_stand_for(
    workbench: Workbench, user: User, gated_session: Session, run: Run
) -> None:
    run(
        "a",
        emits("context_compacted", summary="what was", condensed=23),
        emits("context_compacted", summary="again", condensed=4),
        emits("context_compacted", summary="nobody counted"),
        answers("x"),
    )
    memory = workbench.branch_memory(user, gated_session.uuid)
    assert [(item.text, item.condensed) for item in memory.summaries] == [
        ("nobody counted", None),
        ("again", 4),
        ("what was", 23),
    ]
    shown = [item.message for item in workbench.branch(user, gated_session.uuid).messages]
    dividers = [message for message in shown if message.status == "SUMMARY"]
    assert list(workbench.condensed_counts(user, dividers).values()) == [23, 4]


def test_an_empty_session_has_nothing_in_mind(workbench: Workbench, user: User, session: Session) -> None:
    memory = workbench.branch_memory(user, session.uuid)
    assert (memory.working, memory.tools, memory.summaries, memory.tokens) == ([], [], [], None)


def test_the_memory_of_somebody_elses_session_is_not_found(workbench: Workbench, session: Session) -> None:
    with pytest.raises(NotFound):
        workbench.branch_memory(User("somebody"), session.uuid)
