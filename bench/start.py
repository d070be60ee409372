"""`make run` where all is installed: seconds to the first page and to a ready agent, memory at rest, time to stop."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil

REPOSITORY = Path(__file__).parents[1]
REST_SECONDS = 10.0


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="parley-bench-") as name:
        start(Path(name))  # the first one makes the data folder
        print(json.dumps(start(Path(name))))


def start(data_dir: Path) -> dict[str, object]:
    """Start Parley as a user does, measure, and stop it as a user does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    environment = {**os.environ, "PARLEY_DATA_DIR": str(data_dir), "PARLEY_PORT": str(port)}
    began_at = time.monotonic()
    make = subprocess.Popen(
        ["make", "run"], cwd=REPOSITORY, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        first_page = _seconds_until(lambda: httpx.get(url, timeout=2).status_code == 200, began_at)
        ready = _seconds_until(lambda: httpx.get(f"{url}/api/health", timeout=2).json()["bridge"] == "ready", began_at)
        time.sleep(REST_SECONDS)  # what the start has left to do is not rest
        app = next(child for child in psutil.Process(make.pid).children() if "streamlit" in " ".join(child.cmdline()))
        bridge = psutil.Process(json.loads((data_dir / "bridge.json").read_text())["pid"])
        rss = {"app": _megabytes(app), "bridge": _megabytes(bridge)}
        stop_began_at = time.monotonic()
        app.send_signal(signal.SIGTERM)
        app.wait(10)
        stopped = time.monotonic() - stop_began_at
    finally:
        for process in [*psutil.Process(make.pid).children(recursive=True), make]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        make.wait(10)
    return {
        "bench": "start",
        "first_page_seconds": round(first_page, 2),
        "target_first_page_seconds": 6.0,
        "agent_ready_seconds": round(ready, 2),
        "app_rss_mb": rss["app"],
        "target_app_rss_mb": 300,
        "bridge_rss_mb": rss["bridge"],
        "target_bridge_rss_mb": 250,
        "stop_seconds": round(stopped, 2),
        "target_stop_seconds": 3.0,
    }


def _megabytes(process: psutil.Process) -> int:
    return int(process.memory_info().rss / 1e6)


def _seconds_until(condition: Callable[[], bool], began_at: float, at_most_seconds: float = 120.0) -> float:
    while time.monotonic() - began_at < at_most_seconds:
        with contextlib.suppress(httpx.HTTPError, ValueError, KeyError):
            if condition():
                return time.monotonic() - began_at
        time.sleep(0.02)
    raise TimeoutError(f"it did not happen within {at_most_seconds:.0f} s")


if __name__ == "__main__":
    main()
