"""The embedded Bridge of the crash tests: started by the app's own supervisor, over the plain agent."""

import asyncio
import os
import socket
from pathlib import Path

import uvicorn

from chat_core.bridge.run_host import LocalRunHost
from chat_core.bridge.server import Door, create_app
from tests.faults.agent import PlainAgent
from tests.support.bridge_program import serve
from tests.support.served_bridge import FewChoices


def main() -> None:
    listener = socket.create_server((os.environ["PARLEY_BRIDGE_HOST"], int(os.environ["PARLEY_BRIDGE_PORT"])))
    host = LocalRunHost({"plain": PlainAgent(Path(os.environ["PARLEY_DATA_DIR"]).parent / "effects")})
    door = Door(host=host, choices=FewChoices(), token=os.environ["PARLEY_BRIDGE_TOKEN"], version="test")
    server = uvicorn.Server(uvicorn.Config(create_app(door), log_level="error", timeout_graceful_shutdown=1))
    asyncio.run(serve(server, listener))


if __name__ == "__main__":
    main()
