"""The whole program as a user starts it: the app on a free port, with its embedded Bridge and the real agent."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import psutil

REPOSITORY = Path(__file__).parents[2]
START_SECONDS = 90.0


class ParleyProgram:
    """Starts, stops and kills Parley over one data folder; `models` are rows of its models.toml."""

    def __init__(self, data_dir: Path, *, models: list[dict[str, Any]] | None = None, **environment: str) -> None:
        self.data_dir = data_dir
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        data_dir.mkdir(parents=True, exist_ok=True)
        if models:
            file = data_dir / "models.toml"
            file.write_text("\n".join(_model_table(model) for model in models), "utf-8")
            file.chmod(0o600)

    def start(self) -> None:
        """Return once the pages are served and the Bridge takes runs."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PARLEY_", "OPENAI_"))}
        environment = inherited | {
            "PARLEY_DATA_DIR": str(self.data_dir),
            "PARLEY_PORT": str(self.port),
            "PARLEY_TOUR_PACE_SECONDS": "0.002",
            **self._environment,
        }
        with (self.data_dir / "app-output.log").open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(self.port)],
                cwd=REPOSITORY,
                env=environment,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self.is_ready():
            assert self._process.poll() is None, f"Parley ended: {self.output()[-2000:]}"
            assert time.monotonic() < deadline, f"Parley is not ready: {self.output()[-2000:]}"
            time.sleep(0.1)

    def stop(self, timeout_seconds: float = 10.0) -> float:
        """End it the polite way and return how many seconds that took."""
        assert self._process is not None
        started = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(timeout_seconds)
        return time.monotonic() - started

    def kill(self) -> None:
        """End it as a power cut would; its Bridge lives on."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)

    def kill_bridge(self) -> None:
        psutil.Process(self.bridge_pid()).kill()

    def wait_for_another_bridge(self, old_pid: int) -> None:
        """Return once a Bridge that is not `old_pid` takes runs."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, ValueError):
                if self.bridge_pid() != old_pid and self.is_ready():
                    return
            time.sleep(0.1)
        raise AssertionError("the Bridge was not started again")

    def bridge_pid(self) -> int:
        return int(json.loads((self.data_dir / "bridge.json").read_text("utf-8"))["pid"])

    def processes(self) -> list[psutil.Process]:
        """The app, its Bridge, and what they have started."""
        assert self._process is not None
        heads = [psutil.Process(self._process.pid), psutil.Process(self.bridge_pid())]
        return heads + [child for head in heads for child in head.children(recursive=True)]

    def close(self) -> None:
        """End the app and its Bridge, whatever state they are in."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.stop()
            self._process.kill()
        with contextlib.suppress(OSError, ValueError, KeyError, psutil.NoSuchProcess):
            bridge = psutil.Process(self.bridge_pid())
            bridge.terminate()
            bridge.wait(5)

    def output(self) -> str:
        return (self.data_dir / "app-output.log").read_text("utf-8", "replace")

    def is_ready(self) -> bool:
        with contextlib.suppress(httpx.HTTPError, ValueError, KeyError):
            return bool(httpx.get(f"{self.url}/api/health", timeout=2).json()["bridge"] == "ready")
        return False


def _model_table(model: dict[str, Any]) -> str:
    rows = "\n".join(f"{name} = {json.dumps(value)}" for name, value in model.items())
    return f"[[models]]\n{rows}\n"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
