"""A short soak with a fixed seed; `make soak` runs the long one."""

from tests.faults.machine import Machine
from tests.faults.soak import soak

SECONDS = 15.0


def test_bc16_bc18_killed_at_random_nothing_is_lost_doubled_or_left_running(machine: Machine) -> None:
    soaked = soak(machine, seed=4, seconds=SECONDS)
    assert soaked.kills >= 3
    assert sum(soaked.ends.values()) >= 1
