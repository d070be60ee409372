"""How the app starts, says what is wrong with its settings, ends, and what its pages do not load."""

import contextlib
import os
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]


def environment(data_dir: Path, **more: str) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PARLEY_", "STREAMLIT_"))}
    return own | {"PARLEY_DATA_DIR": str(data_dir), "PYTHONPATH": str(ROOT)} | more


@pytest.mark.parametrize("command", [["app.py"], ["-m", "streamlit", "run", "app.py"]])
def test_a_wrong_setting_ends_the_start_with_one_plain_sentence(tmp_path: Path, command: list[str]) -> None:
    result = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=environment(tmp_path, PARLEY_MAX_ACTIVE_RUNS="many"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 2
    assert "PARLEY_MAX_ACTIVE_RUNS" in result.stderr
    assert "Example: PARLEY_MAX_ACTIVE_RUNS=50" in result.stderr
    assert "Traceback" not in result.stderr + result.stdout


def test_a_data_folder_in_use_ends_the_start_with_one_plain_sentence(tmp_path: Path) -> None:
    holder = textwrap.dedent(
        """
        import sys
        from chat_core.config import load_settings
        from chat_core.store.store import Store
        store = Store.open(load_settings().database_file)
        print("open", flush=True)
        sys.stdin.read()
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder],
        cwd=ROOT,
        env=environment(tmp_path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "open\n"
        second = subprocess.run(
            [sys.executable, "app.py"],
            cwd=ROOT,
            env=environment(tmp_path, PARLEY_PORT=str(free_port())),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        first.terminate()
    assert second.returncode == 2
    assert second.stderr.count("Parley cannot start.") == 1
    assert "Traceback" not in second.stderr + second.stdout


def test_an_open_event_stream_does_not_hold_up_the_end(tmp_path: Path) -> None:
    port = free_port()
    script = textwrap.dedent(
        """
        import runpy, sys
        from chat_core.bridge.run_host import LocalRunHost
        from chat_core.config import load_settings
        from chat_core.models import LOCAL_USER
        from chat_core.process_workbench import set_process_workbench
        from chat_core.workbench import open_workbench
        from tests.support.runtimes import GatedRuntime
        workbench = open_workbench(load_settings(), LocalRunHost({"gated": GatedRuntime()}))
        set_process_workbench(workbench)
        session = workbench.create_session(LOCAL_USER, runtime="gated")
        print(workbench.ask(LOCAL_USER, session.uuid, "hello").run_id, flush=True)
        runpy.run_path("app.py", run_name="__main__")
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=environment(tmp_path, PARLEY_PORT=str(port)),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as program:
        assert program.stdout is not None
        try:
            run_id = program.stdout.readline().strip()
            wait_until_served(port)
            address = f"http://127.0.0.1:{port}/api/chat/runs/{run_id}/stream"
            with httpx.stream("GET", address, timeout=10) as stream:
                assert next(stream.iter_lines()) is not None
                program.terminate()
                program.wait(timeout=10)
        finally:
            program.kill()
    assert program.returncode in (0, -15, 143)


def test_a_chat_page_needs_no_data_frames(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import sys
        sys.modules["pandas"] = None  # every import of it fails from now on
        from streamlit.testing.v1 import AppTest
        from chat_core.bridge.run_host import LocalRunHost
        from chat_core.config import load_settings
        from chat_core.models import LOCAL_USER
        from chat_core.process_workbench import set_process_workbench
        from chat_core.workbench import open_workbench
        from tests.support.runtimes import EchoRuntime
        workbench = open_workbench(load_settings(), LocalRunHost({"echo": EchoRuntime()}))
        set_process_workbench(workbench)
        session = workbench.create_session(LOCAL_USER, runtime="echo")
        started = workbench.ask(LOCAL_USER, session.uuid, "| a |\\n|---|\\n| b |")
        for _ in workbench.follow(LOCAL_USER, started.run_id): pass
        page = AppTest.from_file(sys.argv[1], default_timeout=30)
        page.query_params["session"] = session.uuid
        page.run()
        print("problems:", [problem.value for problem in [*page.exception, *page.error]])
        workbench.close()
        """
    )
    result = subprocess.run(
        [sys.executable, "-c", script, str(ROOT / "pages" / "_router.py")],
        cwd=ROOT,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "problems: []" in result.stdout, result.stderr


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_served(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.ConnectError):
            assert httpx.get(f"http://127.0.0.1:{port}/api/health", timeout=10).status_code == 200
            return
        time.sleep(0.1)
    raise AssertionError("the program does not serve its pages")
