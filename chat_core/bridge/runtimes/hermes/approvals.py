"""Asks a person before hermes-agent runs what its guard flags, and makes sure that nothing runs unasked.

Without a bound session hermes-agent approves every flagged command by itself. Bound here, each one waits in our
`ask`; anything but a clear yes (a stop, a failure, an unknown answer) is a no.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from chat_core.bridge.protocol import RunControl
from chat_core.bridge.runtimes.hermes.engine import Engine

CHOICES = ["once", "session", "deny"]

_log = logging.getLogger("parley.bridge.approvals")


@contextmanager
def approvals_bound(
    engine: Engine, control: RunControl, agent_session: str, folder: str, on_unanswered: Callable[[], None]
) -> Iterator[None]:
    """Bind the calling thread to the session: its guard, its grants and its working folder.

    `on_unanswered` is called when a stop took a request away, before the agent goes on with the denial.
    """
    approval, context = engine.approval, engine.session_context
    asking = threading.Lock()

    def decide(request: dict[str, Any]) -> None:
        with asking:
            answer = _ask(control, request)
        if control.stop_requested:
            on_unanswered()
        _settle(approval, agent_session, request, answer)

    token = approval.set_current_session_key(agent_session)
    tokens = context.set_session_vars(
        platform="webui", session_key=agent_session, session_id=agent_session, cwd=folder, async_delivery=False
    )
    approval.register_gateway_notify(agent_session, decide)
    try:
        yield
    finally:
        approval.unregister_gateway_notify(agent_session)
        context.clear_session_vars(tokens)
        approval.reset_current_session_key(token)


def forget_grants(engine: Engine, agent_session: str) -> None:
    """Take back what was approved for the whole session."""
    engine.approval.clear_session(agent_session)


def _ask(control: RunControl, request: dict[str, Any]) -> str:
    command = str(request.get("command", ""))
    description = str(request.get("description", ""))
    question = description or "The agent wants to do something that needs approval."
    answer = control.ask("approval", question, CHOICES, command=command, description=description)
    return answer if answer in CHOICES else "deny"


def _settle(approval: Any, agent_session: str, request: dict[str, Any], answer: str) -> None:
    """Answer exactly the waiting request: several may wait at once, and hermes-agent's own call takes the oldest."""
    for entry in list(approval._gateway_queues.get(agent_session, [])):
        if entry.data is request:
            entry.result = answer
            entry.event.set()
            return
    _log.warning("an approval request was gone before it was answered")
