"""Drives `panel_app` and a headless Chromium, for the tests of the browser side."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from chat_core.models import utc_text

REPOSITORY = Path(__file__).parents[2]
CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
EVENT_NAMES = {
    "answer": "token",
    "tool_call": "tool_call",
    "tool_result": "tool_call",
    "run_finished": "done",
    "run_stopped": "done",
    "run_failed": "error",
    "run_interrupted": "error",
}


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run the Chromium of this machine."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"), args=CHROMIUM_ARGUMENTS
        )
        try:
            yield browser
        finally:
            browser.close()


class PanelApp:
    """The running test app: says what the API does and opens its page."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._control = httpx.Client(base_url=f"{address}/control", headers={"Origin": address}, timeout=10)

    def behave(self, **behaviour: Any) -> None:
        self._post("behaviour", behaviour)

    def cut(self) -> None:
        """Cut every open event stream."""
        self._post("cut", {})

    def forget(self, run_id: str) -> None:
        """Lose the events of a run: what it tells next is another story."""
        self._post(f"runs/{run_id}/forget", {})

    def calls(self, name: str) -> list[dict[str, Any]]:
        return [call for call in self._control.get("calls").json() if call["call"] == name]

    def close(self) -> None:
        self._control.close()

    def open(self, page: Page, *, session: str = "s1", **query: str) -> None:
        page.goto(f"{self.address}/?{httpx.QueryParams({'session': session, **query})}")
        page.get_by_text("runs_of_the_script=").wait_for()

    def run(self, run_id: str, started_ago_seconds: float = 0) -> "RunScript":
        return RunScript(self, run_id, datetime.now(UTC) - timedelta(seconds=started_ago_seconds))

    def _post(self, path: str, body: Any) -> None:
        # Our own ASCII JSON: lone surrogates and the like must arrive as they are.
        content = json.dumps(body)
        self._control.post(path, content=content).raise_for_status()

    def add(self, run_id: str, events: list[dict[str, Any]]) -> None:
        self._post(f"runs/{run_id}/events", events)


class RunScript:
    """One made-up run; each call adds the next event."""

    def __init__(self, app: PanelApp, run_id: str, now: datetime) -> None:
        self.app = app
        self.run_id = run_id
        self.seq = 0
        self.now = now

    def add(self, kind: str, **fields: Any) -> "RunScript":
        return self.add_many([(kind, fields)])

    def add_many(self, entries: list[tuple[str, dict[str, Any]]]) -> "RunScript":
        events = []
        for kind, fields in entries:
            self.seq += 1
            data = {"v": 1, "seq": self.seq, "kind": kind, "at": utc_text(self.now), **fields}
            events.append({"event": EVENT_NAMES.get(kind, "progress"), "data": data})
        self.app.add(self.run_id, events)
        return self

    def skip(self, count: int) -> "RunScript":
        """Leave a hole in the numbers."""
        self.seq += count
        return self

    def wait(self, seconds: float) -> "RunScript":
        """Let the run's own clock go on."""
        self.now += timedelta(seconds=seconds)
        return self

    def ask(self, question_id: str, question: str, choices: list[str], kind: str = "clarify", **detail: Any) -> None:
        asked = {"question_id": question_id, "kind": kind, "question": question, "choices": choices, "detail": detail}
        self.add(f"{kind}_request", question=asked)


@contextmanager
def panel_app() -> Iterator[PanelApp]:
    """Start the test app in a process of its own and stop it at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.panel_app"], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        app = PanelApp(f"http://127.0.0.1:{port}")
        try:
            yield app
        finally:
            app.close()
    finally:
        process.terminate()
        process.wait(10)


def area(page: Page, name: str) -> Locator:
    return page.locator(f'[data-area="{name}"]')


def answer_of(page: Page) -> Locator:
    return page.locator('[data-area="answer"] .answer')


__all__ = ["PanelApp", "RunScript", "answer_of", "area", "chromium", "expect", "panel_app"]
