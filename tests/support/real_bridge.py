"""The real Bridge process, with the real hermes-agent, against a scripted model server."""

import contextlib
import json
import os
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from chat_core.bridge.client import BridgeAddress, BridgeClient
from chat_core.bridge.protocol import Event, RunRequest
from chat_core.errors import BridgeUnavailable
from tests.support.scripted_model import Answer, ScriptedModel

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-bridge" / "bin" / "python"
COMMAND = [str(PYTHON), "-m", "chat_core.bridge"]
TOKEN = "token-marker-7f3a9c"
MODEL_KEY = "sk-marker-5d2e8b1a"
WAIT_SECONDS = 60.0
BEAT_SECONDS = 4.0


class LiveRun:
    """One run, read in a thread; every wait is bounded."""

    def __init__(self, client: BridgeClient, run_id: str) -> None:
        self.run_id = run_id
        self.events: list[Event] = []
        self._client = client
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        threading.Thread(target=self._read, daemon=True).start()

    def wait_for(self, kind: str, count: int = 1, timeout: float = WAIT_SECONDS) -> Event:
        """Return the `count`-th event of this kind."""

        def found() -> list[Event]:
            return [event for event in self.events if event.kind == kind]

        with self._changed:
            self._changed.wait_for(lambda: self._is_over() or len(found()) >= count, timeout)
            assert len(found()) >= count, f"no {kind} number {count} came: {self._failure or self.kinds}"
            return found()[count - 1]

    def end(self, timeout: float = WAIT_SECONDS) -> Event:
        """Return the terminal event."""
        with self._changed:
            self._changed.wait_for(self._is_over, timeout)
            assert self.events, f"the run has no events: {self._failure}"
            assert self.events[-1].is_terminal, f"the run did not end: {self._failure or self.kinds}"
            return self.events[-1]

    def answer(self, answer: str, count: int = 1) -> Event:
        """Answer the `count`-th question of the run, whichever kind it is, and return its request."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over() or len(self._questions()) >= count, WAIT_SECONDS)
            assert len(self._questions()) >= count, f"no question came: {self._failure or self.kinds}"
            question = self._questions()[count - 1]
        self._client.answer(self.run_id, question.data["question_id"], answer)
        return question

    def stop(self) -> float:
        """Stop the run and return how long its end took."""
        started = time.monotonic()
        self._client.stop(self.run_id)
        self.end()
        return time.monotonic() - started

    def all(self, kind: str) -> list[dict[str, Any]]:
        self.end()
        return [event.data for event in self.events if event.kind == kind]

    @property
    def kinds(self) -> list[str]:
        """The kinds in order, repetitions and status lines left out."""
        kinds = [event.kind for event in self.events if event.kind != "status"]
        return [kind for index, kind in enumerate(kinds) if index == 0 or kinds[index - 1] != kind]

    @property
    def text(self) -> str:
        return str(self.end().data.get("text", ""))

    @property
    def context(self) -> list[dict[str, Any]]:
        """The turn context, as it is sent along with the next run of the branch."""
        return list(self.end().data["context"]["messages"])

    @property
    def results(self) -> list[dict[str, Any]]:
        return self.all("tool_result")

    def _is_over(self) -> bool:
        return self._failure is not None or (bool(self.events) and self.events[-1].is_terminal)

    def _questions(self) -> list[Event]:
        return [event for event in self.events if event.kind in {"clarify_request", "approval_request"}]

    def _read(self) -> None:
        try:
            for event in self._client.events(self.run_id):
                with self._changed:
                    self.events.append(event)
                    self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()


class RealBridge:
    """Starts `python -m chat_core.bridge` in the Bridge's own environment; fails when that is not installed."""

    def __init__(self, folder: Path, model: ScriptedModel, environment: Mapping[str, str] | None = None) -> None:
        assert PYTHON.exists(), f"{PYTHON} is missing: run `make install` first, these tests need the real agent"
        self.folder = folder
        self.data = folder / "data"
        self.model = model
        self.ready_file = folder / "ready.json"
        self.log_file = folder / "bridge.log"
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self.client = BridgeClient(self._address, give_up_seconds=5.0)
        self._closing = threading.Event()

    def start(self) -> "RealBridge":
        self.data.mkdir(parents=True, exist_ok=True)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "PARLEY_"))}
        environment = inherited | {
            "PARLEY_BRIDGE_TOKEN": TOKEN,
            "PARLEY_DATA_DIR": str(self.data),
            "PARLEY_BRIDGE_READY_FILE": str(self.ready_file),
            "PARLEY_BRIDGE_GRACE_SECONDS": "1",  # a killed test run leaves no Bridge behind
            "PARLEY_MODEL_RETRIES": "2",
            "PARLEY_MODEL_TIMEOUT_SECONDS": "1",
            "PARLEY_TOOLSETS": "todo,memory,skills,clarify,terminal,file",
        }
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                COMMAND,
                cwd=ROOT,
                env=environment | self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._wait_until(self.ready_file.exists, "the Bridge did not write its ready file")
        threading.Thread(target=self._beat, daemon=True, name="heartbeat").start()
        return self

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None, "the Bridge was not started"
        return self._process

    @property
    def port(self) -> int:
        return int(json.loads(self.ready_file.read_text())["port"])

    @property
    def log(self) -> str:
        return self.log_file.read_text("utf-8", "replace")

    def write_models(self, text: str) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        file = self.data / "models.toml"
        file.write_text(text, "utf-8")
        file.chmod(0o600)

    def ask(
        self,
        message: str,
        *answers: Answer,
        session: str = "",
        contexts: Sequence[list[dict[str, Any]]] = (),
        **options: Any,
    ) -> LiveRun:
        """Start a run; `answers`, when given, replace the model's script first."""
        if answers:
            self.model.script(*answers)
        run_id = uuid.uuid4().hex
        self.client.start(
            RunRequest(
                run_id=run_id,
                agent_session=session or f"s-{run_id[:12]}",
                message=message,
                contexts=list(contexts),
                **options,
            )
        )
        return LiveRun(self.client, run_id)

    def stop_heartbeat(self) -> None:
        """Be an app that is gone."""
        self._closing.set()

    def close(self) -> int:
        """End the process the polite way and return its exit code."""
        self._closing.set()
        self.client.close()
        if self._process is None:
            return 0
        self._process.terminate()
        try:
            return self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait(10)

    def _beat(self) -> None:
        while not self._closing.wait(BEAT_SECONDS):
            with contextlib.suppress(BridgeUnavailable):
                self.client.health()

    def _address(self) -> BridgeAddress:
        return BridgeAddress(f"http://127.0.0.1:{self.port}", TOKEN)

    def _wait_until(self, condition: Callable[[], bool], failure: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            assert self.process.poll() is None, f"the Bridge ended:\n{self.log[-2000:]}"
            assert time.monotonic() < deadline, f"{failure}:\n{self.log[-2000:]}"
            threading.Event().wait(0.05)


def models_toml(model: ScriptedModel, **more: str) -> str:
    """Return a models.toml with the scripted model as `scripted`, and others by id and the lines they differ in."""
    entries = [f'id = "scripted"\nlabel = "Scripted"\nbase_url = "{model.base_url}"\nmodel = "scripted"\n']
    entries += [f'id = "{name}"\n{lines}' for name, lines in more.items()]
    return "\n".join(f'[[models]]\napi_key = "{MODEL_KEY}"\n{entry}' for entry in entries)
