"""Keeps keys that the Bridge knows out of the events of a run, whoever says them: a model, a tool, a file it read."""

import base64
import re
import threading
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from chat_core.bridge.event_buffer import JOINABLE_EVENTS
from chat_core.text import NESTED_TOO_DEEPLY

HIDDEN = "[key]"
SHORTEST_SECRET = 8
"""Shorter values would take harmless words out of every answer."""


class SecretShield:
    """Replaces each secret, plain, base64 or URL-encoded, by `[key]`; also when it comes in pieces.

    The end of a text delta that could be the beginning of a secret is held back until the next event shows
    whether it was one. Safe from any thread.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = sorted({form for secret in secrets for form in _forms(secret)}, key=len, reverse=True)
        self._forms = forms
        self._pattern = re.compile("|".join(map(re.escape, forms)))
        self._first_letters = {form[0] for form in forms}
        self._longest = max(map(len, forms), default=0)
        self._held: dict[str, str] = {}
        self._lock = threading.Lock()

    def pass_through(self, kind: str, data: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        """Return the events to record for this one, in order: what was held back may come before it."""
        if not self._forms:
            return [(kind, data)]
        with self._lock:
            if kind in JOINABLE_EVENTS and isinstance(data.get("text"), str):
                text = self._clean(self._held.pop(kind, "") + data["text"])
                keep = self._beginning_at_the_end(text)
                if keep:
                    self._held[kind] = text[-keep:]
                    text = text[:-keep]
                return [(kind, {**data, "text": text})] if text else []
            released = [(held_kind, {"text": text}) for held_kind, text in self._held.items()]
            self._held.clear()
            return [*released, (kind, {name: self._shown(value) for name, value in data.items()})]

    def _shown(self, value: Any) -> Any:
        try:
            return self._walk(value)
        except RecursionError:
            return NESTED_TOO_DEEPLY

    def _clean(self, text: str) -> str:
        return self._pattern.sub(HIDDEN, text)

    def _beginning_at_the_end(self, text: str) -> int:
        """Return how many of the last characters are the beginning of a secret."""
        start = max(0, len(text) - self._longest + 1)
        for position in range(start, len(text)):
            tail = text[position:]
            if tail[0] in self._first_letters and any(form.startswith(tail) for form in self._forms):
                return len(tail)
        return 0

    def _walk(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._clean(value)
        if isinstance(value, list):
            return [self._walk(item) for item in value]
        if isinstance(value, dict):
            return {self._clean(str(key)): self._walk(item) for key, item in value.items()}
        return value


def _forms(secret: str) -> list[str]:
    if len(secret) < SHORTEST_SECRET:
        return []
    encoded = base64.b64encode(secret.encode()).decode().rstrip("=")
    # Cut where the next byte would change it, so that it is found inside of longer base64 too.
    return [secret, quote(secret, safe=""), encoded[: len(secret.encode()) * 4 // 3]]
