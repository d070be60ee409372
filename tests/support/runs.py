"""What many tests do with runs: wait for the end, and read along in a thread."""

from concurrent.futures import Future, ThreadPoolExecutor

from chat_core.models import LogEntry, Session, User
from chat_core.workbench import Workbench


def finish(workbench: Workbench, user: User, run_id: str, after: int = 0, timeout: float = 10.0) -> list[LogEntry]:
    """Return the run's entries once it has ended."""
    return collect_in_thread(workbench, user, run_id, after).result(timeout)


def collect_in_thread(workbench: Workbench, user: User, run_id: str, after: int = 0) -> "Future[list[LogEntry]]":
    """Read the run to its end in another thread."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="reader")
    seen = thread.submit(lambda: list(workbench.follow(user, run_id, after)))
    thread.shutdown(wait=False)
    return seen


def wait_for(workbench: Workbench, user: User, run_id: str, kind: str, timeout: float = 10.0) -> LogEntry:
    """Return the first entry of this kind, as soon as it is stored."""

    def first() -> LogEntry:
        for entry in workbench.follow(user, run_id):
            if entry.kind == kind:
                return entry
        raise AssertionError(f"run {run_id} ended without {kind}")

    thread = ThreadPoolExecutor(1, thread_name_prefix="reader")
    found = thread.submit(first)
    thread.shutdown(wait=False)
    return found.result(timeout)


def contents(workbench: Workbench, user: User, session: Session) -> list[str]:
    """The texts of the active branch, in order."""
    return [shown.message.content for shown in workbench.branch(user, session.uuid).messages]
