"""What is checked before the app is served, and how it is said."""

import fcntl
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from chat_core.config import load_settings
from chat_core.errors import SettingsError, StoreUnavailable
from chat_core.serve import PROJECT_FOLDER, check_data_folder, check_port, url_of


def test_a_free_port_is_accepted() -> None:
    check_port("127.0.0.1", free_port())


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def test_a_taken_port_is_refused_with_the_setting_to_change() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(SettingsError, match=rf"Port {port} .* is taken.*PARLEY_PORT="):
            check_port("127.0.0.1", port)


def test_an_address_this_machine_does_not_have_is_refused_with_the_setting_to_change() -> None:
    with pytest.raises(SettingsError, match=r"PARLEY_HOST is wrong.*192\.0\.2\.1"):
        check_port("192.0.2.1", 8501)


def test_a_new_data_folder_is_made(tmp_path: Path) -> None:
    check_data_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_a_data_folder_another_parley_uses_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "parley.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StoreUnavailable, match="in use by another Parley"):
            check_data_folder(tmp_path)
    check_data_folder(tmp_path)


def test_a_data_folder_that_cannot_be_written_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable, match=r"cannot be written \(Not a directory\).*PARLEY_DATA_DIR"):
        check_data_folder(tmp_path / "file" / "data")


def test_a_full_disk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="no space left"):
        check_data_folder(tmp_path, least_free_bytes=2**60)


def test_the_address_shown_is_one_a_browser_can_open() -> None:
    assert url_of(load_settings({"host": "0.0.0.0", "port": 9000})) == "http://127.0.0.1:9000"


def test_a_wrong_setting_stops_the_start_with_its_name_and_an_example(tmp_path: Path) -> None:
    environment = {**os.environ, "PARLEY_PORT": "eighty", "PARLEY_DATA_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "chat_core.serve"]
    done = subprocess.run(
        command, cwd=PROJECT_FOLDER, env=environment, capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 1
    assert "PARLEY_PORT is wrong" in done.stderr
    assert "Example: PARLEY_PORT=8501" in done.stderr
    assert "Traceback" not in done.stderr
