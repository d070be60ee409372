"""The app's log file: one handler for everybody, with keys and tokens taken out of every record."""

import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path

from chat_core.errors import StoreUnavailable
from chat_core.redaction import Redaction

LOG_BYTES = 10 * 1024 * 1024
KEPT_FILES = 3
_OURS = ("chat_core", "parley")


def set_up_app_log(folder: Path, level: str, secrets: list[str]) -> None:
    """Write our records from `level` on, and the warnings of all libraries, to `<folder>/app.log`.

    Handlers that libraries have put up for themselves get the same filter, so that no output of the process
    shows a secret. `secrets` are the values known beforehand; keys are also recognised by their shape. Raises
    `StoreUnavailable` when the file cannot be written.
    """
    redaction = Redaction([secret for secret in secrets if secret])
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = RotatingFileHandler(folder / "app.log", maxBytes=LOG_BYTES, backupCount=KEPT_FILES, encoding="utf-8")
        (folder / "app.log").chmod(0o600)
    except OSError as error:
        raise StoreUnavailable(
            f"The log file {folder / 'app.log'} cannot be written ({error.strerror}). Make it and its folder writable."
        ) from error
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(file)
    for name in _OURS:
        logging.getLogger(name).setLevel(level)
    named = [logger for logger in logging.root.manager.loggerDict.values() if isinstance(logger, logging.Logger)]
    for logger in (root, *named):
        for handler in logger.handlers:
            handler.addFilter(redaction)
        if logger.handlers and not logger.propagate:
            logger.addHandler(file)
