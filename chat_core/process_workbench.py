"""The one workbench of this process, kept where neither a hot reload nor a cleared cache can double or drop it."""

import sys
import threading
import types

from chat_core.config import Settings
from chat_core.errors import StoreUnavailable
from chat_core.workbench import Workbench, open_workbench

# Streamlit may import modules anew when a file changes; what lives in a module without a file is never dropped.
_PROCESS = "_parley_process"


def _process_module() -> types.ModuleType:
    return sys.modules.setdefault(_PROCESS, types.ModuleType(_PROCESS))


def open_process_workbench(settings: Settings) -> Workbench:
    """Open the one workbench of this process, or return it when it is open already."""
    module = _process_module()
    with module.__dict__.setdefault("lock", threading.RLock()):
        workbench = module.__dict__.get("workbench")
        if workbench is None:
            workbench = module.__dict__["workbench"] = open_workbench(settings)
        return workbench


def set_process_workbench(workbench: Workbench | None) -> None:
    """Put a workbench in the process's place, or clear it."""
    _process_module().__dict__["workbench"] = workbench


def process_workbench() -> Workbench:
    """Return the workbench of this process. Raises `StoreUnavailable` when it is not open."""
    workbench = _process_module().__dict__.get("workbench")
    if workbench is None:
        raise StoreUnavailable("Parley is not started: start it with `make run` or `streamlit run app.py`.")
    return workbench  # type: ignore[no-any-return]
