"""Installs what Parley needs and starts it: `python3 -m chat_core.launcher run`, which is what `make run` does.

Runs before anything is installed, with whatever Python is there: standard library only, and nothing newer than
Python 3.8, so that it can say what is missing instead of failing on its own syntax.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Tuple  # Python 3.8 cannot do tuple[...] outside annotations

PROJECT_FOLDER = Path(__file__).resolve().parent.parent
PYTHONS = ((3, 11), (3, 12), (3, 13))
PYTHONS_TEXT = "3.11, 3.12 or 3.13"
NEEDED_BYTES = 1500 * 1024 * 1024
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CHROMIUM_PACKAGES = ("chromium", "fonts-noto-cjk", "fonts-dejavu-core")


Wanted = Tuple[str, str, str]
"""What is shown, the environment's folder, and the requirements file it has to meet."""
APP: Wanted = ("App environment", ".venv", "requirements.txt")
APP_AND_TESTS: Wanted = ("App and test environment", ".venv", "requirements-dev.txt")
AGENT: Wanted = ("Agent environment", ".venv-bridge", "requirements-bridge.txt")


class CannotGoOn(Exception):
    """Something a person has to mend first; the message says what and how."""


class Environment:
    """A virtual environment that holds exactly what a requirements file asks for, and remembers that it does.

    The stamp names the hash of the requirements installed last. A marker stands while an installation works: when
    a later start finds it, that installation was cut off and the environment is made anew.
    """

    def __init__(self, folder: Path, log_file: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"
        self._log_file = log_file
        self._stamp = folder / ".parley-installed.json"
        self._marker = folder.with_name(folder.name + ".installing")

    def has(self, requirements: Path) -> bool:
        return self.python.exists() and not self._marker.exists() and self._holds(_wanted(requirements))

    def install(self, requirements: Path, base_python: str) -> None:
        """Raises `CannotGoOn` with the end of pip's output when it failed."""
        self._log_file.parent.mkdir(parents=True, exist_ok=True)
        with self._log_file.open("wb") as log:
            if self._marker.exists() or not self._works():
                shutil.rmtree(self.folder, ignore_errors=True)
                self._marker.touch()
                self._run([base_python, "-m", "venv", str(self.folder)], log)
            self._marker.touch()
            pip = [str(self.python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
            self._run([*pip, "-r", str(requirements)], log)
        self._stamp.write_text(json.dumps(_wanted(requirements)), "utf-8")
        self._marker.unlink()

    def _works(self) -> bool:
        if not self.python.exists():
            return False
        code = f"import sys, pip; sys.exit(sys.version_info[:2] not in {PYTHONS!r})"
        return subprocess.run([str(self.python), "-c", code], capture_output=True, check=False).returncode == 0

    def _holds(self, wanted: dict[str, str]) -> bool:
        try:
            installed = json.loads(self._stamp.read_text("utf-8"))
        except (OSError, ValueError):
            return False
        return isinstance(installed, dict) and wanted.items() <= installed.items()

    def _run(self, command: Sequence[str], log: IO[bytes]) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            close_fds=False,
            check=False,
        )
        if done.returncode:
            raise CannotGoOn(_why_install_failed(self._log_file))


def main(arguments: Sequence[str]) -> int:
    command, *rest = arguments or ["run"]
    commands = {
        "run": _run_app,
        "install": _install_for_tests,
        "test": _run_tests,
        "check": _run_checks,
        "module": _run_module,
    }
    if command not in commands:
        print("Use one of: " + ", ".join(commands), file=sys.stderr)
        return 2
    os.chdir(PROJECT_FOLDER)
    try:
        return commands[command](rest)
    except CannotGoOn as problem:
        print(f"\n{problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. Run the same command again to go on.", file=sys.stderr)
        return 130


# Commands


def _run_app(arguments: Sequence[str]) -> int:
    python = _install([APP, AGENT], steps=3)
    print("[3/3] Starting Parley", flush=True)
    os.execv(python, [python, "-m", "chat_core.serve", *arguments])


def _install_for_tests(arguments: Sequence[str]) -> int:
    python = _install([APP_AND_TESTS, AGENT], steps=3)
    with _step("[3/3] Browser for the tests"):
        find_or_install_chromium(python)
    return 0


def _run_tests(arguments: Sequence[str]) -> int:
    _install_for_tests([])
    python = str(PROJECT_FOLDER / APP_AND_TESTS[1] / "bin" / "python")
    # Two at a time, each file in one place: its tests share a program or a browser.
    os.execv(python, [python, "-m", "pytest", "-n", "2", "--dist", "loadfile", *arguments])


def _run_checks(arguments: Sequence[str]) -> int:
    python = _install([APP_AND_TESTS], steps=1)
    failed = []
    for command in (["ruff", "format", "--check", "."], ["ruff", "check", "."], ["mypy"]):
        print(f"--- {' '.join(command)}", flush=True)
        if subprocess.run([python, "-m", *command], check=False).returncode:
            failed.append(" ".join(command[:2]))
    if failed:
        print(f"Found something: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _run_module(arguments: Sequence[str]) -> int:
    """Run a module of ours in the environment it needs: backup, sample data, benchmarks, soak."""
    needs_all = arguments[0].split(".")[0] in {"bench", "tests"}
    wanted = [APP_AND_TESTS, AGENT] if needs_all else [APP]
    python = _install(wanted, steps=len(wanted), quiet=True)
    os.execv(python, [python, "-m", *arguments])


# Steps


def _install(wanted: Sequence[Wanted], steps: int, quiet: bool = False) -> str:
    """Bring the environments up to date, each as one step, and return the Python of the first one."""
    todo = [
        (
            f"[{number}/{steps}] {title}",
            Environment(PROJECT_FOLDER / folder, PROJECT_FOLDER / "build" / f"install{folder}.log"),
            PROJECT_FOLDER / requirements,
        )
        for number, (title, folder, requirements) in enumerate(wanted, start=1)
    ]
    base_python = ""
    for title, environment, requirements in todo:
        if environment.has(requirements):
            if not quiet:
                print(f"{title}: ready", flush=True)
            continue
        with _one_at_a_time(), _step(title):
            base_python = base_python or find_python()
            check_space(PROJECT_FOLDER)
            if not environment.has(requirements):  # somebody else may have done it meanwhile
                environment.install(requirements, base_python)
    return str(todo[0][1].python)


@contextlib.contextmanager
def _step(title: str) -> Iterator[None]:
    """Show the step while it works, with its seconds where the terminal can, and how long it took."""
    done = threading.Event()
    began_at = time.monotonic()

    def tick() -> None:
        while not done.wait(1):
            print(f"\r{title} … {time.monotonic() - began_at:.0f} s", end="", flush=True)

    print(title, end="", flush=True)
    ticker = threading.Thread(target=tick, daemon=True)
    if sys.stdout.isatty():
        ticker.start()
    try:
        yield
    except BaseException:
        done.set()
        print(f"{_line_start()}{title} … failed", flush=True)
        raise
    done.set()
    print(f"{_line_start()}{title} … {time.monotonic() - began_at:.0f} s", flush=True)


def _line_start() -> str:
    return "\r" if sys.stdout.isatty() else "\n"


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Let one launcher install at a time: two would spoil each other's environment."""
    folder = PROJECT_FOLDER / "build"
    folder.mkdir(exist_ok=True)
    with (folder / "install.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("Another installation is at work; waiting for it.", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        os.set_inheritable(lock.fileno(), True)  # a pip that outlives us keeps the others waiting
        yield


# What must be there


def find_python(
    current: tuple[int, int] = sys.version_info[:2], find: Callable[[str], str | None] = shutil.which
) -> str:
    """Return a Python that can run Parley: this one, else the newest on PATH. Raises `CannotGoOn`."""
    without_venv = ""
    candidates = [sys.executable] if current in PYTHONS else []
    candidates += [find(f"python{major}.{minor}") or "" for major, minor in reversed(PYTHONS)]
    for python in filter(None, candidates):
        # A name on PATH may be a shim that runs nothing.
        code = "import sys; print(sys.version_info[:2]); import venv, ensurepip"
        tried = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
        if not tried.stdout.startswith("("):
            continue
        if tried.returncode == 0:
            return python
        without_venv = without_venv or python
    if without_venv:
        raise CannotGoOn(
            f"{without_venv} cannot make virtual environments. On Debian and Ubuntu: apt install python3-venv"
        )
    here = ".".join(map(str, current))
    raise CannotGoOn(
        f"Parley needs Python {PYTHONS_TEXT}; this is {here}, and no other was found.\n"
        "Install one of them; when its name is not on PATH: make run PYTHON=/path/to/python3.12"
    )


def check_space(folder: Path, needed_bytes: int = NEEDED_BYTES) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise CannotGoOn(
            f"There is not enough space: installing needs {needed_bytes / 1e9:.1f} GB, "
            f"and {free / 1e9:.1f} GB are free in {folder}."
        )


def find_or_install_chromium(python: str) -> None:
    if any(map(shutil.which, CHROMIUMS)) or _playwright_chromium():
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        log_file = PROJECT_FOLDER / "build" / "install-chromium.log"
        log_file.parent.mkdir(exist_ok=True)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        with log_file.open("wb") as log:
            for command in (["update"], ["install", "-y", "--no-install-recommends", *CHROMIUM_PACKAGES]):
                subprocess.run(
                    ["apt-get", *command], stdout=log, stderr=subprocess.STDOUT, env=environment, check=False
                )
        if any(map(shutil.which, CHROMIUMS)):
            return
    raise CannotGoOn(
        "The browser tests need Chromium or Chrome, and none was found.\n"
        f"Install it (on Debian: apt install {' '.join(CHROMIUM_PACKAGES)}),\n"
        f"or run: {python} -m playwright install chromium"
    )


def _playwright_chromium() -> bool:
    home = Path.home()
    folders = (home / ".cache" / "ms-playwright", home / "Library" / "Caches" / "ms-playwright")
    return any(any(folder.glob("chromium-*")) for folder in folders)


def _wanted(requirements: Path) -> dict[str, str]:
    """Return a hash of the file and of those it includes, each by name."""
    text = requirements.read_text("utf-8")
    wanted = {requirements.name: hashlib.sha256(text.encode()).hexdigest()}
    for line in text.splitlines():
        if line.startswith("-r "):
            wanted.update(_wanted(requirements.with_name(line[3:].strip())))
    return wanted


def _why_install_failed(log_file: Path) -> str:
    output = log_file.read_text("utf-8", "replace")
    end = "\n".join("    " + line for line in output.strip().splitlines()[-8:])
    if "No space left on device" in output:
        problem = "There is no space left on the disk."
    elif any(sign in output for sign in _NO_REGISTRY):
        problem = (
            "The package registry (PyPI) cannot be reached. Check the network; "
            "behind a proxy or a mirror set HTTPS_PROXY or PIP_INDEX_URL."
        )
    else:
        problem = "The installation failed."
    return f"{problem} Nothing is lost: the same command starts over.\nThe end of {log_file}:\n{end}"


_NO_REGISTRY = (
    "Failed to establish a new connection",
    "Temporary failure in name resolution",
    "NewConnectionError",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "ProxyError",
    "No matching distribution found",
)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
