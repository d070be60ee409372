"""A machine whose processes can be killed: an app and a Bridge over one data folder, and what must hold afterwards."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from chat_core.models import LogEntry, Run
from chat_core.store.database import Database
from chat_core.store.rows import RUN_COLUMNS, run_from
from chat_core.store.runs import log_of
from chat_core.store.store import Store
from tests.faults.agent import answer_of, thinking_of
from tests.faults.programs import EFFECTS, READY
from tests.support.waiting import until

KILLED = {-signal.SIGKILL, -signal.SIGALRM}
ENDS = {"run_finished", "run_failed", "run_stopped", "run_interrupted"}


class Forks:
    """The process that all others are forked from: a new one costs no imports."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.programs"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def order(self, **order: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)


class Machine:
    """One data folder with its processes."""

    def __init__(self, forks: Forks, folder: Path) -> None:
        self._forks = forks
        self.folder = folder
        self._bridge: int | None = None

    def start_bridge(self) -> None:
        self.kill_bridge()
        self._bridge = self._forks.order(start="bridge", folder=str(self.folder))["pid"]
        until((self.folder / READY).exists)

    def kill_bridge(self) -> None:
        if self._bridge is not None:
            (self.folder / READY).unlink(missing_ok=True)
            os.kill(self._bridge, signal.SIGKILL)
            self._forks.order(wait=self._bridge)
            self._bridge = None

    def start(self, operation: str, **options: Any) -> int:
        pid: int = self._forks.order(start=operation, folder=str(self.folder), **options)["pid"]
        return pid

    def kill(self, pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def wait(self, pid: int) -> int:
        code: int = self._forks.order(wait=pid)["code"]
        return code

    def run(self, operation: str, **options: Any) -> int:
        """Start the app with this operation and return how it ended."""
        return self.wait(self.start(operation, **options))

    def crash(self, operation: str, **options: Any) -> None:
        code = self.run(operation, **options)
        assert code in KILLED, f"{operation} {options} was not killed: it ended with {code}"

    def recover(self, **options: Any) -> None:
        assert self.run("finish", **options) == 0

    # -- what must hold ------------------------------------------------------------------------------------------

    def store(self) -> Store:
        return Store.open(self.folder / "data" / "parley.db")

    def runs(self) -> list["Told"]:
        """Every run with its log, after all that must hold of any store was checked."""
        store = self.store()
        try:
            assert store.check() == []
            with store.database.read() as db:
                rows = db.execute(f"SELECT {RUN_COLUMNS} FROM run r ORDER BY r.started_at").fetchall()
                return [_told(db, run_from(row)) for row in rows]
        finally:
            store.close()

    def rows(self, table: str) -> int:
        store = self.store()
        try:
            with store.database.read() as db:
                return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
        finally:
            store.close()

    def rows_while_it_works(self, table: str) -> int:
        with Database.reading(self.folder / "data" / "parley.db") as database, database.read() as db:
            return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    def effects(self) -> Counter[str]:
        """How often each run did its one thing in the world."""
        file = self.folder / EFFECTS
        return Counter(file.read_text().split()) if file.exists() else Counter()


class Told:
    """One run as the store tells it."""

    def __init__(self, run: Run, question: str, content: str, status: str, log: list[LogEntry]) -> None:
        self.run = run
        self.question = question
        self.content = content
        self.status = status
        self.log = log

    def text(self, kind: str) -> str:
        return "".join(entry.content for entry in self.log if entry.kind == kind)

    def kinds(self, *kinds: str) -> list[str]:
        return [entry.kind for entry in self.log if entry.kind in kinds]

    def assert_every_entry_once(self) -> None:
        """What is there is what the agent did: all of it after a good end, a first part of it otherwise."""
        message = self.question
        reply = "yes" if "ask" in message and "clarify_answer" in self.kinds("clarify_answer") else None
        thinking, answer = thinking_of(message), answer_of(message, reply)
        assert len([entry for entry in self.log if entry.kind in ENDS]) == 1, self.log
        assert self.log[-1].kind in ENDS
        if self.run.first_seq > 1:  # continued: the agent was asked with another text
            return
        seqs = [entry.seq for entry in self.log]
        assert seqs == list(range(1, len(seqs) + 1))
        assert Counter(self.kinds("tool_call")).total() <= 1
        assert len(self.kinds("tool_call")) == len(self.kinds("tool_result"))
        if self.run.status == "SUCCESS":
            assert (self.text("thinking"), self.text("answer")) == (thinking, answer)
            assert self.kinds("tool_call", "tool_result") == ["tool_call", "tool_result"]
        assert thinking.startswith(self.text("thinking"))
        assert answer.startswith(self.text("answer"))


def _told(db: Any, run: Run) -> Told:
    row = db.execute(
        """
        SELECT q.content AS question, a.content, a.status,
               (SELECT min(first_seq) FROM run n WHERE n.message_id = a.id AND n.first_seq > ?) AS next_seq
        FROM chat_message a JOIN chat_message q ON q.id = a.parent_id WHERE a.id = ?
        """,
        (run.first_seq, run.message_id),
    ).fetchone()
    end = row["next_seq"] or float("inf")
    log = [entry for entry in log_of(db, run.message_id) if run.first_seq <= entry.seq < end]
    return Told(run, row["question"], row["content"], row["status"], log)
