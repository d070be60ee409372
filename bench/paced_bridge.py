"""A Bridge process over a paced runtime, for benchmarks: emits answer chunks at a given rate, and nothing else.

The message of a run is `<chunks> <chunks per second>`. Each chunk is `<number>:<milliseconds since the epoch> `.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path

import uvicorn

from chat_core.bridge.protocol import RunControl, RunRequest
from chat_core.bridge.run_host import LocalRunHost
from chat_core.bridge.server import Door, create_app
from tests.support.served_bridge import FewChoices


class PacedRuntime:
    name = "paced"

    def run(self, request: RunRequest, control: RunControl) -> None:
        count, rate = (int(word) for word in request.message.split())
        started = time.monotonic()
        told = []
        for number in range(count):
            ahead = started + number / rate - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)
            told.append(f"{number}:{time.time() * 1000:.1f} ")
            control.emit("answer", text=told[-1])
        context = {"base": False, "messages": []}
        control.emit("final", text="".join(told), interrupted=False, context=context, model="paced")

    def forget(self, agent_session: str) -> None:
        pass


def main() -> int:
    listener = socket.create_server(("127.0.0.1", int(os.environ.get("PARLEY_BRIDGE_PORT", "0"))))
    host = LocalRunHost({"paced": PacedRuntime(), "hermes": PacedRuntime()}, max_active_runs=100)
    door = Door(host=host, choices=FewChoices(), token=os.environ["PARLEY_BRIDGE_TOKEN"], version="bench")
    ready_file = Path(os.environ["PARLEY_BRIDGE_READY_FILE"])
    new_file = ready_file.with_suffix(".new")
    new_file.write_text(json.dumps({"port": listener.getsockname()[1], "pid": os.getpid()}))
    new_file.replace(ready_file)
    uvicorn.Server(uvicorn.Config(create_app(door), log_level="error")).run([listener])
    return 0


if __name__ == "__main__":
    sys.exit(main())
