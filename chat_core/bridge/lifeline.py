"""Decides when a Bridge that nobody needs any more should end."""

import time
from collections.abc import Callable

SILENCE_SECONDS = 15.0
"""The app asks for the health every few seconds; after so long without a word it is gone."""


class Lifeline:
    """Knows when an embedded Bridge is needed no more; an external one (no grace) always is.

    Without runs it is needed while the app is heard. With runs at work, or ended since the app was last heard, it
    waits `grace_seconds` for a new app to fetch them.
    """

    def __init__(
        self,
        grace_seconds: float | None,
        active_runs: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._grace_seconds = grace_seconds
        self._active_runs = active_runs
        self._clock = clock
        self._last_contact = clock()
        self._had_runs = False

    def contacted(self) -> None:
        self._last_contact = self._clock()
        self._had_runs = False

    def is_over(self) -> bool:
        """Tell whether to end; ask it every second or so, it notices runs only when asked."""
        if self._grace_seconds is None:
            return False
        if self._active_runs():
            self._had_runs = True
        patience = max(self._grace_seconds, SILENCE_SECONDS) if self._had_runs else SILENCE_SECONDS
        return self._clock() - self._last_contact > patience
