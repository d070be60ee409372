"""Writes hermes-agent's `config.yaml`: what must be off, and how large each model's context is.

Settings of ours win; whatever else stands in the file stays; a file that cannot be read is put aside.
`AIAgent` refuses contexts below 64,000 tokens, so smaller models are announced with that size; `max_tokens` and
the small prompt keep them within their real one.
"""

import logging
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from chat_core.bridge.model_catalog import Endpoint
from chat_core.bridge.settings import BridgeSettings

LEAST_CONTEXT = 64_000
ASSUMED_CONTEXT = 128_000
_PREFIX = "parley-"
_HINT = (
    "You answer inside Parley, a chat page in a browser. Full Markdown is rendered: headings, lists, tables, "
    "fenced code blocks with a language. Answer in the language of the question."
)

_log = logging.getLogger("parley.bridge.agent_config")


class AgentConfig:
    """The file, rewritten only when something in it changes."""

    def __init__(self, settings: BridgeSettings) -> None:
        self._path = settings.hermes_home / "config.yaml"
        self._settings = settings
        self._lock = threading.Lock()
        self._endpoints: dict[tuple[str, str], int] = {}
        self._written: dict[str, Any] | None = None

    def announce(self, endpoints: Iterable[Endpoint]) -> None:
        """Make the file say how large the contexts of these endpoints are, besides those announced before."""
        with self._lock:
            for endpoint in endpoints:
                window = endpoint.context_window or ASSUMED_CONTEXT
                self._endpoints[endpoint.base_url, endpoint.model] = max(window, LEAST_CONTEXT)
            self._write()

    def _write(self) -> None:
        config = _merged(_read(self._path), self._own())
        others = [entry for entry in config.get("custom_providers") or [] if not _is_own(entry)]
        config["custom_providers"] = others + self._providers()
        if config == self._written:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = self._path.with_suffix(".yaml.new")
        draft.write_text(yaml.safe_dump(config, sort_keys=False, allow_unicode=True), "utf-8")
        os.replace(draft, self._path)
        self._written = config

    def _own(self) -> dict[str, Any]:
        return {
            "agent": {
                "environment_probe": False,
                "coding_context": "off",
                "api_max_retries": self._settings.model_retries,
            },
            "memory": {"nudge_interval": 0},
            "skills": {"creation_nudge_interval": 0},
            "approvals": {"mode": "manual", "timeout": 86400},
            "logging": {"level": "WARNING"},
            "security": {"tirith_enabled": False, "allow_lazy_installs": False},
            "platform_hints": {"webui": {"replace": _HINT}},
        }

    def _providers(self) -> list[dict[str, Any]]:
        by_url: dict[str, dict[str, Any]] = {}
        for (base_url, model), context_length in sorted(self._endpoints.items()):
            entry = by_url.setdefault(
                base_url, {"name": f"{_PREFIX}{len(by_url) + 1}", "base_url": base_url, "models": {}}
            )
            entry["models"][model] = {"context_length": context_length}
        return list(by_url.values())


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (UnicodeDecodeError, yaml.YAMLError):
        aside = path.with_name(path.name + ".unreadable")
        os.replace(path, aside)
        _log.warning("%s could not be read; it is now %s", path.name, aside.name)
        return {}
    return content if isinstance(content, dict) else {}


def _merged(theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    merged = dict(theirs)
    for key, value in ours.items():
        there = merged.get(key)
        merged[key] = _merged(there, value) if isinstance(value, dict) and isinstance(there, dict) else value
    return merged


def _is_own(entry: object) -> bool:
    return isinstance(entry, dict) and str(entry.get("name", "")).startswith(_PREFIX)
