"""The one thread that commits what all runs have queued, and wakes their readers after the commit."""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from chat_core.errors import LeaseLost, ParleyError, StoreUnavailable
from chat_core.event_bus import EventBus
from chat_core.fail_point import fail_point
from chat_core.models import NewEntry
from chat_core.store.questions import NewQuestion
from chat_core.store.runs import Append, End, Lease
from chat_core.store.store import Store

JOIN_SECONDS = 0.050
COMMIT_SECONDS = 0.025
MAX_ENTRIES = 50
MAX_PENDING_ENTRIES = 2_000
RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
_DELTAS: frozenset[str] = frozenset({"thinking", "answer"})

_log = logging.getLogger("parley.log_writer")


class Refused(ParleyError):
    """What a run wanted stored can never be stored, and the disk is not the reason; only this run fails."""


@dataclass(slots=True)
class _Pending:
    """What one run has queued since its last commit."""

    lease: Lease
    due: float
    entries: list[NewEntry] = field(default_factory=list)
    delta_parts: list[str] = field(default_factory=list)
    """The parts of the last entry while it is a delta that others may still join."""
    bridge_seq: int | None = None
    questions: list[NewQuestion] = field(default_factory=list)
    summaries: list[str] = field(default_factory=list)
    end: End | None = None

    def add(self, item: Append) -> None:
        for entry in item.entries:
            self._add_entry(entry)
        self.questions += item.questions
        self.bridge_seq = item.bridge_seq if item.bridge_seq is not None else self.bridge_seq
        self.summaries += item.summaries
        self.end = self.end or item.end

    @property
    def parts(self) -> int:
        """How much is queued, deltas that will be joined counted one by one."""
        return len(self.entries) + len(self.delta_parts)

    def _add_entry(self, entry: NewEntry) -> None:
        if entry.kind in _DELTAS and self.delta_parts and self.entries[-1].kind == entry.kind:
            self.delta_parts.append(entry.content)
            return
        self._join()
        self.entries.append(entry)
        if entry.kind in _DELTAS:
            self.delta_parts = [entry.content]

    def _join(self) -> None:
        if len(self.delta_parts) > 1:
            self.entries[-1] = replace(self.entries[-1], content="".join(self.delta_parts))
        self.delta_parts = []

    def to_append(self) -> Append:
        self._join()
        return Append(
            lease=self.lease,
            entries=tuple(self.entries),
            bridge_seq=self.bridge_seq,
            questions=tuple(self.questions),
            summaries=tuple(self.summaries),
            end=self.end,
        )


class LogWriter:
    """Joins deltas, commits in groups, wakes readers.

    A text delta goes at once when its run has been quiet, else it is joined with what follows for at most 50 ms;
    everything else goes with the next commit, at most 25 ms after the last one. When the disk is full or the
    database locked, what is queued is kept and tried again; `trouble` says so meanwhile, and `submit` blocks once
    a run has too much queued.
    """

    def __init__(self, store: Store, bus: EventBus, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._bus = bus
        self._clock = clock
        self._changed = threading.Condition()
        self._pending: dict[str, _Pending] = {}
        self._last_flush: dict[str, float] = {}
        self._lost: dict[str, LeaseLost] = {}
        self._refused: dict[str, Refused] = {}
        self._in_commit: set[str] = set()
        self._closing = False
        self.trouble: str | None = None
        self.on_loss: Callable[[Lease, ParleyError], None] = lambda _lease, _error: None
        """Told from the writing thread when a lease is lost or refused: its agent may be silent for long."""
        self._thread = threading.Thread(target=self._work, name="log-writer", daemon=True)
        self._thread.start()

    def submit(self, item: Append) -> None:
        """Queue what a run wants stored.

        Raises `LeaseLost` once an earlier item of the same lease came too late, and `Refused`, one time, when one
        could not be stored; what is submitted after that counts again.
        """
        key = _key(item.lease)
        with self._changed:
            while self._parts(key) > MAX_PENDING_ENTRIES and not self._closing:
                self._changed.wait(1.0)
            self._raise_if_lost(key)
            now = time.monotonic()
            pending = self._pending.get(key)
            if pending is None:
                pending = self._pending[key] = _Pending(item.lease, due=self._last_flush.get(key, 0.0) + JOIN_SECONDS)
            pending.add(item)
            urgent = item.end is not None or item.questions or _has_other(item.entries)
            if urgent or len(pending.entries) >= MAX_ENTRIES or pending.parts >= MAX_PENDING_ENTRIES:
                pending.due = now
            self._changed.notify_all()

    def flush(self, lease: Lease, timeout_seconds: float) -> None:
        """Wait until everything the lease has queued is stored.

        Raises as `submit` does, and `StoreUnavailable` when it could not be stored in time; it is still queued then.
        """
        key = _key(lease)
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            if key in self._pending:
                self._pending[key].due = 0.0
                self._changed.notify_all()
            while key in self._pending or key in self._in_commit:
                left = deadline - time.monotonic()
                if left <= 0 or not self._thread.is_alive():
                    raise StoreUnavailable(self.trouble or "The database did not take the changes in time.")
                self._changed.wait(min(left, 1.0))
            self._raise_if_lost(key)

    def has_queued(self, lease: Lease) -> bool:
        with self._changed:
            return _key(lease) in self._pending or _key(lease) in self._in_commit

    def forget(self, lease: Lease) -> None:
        """Drop what is remembered of a lease whose work is over."""
        with self._changed:
            self._lost.pop(_key(lease), None)
            self._refused.pop(_key(lease), None)
            self._last_flush.pop(_key(lease), None)

    def close(self, timeout_seconds: float = 2.0) -> None:
        """Store what is queued, if the database lets us within the time, and end the thread."""
        with self._changed:
            self._closing = True
            for pending in self._pending.values():
                pending.due = 0.0
            self._changed.notify_all()
        self._thread.join(timeout_seconds)

    def _parts(self, key: str) -> int:
        pending = self._pending.get(key)
        return pending.parts if pending else 0

    def _raise_if_lost(self, key: str) -> None:
        lost = self._lost.get(key)
        if lost is not None:
            raise LeaseLost(lost.message, **lost.values)
        refused = self._refused.pop(key, None)
        if refused is not None:
            raise refused

    def _work(self) -> None:
        last_commit = 0.0
        failures = 0
        while True:
            batch = self._next_batch(last_commit)
            if batch is None:
                return
            last_commit = time.monotonic()
            if self._commit(batch):
                failures = 0
                continue
            if self._closing:
                return
            threading.Event().wait(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])
            failures += 1

    def _next_batch(self, last_commit: float) -> list[_Pending] | None:
        """Wait until something is due and return everything that is queued then; None when closing and empty."""
        with self._changed:
            while True:
                now = time.monotonic()
                if self._pending:
                    due = max(min(pending.due for pending in self._pending.values()), last_commit + COMMIT_SECONDS)
                    if due <= now or self._closing:
                        return self._take(now)
                    self._changed.wait(due - now)
                elif self._closing:
                    return None
                else:
                    self._changed.wait()

    def _take(self, now: float) -> list[_Pending]:
        horizon = now + COMMIT_SECONDS
        batch = [pending for pending in self._pending.values() if pending.due <= horizon or self._closing]
        for pending in batch:
            key = _key(pending.lease)
            del self._pending[key]
            self._last_flush[key] = now
        self._in_commit = {_key(pending.lease) for pending in batch}
        return batch

    def _commit(self, batch: list[_Pending]) -> bool:
        try:
            results = self._store.runs.append([pending.to_append() for pending in batch], self._clock())
        except StoreUnavailable as error:
            self._keep(batch, error)
            return False
        except Exception:
            return self._commit_one_by_one(batch)
        fail_point("end.committed" if any(pending.end for pending in batch) else "append.committed")
        with self._changed:
            self.trouble = None
            self._in_commit -= {_key(pending.lease) for pending in batch}
            lost = [(pending.lease, loss) for pending, loss in zip(batch, results, strict=True) if loss is not None]
            self._lost |= {_key(lease): loss for lease, loss in lost}
            self._changed.notify_all()
        for lease, loss in lost:
            self.on_loss(lease, loss)
        for run_id in {pending.lease.run_id for pending in batch}:
            self._bus.publish(run_id)
        return True

    def _commit_one_by_one(self, batch: list[_Pending]) -> bool:
        """One run's queue cannot be stored: find it, so that it fails alone."""
        if len(batch) > 1:
            stored = [self._commit([pending]) for pending in batch]
            return all(stored)
        _log.exception("what run %s wanted stored is refused by the database", batch[0].lease.run_id)
        key = _key(batch[0].lease)
        refused = Refused("What the agent sent could not be stored. The log file has the details.")
        with self._changed:
            self._refused[key] = refused
            self._in_commit.discard(key)
            self._changed.notify_all()
        self.on_loss(batch[0].lease, refused)
        return True

    def _keep(self, batch: list[_Pending], error: StoreUnavailable) -> None:
        with self._changed:
            self.trouble = error.message
            self._in_commit -= {_key(pending.lease) for pending in batch}
            for pending in batch:
                later = self._pending.pop(_key(pending.lease), None)
                if later is not None:
                    pending.add(later.to_append())
                self._pending[_key(pending.lease)] = pending
        _log.warning("%s Trying again.", error.message)


def _key(lease: Lease) -> str:
    return f"{lease.run_id}/{lease.fence}"


def _has_other(entries: Iterable[NewEntry]) -> bool:
    return any(entry.kind not in _DELTAS for entry in entries)
