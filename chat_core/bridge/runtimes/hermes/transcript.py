"""Carries the agent's own messages into a run and out of it again."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from chat_core.bridge.protocol import RunRequest

_KEPT = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning", "reasoning_content")
_KEPT_OF_CALL = ("id", "type", "function")
_ROLES = frozenset({"user", "assistant", "tool"})


def history_of(request: RunRequest) -> list[dict[str, Any]]:
    """Return the messages before this turn, copied: hermes-agent writes into what it is given, and sends unknown
    keys to the provider."""
    return [kept for turn in request.contexts for message in turn if (kept := _kept(message)) is not None]


def context_of(
    request: RunRequest, history: Sequence[Mapping[str, Any]], messages: Any, compacted: bool
) -> dict[str, Any]:
    """Return `{base, messages}`: what this turn adds to the context, or after a compaction the whole of it."""
    whole = [kept for message in messages or [] if (kept := _kept(message)) is not None]
    if compacted:
        return {"base": True, "messages": whole}
    question = {"role": "user", "content": request.message}
    start = _start_of_turn(whole, request.message)
    if start is None:
        start = len(history)
    if start < len(whole) and whole[start] == question:
        return {"base": False, "messages": whole[start:]}
    # hermes-agent joins our message to a user message that the history ended with
    joined = start < len(whole) and whole[start].get("role") == "user"
    return {"base": False, "messages": [question, *whole[start + 1 if joined else start :]]}


def _start_of_turn(messages: Sequence[Mapping[str, Any]], question: str) -> int | None:
    """Return where the question stands: hermes-agent mends histories, so their length tells nothing for sure."""
    for index in range(len(messages) - 1, -1, -1):
        content = messages[index].get("content")
        if messages[index].get("role") != "user" or not isinstance(content, str):
            continue
        if content == question or content.endswith("\n\n" + question):
            return index
    return None


def _kept(message: Any) -> dict[str, Any] | None:
    if not isinstance(message, Mapping) or message.get("role") not in _ROLES:
        return None
    kept = {key: copy.deepcopy(message[key]) for key in _KEPT if message.get(key) is not None}
    if "content" not in kept:
        kept["content"] = ""
    if calls := kept.get("tool_calls"):
        kept["tool_calls"] = [
            {key: call[key] for key in _KEPT_OF_CALL if key in call} for call in calls if isinstance(call, Mapping)
        ]
    return kept
