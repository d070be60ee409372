"""Much at once: many runs write while others read for long and a backup is made."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from chat_core.backup import restore
from chat_core.bridge.run_host import LocalRunHost
from chat_core.config import Settings
from chat_core.models import User
from chat_core.workbench import Workbench, open_workbench
from tests.support.runs import finish
from tests.support.runtimes import EchoRuntime, GatedRuntime, answers, calls_tool, chunks, thinks

RUNS = 50


def test_bc25_fifty_runs_write_while_a_reader_holds_on_and_a_backup_is_made(
    settings: Settings, host: LocalRunHost, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [thinks("Hm."), chunks(100, "0123456789"), calls_tool("todo"), answers("end")]
    workbench = open_workbench(settings.model_copy(update={"max_runs_per_user": RUNS}), host)
    try:
        sessions = [workbench.create_session(user, runtime="gated") for _ in range(RUNS)]
        runs = [workbench.ask(user, session.uuid, "go") for session in sessions]
        with workbench.store.database.read() as held:
            held.execute("SELECT count(*) FROM chat_message_log").fetchone()
            gated.release()
            archive = workbench.backup(user)
            with ThreadPoolExecutor(8) as readers:
                logs = list(readers.map(lambda run: finish(workbench, user, run.run_id, timeout=60), runs))
            held.execute("SELECT count(*) FROM chat_message_log").fetchone()
        for log in logs:
            assert [entry.seq for entry in log] == list(range(1, len(log) + 1))
            assert "".join(entry.content for entry in log if entry.kind == "answer") == "0123456789" * 100 + "end"
        assert workbench.store.check() == []
    finally:
        workbench.close()
    restored = settings.model_copy(update={"data_dir": settings.data_dir.parent / "restored"})
    restore(restored, archive, datetime(2026, 1, 1))
    again = open_workbench(restored, LocalRunHost({"echo": EchoRuntime(), "gated": GatedRuntime()}))
    try:
        for run in runs:
            finish(again, user, run.run_id)
        assert len(again.list_sessions(user, limit=100).rows) == RUNS
        assert not again.has_activity(user)
        assert again.store.check() == []
    finally:
        again.close()


def test_a_backup_is_one_moment_also_while_everything_changes(
    open_bench: Callable[[], Workbench], settings: Settings, user: User
) -> None:
    workbench = open_bench()
    session = workbench.create_session(user, runtime="echo")
    enough = threading.Event()

    def talk() -> int:
        number = 0
        while not enough.is_set():
            finish(workbench, user, workbench.ask(user, session.uuid, f"message {number} " * 50).run_id)
            number += 1
        return number

    with ThreadPoolExecutor(1) as talker:
        talked = talker.submit(talk)
        archives = [workbench.backup(user).rename(settings.data_dir / f"{number}.tar.gz") for number in range(3)]
        enough.set()
        assert talked.result(20) > 0
    for number, archive in enumerate(archives):
        restored = settings.model_copy(update={"data_dir": settings.data_dir.parent / f"restored{number}"})
        restore(restored, archive, datetime(2026, 1, 1))
        again = open_workbench(restored, LocalRunHost({"echo": EchoRuntime()}))
        try:
            [row] = again.list_sessions(user).rows
            for message in again.tree(user, row.session.uuid):
                if message.run_id is not None:
                    finish(again, user, message.run_id)
            assert again.store.check() == []
        finally:
            again.close()
