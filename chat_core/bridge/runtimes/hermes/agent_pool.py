"""Keeps built agents for the sessions that used them last; a cache that may lose any of them.

An agent is built in a thread of its own, because its constructor may ask a silent endpoint for a minute. A
session's run that is stopped meanwhile leaves at once; the next one finds the agent built.
"""

import contextvars
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from chat_core.bridge.model_catalog import Endpoint

_log = logging.getLogger("parley.bridge.agent_pool")


class Stopped(Exception):
    """The run was stopped while it waited."""


@dataclass(frozen=True, slots=True)
class AgentKey:
    """Which agent serves a run: another session, model or address is another agent."""

    agent_session: str
    endpoint: Endpoint


@dataclass(eq=False)
class Slot:
    """One agent, in use by at most one run."""

    key: AgentKey
    built: "Future[Any]" = field(default_factory=Future)
    in_use: bool = True
    forgotten: bool = False
    stale_prompt: bool = False
    """The memory files have changed since the agent's prompt was made."""


class StopSignal:
    """Something to wait for that a stop interrupts."""

    def __init__(self) -> None:
        self._changed = threading.Event()
        self._stopped = False

    @property
    def stopped(self) -> bool:
        return self._stopped

    def stop(self) -> None:
        self._stopped = True
        self._changed.set()

    def wait_for(self, future: "Future[Any]") -> Any:
        """Return the future's result or raise its error; raises Stopped as soon as a stop is requested."""
        future.add_done_callback(lambda _: self._changed.set())
        while not future.done():
            self._changed.wait(1.0)
            if self._stopped:
                raise Stopped
            self._changed.clear()
        if self._stopped:
            raise Stopped
        return future.result()


def in_thread(work: Callable[[], Any], name: str) -> "Future[Any]":
    """Run `work` in a thread of its own and return its future."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=contextvars.Context().run, args=(run,), daemon=True, name=name).start()
    return future


class AgentPool:
    """The `size` agents used last, and any number in use: a run at work never loses its agent."""

    def __init__(
        self, size: int, build: Callable[[AgentKey], Any], release: Callable[[Any], None], close: Callable[[Any], None]
    ) -> None:
        self._size = size
        self._build = build
        self._release = release
        self._close = close
        self._changed = threading.Condition()
        self._slots: OrderedDict[AgentKey, Slot] = OrderedDict()

    def take(self, key: AgentKey, stop: StopSignal) -> Slot:
        """Return the slot for `key`, built and in use by the caller until `give_back`.

        Waits while another run uses it. Raises Stopped, or what the construction raised.
        """
        slot = self._occupy(key, stop)
        try:
            stop.wait_for(slot.built)
        except Stopped:
            self.give_back(slot)
            raise
        except BaseException:
            slot.forgotten = True
            self.give_back(slot)
            raise
        return slot

    def give_back(self, slot: Slot) -> None:
        with self._changed:
            slot.in_use = False
            if slot.forgotten and self._slots.get(slot.key) is slot:
                del self._slots[slot.key]
            evicted = self._evict()
            self._changed.notify_all()
        if slot.forgotten:
            self._end(slot, self._close)
        for old in evicted:
            self._end(old, self._release)

    def forget(self, agent_session: str) -> None:
        """Close the session's agents; one at work is closed when its run ends."""
        with self._changed:
            mine = [slot for key, slot in self._slots.items() if key.agent_session == agent_session]
            for slot in mine:
                slot.forgotten = True
                if not slot.in_use:
                    del self._slots[slot.key]
        for slot in mine:
            if not slot.in_use:
                self._end(slot, self._close)

    def prompts_are_stale(self) -> None:
        """Let every agent make its system prompt anew for its next run."""
        with self._changed:
            for slot in self._slots.values():
                slot.stale_prompt = True

    def close(self) -> None:
        with self._changed:
            idle = [slot for slot in self._slots.values() if not slot.in_use]
            for slot in idle:
                del self._slots[slot.key]
        for slot in idle:
            self._end(slot, self._close)

    def __len__(self) -> int:
        return len(self._slots)

    def _occupy(self, key: AgentKey, stop: StopSignal) -> Slot:
        with self._changed:
            while True:
                if stop.stopped:
                    raise Stopped
                slot = self._slots.get(key)
                if slot is None:
                    slot = self._slots[key] = Slot(key)
                    slot.built = in_thread(lambda: self._build(key), "agent-build")
                    return slot
                if not slot.in_use:
                    slot.in_use = True
                    self._slots.move_to_end(key)
                    return slot
                self._changed.wait(0.2)

    def _evict(self) -> list[Slot]:
        evicted: list[Slot] = []
        for key, slot in list(self._slots.items()):
            if len(self._slots) <= self._size:
                break
            if not slot.in_use:
                del self._slots[key]
                evicted.append(slot)
        return evicted

    def _end(self, slot: Slot, end: Callable[[Any], None]) -> None:
        # An agent that is still being built is ended by whoever builds it.
        slot.built.add_done_callback(lambda built: self._end_built(built, end))

    def _end_built(self, built: "Future[Any]", end: Callable[[Any], None]) -> None:
        if built.exception() is not None:
            return
        try:
            end(built.result())
        except Exception:
            _log.exception("an agent could not be ended")
