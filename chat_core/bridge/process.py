"""Keeps a Bridge within reach: starts, watches, restarts and adopts the embedded one, or watches an external one."""

import hashlib
import hmac
import json
import logging
import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, Protocol

from chat_core.bridge.client import BridgeAddress, BridgeClient
from chat_core.bridge.protocol import Health
from chat_core.config import Settings
from chat_core.errors import BridgeUnavailable

PROJECT_FOLDER = Path(__file__).resolve().parents[2]
HEARTBEAT_SECONDS = 5.0
RESTART_DELAYS_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
STEADY_SECONDS = 60.0
READY_SECONDS = 60.0
MUTE_SECONDS = 60.0
STOP_SECONDS = 2.8
WRONG_SETTING = 2
"""The exit code of a Bridge that refuses its settings; its last line says which one and why."""
ADOPT_TRIES = 3
LOG_BYTES = 10 * 1024 * 1024
_LOOK_SECONDS = 0.25

STARTING = "The Bridge is starting."
NOT_INSTALLED = "The agent is not installed yet. Run `make run` in Parley's folder once: it installs what is missing."

_log = logging.getLogger("parley.bridge.process")

BridgeStatus = Literal["ready", "starting", "down", "not_installed"]


@dataclass(frozen=True, slots=True)
class BridgeState:
    """Whether runs can be started now; `detail` is a plain sentence for when they cannot."""

    status: BridgeStatus
    detail: str = ""


class Bridge(Protocol):
    """A Bridge as the app holds it, whoever started it."""

    def start(self) -> None:
        """Begin to reach for the Bridge, in a thread of its own; returns at once."""

    def stop(self) -> None:
        """Let go of it; takes less than three seconds."""

    def address(self) -> BridgeAddress:
        """Raises `BridgeUnavailable` with a plain sentence while there is none."""

    def state(self) -> BridgeState: ...

    def wait_until_ready(self, timeout_seconds: float) -> bool:
        """Return whether it became ready in time."""


def bridge_for(settings: Settings) -> Bridge:
    """Return the external Bridge when the settings name one, else an embedded one."""
    return ExternalBridge(settings) if settings.bridge_url else BridgeProcess(settings)


class _WatchedBridge:
    """What both kinds share: a state that readers may ask for from any thread, and a thread that keeps it true."""

    def __init__(self, heartbeat_seconds: float) -> None:
        self._heartbeat_seconds = heartbeat_seconds
        self._changed = threading.Condition()
        self._state = BridgeState("starting", STARTING)
        self._address: BridgeAddress | None = None
        self._probed = BridgeAddress("")
        self._client = BridgeClient(self._probed_address)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._active_runs = 0

    def start(self) -> None:
        self._thread = threading.Thread(target=self._watch, name="bridge-watch", daemon=True)
        self._thread.start()

    def state(self) -> BridgeState:
        with self._changed:
            return self._state

    def address(self) -> BridgeAddress:
        with self._changed:
            if self._address is None:
                # Waiting for what is not installed would be in vain.
                permanent = self._state.status == "not_installed"
                raise BridgeUnavailable(self._state.detail or "The Bridge is not ready.", permanent=permanent)
            return self._address

    def wait_until_ready(self, timeout_seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._state.status == "ready", timeout_seconds)

    def _watch(self) -> None:
        raise NotImplementedError

    def _end_watch(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=1)
        self._set("down", "Parley is shutting down.")

    def _set(self, status: BridgeStatus, detail: str = "", address: BridgeAddress | None = None) -> None:
        with self._changed:
            if self._state != BridgeState(status, detail):
                _log.info("Bridge %s%s", status, f": {detail}" if detail else "")
            self._state = BridgeState(status, detail)
            self._address = address
            self._changed.notify_all()

    def _probed_address(self) -> BridgeAddress:
        return self._probed

    def _health(self, address: BridgeAddress, timeout_seconds: float = 3.0) -> Health:
        """Ask this very Bridge. Raises `BridgeUnavailable`, also when it does not know our token."""
        self._probed = address
        health = self._client.health(timeout_seconds)
        if not (health.version or health.runtimes):  # strangers are told the status alone
            raise BridgeUnavailable("The Bridge does not know our token. Check PARLEY_BRIDGE_TOKEN.")
        self._active_runs = health.active_runs
        return health

    def _heartbeat(self, address: BridgeAddress) -> None:
        if self._health(address).status == "ok":
            self._set("ready", address=address)
        else:
            self._set("starting", STARTING, address)


class ExternalBridge(_WatchedBridge):
    """A Bridge that somebody else runs, at PARLEY_BRIDGE_URL."""

    def __init__(self, settings: Settings, *, heartbeat_seconds: float = HEARTBEAT_SECONDS) -> None:
        super().__init__(heartbeat_seconds)
        self._external = BridgeAddress(settings.bridge_url, settings.bridge_token.get_secret_value())

    def stop(self) -> None:
        self._end_watch()
        self._client.close()

    def _watch(self) -> None:
        while not self._stopping.is_set():
            try:
                self._heartbeat(self._external)
            except BridgeUnavailable as error:
                self._set("down", f"The Bridge at {self._external.url} is not within reach. {error.message}")
            self._stopping.wait(self._heartbeat_seconds)


@dataclass(frozen=True, slots=True)
class _Running:
    """A Bridge on this machine. `process` is None when an earlier app started it and we adopted it."""

    pid: int
    port: int
    token: str = field(repr=False)
    started_at: float
    fingerprint: str
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def address(self) -> BridgeAddress:
        return BridgeAddress(f"http://127.0.0.1:{self.port}", self.token)

    def is_alive(self) -> bool:
        return self.process.poll() is None if self.process is not None else _pid_exists(self.pid)

    def signal_group(self, number: signal.Signals) -> None:
        """It leads a process group of its own, so its children are reached too."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


class BridgeProcess(_WatchedBridge):
    """The embedded Bridge: a process of our own on a loopback port, with a random token.

    It outlives the app when the app is killed, or stopped while runs are at work: `bridge.json` in the data
    folder tells the next start where it is, which adopts it. Nobody's heartbeat for long enough ends it.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        python: Path | None = None,
        arguments: Sequence[str] = ("-m", "chat_core.bridge"),
        project_folder: Path = PROJECT_FOLDER,
        environment: Mapping[str, str] | None = None,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        restart_delays_seconds: Sequence[float] = RESTART_DELAYS_SECONDS,
        ready_seconds: float = READY_SECONDS,
        mute_seconds: float = MUTE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(heartbeat_seconds)
        self._settings = settings
        self._python = python or project_folder / ".venv-bridge" / "bin" / "python"
        self._arguments = tuple(arguments)
        self._project_folder = project_folder
        self._environment = os.environ if environment is None else environment
        self._restart_delays_seconds = restart_delays_seconds
        self._ready_seconds = ready_seconds
        self._mute_seconds = mute_seconds
        self._clock = clock
        self._running: _Running | None = None

    @property
    def log_file(self) -> Path:
        return self._settings.logs_folder / "bridge.log"

    @property
    def record_file(self) -> Path:
        """Where the next start finds a Bridge that was left running."""
        return self._settings.data_dir / "bridge.json"

    @property
    def _ready_file(self) -> Path:
        return self._settings.data_dir / "bridge-ready.json"

    def stop(self) -> None:
        """Stop the Bridge, unless it has runs at work: then it keeps them until the next start or its grace time."""
        deadline = time.monotonic() + STOP_SECONDS
        self._end_watch()
        running, self._running = self._running, None
        if running is not None and running.is_alive():
            with suppress(BridgeUnavailable):
                self._health(running.address, timeout_seconds=0.5)
            if self._active_runs:
                _log.warning(
                    "%d runs are still at work: the Bridge (process %d) keeps them for %.0f s, until the next start",
                    self._active_runs,
                    running.pid,
                    self._settings.bridge_grace_seconds,
                )
            else:
                self._end(running, deadline - time.monotonic())
        self._client.close()

    # The watching thread

    def _watch(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            if not self._python.is_file():
                self._set("not_installed", NOT_INSTALLED)
                self._stopping.wait(self._heartbeat_seconds)
                continue
            if self._state.status != "down":
                self._set("starting", STARTING)
            up_at = self._clock()
            try:
                self._running = self._adopt() or self._launch()
                if self._running is None:
                    return
                problem = self._serve(self._running)
            except (BridgeUnavailable, OSError) as error:
                problem = error.message if isinstance(error, BridgeUnavailable) else _why_not_started(error)
            if self._stopping.is_set():
                return
            failures = 0 if self._clock() - up_at >= STEADY_SECONDS else failures + 1
            delay = self._restart_delays_seconds[min(max(failures, 1), len(self._restart_delays_seconds)) - 1]
            self._running = None
            self._set("down", f"{problem} It is started again in a moment.")
            self._stopping.wait(delay)

    def _serve(self, running: _Running) -> str:
        """Send heartbeats until the Bridge is gone or we are stopping; return what happened to it."""
        heard_at = self._clock()
        beat_at = heard_at - self._heartbeat_seconds
        while running.is_alive():
            if self._clock() - beat_at >= self._heartbeat_seconds or self._state.status == "starting":
                beat_at = self._clock()
                try:
                    self._heartbeat(running.address)
                    heard_at = beat_at
                except BridgeUnavailable as error:
                    if self._clock() - heard_at >= self._mute_seconds:
                        self._end(running, 0)
                        return "The Bridge did not answer any more and was ended."
                    _log.warning("a heartbeat of the Bridge failed: %s", error.message)
            if self._stopping.wait(_LOOK_SECONDS):
                return ""
        running.signal_group(signal.SIGKILL)  # what it had started must not act on without it
        code = running.process.returncode if running.process is not None else None
        _log.warning("the Bridge (process %d) has ended with code %s", running.pid, code)
        self.record_file.unlink(missing_ok=True)
        return "The Bridge has ended unexpectedly."

    # Adopting

    def _adopt(self) -> _Running | None:
        """Return the Bridge an earlier app left running, if it is still there and fits; else clear its traces."""
        running = self._read_record()
        if running is None:
            return None
        health = self._ask_adopted(running) if running.is_alive() else None
        if health is not None and running.fingerprint != self._fingerprint(running.token):
            if health.active_runs:
                _log.warning(
                    "the Bridge of an earlier start has runs at work: it keeps its settings until it has ended"
                )
            else:
                _log.info("the Bridge of an earlier start had other settings; a new one takes its place")
                self._end(running, STOP_SECONDS)
                health = None
        if health is not None:
            _log.info("adopted the Bridge of an earlier start (process %d, %d runs)", running.pid, health.active_runs)
            return running
        if self._stopping.is_set():
            return None
        if running.is_alive() and _is_bridge(running.pid):
            _log.warning("the Bridge of an earlier start (process %d) does not answer and is ended", running.pid)
            self._end(running, 0)
        self.record_file.unlink(missing_ok=True)
        return None

    def _ask_adopted(self, running: _Running) -> Health | None:
        for _ in range(ADOPT_TRIES):
            try:
                return self._health(running.address)
            except BridgeUnavailable as error:
                _log.info("the Bridge of an earlier start (process %d): %s", running.pid, error.message)
                if self._stopping.wait(_LOOK_SECONDS):
                    break
        return None

    def _read_record(self) -> _Running | None:
        try:
            record: dict[str, Any] = json.loads(self.record_file.read_text("utf-8"))
            return _Running(
                pid=int(record["pid"]),
                port=int(record["port"]),
                token=str(record["token"]),
                started_at=float(record["started_at"]),
                fingerprint=str(record["fingerprint"]),
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _write_record(self, running: _Running) -> None:
        record = {
            "pid": running.pid,
            "port": running.port,
            "token": running.token,
            "started_at": running.started_at,
            "fingerprint": running.fingerprint,
        }
        _write_private(self.record_file, json.dumps(record))

    def _fingerprint(self, token: str) -> str:
        """Tell settings and versions apart without revealing them; keyed by the token of the Bridge."""
        started_with = self._bridge_settings() | {
            name: value
            for name, value in self._environment.items()
            if name.startswith(("OPENAI_", "PARLEY_")) and name not in self._bridge_settings()
        }
        code = [
            f"{file.relative_to(self._project_folder)} {file.stat().st_size} {file.stat().st_mtime_ns}"
            for file in sorted((self._project_folder / "chat_core" / "bridge").rglob("*.py"))
        ]
        text = json.dumps([sorted(started_with.items()), *self._arguments, str(self._python), *code])
        return hmac.new(token.encode(), text.encode(), hashlib.sha256).hexdigest()

    # Starting and ending

    def _launch(self) -> _Running | None:
        """Start a Bridge and wait until it answers; None when we are stopping. Raises `BridgeUnavailable`."""
        token = secrets.token_urlsafe(32)
        self._settings.data_dir.mkdir(parents=True, exist_ok=True)
        self._ready_file.unlink(missing_ok=True)
        with self._open_log() as log:
            process = subprocess.Popen(
                [self._python, *self._arguments],
                cwd=self._project_folder,
                env=self._bridge_environment(token),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in the terminal is for us, and we decide what it means for the Bridge
            )
        try:
            port = self._wait_for_port(process)
            running = _Running(process.pid, port, token, time.time(), self._fingerprint(token), process)
            self._health(running.address)
            self._write_record(running)
        except BaseException:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if self._stopping.is_set():
                return None
            raise
        finally:
            self._ready_file.unlink(missing_ok=True)
        return running

    def _wait_for_port(self, process: "subprocess.Popen[bytes]") -> int:
        deadline = self._clock() + self._ready_seconds
        while not self._stopping.wait(0.05):
            code = process.poll()
            if code == WRONG_SETTING:
                raise BridgeUnavailable(f"The Bridge could not be started: {_last_line(self.log_file)}")
            if code is not None:
                raise BridgeUnavailable(f"The Bridge could not be started (exit code {code}). See {self.log_file}.")
            with suppress(OSError, ValueError, KeyError, TypeError):
                return int(json.loads(self._ready_file.read_text("utf-8"))["port"])
            if self._clock() > deadline:
                raise BridgeUnavailable(
                    f"The Bridge was not ready after {self._ready_seconds:.0f} s. See {self.log_file}."
                )
        raise BridgeUnavailable("Parley is shutting down.")

    def _bridge_settings(self) -> dict[str, str]:
        settings = self._settings
        return {
            "PARLEY_BRIDGE_HOST": "127.0.0.1",
            "PARLEY_BRIDGE_PORT": "0",
            "PARLEY_BRIDGE_READY_FILE": str(self._ready_file),
            "PARLEY_BRIDGE_GRACE_SECONDS": str(settings.bridge_grace_seconds),
            "PARLEY_DATA_DIR": str(settings.data_dir),
            "PARLEY_HERMES_HOME": str(settings.hermes_folder.absolute()),
            "PARLEY_MODELS_FILE": str(settings.models_file),
            "PARLEY_TOOLSETS": settings.toolsets,
            "PARLEY_AGENT_POOL": str(settings.agent_pool),
            "PARLEY_MAX_ACTIVE_RUNS": str(settings.max_active_runs),
            "PARLEY_LOG_LEVEL": settings.log_level,
        }

    def _bridge_environment(self, token: str) -> dict[str, str]:
        unwanted = {"PYTHONPATH", "PYTHONHOME", "PYTHONSAFEPATH", "VIRTUAL_ENV", "PARLEY_BRIDGE_URL"}
        environment = {name: value for name, value in self._environment.items() if name not in unwanted}
        return environment | self._bridge_settings() | {"PARLEY_BRIDGE_TOKEN": token, "PYTHONUNBUFFERED": "1"}

    def _open_log(self) -> IO[bytes]:
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            if self.log_file.stat().st_size > LOG_BYTES:
                self.log_file.replace(self.log_file.with_suffix(".log.1"))
        return open(self.log_file, "ab", opener=_private)

    def _end(self, running: _Running, patience_seconds: float) -> None:
        """Ask it to end, wait, then insist."""
        if patience_seconds:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(running.pid, signal.SIGTERM)
        deadline = time.monotonic() + patience_seconds
        while running.is_alive() and time.monotonic() < deadline:
            time.sleep(0.02)
        if running.is_alive():
            _log.warning("the Bridge (process %d) did not end in time and was killed", running.pid)
        running.signal_group(signal.SIGKILL)
        if running.process is not None:
            running.process.wait()
        self.record_file.unlink(missing_ok=True)


def _pid_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    with suppress(OSError):  # where nobody reaps it, as in some containers, a dead process stays as a zombie
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    return True


def _is_bridge(pid: int) -> bool:
    """Whether the process is a Bridge: its number may be somebody else's by now."""
    shown = subprocess.run(["ps", "-p", str(pid), "-o", "command="], capture_output=True, text=True, check=False)
    return "chat_core.bridge" in shown.stdout


def _last_line(file: Path) -> str:
    with file.open("rb") as log:
        log.seek(max(file.stat().st_size - 2000, 0))
        lines = log.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:500] if lines else ""


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _write_private(path: Path, text: str) -> None:
    new_file = path.with_name(path.name + ".new")
    new_file.unlink(missing_ok=True)
    with open(new_file, "w", encoding="utf-8", opener=_private) as file:
        file.write(text)
    new_file.replace(path)


def _why_not_started(error: OSError) -> str:
    return f"The Bridge could not be started: {error.strerror or error}."
