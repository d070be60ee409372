"""What a run looks like now, put together from its log entries: for the page when the live panel has no stream."""

import json
from dataclasses import dataclass, field
from typing import Any

from chat_core.models import LogEntry

_THINKING_TAIL = 2000


@dataclass(slots=True)
class ToolPicture:
    call_id: str
    name: str
    arguments: str
    result: str = ""
    duration_ms: int | None = None
    is_error: bool = False
    is_done: bool = False


@dataclass(slots=True)
class RunPicture:
    """Feed it entries in order; applying one twice changes nothing."""

    after: int = 0
    thinking: str = ""
    answer: str = ""
    status: str = ""
    tools: list[ToolPicture] = field(default_factory=list)
    todos: list[dict[str, Any]] = field(default_factory=list)
    has_ended: bool = False

    def apply(self, entry: LogEntry) -> None:
        last = entry.seq_to or entry.seq
        if last <= self.after:
            return
        self.after = last
        match entry.kind:
            case "thinking":
                self.thinking = (self.thinking + entry.content)[-_THINKING_TAIL:]
            case "answer":
                self.answer += entry.content
                self.status = ""
            case "answer_break":
                self.answer = ""
            case "status":
                self.status = entry.content
            case "tool_call":
                self.tools.append(ToolPicture(entry.call_id, entry.tool_name, entry.content))
            case "tool_result":
                self._finish_tool(entry)
            case "todo_update":
                self.todos = _todos(entry.content)
            case _:
                self.has_ended = self.has_ended or entry.is_terminal

    @property
    def current_tool(self) -> ToolPicture | None:
        """The tool that is at work, if one is."""
        return next((tool for tool in reversed(self.tools) if not tool.is_done), None)

    def _finish_tool(self, entry: LogEntry) -> None:
        for tool in reversed(self.tools):
            if tool.call_id == entry.call_id and not tool.is_done:
                tool.result, tool.duration_ms, tool.is_error = entry.content, entry.duration_ms, entry.is_error
                tool.is_done = True
                return


def _todos(content: str) -> list[dict[str, Any]]:
    try:
        todos = json.loads(content)
    except ValueError:
        return []
    return [todo for todo in todos if isinstance(todo, dict)] if isinstance(todos, list) else []
