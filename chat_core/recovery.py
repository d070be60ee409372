"""What happens at the start to runs that were active when the last process went away."""

import logging
import threading
from collections.abc import Callable

from chat_core.bridge.protocol import RunHost
from chat_core.errors import BridgeUnavailable, NotFound, ParleyError, RunUnknown, StoreUnavailable
from chat_core.fail_point import fail_point
from chat_core.models import ErrorNote, Run
from chat_core.run_pool import RunPool
from chat_core.store.store import Store

RETRY_SECONDS = 2.0

_log = logging.getLogger("parley.recovery")


def recover(
    store: Store,
    pool: RunPool,
    host: RunHost,
    runtime_of: Callable[[Run], tuple[str, str]],
    wait_until_ready: Callable[[], object],
    closing: threading.Event,
) -> None:
    """Rejoin every run the host still holds, from the last event that was stored; end the others as INTERRUPTED.

    `runtime_of` returns a run's runtime and the first user text of its session. The runs are taken over first, so
    that no worker of the old process could write any more. `wait_until_ready` may take as long as the host needs
    to come up; call this in a thread of its own. While the database cannot be used it tries again: no run may
    stay RUNNING with nobody at work on it.
    """
    waiting: list[Run] = []
    ready = False
    while not closing.is_set():
        try:
            for orphan in store.runs.active():
                if orphan.lease_owner != pool.owner:
                    taken = store.runs.take_over(orphan.run_id, pool.owner, pool.lease_until())
                    if taken is not None:
                        pool.expect(taken.run_id)
                        waiting.append(taken)
            fail_point("recovery.taken_over")
            if waiting and not ready:
                wait_until_ready()
                ready = True
            while waiting and not closing.is_set():
                _rejoin(pool, host, waiting[0], runtime_of)
                waiting.pop(0)
                fail_point("recovery.rejoined")
            return
        except StoreUnavailable as error:
            _log.warning("the runs of the last start wait to be rejoined: %s", error.message)
        except Exception:
            _log.exception("a run of the last start could not be rejoined; trying again")
            waiting = waiting[1:] + waiting[:1]
        closing.wait(RETRY_SECONDS)


def _rejoin(pool: RunPool, host: RunHost, run: Run, runtime_of: Callable[[Run], tuple[str, str]]) -> None:
    try:
        runtime, first_text = runtime_of(run)
    except NotFound:
        return  # deleted meanwhile
    try:
        host.snapshot(run.run_id)
    except RunUnknown:
        pool.interrupt(run, runtime, ErrorNote("bridge_lost", _GONE))
    except BridgeUnavailable as away:
        if away.values.get("permanent"):
            pool.interrupt(run, runtime, ErrorNote("bridge_unavailable", f"{_GONE} {away.message}"))
        else:
            # It may only be slow or cut off: the runner goes on trying, says so, and gives up in time.
            pool.resume(run, runtime, first_text)
    except ParleyError:
        _log.exception("run %s could not be looked up at the Bridge", run.run_id)
        pool.interrupt(run, runtime, ErrorNote("bridge_lost", _GONE))
    else:
        _log.info("run %s is rejoined after event %d", run.run_id, run.bridge_seq)
        pool.resume(run, runtime, first_text)


_GONE = "Parley and its Bridge were restarted while the agent worked on this. What it had done so far is kept."
