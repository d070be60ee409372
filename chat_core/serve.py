"""Checks what a start needs, then becomes the app's server: `python -m chat_core.serve`."""

import errno
import fcntl
import os
import shutil
import socket
import sys
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from chat_core.config import Settings, load_settings
from chat_core.errors import ParleyError, SettingsError, StoreUnavailable

PROJECT_FOLDER = Path(__file__).resolve().parents[1]
LEAST_FREE_BYTES = 100 * 1024 * 1024
ANNOUNCE_SECONDS = 60.0


def main(arguments: Sequence[str]) -> int:
    """Return only when the start is refused, with the reason on stderr. `arguments` go to `streamlit run`."""
    os.umask(0o077)  # conversations are nobody else's business on this machine
    try:
        settings = load_settings()
        check_data_folder(settings.data_dir)
        check_port(settings.host, settings.port)
    except ParleyError as problem:
        print(f"\n{problem.message}", file=sys.stderr)
        return 1
    _announce_when_ready(settings, f"Parley is at {url_of(settings)}  (Ctrl-C stops it)")
    return _become([sys.executable, "-m", "streamlit", "run", "app.py", *_flags(settings), *arguments])


def url_of(settings: Settings) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(settings.host, settings.host)  # noqa: S104 - only compared
    return f"http://{host}:{settings.port}"


def check_data_folder(folder: Path, least_free_bytes: int = LEAST_FREE_BYTES) -> None:
    """Raises `StoreUnavailable` when the folder cannot be written, is full, or another Parley uses it."""
    advice = "Make it writable, or choose another folder: PARLEY_DATA_DIR=/path/to/folder"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "parley.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        if error.errno in {errno.EAGAIN, errno.EACCES} and os.access(folder / "parley.lock", os.W_OK):
            raise StoreUnavailable(
                f"The data folder {folder} is in use by another Parley. Stop that one, or choose another folder: "
                "PARLEY_DATA_DIR=/path/to/folder"
            ) from None
        raise StoreUnavailable(f"The data folder {folder} cannot be written ({error.strerror}). {advice}") from None
    if free < least_free_bytes:
        raise StoreUnavailable(
            f"There is no space left for the data folder {folder}: {free / 1e6:.0f} MB are free. "
            "Make room, or choose another folder: PARLEY_DATA_DIR=/path/to/folder"
        )


def check_port(host: str, port: int) -> None:
    """Raises `SettingsError` when nothing can listen there; it names the setting to change."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise SettingsError(
                f"Port {port} on {host} is taken, perhaps by a Parley that already runs. Stop what uses it, "
                f"or choose another port: PARLEY_PORT={port + 1 if port < 65535 else 8600} make run"
            ) from None
        if error.errno == errno.EACCES:
            raise SettingsError(
                f"Port {port} is reserved for the system. Choose one from 1024: PARLEY_PORT=8501 make run"
            ) from None
        raise SettingsError(
            f"The setting PARLEY_HOST is wrong: this machine has no address {host!r}. Example: PARLEY_HOST=127.0.0.1"
        ) from None


def _flags(settings: Settings) -> list[str]:
    options = {
        "server.port": settings.port,
        "server.address": settings.host,
        "server.headless": "true",
        "server.fileWatcherType": "none",
        "browser.gatherUsageStats": "false",
        "logger.level": "warning",
        "logger.hideWelcomeMessage": "true",  # ours is shorter
    }
    return [f"--{name}={value}" for name, value in options.items()]


def _become(command: list[str]) -> NoReturn:
    os.chdir(PROJECT_FOLDER)
    os.execv(command[0], command)


def _announce_when_ready(settings: Settings, text: str) -> None:
    """Print `text` once the app answers, from a small process beside the one that will be busy serving."""
    server_pid = os.getpid()
    child_pid = os.fork()
    if child_pid:
        os.waitpid(child_pid, 0)
        return
    if os.fork():  # twice, so that init reaps it and not the server, which does not know of it
        os._exit(0)
    deadline = time.monotonic() + ANNOUNCE_SECONDS
    with suppress(KeyboardInterrupt, ProcessLookupError):
        while time.monotonic() < deadline:
            os.kill(server_pid, 0)
            # The port opens before the data folder does: only an answer of ours says that the start succeeded.
            with suppress(OSError), urllib.request.urlopen(f"{url_of(settings)}/api/health", timeout=2):  # noqa: S310
                print(text, flush=True)
                break
            time.sleep(0.05)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
