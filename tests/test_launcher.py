"""The launcher: finds a Python, installs once, starts over what was cut off, and says plainly what is wrong."""

import ast
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from chat_core import launcher
from chat_core.launcher import CannotGoOn, Environment, check_space, find_python

LAUNCHER = Path(launcher.__file__)


def python_named(folder: Path, name: str, script: str) -> str:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o700)
    return str(file)


# --- finding a Python ---


def test_it_can_be_read_by_python_3_8() -> None:
    ast.parse(LAUNCHER.read_text("utf-8"), feature_version=(3, 8))


def test_the_python_at_hand_is_used_when_it_fits() -> None:
    assert find_python(current=(3, 12), find=lambda name: None) == sys.executable


def test_another_python_is_found_when_the_one_at_hand_is_too_old(tmp_path: Path) -> None:
    shim = python_named(tmp_path, "python3.13", "echo 'python3.13: command not found' >&2; exit 127")
    real = python_named(tmp_path, "python3.12", f'exec "{sys.executable}" "$@"')
    found = {"python3.13": shim, "python3.12": real}
    assert find_python(current=(3, 9), find=found.get) == real


def test_no_fitting_python_is_said_with_the_versions_that_fit() -> None:
    with pytest.raises(CannotGoOn, match=r"needs Python 3\.11, 3\.12 or 3\.13; this is 3\.9"):
        find_python(current=(3, 9), find=lambda name: None)


def test_a_python_without_venv_is_said_with_the_package_to_install(tmp_path: Path) -> None:
    bare = python_named(tmp_path, "python3.11", "echo '(3, 11)'; exit 1")
    with pytest.raises(CannotGoOn, match="apt install python3-venv"):
        find_python(current=(3, 14), find={"python3.11": bare}.get)


def test_too_little_space_is_said_with_both_figures(tmp_path: Path) -> None:
    with pytest.raises(CannotGoOn, match=r"needs 9000000\.0 GB, and .* GB are free"):
        check_space(tmp_path, needed_bytes=9 * 10**15)


# --- installing ---


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages in place of the registry."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


def add_package(folder: Path, name: str) -> None:
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", "")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


def can_import(environment: Environment, name: str) -> bool:
    command = [environment.python, "-c", f"import {name}"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_what_is_installed_is_not_installed_again_until_it_changes(tmp_path: Path, packages: Path) -> None:
    add_package(packages, "alpha")
    add_package(packages, "beta")
    run, test = tmp_path / "run.txt", tmp_path / "test.txt"
    run.write_text("alpha==1.0\n")
    test.write_text("-r run.txt\nbeta\n")
    environment = Environment(tmp_path / "venv", tmp_path / "build" / "install.log")

    assert not environment.has(run)
    environment.install(test, sys.executable)
    assert environment.has(test)
    assert environment.has(run)
    assert can_import(environment, "beta")

    run.write_text("alpha\n")
    assert not environment.has(run)
    assert not environment.has(test)
    environment.install(run, sys.executable)
    assert environment.has(run)


def test_an_installation_that_was_cut_off_is_made_anew(tmp_path: Path, packages: Path) -> None:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("missing-package\n")
    environment = Environment(tmp_path / "venv", tmp_path / "build" / "install.log")
    with pytest.raises(CannotGoOn):
        environment.install(requirements, sys.executable)
    half_done = environment.folder / "half-done"
    half_done.touch()
    requirements.write_text("")

    assert not environment.has(requirements)
    environment.install(requirements, sys.executable)
    assert environment.has(requirements)
    assert not half_done.exists()


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ("x: Failed to establish a new connection: [Errno -3] Temporary failure", "cannot be reached"),
        ("ERROR: No matching distribution found for streamlit==1.67.0", "cannot be reached"),
        ("ERROR: Could not install packages: [Errno 28] No space left on device", "no space left"),
        ("error: something else", "The installation failed"),
    ],
)
def test_a_failed_installation_names_its_cause_and_shows_the_end(tmp_path: Path, output: str, sentence: str) -> None:
    log_file = tmp_path / "install.log"
    log_file.write_text("first line\n" * 50 + output)
    told = launcher._why_install_failed(log_file)
    assert sentence in told
    assert output in told
    assert told.count("first line") < 10


def test_an_unknown_command_lists_the_known_ones() -> None:
    command = [sys.executable, "-m", "chat_core.launcher", "fly"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 2
    assert "run, install, test, check" in done.stderr
