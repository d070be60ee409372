"""One process to fork from, and a machine for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.machine import Forks, Machine


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    forks = Forks()
    yield forks
    forks.close()


@pytest.fixture
def machine(forks: Forks, tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(forks, tmp_path)
    machine.start_bridge()
    yield machine
    machine.kill_bridge()
