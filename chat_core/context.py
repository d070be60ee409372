"""What the agent gets to remember: exactly the active branch above the new message, and nothing else.

A turn is a USER message with the ASSISTANT message below it. Its context is the agent's own message list when
the same runtime made it; else it is told in plain text, with the tool calls that were finished.
"""

import json
import sqlite3
from typing import Any

from chat_core.models import LogEntry, Message, TurnContext
from chat_core.store import contexts, messages
from chat_core.store.runs import log_of

Turn = list[dict[str, Any]]
OUTCOME_UNKNOWN = (
    "The outcome of this call is unknown: the work was cut off while it ran, and it may have had its effect. "
    "Find out before you repeat it, or ask the user."
)


def turns_above(db: sqlite3.Connection, message_id: int | None, runtime: str) -> list[Turn]:
    """Return the turns of the path from the first message down to `message_id` (inclusive), oldest first.

    A reset or a compaction on the path replaces everything before it.
    """
    if message_id is None:
        return []
    path = list(reversed(messages.path_above(db, message_id, messages.NO_LIMIT)))
    resets = messages.system_children(db, [message.id for message in path])
    stored = contexts.get_many(db, [message.id for message in path])
    turns: list[Turn] = []
    asked: Message | None = None
    for message in path:
        if message.role == "USER":
            if asked is not None:
                turns.append([_user(asked)])
            asked = message
        elif message.role == "ASSISTANT":
            context = stored.get(message.id)
            if context is not None and context.base:
                turns.clear()
            turns.append(_turn(db, asked, message, context, runtime))
            asked = None
        if any(child.status == "RESET" for child in resets.get(message.id, [])):
            turns.clear()
            asked = None
    if asked is not None:
        turns.append([_user(asked)])
    return [turn for turn in turns if turn]


def partial_turn(db: sqlite3.Connection, asked: Message, answer: Message, runtime: str) -> Turn:
    """Return what was kept of a turn that was stopped or interrupted, for the agent to go on from."""
    return _turn(db, asked, answer, contexts.get_many(db, [answer.id]).get(answer.id), runtime)


def _turn(
    db: sqlite3.Connection, asked: Message | None, answer: Message, context: TurnContext | None, runtime: str
) -> Turn:
    if context is not None and context.runtime == runtime:
        return context.messages
    question: Turn = [_user(asked)] if asked is not None else []
    if context is None:
        return question + _from_log(log_of(db, answer.id), answer)
    return question + ([{"role": "assistant", "content": answer.content}] if answer.content else [])


def _user(message: Message) -> dict[str, Any]:
    return {"role": "user", "content": message.content}


def _from_log(log: list[LogEntry], answer: Message) -> Turn:
    """Tell the tool calls of a turn and its text as the messages an agent would have kept.

    A call that was cut off is told too: its effect may have happened, and an agent that knew nothing of it would
    do it again.
    """
    results = {entry.call_id: entry for entry in log if entry.kind == "tool_result"}
    turn: Turn = []
    for entry in log:
        result = results.get(entry.call_id) if entry.kind == "tool_call" else None
        if result is not None:
            content = OUTCOME_UNKNOWN if result.meta.get("outcome") == "unknown" else result.content
            turn += [_call(entry), {"role": "tool", "tool_call_id": entry.call_id, "content": content}]
    if answer.content:
        turn.append({"role": "assistant", "content": answer.content})
    return turn


def _call(entry: LogEntry) -> dict[str, Any]:
    function = {"name": entry.tool_name, "arguments": entry.content or json.dumps({})}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": entry.call_id, "type": "function", "function": function}],
    }
