"""Wakes the readers of a run once new entries of it are stored; it carries no data, the log does."""

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

_log = logging.getLogger(__name__)

Wake = Callable[[], None]


class EventBus:
    """Tells readers that a run has news. Safe from any thread; nobody can slow or break the publisher.

    Readers subscribe first and read the log then: whatever is published after that wakes them, so nothing
    falls between. Several publications may arrive as one wake.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Tuples are replaced, never changed, so that `publish` reads them without the lock.
        self._wakes: dict[str, tuple[tuple[object, Wake], ...]] = {}

    def publish(self, run_id: str) -> None:
        """Wake everybody who reads this run. Call it after the commit."""
        for _, wake in self._wakes.get(run_id, ()):
            try:
                wake()
            except Exception:
                _log.exception("a reader of run %s could not be woken", run_id)

    def subscribe(self, run_id: str, wake: Wake) -> Callable[[], None]:
        """Call `wake` (from any thread, it must not block) at every publication until the result is called.

        A publication that is under way while the reader unsubscribes may still call `wake` once.
        """
        ticket = object()
        with self._lock:
            self._wakes[run_id] = (*self._wakes.get(run_id, ()), (ticket, wake))

        def unsubscribe() -> None:
            with self._lock:
                left = tuple(item for item in self._wakes.get(run_id, ()) if item[0] is not ticket)
                if left:
                    self._wakes[run_id] = left
                else:
                    self._wakes.pop(run_id, None)

        return unsubscribe

    def watch(self, run_id: str) -> "Watch":
        """Return what a thread waits with: `with bus.watch(run_id) as watch: ... watch.wait(timeout)`."""
        return Watch(self, run_id)

    def wait(self, run_id: str, timeout_seconds: float) -> bool:
        """Wait for one publication from now on; False when none came. Loops want `watch`, which misses none."""
        with self.watch(run_id) as watch:
            return watch.wait(timeout_seconds)

    def reader_count(self, run_id: str | None = None) -> int:
        """How many readers are subscribed, to one run or to all."""
        if run_id is not None:
            return len(self._wakes.get(run_id, ()))
        with self._lock:
            return sum(len(wakes) for wakes in self._wakes.values())


class Watch:
    """One thread's subscription: remembers a publication that came between its reading and its waiting."""

    def __init__(self, bus: EventBus, run_id: str) -> None:
        self._news = threading.Event()
        self._unsubscribe = bus.subscribe(run_id, self._news.set)

    def wait(self, timeout_seconds: float) -> bool:
        """Return True once something was published since the last return; read the log after it, not before.

        False means that the time is over.
        """
        if not self._news.wait(timeout_seconds):
            return False
        self._news.clear()
        return True

    def close(self) -> None:
        self._unsubscribe()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
