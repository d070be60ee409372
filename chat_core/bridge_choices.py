"""What can be chosen at the Bridge, remembered so that no page waits for a Bridge that is away."""

import threading
import time

from chat_core.bridge.client import BridgeClient
from chat_core.bridge.protocol import ModelChoice, SkillChoice
from chat_core.errors import ParleyError

CHOICES_SECONDS = 10.0


class BridgeChoices:
    """The Bridge's models and skills, asked at most every 10 s; a page never waits for a Bridge that is away."""

    def __init__(self, client: BridgeClient | None) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._asked_at = -CHOICES_SECONDS
        self._models: list[ModelChoice] = []
        self._skills: list[SkillChoice] = []

    def models(self) -> list[ModelChoice]:
        self._refresh()
        return self._models

    def skills(self) -> list[SkillChoice]:
        self._refresh()
        return self._skills

    def _refresh(self) -> None:
        with self._lock:
            fresh = time.monotonic() - self._asked_at < CHOICES_SECONDS and self._models
            if self._client is None or fresh:
                return
            try:
                self._models, self._skills = self._client.models(), self._client.skills()
                self._asked_at = time.monotonic()
            except ParleyError:
                return
