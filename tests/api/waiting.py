"""Bounded waits for runs."""

import threading

from chat_core.models import LogEntry, RunState, User
from chat_core.workbench import Workbench

WAIT_SECONDS = 10.0


def wait_until_ended(workbench: Workbench, user: User, run_id: str) -> list[LogEntry]:
    """Read the run to its end and return its entries."""
    entries: list[LogEntry] = []
    thread = threading.Thread(target=lambda: entries.extend(workbench.follow(user, run_id)), daemon=True)
    thread.start()
    thread.join(WAIT_SECONDS)
    assert not thread.is_alive(), f"the run did not end: {workbench.run_state(user, run_id)}"
    return entries


def wait_for_question(workbench: Workbench, user: User, run_id: str) -> RunState:
    """Wait until the run asks something."""
    for entry in workbench.follow(user, run_id):
        if entry.kind in {"clarify_request", "approval_request"}:
            return workbench.run_state(user, run_id)
        assert not entry.is_terminal, "the run ended without a question"
    raise AssertionError("the workbench was closed")
