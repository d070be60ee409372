"""From a log entry to its block in the event stream: `id` is its seq, `data` one ASCII-escaped JSON object."""

import json
from typing import Any, Literal

from chat_core.bridge.protocol import dump_json
from chat_core.models import EntryKind, LogEntry, utc_text
from chat_core.text import preview

EventName = Literal["token", "progress", "tool_call", "done", "error", "resync"]

# Arguments beyond this are shown by their start; the record of the message has them whole.
_ARGS_CHARS = 8_192
_ARG_BYTES = 1_024


def encode_entry(entry: LogEntry, message_id: str) -> bytes:
    """Return the block of one entry. A joined entry carries the id of its last part, so the next one follows it."""
    body = {
        **fields_of(entry, message_id),
        "v": 1,
        "seq": entry.seq,
        "kind": entry.kind,
        "at": utc_text(entry.created_at),
    }
    if entry.seq_to is not None:
        body["seq_to"] = entry.seq_to
    return encode_block(entry.seq_to or entry.seq, event_name(entry.kind), body)


def encode_block(event_id: int, event: EventName, body: dict[str, Any]) -> bytes:
    return f"id: {event_id}\nevent: {event}\ndata: {dump_json(body)}\n\n".encode("ascii")


def event_name(kind: EntryKind) -> EventName:
    match kind:
        case "answer":
            return "token"
        case "tool_call" | "tool_result":
            return "tool_call"
        case "run_finished" | "run_stopped":
            return "done"
        case "run_failed" | "run_interrupted":
            return "error"
        case _:
            # Kinds that a newer version has written are progress too: shown, never dropped.
            return "progress"


def fields_of(entry: LogEntry, message_id: str) -> dict[str, Any]:
    """Return what this kind of entry says beyond its number, kind and time."""
    meta = entry.meta
    match entry.kind:
        case "answer":
            return {"text": entry.content}
        case "tool_call":
            return {"call_id": entry.call_id, "name": entry.tool_name, "args": _arguments(entry.content)}
        case "tool_result":
            return _result_fields(entry)
        case "todo_update":
            return {"todos": _todos(entry.content)}
        case "clarify_request" | "approval_request":
            return {"text": entry.content, "question": _question(entry)}
        case "run_finished" | "run_stopped":
            return {"status": meta.get("status", "SUCCESS"), "text": entry.content, "message_id": message_id}
        case "run_failed" | "run_interrupted":
            error = meta.get("error") or {}
            return {
                "code": error.get("code", "internal"),
                "message": error.get("message", ""),
                "message_id": message_id,
                "status": meta.get("status", "FAILED"),
                "text": entry.content,
            }
        case _:
            # Texts with their notes, and whatever a newer version has written.
            return {**meta, "text": entry.content}


def _result_fields(entry: LogEntry) -> dict[str, Any]:
    shown = preview(entry.content)
    fields: dict[str, Any] = {
        "call_id": entry.call_id,
        "name": entry.tool_name,
        "result": shown,
        "duration_ms": entry.duration_ms,
        "is_error": entry.is_error,
        "cut": shown != entry.content or "result_ref" in entry.meta,
    }
    fields.update({name: entry.meta[name] for name in ("result_ref", "bytes", "lines") if name in entry.meta})
    return fields


def _question(entry: LogEntry) -> dict[str, Any]:
    meta = entry.meta
    return {
        "question_id": meta.get("question_id", ""),
        "kind": "clarify" if entry.kind == "clarify_request" else "approval",
        "question": entry.content,
        "choices": meta.get("choices") or [],
        "detail": {name: value for name, value in meta.items() if name not in {"question_id", "choices"}},
    }


def _arguments(content: str) -> dict[str, Any]:
    """Read a call's arguments; what is no object stands under `value`, what is long is cut to its start."""
    if len(content) > _ARGS_CHARS * 16:
        return {"value": preview(content)}
    value = _parsed(content)
    args = value if isinstance(value, dict) else {"value": content if value is None else value}
    if len(content) <= _ARGS_CHARS:
        return args
    short = {name: preview(item, _ARG_BYTES) if isinstance(item, str) else item for name, item in args.items()}
    return short if len(dump_json(short)) <= _ARGS_CHARS * 2 else {"value": preview(content)}


def _todos(content: str) -> list[Any]:
    value = _parsed(content)
    return value if isinstance(value, list) else []


def _parsed(content: str) -> Any:
    try:
        return json.loads(content) if content else None
    except (ValueError, RecursionError):
        return None
