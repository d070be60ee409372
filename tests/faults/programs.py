"""The processes of the crash tests. Everything is imported once; each process is then a fork of this one.

Reads one JSON object a line: `{"start": operation, ...}` answers the new process's id, `{"wait": id}` its end.
"""

import asyncio
import ctypes
import json
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import uvicorn

from chat_core.bridge.client import BridgeAddress, BridgeClient
from chat_core.bridge.process import BridgeProcess
from chat_core.bridge.run_host import LocalRunHost
from chat_core.bridge.server import Door, create_app
from chat_core.config import load_settings
from chat_core.errors import BridgeUnavailable, ParleyError
from chat_core.models import LOCAL_USER, LogEntry
from chat_core.store.store import Store
from chat_core.workbench import Workbench, open_workbench
from tests.faults.agent import PlainAgent
from tests.support.served_bridge import TOKEN, FewChoices

READY = "bridge.ready"
EFFECTS = "effects"
LIMIT_SECONDS = 30.0
_DIE_WITH_PARENT = 1


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            _, status = os.waitpid(order["wait"], 0)
            answer: dict[str, Any] = {"code": os.waitstatus_to_exitcode(status)}
        else:
            answer = {"pid": _fork(order)}
        print(json.dumps(answer), flush=True)


def _fork(order: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        if order.get("fail_point"):
            os.environ["PARLEY_FAIL_POINT"] = order["fail_point"]
        if order.get("kill_after"):
            # Nobody handles SIGALRM: the process is gone at that moment, wherever it is.
            signal.setitimer(signal.ITIMER_REAL, order["kill_after"])
        folder = Path(order["folder"])
        if order["start"] == "bridge":
            serve_bridge(folder)
        else:
            OPERATIONS[order["start"]](_open_embedded(folder) if order.get("embedded") else _open(folder), order)
        code = 0
    except BaseException as error:
        print(f"{order}: {error!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


# -- the Bridge ---------------------------------------------------------------------------------------------------


def serve_bridge(folder: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    host = LocalRunHost({"plain": PlainAgent(folder / EFFECTS)})
    door = Door(host=host, choices=FewChoices(), token=TOKEN, version="test")
    server = uvicorn.Server(uvicorn.Config(create_app(door), log_level="error"))
    new = folder / (READY + ".new")
    new.write_text(str(listener.getsockname()[1]))
    new.replace(folder / READY)
    asyncio.run(server.serve([listener]))


def bridge_address(folder: Path) -> Callable[[], BridgeAddress]:
    def address() -> BridgeAddress:
        try:
            return BridgeAddress(f"http://127.0.0.1:{(folder / READY).read_text()}", TOKEN)
        except OSError:
            raise BridgeUnavailable("The Bridge is away.") from None

    return address


# -- the app ------------------------------------------------------------------------------------------------------


def _open(folder: Path) -> Workbench:
    settings = load_settings({"data_dir": folder / "data", "max_runs_per_user": 50})
    return open_workbench(settings, BridgeClient(bridge_address(folder)))


def _open_embedded(folder: Path) -> Workbench:
    """Open the app with a Bridge that it starts, watches and adopts itself."""
    settings = load_settings({"data_dir": folder / "data"})
    bridge = BridgeProcess(
        settings,
        python=Path(sys.executable),
        arguments=("-m", "tests.faults.embedded_bridge"),
        heartbeat_seconds=0.2,
        restart_delays_seconds=(0.05,),
    )
    workbench = Workbench(settings, Store.open(settings.database_file), bridge, None)
    workbench.start()
    return workbench


def ask(workbench: Workbench, order: dict[str, Any]) -> None:
    """Ask in a new session, answer what the agent asks, read to the end."""
    session = workbench.create_session(LOCAL_USER, runtime="plain")
    started = workbench.ask(LOCAL_USER, session.uuid, order["message"])
    for entry in workbench.follow(LOCAL_USER, started.run_id):
        _react(workbench, started.run_id, entry, order)
    workbench.close()


def _react(workbench: Workbench, run_id: str, entry: LogEntry, order: dict[str, Any]) -> None:
    if entry.kind == "clarify_request" and order.get("reply", True):
        workbench.answer(LOCAL_USER, run_id, entry.meta["question_id"], "yes")
    if entry.kind == "tool_result" and order.get("then") == "stop":
        workbench.stop(LOCAL_USER, run_id)
    if entry.kind == "tool_result" and order.get("then") == "delete":
        session = workbench.run_state(LOCAL_USER, run_id).session_uuid
        workbench.delete_session(LOCAL_USER, session, undo_seconds=0)


def finish(workbench: Workbench, order: dict[str, Any]) -> None:
    """What a start does by itself: wait until every run has ended and what was deleted is gone."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while workbench.store.runs.count_active() or workbench.store.sessions.expired(datetime.now(UTC)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"runs are left: {workbench.store.runs.active()}")
        for run in workbench.store.runs.active():
            question = workbench.store.questions.open_in(run.run_id)
            if question is not None and order.get("reply", True):
                with suppress(ParleyError):
                    workbench.answer(LOCAL_USER, run.run_id, question.question_id, "yes")
        time.sleep(0.02)
    workbench.close()


def condense(workbench: Workbench, order: dict[str, Any]) -> None:
    later = datetime.now(UTC) + timedelta(days=2)
    workbench.store.housekeeping.condense(later, threading.Event())
    if order.get("days"):
        workbench.store.housekeeping.remove_old_records(later, order["days"], threading.Event())
    workbench.store.housekeeping.give_space_back(threading.Event())
    workbench.close()


def live(workbench: Workbench, order: dict[str, Any]) -> None:
    """Do everything people do, at random, until the process is killed."""
    dice = random.Random(order["seed"])
    deadline = time.monotonic() + LIMIT_SECONDS
    number = 0
    while time.monotonic() < deadline:
        number += 1
        with suppress(ParleyError):
            _live_once(workbench, dice, f"{order['seed']}-{number}")
        time.sleep(dice.uniform(0.0, 0.06))


def _live_once(workbench: Workbench, dice: random.Random, name: str) -> None:
    rows = workbench.list_sessions(LOCAL_USER, limit=50).rows
    if len(rows) < 4:
        workbench.create_session(LOCAL_USER, runtime="plain")
        return
    session = dice.choice(rows).session
    run = workbench.active_run(LOCAL_USER, session.uuid)
    branch = workbench.branch(LOCAL_USER, session.uuid).messages
    last = branch[-1].message if branch else None
    roll = dice.random()
    if run is not None and run.question is not None and roll < 0.7:
        workbench.answer(LOCAL_USER, run.run_id, run.question.question_id, "yes")
    elif run is not None and roll < 0.2:
        workbench.stop(LOCAL_USER, run.run_id)
    elif roll < 0.03:
        workbench.delete_session(LOCAL_USER, session.uuid, undo_seconds=dice.choice([0, 0.1]))
    elif run is not None:
        return
    elif last is not None and last.status in ("STOPPED", "INTERRUPTED") and roll < 0.4:
        workbench.continue_run(LOCAL_USER, last.uuid)
    elif last is not None and roll < 0.5:
        workbench.regenerate(LOCAL_USER, last.uuid)
    elif last is not None and roll < 0.6:
        workbench.edit_and_run(LOCAL_USER, branch[0].message.uuid, f"edit {name}")
    elif last is not None and roll < 0.65:
        workbench.activate(LOCAL_USER, dice.choice(workbench.tree(LOCAL_USER, session.uuid)).uuid)
    elif last is not None and roll < 0.7:
        workbench.reset(LOCAL_USER, session.uuid)
    else:
        workbench.ask(LOCAL_USER, session.uuid, f"{dice.choice(['go', 'ask'])} {name}")


OPERATIONS: dict[str, Callable[[Workbench, dict[str, Any]], None]] = {
    "ask": ask,
    "finish": finish,
    "condense": condense,
    "live": live,
}


if __name__ == "__main__":
    main()
