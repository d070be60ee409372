"""Opening a session of 2,000 messages: the script's time, and when Chromium shows the last message.

Every answer is Markdown of some length and has tool calls in its log. Three ways to open it: a click in the list, the
address (browser cache filled), and a link to a message in the middle. The map of the tree is timed too.
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
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
from playwright.sync_api import Page, sync_playwright
from streamlit.testing.v1 import AppTest

from bench.live_stream import CHROMIUM_ARGUMENTS
from chat_core.bridge.run_host import LocalRunHost
from chat_core.config import load_settings
from chat_core.models import LOCAL_USER, NewEntry, Session, utc_text
from chat_core.process_workbench import set_process_workbench
from chat_core.store import messages
from chat_core.store.messages import NewMessage
from chat_core.store.runs import insert_entries
from chat_core.ui.branch_rows import branch_rows
from chat_core.workbench import Workbench, open_workbench

TURNS = 1_000
FORKS = 50
TRIES = 7
ROUTER = Path(__file__).parents[1] / "pages" / "_router.py"
# Notes, frame by frame, when a text is first on the screen.
WATCH = """
([text, started]) => {
  window.__shown = null;
  const look = () => {
    for (const node of document.querySelectorAll('.st-key-transcript p')) {
      if (!node.textContent.includes(text)) continue;
      const box = node.getBoundingClientRect();
      if (box.top < window.innerHeight && box.bottom > 0) { window.__shown = performance.now() - started; return; }
    }
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="parley-bench-") as name:
        data_dir = Path(name) / "data"
        session, other, middle = _fill(data_dir)
        print(json.dumps(_script(data_dir, session, middle)))
        with _served(data_dir) as url:
            print(json.dumps(_browser(url, session, other, middle)))


def _fill(data_dir: Path) -> tuple[str, str, str]:
    """Store the long session and a short one; return their ids and that of a message in the middle of the long one."""
    workbench = open_workbench(load_settings({"data_dir": data_dir}), LocalRunHost({}))
    session = workbench.create_session(LOCAL_USER, title="The long one")
    ids = _add_turns(workbench, session, TURNS - FORKS * 3, "main")
    for number in range(FORKS):
        workbench.activate_branch(LOCAL_USER, ids[number * 20 + 1])
        with workbench.store.database.write() as db:
            at = messages.message_of(db, LOCAL_USER, session, ids[number * 20 + 1]).id
        _add_turns(workbench, session, 3, f"side {number}", at)
    workbench.activate_branch(LOCAL_USER, ids[-1])
    other = workbench.create_session(LOCAL_USER, title="The short one")
    _add_turns(workbench, other, 1, "short")
    workbench.close()
    return session.uuid, other.uuid, ids[len(ids) // 2 + 1]


def _add_turns(workbench: Workbench, session: Session, turns: int, name: str, at: int | None = None) -> list[str]:
    ids, moment = [], utc_text(session.created_at)
    with workbench.store.database.write() as db:
        above = messages.leaf_of(db, session.id) if at is None else at
        for number in range(turns):
            asked = NewMessage("USER", f"Question {number} of {name}: what does `file_{number}.py` do?", "SENT")
            question = messages.append(db, session.id, above, asked, moment)
            text = (
                f"It reads the file **{number}** and writes what it found to a table.\n\n"
                f"* first, it opens `file_{number}.py`\n* then it counts\n\n"
                f"```python\nfor row in rows:\n    print(row)\n```\n\nAnswer {number} of {name}."
            )
            answered = NewMessage("ASSISTANT", text, "SUCCESS", session.runtime, "bench")
            answer = messages.append(db, session.id, question.id, answered, moment)
            entries = [
                NewEntry("thinking", "Let me look."),
                NewEntry("tool_call", '{"path": "x"}', "read_file", "c1"),
                NewEntry("tool_result", "text " * 100, "read_file", "c1", 12),
                NewEntry("run_finished", text),
            ]
            insert_entries(db, answer.id, entries, moment)
            above = answer.id
            ids += [question.uuid, answer.uuid]
    return ids


def _timed_page(router: str) -> None:
    import runpy
    import time

    import streamlit as st

    started = time.perf_counter()
    runpy.run_path(router)
    st.session_state.setdefault("seconds", []).append(time.perf_counter() - started)


def _script(data_dir: Path, session: str, middle: str) -> dict[str, object]:
    workbench = open_workbench(load_settings({"data_dir": data_dir}), LocalRunHost({}))
    set_process_workbench(workbench)
    try:
        return {
            "bench": "long_session_script",
            "messages": 2 * TURNS,
            "forks": FORKS,
            "open_ms": _script_ms(session=session),
            "open_in_the_middle_ms": _script_ms(session=session, message=middle),
            "target_ms": 100,
            "map_rows_ms": _map_ms(workbench, session),
        }
    finally:
        set_process_workbench(None)
        workbench.close()


def _script_ms(**query: str) -> float:
    page = AppTest.from_function(_timed_page, args=(str(ROUTER),), default_timeout=60)
    for name, value in query.items():
        page.query_params[name] = value
    for _ in range(1 + TRIES):
        page.run()
    seconds: list[float] = page.session_state["seconds"]
    return round(statistics.median(seconds[1:]) * 1000, 1)


def _map_ms(workbench: Workbench, session: str) -> float:
    started = time.perf_counter()
    branch_rows(workbench.outline(LOCAL_USER, session))
    return round((time.perf_counter() - started) * 1000, 1)


def _browser(url: str, session: str, other: str, middle: str) -> dict[str, object]:
    last, centre = f"Answer {TURNS - FORKS * 3 - 1} of main", f"Answer {(TURNS - FORKS * 3) // 2} of main"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM_ARGUMENTS)
        page = browser.new_page(viewport={"width": 1280, "height": 900}, bypass_csp=True)  # the watch is evaluated
        short, long = f"{url}/?session={other}", f"{url}/?session={session}"
        clicks, loads, links = [], [], []
        for _ in range(TRIES):
            _open(page, short, "Answer 0 of short")
            row = page.locator(f'.st-key-session-list [class*="{session}"] a').first
            clicks.append(_until_shown(page, last, row.click))
            loads.append(_until_shown(page, last, lambda: page.goto(long, wait_until="commit"), loads_page=True))
            address = f"{long}&message={middle}"
            links.append(_until_shown(page, centre, lambda to=address: page.goto(to, wait_until="commit"), True))
        page.goto(long)
        page.get_by_text(last).first.wait_for(timeout=30_000)
        _wait_until_idle(page)
        started = time.perf_counter()
        page.locator(".st-key-open-map button").first.click()
        page.locator(".tree .row").first.wait_for(timeout=30_000)
        opened = time.perf_counter() - started
        browser.close()
    return {
        "bench": "long_session_browser",
        "click_to_last_message_ms": round(statistics.median(clicks)),
        "target_click_ms": 1_000,
        "address_to_last_message_ms": round(statistics.median(loads)),
        "link_to_message_ms": round(statistics.median(links)),
        "map_ms": round(opened * 1000),
    }


def _open(page: Page, address: str, text: str) -> None:
    page.goto(address)
    page.get_by_text(text).first.wait_for(timeout=30_000)
    _wait_until_idle(page)


def _wait_until_idle(page: Page) -> None:
    page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for(timeout=30_000)
    page.wait_for_timeout(500)


def _until_shown(page: Page, text: str, act: Callable[[], object], loads_page: bool = False) -> float:
    """Milliseconds from `act` until a paragraph with `text` is on the screen."""
    if loads_page:
        act()
        page.evaluate(WATCH, [text, 0])
        page.wait_for_function("window.__shown !== null", timeout=30_000)
        # On a new page the clock begins with the navigation.
        return float(page.evaluate("window.__shown"))
    page.evaluate(WATCH, [text, page.evaluate("performance.now()")])
    act()
    page.wait_for_function("window.__shown !== null", timeout=30_000)
    return float(page.evaluate("window.__shown"))


@contextlib.contextmanager
def _served(data_dir: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    # No Bridge is needed to read: an address where nobody answers.
    environment = {"PARLEY_BRIDGE_URL": "http://127.0.0.1:9", "PARLEY_BRIDGE_TOKEN": "bench"}
    app = subprocess.Popen(
        [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)],
        env={**os.environ, **environment, "PARLEY_DATA_DIR": str(data_dir), "PARLEY_PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{url}/api/health", timeout=2).status_code < 500:
                    break
            time.sleep(0.1)
        yield url
    finally:
        app.terminate()
        app.wait(10)


if __name__ == "__main__":
    main()
