"""Keeps the events of one run for any number of readers, in bounded memory.

Events are numbered from 1 without gaps when they are appended. Beyond the byte bound the oldest text deltas
(`answer`, `thinking`) are *joined*: neighbours of one kind become one event that carries the **last** seq it
replaces, so ids stay monotonic, but a reader sees them jump. The lengths of the deltas are remembered: a reader
whose cursor falls inside a joined event gets exactly the text after its cursor. Nothing is lost, nothing doubled.
"""

import threading
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from chat_core.bridge.protocol import Event

JOINABLE_EVENTS: frozenset[str] = frozenset({"answer", "thinking"})
MAX_JOINED_CHARS = 256 * 1024
_EVENT_OVERHEAD_BYTES = 500

_seq_of = attrgetter("seq")


class EventBuffer:
    """The events of one run. Appending never waits for readers; all methods are safe from any thread."""

    def __init__(self, max_bytes: int, clock: Callable[[], float] = time.time) -> None:
        self._max_bytes = max_bytes
        self._join_at_bytes = max_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._deltas: dict[int, array[int]] = {}  # last seq of a joined event -> where each of its deltas ends
        self._bytes = 0
        self._last_seq = 0
        self._ended = False
        self._wakers: dict[int, Callable[[], None]] = {}
        self._waker_id = 0

    @property
    def last_seq(self) -> int:
        return self._last_seq

    @property
    def ended(self) -> bool:
        """The terminal event is in."""
        return self._ended

    @property
    def stored_bytes(self) -> int:
        return self._bytes

    def append(self, kind: str, data: dict[str, Any]) -> bool:
        """Record one event and wake the waiting readers; False when the run has ended and it was dropped."""
        with self._lock:
            if self._ended:
                return False
            self._last_seq += 1
            event = Event(self._last_seq, kind, self._clock(), data)
            self._events.append(event)
            self._bytes += _size_of(event)
            self._ended = event.is_terminal
            if self._bytes > self._join_at_bytes:
                self._join()
            wakers = list(self._wakers.values())
            self._wakers.clear()
        for wake in wakers:
            wake()
        return True

    def read(self, after: int) -> list[Event]:
        """Return everything after `after`, oldest first, without waiting."""
        with self._lock:
            start = bisect_right(self._events, after, key=_seq_of)
            events = self._events[start:]
            if events and (ends := self._deltas.get(events[0].seq)) is not None:
                events[0] = _without_seen(events[0], ends, after)
            return events

    def wake_once(self, after: int, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` once, from any thread, as soon as `read(after)` has something or the run has ended.

        Returns a function that takes the wish back. `wake` must be quick and must not raise.
        """
        with self._lock:
            if self._last_seq <= after and not self._ended:
                self._waker_id += 1
                waker_id = self._waker_id
                self._wakers[waker_id] = wake
                return lambda: self._forget_waker(waker_id)
        wake()
        return lambda: None

    def join(self) -> None:
        """Join all deltas that can be joined, whatever the bound; for runs that are only kept for late readers."""
        with self._lock:
            self._join()

    def _forget_waker(self, waker_id: int) -> None:
        with self._lock:
            self._wakers.pop(waker_id, None)

    def _join(self) -> None:
        joined: list[Event] = []
        deltas: dict[int, array[int]] = {}
        group: list[Event] = []
        group_chars = 0
        for event in self._events:
            fits = bool(group) and event.kind == group[0].kind and group_chars < MAX_JOINED_CHARS
            if not (fits and event.kind in JOINABLE_EVENTS):
                self._close_group(group, joined, deltas)
                group, group_chars = [], 0
            group.append(event)
            group_chars += len(_text_of(event))
        self._close_group(group, joined, deltas)
        self._events, self._deltas = joined, deltas
        self._bytes = sum(map(_size_of, joined)) + sum(ends.itemsize * len(ends) for ends in deltas.values())
        # What cannot be joined further must not be walked again for every new event.
        self._join_at_bytes = max(self._max_bytes, 2 * self._bytes)

    def _close_group(self, group: list[Event], joined: list[Event], deltas: dict[int, "array[int]"]) -> None:
        if not group:
            return
        if len(group) == 1 and group[0].seq not in self._deltas:
            joined.append(group[0])
            return
        ends: array[int] = array("Q")
        offset = 0
        for event in group:
            inner = self._deltas.get(event.seq, (len(_text_of(event)),))
            ends.extend(offset + end for end in inner)
            offset += len(_text_of(event))
        text = "".join(map(_text_of, group))
        joined.append(replace(group[-1], data={**group[-1].data, "text": text}))
        deltas[group[-1].seq] = ends


def join_deltas(events: Sequence[Event]) -> list[Event]:
    """Return the events with neighbouring deltas of one kind joined, each carrying the last seq it replaces."""
    joined: list[Event] = []
    texts: list[str] = []
    for event in events:
        if texts and event.kind == joined[-1].kind:
            texts.append(_text_of(event))
            joined[-1] = event
            continue
        _put_text(joined, texts)
        texts = [_text_of(event)] if event.kind in JOINABLE_EVENTS else []
        joined.append(event)
    _put_text(joined, texts)
    return joined


def _put_text(joined: list[Event], texts: list[str]) -> None:
    if len(texts) > 1:
        joined[-1] = replace(joined[-1], data={**joined[-1].data, "text": "".join(texts)})


def _without_seen(event: Event, ends: "array[int]", after: int) -> Event:
    first_seq = event.seq - len(ends) + 1
    if after < first_seq:
        return event
    return replace(event, data={**event.data, "text": _text_of(event)[ends[after - first_seq] :]})


def _text_of(event: Event) -> str:
    text = event.data.get("text", "")
    return text if isinstance(text, str) else ""


def _size_of(event: Event) -> int:
    return _EVENT_OVERHEAD_BYTES + sum(_size_of_value(value) for value in event.data.values())


def _size_of_value(value: object) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return 64 + sum(_size_of_value(key) + _size_of_value(item) for key, item in value.items())
    if isinstance(value, list):
        return 56 + sum(map(_size_of_value, value))
    return 8
