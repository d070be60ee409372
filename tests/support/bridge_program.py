"""A Bridge process for tests: the real server over a gated runtime, started like the real one.

What it should do besides is asked for by environment: `TEST_EXIT_CODE` ends it at once with that code,
`TEST_IGNORE_SIGTERM` makes it deaf. A run with the message "open the gate" opens all gates.
"""

import asyncio
import json
import os
import signal
import socket
import sys
from pathlib import Path

import uvicorn

from chat_core.bridge.protocol import RunControl, RunRequest
from chat_core.bridge.run_host import LocalRunHost
from chat_core.bridge.server import Door, create_app
from tests.support.runtimes import GatedRuntime
from tests.support.served_bridge import FewChoices


class RemoteGatedRuntime(GatedRuntime):
    """Gated by other runs, since the test is in another process."""

    def run(self, request: RunRequest, control: RunControl) -> None:
        if request.message == "open the gate":
            self.release()
        super().run(request, control)


def main() -> int:
    print("the Bridge of the test starts", flush=True)
    if code := os.environ.get("TEST_EXIT_CODE"):
        return int(code)
    listener = socket.create_server((os.environ["PARLEY_BRIDGE_HOST"], int(os.environ["PARLEY_BRIDGE_PORT"])))
    host = LocalRunHost({"gated": RemoteGatedRuntime()})
    door = Door(host=host, choices=FewChoices(), token=os.environ["PARLEY_BRIDGE_TOKEN"], version="test")
    server = uvicorn.Server(uvicorn.Config(create_app(door), log_level="error", timeout_graceful_shutdown=1))
    asyncio.run(serve(server, listener))
    return 0


async def serve(server: uvicorn.Server, listener: socket.socket) -> None:
    ready_file = Path(os.environ["PARLEY_BRIDGE_READY_FILE"])
    new_file = ready_file.with_suffix(".new")
    new_file.write_text(json.dumps({"port": listener.getsockname()[1], "pid": os.getpid()}))
    new_file.replace(ready_file)
    serving = asyncio.create_task(server.serve([listener]))
    if os.environ.get("TEST_IGNORE_SIGTERM"):
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.05, signal.signal, signal.SIGTERM, signal.SIG_IGN)
    await serving


if __name__ == "__main__":
    sys.exit(main())
