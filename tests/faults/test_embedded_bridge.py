"""The app with the Bridge it started itself: what survives when one of them, or both, are killed."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.machine import Forks, Machine
from tests.support.waiting import until


@pytest.fixture
def machine(forks: Forks, tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(forks, tmp_path)
    yield machine
    with suppress(OSError, ValueError):
        os.kill(bridge_pid(machine), signal.SIGKILL)


def bridge_pid(machine: Machine) -> int:
    return int(json.loads((machine.folder / "data" / "bridge.json").read_text())["pid"])


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "zombie" not in Path(f"/proc/{pid}/status").read_text() if Path("/proc").is_dir() else True


def start_and_wait_for_the_agent(machine: Machine, message: str, **options: bool) -> int:
    app = machine.start("ask", message=message, embedded=True, **options)
    until(lambda: machine.effects().total() > 0, 30)
    return app


def test_a_killed_app_finds_its_bridge_again_and_the_run_ends_as_if_nothing_had_happened(machine: Machine) -> None:
    app = start_and_wait_for_the_agent(machine, "slow")
    machine.kill(app)
    machine.wait(app)
    bridge = bridge_pid(machine)
    assert is_alive(bridge)
    machine.recover(embedded=True)
    [told] = machine.runs()
    assert told.status == "SUCCESS"
    told.assert_every_entry_once()
    assert list(machine.effects().values()) == [1]
    until(lambda: not is_alive(bridge))


def test_a_question_waits_through_the_death_of_the_app(machine: Machine) -> None:
    app = start_and_wait_for_the_agent(machine, "ask", reply=False)
    until(lambda: machine.rows_while_it_works("run_question") == 1)
    machine.kill(app)
    machine.wait(app)
    machine.recover(embedded=True)
    [told] = machine.runs()
    assert told.status == "SUCCESS"
    assert told.content.startswith("You said yes. ")
    told.assert_every_entry_once()


def test_a_killed_bridge_is_started_again_and_its_run_is_interrupted(machine: Machine) -> None:
    app = start_and_wait_for_the_agent(machine, "slow")
    os.kill(bridge_pid(machine), signal.SIGKILL)
    assert machine.wait(app) == 0
    [told] = machine.runs()
    assert told.status == "INTERRUPTED"
    told.assert_every_entry_once()


def test_both_killed_the_run_is_interrupted_and_the_next_one_works(machine: Machine) -> None:
    app = start_and_wait_for_the_agent(machine, "slow")
    os.kill(bridge_pid(machine), signal.SIGKILL)
    machine.kill(app)
    machine.wait(app)
    assert machine.run("ask", message="go", embedded=True) == 0
    machine.recover(embedded=True)
    first, second = machine.runs()
    assert (first.status, second.status) == ("INTERRUPTED", "SUCCESS")
    second.assert_every_entry_once()
    first.assert_every_entry_once()
