"""The app is killed between any two steps; the next start ends every run with every entry once."""

import pytest

from tests.faults.machine import Machine


@pytest.mark.parametrize("point", ["begin.between", "begin.before_commit"])
def test_killed_before_the_question_was_stored_nothing_is_there(machine: Machine, point: str) -> None:
    machine.crash("ask", message="go", fail_point=point)
    machine.recover()
    assert machine.runs() == []
    assert machine.rows("chat_message") == 0
    assert machine.effects().total() == 0


@pytest.mark.parametrize("point", ["begin.committed", "run.before_start"])
def test_killed_before_the_agent_was_told_the_run_is_interrupted_and_the_question_kept(
    machine: Machine, point: str
) -> None:
    machine.crash("ask", message="go", fail_point=point)
    machine.recover()
    [told] = machine.runs()
    assert (told.status, told.question) == ("INTERRUPTED", "go")
    assert [entry.kind for entry in told.log] == ["run_started", "run_interrupted"]
    assert machine.effects().total() == 0


@pytest.mark.parametrize(
    "point",
    [
        "run.started",
        "append.between:1",
        "append.between:3",
        "append.committed:1",
        "append.committed:3",
        "end.between",
        "end.committed",
    ],
)
def test_bc01_bc10_killed_at_work_the_run_ends_as_if_nothing_had_happened(machine: Machine, point: str) -> None:
    machine.crash("ask", message="go", fail_point=point)
    machine.recover()
    [told] = machine.runs()
    assert told.status == "SUCCESS"
    told.assert_every_entry_once()
    assert list(machine.effects().values()) == [1]


@pytest.mark.parametrize("point", ["answer.between", "answer.recorded", "answer.delivered"])
def test_killed_while_a_question_is_answered_the_answer_counts_once(machine: Machine, point: str) -> None:
    machine.crash("ask", message="ask", fail_point=point)
    machine.recover(reply=point == "answer.between")
    [told] = machine.runs()
    assert told.status == "SUCCESS"
    told.assert_every_entry_once()
    assert told.kinds("clarify_request", "clarify_answer") == ["clarify_request", "clarify_answer"]
    assert told.content.startswith("You said yes. ")


@pytest.mark.parametrize("point", ["stop.requested", "stop.told"])
def test_killed_while_stopping_the_run_is_stopped_at_the_next_start(machine: Machine, point: str) -> None:
    machine.crash("ask", message="slow", then="stop", fail_point=point)
    machine.recover()
    [told] = machine.runs()
    assert told.status == "STOPPED"
    told.assert_every_entry_once()


@pytest.mark.parametrize("point", ["delete.stopped", "delete.one_hidden"])
def test_bc19_killed_before_the_deletion_was_stored_the_session_is_there_and_stopped(
    machine: Machine, point: str
) -> None:
    machine.crash("ask", message="slow", then="delete", fail_point=point)
    machine.recover()
    [told] = machine.runs()
    assert told.status == "STOPPED"
    told.assert_every_entry_once()


@pytest.mark.parametrize("point", ["delete.hidden", "purge.between", "purge.done"])
def test_bc19_killed_while_deleting_nothing_of_the_session_is_left_after_the_next_start(
    machine: Machine, point: str
) -> None:
    machine.crash("ask", message="slow", then="delete", fail_point=point)
    machine.recover()
    assert machine.runs() == []
    tables = ("chat_session", "chat_message", "chat_message_log", "run", "turn_context", "search_trigram_docsize")
    assert [machine.rows(table) for table in tables] == [0] * len(tables)


@pytest.mark.parametrize("point", ["recovery.taken_over", "recovery.rejoined", "append.committed:1"])
def test_bc16_killed_again_while_rejoining_nothing_stays_running(machine: Machine, point: str) -> None:
    machine.crash("ask", message="slow", fail_point="append.committed:2")
    machine.crash("finish", fail_point=point)
    machine.recover()
    [told] = machine.runs()
    assert told.status == "SUCCESS"
    told.assert_every_entry_once()
    assert told.run.fence == 3


@pytest.mark.parametrize("point", ["condense.begun", "condense.dropped", "retention.removed"])
def test_killed_while_keeping_house_the_next_time_goes_on(machine: Machine, point: str) -> None:
    assert machine.run("ask", message="go") == 0
    days = 1 if point.startswith("retention") else 0
    machine.crash("condense", days=days, fail_point=point)
    machine.runs()
    assert machine.run("condense", days=days) == 0
    [told] = machine.runs()
    assert told.text("answer") == ""
    assert told.log[-1].content == told.content


def test_killed_while_the_database_is_made_the_next_start_makes_it(machine: Machine) -> None:
    kills = 0
    for number in range(12):
        kills += machine.run("finish", kill_after=0.004 + 0.004 * number) != 0
    machine.recover()
    assert kills > 0
    assert machine.runs() == []
