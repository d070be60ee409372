"""Turns the callbacks of one run of `AIAgent` into events.

hermes-agent calls from several threads: text and reasoning from the thread of the request, everything else from
the run's own. Exceptions in callbacks are swallowed there, so nothing here may rely on raising.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from chat_core.bridge.protocol import RunControl

_STALLED = "⚠ Stream stalled mid tool-call"
_DROPPED = "⚠ Connection dropped mid tool-call"
"""Remarks of hermes-agent inside the answer text. After a drop the model says everything again."""
_SILENCE = ("⚠️ No response from provider for", "⚠️ No first byte from provider")
_WAIT_MARKS = ("⏳", "⚠")
_SUBAGENT = "subagent."
_STOPPED_RESULT = "[Stopped before it ended]"

Level = Literal["info", "warning", "error"]


@dataclass(slots=True)
class _OpenCall:
    name: str
    started_at: float


class Narrator:
    """Emits the events of one run and remembers what the end of the run needs: text, open calls, memory use."""

    def __init__(self, control: RunControl, redact: Callable[[str], str]) -> None:
        self._control = control
        self._redact = redact
        self._text: list[str] = []
        self._thought = False
        self._calls: dict[str, _OpenCall] = {}
        self._seen_calls: set[str] = set()
        self._told_results: Counter[str] = Counter()
        self._unreported_seen: Counter[str] = Counter()
        self._measured: dict[str, Any] = {}
        self._mirrored: Counter[str] = Counter()
        self.silences = 0
        """How often the model was given up as silent and asked again."""
        self.on_silence: Callable[[], None] = lambda: None
        self.on_unanswered: Callable[[], None] = lambda: None
        """Called in the run's thread when a stop took a question away: the agent must not ask its model again."""
        self.memory_used = False
        self.compacted = False
        self._compaction_pending = False

    def bind(self, agent: Any) -> None:
        """Make the agent report to this narrator; replaces whatever it reported to before."""
        agent.stream_delta_callback = self._on_delta
        agent.reasoning_callback = self._on_reasoning
        agent.thinking_callback = self._on_wait
        agent.step_callback = self._on_step
        agent.tool_start_callback = self._on_tool_start
        agent.tool_complete_callback = self._on_tool_complete
        agent.tool_progress_callback = self._on_progress
        agent.status_callback = self._on_status
        agent.event_callback = self._on_event
        agent.clarify_callback = self._on_clarify
        agent.interim_assistant_callback = None
        agent.tool_gen_callback = self._on_tool_generated

        kind = type(agent)

        def mirror(message: str) -> None:
            # Retries are held back until the turn has failed; people want to know while they wait.
            self._on_retry(message)
            kind._buffer_status(agent, message)

        def compress(messages: list[Any], *args: Any, **kwargs: Any) -> Any:
            compressed = kind._compress_context(agent, messages, *args, **kwargs)
            self._tell_compaction(agent, len(messages), compressed)
            return compressed

        agent._buffer_status = mirror
        agent._compress_context = compress

    def unbind(self, agent: Any) -> None:
        """Let go of the agent, so that a late callback of this run cannot speak in the next one."""
        for name in ("_buffer_status", "_compress_context"):
            agent.__dict__.pop(name, None)
        for name in (
            "stream_delta_callback", "reasoning_callback", "thinking_callback", "step_callback",
            "tool_start_callback", "tool_complete_callback", "tool_progress_callback", "status_callback",
            "event_callback", "clarify_callback", "tool_gen_callback",
        ):  # fmt: skip
            setattr(agent, name, None)

    @property
    def text(self) -> str:
        """The answer text since the last break."""
        return "".join(self._text)

    def status(self, text: str, level: Level = "info", code: str = "") -> None:
        data = {"code": code} if code else {}
        self._control.emit("status", text=self._redact(text.strip()), level=level, **data)

    def finish(self, result: Mapping[str, Any], new_messages: Sequence[Mapping[str, Any]]) -> None:
        """Emit what was held back: reasoning that came inside the text, and an end for every tool call."""
        reasoning = result.get("last_reasoning")
        if not self._thought and isinstance(reasoning, str) and reasoning.strip():
            self._control.emit("thinking", text=reasoning)
        self._tell_unreported(new_messages)
        results = {str(message.get("tool_call_id")): message for message in new_messages}
        for call_id, call in list(self._calls.items()):
            content = results.get(call_id, {}).get("content")
            self._end_call(call_id, call.name, content if isinstance(content, str) else _STOPPED_RESULT, True)

    # --- text ---

    def _on_delta(self, text: str | None) -> None:
        if text is None:
            self._break()
            return
        if text.lstrip().startswith((_STALLED, _DROPPED)):
            self.status(text, "warning")
            if _DROPPED in text:
                self._break()
            return
        if not self._text:
            text = text.lstrip("\n")  # hermes-agent puts an empty line before the text after tools
        if text:
            self._text.append(text)
            self._control.emit("answer", text=text)

    def _break(self) -> None:
        if self._text:
            self._text = []
            self._control.emit("answer_break")

    def _on_reasoning(self, text: str) -> None:
        if text:
            self._thought = True
            self._control.emit("thinking", text=text)

    # --- status ---

    def _on_wait(self, text: str) -> None:
        if text.startswith(_WAIT_MARKS) and not text.endswith("reconnecting..."):  # a spinner, or told by the retry
            self.status(text, "warning" if text.startswith("⚠") else "info")

    def _on_retry(self, message: str) -> None:
        self._mirrored[message] += 1
        self.status(message, "warning", code="retry")
        if message.startswith(_SILENCE):
            self.silences += 1
            self.on_silence()

    def _on_status(self, kind: str, message: str) -> None:
        if self._mirrored[message] > 0:
            self._mirrored[message] -= 1
            return
        level: Level = "error" if "❌" in message else "warning" if kind == "warn" or "⚠" in message else "info"
        self.status(message, level)

    def _on_event(self, name: str, _data: Mapping[str, Any]) -> None:
        if name == "session:compress":
            self._compaction_pending = True

    def _tell_compaction(self, agent: Any, messages_before: int, compressed: Any) -> None:
        if not self._compaction_pending:
            return
        self._compaction_pending = False
        self.compacted = True
        kept = compressed[0] if isinstance(compressed, tuple) and compressed else []
        summary = getattr(agent.context_compressor, "_previous_summary", None)
        self._control.emit(
            "context_compacted",
            summary=summary if isinstance(summary, str) else "",
            condensed=max(0, messages_before - len(kept) + 1),
        )

    # --- tools ---

    def _on_tool_generated(self, name: str) -> None:
        self.status(f"Preparing {name}", code="tool_preparing")

    def _on_tool_start(self, call_id: str, name: str, args: Any) -> None:
        self._break()
        self._calls[call_id] = _OpenCall(name, time.monotonic())
        self._seen_calls.add(call_id)
        self._control.emit("tool_call", call_id=call_id, name=name, args=_copied(args))

    def _on_tool_complete(self, call_id: str, name: str, _args: Any, result: Any) -> None:
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
        measured = self._measured.pop(name, None) or {}
        is_error = bool(measured.get("is_error")) or _reports_error(text)
        self._end_call(call_id, name, text, is_error, measured.get("duration"))
        if name == "todo":
            self._tell_todos(text)
        if name == "memory" and not is_error:
            self.memory_used = True

    def _end_call(self, call_id: str, name: str, text: str, is_error: bool, duration: object = None) -> None:
        call = self._calls.pop(call_id, None)
        started = call.started_at if call else time.monotonic()
        seconds = duration if isinstance(duration, int | float) else time.monotonic() - started
        self._told_results[name] += 1
        self._control.emit(
            "tool_result", call_id=call_id, name=name, result=text, duration_ms=round(seconds * 1000), is_error=is_error
        )

    def _on_progress(self, event: str, name: Any = None, preview: Any = None, args: Any = None, **more: Any) -> None:
        # "reasoning.available" carries the answer's text, whatever its name says: it is not passed on.
        if event == "tool.completed":
            self._measured[str(name)] = more
        elif event.startswith(_SUBAGENT):
            data = {key: value for key, value in _copied(more).items() if key not in {"event", "kind"}}
            self._control.emit("subagent", event=event.removeprefix(_SUBAGENT), name=name, preview=preview, **{
                key: value for key, value in data.items() if key not in {"name", "preview"}
            })  # fmt: skip

    def _on_step(self, iteration: int, previous: Sequence[Mapping[str, Any]] | None) -> None:
        """Tell of the calls that no other callback reports: unknown tools, arguments that are not JSON."""
        if iteration <= 1:
            return  # what hermes calls previous here are the last calls of an earlier turn
        told = Counter(self._told_results)
        self._told_results.clear()
        for tool in previous or []:
            name = str(tool.get("name") or "unknown")
            if told[name] > 0:
                told[name] -= 1
                continue
            self._unreported_seen[name] += 1
            number = sum(self._unreported_seen.values())
            self._tell_failed_call(f"unreported-{number}", name, tool.get("arguments"), str(tool.get("result") or ""))

    def _tell_unreported(self, messages: Sequence[Mapping[str, Any]]) -> None:
        calls = {
            str(call.get("id")): call.get("function") or {}
            for message in messages
            for call in message.get("tool_calls") or []
        }
        for message in messages:
            call_id = str(message.get("tool_call_id") or "")
            if message.get("role") != "tool" or call_id in self._seen_calls:
                continue
            function = calls.get(call_id, {})
            name = str(function.get("name") or message.get("name") or "unknown")
            if self._unreported_seen[name] > 0:
                self._unreported_seen[name] -= 1
                continue
            self._tell_failed_call(call_id, name, function.get("arguments"), str(message.get("content") or ""))

    def _tell_failed_call(self, call_id: str, name: str, arguments: Any, result: str) -> None:
        self._break()
        self._control.emit("tool_call", call_id=call_id, name=name, args=_as_object(arguments))
        self._control.emit("tool_result", call_id=call_id, name=name, result=result, duration_ms=0, is_error=True)

    def _tell_todos(self, result: str) -> None:
        try:
            todos = json.loads(result).get("todos")
        except (ValueError, AttributeError):
            return
        if isinstance(todos, list):
            self._control.emit("todo_update", todos=todos)

    # --- questions ---

    def _on_clarify(self, question: str, choices: Sequence[str] | None) -> str:
        answer = self._control.ask("clarify", str(question), [str(choice) for choice in choices or []])
        if answer is None:
            self.on_unanswered()
            return "(The user stopped the run without answering.)"
        return answer


def _reports_error(result: str) -> bool:
    if not result.startswith("{") or '"error"' not in result[:2000]:
        return False
    try:
        value = json.loads(result)
    except ValueError:
        return False
    return bool(value.get("error")) and not value.get("success")


def _copied(value: Any) -> Any:
    """Return a JSON copy: what the agent does with its own object later must not change the event."""
    try:
        return json.loads(json.dumps(value, default=str))
    except (ValueError, TypeError, RecursionError):
        return {}


def _as_object(arguments: Any) -> Any:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return {"arguments": arguments}
    return _copied(arguments) if isinstance(arguments, dict) else {}
