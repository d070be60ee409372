"""Runtimes for tests: `EchoRuntime` answers with the user's text, `GatedRuntime` waits for the test at each step."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from chat_core.bridge.protocol import ErrorCode, RunControl, RunRequest

Step = Callable[["Turn"], None]
"""One thing a gated run does once the test has opened its gate."""


class EchoRuntime:
    """Thinks one line, answers with the user's text in chunks of `chunk_chars`, and returns its context.

    `requests` keeps what it was asked, `forgotten` the sessions it was told to forget.
    """

    name = "echo"

    def __init__(self, chunk_chars: int = 4) -> None:
        self.requests: list[RunRequest] = []
        self.forgotten: list[str] = []
        self._chunk_chars = chunk_chars

    def run(self, request: RunRequest, control: RunControl) -> None:
        self.requests.append(request)
        control.emit("thinking", text="I was asked something.")
        for start in range(0, len(request.message), self._chunk_chars):
            if control.stop_requested:
                break
            control.emit("answer", text=request.message[start : start + self._chunk_chars])
        control.emit("usage", input_tokens=len(request.message), output_tokens=len(request.message))
        emit_final(control, request, request.message)

    def forget(self, agent_session: str) -> None:
        self.forgotten.append(agent_session)


class Turn:
    """What a step works on: the request, the control, and the answer text so far."""

    def __init__(self, request: RunRequest, control: RunControl) -> None:
        self.request = request
        self.control = control
        self.text = ""
        self.calls = 0
        self.ended = False

    def answer(self, text: str) -> None:
        self.text += text
        self.control.emit("answer", text=text)


class GatedRuntime:
    """Does its steps one by one, each only after the test has released it; a stop opens every gate of the run.

    `release()` opens all gates, now and later; `release(1)` the next one of `run_id` (or of whichever run
    comes first). Without `steps` a run thinks once and then answers with the user's text.
    """

    name = "gated"

    def __init__(self, steps: Sequence[Step] | None = None) -> None:
        self.steps: list[Step] = list(steps) if steps is not None else [thinks("Let me see."), echoes()]
        self.requests: list[RunRequest] = []
        self.forgotten: list[str] = []
        self._changed = threading.Condition()
        self._started: list[str] = []
        self._ended: list[str] = []
        self._permits: dict[str, int] = {}
        self._open = False

    def run(self, request: RunRequest, control: RunControl) -> None:
        control.on_stop(self._wake)
        with self._changed:
            self.requests.append(request)
            self._started.append(request.run_id)
            self._changed.notify_all()
        turn = Turn(request, control)
        try:
            for step in list(self.steps):
                self._pass_gate(request.run_id, control)
                if control.stop_requested:
                    break
                step(turn)
                if turn.ended:
                    return
            emit_final(control, request, turn.text)
        finally:
            with self._changed:
                self._ended.append(request.run_id)
                self._changed.notify_all()

    def forget(self, agent_session: str) -> None:
        self.forgotten.append(agent_session)

    def wait_until_started(self, run_id: str | None = None, timeout: float = 5.0, count: int = 1) -> None:
        """Wait until `count` runs (or the run `run_id`) have entered the runtime."""
        self._wait(lambda: run_id in self._started if run_id else len(self._started) >= count, "start", timeout)

    def wait_until_ended(self, run_id: str | None = None, timeout: float = 5.0, count: int = 1) -> None:
        self._wait(lambda: run_id in self._ended if run_id else len(self._ended) >= count, "end", timeout)

    def release(self, steps: int | None = None, run_id: str | None = None) -> None:
        with self._changed:
            if steps is None and run_id is None:
                self._open = True
            else:
                key = run_id or ""
                self._permits[key] = self._permits.get(key, 0) + (steps if steps is not None else 1_000_000)
            self._changed.notify_all()

    def _pass_gate(self, run_id: str, control: RunControl) -> None:
        with self._changed:
            while not (self._open or control.stop_requested):
                for key in (run_id, ""):
                    if self._permits.get(key, 0) > 0:
                        self._permits[key] -= 1
                        return
                self._changed.wait(1.0)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _wait(self, condition: Callable[[], bool], what: str, timeout: float) -> None:
        with self._changed:
            if not self._changed.wait_for(condition, timeout):
                raise AssertionError(f"no run did {what} within {timeout} s; started: {self._started}")


# --- steps ---


def thinks(text: str) -> Step:
    return lambda turn: turn.control.emit("thinking", text=text)


def echoes() -> Step:
    return lambda turn: turn.answer(turn.request.message)


def answers(text: str) -> Step:
    return lambda turn: turn.answer(text)


def chunks(count: int, text: str = "word ") -> Step:
    def step(turn: Turn) -> None:
        for _ in range(count):
            turn.answer(text)

    return step


def breaks() -> Step:
    """The text so far was commentary before tools."""

    def step(turn: Turn) -> None:
        turn.text = ""
        turn.control.emit("answer_break")

    return step


def emits(kind: Any, **data: Any) -> Step:
    return lambda turn: turn.control.emit(kind, **data)


def calls_tool(name: str = "todo", result: str = "{}", is_error: bool = False, **args: Any) -> Step:
    def step(turn: Turn) -> None:
        turn.calls += 1
        call_id = f"call_{turn.calls}"
        turn.control.emit("tool_call", call_id=call_id, name=name, args=args)
        turn.control.emit("tool_result", call_id=call_id, name=name, result=result, duration_ms=5, is_error=is_error)

    return step


def asks(question: str = "Which one?", choices: Sequence[str] = ("red", "blue")) -> Step:
    """Ask a clarify question and answer with what the person said."""

    def step(turn: Turn) -> None:
        answer = turn.control.ask("clarify", question, list(choices))
        if answer is not None:
            turn.answer(f"You said {answer}.")

    return step


def asks_approval(command: str = "rm -rf scratch", description: str = "deletes files") -> Step:
    def step(turn: Turn) -> None:
        choices = ["once", "session", "deny"]
        answer = turn.control.ask("approval", description, choices, command=command, description=description)
        if answer is not None:
            turn.answer(f"Decision: {answer}.")

    return step


def fails(message: str = "the runtime broke") -> Step:
    def step(turn: Turn) -> None:
        raise RuntimeError(message)

    return step


def reports_error(code: ErrorCode = "model_server_error", message: str = "The model failed.") -> Step:
    def step(turn: Turn) -> None:
        turn.ended = True
        turn.control.emit("error", code=code, message=message, context=context_of(turn.request, turn.text))

    return step


def hangs_until_stop(timeout: float = 30.0) -> Step:
    def step(turn: Turn) -> None:
        stopped = threading.Event()
        turn.control.on_stop(stopped.set)
        assert stopped.wait(timeout), "nobody stopped the run"

    return step


def emit_final(control: RunControl, request: RunRequest, text: str) -> None:
    control.emit(
        "final",
        text=text,
        interrupted=control.stop_requested,
        context=context_of(request, text),
        model=request.model or "default",
    )


def context_of(request: RunRequest, text: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": request.message}]
    if text:
        messages.append({"role": "assistant", "content": text})
    return {"base": False, "messages": messages}
