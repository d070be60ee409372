"""The local model as a process: `python -m chat_core.bridge.model_servers.local_model_process`.

The first line of its standard input is JSON: `{model_file, api_key, port}`. It answers with one line
`{"port": N}` once it is ready. Its standard input stays open for as long as its parent lives; when that ends (also by
kill -9 of the parent) or when the parent is another one, it ends itself. (Linux's "signal me when my parent dies" is no
help here: it fires when the *thread* that started the process ends.)

What it serves is OpenAI's chat protocol, with llama.cpp (xllamacpp) underneath and `local_prompt` in between, so that
stop texts, temperature 0 and the length of an answer hold for every caller. Tools in a request are ignored.
"""

import contextlib
import hmac
import json
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import xllamacpp

from chat_core.bridge.model_servers.local_prompt import (
    MESSAGE_BYTES,
    STOPS,
    MessageTooLongError,
    Prompts,
    prompts_for,
    warm_up_prompts,
)

MODEL_NAME = "gemma-3-270m"
CLAIMED_CONTEXT = 64_000
"""hermes refuses models below this. Older turns are left out of the prompt long before, so it is never reached."""
SLOT_TOKENS = 5_376
"""Room for the older turns, the message and the answer, each token counted as one byte."""
PARALLEL = 2
MAX_ANSWER_TOKENS = 256
MAX_BODY_BYTES = 20_000_000
NO_ANSWER = "I have no answer to that. I am a very small model: please try a short question."

# Temperature 0 for the same answer every time. DRY ends loops ("1000000..."), which greedy base models fall into;
# six tokens may repeat, so that an answer may take up the words of the question.
_SAMPLING = {
    "temperature": 0,
    "dry_multiplier": 1.0,
    "dry_base": 1.75,
    "dry_allowed_length": 6,
    "dry_penalty_last_n": 128,
    "stop": list(STOPS),
    "cache_prompt": True,
}


class Engine:
    """llama.cpp with the model loaded. Two answers may be written at the same time, others wait."""

    def __init__(self, model_file: str) -> None:
        params = xllamacpp.CommonParams()
        params.model.path = model_file
        params.n_ctx = SLOT_TOKENS * PARALLEL
        params.n_parallel = PARALLEL
        threads = max(1, min(4, os.cpu_count() or 1))
        params.cpuparams.n_threads = threads
        params.cpuparams_batch.n_threads = threads
        # Without it the model's sliding window makes most reuse of a cached beginning impossible (2 s instead of 0.1).
        params.swa_full = True
        params.cache_ram_mib = 64
        # Its own HTTP server cannot be switched off, so it gets a key that nobody knows.
        params.hostnames = ["127.0.0.1"]
        params.port = 0
        params.api_keys = [uuid.uuid4().hex]
        params.verbosity = 0
        self._server = xllamacpp.Server(params)

    def complete(self, prompt: str, max_tokens: int, on_text: Callable[[str], bool]) -> dict[str, Any]:
        """Write on after `prompt`; `on_text` gets each piece and returns False to stop. Returns what is known of it:
        `finish_reason` and `usage`. Raises RuntimeError when llama.cpp reports an error."""
        known: dict[str, Any] = {"finish_reason": "stop", "usage": {}}

        def receive(chunk: dict[str, Any]) -> bool:
            if "error" in chunk or "choices" not in chunk:
                known["error"] = chunk.get("error", chunk)
                return True
            known["usage"] = chunk.get("usage") or known["usage"]
            for choice in chunk["choices"]:
                known["finish_reason"] = choice.get("finish_reason") or known["finish_reason"]
                if choice.get("text") and not on_text(choice["text"]):
                    return True
            return False

        request = {"prompt": prompt, "n_predict": max_tokens, "stream": True, **_SAMPLING}
        request["stream_options"] = {"include_usage": True}
        self._server.handle_completions(request, receive)
        if "error" in known:
            raise RuntimeError(str(known["error"]))
        return known


class _Writer:
    """Cleans the text on its way out: no space before it, none after it."""

    def __init__(self, send: Callable[[str], bool]) -> None:
        self._send = send
        self._held = ""
        self.is_empty = True

    def push(self, piece: str) -> bool:
        text = self._held + piece
        if self.is_empty:
            text = text.lstrip()
        body = text.rstrip()
        self._held = text[len(body) :]
        if not body:
            return True
        self.is_empty = False
        return self._send(body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 32
    engine: Engine
    api_key: str

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader who left is no error; anything else is one line in the log."""
        error = sys.exception() if sys.version_info >= (3, 12) else sys.exc_info()[1]
        if not isinstance(error, ConnectionError):
            print(f"request failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged: what people ask is theirs."""

    def do_GET(self) -> None:
        if not self._is_allowed():
            return
        if self.path.rstrip("/") != "/v1/models":
            self._send_error(404, "not found", "not_found")
            return
        card = {"id": MODEL_NAME, "object": "model", "owned_by": "local", "context_length": CLAIMED_CONTEXT}
        self._send_json(200, {"object": "list", "data": [card]})

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BODY_BYTES:
            self.close_connection = True
            self._send_error(413, "the request is too large", "too_large")
            return
        raw = self.rfile.read(length)
        if not self._is_allowed():
            return
        if self.path.rstrip("/") != "/v1/chat/completions":
            self._send_error(404, "not found", "not_found")
            return
        try:
            body = json.loads(raw)
            prompts = prompts_for(body.get("messages") or [])
        except MessageTooLongError:
            # Worded like OpenAI's, so that agents know what it means.
            message = (
                f"This model's maximum context length is exceeded: the local model reads messages of up to "
                f"{MESSAGE_BYTES} bytes. Please reduce the length of the messages."
            )
            self._send_error(400, message, "context_length_exceeded")
            return
        except (ValueError, AttributeError, TypeError) as error:
            self._send_error(400, f"the request is not valid: {error}", "invalid_request_error")
            return
        _Answer(self, body).give(prompts)

    def _is_allowed(self) -> bool:
        shown = self.headers.get("Authorization", "")
        if hmac.compare_digest(shown.encode(), f"Bearer {self.server.api_key}".encode()):
            return True
        self._send_error(401, "Incorrect API key provided", "invalid_api_key")
        return False

    def _send_error(self, status: int, message: str, code: str) -> None:
        self._send_json(status, {"error": {"message": message, "type": "invalid_request_error", "code": code}})

    def _send_json(self, status: int, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class _Answer:
    """One chat completion, streamed or whole."""

    def __init__(self, handler: _Handler, body: dict[str, Any]) -> None:
        self._handler = handler
        self._is_streamed = bool(body.get("stream"))
        asked = body.get("max_completion_tokens") or body.get("max_tokens") or MAX_ANSWER_TOKENS
        self._max_tokens = max(1, min(int(asked), MAX_ANSWER_TOKENS))
        self._id = f"chatcmpl-{uuid.uuid4().hex[:16]}"
        self._created = int(time.time())
        self._text = ""

    def give(self, prompts: Prompts) -> None:
        if self._is_streamed:
            self._start()
        try:
            finish_reason, usage = self._write(prompts)
        except ConnectionError:
            self._handler.close_connection = True
            return
        except RuntimeError as error:
            self._fail(str(error))
            return
        if self._is_streamed:
            self._send_chunk({"choices": [{"index": 0, "delta": {}, "finish_reason": finish_reason}]})
            self._send_chunk({"choices": [], "usage": usage})
            self._send_raw(b"data: [DONE]\n\n")
            self._handler.wfile.write(b"0\r\n\r\n")
            return
        message = {"role": "assistant", "content": self._text}
        choice = {"index": 0, "message": message, "finish_reason": finish_reason}
        self._handler._send_json(200, {**self._head("chat.completion"), "choices": [choice], "usage": usage})

    def _write(self, prompts: Prompts) -> tuple[str, dict[str, Any]]:
        writer = _Writer(self._deliver)
        engine = self._handler.server.engine
        known = engine.complete(prompts.first, self._max_tokens, writer.push)
        if writer.is_empty and prompts.otherwise != prompts.first:
            known = engine.complete(prompts.otherwise, self._max_tokens, writer.push)
        if writer.is_empty:
            self._deliver(NO_ANSWER)
        # An answer that was long enough is finished for us; "length" would make agents ask for more of it.
        return "stop", known["usage"]

    def _deliver(self, text: str) -> bool:
        self._text += text
        if not self._is_streamed:
            return True
        try:
            self._send_chunk({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})
        except ConnectionError:
            self._handler.close_connection = True
            return False
        return True

    def _start(self) -> None:
        self._handler.send_response(200)
        self._handler.send_header("Content-Type", "text/event-stream")
        self._handler.send_header("Transfer-Encoding", "chunked")
        self._handler.end_headers()
        self._send_chunk({"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}]})

    def _fail(self, reason: str) -> None:
        print(f"llama.cpp failed: {reason}", file=sys.stderr, flush=True)
        self._handler.close_connection = True
        if not self._is_streamed:
            self._handler._send_error(500, "the local model failed", "server_error")

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": MODEL_NAME}

    def _send_chunk(self, body: dict[str, Any]) -> None:
        text = json.dumps({**self._head("chat.completion.chunk"), **body})
        self._send_raw(f"data: {text}\n\n".encode())

    def _send_raw(self, data: bytes) -> None:
        self._handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def _listen(port: int) -> _Server:
    """Listen at `port` if it is free, else at any: after a crash the address should stay the same."""
    if port:
        with contextlib.suppress(OSError):
            return _Server(("127.0.0.1", port), _Handler)
    return _Server(("127.0.0.1", 0), _Handler)


def _end_with_parent(parent: int) -> None:
    def watch_input() -> None:
        with contextlib.suppress(OSError, ValueError):
            while os.read(0, 4096):
                pass
        os._exit(0)

    def watch_parent() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(0)

    threading.Thread(target=watch_input, daemon=True).start()
    threading.Thread(target=watch_parent, daemon=True).start()


def _first_line() -> bytes:
    """Read one line without reading ahead: the rest of the input belongs to the watcher."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            raise SystemExit("the standard input ended before the settings came")
        line += byte
    return line


def _warm_up(engine: Engine) -> None:
    """Read what most first questions begin with; the cache keeps it."""
    for prompt in warm_up_prompts():
        engine.complete(prompt, 1, lambda _: True)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the parent, which then ends us
    parent = os.getppid()
    settings = json.loads(_first_line())
    _end_with_parent(parent)
    engine = Engine(settings["model_file"])
    server = _listen(int(settings.get("port") or 0))
    server.engine = engine
    server.api_key = settings["api_key"]
    print(json.dumps({"port": server.server_address[1]}), flush=True)
    threading.Thread(target=_warm_up, args=(engine,), daemon=True).start()
    server.serve_forever()


if __name__ == "__main__":
    main()
