"""The pool of built agents: reuse, eviction, forgetting, and leaving while one is being built."""

import threading
from concurrent.futures import Future
from typing import Any

import pytest

from chat_core.bridge.model_catalog import Endpoint
from chat_core.bridge.runtimes.hermes.agent_pool import AgentKey, AgentPool, Stopped, StopSignal, in_thread

WAIT_SECONDS = 5.0


class Agents:
    """Builds agents that are numbers, and keeps what became of them."""

    def __init__(self, size: int = 2) -> None:
        self.built: list[str] = []
        self.released: list[str] = []
        self.closed: list[str] = []
        self.gate: threading.Event | None = None
        self.failures = 0
        self.one_closed = threading.Event()
        self.pool = AgentPool(size, self.build, self.released.append, self.close)

    def build(self, key: AgentKey) -> str:
        if self.gate is not None:
            assert self.gate.wait(WAIT_SECONDS)
        if self.failures:
            self.failures -= 1
            raise ValueError("no agent today")
        agent = f"{key.agent_session}-{len(self.built)}"
        self.built.append(agent)
        return agent

    def close(self, agent: str) -> None:
        self.closed.append(agent)
        self.one_closed.set()

    def use(self, session: str) -> Any:
        slot = self.pool.take(key(session), StopSignal())
        self.pool.give_back(slot)
        return slot.built.result()


def key(session: str, model: str = "m") -> AgentKey:
    return AgentKey(session, Endpoint(model, model, "endpoint", "http://x/v1", model, "k"))


def test_a_session_gets_its_agent_again_and_another_model_is_another_agent() -> None:
    agents = Agents()

    assert agents.use("a") == agents.use("a")

    other = agents.pool.take(key("a", "other"), StopSignal())
    assert other.built.result() != agents.use("a")


def test_the_agent_used_longest_ago_is_released() -> None:
    agents = Agents(size=2)
    for session in ("a", "b", "a", "c"):
        agents.use(session)

    assert agents.released == ["b-1"]
    assert len(agents.pool) == 2


def test_an_agent_at_work_is_never_released() -> None:
    agents = Agents(size=1)
    at_work = [agents.pool.take(key(session), StopSignal()) for session in ("a", "b", "c")]
    assert agents.released == []

    for slot in at_work:
        agents.pool.give_back(slot)

    assert len(agents.pool) == 1
    assert len(agents.released) == 2


def test_an_agent_serves_one_run_at_a_time() -> None:
    agents = Agents()
    first = agents.pool.take(key("a"), StopSignal())
    second: Future[Any] = in_thread(lambda: agents.pool.take(key("a"), StopSignal()), "second")
    assert not second.done()

    agents.pool.give_back(first)

    assert second.result(WAIT_SECONDS) is first


def test_a_stop_leaves_at_once_and_the_next_run_finds_the_agent_built() -> None:
    agents = Agents()
    agents.gate = threading.Event()
    stop = StopSignal()
    waiting = in_thread(lambda: agents.pool.take(key("a"), stop), "waiting")

    stop.stop()
    with pytest.raises(Stopped):
        waiting.result(WAIT_SECONDS)
    agents.gate.set()

    assert agents.use("a") == "a-0"


def test_a_stop_while_another_run_has_the_agent_leaves_at_once() -> None:
    agents = Agents()
    agents.pool.take(key("a"), StopSignal())
    stop = StopSignal()
    waiting = in_thread(lambda: agents.pool.take(key("a"), stop), "waiting")

    stop.stop()

    with pytest.raises(Stopped):
        waiting.result(WAIT_SECONDS)


def test_a_construction_that_failed_is_tried_again_by_the_next_run() -> None:
    agents = Agents()
    agents.failures = 1

    with pytest.raises(ValueError, match="no agent today"):
        agents.use("a")

    assert agents.use("a") == "a-0"


def test_forgetting_closes_idle_agents_now_and_busy_ones_at_the_end_of_their_run() -> None:
    agents = Agents()
    agents.use("idle")
    busy = agents.pool.take(key("busy"), StopSignal())

    agents.pool.forget("idle")
    agents.pool.forget("busy")
    assert agents.closed == ["idle-0"]
    agents.pool.give_back(busy)

    assert agents.closed == ["idle-0", "busy-1"]
    assert agents.use("busy") == "busy-2"


def test_an_agent_forgotten_while_it_is_built_is_closed_once_it_is() -> None:
    agents = Agents()
    agents.gate = threading.Event()
    stop = StopSignal()
    waiting = in_thread(lambda: agents.pool.take(key("a"), stop), "waiting")
    stop.stop()
    with pytest.raises(Stopped):
        waiting.result(WAIT_SECONDS)

    agents.pool.forget("a")
    agents.gate.set()

    assert agents.one_closed.wait(WAIT_SECONDS)
    assert agents.closed == ["a-0"]
    assert agents.use("a") == "a-1"


def test_every_known_agent_makes_its_prompt_anew_after_the_memory_changed() -> None:
    agents = Agents()
    agents.use("a")

    agents.pool.prompts_are_stale()

    assert agents.pool.take(key("a"), StopSignal()).stale_prompt
    assert not agents.pool.take(key("b"), StopSignal()).stale_prompt
