"""Keeps keys and tokens out of the log."""

import logging
import re
from collections.abc import Callable


class Redaction(logging.Filter):
    """Takes keys and tokens out of every record, also out of arguments and tracebacks."""

    _patterns = re.compile(
        r"(Bearer\s+|api[_-]?key[\"'=:\s]+)\S+|\b(?:sk|xai|gsk|ghp)[-_][A-Za-z0-9_\-]{8,}", re.IGNORECASE
    )

    def __init__(self, known: list[str]) -> None:
        super().__init__()
        self._known: list[Callable[[], list[str]]] = [lambda: known]

    def also(self, more: Callable[[], list[str]]) -> None:
        self._known.append(more)

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        record.msg, record.args = self._clean(text), None
        if record.exc_text:
            record.exc_text = self._clean(record.exc_text)
        return True

    def _clean(self, text: str) -> str:
        for secret in [secret for known in self._known for secret in known()]:
            if len(secret) >= 4:
                text = text.replace(secret, "[secret]")
        return self._patterns.sub("[secret]", text)
