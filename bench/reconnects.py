"""Forces 1,000 reconnects of the API's event stream, and as many as it can between app and Bridge; counts what is lost.

Readers leave after a random number of events and come back with the last id they saw, while the network between app
and Bridge is cut at random too. What they have read in the end must be every chunk, once, in order.
"""

import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from tests.support.breaking_proxy import Fault, breaking_proxy

RECONNECTS = 1000
PARALLEL = 5
CHUNKS = 600
RATE = 200
SEED = 20


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="parley-bench-") as name:
        print(json.dumps(measure(Path(name))))


def measure(folder: Path) -> dict[str, object]:
    random.seed(SEED)
    readers: list[_Reader] = []
    with (
        _bridge(folder) as bridge_port,
        breaking_proxy(bridge_port, lambda number: Fault(after_blocks=random.randint(1, 40))) as proxy,
        _app(folder, proxy.url) as url,
        ThreadPoolExecutor(PARALLEL) as threads,
    ):
        while sum(reader.reconnects for reader in readers) < RECONNECTS:
            batch = [_Reader(url, seed) for seed in range(len(readers), len(readers) + PARALLEL)]
            list(threads.map(_Reader.read, batch))
            readers += batch
    return {
        "bench": "reconnects",
        "runs": len(readers),
        "reconnects_api": sum(reader.reconnects for reader in readers),
        "reconnects_bridge": proxy.streams - len(readers),
        "entries": sum(len(reader.numbers) for reader in readers),
        "lost": sum(CHUNKS - len(set(reader.numbers)) for reader in readers),
        "doubled": sum(len(reader.numbers) - len(set(reader.numbers)) for reader in readers),
        "out_of_order": sum(reader.numbers != sorted(reader.numbers) for reader in readers),
        "resyncs": sum(reader.resyncs for reader in readers),
        "target_lost_and_doubled": 0,
    }


class _Reader:
    """Starts a run and reads it to its end, leaving and coming back."""

    def __init__(self, url: str, seed: int) -> None:
        self._api = httpx.Client(base_url=f"{url}/api/chat", timeout=30)
        self._random = random.Random(seed)
        self.numbers: list[int] = []
        self.reconnects = 0
        self.resyncs = 0

    def read(self) -> None:
        session = self._post("/sessions", {"runtime": "paced"})["session_id"]
        run_id = self._post(f"/sessions/{session}/runs", {"message": f"{CHUNKS} {RATE}"})["run_id"]
        last_id = ""
        ended = False
        while not ended:
            last_id, ended = self._read_some(run_id, last_id)
            self.reconnects += not ended
        self._api.close()

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._api.post(path, json=body).raise_for_status().json()
        return answer

    def _read_some(self, run_id: str, last_id: str) -> tuple[str, bool]:
        headers = {"Last-Event-ID": last_id} if last_id else {}
        events_left = self._random.randint(1, 3)
        with self._api.stream("GET", f"/runs/{run_id}/stream", headers=headers) as stream:
            stream.raise_for_status()
            event_id = last_id
            for line in stream.iter_lines():
                if line.startswith("id:"):
                    event_id = line[3:].strip()
                elif line.startswith("data:"):
                    event = json.loads(line[5:])
                    self._take(event)
                    last_id = event_id
                    events_left -= 1
                    if str(event.get("kind", "")).startswith("run_") and event["kind"] != "run_started":
                        return last_id, True
                if events_left <= 0:
                    break
        return last_id, False

    def _take(self, event: dict[str, Any]) -> None:
        if event.get("kind") == "answer":
            self.numbers += [int(word.split(":")[0]) for word in event["text"].split()]
        elif "reason" in event and "kind" not in event:
            self.resyncs += 1
            self.numbers.clear()


@contextlib.contextmanager
def _bridge(folder: Path) -> Iterator[int]:
    ready_file = folder / "ready.json"
    environment = {**os.environ, "PARLEY_BRIDGE_TOKEN": "bench", "PARLEY_BRIDGE_READY_FILE": str(ready_file)}
    with _process([sys.executable, "-m", "bench.paced_bridge"], environment):
        _wait(ready_file.exists)
        yield int(json.loads(ready_file.read_text())["port"])


@contextlib.contextmanager
def _app(folder: Path, bridge_url: str) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    environment = {
        **os.environ,
        "PARLEY_BRIDGE_URL": bridge_url,
        "PARLEY_BRIDGE_TOKEN": "bench",
        "PARLEY_DATA_DIR": str(folder / "data"),
        "PARLEY_PORT": str(port),
    }
    url = f"http://127.0.0.1:{port}"
    with _process([sys.executable, "-m", "chat_core.serve"], environment):
        _wait(lambda: httpx.get(f"{url}/api/health", timeout=2).json()["bridge"] == "ready")
        yield url


@contextlib.contextmanager
def _process(command: list[str], environment: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(10)


def _wait(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.HTTPError, ValueError, KeyError):
            if condition():
                return
        time.sleep(0.05)
    raise TimeoutError("a server of the benchmark did not start")


if __name__ == "__main__":
    main()
