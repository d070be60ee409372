"""What the agent has in mind for one session: views of the active branch. Parley remembers nothing beside it.

The agent's long-term memory is not here: it belongs to the agent and is read and written through the Bridge.
"""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from chat_core.context import turns_above
from chat_core.models import Message, Session
from chat_core.store import messages
from chat_core.store.runs import compactions, last_tool_entries

LAST_TOOL_CALLS = 10


@dataclass(frozen=True, slots=True)
class Remembered:
    """One message of the list the agent's next run begins with."""

    role: str
    text: str
    tools: tuple[str, ...]
    """The tools this message calls, or the one whose result it is."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool call of the branch; `result` is None while it works, or when its run ended first."""

    message_uuid: str
    tool_name: str
    arguments: str
    result: str | None
    is_error: bool
    duration_ms: int | None
    at: datetime


@dataclass(frozen=True, slots=True)
class Summary:
    """What the agent kept of earlier messages when it condensed them; `condensed` is how many, None if unknown."""

    message_uuid: str
    text: str
    condensed: int | None
    at: datetime


@dataclass(frozen=True, slots=True)
class BranchMemory:
    """`tokens` of `window` were used at the end of the last run that told; None when none has since a reset."""

    working: list[Remembered]
    turns: int
    tokens: int | None
    window: int | None
    tools: list[ToolUse]
    """Newest first."""
    summaries: list[Summary]
    """Newest first."""


def branch_memory(db: sqlite3.Connection, session: Session) -> BranchMemory:
    """Return what the next run of the session's active branch gets, and what the branch has left behind."""
    leaf = messages.leaf_of(db, session.id)
    if leaf is None:
        return BranchMemory([], 0, None, None, [], [])
    turns = turns_above(db, leaf, session.runtime)
    path = messages.path_above(db, leaf, messages.NO_LIMIT)
    system = messages.system_children(db, [message.id for message in path])
    tokens, window = _gauge(path, system)
    return BranchMemory(
        working=[_remembered(message) for turn in turns for message in turn],
        turns=len(turns),
        tokens=tokens,
        window=window,
        tools=_tools(db, path),
        summaries=_summaries(db, [child for message in path for child in reversed(system.get(message.id, []))]),
    )


def condensed_counts(db: sqlite3.Connection, summaries: Sequence[Message]) -> dict[str, int]:
    """Return how many messages each SUMMARY message stands for, by its id, where the agent told."""
    counts = compactions(db, [message.parent_id for message in summaries if message.parent_id is not None])
    told: dict[str, int] = {}
    for message in sorted(summaries, key=lambda summary: summary.id):
        waiting = counts.get(message.parent_id or 0, [])
        count = waiting.pop(0) if waiting else None
        if count:
            told[message.uuid] = count
    return told


def _gauge(path: Sequence[Message], system: Mapping[int, Sequence[Message]]) -> tuple[int | None, int | None]:
    """Return tokens and window of the newest usage; `path` is nearest first."""
    for message in path:
        if any(child.status == "RESET" for child in system.get(message.id, ())):
            break
        usage = message.usage or {}
        if isinstance(usage.get("context_tokens"), int):
            window = usage.get("context_window")
            return usage["context_tokens"], window if isinstance(window, int) and window > 0 else None
    return None, None


def _remembered(message: Mapping[str, Any]) -> Remembered:
    calls = message.get("tool_calls")
    names = [_call_name(call) for call in calls] if isinstance(calls, list) else []
    if isinstance(message.get("name"), str):
        names.append(message["name"])
    elif isinstance(message.get("tool_name"), str):
        names.append(message["tool_name"])
    return Remembered(
        str(message.get("role", "")), _text(message.get("content")), tuple(name for name in names if name)
    )


def _call_name(call: Any) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else ""


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return "" if content is None else json.dumps(content, ensure_ascii=False, default=str)


def _tools(db: sqlite3.Connection, path: Sequence[Message]) -> list[ToolUse]:
    uuids = {message.id: message.uuid for message in path}
    results = {}
    uses: list[ToolUse] = []
    for entry in last_tool_entries(db, list(uuids), LAST_TOOL_CALLS):
        key = (entry.message_id, entry.call_id)
        if entry.kind == "tool_result":
            results[key] = entry
            continue
        result = results.get(key)
        lost = result is None or bool(result.meta.get("outcome"))
        uses.append(
            ToolUse(
                message_uuid=uuids[entry.message_id],
                tool_name=entry.tool_name,
                arguments=entry.content,
                result=None if result is None or lost else result.content,
                is_error=result is not None and not lost and result.is_error,
                duration_ms=None if result is None else result.duration_ms,
                at=entry.created_at,
            )
        )
    return uses


def _summaries(db: sqlite3.Connection, system: Sequence[Message]) -> list[Summary]:
    """`system` is newest first."""
    found = [message for message in system if message.status == "SUMMARY"]
    counts = condensed_counts(db, found)
    return [Summary(message.uuid, message.content, counts.get(message.uuid), message.created_at) for message in found]
