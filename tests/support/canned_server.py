"""A server that answers each connection with bytes written beforehand, however wrong they are."""

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from chat_core.bridge.protocol import Event, encode_event

STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


class CannedServer:
    """Answers connection n with `answers[n]`, the last one again and again; `requests` keeps the request lines."""

    def __init__(self, answers: Sequence[bytes]) -> None:
        self._answers = answers
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: list[str] = []

    def start(self) -> None:
        threading.Thread(target=self._serve, daemon=True, name="canned-server").start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                self.requests.append(connection.recv(65536).split(b"\r\n", 1)[0].decode("latin-1"))
                connection.sendall(self._answers[min(len(self.requests), len(self._answers)) - 1])


@contextmanager
def canned_server(*answers: bytes) -> Iterator[CannedServer]:
    server = CannedServer(answers)
    server.start()
    try:
        yield server
    finally:
        server.close()


def stream_of(*parts: Event | bytes) -> bytes:
    """Return a whole answer that streams these events (or raw bytes) and then ends."""
    return STREAM_HEAD + b"".join(encode_event(part) if isinstance(part, Event) else part for part in parts)


def json_answer(status: int, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body
