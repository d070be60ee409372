"""What happens at the start to runs that were active when the last process went away."""

import logging
from collections.abc import Callable

from chat_core.bridge.protocol import RunHost
from chat_core.errors import BridgeUnavailable, ParleyError, RunUnknown
from chat_core.models import ErrorNote, Run
from chat_core.run_pool import RunPool
from chat_core.store.store import Store

_log = logging.getLogger("parley.recovery")


def recover(
    store: Store,
    pool: RunPool,
    host: RunHost,
    runtime_of: Callable[[Run], tuple[str, str]],
    wait_until_ready: Callable[[], object],
) -> None:
    """Rejoin every run the host still holds, from the last event that was stored; end the others as INTERRUPTED.

    `runtime_of` returns a run's runtime and the first user text of its session. The runs are taken over first, so
    that no worker of the old process could write any more. `wait_until_ready` may take as long as the host needs
    to come up; call this in a thread of its own.
    """
    orphans = [run for run in store.runs.active() if run.lease_owner != pool.owner]
    taken = [store.runs.take_over(run.run_id, pool.owner, pool.lease_until()) for run in orphans]
    runs = [run for run in taken if run is not None]
    if not runs:
        return
    wait_until_ready()
    for run in runs:
        runtime, first_text = runtime_of(run)
        try:
            host.snapshot(run.run_id)
        except RunUnknown:
            pool.interrupt(run, runtime, ErrorNote("bridge_lost", _GONE))
        except BridgeUnavailable as away:
            pool.interrupt(run, runtime, ErrorNote("bridge_unavailable", f"{_GONE} {away.message}"))
        except ParleyError:
            _log.exception("run %s could not be looked up at the Bridge", run.run_id)
            pool.interrupt(run, runtime, ErrorNote("bridge_lost", _GONE))
        else:
            _log.info("run %s is rejoined after event %d", run.run_id, run.bridge_seq)
            pool.resume(run, runtime, first_text)


_GONE = "Parley and its Bridge were restarted while the agent worked on this. What it had done so far is kept."
