"""The agent of the crash tests: what it does follows from the message alone, so every entry can be foretold."""

import os
import time
from pathlib import Path

from chat_core.bridge.protocol import RunControl, RunRequest

THOUGHTS = 6
WORDS = 10
PACE_SECONDS = 0.02


def thinking_of(message: str) -> str:
    return "".join(f"[{message} {number}]" for number in range(THOUGHTS))


def answer_of(message: str, reply: str | None) -> str:
    start = f"You said {reply}. " if reply is not None else ""
    return start + "".join(f"{message}#{number} " for number in range(WORDS))


class PlainAgent:
    """Thinks, does one thing in the world (a line in `effects`), asks when the message says so, answers."""

    name = "plain"

    def __init__(self, effects: Path) -> None:
        self._effects = effects

    def run(self, request: RunRequest, control: RunControl) -> None:
        message = request.message
        text = ""
        for number in range(THOUGHTS):
            control.emit("thinking", text=f"[{message} {number}]")
            time.sleep(PACE_SECONDS)
        control.emit("tool_call", call_id=f"call-{request.run_id}", name="mail", args={"to": message})
        self._act(request.run_id)
        time.sleep(PACE_SECONDS)
        control.emit(
            "tool_result", call_id=f"call-{request.run_id}", name="mail", result="sent", duration_ms=1, is_error=False
        )
        if "ask" in message:
            reply = control.ask("clarify", f"{message}?", ["yes"])
            text += f"You said {reply}. " if reply is not None else ""
            control.emit("answer", text=text)
        for number in range(WORDS):
            if control.stop_requested:
                break
            text += f"{message}#{number} "
            control.emit("answer", text=f"{message}#{number} ")
            time.sleep(PACE_SECONDS * (8 if "slow" in message else 1))
        context = {"base": False, "messages": [{"role": "user", "content": message}]}
        control.emit("final", text=text, interrupted=control.stop_requested, context=context, model="plain")

    def forget(self, agent_session: str) -> None:
        pass

    def _act(self, run_id: str) -> None:
        file = os.open(self._effects, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        os.write(file, f"{run_id}\n".encode())
        os.close(file)
