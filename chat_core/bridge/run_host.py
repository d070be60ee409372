"""Holds the runs of one process: a thread for each, their events, their questions, and how to stop them.

This is the Bridge's own host, and also what tests use directly. It knows runtimes by their interface only.
"""

import contextvars
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from chat_core.bridge.event_buffer import EventBuffer
from chat_core.bridge.protocol import Event, EventKind, OpenQuestion, RunRequest, RunSnapshot, Runtime
from chat_core.bridge.secret_shield import SecretShield
from chat_core.errors import AlreadyAnswered, InvalidInput, LimitReached, NotFound, QuestionClosed, RunUnknown

KEPT_SECONDS = 3600.0
_JOIN_AFTER_SECONDS = 60.0
_WAIT_SECONDS = 1.0

_log = logging.getLogger("parley.bridge.run_host")


class _Question:
    def __init__(self, question: OpenQuestion) -> None:
        self.open = question
        self.answer: str | None = None


class _Run:
    """One run; it is also the `RunControl` its runtime works with."""

    def __init__(self, request: RunRequest, max_bytes: int) -> None:
        self.request = request
        self.buffer = EventBuffer(max_bytes)
        self.ended_at: float | None = None  # host clock
        self.joined = False
        self.thread: threading.Thread | None = None
        self.shield = SecretShield(())
        self._emitting = threading.Lock()
        self._changed = threading.Condition()
        self._questions: dict[str, _Question] = {}
        self._stop_requested = False
        self._stop_callbacks: list[Callable[[], None]] = []

    # --- RunControl ---

    def emit(self, kind: EventKind, **data: Any) -> None:
        with self._emitting:
            for shown_kind, shown in self.shield.pass_through(kind, data):
                if not self.buffer.append(shown_kind, shown):
                    _log.debug("run %s: dropped a %s event after its end", self.request.run_id, kind)

    def ask(self, kind: Literal["clarify", "approval"], question: str, choices: list[str], **data: Any) -> str | None:
        open_question = OpenQuestion(question_id=uuid.uuid4().hex, kind=kind, question=question, choices=choices)
        asked = _Question(open_question)
        with self._changed:
            if self._stop_requested or self.buffer.ended:
                return None
            self._questions[open_question.question_id] = asked
        event_kind: EventKind = "clarify_request" if kind == "clarify" else "approval_request"
        self.emit(event_kind, question_id=open_question.question_id, question=question, choices=choices, **data)
        with self._changed:
            while asked.answer is None and not self._stop_requested and not self.buffer.ended:
                self._changed.wait(_WAIT_SECONDS)
            return asked.answer

    @property
    def stop_requested(self) -> bool:
        return self._stop_requested

    def on_stop(self, callback: Callable[[], None]) -> None:
        with self._changed:
            if not self._stop_requested:
                self._stop_callbacks.append(callback)
                return
        self._call_back([callback])

    # --- the host's side ---

    def stop(self) -> None:
        with self._changed:
            if self._stop_requested or self.buffer.ended:
                return
            self._stop_requested = True
            callbacks, self._stop_callbacks = self._stop_callbacks, []
            self._changed.notify_all()
        self._call_back(callbacks)

    def _call_back(self, callbacks: list[Callable[[], None]]) -> None:
        # In a thread of their own: interrupting an agent may take its time, and a stop must not.
        if callbacks:
            threading.Thread(target=self._run_callbacks, args=(callbacks,), daemon=True, name="run-stop").start()

    def _run_callbacks(self, callbacks: list[Callable[[], None]]) -> None:
        for callback in callbacks:
            try:
                callback()
            except Exception:
                _log.exception("run %s: a stop callback failed", self.request.run_id)

    def answer(self, question_id: str, answer: str) -> None:
        with self._changed:
            asked = self._questions.get(question_id)
            if asked is None:
                raise NotFound(f"run {self.request.run_id!r} has no question {question_id!r}")
            if asked.answer is not None:
                if asked.answer != answer:
                    raise AlreadyAnswered(f"question {question_id!r} is already answered", answer=asked.answer)
                return
            if self._stop_requested or self.buffer.ended:
                raise QuestionClosed(f"question {question_id!r} is closed: its run has ended")
            _check_answer(asked.open, answer)
            asked.answer = answer
            self._changed.notify_all()

    def snapshot(self) -> RunSnapshot:
        with self._changed:
            waiting = [asked.open for asked in self._questions.values() if asked.answer is None]
        ended = self.buffer.ended
        if ended or self._stop_requested:
            waiting = []
        status: Literal["running", "waiting", "ended"] = "ended" if ended else "waiting" if waiting else "running"
        return RunSnapshot(run_id=self.request.run_id, status=status, last_seq=self.buffer.last_seq, questions=waiting)

    def let_go(self) -> None:
        """Keep only what late readers need: an ended run stays for an hour, its agent and its history must not."""
        with self._changed:
            self._stop_callbacks.clear()
            self.request = self.request.model_copy(update={"message": "", "contexts": []})
            self._changed.notify_all()


class LocalRunHost:
    """Runs runtimes in threads of this process; implements `RunHost`.

    Readers get every event from any cursor, live or late, until `kept_seconds` after the end of the run. A slow
    reader costs the run nothing. What `secrets` returns is taken out of every event. `max_bytes_per_run` bounds
    what a run's events take (see `event_buffer`).
    """

    def __init__(
        self,
        runtimes: Mapping[str, Runtime],
        *,
        max_active_runs: int = 50,
        max_bytes_per_run: int = 8 * 1024 * 1024,
        kept_seconds: float = KEPT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        secrets: Callable[[], list[str]] = list,
    ) -> None:
        self._runtimes = dict(runtimes)
        self._secrets = secrets
        self._max_active_runs = max_active_runs
        self._max_bytes_per_run = max_bytes_per_run
        self._kept_seconds = kept_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}

    @property
    def runtimes(self) -> list[str]:
        return sorted(self._runtimes)

    @property
    def active_runs(self) -> int:
        with self._lock:
            return self._count_active()

    def start(self, request: RunRequest) -> None:
        self.start_new(request)

    def start_new(self, request: RunRequest) -> bool:
        """Begin the run and return True; False when this run_id is known already and nothing changed."""
        runtime = self._runtimes.get(request.runtime)
        if runtime is None:
            raise InvalidInput(f"there is no runtime {request.runtime!r}", runtime=request.runtime)
        with self._lock:
            self._sweep()
            if request.run_id in self._runs:
                return False
            active = self._count_active()
            if active >= self._max_active_runs:
                raise LimitReached(f"{active} runs are active, the most this Bridge takes", limit=active)
            run = self._runs[request.run_id] = _Run(request, self._max_bytes_per_run)
            # A fresh context: agents keep their session in context variables.
            target = contextvars.Context().run
            run.thread = threading.Thread(target=target, args=(self._work, runtime, run), daemon=True, name="run")
            run.thread.start()
        return True

    def events(self, run_id: str, after: int = 0) -> Iterator[Event]:
        return self._follow(self.buffer(run_id), after)

    def buffer(self, run_id: str) -> EventBuffer:
        """Return the run's events for readers that do their own waiting."""
        return self._get(run_id).buffer

    def snapshot(self, run_id: str) -> RunSnapshot:
        return self._get(run_id).snapshot()

    def stop(self, run_id: str) -> None:
        self._get(run_id).stop()

    def answer(self, run_id: str, question_id: str, answer: str) -> None:
        self._get(run_id).answer(question_id, answer)

    def forget(self, agent_session: str) -> None:
        for runtime in self._runtimes.values():
            runtime.forget(agent_session)

    def stop_all(self) -> None:
        with self._lock:
            runs = [run for run in self._runs.values() if not run.buffer.ended]
        for run in runs:
            run.stop()

    def close(self, timeout_seconds: float) -> None:
        """Stop every run and wait for their ends, at most `timeout_seconds` in all."""
        self.stop_all()
        deadline = time.monotonic() + timeout_seconds
        with self._lock:
            threads = [run.thread for run in self._runs.values() if run.thread is not None]
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _get(self, run_id: str) -> _Run:
        with self._lock:
            self._sweep()
            run = self._runs.get(run_id)
        if run is None:
            raise RunUnknown(f"the Bridge holds no run {run_id!r}", run_id=run_id)
        return run

    def _follow(self, buffer: EventBuffer, after: int) -> Iterator[Event]:
        while True:
            events = buffer.read(after)
            for event in events:
                yield event
                after = event.seq
                if event.is_terminal:
                    return
            if events:
                continue
            if buffer.ended and after >= buffer.last_seq:
                return
            woken = threading.Event()
            take_back = buffer.wake_once(after, woken.set)
            woken.wait(_WAIT_SECONDS)
            take_back()

    def _work(self, runtime: Runtime, run: _Run) -> None:
        try:
            run.shield = SecretShield(self._secrets())
            runtime.run(run.request, run)
        except Exception as error:
            _log.exception("run %s: the runtime %s failed", run.request.run_id, runtime.name)
            message = f"Something went wrong inside the Bridge ({type(error).__name__}). Its log has the details."
            run.emit("error", code="internal", message=message, context={})
        finally:
            if not run.buffer.ended:
                run.emit("error", code="internal", message="The agent stopped without giving an answer.", context={})
            run.let_go()
            run.ended_at = self._clock()

    def _count_active(self) -> int:
        return sum(not run.buffer.ended for run in self._runs.values())

    def _sweep(self) -> None:
        now = self._clock()
        for run_id, run in list(self._runs.items()):
            if run.ended_at is None:
                continue
            if now - run.ended_at >= self._kept_seconds:
                del self._runs[run_id]
            elif not run.joined and now - run.ended_at >= _JOIN_AFTER_SECONDS:
                run.joined = True
                run.buffer.join()


def _check_answer(question: OpenQuestion, answer: str) -> None:
    if not answer.strip():
        raise InvalidInput("an answer must not be empty")
    if question.kind == "approval" and answer not in question.choices:
        raise InvalidInput(f"{answer[:40]!r} is not one of {', '.join(question.choices)}")
