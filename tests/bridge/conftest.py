"""One real Bridge with the real agent for all tests that talk to it; starting it takes seconds."""

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.support.real_bridge import MODEL_KEY, RealBridge, models_toml
from tests.support.scripted_model import Reply, ScriptedModel, say

SUMMARY = "The user counted words for a long time."


@pytest.fixture(scope="session")
def silent_address() -> Iterator[str]:
    """The base URL of an endpoint that accepts connections and never says a word."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=50)
    taken: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                taken.append(listener.accept()[0])
            except OSError:
                return

    threading.Thread(target=accept, daemon=True).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    listener.close()
    for connection in taken:
        connection.close()


@pytest.fixture(scope="session")
def shared_bridge(tmp_path_factory: pytest.TempPathFactory, silent_address: str) -> Iterator[RealBridge]:
    with ScriptedModel(api_key=MODEL_KEY, side_jobs=Reply(say(SUMMARY))) as model:
        bridge = RealBridge(
            tmp_path_factory.mktemp("bridge"),
            model,
            # what a machine might have in its environment, and what must change nothing
            {"HERMES_YOLO_MODE": "1", "OPENAI_API_KEY": "sk-inherited-0a1b2c3d", "HERMES_INTERACTIVE": "1"}
            | {"PARLEY_TOUR_PACE_SECONDS": "0.001"},
        )
        address = f'base_url = "{model.base_url}"\nmodel = "scripted"\n'
        bridge.write_models(
            models_toml(
                model,
                small=f'{address}context_window = 64000\nlabel = "Small"\n',
                plain=f'{address}tools = false\nlabel = "Plain"\ncontext_window = 8192\n',
                wrong_key=f'{address.replace("scripted", "wrong")}label = "Wrong key"\n',
                silent=f'base_url = "{silent_address}"\nmodel = "silent"\nlabel = "Silent"\n',
            )
        )
        bridge.start()
        yield bridge
        bridge.close()


@pytest.fixture
def bridge(shared_bridge: RealBridge) -> Iterator[RealBridge]:
    """The shared Bridge with an empty script and no recorded requests."""
    model = shared_bridge.model
    model.start()
    model.script()
    model.requests.clear()
    model.unexpected.clear()
    yield shared_bridge
    assert model.unexpected == [], "the agent asked the model more often than the script foresaw"
