"""One run, three ways to its runtime: direct, over HTTP, over HTTP that breaks every few events: the same entries."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from chat_core.bridge.client import BridgeAddress, BridgeClient
from chat_core.bridge.protocol import RunHost
from chat_core.bridge.run_host import LocalRunHost
from chat_core.models import LogEntry, User
from chat_core.workbench import Workbench
from tests.support.breaking_proxy import Fault, breaking_proxy
from tests.support.runs import finish, wait_for
from tests.support.runtimes import GatedRuntime, answers, asks, breaks, calls_tool, chunks, emits, thinks
from tests.support.served_bridge import served_bridge

Shape = list[tuple[str, str, str, dict[str, Any]]]

STEPS = [
    thinks("Hm \u2028 \x0c \x85."),
    answers("Let me look. "),
    breaks(),
    *[calls_tool("terminal", result=f"line {number} π 🙂\n" * 40, command=f"ls {number}") for number in range(8)],
    emits("todo_update", todos=[{"id": "1", "content": "read", "status": "completed"}]),
    emits("status", text="Working", level="info"),
    asks("Which colour?", ["red", "blue"]),
    chunks(40, " wörd"),
    emits("usage", input_tokens=3, output_tokens=5),
]


@pytest.fixture(params=["direct", "http", "breaking"])
def reached(request: pytest.FixtureRequest, host: LocalRunHost) -> Iterator[RunHost]:
    """The same host, reached in one of three ways."""
    if request.param == "direct":
        yield host
        return
    with ExitStack() as stack:
        address = stack.enter_context(served_bridge(host))
        if request.param == "breaking":
            port = int(address.url.rsplit(":", 1)[1])
            proxy = stack.enter_context(breaking_proxy(port, lambda number: Fault(after_blocks=3, pieces=7)))
            address = BridgeAddress(proxy.url, address.token)
        client = BridgeClient(lambda: address, stream_delays_seconds=(0.001, 0.01), call_delays_seconds=(0.001,))
        stack.callback(client.close)
        yield client


def shape(entries: list[LogEntry]) -> Shape:
    """What must be equal however the deltas were joined on their way; ids of questions differ by nature."""
    joined: Shape = []
    for entry in entries:
        meta = {key: value for key, value in entry.meta.items() if key not in ("question_id", "run_id")}
        if joined and entry.kind in ("answer", "thinking") and joined[-1][0] == entry.kind:
            joined[-1] = (entry.kind, joined[-1][1] + entry.content, "", {})
        else:
            joined.append((entry.kind, entry.content, entry.tool_name, meta))
    return joined


EXPECTED_KINDS = [
    "run_started",
    "thinking",
    "answer",
    "answer_break",
    *["tool_call", "tool_result"] * 8,
    "todo_update",
    "status",
    "clarify_request",
    "clarify_answer",
    "answer",
    "usage",
    "run_finished",
]


def test_a_run_leaves_the_same_entries_whatever_lies_between(
    open_bench: Callable[..., Workbench], reached: RunHost, gated: GatedRuntime, user: User
) -> None:
    gated.steps = STEPS
    gated.release()
    workbench = open_bench(host=reached)
    session = workbench.create_session(user, runtime="gated")
    started = workbench.ask(user, session.uuid, "go")
    asked = wait_for(workbench, user, started.run_id, "clarify_request", timeout=30)
    workbench.answer(user, started.run_id, asked.meta["question_id"], "red")
    entries = finish(workbench, user, started.run_id, timeout=30)
    told = shape(entries)
    assert [kind for kind, *_ in told] == EXPECTED_KINDS
    assert told[-3][1] == "You said red." + " wörd" * 40
    assert told[4:20] == [
        item
        for number in range(8)
        for item in (
            ("tool_call", f'{{"command":"ls {number}"}}', "terminal", {}),
            ("tool_result", f"line {number} π 🙂\n" * 40, "terminal", {}),
        )
    ]
    assert workbench.message(user, started.message_uuid).content == "You said red." + " wörd" * 40
    assert workbench.store.check() == []
