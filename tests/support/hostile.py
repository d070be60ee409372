"""Text that tries to leave its place: markup, scripts, remote addresses, control characters, sizes.

Everything that could call out calls a canary: a server of the test that notes who came.
"""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from chat_core.bridge.protocol import ModelChoice, RunControl, RunRequest, SkillChoice
from tests.support.served_bridge import FewChoices

MARK = "HOSTILE"


class Canary:
    """Counts requests; nobody may make any."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        paths = self.paths

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                paths.append(self.path)
                self.send_response(204)
                self.end_headers()

            do_POST = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True, name="canary").start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def markup(url: str, place: str) -> str:
    """Every way of markup to run or fetch something that we know of, for one place of the page."""
    here = f"{url}/{place}"
    return "\n".join(
        [
            f"{MARK} {place}",
            f"<script>fetch('{here}/script'); window.hostile = 1</script>",
            f"<img src='{here}/img' onerror=\"fetch('{here}/onerror'); window.hostile = 1\">",
            f"![remote]({here}/markdown-image) ![ref][r]",
            f"[r]: {here}/reference-image",
            "[click](javascript:window.hostile=1) [data](data:text/html,<script>window.hostile=1</script>)",
            f"<iframe src='{here}/iframe'></iframe><svg onload='window.hostile=1'></svg>",
            f"<style>@import '{here}/style'; * {{ background: url({here}/css) }}</style>",
            f"<link rel=stylesheet href='{here}/link'><base href='{here}/base/'>",
            "</div></details></section></textarea></template>",
            "\u202eevitsoh\u202c \x1b[31mred\x1b[0m \x00 \ud800 \x07",
            ":red[red] :material/home: $x$ :smile:",
            "````\n```js\nwindow.hostile=1\n```\n````",
        ]
    )


class HostileChoices(FewChoices):
    """Models and skills with hostile names."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def models(self) -> list[ModelChoice]:
        return [ModelChoice(id="m", label=markup(self._url, "model"), is_default=True)]

    def skills(self) -> list[SkillChoice]:
        text = markup(self._url, "skill")
        return [SkillChoice(folder="f", name=text, description=text)]


class HostileRuntime:
    """Answers "small" with markup in every field, "huge" with results of every bad size, "ask" with a question."""

    name = "hermes"

    def __init__(self, url: str) -> None:
        self._url = url

    def run(self, request: RunRequest, control: RunControl) -> None:
        if "huge" in request.message:
            self._huge(control)
        else:
            self._small(control)
        if "ask" in request.message:
            text = markup(self._url, "question")
            control.ask("clarify", text, [text, "fine"])
        answer = markup(self._url, "answer")
        for start in range(0, len(answer), 7):
            control.emit("answer", text=answer[start : start + 7])
        control.emit("final", text=answer, interrupted=False, context={"base": False, "messages": []}, model="m")

    def forget(self, agent_session: str) -> None:
        pass

    def _small(self, control: RunControl) -> None:
        def text(place: str) -> str:
            return markup(self._url, place)

        control.emit("thinking", text=text("thinking"))
        control.emit("answer", text=text("remark"))
        control.emit("answer_break")
        control.emit("status", text=text("status"), level="warning")
        control.emit("tool_call", call_id=text("call"), name=text("tool"), args={text("key"): text("argument")})
        control.emit(
            "tool_result", call_id=text("call"), name=text("tool"), result=text("result"), duration_ms=1, is_error=True
        )
        todo = {"id": text("todo-id"), "content": text("todo"), "status": "in_progress"}
        control.emit("todo_update", todos=[todo])
        control.emit("context_compacted", summary=text("summary"), condensed=3)

    def _huge(self, control: RunControl) -> None:
        results = {
            "one_line": "x" * 5_000_000,
            "many_lines": "line\n" * 200_000,
            "base64": "QUJD" * 250_000,
            "deep_json": "[" * 50_000 + "]" * 50_000,
            "ansi": "\x1b[31mred\x1b[0m" * 20_000,
            "progress": "".join(f"\r{number} %" for number in range(100_000)),
        }
        for number, (name, result) in enumerate(results.items()):
            control.emit("tool_call", call_id=f"c{number}", name=name, args={"n": number})
            control.emit("tool_result", call_id=f"c{number}", name=name, result=result, duration_ms=5, is_error=False)
        for number in range(300):
            control.emit("tool_call", call_id=f"m{number}", name="many", args={"text": "y" * 2_000})
            control.emit(
                "tool_result", call_id=f"m{number}", name="many", result="z" * 4_000, duration_ms=5, is_error=False
            )
