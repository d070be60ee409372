"""The page policy in a real browser: everything Streamlit needs works, nothing reaches another place."""

import base64
import hashlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import streamlit
from playwright.sync_api import Page, expect, sync_playwright

from chat_core.api.security import INDEX_SCRIPT_HASH, SecurityMiddleware

CHROMIUM = "/usr/bin/chromium"
ROOT = Path(__file__).parents[2]

APP = """
import sys
from pathlib import Path

import streamlit as st
import uvicorn
from starlette.middleware import Middleware
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from chat_core.api.security import SecurityMiddleware

MODULE = "export default (c) => { c.parentElement.querySelector('#live').textContent = 'imported module'; };"


async def module(request):
    return Response(MODULE, media_type="text/javascript")


async def events(request):
    async def body():
        yield b"id: 1\\\\nevent: token\\\\ndata: streamed\\\\n\\\\n".replace(b"\\\\n", b"\\n")
    return StreamingResponse(body(), media_type="text/event-stream")


app = st.App(
    Path(__file__).with_name("page.py"),
    routes=[Route("/api/assets/live.js", module), Route("/api/stream", events)],
    middleware=[Middleware(SecurityMiddleware)],
)
"""

PAGE = '''
import altair as alt
import pandas as pd
import streamlit as st

OUT = st.query_params.get("out", "")
st.title("policy page")
st.line_chart(pd.DataFrame({"a": [1, 3, 2]}))
bars = alt.Chart(pd.DataFrame({"x": [1, 2], "y": [3, 4]})).mark_bar().encode(x="x:O", y="y")
st.altair_chart(bars.transform_calculate(z="datum.x * 2"))
st.dataframe(pd.DataFrame({"a": [1, 2]}))
st.markdown("**bold** `code` $x^2$")
st.code("print(1)", language="python")
st.markdown(f"![remote]({OUT}/remote.png)")
st.markdown(f"<img src='{OUT}/raw.png'><iframe src='{OUT}/frame'></iframe>", unsafe_allow_html=True)
st.download_button("Get", b"data", "file.txt")

STUB = """
export default function (component) {
  const src = new URL("/api/assets/live.js", window.location.origin).href;
  import(src).then((m) => m.default(component));
  const source = new EventSource("/api/stream");
  source.addEventListener("token", (e) => { source.close();
    component.parentElement.querySelector("#events").textContent = e.data; });
}
"""
live = st.components.v2.component("live", html="<div id='live'></div><div id='events'></div>", js=STUB)
live(key="live")
'''


def test_the_only_inline_script_of_streamlits_page_is_the_one_we_allow() -> None:
    page = (Path(streamlit.__file__).parent / "static" / "index.html").read_text("utf-8")
    scripts = re.findall(r"<script(?![^>]*\bsrc=)[^>]*>(.*?)</script>", page, re.DOTALL)
    hashes = ["sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    assert hashes == [INDEX_SCRIPT_HASH]


class Outside:
    """Another site: notes every request that reaches it."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        outside = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outside.paths.append(self.path)
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"<p>outside</p>")

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture(scope="module")
def outside() -> Iterator[Outside]:
    site = Outside()
    yield site
    site.server.shutdown()
    site.server.server_close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("policy")
    (folder / "app.py").write_text(APP)
    (folder / "page.py").write_text(PAGE)
    (folder / ".streamlit").mkdir()
    (folder / ".streamlit" / "config.toml").write_text("[browser]\ngatherUsageStats = false\n")
    log = folder / "log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "app:app", "--port", "0", "--host", "127.0.0.1"],
            cwd=folder,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
    try:
        yield _address_from(log, process)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def _address_from(log: Path, process: "subprocess.Popen[bytes]") -> str:
    waiting = threading.Event()
    for _ in range(600):
        match = re.search(r"running on (http://\S+)", log.read_text())
        if match:
            return match[1]
        assert process.poll() is None, log.read_text()
        waiting.wait(0.1)
    raise AssertionError(f"the app did not start: {log.read_text()}")


@pytest.fixture(scope="module")
def page(address: str, outside: Outside) -> Iterator[tuple[Page, list[str], list[str]]]:
    console: list[str] = []
    errors: list[str] = []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page()
        tab.on("console", lambda message: console.append(message.text) if message.type == "error" else None)
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.goto(f"{address}/?out={outside.url}")
        expect(tab.get_by_role("button", name="Get")).to_be_visible(timeout=60_000)
        yield tab, console, errors
        browser.close()


def test_the_page_its_charts_tables_and_components_work(page: tuple[Page, list[str], list[str]]) -> None:
    tab, _, errors = page
    expect(tab.locator("#live")).to_have_text("imported module", timeout=20_000)
    expect(tab.locator("#events")).to_have_text("streamed", timeout=20_000)
    charts = tab.locator("[data-testid=stVegaLiteChart] canvas, [data-testid=stVegaLiteChart] svg")
    expect(charts).to_have_count(2, timeout=20_000)
    expect(tab.locator("[data-testid=stDataFrame] canvas").first).to_be_visible(timeout=20_000)
    expect(tab.locator(".katex").first).to_be_visible()
    assert errors == []


def test_our_own_parts_break_no_rule_of_the_policy(page: tuple[Page, list[str], list[str]], outside: Outside) -> None:
    _, console, _ = page
    violations = [line for line in console if "Content Security Policy" in line and outside.url not in line]
    assert violations == []


def test_foreign_text_reaches_no_other_site(page: tuple[Page, list[str], list[str]], outside: Outside) -> None:
    tab, console, _ = page
    assert any("remote.png" in line for line in console)
    leaks = [
        "new Image().src = '%s/img'",
        "fetch('%s/fetch').catch(() => 0)",
        "new EventSource('%s/events')",
        "navigator.sendBeacon('%s/beacon')",
        "const s = document.createElement('script'); s.src = '%s/script.js'; document.head.append(s)",
        "const l = document.createElement('link'); l.rel = 'stylesheet'; l.href = '%s/s.css'; document.head.append(l)",
        "document.body.append(Object.assign(document.createElement('iframe'), {src: '%s/inner'}))",
    ]
    for leak in leaks:
        tab.evaluate(leak % outside.url)
    tab.evaluate(f"""
        const form = document.createElement('form');
        form.action = '{outside.url}/form'; document.body.append(form);
    """)
    inline = tab.evaluate("""() => {
        document.body.insertAdjacentHTML('beforeend', '<img src=x onerror="window.canary = 1">');
        const script = document.createElement('script'); script.textContent = 'window.canary = 2';
        document.body.append(script);
        const frame = () => new Promise(requestAnimationFrame);
        return frame().then(frame).then(() => window.canary ?? 0);
    }""")
    assert inline == 0
    tab.wait_for_load_state("networkidle")
    assert outside.paths == []


def test_another_site_can_neither_frame_read_nor_call_us(
    page: tuple[Page, list[str], list[str]], address: str, outside: Outside
) -> None:
    tab = page[0].context.browser.new_page()  # type: ignore[union-attr]
    tab.goto(f"{outside.url}/visit")
    for mode in ("cors", "no-cors"):
        for method in ("GET", "POST"):
            outcome = tab.evaluate(
                "([url, mode, method]) => fetch(url, {mode, method}).then((r) => r.type + r.status, () => 'refused')",
                [f"{address}/api/assets/live.js", mode, method],
            )
            assert outcome in {"refused", "opaque0"}
    socket = tab.evaluate(
        """(url) => new Promise((done) => { const s = new WebSocket(url);
            s.onopen = () => done('open'); s.onerror = () => done('refused'); })""",
        f"{address.replace('http', 'ws')}/_stcore/stream",
    )
    assert socket == "refused"
    tab.evaluate(
        """(url) => new Promise((done) => { const frame = document.createElement('iframe');
            frame.src = url; frame.onload = done; document.body.append(frame); })""",
        address,
    )
    assert [frame.url for frame in tab.frames[1:]] == ["chrome-error://chromewebdata/"]
    tab.close()


def test_the_middleware_is_pure_asgi() -> None:
    assert not any(base.__name__ == "BaseHTTPMiddleware" for base in SecurityMiddleware.__mro__)
