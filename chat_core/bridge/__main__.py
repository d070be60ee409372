"""Runs the Bridge: `python -m chat_core.bridge`, with its settings in the environment."""

import asyncio
import json
import logging
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import uvicorn

from chat_core.bridge.lifeline import Lifeline
from chat_core.bridge.memory import read_memory, write_memory
from chat_core.bridge.model_catalog import ModelCatalog
from chat_core.bridge.model_servers import tour
from chat_core.bridge.model_servers.local_model import LocalModel
from chat_core.bridge.protocol import MemoryText, ModelChoice, SkillChoice
from chat_core.bridge.run_host import LocalRunHost
from chat_core.bridge.runtimes.hermes.engine import Engine, prepare_environment
from chat_core.bridge.runtimes.hermes.runtime import HermesRuntime
from chat_core.bridge.server import Door, MemoryName, create_app
from chat_core.bridge.settings import BridgeSettings, read_settings
from chat_core.bridge.skills import list_skills, sync_skills
from chat_core.errors import BridgeUnavailable, SettingsError
from chat_core.redaction import Redaction

CLOSING_SECONDS = 1.0
_EXIT_WRONG_SETTING = 2
_EXIT_CANNOT_LISTEN = 3

_log = logging.getLogger("parley.bridge")


class BridgeChoices:
    """What this Bridge offers besides runs."""

    def __init__(self, runtime: HermesRuntime, catalog: ModelCatalog) -> None:
        self._runtime = runtime
        self._catalog = catalog

    def is_ready(self) -> bool:
        return self._runtime.is_ready()

    def models(self) -> list[ModelChoice]:
        return self._catalog.choices()

    def skills(self) -> list[SkillChoice]:
        return list_skills(self._engine())

    def problems(self) -> list[str]:
        return self._catalog.problems()

    def read_memory(self, which: MemoryName) -> MemoryText:
        return read_memory(self._engine(), which)

    def write_memory(self, which: MemoryName, text: str) -> MemoryText:
        written = write_memory(self._engine(), which, text)
        self._runtime.memory_changed()
        return written

    def _engine(self) -> Engine:
        try:
            return self._runtime.engine()
        except Exception as error:
            raise BridgeUnavailable(f"hermes-agent is not available: {type(error).__name__}") from None


class BridgeServer(uvicorn.Server):  # type: ignore[misc]
    """uvicorn that says when it listens, and that ends open streams before it waits for them."""

    def __init__(self, config: uvicorn.Config, door: Door, on_listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._door = door
        self._on_listening = on_listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_listening()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take signals as a wish to end. uvicorn's own way raises them again at the end, and `_end` would not run."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.end)
        yield

    def end(self) -> None:
        """Stop serving; called in the loop's thread."""
        self.should_exit = True
        self._door.closing.set()


def main() -> int:
    try:
        settings = read_settings(os.environ)
    except SettingsError as error:
        print(error.message, file=sys.stderr)
        return _EXIT_WRONG_SETTING
    tour_key = secrets.token_urlsafe(24)
    known_secrets = [settings.token, tour_key]
    redaction = Redaction(known_secrets)
    _set_up_logging(settings, redaction)
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (hermes-agent prints what it should not)
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _log.error("the data folder %s cannot be made: %s", settings.data_dir, error.strerror)
        return _EXIT_WRONG_SETTING
    try:
        listening = _listen(settings)
    except OSError as error:
        _log.error("cannot listen on %s port %s: %s", settings.host, settings.port, error.strerror)
        return _EXIT_CANNOT_LISTEN
    port = listening.getsockname()[1]
    local = LocalModel(settings.data_dir / "models", settings.data_dir / "logs" / "local-model.log")
    catalog = ModelCatalog(
        settings.models_file, settings.environment, local, f"http://{_own_host(settings)}:{port}/tour/v1", tour_key
    )
    redaction.also(catalog.secrets)
    prepare_environment(settings, catalog.key_variables())
    sync_skills(settings.hermes_home)
    runtime = HermesRuntime(settings, catalog)
    host = LocalRunHost(
        {runtime.name: runtime},
        max_active_runs=settings.max_active_runs,
        secrets=lambda: [settings.token, *catalog.secrets()],
    )
    lifeline = Lifeline(settings.grace_seconds, lambda: host.active_runs)
    choices = BridgeChoices(runtime, catalog)
    door = Door(host, choices, settings.token, _version(), settings.toolsets, lifeline.contacted)
    app = create_app(door, tour.routes(tour_key, settings.tour_pace_seconds))
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1, ws="none"
    )
    server = BridgeServer(config, door, lambda: _on_listening(settings, port, runtime))
    try:
        asyncio.run(_serve(server, listening, lifeline))
    finally:
        _end(host, runtime, local)
    return 0


async def _serve(server: BridgeServer, listening: socket.socket, lifeline: Lifeline) -> None:
    watch = asyncio.create_task(_watch(server, lifeline))
    try:
        await server.serve(sockets=[listening])
    finally:
        watch.cancel()


async def _watch(server: BridgeServer, lifeline: Lifeline) -> None:
    while True:
        await asyncio.sleep(1.0)
        if lifeline.is_over():
            _log.info("the app has not been heard for a while; the Bridge ends")
            server.end()
            return


def _listen(settings: BridgeSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((settings.host, settings.port))
    listening.set_inheritable(False)
    return listening


def _own_host(settings: BridgeSettings) -> str:
    """Return the host under which this process reaches itself."""
    if settings.host in {"0.0.0.0", "::", "localhost"}:  # noqa: S104
        return "127.0.0.1"
    return f"[{settings.host}]" if ":" in settings.host else settings.host


def _on_listening(settings: BridgeSettings, port: int, runtime: HermesRuntime) -> None:
    _log.info("the Bridge listens on port %s", port)
    if settings.ready_file is not None:
        _write_ready_file(settings.ready_file, port)
    runtime.start()


def _write_ready_file(file: Path, port: int) -> None:
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as draft_file:
        json.dump({"port": port, "pid": os.getpid()}, draft_file)
    os.replace(draft, file)


def _end(host: LocalRunHost, runtime: HermesRuntime, local: LocalModel) -> None:
    """Stop what still works and leave, without waiting for threads that do not listen."""
    host.close(CLOSING_SECONDS)
    endings = [threading.Thread(target=end, daemon=True) for end in (runtime.close, local.close)]
    for ending in endings:
        ending.start()
    for ending in endings:
        ending.join(0.4)
    logging.shutdown()
    os._exit(0)  # hermes-agent's own threads would keep the process


def _set_up_logging(settings: BridgeSettings, redaction: Redaction) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(redaction)
    for name in ("parley", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(settings.log_level if name == "parley" else "WARNING")
    others = logging.StreamHandler(sys.stderr)
    others.setFormatter(handler.formatter)
    others.addFilter(redaction)
    others.setLevel("WARNING" if settings.log_level == "DEBUG" else "ERROR")
    logging.getLogger().handlers[:] = [others]


def _version() -> str:
    try:
        return f"hermes-agent {metadata.version('hermes-agent')}"
    except metadata.PackageNotFoundError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
