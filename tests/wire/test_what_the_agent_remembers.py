"""What the model really gets, over the whole program: exactly the active branch above the new message.

The real agent stands between; the scripted model server keeps every request.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.parley_program import ParleyProgram
from tests.support.scripted_model import Reply, ScriptedModel, call, say, text_of

TODO = {"todos": [{"id": "1", "content": "look", "status": "completed"}]}


class Talk:
    """A session driven over the API; `wire()` is what the model was last given, without the system text."""

    def __init__(self, program: ParleyProgram, model: ScriptedModel) -> None:
        self.model = model
        self._api = httpx.Client(base_url=f"{program.url}/api/chat", timeout=30)
        self.session = self._post("/sessions", model_id="scripted")["session_id"]

    def ask(self, text: str, *replies: Reply) -> str:
        self.model.script(*replies)
        return self._finish(self._post(f"/sessions/{self.session}/runs", message=text))

    def regenerate(self, message_id: str, *replies: Reply) -> str:
        self.model.script(*replies)
        return self._finish(self._post(f"/messages/{message_id}/regenerate"))

    def edit(self, message_id: str, text: str, *replies: Reply) -> str:
        new = self._api.patch(f"/messages/{message_id}", json={"content": text}).json()["new_message_id"]
        self.model.script(*replies)
        return self._finish(self._post(f"/sessions/{self.session}/runs", parent_message_id=new))

    def activate(self, message_id: str) -> None:
        self._api.post(f"/messages/{message_id}/activate").raise_for_status()

    def reset(self) -> None:
        self._post(f"/sessions/{self.session}/reset", keep_history=True)

    def question_of(self, answer_id: str) -> str:
        messages = self._api.get(f"/sessions/{self.session}").json()["messages"]
        return next(message["parent_id"] for message in messages if message["message_id"] == answer_id)

    def wire(self) -> list[str]:
        return [
            f"{message['role']}: {text_of(message) or 'calls ' + message['tool_calls'][0]['function']['name']}"
            if message["role"] != "tool"
            else "tool"
            for message in self.model.requests[-1].messages
            if message["role"] != "system"
        ]

    def _post(self, path: str, **body: Any) -> Any:
        response = self._api.post(path, json=body)
        response.raise_for_status()
        return response.json()

    def _finish(self, started: dict[str, str]) -> str:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with self._api.stream("GET", f"/runs/{started['run_id']}/stream", timeout=60) as stream:
                lines = list(stream.iter_lines())
            if any(line in ("event: done", "event: error") for line in lines):
                return started.get("message_id") or started["new_message_id"]
        raise AssertionError("the run did not end")


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(api_key="k-0123456789") as model:
        yield model


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, model: ScriptedModel) -> Iterator[ParleyProgram]:
    row = {"id": "scripted", "label": "Scripted", "base_url": model.base_url, "model": "scripted"}
    program = ParleyProgram(
        Path(tmp_path_factory.mktemp("parley")) / "data",
        models=[{**row, "api_key": "k-0123456789", "context_window": 128_000}],
        PARLEY_AGENT_POOL="1",
    )
    program.start()
    yield program
    program.close()


FIRST_TURN = ["user: one", "assistant: calls todo", "tool", "assistant: A1"]


def with_a_tool() -> tuple[Reply, Reply]:
    return Reply(call("todo", TODO)), Reply(say("A1"))


def test_regenerate_edit_switch_and_reset_give_the_model_that_path_and_nothing_of_a_sibling(
    program: ParleyProgram, model: ScriptedModel
) -> None:
    talk = Talk(program, model)
    first = talk.ask("one", *with_a_tool())
    second = talk.ask("two", Reply(say("A2")))
    assert talk.wire() == [*FIRST_TURN, "user: two"]
    talk.regenerate(second, Reply(say("A2b")))
    assert talk.wire() == [*FIRST_TURN, "user: two"]
    talk.ask("three", Reply(say("A3")))
    assert talk.wire() == [*FIRST_TURN, "user: two", "assistant: A2b", "user: three"]
    talk.activate(second)
    talk.ask("four", Reply(say("A4")))
    assert talk.wire() == [*FIRST_TURN, "user: two", "assistant: A2", "user: four"]
    talk.edit(talk.question_of(first), "uno", Reply(say("B1")))
    assert talk.wire() == ["user: uno"]
    talk.ask("due", Reply(say("B2")))
    assert talk.wire() == ["user: uno", "assistant: B1", "user: due"]
    talk.reset()
    talk.ask("fresh", Reply(say("C1")))
    assert talk.wire() == ["user: fresh"]


def test_an_evicted_agent_and_a_new_bridge_remember_the_same_branch(
    program: ParleyProgram, model: ScriptedModel
) -> None:
    talk = Talk(program, model)
    talk.ask("one", *with_a_tool())
    Talk(program, model).ask("somebody else takes the only agent", Reply(say("x")))
    talk.ask("two", Reply(say("A2")))
    assert talk.wire() == [*FIRST_TURN, "user: two"]
    old = program.bridge_pid()
    program.kill_bridge()
    program.wait_for_another_bridge(old)
    talk.ask("three", Reply(say("A3")))
    assert talk.wire() == [*FIRST_TURN, "user: two", "assistant: A2", "user: three"]
