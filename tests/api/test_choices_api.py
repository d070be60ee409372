import pytest
from starlette.testclient import TestClient

from chat_core.bridge.process import BridgeState
from chat_core.bridge.protocol import MemoryText, ModelChoice, SkillChoice
from chat_core.errors import InvalidInput
from chat_core.workbench import Workbench

CHAT = "/api/chat"


def test_models_and_skills_are_listed(
    client: TestClient, workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [ModelChoice(id="local", label="Local (Gemma 3 270M)", kind="local", tools=False, is_default=True)]
    monkeypatch.setattr(workbench, "models", lambda user: models)
    monkeypatch.setattr(workbench, "skills", lambda user: [SkillChoice(folder="travel", name="Travel")])
    assert client.get(f"{CHAT}/models").json() == {
        "models": [
            {
                "id": "local",
                "label": "Local (Gemma 3 270M)",
                "runtime": "hermes",
                "context_window": None,
                "tools": False,
                "kind": "local",
                "is_default": True,
            }
        ]
    }
    assert client.get(f"{CHAT}/skills").json() == {
        "skills": [{"folder": "travel", "name": "Travel", "description": ""}]
    }


@pytest.mark.parametrize("what", ["models", "skills"])
def test_nothing_to_choose_while_the_bridge_is_away_is_a_503_that_says_why(
    client: TestClient, workbench: Workbench, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(workbench, "bridge_state", lambda: BridgeState("starting", "The Bridge is starting."))
    answer = client.get(f"{CHAT}/{what}")
    assert answer.status_code == 503
    assert answer.json()["error"] == {
        "code": "bridge_unavailable",
        "message": "The Bridge is starting.",
        "detail": {"bridge": "starting"},
    }


def test_memory_is_read_and_written(client: TestClient, workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {"memory": "notes", "user": "likes tea"}

    def read(user: object, which: str) -> MemoryText:
        return MemoryText(text=kept[which], limit=2000, used=len(kept[which]))

    def write(user: object, which: str, text: str) -> MemoryText:
        if "§" in text:
            raise InvalidInput("The agent could not read this back.")
        kept[which] = text
        return read(user, which)

    monkeypatch.setattr(workbench, "memory", read)
    monkeypatch.setattr(workbench, "write_memory", write)
    assert client.get(f"{CHAT}/memory/user").json() == {"text": "likes tea", "limit": 2000, "used": 9}
    assert client.put(f"{CHAT}/memory/memory", json={"text": "new"}).json()["text"] == "new"
    assert client.put(f"{CHAT}/memory/memory", json={"text": "§"}).status_code == 400
    assert client.put(f"{CHAT}/memory/memory", json={}).status_code == 400
    assert client.get(f"{CHAT}/memory/other").status_code == 404
    assert kept == {"memory": "new", "user": "likes tea"}


def test_memory_without_a_bridge_is_a_503(client: TestClient) -> None:
    assert client.get(f"{CHAT}/memory/user").status_code == 503


def test_health_says_how_the_service_is(client: TestClient) -> None:
    answer = client.get("/api/health")
    assert answer.status_code == 200
    assert set(answer.json()) == {"status", "version", "bridge", "active_runs"}
    assert answer.json()["active_runs"] == 0
