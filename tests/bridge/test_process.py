"""The supervisor of the embedded Bridge, with real processes."""

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from chat_core.bridge.client import BridgeClient
from chat_core.bridge.process import PROJECT_FOLDER, BridgeProcess, ExternalBridge, bridge_for
from chat_core.bridge.protocol import RunRequest
from chat_core.bridge.run_host import LocalRunHost
from chat_core.config import Settings, load_settings
from chat_core.errors import BridgeUnavailable
from tests.support.runtimes import EchoRuntime
from tests.support.served_bridge import TOKEN, served_bridge

Start = Callable[..., BridgeProcess]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings({"data_dir": tmp_path / "data"})


@pytest.fixture
def start(settings: Settings) -> Iterator[Start]:
    """Start a supervisor; afterwards every process it left in the record is ended."""
    started: list[BridgeProcess] = []

    def start_one(**options: Any) -> BridgeProcess:
        environment = {**os.environ, **options.pop("environment", {})}
        bridge = BridgeProcess(
            options.pop("settings", settings),
            python=Path(sys.executable),
            arguments=("-m", "tests.support.bridge_program"),
            environment=environment,
            heartbeat_seconds=options.pop("heartbeat_seconds", 0.2),
            restart_delays_seconds=(0.05,),
            **options,
        )
        started.append(bridge)
        bridge.start()
        return bridge

    yield start_one
    for bridge in started:
        bridge.stop()
    for bridge in started:
        with suppress(FileNotFoundError, ProcessLookupError):
            os.kill(pid_of(bridge), signal.SIGKILL)


def pid_of(bridge: BridgeProcess) -> int:
    return int(json.loads(bridge.record_file.read_text())["pid"])


def start_run(bridge: BridgeProcess, run_id: str = "run-1", message: str = "hello") -> BridgeClient:
    client = BridgeClient(bridge.address)
    client.start(RunRequest(run_id=run_id, agent_session="s", runtime="gated", message=message))
    return client


def wait_until(condition: Callable[[], object], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen within {seconds} s"
        pause.wait(0.02)


def test_started_bridge_answers_at_its_address(start: Start) -> None:
    bridge = start()
    assert bridge.wait_until_ready(10)
    assert bridge.state().status == "ready"
    assert BridgeClient(bridge.address).health().version == "test"


def test_until_it_is_ready_the_address_is_refused_with_a_plain_sentence(settings: Settings) -> None:
    bridge = BridgeProcess(settings)
    assert bridge.state().status == "starting"
    with pytest.raises(BridgeUnavailable, match=r"The Bridge is starting\."):
        bridge.address()


def test_a_missing_environment_is_said_and_found_once_it_is_there(settings: Settings, tmp_path: Path) -> None:
    python = tmp_path / "python"
    bridge = BridgeProcess(
        settings, python=python, arguments=("-m", "tests.support.bridge_program"), heartbeat_seconds=0.05
    )
    bridge.start()
    try:
        wait_until(lambda: bridge.state().status == "not_installed")
        assert "make run" in bridge.state().detail
        with pytest.raises(BridgeUnavailable) as refusal:
            bridge.address()
        assert refusal.value.values["permanent"] is True
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        python.chmod(0o700)
        assert bridge.wait_until_ready(10)
    finally:
        bridge.stop()


def test_stopping_ends_an_idle_bridge_and_leaves_no_trace(start: Start) -> None:
    bridge = start()
    assert bridge.wait_until_ready(10)
    pid = pid_of(bridge)
    began_at = time.monotonic()
    bridge.stop()
    assert time.monotonic() - began_at < 3
    assert not psutil.pid_exists(pid)
    assert not bridge.record_file.exists()


def test_a_deaf_bridge_is_killed_in_under_three_seconds(start: Start) -> None:
    bridge = start(environment={"TEST_IGNORE_SIGTERM": "1"})
    assert bridge.wait_until_ready(10)
    pid = pid_of(bridge)
    wait_until(lambda: ignores_sigterm(pid))
    began_at = time.monotonic()
    bridge.stop()
    assert time.monotonic() - began_at < 3.5
    assert not psutil.pid_exists(pid)


def ignores_sigterm(pid: int) -> bool:
    ignored = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigIgn"))
    return bool(int(ignored.split()[1], 16) & (1 << (signal.SIGTERM - 1)))


def test_a_killed_bridge_is_started_again_elsewhere(start: Start) -> None:
    bridge = start()
    assert bridge.wait_until_ready(10)
    first = bridge.address()
    os.kill(pid_of(bridge), signal.SIGKILL)
    wait_until(lambda: bridge.state().status == "down")
    assert "ended unexpectedly" in bridge.state().detail
    assert bridge.wait_until_ready(10)
    assert bridge.address().token != first.token


def test_a_bridge_that_cannot_start_is_tried_again_and_its_log_is_named(start: Start) -> None:
    bridge = start(environment={"TEST_EXIT_CODE": "7"})
    wait_until(lambda: bridge.log_file.exists() and bridge.log_file.read_text().count("starts") >= 2)
    assert "exit code 7" in bridge.state().detail
    assert "bridge.log" in bridge.state().detail


def test_a_setting_the_bridge_refuses_is_told_in_its_own_words(start: Start) -> None:
    bridge = start(environment={"TEST_EXIT_CODE": "2"})
    wait_until(lambda: bridge.state().status == "down")
    assert "could not be started: the Bridge of the test starts" in bridge.state().detail


def test_a_bridge_that_stays_silent_is_replaced(start: Start) -> None:
    bridge = start(mute_seconds=0.1, heartbeat_seconds=0.1)
    assert bridge.wait_until_ready(10)
    pid = pid_of(bridge)
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: not psutil.pid_exists(pid))
    assert bridge.wait_until_ready(10)


def test_a_stopped_app_leaves_runs_to_the_bridge_and_the_next_start_adopts_it(start: Start) -> None:
    first = start()
    assert first.wait_until_ready(10)
    start_run(first)
    pid = pid_of(first)
    first.stop()
    second = start()
    assert second.wait_until_ready(10)
    assert pid_of(second) == pid
    follow = start_run(second, "run-2", "open the gate")
    assert [event.kind for event in follow.events("run-1")] == ["thinking", "answer", "final"]


def test_a_bridge_whose_app_was_killed_is_adopted(start: Start, settings: Settings) -> None:
    first = start()
    assert first.wait_until_ready(10)
    address, pid = first.address(), pid_of(first)
    first._stopping.set()  # what a kill -9 leaves behind: no heartbeat, the record still there
    second = start()
    assert second.wait_until_ready(10)
    assert (second.address(), pid_of(second)) == (address, pid)


def test_an_adopted_bridge_that_dies_is_replaced(start: Start) -> None:
    first = start()
    assert first.wait_until_ready(10)
    first._stopping.set()
    second = start()
    assert second.wait_until_ready(10)
    address = second.address()
    os.kill(pid_of(second), signal.SIGKILL)
    wait_until(lambda: second.state().status == "down")
    assert second.wait_until_ready(10)
    assert second.address() != address


def test_an_idle_bridge_with_other_settings_is_replaced(start: Start, settings: Settings) -> None:
    first = start()
    assert first.wait_until_ready(10)
    pid = pid_of(first)
    first._stopping.set()
    second = start(settings=settings.model_copy(update={"toolsets": "todo,terminal"}))
    assert second.wait_until_ready(10)
    assert pid_of(second) != pid


def test_a_busy_bridge_with_other_settings_is_adopted_all_the_same(start: Start, settings: Settings) -> None:
    first = start()
    assert first.wait_until_ready(10)
    start_run(first)
    pid = pid_of(first)
    first.stop()
    second = start(settings=settings.model_copy(update={"toolsets": "todo,terminal"}))
    assert second.wait_until_ready(10)
    assert pid_of(second) == pid


@pytest.mark.parametrize("record", ["", "{", "[]", '{"pid": 1}', "stranger", "dead"])
def test_a_stale_record_is_cleared_and_a_new_bridge_started(start: Start, settings: Settings, record: str) -> None:
    settings.data_dir.mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    pid = {"stranger": os.getpid(), "dead": 2**22 - 3}.get(record)
    stale = {"pid": pid, "port": port, "token": "t", "started_at": 0, "fingerprint": "f"}
    (settings.data_dir / "bridge.json").write_text(json.dumps(stale) if pid else record)
    bridge = start()
    assert bridge.wait_until_ready(10)
    assert pid_of(bridge) not in {os.getpid(), 2**22 - 3}


def test_the_token_is_in_the_environment_and_nowhere_else(start: Start, settings: Settings) -> None:
    bridge = start()
    assert bridge.wait_until_ready(10)
    token = bridge.address().token
    process = psutil.Process(pid_of(bridge))
    assert process.environ()["PARLEY_BRIDGE_TOKEN"] == token
    assert token not in " ".join(process.cmdline())
    assert token not in bridge.log_file.read_text()
    assert token not in repr(bridge.address()) + repr(bridge._running)


def test_record_and_log_are_private(start: Start) -> None:
    bridge = start()
    assert bridge.wait_until_ready(10)
    for file in (bridge.record_file, bridge.log_file):
        assert file.stat().st_mode & 0o777 == 0o600


def test_a_long_log_is_put_aside_at_the_start(start: Start, settings: Settings) -> None:
    settings.logs_folder.mkdir(parents=True)
    log_file = settings.logs_folder / "bridge.log"
    with log_file.open("wb") as file:
        file.truncate(11 * 1024 * 1024)
    bridge = start()
    assert bridge.wait_until_ready(10)
    assert log_file.stat().st_size < 10_000
    assert (settings.logs_folder / "bridge.log.1").stat().st_size == 11 * 1024 * 1024


def test_ctrl_c_in_the_terminal_does_not_reach_the_bridge(start: Start) -> None:
    bridge = start()
    assert bridge.wait_until_ready(10)
    assert os.getsid(pid_of(bridge)) != os.getsid(0)


def test_the_bridge_gets_its_settings_and_not_our_python_s(start: Start, settings: Settings) -> None:
    bridge = start(environment={"PYTHONPATH": "/nowhere", "OPENAI_MODEL": "m"})
    assert bridge.wait_until_ready(10)
    environment = psutil.Process(pid_of(bridge)).environ()
    assert environment["PARLEY_DATA_DIR"] == str(settings.data_dir)
    assert environment["PARLEY_HERMES_HOME"] == str(settings.data_dir / "hermes")
    assert environment["PARLEY_TOOLSETS"] == "todo,memory,skills,clarify"
    assert environment["OPENAI_MODEL"] == "m"
    assert "PYTHONPATH" not in environment


def test_settings_choose_the_kind_of_bridge(settings: Settings) -> None:
    assert isinstance(bridge_for(settings), BridgeProcess)
    external = settings.model_copy(update={"bridge_url": "http://127.0.0.1:1"})
    assert isinstance(bridge_for(external), ExternalBridge)
    assert (PROJECT_FOLDER / "chat_core").is_dir()


def test_an_external_bridge_is_ready_while_it_answers(settings: Settings) -> None:
    with served_bridge(LocalRunHost({"echo": EchoRuntime()})) as address:
        external = load_settings(
            {"data_dir": settings.data_dir, "bridge_url": address.url, "bridge_token": address.token}
        )
        bridge = ExternalBridge(external, heartbeat_seconds=0.05)
        bridge.start()
        assert bridge.wait_until_ready(10)
        assert bridge.address() == address
    wait_until(lambda: bridge.state().status == "down")
    assert address.url in bridge.state().detail
    bridge.stop()


def test_an_external_bridge_with_another_token_is_not_ready_and_the_setting_is_named(settings: Settings) -> None:
    with served_bridge(LocalRunHost({"echo": EchoRuntime()})) as address:
        external = load_settings({"data_dir": settings.data_dir, "bridge_url": address.url, "bridge_token": "other"})
        bridge = ExternalBridge(external, heartbeat_seconds=0.05)
        bridge.start()
        wait_until(lambda: bridge.state().status == "down")
        assert "PARLEY_BRIDGE_TOKEN" in bridge.state().detail
        assert TOKEN not in bridge.state().detail
        bridge.stop()
