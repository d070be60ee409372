"""A real Bridge server in a thread of the test's own process, over any run host."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from chat_core.bridge.client import BridgeAddress
from chat_core.bridge.protocol import MemoryText, ModelChoice, SkillChoice
from chat_core.bridge.run_host import LocalRunHost
from chat_core.bridge.server import Choices, Door, create_app
from chat_core.errors import InvalidInput

TOKEN = "token-of-the-test"


class FewChoices:
    """One model, one skill, and a memory file in memory that refuses to be emptied."""

    def __init__(self) -> None:
        self.text = "Likes tea."

    def is_ready(self) -> bool:
        return True

    def models(self) -> list[ModelChoice]:
        return [ModelChoice(id="echo", label="Echo", runtime="echo", is_default=True)]

    def skills(self) -> list[SkillChoice]:
        return [SkillChoice(folder="notes", name="Notes", description="Writes notes.")]

    def problems(self) -> list[str]:
        return []

    def read_memory(self, which: str) -> MemoryText:
        return MemoryText(text=self.text, limit=100, used=len(self.text))

    def write_memory(self, which: str, text: str) -> MemoryText:
        if not text:
            raise InvalidInput("an empty memory cannot be read back")
        self.text = text
        return self.read_memory(which)


@contextmanager
def served_bridge(host: LocalRunHost, choices: Choices | None = None) -> Iterator[BridgeAddress]:
    """Serve `host` on a free port until the block is left; the host and its runs are the caller's."""
    listener = socket.create_server(("127.0.0.1", 0))
    door = Door(host=host, choices=choices or FewChoices(), token=TOKEN, version="test")
    server = uvicorn.Server(uvicorn.Config(create_app(door), log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True, name="served-bridge")
    thread.start()
    try:
        yield BridgeAddress(f"http://127.0.0.1:{listener.getsockname()[1]}", TOKEN)
    finally:
        server.should_exit = True
        thread.join(5)
        listener.close()
