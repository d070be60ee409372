"""Follows one run at its host and turns each event into log entries, until it has ended and is stored as ended."""

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from chat_core.bridge.protocol import Event, RunHost, RunRequest
from chat_core.errors import BridgeUnavailable, LeaseLost, LimitReached, ParleyError, RunUnknown, StoreUnavailable
from chat_core.fail_point import fail_point
from chat_core.log_writer import LogWriter, Refused
from chat_core.models import EndStatus, EntryKind, ErrorNote, LogEntry, NewEntry, QuestionKind, TurnContext
from chat_core.store.questions import NewQuestion
from chat_core.store.rows import dump
from chat_core.store.runs import Append, End, Lease
from chat_core.text import DeltaText, storable, storable_json
from chat_core.titles import title_from

START_PATIENCE_SECONDS = 30.0
START_RETRY_SECONDS = 0.5
FLUSH_SECONDS = 60.0

_log = logging.getLogger("parley.runner")


class Runner:
    """The worker of one run. Only it writes to the run, and only while it holds the lease."""

    def __init__(self, host: RunHost, writer: LogWriter, lease: Lease, runtime: str, first_text: str) -> None:
        self._host = host
        self._writer = writer
        self.lease = lease
        self._runtime = runtime
        self._title = title_from(first_text)
        self._thinking = DeltaText()
        self._answering = DeltaText()
        self._answer: list[str] = []
        self._open_calls: dict[str, str] = {}
        self._usage: dict[str, Any] | None = None
        self._ended = False
        self._ending = threading.Lock()
        self._reconnecting = False
        self._started = False
        self.stop_requested = threading.Event()
        self.closing = threading.Event()

    # -- the work ------------------------------------------------------------------------------------------------

    def work(self, request: RunRequest) -> None:
        """Start the run at the host and follow it to its end. Every way out but `closing` leaves the run ended."""
        self._guarded(lambda: self._start_and_follow(request))

    def resume(self, after: int, log: list[LogEntry]) -> None:
        """Follow a run that is already at work, from the last event that was stored."""
        self._replay(log)
        self._guarded(lambda: self._follow(after))

    def interrupt(self, log: list[LogEntry], note: ErrorNote) -> None:
        """End a run whose host is gone, with everything that was stored."""
        self._replay(log)
        self._finish("INTERRUPTED", self._text(), error=note)

    @property
    def was_started(self) -> bool:
        """The host has accepted the run."""
        return self._started

    def abandon(self, note: ErrorNote) -> None:
        """End the run as STOPPED without the host, which cannot be reached; whatever it sends later is refused."""
        self._finish("STOPPED", "".join(self._answer), error=note)

    def _guarded(self, steps: Callable[[], None]) -> None:
        try:
            steps()
            if not self._ended and not self.closing.is_set():
                self._finish("INTERRUPTED", self._text(), error=_note("bridge_lost", _LOST))
        except LeaseLost as lost:
            _log.info("%s: this worker stands down", lost.message)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self.closing.is_set():
            return
        if self._ended and not isinstance(error, Refused):
            # The end is queued: the log writer stores it as soon as the database takes it.
            if isinstance(error, StoreUnavailable):
                _log.warning("the end of run %s is not stored yet: %s", self.lease.run_id, error.message)
            return
        self._ended = False
        status: EndStatus = "FAILED"
        if isinstance(error, RunUnknown):
            status, note = "INTERRUPTED", _note("bridge_lost", _LOST)
        elif isinstance(error, LimitReached):
            note = _note("bridge_full", "The Bridge has no room for another run. Try again in a moment.")
        elif isinstance(error, BridgeUnavailable):
            status = "INTERRUPTED" if self._started else "FAILED"
            note = _note(error.code, error.message)
        elif isinstance(error, ParleyError):
            note = _note(error.code, error.message)
        else:
            _log.exception("run %s failed", self.lease.run_id)
            note = _note("internal", "Parley itself failed while it followed this run. The log file has the details.")
        try:
            if self.stop_requested.is_set():
                self._finish("STOPPED", self._text(), error=note)
            else:
                self._finish(status, self._text(), error=note)
        except LeaseLost as lost:
            _log.info("%s: this worker stands down", lost.message)
        except ParleyError:
            _log.exception("the end of run %s could not be stored", self.lease.run_id)

    def _start_and_follow(self, request: RunRequest) -> None:
        deadline = time.monotonic() + START_PATIENCE_SECONDS
        told = False
        fail_point("run.before_start")
        while True:
            try:
                self._host.start(request)
                break
            except BridgeUnavailable as away:
                if self.closing.is_set():
                    return
                if self.stop_requested.is_set():
                    self._finish("STOPPED", "")
                    return
                if away.values.get("permanent") or time.monotonic() >= deadline:
                    raise
                if not told:
                    self._submit(
                        NewEntry("status", "Waiting for the Bridge to start.", meta={"code": "bridge_starting"})
                    )
                    told = True
                self.closing.wait(START_RETRY_SECONDS)
        self._started = True
        fail_point("run.started")
        if self.stop_requested.is_set():
            self._host.stop(request.run_id)
        self._follow(0)

    def _follow(self, after: int) -> None:
        self._started = True
        for event in self._host.events(self.lease.run_id, after):
            self._apply(event)
            if self._ended:
                return

    def reconnecting(self, seconds: float) -> None:
        """The host cannot be read just now (`seconds` > 0 or at once), or can be read again (0.0 after that)."""
        if seconds == 0.0 and self._reconnecting:
            self._reconnecting = False
            self._submit(NewEntry("status", "Connected to the Bridge again.", meta={"code": "bridge_back"}))
        elif not self._reconnecting and seconds >= 1.0:
            self._reconnecting = True
            self._submit(
                NewEntry("status", "The connection to the Bridge is lost; trying again.", meta={"code": "bridge_away"})
            )

    # -- events --------------------------------------------------------------------------------------------------

    def _apply(self, event: Event) -> None:
        data = event.data
        at = datetime.fromtimestamp(event.at, UTC) if event.at > 0 else None
        match event.kind:
            case "thinking":
                self._delta(event, NewEntry("thinking", self._thinking.push(_text(data, "text")), created_at=at))
            case "answer":
                text = self._answering.push(_text(data, "text"))
                self._answer.append(text)
                self._delta(event, NewEntry("answer", text, created_at=at))
            case "final":
                self._final(event)
            case "error":
                self._error(event)
            case _:
                self._put(event, self._entry(event, at))

    def _entry(self, event: Event, at: datetime | None) -> NewEntry:
        """The log entry of an event that is neither a delta nor terminal."""
        data = event.data
        match event.kind:
            case "answer_break":
                remark = self._text()
                self._answer = []
                return NewEntry("answer_break", remark, created_at=at)
            case "status":
                return NewEntry("status", storable(_text(data, "text")), meta=_rest(data, "text"), created_at=at)
            case "tool_call":
                return self._tool_call(data, at)
            case "tool_result":
                return self._tool_result(data, at)
            case "todo_update":
                return NewEntry("todo_update", dump(storable_json(data.get("todos") or [])), created_at=at)
            case "clarify_request" | "approval_request":
                kind: EntryKind = "clarify_request" if event.kind == "clarify_request" else "approval_request"
                question = storable(_text(data, "question") or _text(data, "description"))
                return NewEntry(kind, question, meta=_rest(data, "question"), created_at=at)
            case "context_compacted":
                summary = storable(_text(data, "summary"))
                return NewEntry("context_compacted", summary, meta=_rest(data, "summary"), created_at=at)
            case "usage":
                self._usage = storable_json(data)
                return NewEntry("usage", meta=storable_json(data), created_at=at)
            case "subagent":
                return NewEntry("subagent", meta=storable_json(data), created_at=at)
            case _:
                meta = {"code": "unknown_event", "kind": storable(event.kind), "data": storable_json(data)}
                return NewEntry("status", storable(_text(data, "text")), meta=meta, created_at=at)

    def _tool_call(self, data: dict[str, Any], at: datetime | None) -> NewEntry:
        name, call_id = storable(_text(data, "name")), storable(_text(data, "call_id"))
        self._open_calls[call_id] = name
        args = dump(storable_json(data.get("args") if data.get("args") is not None else {}))
        return NewEntry("tool_call", args, tool_name=name, call_id=call_id, created_at=at)

    def _tool_result(self, data: dict[str, Any], at: datetime | None) -> NewEntry:
        name, call_id = storable(_text(data, "name")), storable(_text(data, "call_id"))
        self._open_calls.pop(call_id, None)
        result = data.get("result")
        duration = data.get("duration_ms")
        return NewEntry(
            "tool_result",
            storable(result) if isinstance(result, str) else dump(storable_json(result)),
            tool_name=name,
            call_id=call_id,
            duration_ms=round(duration) if isinstance(duration, int | float) else None,
            is_error=bool(data.get("is_error")),
            created_at=at,
        )

    def _delta(self, event: Event, entry: NewEntry) -> None:
        self._submit(*([entry] if entry.content else []), bridge_seq=event.seq)

    def _put(self, event: Event, entry: NewEntry) -> None:
        questions: tuple[NewQuestion, ...] = ()
        if entry.kind in ("clarify_request", "approval_request"):
            questions = (_question(entry),)
        summaries = (entry.content,) if entry.kind == "context_compacted" else ()
        self._submit(*self._held_back(), entry, bridge_seq=event.seq, questions=questions, summaries=summaries)

    def _held_back(self) -> list[NewEntry]:
        """Half an emoji that the next delta never completed."""
        held = [NewEntry("thinking", self._thinking.flush()), NewEntry("answer", self._answering.flush())]
        self._answer.append(held[1].content)
        return [entry for entry in held if entry.content]

    # -- the end -------------------------------------------------------------------------------------------------

    def _final(self, event: Event) -> None:
        interrupted = bool(event.data.get("interrupted"))
        text = storable(_text(event.data, "text")) or (self._text() if interrupted else "")
        self._finish(
            "STOPPED" if interrupted else "SUCCESS",
            text,
            context=_context(event.data, self._runtime),
            model_id=storable(_text(event.data, "model")),
            bridge_seq=event.seq,
        )

    def _error(self, event: Event) -> None:
        note = ErrorNote(storable(_text(event.data, "code")) or "agent_failed", storable(_text(event.data, "message")))
        status: EndStatus = "STOPPED" if self.stop_requested.is_set() else "FAILED"
        self._finish(
            status, self._text(), error=note, context=_context(event.data, self._runtime), bridge_seq=event.seq
        )

    def _finish(
        self,
        status: EndStatus,
        text: str,
        *,
        error: ErrorNote | None = None,
        context: TurnContext | None = None,
        model_id: str = "",
        bridge_seq: int | None = None,
    ) -> None:
        with self._ending:
            if self._ended:
                return  # the one who stops and the one who follows may both come to the end
            self._ended = True
        entries = self._held_back()
        entries += [
            NewEntry("tool_result", "", name, call_id, is_error=True, meta={"outcome": "unknown"})
            for call_id, name in list(self._open_calls.items())
        ]
        self._open_calls = {}
        end = End(
            status=status,
            text=text,
            error=error,
            usage=self._usage,
            context=context,
            model_id=model_id,
            title=self._title if text and status in ("SUCCESS", "STOPPED") else "",
        )
        self._writer.submit(Append(self.lease, tuple(entries), bridge_seq=bridge_seq, end=end))
        self._writer.flush(self.lease, FLUSH_SECONDS)

    def _text(self) -> str:
        return "".join(self._answer)

    def _replay(self, log: list[LogEntry]) -> None:
        """Bring back what the earlier worker knew when it stored its last entry."""
        for entry in log:
            if entry.kind == "answer":
                self._answer.append(entry.content)
            elif entry.kind == "answer_break":
                self._answer = []
            elif entry.kind == "tool_call":
                self._open_calls[entry.call_id] = entry.tool_name
            elif entry.kind == "tool_result":
                self._open_calls.pop(entry.call_id, None)
            elif entry.kind == "usage":
                self._usage = entry.meta

    def _submit(
        self,
        *entries: NewEntry,
        bridge_seq: int | None = None,
        questions: tuple[NewQuestion, ...] = (),
        summaries: tuple[str, ...] = (),
    ) -> None:
        self._writer.submit(
            Append(self.lease, entries, bridge_seq=bridge_seq, questions=questions, summaries=summaries)
        )


_LOST = "The Bridge was restarted while it worked on this. What it had done so far is kept."


def _note(code: str, message: str) -> ErrorNote:
    return ErrorNote(code, message)


def _text(data: dict[str, Any], name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else "" if value is None else str(value)


def _rest(data: dict[str, Any], *without: str) -> dict[str, Any]:
    rest: dict[str, Any] = storable_json({key: value for key, value in data.items() if key not in without})
    return rest


def _context(data: dict[str, Any], runtime: str) -> TurnContext | None:
    context = data.get("context")
    if not isinstance(context, dict) or not isinstance(context.get("messages"), list):
        return None
    return TurnContext(runtime, storable_json(context["messages"]), bool(context.get("base")))


def _question(entry: NewEntry) -> NewQuestion:
    meta = entry.meta
    choices = tuple(str(choice) for choice in meta.get("choices") or ())
    detail = {key: value for key, value in meta.items() if key not in ("question_id", "choices")}
    kind: QuestionKind = "clarify" if entry.kind == "clarify_request" else "approval"
    return NewQuestion(str(meta.get("question_id", "")), kind, entry.content, choices, detail)
