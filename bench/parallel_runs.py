"""10 parallel runs of 50 events a second: processor time of the app's engine, and that nothing is lost or doubled."""

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from chat_core.config import load_settings
from chat_core.models import LOCAL_USER
from chat_core.workbench import open_workbench

RUNS = 10
EVENTS = 500
RATE = 50


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="parley-bench-"))
    ready_file = folder / "ready.json"
    environment = {**os.environ, "PARLEY_BRIDGE_TOKEN": "bench", "PARLEY_BRIDGE_READY_FILE": str(ready_file)}
    bridge = subprocess.Popen([sys.executable, "-m", "bench.paced_bridge"], env=environment)
    try:
        deadline = time.monotonic() + 30
        while not ready_file.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        port = json.loads(ready_file.read_text())["port"]
        print(json.dumps(measure(folder, port)))
    finally:
        bridge.terminate()
        bridge.wait(5)


def measure(folder: Path, port: int) -> dict[str, object]:
    limits = {"max_runs_per_user": RUNS, "max_active_runs": RUNS}
    bridge = {"bridge_url": f"http://127.0.0.1:{port}", "bridge_token": "bench"}
    workbench = open_workbench(load_settings({"data_dir": folder / "data", **limits, **bridge}))
    try:
        deadline = time.monotonic() + 30
        while workbench.bridge_state().status != "ready" and time.monotonic() < deadline:
            time.sleep(0.05)
        process = psutil.Process()
        cpu, wall = process.cpu_times(), time.monotonic()
        runs = []
        for _ in range(RUNS):
            session = workbench.create_session(LOCAL_USER, runtime="paced")
            runs.append(workbench.ask(LOCAL_USER, session.uuid, f"{EVENTS} {RATE}"))
        with ThreadPoolExecutor(RUNS) as threads:
            logs = list(threads.map(lambda run: list(workbench.follow(LOCAL_USER, run.run_id)), runs))
        seconds = time.monotonic() - wall
        after = process.cpu_times()
        lost = doubled = 0
        for log in logs:
            numbers = [word.split(":")[0] for entry in log if entry.kind == "answer" for word in entry.content.split()]
            lost += EVENTS - len(set(numbers))
            doubled += len(numbers) - len(set(numbers))
        return {
            "bench": "parallel_runs",
            "runs": RUNS,
            "events_per_second_each": RATE,
            "cores_app": round((after.user - cpu.user + after.system - cpu.system) / seconds, 3),
            "target_cores_app": 0.5,
            "lost": lost,
            "doubled": doubled,
            "check": workbench.store.check(),
        }
    finally:
        workbench.close()


if __name__ == "__main__":
    main()
