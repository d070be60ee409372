"""Kills app and Bridge at random moments of random use, again and again, and checks the store after each kill.

`python -m tests.faults.soak --minutes 30 --seed 1` (or `make soak`). The same seed makes the same choices; where
a kill falls still depends on the machine.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.faults.machine import KILLED, Forks, Machine


@dataclass(frozen=True, slots=True)
class Soaked:
    """What a soak did."""

    kills: int
    bridge_kills: int
    ends: dict[str, int]
    entries: int


def soak(machine: Machine, seed: int, seconds: float) -> Soaked:
    """Use and kill until the time is over. Raises `AssertionError` at the first thing that must not be."""
    dice = random.Random(seed)
    deadline = time.monotonic() + seconds
    kills = bridge_kills = 0
    machine.start_bridge()
    while time.monotonic() < deadline:
        use_seconds = dice.uniform(0.15, 1.2)
        kills_bridge = dice.random() < 0.25
        app = machine.start("live", seed=dice.randrange(1_000_000), kill_after=use_seconds)
        if kills_bridge and dice.random() < 0.5:
            time.sleep(use_seconds * dice.random())
            machine.start_bridge()
        code = machine.wait(app)
        assert code in KILLED, f"the app ended by itself with {code}"
        kills += 1
        if kills_bridge:
            machine.start_bridge()
            bridge_kills += 1
        if dice.random() < 0.3:
            code = machine.run("finish", kill_after=dice.uniform(0.01, 0.3))
            assert code == 0 or code in KILLED, f"the app ended by itself with {code}"
            kills += 1
        check_held(machine)
    machine.recover()
    ends, entries = check_ended(machine)
    return Soaked(kills, bridge_kills, ends, entries)


def check_held(machine: Machine) -> None:
    """What must hold at any moment, also in the middle of runs."""
    store = machine.store()
    try:
        findings = store.check()
        assert findings == [], findings
    finally:
        store.close()


def check_ended(machine: Machine) -> tuple[dict[str, int], int]:
    """What must hold once every run has ended."""
    told = machine.runs()
    for one in told:
        one.assert_every_entry_once()
    repeated = {run: times for run, times in machine.effects().items() if times > 1}
    assert repeated == {}, repeated
    return dict(Counter(one.run.status for one in told)), sum(len(one.log) for one in told)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.faults.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    forks = Forks()
    deadline = time.monotonic() + wanted.minutes * 60
    seed = wanted.seed
    try:
        while time.monotonic() < deadline:
            with tempfile.TemporaryDirectory(prefix="parley-soak-") as folder:
                machine = Machine(forks, Path(folder))
                try:
                    soaked = soak(machine, seed, min(60.0, max(1.0, deadline - time.monotonic())))
                finally:
                    machine.kill_bridge()
                print(json.dumps({"seed": seed, "lost": 0, "doubled": 0, **_plain(soaked)}), flush=True)
            seed += 1
    finally:
        forks.close()
    return 0


def _plain(soaked: Soaked) -> dict[str, object]:
    return {
        "kills": soaked.kills,
        "bridge_kills": soaked.bridge_kills,
        "runs": soaked.ends,
        "entries": soaked.entries,
    }


if __name__ == "__main__":
    sys.exit(main())
