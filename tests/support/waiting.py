"""Bounded waiting for what no event tells of."""

import time
from collections.abc import Callable


def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Return once the condition holds; an assertion fails when it does not become true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not become true in time"
        time.sleep(0.02)
