"""A TCP proxy that breaks what passes it: cuts, goes silent without closing, puts bytes in, or crawls."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

BLOCK_END = b"\n\n"
GARBAGE = b"\x00\xff not HTTP \r\n\x07\n\n{{{\n\n"


@dataclass(frozen=True)
class Fault:
    """What one connection suffers, counted on its way from the server to the client.

    `after_blocks` SSE blocks pass unharmed (the greeting comment is the first one); then the connection is cut,
    goes mute (half-open: no byte, no FIN), or gets `garbage` put in. `pieces` splits everything into so many
    bytes a packet.
    """

    after_blocks: int | None = None
    kind: str = "cut"
    pieces: int = 0


NO_FAULT = Fault()


class BreakingProxy:
    """Passes connections on to `port`; `fault_of(number)` says what the connection of that number suffers."""

    def __init__(self, port: int, fault_of: Callable[[int], Fault]) -> None:
        self._target = ("127.0.0.1", port)
        self._fault_of = fault_of
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.streams = 0
        """How many event streams have been opened; other connections are never broken."""

    def start(self) -> None:
        threading.Thread(target=self._accept, daemon=True, name="breaking-proxy").start()

    def close(self) -> None:
        self._closing.set()
        _shut(self._listener)
        with self._lock:
            for open_socket in self._sockets:
                _shut(open_socket)

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(client,), daemon=True, name="breaking-proxy").start()

    def _pass_on(self, client: socket.socket) -> None:
        with suppress(OSError):
            request = client.recv(65536)
            is_stream = b"/events?" in request.split(b"\r\n", 1)[0]
            with self._lock:
                number = self.streams
                self.streams += is_stream
            fault = self._fault_of(number) if is_stream else NO_FAULT
            server = socket.create_connection(self._target)
            with self._lock:
                self._sockets += [client, server]
            server.sendall(request)
            threading.Thread(target=self._copy, args=(client, server), daemon=True, name="breaking-proxy").start()
            self._copy_back(server, client, fault)

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        _shut(target)

    def _copy_back(self, server: socket.socket, client: socket.socket, fault: Fault) -> None:
        passed = 0
        with suppress(OSError):
            while data := server.recv(65536):
                end = None if fault.after_blocks is None else _end_of_block(data, fault.after_blocks - passed)
                passed += data.count(BLOCK_END)
                self._send(client, data if end is None else data[:end], fault.pieces)
                if end is None:
                    continue
                if fault.kind == "mute":
                    return  # both sockets stay open
                if fault.kind == "garbage":
                    client.sendall(GARBAGE)
                break
        _shut(client)
        _shut(server)

    def _send(self, client: socket.socket, data: bytes, pieces: int) -> None:
        size = pieces or max(len(data), 1)
        for start in range(0, len(data), size):
            client.sendall(data[start : start + size])


@contextmanager
def breaking_proxy(port: int, fault_of: Callable[[int], Fault]) -> Iterator[BreakingProxy]:
    proxy = BreakingProxy(port, fault_of)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.close()


def _end_of_block(data: bytes, count: int) -> int | None:
    """Return where the `count`th block in `data` ends, None when it is not in there."""
    position = 0
    for _ in range(count):
        found = data.find(BLOCK_END, position)
        if found < 0:
            return None
        position = found + len(BLOCK_END)
    return position


def _shut(open_socket: socket.socket) -> None:
    with suppress(OSError):
        open_socket.shutdown(socket.SHUT_RDWR)
    open_socket.close()
