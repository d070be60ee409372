"""Starts Parley: the pages, the API and the workbench in one process. `streamlit run app.py` or `python app.py`."""

import gc
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import streamlit as st

from chat_core.api.routes import api_routes, middleware
from chat_core.api.stream import OpenStreams
from chat_core.app_log import set_up_app_log
from chat_core.config import Settings, load_settings
from chat_core.errors import ParleyError
from chat_core.process_workbench import open_process_workbench, process_workbench, set_process_workbench


def read_settings() -> Settings:
    """Read the settings, or say plainly what is wrong with them and end."""
    try:
        return load_settings()
    except ParleyError as error:
        stop_with(error)


def stop_with(error: ParleyError) -> NoReturn:
    """Say the one sentence that helps and end with exit code 2, before the server can add its stack traces."""
    print(f"Parley cannot start. {error.message}", file=sys.stderr, flush=True)
    os._exit(2)


settings = read_settings()
streams = OpenStreams()


@asynccontextmanager
async def lifespan(_app: st.App) -> AsyncIterator[dict[str, Any]]:
    """Hold the workbench open while the server runs."""
    os.umask(0o077)  # conversations are nobody else's business on this machine
    try:
        workbench = open_process_workbench(settings)
        set_up_app_log(settings.logs_folder, settings.log_level, [settings.bridge_token.get_secret_value()])
    except ParleyError as error:
        stop_with(error)
    close_streams_on_signals()
    # Streamlit collects garbage after every script run; what is here to stay need not be looked at each time.
    gc.collect()
    gc.freeze()
    try:
        yield {"workbench": workbench}
    finally:
        streams.close()
        set_process_workbench(None)
        print(parting_words(workbench.store.runs.count_active(), settings.bridge_grace_seconds), flush=True)
        workbench.close()


def parting_words(active_runs: int, grace_seconds: float) -> str:
    """Say at the end what goes on without the app."""
    if not active_runs:
        return "\nParley has stopped."
    runs = "1 run goes" if active_runs == 1 else f"{active_runs} runs go"
    return (
        f"\nParley has stopped; {runs} on in the background for up to {grace_seconds / 60:.0f} minutes. "
        "Start Parley again to take them up."
    )


def close_streams_on_signals() -> None:
    """Let open event streams end before uvicorn waits for them: it would wait for as long as somebody watches."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        previous = signal.getsignal(number)

        def handle(signum: int, frame: FrameType | None, previous: Any = previous) -> None:
            streams.close()
            if callable(previous):
                previous(signum, frame)

        signal.signal(number, handle)


app = st.App(
    Path(__file__).parent / "pages" / "_router.py",
    lifespan=lifespan,
    routes=api_routes(process_workbench, streams, base_path=str(st.get_option("server.baseUrlPath") or "")),
    middleware=middleware(settings),
)

if __name__ == "__main__":
    app.run(config={"server.port": settings.port, "server.address": settings.host})
