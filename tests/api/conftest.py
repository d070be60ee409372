from collections.abc import Iterator

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from chat_core.api.routes import api_routes, middleware
from chat_core.api.stream import OpenStreams
from chat_core.config import Settings
from chat_core.workbench import Workbench
from tests.support.served_app import ServedApp

CHAT = "/api/chat"


@pytest.fixture
def streams() -> OpenStreams:
    return OpenStreams(keepalive_seconds=0.2)


@pytest.fixture
def app(workbench: Workbench, settings: Settings, streams: OpenStreams) -> Starlette:
    return Starlette(routes=api_routes(lambda: workbench, streams), middleware=middleware(settings))


@pytest.fixture
def client(app: Starlette) -> TestClient:
    return TestClient(app, base_url="http://127.0.0.1:8501", raise_server_exceptions=True)


@pytest.fixture
def served(app: Starlette, streams: OpenStreams) -> Iterator[str]:
    """The address of the API's calls on a real server."""
    with ServedApp(app) as serving:
        yield serving.url + CHAT
        streams.close()
