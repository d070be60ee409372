"""Serves an ASGI app on a free port of loopback from a thread, and reads event streams from it byte by byte."""

import json
import threading
from dataclasses import dataclass, field
from typing import Any, Self

import httpx
import uvicorn
from starlette.types import ASGIApp

WAIT_SECONDS = 10.0


class ServedApp:
    """`with ServedApp(app) as served: httpx.get(served.url + "/api/health")`."""

    def __init__(self, app: ASGIApp) -> None:
        config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", lifespan="off", access_log=False)
        self.server = uvicorn.Server(config)
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="served-app", daemon=True)

    def _serve(self) -> None:
        startup = self.server.startup

        async def started(*args: Any, **options: Any) -> None:
            await startup(*args, **options)
            self._started.set()

        self.server.startup = started  # type: ignore[method-assign]
        self.server.run()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(WAIT_SECONDS), "the server did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self.server.force_exit = True
        self._thread.join(WAIT_SECONDS)

    @property
    def port(self) -> int:
        port: int = self.server.servers[0].sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@dataclass(frozen=True)
class Block:
    """One event of a stream."""

    id: int
    event: str
    data: dict[str, Any] = field(default_factory=dict)


class StreamReader:
    """Reads one event stream in a thread of its own, until it ends or is closed."""

    def __init__(self, url: str, last_event_id: str | None = None) -> None:
        self.blocks: list[Block] = []
        self.comments: list[str] = []
        self.status = 0
        self.headers: dict[str, str] = {}
        self.ended = False
        self._headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
        self._url = url
        self._changed = threading.Condition()
        self._client = httpx.Client(timeout=httpx.Timeout(5.0, read=WAIT_SECONDS * 2))
        self._closing = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            with self._client.stream("GET", self._url, headers=self._headers) as answer:
                with self._changed:
                    self.status, self.headers = answer.status_code, dict(answer.headers)
                    self._changed.notify_all()
                pending = b""
                for chunk in answer.iter_raw():
                    *parts, pending = (pending + chunk).split(b"\n\n")
                    with self._changed:
                        for part in parts:
                            self._take(part.decode("ascii"))
                        self._changed.notify_all()
                    if self._closing:
                        return
        except (httpx.HTTPError, RuntimeError):
            if not self._closing:
                raise
        finally:
            with self._changed:
                self.ended = True
                self._changed.notify_all()

    def _take(self, text: str) -> None:
        fields = dict(line.split(": ", 1) for line in text.split("\n") if not line.startswith(":"))
        self.comments += [line[1:].strip() for line in text.split("\n") if line.startswith(":")]
        if "data" in fields:
            self.blocks.append(Block(int(fields["id"]), fields["event"], json.loads(fields["data"])))

    def wait_for(self, blocks: int = 0, comments: int = 0) -> None:
        self._wait(lambda: len(self.blocks) >= blocks and len(self.comments) >= comments, f"{blocks} events")

    def wait_for_text(self, text: str) -> None:
        self._wait(lambda: text in self.text, f"the text {text!r}")

    def wait_until_open(self) -> None:
        self._wait(lambda: self.status != 0, "an answer")

    def wait_until_ended(self) -> None:
        self._wait(lambda: self.ended, "the end")

    def _wait(self, condition: Any, what: str) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, WAIT_SECONDS), f"no {what}; got {self.blocks[-5:]}"

    @property
    def ids(self) -> list[int]:
        return [block.id for block in self.blocks]

    @property
    def text(self) -> str:
        return "".join(block.data["text"] for block in self.blocks if block.event == "token")

    def close(self) -> None:
        self._closing = True
        self._client.close()
