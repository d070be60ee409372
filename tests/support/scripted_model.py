"""A scripted OpenAI-compatible model server for tests, trials and benchmarks; needs only the standard library.

    with ScriptedModel() as model:
        gate = model.gate()
        model.script(
            Reply(think("Let me plan."), say("First a list."), call("todo", {"todos": [...]})),
            Reply(say("Part one. "), hold(gate), say("Part two.")),
        )
        ...  # point an agent at model.base_url
        gate.wait_until_reached()
        gate.open()
    assert model.requests[1].tool_results("todo")

As a process: `python -m tests.support.scripted_model --port 0 --chunks 2000 --rate 200`.
"""

import argparse
import contextlib
import itertools
import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self

DEFAULT_MODEL = "scripted"
DEFAULT_CONTEXT_LENGTH = 128_000
WAIT_SECONDS = 15.0
"""Bound of every wait of a test."""
HELD_SECONDS = 120.0
"""A held or hanging reply gives up after this, so that a failed test leaves no thread behind."""
_SECRET_HEADERS = frozenset({"authorization", "cookie", "x-api-key", "api-key"})


class Gate:
    """A place in a reply where the server waits until the test opens it."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._opened = threading.Event()

    def wait_until_reached(self, timeout: float = WAIT_SECONDS) -> None:
        """Return once a reply waits here. Raises AssertionError when none came in time."""
        assert self._reached.wait(timeout), "no reply of the scripted model reached the gate"

    def open(self) -> None:
        """Let every reply pass, now and later."""
        self._opened.set()

    @property
    def is_reached(self) -> bool:
        return self._reached.is_set()

    def pass_through(self, gone: Callable[[], bool]) -> None:
        """Wait until opened, or until `gone` says that nobody listens any more."""
        self._reached.set()
        deadline = time.monotonic() + HELD_SECONDS
        while not self._opened.wait(0.02) and time.monotonic() < deadline:
            if gone():
                raise ClientGoneError


@dataclass(frozen=True)
class Part:
    """One thing a reply does; made by the functions below."""

    kind: str
    text: str = ""
    name: str = ""
    arguments: str = ""
    call_id: str = ""
    chunk: int = 0
    seconds: float = 0.0
    gate: Gate | None = None


def say(text: str, chunk: int = 12, pace_seconds: float = 0.0) -> Part:
    """Answer text, sent in pieces of `chunk` characters with `pace_seconds` between them."""
    return Part("content", text=text, chunk=chunk, seconds=pace_seconds)


def think(text: str, chunk: int = 12, pace_seconds: float = 0.0) -> Part:
    """Reasoning text (`reasoning_content`)."""
    return Part("reasoning", text=text, chunk=chunk, seconds=pace_seconds)


def call(name: str, arguments: Mapping[str, Any] | str, call_id: str = "") -> Part:
    """A tool call. Its id is unique for the whole server unless given; arguments as text may be broken JSON."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return Part("tool", name=name, arguments=text, call_id=call_id, chunk=16)


def hold(gate: Gate) -> Part:
    """Stop here until the test opens `gate`. As the first part it stops before the headers are sent."""
    return Part("hold", gate=gate)


def pause(seconds: float) -> Part:
    """Let time pass; as the first part before the headers."""
    return Part("pause", seconds=seconds)


def hang() -> Part:
    """Accept and stay silent; as the first part before the headers. Ends when the client leaves."""
    return Part("hang")


def send_headers() -> Part:
    """Send the response headers now: put it before `hang`, `hold` or `pause` to be silent after them."""
    return Part("headers")


def cut() -> Part:
    """Drop the connection here, without an end of the stream; as the first part before the headers."""
    return Part("cut")


def call_cut_inside(name: str, arguments: Mapping[str, Any]) -> Part:
    """A tool call whose arguments break off in the middle, then the connection drops."""
    return Part("tool_cut", name=name, arguments=json.dumps(arguments), chunk=16)


@dataclass(frozen=True)
class Usage:
    input_tokens: int = 100
    output_tokens: int = 20
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    def as_openai(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.input_tokens,
            "completion_tokens": self.output_tokens,
            "total_tokens": self.input_tokens + self.output_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": self.reasoning_tokens},
        }


class Reply:
    """What the model does for one request: parts in order, then the end of the stream.

    `finish_reason` is worked out from the parts unless given (`length`, `content_filter`). No parts: an empty answer.
    """

    def __init__(self, *parts: Part, finish_reason: str = "", usage: Usage | None = None) -> None:
        self.parts = parts
        self.finish_reason = finish_reason
        self.usage = usage or Usage()


@dataclass(frozen=True)
class Refusal:
    """An HTTP error instead of an answer."""

    status: int
    message: str
    code: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


def wrong_key() -> Refusal:
    return Refusal(401, "Incorrect API key provided", "invalid_api_key")


def no_such_model(model: str = DEFAULT_MODEL) -> Refusal:
    return Refusal(404, f"The model `{model}` does not exist", "model_not_found")


def rate_limited(retry_after_seconds: int | None = None) -> Refusal:
    headers = {} if retry_after_seconds is None else {"Retry-After": str(retry_after_seconds)}
    return Refusal(429, "Rate limit reached for requests", "rate_limit_exceeded", headers)


def server_error(status: int = 500) -> Refusal:
    return Refusal(status, "The server had an error while processing your request", "server_error")


def context_too_long(limit: int = DEFAULT_CONTEXT_LENGTH) -> Refusal:
    message = (
        f"This model's maximum context length is {limit} tokens. However, your messages resulted in "
        f"{limit + 1000} tokens. Please reduce the length of the messages."
    )
    return Refusal(400, message, "context_length_exceeded")


Answer = Reply | Refusal


@dataclass(frozen=True)
class ModelRequest:
    """One chat completion request as it arrived. Secrets are not kept."""

    number: int
    body: dict[str, Any]
    headers: dict[str, str]
    key_is_right: bool
    at: float
    client_left: threading.Event = field(default_factory=threading.Event, compare=False)
    """Set when the client closed the connection before the reply had ended."""

    @property
    def model(self) -> str:
        return str(self.body.get("model", ""))

    @property
    def is_streamed(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def messages(self) -> list[dict[str, Any]]:
        return list(self.body.get("messages") or [])

    @property
    def system_text(self) -> str:
        return "\n".join(text_of(message) for message in self.messages if message.get("role") == "system")

    @property
    def tool_names(self) -> list[str]:
        return [tool["function"]["name"] for tool in self.body.get("tools") or []]

    @property
    def last_user_text(self) -> str:
        return next((text_of(message) for message in reversed(self.messages) if message.get("role") == "user"), "")

    @property
    def replies_since_user(self) -> int:
        """How many replies of the model follow the last user message: the step of this turn, from 0."""
        roles = [message.get("role") for message in self.messages]
        return list(itertools.takewhile(lambda role: role != "user", reversed(roles))).count("assistant")

    def tool_results(self, name: str = "") -> list[str]:
        """Return the texts of the tool results in the request, oldest first."""
        names = {
            tool_call["id"]: tool_call["function"]["name"]
            for message in self.messages
            for tool_call in message.get("tool_calls") or []
        }
        return [
            text_of(message)
            for message in self.messages
            if message.get("role") == "tool" and (not name or names.get(message.get("tool_call_id", "")) == name)
        ]


def text_of(message: Mapping[str, Any]) -> str:
    """Return the text of a chat message, whether its content is text or a list of parts."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))


Chooser = Callable[[ModelRequest], Answer]


def for_questions(answers: Mapping[str, Sequence[Answer]]) -> Chooser:
    """Choose by the last user message: the first key found in it names the replies of that turn, in order.

    Depends on the request alone, so any number of sessions may run at the same time. The key "" fits everything.
    """

    def choose(request: ModelRequest) -> Answer:
        for key, replies in answers.items():
            if key in request.last_user_text and request.replies_since_user < len(replies):
                return replies[request.replies_since_user]
        return Refusal(400, f"the script has no reply for {request.last_user_text[:80]!r}", "script_exhausted")

    return choose


class ClientGoneError(Exception):
    """The client closed the connection."""


class ConnectionCutError(Exception):
    """The script says to drop the connection."""


class ScriptedModel:
    """An OpenAI-compatible server on a free loopback port, in threads of its own, doing what a script says.

    `script(...)` sets replies consumed one by one (or a function of the request). Requests that do not stream are an
    agent's side jobs, such as condensing a context; with `side_jobs` given they get that reply and consume nothing.
    A request for which the script has nothing gets HTTP 400 and is listed in `unexpected`.
    """

    def __init__(
        self,
        *answers: Answer,
        choose: Chooser | None = None,
        side_jobs: Answer | None = None,
        api_key: str = "",
        model_names: Sequence[str] = (DEFAULT_MODEL,),
        context_length: int = DEFAULT_CONTEXT_LENGTH,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.api_key = api_key
        self.model_names = list(model_names)
        self.context_length = context_length
        self.requests: list[ModelRequest] = []
        self.unexpected: list[ModelRequest] = []
        self.probes: list[str] = []
        """Every other request (`GET /v1/models` ...), as method and path."""
        self._answers = list(answers)
        self._choose = choose
        self._side_jobs = side_jobs
        self._call_ids = itertools.count(1)
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._host, self._port = host, port
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    # the life of the server

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def start(self) -> None:
        """Listen; again after `refuse_connections` on the same port."""
        if self._server is not None:
            return
        self._closing.clear()
        self._server = _Server((self._host, self._port), _Handler)
        self._server.model = self
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening, release every held reply and drop its connection."""
        if self._server is None:
            return
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        if self._thread is not None:
            self._thread.join(WAIT_SECONDS)
        self._server = None

    def refuse_connections(self) -> None:
        """Refuse connections until `start` is called; the address stays."""
        self.close()

    @property
    def port(self) -> int:
        return self._port

    @property
    def base_url(self) -> str:
        return f"http://{self._host}:{self._port}/v1"

    # the script

    def script(self, *answers: Answer, choose: Chooser | None = None) -> None:
        """Replace what is left of the script."""
        with self._changed:
            self._answers = list(answers)
            self._choose = choose

    def add(self, *answers: Answer) -> None:
        with self._changed:
            self._answers.extend(answers)

    def gate(self) -> Gate:
        """Return a new gate; closing the server releases whoever waits at it."""
        return Gate()

    @property
    def replies_left(self) -> int:
        return len(self._answers)

    # what arrived

    def wait_for_requests(self, count: int, timeout: float = WAIT_SECONDS) -> ModelRequest:
        """Return the `count`-th request (from 1) once it has arrived. Raises AssertionError when it does not."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: len(self.requests) >= count, timeout)
            assert arrived, f"the model got {len(self.requests)} requests, not {count}"
            return self.requests[count - 1]

    # called by the handler threads

    def record(self, body: dict[str, Any], headers: Mapping[str, str]) -> ModelRequest:
        lower = {name.lower(): value for name, value in headers.items()}
        kept = {name: value for name, value in lower.items() if name not in _SECRET_HEADERS}
        right = not self.api_key or lower.get("authorization") == f"Bearer {self.api_key}"
        with self._changed:
            request = ModelRequest(len(self.requests) + 1, body, kept, right, time.time())
            self.requests.append(request)
            self._changed.notify_all()
        return request

    def answer_for(self, request: ModelRequest) -> Answer:
        if not request.key_is_right:
            return wrong_key()
        if self._side_jobs is not None and not request.is_streamed:
            return self._side_jobs
        with self._changed:
            if self._choose is None and self._answers:
                return self._answers.pop(0)
        answer = self._choose(request) if self._choose else None
        if answer is None or (isinstance(answer, Refusal) and answer.code == "script_exhausted"):
            self.unexpected.append(request)
        return answer or Refusal(400, f"the script has no reply for request {request.number}", "script_exhausted")

    def new_call_id(self) -> str:
        return f"call_{self._port}_{next(self._call_ids)}"

    @property
    def is_closing(self) -> bool:
        return self._closing.is_set()

    def model_card(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "owned_by": "tests", "context_length": self.context_length}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    model: ScriptedModel

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay quiet: cut and left connections are what this server is for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm: ClassVar[bool] = True
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the test output clean."""

    def do_GET(self) -> None:
        path = self.path.split("?")[0].rstrip("/")
        model = self.server.model
        model.probes.append(f"GET {path}")
        if path == "/v1/models":
            self._send_json(200, {"object": "list", "data": [model.model_card(name) for name in model.model_names]})
        elif path.startswith("/v1/models/") and path.removeprefix("/v1/models/") in model.model_names:
            self._send_json(200, model.model_card(path.removeprefix("/v1/models/")))
        else:
            self._send_json(404, {"error": {"message": "not found", "code": "not_found"}})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        model = self.server.model
        if self.path.split("?")[0] != "/v1/chat/completions":
            model.probes.append(f"POST {self.path}")
            self._send_json(404, {"error": {"message": "not found", "code": "not_found"}})
            return
        request = model.record(json.loads(raw or b"{}"), dict(self.headers.items()))
        answer = model.answer_for(request)
        if isinstance(answer, Refusal):
            kind = "invalid_request_error" if answer.status < 500 else "server_error"
            error = {"message": answer.message, "type": kind, "code": answer.code or None}
            self._send_json(answer.status, {"error": error}, answer.headers)
            return
        try:
            _Delivery(self, model, request, answer).run()
        except (ClientGoneError, BrokenPipeError, ConnectionResetError):
            request.client_left.set()
            self.close_connection = True
        except ConnectionCutError:
            self._drop()

    def _send_json(self, status: int, value: Any, headers: Mapping[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def _drop(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def client_is_gone(self) -> bool:
        """Tell whether the client closed its end, or this server is closing."""
        if self.server.model.is_closing:
            return True
        readable, _, _ = select.select([self.connection], [], [], 0)
        try:
            return bool(readable) and self.connection.recv(1, socket.MSG_PEEK) == b""
        except OSError:
            return True


class _Delivery:
    """Sends one reply, streamed or in one piece."""

    def __init__(self, handler: _Handler, model: ScriptedModel, request: ModelRequest, reply: Reply) -> None:
        self._handler = handler
        self._model = model
        self._request = request
        self._reply = reply
        self._started = False
        self._tool_index = -1
        self._whole: dict[str, Any] = {"role": "assistant", "content": ""}

    def run(self) -> None:
        for part in self._reply.parts:
            self._do(part)
        if self._request.is_streamed:
            self._finish_stream()
        else:
            self._send_whole()

    def _do(self, part: Part) -> None:
        match part.kind:
            case "content":
                self._send_text("content", part)
            case "reasoning":
                self._send_text("reasoning_content", part)
            case "tool" | "tool_cut":
                self._send_call(part, is_cut=part.kind == "tool_cut")
            case "hold" if part.gate is not None:
                part.gate.pass_through(self._handler.client_is_gone)
            case "pause":
                self._wait(part.seconds)
            case "hang":
                self._wait(HELD_SECONDS)
                raise ConnectionCutError
            case "headers":
                self._start_stream()
            case "cut":
                raise ConnectionCutError
            case _:
                raise ValueError(f"unknown part {part.kind!r}")

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if self._handler.client_is_gone():
                raise ClientGoneError
            threading.Event().wait(min(left, 0.05))

    def _send_text(self, key: str, part: Part) -> None:
        due = time.monotonic()
        for piece in _pieces(part.text, part.chunk):
            self._send_delta({key: piece})
            if part.seconds:
                due += part.seconds
                self._wait(due - time.monotonic())

    def _send_call(self, part: Part, is_cut: bool) -> None:
        self._tool_index += 1
        call_id = part.call_id or self._model.new_call_id()
        head = {"id": call_id, "type": "function", "function": {"name": part.name, "arguments": ""}}
        self._send_delta({"tool_calls": [{"index": self._tool_index, **head}]})
        arguments = part.arguments[: len(part.arguments) // 2] if is_cut else part.arguments
        for piece in _pieces(arguments, part.chunk):
            self._send_delta({"tool_calls": [{"index": self._tool_index, "function": {"arguments": piece}}]})
        if is_cut:
            raise ConnectionCutError

    def _send_delta(self, delta: dict[str, Any]) -> None:
        if self._request.is_streamed:
            self._start_stream()
            self._send_chunk({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        else:
            self._gather(delta)

    def _gather(self, delta: dict[str, Any]) -> None:
        for key in ("content", "reasoning_content"):
            if key in delta:
                self._whole[key] = self._whole.get(key, "") + delta[key]
        for piece in delta.get("tool_calls", []):
            calls = self._whole.setdefault("tool_calls", [])
            if "id" in piece:
                calls.append({name: piece[name] for name in ("id", "type", "function")})
            else:
                calls[-1]["function"]["arguments"] += piece["function"]["arguments"]

    def _start_stream(self) -> None:
        if self._started or not self._request.is_streamed:
            return
        self._started = True
        self._handler.send_response(200)
        self._handler.send_header("Content-Type", "text/event-stream")
        self._handler.send_header("Transfer-Encoding", "chunked")
        self._handler.end_headers()
        self._send_chunk({"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}]})

    def _finish_stream(self) -> None:
        self._start_stream()
        self._send_chunk({"choices": [{"index": 0, "delta": {}, "finish_reason": self._finish_reason}]})
        self._send_chunk({"choices": [], "usage": self._reply.usage.as_openai()})
        self._write_chunk(b"data: [DONE]\n\n")
        self._handler.wfile.write(b"0\r\n\r\n")

    def _send_whole(self) -> None:
        choice = {"index": 0, "message": self._whole, "finish_reason": self._finish_reason}
        body = {**self._frame("chat.completion"), "choices": [choice], "usage": self._reply.usage.as_openai()}
        self._handler._send_json(200, body)

    @property
    def _finish_reason(self) -> str:
        return self._reply.finish_reason or ("tool_calls" if self._tool_index >= 0 else "stop")

    def _frame(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self._request.number}",
            "object": kind,
            "created": int(self._request.at),
            "model": self._request.model,
        }

    def _send_chunk(self, body: dict[str, Any]) -> None:
        text = json.dumps({**self._frame("chat.completion.chunk"), **body})
        self._write_chunk(f"data: {text}\n\n".encode())

    def _write_chunk(self, data: bytes) -> None:
        if self._model.is_closing:
            raise ClientGoneError
        self._handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def _pieces(text: str, size: int) -> Iterator[str]:
    step = size if size > 0 else max(len(text), 1)
    for start in range(0, len(text), step):
        yield text[start : start + step]


def unused_address() -> str:
    """Return a base URL on this machine where nothing listens: connections are refused."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"


def steady_stream(chunks: int, rate: float, stamped: bool = False) -> Chooser:
    """Answer every request with `chunks` chunks, `rate` a second (0: at once).

    `stamped`: each chunk is `<number>@<seconds since the epoch> `, so that a reader can measure its delay.
    """

    def choose(request: ModelRequest) -> Answer:
        pace = 1.0 / rate if rate else 0.0
        if not stamped:
            text = "".join(f"word{number:04d} " for number in range(chunks))
            return Reply(say(text, chunk=9, pace_seconds=pace), usage=Usage(output_tokens=chunks))
        return Reply(say(_StampedText(chunks), chunk=1, pace_seconds=pace), usage=Usage(output_tokens=chunks))

    return choose


class _StampedText(str):
    """Text whose pieces are made when they are asked for: `piece n` carries the time at which it was sent."""

    __slots__ = ()

    def __new__(cls, chunks: int) -> Self:
        return super().__new__(cls, "x" * chunks)

    def __getitem__(self, key: Any) -> str:
        return f"{key.start}@{time.time():.4f} "


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until the process is told to stop; the address is printed as one line of JSON."""
    parser = argparse.ArgumentParser(description="A scripted OpenAI-compatible model server.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--context-length", type=int, default=DEFAULT_CONTEXT_LENGTH)
    parser.add_argument("--chunks", type=int, default=50)
    parser.add_argument("--rate", type=float, default=20.0, help="chunks a second; 0 is as fast as possible")
    parser.add_argument("--stamped", action="store_true", help="each chunk carries the time at which it was sent")
    options = parser.parse_args(arguments)
    with ScriptedModel(
        choose=steady_stream(options.chunks, options.rate, options.stamped),
        side_jobs=Reply(say("A summary of the conversation so far.")),
        model_names=[options.model],
        context_length=options.context_length,
        host=options.host,
        port=options.port,
    ) as model:
        print(json.dumps({"base_url": model.base_url, "model": options.model}), flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
