"""A small Streamlit app with the live panel and the composer over a made-up API, in a process of its own.

The test decides everything the API says: it adds events to runs, cuts streams, lets calls fail. Start it with
`python -m tests.support.panel_app`; the first line it prints is its port.
"""

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import streamlit as st
import uvicorn
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from chat_core.api.security import SecurityMiddleware
from chat_core.ui.components import ASSETS


class ScriptedApi:
    """The state behind the routes. All of it is touched on the event loop only."""

    def __init__(self) -> None:
        self.runs: dict[str, list[dict[str, Any]]] = {}
        self.behaviour: dict[str, Any] = {}
        self.calls: list[dict[str, Any]] = []
        self.changed = asyncio.Event()
        self.cuts = 0

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


def _frame(event: dict[str, Any]) -> str:
    return f"id: {event['data']['seq']}\nevent: {event['event']}\ndata: {json.dumps(event['data'])}\n\n"


def routes(api: ScriptedApi) -> list[Route]:
    """Return the API the components use, and the controls of the test under `/control`."""

    async def asset(request: Request) -> Response:
        return FileResponse(ASSETS / Path(request.path_params["file"]).name, media_type="text/javascript")

    async def stream(request: Request) -> Response:
        run = request.path_params["run"]
        after = int(request.headers.get("last-event-id") or request.query_params.get("last_event_id") or 0)
        api.calls.append({"call": "stream", "run": run, "after": after})
        status = api.behaviour.get("stream_status", 200)
        if status != 200:
            return Response(status_code=status)
        return StreamingResponse(
            _events(run, after), media_type="text/event-stream", headers={"Cache-Control": "no-cache, no-transform"}
        )

    async def _events(run: str, after: int) -> Any:
        cuts = api.cuts
        events = api.runs.setdefault(run, [])
        yield b": hello\n\n"
        if api.behaviour.pop("resync_once", False):
            yield b'event: resync\ndata: {"v": 1, "seq": 0, "kind": "resync", "reason": "unknown_cursor"}\n\n'
            after = 0
        if api.behaviour.get("replay_all", False):
            after = 0
        position = 0
        while api.cuts == cuts:
            changed = api.changed
            batch = [event for event in events[position:] if event["data"]["seq"] > after]
            position = len(events)
            if batch:
                yield "".join(map(_frame, batch)).encode()
                if batch[-1]["event"] in {"done", "error"}:
                    return
            try:
                await asyncio.wait_for(changed.wait(), 5)
            except TimeoutError:
                yield b": keepalive\n\n"

    async def resume(request: Request) -> Response:
        body = await request.json()
        api.calls.append({"call": "resume", "run": request.path_params["run"], **body})
        reply = api.behaviour.get("resume", {"status": 200, "body": {}})
        while api.behaviour.get("hold_resume"):
            await api.changed.wait()
        return JSONResponse(reply["body"], reply["status"])

    async def stop(request: Request) -> Response:
        api.calls.append({"call": "stop", "run": request.path_params["run"]})
        return JSONResponse({}, api.behaviour.get("stop_status", 202))

    async def log(request: Request) -> Response:
        api.calls.append({"call": "log", "message": request.path_params["message"]})
        entries = api.behaviour.get("log")
        return JSONResponse({"entries": entries}) if entries is not None else Response(status_code=500)

    async def result(_: Request) -> Response:
        return PlainTextResponse(api.behaviour.get("result", ""))

    async def add_events(request: Request) -> Response:
        api.runs.setdefault(request.path_params["run"], []).extend(await request.json())
        api.wake()
        return Response(status_code=204)

    async def forget(request: Request) -> Response:
        api.runs.setdefault(request.path_params["run"], []).clear()
        return Response(status_code=204)

    async def behave(request: Request) -> Response:
        api.behaviour.update(await request.json())
        api.wake()
        return Response(status_code=204)

    async def cut(_: Request) -> Response:
        api.cuts += 1
        api.wake()
        return Response(status_code=204)

    async def calls(_: Request) -> Response:
        return JSONResponse(api.calls)

    return [
        Route("/api/assets/{file}", asset),
        Route("/api/chat/runs/{run}/stream", stream),
        Route("/api/chat/runs/{run}/resume", resume, methods=["POST"]),
        Route("/api/chat/runs/{run}/stop", stop, methods=["POST"]),
        Route("/api/chat/messages/{message}/log", log),
        Route("/api/chat/results/{ref}", result),
        Route("/control/runs/{run}/events", add_events, methods=["POST"]),
        Route("/control/runs/{run}/forget", forget, methods=["POST"]),
        Route("/control/behaviour", behave, methods=["POST"]),
        Route("/control/cut", cut, methods=["POST"]),
        Route("/control/calls", calls),
    ]


def main() -> None:
    """Serve on a free port until terminated."""
    app = st.App(
        Path(__file__).with_name("panel_page.py"),
        routes=routes(ScriptedApi()),
        # The same page policy as in the product: the stub must be able to load our script under it.
        middleware=[Middleware(SecurityMiddleware)],
    )
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=1, ws="websockets-sansio"
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
