"""The log file of the app holds what happened and no secret."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from chat_core.app_log import set_up_app_log
from chat_core.errors import StoreUnavailable

MARKER = "sk-marker-0123456789abcdef"


@pytest.fixture
def log_file(tmp_path: Path) -> Iterator[Path]:
    root = logging.getLogger()
    before = list(root.handlers)
    set_up_app_log(tmp_path / "logs", "INFO", ["the-bridge-token"])
    yield tmp_path / "logs" / "app.log"
    for handler in set(root.handlers) - set(before):
        root.removeHandler(handler)
        handler.close()


def test_our_records_are_written_to_a_private_file(log_file: Path) -> None:
    logging.getLogger("parley.runner").info("run %s began", "r1")
    assert "run r1 began" in log_file.read_text()
    assert log_file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["parley.runner", "chat_core.api", "httpx", "somebody.else"])
def test_no_logger_writes_a_secret(log_file: Path, name: str) -> None:
    log = logging.getLogger(name)
    log.warning("key %s and token the-bridge-token", MARKER)
    log.warning("Authorization: Bearer abc.def.ghi")
    try:
        raise ValueError(f"refused with {MARKER}")
    except ValueError:
        log.exception("it failed")
    text = log_file.read_text()
    assert "it failed" in text
    for secret in (MARKER, "the-bridge-token", "abc.def.ghi"):
        assert secret not in text


def test_a_log_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("in the way")
    with pytest.raises(StoreUnavailable, match=r"app\.log"):
        set_up_app_log(tmp_path / "logs", "INFO", [])
