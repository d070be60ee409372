"""The shared background threads: one for each run at work, and one that keeps their leases alive."""

import contextlib
import logging
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from chat_core.bridge.protocol import RunHost, RunRequest
from chat_core.errors import BridgeUnavailable, LeaseLost, ParleyError, RunUnknown, StoreUnavailable
from chat_core.event_bus import EventBus
from chat_core.fail_point import fail_point
from chat_core.log_writer import LogWriter
from chat_core.models import ErrorNote, Question, Run
from chat_core.runner import Runner
from chat_core.store.runs import Lease
from chat_core.store.store import Store

LEASE_SECONDS = 60.0
BEAT_SECONDS = 5.0

_log = logging.getLogger("parley.run_pool")


class RunPool:
    """Works on runs in background threads. `owner` names this process in the leases."""

    def __init__(
        self,
        store: Store,
        writer: LogWriter,
        bus: EventBus,
        host: RunHost,
        clock: Callable[[], datetime],
        max_active_runs: int,
    ) -> None:
        self.owner = uuid.uuid4().hex
        self._store = store
        self._writer = writer
        self._bus = bus
        self._host = host
        self._clock = clock
        self._lock = threading.Lock()
        self._runners: dict[str, Runner] = {}
        self._unstopped: set[str] = set()
        """Runs whose agent could not be told to stop; it is told once it can be reached."""
        self._expected: set[str] = set()
        """Runs that were taken over and will get a runner once the Bridge can be asked."""
        self._without_runner: set[str] = set()
        self._closing = threading.Event()
        writer.on_loss = self._end_agent
        self._threads = ThreadPoolExecutor(max_workers=max_active_runs, thread_name_prefix="run")
        self._beat_thread = threading.Thread(target=self._beat, name="lease-beat", daemon=True)
        self._beat_thread.start()

    def lease_until(self) -> datetime:
        return self._clock() + timedelta(seconds=LEASE_SECONDS)

    def start(self, run: Run, runtime: str, first_text: str, request: Callable[[], RunRequest]) -> None:
        """Work on a run that was just begun. `request` is called in the run's thread, because it reads the branch."""
        runner = self._add(run, runtime, first_text)
        # Somebody may have asked for a stop before there was a runner to tell.
        with contextlib.suppress(StoreUnavailable):
            if self._store.runs.is_stop_requested(run.run_id):
                runner.stop_requested.set()
        self._spawn(run, lambda: runner.work(request()))

    def expect(self, run_id: str) -> None:
        """Announce that `resume` or `interrupt` will follow."""
        self._expected.add(run_id)

    def resume(self, run: Run, runtime: str, first_text: str) -> None:
        """Follow a run of an earlier process that this one has taken over."""
        runner = self._add(run, runtime, first_text)
        if run.stop_requested:
            runner.stop_requested.set()
            self._spawn_stop(run.run_id)
        log = self._store.runs.entries(run, 0, 1_000_000_000)

        def work() -> None:
            self._deliver_to(run.run_id)
            runner.resume(run.bridge_seq, log)

        self._spawn(run, work)

    def interrupt(self, run: Run, runtime: str, note: ErrorNote) -> None:
        """End a run of an earlier process that cannot be followed any more."""
        runner = self._add(run, runtime, "")
        log = self._store.runs.entries(run, 0, 1_000_000_000)
        self._spawn(run, lambda: runner.interrupt(log, note))

    def stop(self, run_id: str) -> None:
        """Interrupt the agent. When it cannot be reached, the run ends here as STOPPED and says so."""
        runner = self._runners.get(run_id)
        if runner is not None:
            runner.stop_requested.set()
        try:
            self._host.stop(run_id)
            self._unstopped.discard(run_id)
        except RunUnknown:
            self._unstopped.discard(run_id)
            _log.info("run %s is not known to its host (yet)", run_id)
        except BridgeUnavailable as away:
            self._unstopped.add(run_id)
            if runner is not None and runner.was_started:
                note = ErrorNote("stopped_unreached", f"Stopped here; the agent could not be told. {away.message}")
                with contextlib.suppress(LeaseLost):
                    runner.abandon(note)
        fail_point("stop.told")

    def deliver(self, question: Question) -> bool:
        """Hand a recorded answer to the agent; False when it could not be reached and will be tried again."""
        try:
            self._host.answer(question.run_id, question.question_id, question.answer or "")
        except BridgeUnavailable as away:
            _log.warning("an answer waits to be delivered: %s", away.message)
            return False
        except ParleyError as error:
            # The run has ended meanwhile or was answered there already: nothing is left to deliver.
            _log.info("an answer found nobody waiting: %s", error.message)
        fail_point("answer.delivered")
        self._store.questions.mark_delivered(question.question_id)
        return True

    def reconnecting(self, run_id: str, seconds: float) -> None:
        """The host's client tells how long a run's events could not be read."""
        runner = self._runners.get(run_id)
        if runner is not None:
            runner.reconnecting(seconds)

    @property
    def active(self) -> int:
        return len(self._runners)

    def close(self) -> None:
        """Let go of every run without ending it: the Bridge works on, and the next start rejoins."""
        self._closing.set()
        with self._lock:
            for runner in self._runners.values():
                runner.closing.set()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def join(self, timeout_seconds: float) -> None:
        """Wait until the run threads have let go; call it after the host has been closed."""
        waiter = threading.Thread(target=self._threads.shutdown, kwargs={"wait": True}, daemon=True)
        waiter.start()
        waiter.join(timeout_seconds)

    # -- threads -------------------------------------------------------------------------------------------------

    def _add(self, run: Run, runtime: str, first_text: str) -> Runner:
        runner = Runner(self._host, self._writer, _lease_of(run), runtime, first_text)
        with self._lock:
            self._runners[run.run_id] = runner
        self._expected.discard(run.run_id)
        return runner

    def _spawn(self, run: Run, work: Callable[[], None]) -> None:
        def job() -> None:
            try:
                work()
            except Exception:
                _log.exception("the worker of run %s failed", run.run_id)
            finally:
                with self._lock:
                    runner = self._runners.pop(run.run_id, None)
                if runner is not None:
                    self._writer.forget(runner.lease)
                self._bus.publish(run.run_id)

        try:
            self._threads.submit(job)
        except RuntimeError:  # the pool was closed meanwhile; the next start takes the run up
            raise BridgeUnavailable("Parley is stopping. The run goes on with its next start.") from None

    def _end_agent(self, lease: Lease, error: ParleyError) -> None:
        """Stop an agent whose events are not stored any more, unless another worker has taken its run over."""
        if isinstance(error, LeaseLost) and not error.values.get("ended"):
            return

        def stop() -> None:
            with contextlib.suppress(ParleyError):
                self._host.stop(lease.run_id)

        threading.Thread(target=stop, name="run-stop", daemon=True).start()

    def _spawn_stop(self, run_id: str) -> None:
        threading.Thread(target=self.stop, args=(run_id,), name="run-stop", daemon=True).start()

    def _beat(self) -> None:
        while not self._closing.wait(BEAT_SECONDS):
            try:
                if self._runners:
                    self._store.runs.renew(self.owner, self.lease_until())
                    self._deliver_what_waits()
                for run_id in list(self._unstopped):
                    self.stop(run_id)
                self._end_abandoned()
            except ParleyError as error:
                _log.warning("the leases were not renewed: %s", error.message)
            except Exception:
                _log.exception("the beat of the leases failed")

    def _end_abandoned(self) -> None:
        """End runs of this process that nobody works on, should that ever be: none may look RUNNING for ever."""
        without = {
            run.run_id: run
            for run in self._store.runs.active()
            if run.lease_owner == self.owner and run.run_id not in self._runners and run.run_id not in self._expected
        }
        for run_id in self._without_runner & set(without):
            run = without.pop(run_id)
            if not self._writer.has_queued(_lease_of(run)) and not self._closing.is_set():
                _log.error("nobody works on run %s; it is ended", run_id)
                self.interrupt(run, "", ErrorNote("internal", "Parley lost sight of this run. What was done is kept."))
        self._without_runner = set(without)

    def _deliver_what_waits(self) -> None:
        for run_id in list(self._runners):
            self._deliver_to(run_id)

    def _deliver_to(self, run_id: str) -> None:
        for question in self._store.questions.undelivered(run_id):
            self.deliver(question)


def _lease_of(run: Run) -> Lease:
    return Lease(run.run_id, run.message_id, run.lease_owner, run.fence)
