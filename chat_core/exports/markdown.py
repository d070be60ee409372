"""Writes a session as Markdown that reads well and can be read back: headings and notes are ours, the rest is kept."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from chat_core.exports.foreign_markdown import embedded, fenced, plain
from chat_core.models import LogEntry, Message, Question
from chat_core.store.transfer import MessageRecord, SessionRecord
from chat_core.text import preview

_WHO = {"USER": "User", "ASSISTANT": "Assistant", "SYSTEM": "System"}
_SYSTEM_TEXT = {
    "RESET": "The agent's context was reset here. What follows does not know what came before.",
    "SUMMARY": "The agent condensed what came before.",
}


def markdown_of(record: SessionRecord, *, whole_tree: bool = False) -> str:
    """Return the session's active branch, or its whole tree, as one Markdown document.

    Foreign text never becomes HTML, never loads an image and never ends up outside its message.
    """
    shown = tree_order(record.messages) if whole_tree else active_branch(record.messages)
    numbers = {item.message.id: number for number, item in enumerate(shown, start=1)}
    parts = [f"# {plain(record.session.title) or 'Untitled session'}", _session_note(record)]
    for item in shown:
        parts += _message(item, record.messages, numbers if whole_tree else None)
    return "\n\n".join(part for part in parts if part) + "\n"


def active_branch(messages: Sequence[MessageRecord]) -> list[MessageRecord]:
    """Return the messages of the active branch with the SYSTEM messages that hang on them, in reading order."""
    children = _children(messages)
    branch: list[MessageRecord] = []
    here = _active(children.get(None, []))
    while here is not None:
        below = children.get(here.message.id, [])
        branch += [here, *(item for item in below if item.message.role == "SYSTEM")]
        here = _active(below)
    return branch


def tree_order(messages: Sequence[MessageRecord]) -> list[MessageRecord]:
    """Return every message, each branch from its fork down before the next version, SYSTEM messages first."""
    children = _children(messages)
    ordered: list[MessageRecord] = []
    waiting = list(reversed(children.get(None, [])))
    while waiting:
        item = waiting.pop()
        ordered.append(item)
        waiting += reversed(children.get(item.message.id, []))
    return ordered


def _children(messages: Sequence[MessageRecord]) -> dict[int | None, list[MessageRecord]]:
    children: dict[int | None, list[MessageRecord]] = {}
    for item in messages:
        children.setdefault(item.message.parent_id, []).append(item)
    for items in children.values():
        items.sort(key=lambda item: (item.message.role != "SYSTEM", item.message.branch_order, item.message.id))
    return children


def _active(items: Sequence[MessageRecord]) -> MessageRecord | None:
    return next((item for item in items if item.message.is_active and item.message.role != "SYSTEM"), None)


def _session_note(record: SessionRecord) -> str:
    session = record.session
    parts = [f"Started {_time(session.created_at)}", f"last message {_time(session.last_message_at)}"]
    if session.model_id:
        parts.append(f"model {plain(session.model_id)}")
    return f"*{' · '.join(parts)}*"


def _message(item: MessageRecord, everything: Sequence[MessageRecord], numbers: dict[int, int] | None) -> list[str]:
    message = item.message
    parts = [_heading(message, everything, numbers), _note(message)]
    if message.role == "SYSTEM":
        parts.append(f"*{_SYSTEM_TEXT.get(message.status, '')}*")
    happened = _record(item)
    content = embedded(message.content)
    # Two foreign texts never meet without a line of ours between them: their lists would become one.
    parts += [*happened, "**Answer:**", content] if happened and content else [*happened, content]
    if message.error is not None:
        parts.append(f"**Ended with an error:** {plain(message.error.message)} ({plain(message.error.code)})")
    return parts


def _heading(message: Message, everything: Sequence[MessageRecord], numbers: dict[int, int] | None) -> str:
    who = _WHO[message.role]
    if numbers is None:
        return f"## {who}"
    versions = [
        item.message
        for item in everything
        if item.message.parent_id == message.parent_id and item.message.role != "SYSTEM"
    ]
    notes = []
    if message.role != "SYSTEM" and len(versions) > 1:
        chosen = ", chosen" if message.is_active else ""
        notes.append(f"version {message.branch_order} of {len(versions)}{chosen}")
    if message.parent_id is not None:
        notes.append(f"after {numbers[message.parent_id]}")
    return f"## {numbers[message.id]}\\. {who}" + (f" \\({'; '.join(notes)}\\)" if notes else "")


def _note(message: Message) -> str:
    parts = [_time(message.created_at)]
    if message.role == "ASSISTANT":
        if message.model_id:
            parts.append(f"model {plain(message.model_id)}")
        if message.skill_folder:
            parts.append(f"skill {plain(message.skill_folder)}")
        if message.completed_at is not None:
            parts.append(f"{(message.completed_at - message.created_at).total_seconds():.0f} s")
        parts.append(message.status.lower())
    return f"*{' · '.join(parts)}*"


def _record(item: MessageRecord) -> list[str]:
    """Return the tool calls and the questions of a message, in the order in which they happened."""
    results = {entry.call_id: entry for entry in item.log if entry.kind == "tool_result"}
    questions = {question.question_id: question for question in item.questions}
    parts: list[str] = []
    for entry in item.log:
        if entry.kind == "tool_call":
            parts += _tool_call(entry, results.get(entry.call_id))
        elif entry.kind in {"clarify_request", "approval_request"}:
            parts += _question(entry, questions.get(str(entry.meta.get("question_id", ""))))
        elif entry.kind == "answer_break":
            parts += ["**Before using tools:**", embedded(entry.content)]
    return parts


def _tool_call(call: LogEntry, result: LogEntry | None) -> list[str]:
    notes = []
    if result is None:
        notes.append("no result")
    else:
        if result.duration_ms is not None:
            notes.append(f"{result.duration_ms} ms")
        if result.is_error:
            notes.append("error")
    note = f" ({', '.join(notes)})" if notes else ""
    parts = [f"**Tool call:** {plain(call.tool_name) or 'unnamed'}{note}"]
    if call.content:
        parts.append(fenced(preview(_pretty(call.content)), "json"))
    if result is not None and result.content:
        parts.append(fenced(preview(result.content), "text"))
    return parts


def _question(entry: LogEntry, question: Question | None) -> list[str]:
    parts = ["**The agent asked:**", embedded(entry.content)]
    command = entry.meta.get("command")
    if command:
        parts.append(fenced(str(command), "text"))
    if question is not None and question.answer is not None:
        parts += ["**The answer:**", embedded(question.answer)]
    else:
        parts.append("**It was not answered.**")
    return parts


def _pretty(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return arguments


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
