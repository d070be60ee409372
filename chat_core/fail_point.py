"""Places where a test of crashes may kill the process; in normal runs they do nothing."""

import os
import signal

_VARIABLE = "PARLEY_FAIL_POINT"
_passes: dict[str, int] = {}


def fail_point(name: str) -> None:
    """Kill this process, as a power cut would, when the environment names this place (`name:3`: at its third pass)."""
    wanted = os.environ.get(_VARIABLE)
    if wanted is None:
        return
    place, _, number = wanted.partition(":")
    if place == name:
        _passes[name] = _passes.get(name, 0) + 1
        if _passes[name] >= int(number or 1):
            os.kill(os.getpid(), signal.SIGKILL)
