"""The one place that imports hermes-agent, and the parts of it the runtime works with.

hermes-agent reads `HERMES_HOME` and its configuration while it is imported, and the import takes a second; so it
is imported late, by `load_engine`, and everything else gets the `Engine`.
"""

import importlib
import os
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from chat_core.bridge.settings import BridgeSettings

_LOCAL_SILENCE_SECONDS = 300.0
_DROPPED = ("HERMES_", "OPENAI_", "OPENROUTER_", "PARLEY_")


@dataclass(frozen=True, slots=True)
class Engine:
    """hermes-agent, imported. Foreign code without types: `Any` ends at the callers of these."""

    agent_class: Any
    approval: Any
    session_context: Any
    terminal: Any
    files: Any
    todo: Any
    memory: Any
    skills: Any
    skill_commands: Any


def prepare_environment(
    settings: BridgeSettings, secret_names: Iterable[str] = (), environ: MutableMapping[str, str] = os.environ
) -> None:
    """Make the process environment what hermes-agent should see, before it is imported.

    Inherited switches (such as one that approves every command) and secrets of ours go: what stays is passed on
    to the agent's shell. Commands that reach hermes-agent's guard outside of a bound session are refused.
    """
    for name in {name for name in environ if name.startswith(_DROPPED)} | set(secret_names):
        environ.pop(name, None)
    environ["HERMES_HOME"] = str(settings.hermes_home)
    environ["HERMES_EXEC_ASK"] = "1"
    environ["HERMES_STREAM_STALE_TIMEOUT"] = f"{settings.model_timeout_seconds:g}"
    # hermes-agent takes exactly 180 for "not set" and then looks for the value for servers in the local network.
    local = max(settings.model_timeout_seconds, _LOCAL_SILENCE_SECONDS)
    environ["HERMES_LOCAL_STREAM_STALE_TIMEOUT"] = f"{local:g}"


def load_engine() -> Engine:
    """Import hermes-agent. Takes a second, and holds the interpreter while it does."""
    import agent.skill_commands
    import gateway.session_context
    import run_agent
    import tools.approval
    import tools.file_tools
    import tools.memory_tool
    import tools.skills_tool
    import tools.terminal_tool
    import tools.todo_tool

    for name in ("HERMES_YOLO_MODE", "HERMES_CRON_SESSION", "HERMES_INTERACTIVE"):
        os.environ.pop(name, None)  # a .env file in the home may have set it
    # Its own log files would hold what tools were called with; its errors reach our log, redacted, through the root.
    vars(importlib.import_module("hermes_logging"))["_add_rotating_handler"] = _no_log_file
    _hasten(importlib.import_module("agent.think_scrubber").StreamingThinkScrubber)
    _hasten(importlib.import_module("agent.memory_manager").StreamingContextScrubber)
    _ask_only_ollama(importlib.import_module("agent.agent_init"))
    return Engine(
        agent_class=run_agent.AIAgent,
        approval=tools.approval,
        session_context=gateway.session_context,
        terminal=tools.terminal_tool,
        files=tools.file_tools,
        todo=tools.todo_tool,
        memory=tools.memory_tool,
        skills=tools.skills_tool,
        skill_commands=agent.skill_commands,
    )


def _hasten(scrubber: Any) -> None:
    """Let a scrubber of streamed text look for the beginning of a tag only where one can be.

    It searches every delta, letter by letter: a seventh of the processor time of a fast stream.
    """
    search = scrubber._max_partial_suffix
    scrubber._max_partial_suffix = staticmethod(lambda text, tags: search(text, tags) if "<" in text else 0)


def _ask_only_ollama(agent_init: Any) -> None:
    """Let a new agent ask a server for Ollama's context size only if it says that it is Ollama.

    hermes-agent finds out with ten requests of two seconds each, which a silent server makes it wait for.
    """
    ask = agent_init.query_ollama_num_ctx

    def ask_if_ollama(model: str, base_url: str, api_key: str = "") -> Any:
        address = base_url.rstrip("/").removesuffix("/v1") + "/api/version"
        try:
            is_ollama = "version" in httpx.get(address, timeout=1.0, trust_env=False).json()
        except (httpx.HTTPError, ValueError, TypeError):
            return None
        return ask(model, base_url, api_key=api_key) if is_ollama else None

    agent_init.query_ollama_num_ctx = ask_if_ollama


def _no_log_file(*_args: Any, **_options: Any) -> None:
    """Stand in for hermes-agent's function that opens a log file."""


def working_folder(settings: BridgeSettings, agent_session: str) -> Path:
    """Return the folder the session's commands and files live in, made if needed."""
    folder = settings.data_dir / "work" / agent_session
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder
