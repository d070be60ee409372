"""The Bridge is killed, alone and together with the app."""

import os

import pytest

from tests.faults.machine import Machine, Told
from tests.support.waiting import until


def assert_interrupted_and_kept(told: Told) -> None:
    assert told.status == "INTERRUPTED"
    told.assert_every_entry_once()
    assert told.log[-1].meta["error"]["code"] == "bridge_lost"
    assert told.content == told.text("answer")


def wait_for_effect(machine: Machine) -> None:
    until(lambda: machine.effects().total() > 0)


def test_a_killed_bridge_leaves_its_runs_interrupted_with_everything_that_was_stored(machine: Machine) -> None:
    app = machine.start("ask", message="slow")
    wait_for_effect(machine)
    machine.start_bridge()
    assert machine.wait(app) == 0
    [told] = machine.runs()
    assert_interrupted_and_kept(told)
    assert told.text("thinking")
    assert list(machine.effects().values()) == [1]


def test_a_bridge_that_is_killed_while_a_question_waits_closes_it(machine: Machine) -> None:
    app = machine.start("ask", message="ask", reply=False)
    wait_for_effect(machine)
    until(lambda: machine.rows_while_it_works("run_question") == 1)
    machine.start_bridge()
    assert machine.wait(app) == 0
    [told] = machine.runs()
    assert_interrupted_and_kept(told)


@pytest.mark.parametrize("point", ["append.committed:2", "append.between:3", "end.between"])
def test_bc24_both_killed_the_run_is_interrupted_and_its_effect_not_repeated(machine: Machine, point: str) -> None:
    machine.crash("ask", message="go", fail_point=point)
    machine.start_bridge()
    machine.recover()
    [told] = machine.runs()
    assert_interrupted_and_kept(told)
    unknown = [entry for entry in told.log if entry.meta.get("outcome") == "unknown"]
    assert len(unknown) <= 1
    assert list(machine.effects().values()) in ([], [1])


def test_a_question_answered_while_the_bridge_is_away_ends_with_its_run(machine: Machine) -> None:
    machine.crash("ask", message="ask", fail_point="answer.recorded")
    machine.start_bridge()
    machine.recover(reply=False)
    [told] = machine.runs()
    assert_interrupted_and_kept(told)
    assert told.kinds("clarify_answer") == ["clarify_answer"]


def test_a_killed_app_gives_its_folder_free_at_once(machine: Machine) -> None:
    app = machine.start("ask", message="slow")
    wait_for_effect(machine)
    machine.kill(app)
    assert machine.wait(app) < 0
    assert os.path.exists(machine.folder / "data" / "parley.lock")
    machine.recover()
    [told] = machine.runs()
    assert told.status == "SUCCESS"
    told.assert_every_entry_once()
