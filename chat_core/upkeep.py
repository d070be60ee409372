"""The one background thread for what must be done now and then: purge, compact, give space back."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chat_core.errors import ParleyError

_log = logging.getLogger("parley.upkeep")


@dataclass(frozen=True, slots=True)
class Duty:
    """Something to do every so often; it gets the event that says Parley is stopping, and then returns soon."""

    name: str
    every_seconds: float
    first_after_seconds: float
    work: Callable[[threading.Event], None]


class Upkeep:
    """Does its duties one after the other until it is closed; a failing one is logged and tried again in time."""

    def __init__(self, duties: Sequence[Duty]) -> None:
        self._duties = duties
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="upkeep", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout_seconds: float = 2.0) -> None:
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def _work(self) -> None:
        started = time.monotonic()
        due = {duty.name: started + duty.first_after_seconds for duty in self._duties}
        while not self._closing.wait(max(0.0, min(due.values()) - time.monotonic())):
            for duty in self._duties:
                if due[duty.name] <= time.monotonic() and not self._closing.is_set():
                    self._do(duty)
                    due[duty.name] = time.monotonic() + duty.every_seconds

    def _do(self, duty: Duty) -> None:
        try:
            duty.work(self._closing)
        except ParleyError as error:
            if not self._closing.is_set():
                _log.warning("%s: %s", duty.name, error.message)
        except Exception:
            _log.exception("%s failed", duty.name)
