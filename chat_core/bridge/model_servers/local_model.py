"""The small real model on this machine, as an OpenAI-compatible server in a process of its own.

For the runtime: `base_url()` ends in `/v1`, the server answers `/v1/models` with the `context_length` of 64,000 that
hermes insists on (no override in its configuration is needed), and stop texts, temperature 0 and a cap on the answer's
length are applied by the server itself (no `extra_body` is needed). Tools and the system text are ignored.
"""

import contextlib
import importlib.util
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

from chat_core.bridge.model_servers.model_file import missing_reason, model_file

MODEL_NAME = "gemma-3-270m"
START_SECONDS = 120.0
_STOP_SECONDS = 2.0
_PROCESS = "chat_core.bridge.model_servers.local_model_process"
_CODE_FOLDER = Path(__file__).parents[3]
_SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD")


class LocalModel:
    """Starts the model's process at the first use, and again when it has died. Safe from any thread.

    The process ends with the one that started it, also when that is killed.
    """

    def __init__(self, cache_folder: Path, log_file: Path) -> None:
        self.api_key = secrets.token_urlsafe(24)
        self.model_name = MODEL_NAME
        self._cache_folder = cache_folder
        self._log_file = log_file
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._closed = False

    def available(self) -> str | None:
        """Return None when the model can be used, else the reason as a sentence. Starts nothing."""
        if importlib.util.find_spec("xllamacpp") is None:
            return "The engine of the local model is not installed (package xllamacpp)."
        return missing_reason(self._cache_folder)

    def base_url(self) -> str:
        """Return the address of the running server, starting it if need be: seconds, the first time.

        The address stays the same after a restart as long as its port is free. Raises RuntimeError with a plain
        sentence.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError("The local model has been shut down.")
            if self._process is None or self._process.poll() is not None:
                self._start()
            return f"http://127.0.0.1:{self._port}/v1"

    def close(self) -> None:
        """End the process, also one that is just starting. It is not started again."""
        self._closed = True
        if (starting := self._process) is not None:
            starting.kill()
        with self._lock:
            self._stop()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def _start(self) -> None:
        reason = self.available()
        if reason:
            raise RuntimeError(reason)
        weights = model_file(self._cache_folder)
        self._stop()
        self._log_file.parent.mkdir(parents=True, exist_ok=True)
        with self._log_file.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", _PROCESS],
                cwd=_CODE_FOLDER,
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._process = process
        try:
            if self._closed:
                raise RuntimeError("The local model has been shut down.")
            # The pipe stays open; its end tells the process to end.
            _tell(process, {"model_file": str(weights), "api_key": self.api_key, "port": self._port})
            self._port = self._read_port(process)
        except BaseException:
            self._stop()
            raise

    def _read_port(self, process: subprocess.Popen[bytes]) -> int:
        output = _opened(process.stdout).fileno()
        deadline = time.monotonic() + START_SECONDS
        line = b""
        while not line.endswith(b"\n"):
            readable, _, _ = select.select([output], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                raise RuntimeError(f"The local model was not ready after {START_SECONDS:.0f} seconds.")
            data = os.read(output, 4096)
            if not data:
                raise RuntimeError(self._why_it_ended(process.wait()))
            line += data
        return int(json.loads(line)["port"])

    def _why_it_ended(self, exit_code: int) -> str:
        if exit_code == -signal.SIGILL:
            return "The local model cannot run on this machine's processor."
        if self._closed:
            return "The local model has been shut down."
        if exit_code == -signal.SIGKILL:
            return "The local model was killed while it started, perhaps for lack of memory."
        lines = self._log_file.read_text("utf-8", "replace").strip().splitlines()
        return f"The local model did not start: {lines[-1][:300] if lines else f'exit code {exit_code}'}"

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        for end in (process.terminate, process.kill):
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                end()
        process.wait(_STOP_SECONDS)


def _opened(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise RuntimeError("The local model was started without pipes.")
    return pipe


def _tell(process: subprocess.Popen[bytes], settings: dict[str, object]) -> None:
    with contextlib.suppress(BrokenPipeError):  # it died at once; the wait for its port says why
        pipe = _opened(process.stdin)
        pipe.write(json.dumps(settings).encode() + b"\n")
        pipe.flush()


def _environment() -> dict[str, str]:
    """Return this process's environment without secrets: the model needs none."""
    return {
        name: value for name, value in os.environ.items() if not any(word in name.upper() for word in _SECRET_WORDS)
    }
