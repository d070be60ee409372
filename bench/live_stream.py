"""From the Bridge's event to the browser's DOM, one viewer: latency, and the processor time of app and Bridge.

A paced Bridge sends answer chunks that carry their own number and time; a script in the page looks at every
animation frame which chunk is the last one shown. Chromium and both processes run on this machine, one clock.
"""

import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
from playwright.sync_api import Page, sync_playwright

CHUNKS = 2000
RATE = 200
CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# Looks through open shadow roots for the text of the answer and notes when each chunk was first seen.
WATCH = """
() => {
  window.__seen = [];
  let last = -1, host = null;
  const find = (root) => {
    for (const element of root.querySelectorAll('*')) {
      if (element.shadowRoot) {
        const hit = element.shadowRoot.querySelector('.answer') || find(element.shadowRoot);
        if (hit) return hit;
      }
    }
    return null;
  };
  const look = () => {
    if (!host || !host.isConnected) host = find(document);
    if (host) {
      const now = Date.now(), text = host.textContent.slice(-4000);
      for (const match of text.matchAll(/(\\d+):(\\d{13}\\.\\d) /g)) {
        const number = Number(match[1]);
        if (number > last) { last = number; window.__seen.push([number, now - Number(match[2])]); }
      }
    }
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="parley-bench-") as name, _servers(Path(name)) as (url, processes):
        print(json.dumps(measure(url, processes)))


def measure(url: str, processes: list[psutil.Process]) -> dict[str, object]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM_ARGUMENTS)
        page = browser.new_page(viewport={"width": 1280, "height": 900}, bypass_csp=True)  # the watch is evaluated
        page.goto(url)
        box = page.locator("textarea").first
        box.wait_for(timeout=30_000)
        _ask(page, "50 100")
        page.get_by_text("49:").first.wait_for(timeout=30_000)
        page.wait_for_timeout(2_000)
        before = sum(_seconds(process) for process in processes)
        page.evaluate(WATCH)
        _ask(page, f"{CHUNKS} {RATE}")
        page.wait_for_function(f"window.__seen.length && window.__seen.at(-1)[0] >= {CHUNKS - 1}", timeout=60_000)
        cpu = sum(_seconds(process) for process in processes) - before
        delays = [delay for _, delay in page.evaluate("window.__seen")]
        browser.close()
    delays.sort()
    return {
        "bench": "live_stream",
        "chunks": CHUNKS,
        "chunks_per_second": RATE,
        "seen": len(delays),
        "p50_ms": round(statistics.median(delays), 1),
        "p95_ms": round(delays[int(len(delays) * 0.95)], 1),
        "target_ms": [60, 100],
        "cpu_seconds_app_and_bridge": round(cpu, 2),
        "target_cpu_seconds": 1.0,
    }


def _ask(page: Page, text: str) -> None:
    box = page.locator("textarea").first
    box.fill(text)
    box.press("Enter")


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextlib.contextmanager
def _servers(folder: Path) -> Iterator[tuple[str, list[psutil.Process]]]:
    ready_file = folder / "ready.json"
    token = {"PARLEY_BRIDGE_TOKEN": "bench"}
    bridge = subprocess.Popen(
        [sys.executable, "-m", "bench.paced_bridge"],
        env={**os.environ, **token, "PARLEY_BRIDGE_READY_FILE": str(ready_file)},
    )
    app = None
    try:
        _wait(ready_file.exists)
        bridge_port = json.loads(ready_file.read_text())["port"]
        port = _free_port()
        app = subprocess.Popen(
            [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)],
            env={
                **os.environ,
                **token,
                "PARLEY_BRIDGE_URL": f"http://127.0.0.1:{bridge_port}",
                "PARLEY_DATA_DIR": str(folder / "data"),
                "PARLEY_PORT": str(port),
            },
            stdout=subprocess.DEVNULL,
        )
        url = f"http://127.0.0.1:{port}"
        _wait(lambda: _is_ready(url))
        yield url, [psutil.Process(bridge.pid), psutil.Process(app.pid)]
    finally:
        for process in (app, bridge):
            if process is not None:
                process.terminate()
                process.wait(10)


def _is_ready(url: str) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return bool(httpx.get(f"{url}/api/health", timeout=2).json()["bridge"] == "ready")
    return False


def _wait(condition: "object", seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "a server of the benchmark did not start"
        time.sleep(0.1)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


if __name__ == "__main__":
    main()
