"""The real agent in a warm session: from the model's first chunk to the first answer text at the API.

The model is a server of ours whose chunks carry their own time; everything between it and the API is the real thing.
"""

import json
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from tests.support.parley_program import ParleyProgram

RUNS = 20
CHUNKS = 20
CHUNK_SECONDS = 0.02


class TimedModel(BaseHTTPRequestHandler):
    """An OpenAI-compatible model whose answer is `<milliseconds since the epoch> ` again and again."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Stay quiet."""

    def do_GET(self) -> None:
        self._send(b'{"object":"list","data":[{"id":"timed","object":"model","context_length":128000}]}')

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not body.get("stream"):
            message = {"role": "assistant", "content": "ok"}
            self._send(json.dumps({"id": "c", "choices": [{"message": message, "finish_reason": "stop"}]}).encode())
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for data in _answer():
            self._chunk(f"data: {data}\n\n".encode())
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _send(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _answer() -> Iterator[str]:
    for number in range(CHUNKS):
        if number:
            time.sleep(CHUNK_SECONDS)
        yield _completion({"role": "assistant", "content": f"{time.time() * 1000:.1f} "}, None)
    yield _completion({}, "stop")


def _completion(delta: dict[str, str], finish_reason: str | None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return json.dumps({"id": "c", "object": "chat.completion.chunk", "model": "timed", "choices": [choice]})


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), TimedModel)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    row = {
        "id": "timed",
        "label": "Timed",
        "base_url": f"http://127.0.0.1:{server.server_address[1]}/v1",
        "model": "timed",
        "api_key": "x",
        "context_window": 128_000,
    }
    with tempfile.TemporaryDirectory(prefix="parley-bench-") as name:
        program = ParleyProgram(Path(name) / "data", models=[row])
        try:
            program.start()
            print(json.dumps(measure(program.url)))
        finally:
            program.close()
    server.shutdown()


def measure(url: str) -> dict[str, object]:
    first, all_chunks = [], []
    with httpx.Client(base_url=f"{url}/api/chat", timeout=60) as api:
        session = api.post("/sessions", json={"model_id": "timed"}).raise_for_status().json()["session_id"]
        for number in range(RUNS + 1):
            delays = _delays_of_a_run(api, session)
            if number:  # the first one builds the agent
                first.append(delays[0])
                all_chunks += delays
    return {
        "bench": "first_text",
        "runs": RUNS,
        "first_text_p50_ms": round(statistics.median(first), 1),
        "first_text_max_ms": round(max(first), 1),
        "target_first_text_ms": 100,
        "all_text_p95_ms": round(sorted(all_chunks)[int(len(all_chunks) * 0.95)], 1),
    }


def _delays_of_a_run(api: httpx.Client, session: str) -> list[float]:
    """Return for each chunk how many milliseconds after the model sent it the API told it."""
    run = api.post(f"/sessions/{session}/runs", json={"message": "What time is it?"}).raise_for_status().json()
    delays: list[float] = []
    with api.stream("GET", f"/runs/{run['run_id']}/stream") as stream:
        for line in stream.iter_lines():
            now = time.time() * 1000
            if line.startswith("data:"):
                event = json.loads(line[5:])
                if event["kind"] == "answer":
                    delays += [now - float(word) for word in event["text"].split()]
                elif event["kind"] in {"run_failed", "run_interrupted"}:
                    raise RuntimeError(f"the run did not succeed: {event}")
    return delays


if __name__ == "__main__":
    main()
