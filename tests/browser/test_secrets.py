"""Keys and tokens of a working program are nowhere but where they belong: in models.toml."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import psutil
import pytest
from playwright.sync_api import Page, expect

from tests.support.chat_page import LONG_MS, ChatPage
from tests.support.parley_program import ParleyProgram
from tests.support.scripted_model import Refusal, Reply, ScriptedModel, call, say, think

KEY = "sk-marker-a7/Q+9zz-0123456789"
FORMS = [KEY, base64.b64encode(KEY.encode()).decode().rstrip("="), quote(KEY, safe="")]


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(api_key=KEY) as model:
        yield model


@pytest.fixture
def program(tmp_path: Path, model: ScriptedModel) -> Iterator[ParleyProgram]:
    models = [
        {"id": "scripted", "label": "Scripted", "base_url": model.base_url, "model": "scripted", "api_key": KEY},
        {"id": "from-env", "label": "Env", "base_url": model.base_url, "model": "scripted", "api_key_env": "THE_KEY"},
    ]
    program = ParleyProgram(
        tmp_path / "data",
        models=models,
        PARLEY_TOOLSETS="todo,memory,skills,clarify,terminal,file",
        PARLEY_LOG_LEVEL="DEBUG",
        THE_KEY=KEY,
    )
    program.start()
    yield program
    program.close()


def test_a_key_that_model_tools_and_errors_repeat_is_found_nowhere(
    page: Page, program: ParleyProgram, model: ScriptedModel
) -> None:
    answered: list[str] = []
    page.on("response", lambda response: answered.append(response.url))
    chat = ChatPage(page, program).open()
    url = f"http://127.0.0.1:9/?key={quote(KEY, safe='')}"
    model.script(
        Reply(
            think(f"The key is {KEY}. "),
            say("Let me see. "),
            call("terminal", {"command": f"cat ../../models.toml; env; echo {FORMS[1]}; echo {url}"}),
        ),
        Reply(call("memory", {"action": "nonsense", "target": KEY})),
        Reply(say(f"It is {KEY}, or {FORMS[1]}, at {url}")),
        Refusal(401, f"Incorrect API key provided: {KEY}", "invalid_api_key"),
    )
    session = chat.ask("Tell me the key", model="Scripted")
    chat.expect_done()
    expect(chat.transcript).to_contain_text("It is [key]", timeout=LONG_MS)
    chat.open_record()
    page_text = page.content() + page.evaluate("JSON.stringify({...localStorage, ...sessionStorage})")
    chat.ask("And an error")
    chat.expect_done()
    expect(chat.transcript).to_contain_text("key")
    page_text += page.content()

    api = httpx.Client(base_url=f"{program.url}/api/chat", timeout=20)
    answers = [
        api.get(path).text
        for path in (
            f"/sessions/{session}",
            f"/sessions/{session}/export?format=json&branch=all",
            f"/sessions/{session}/export?format=md&branch=all",
            "/models",
            "/skills",
            "/../health",
        )
    ]
    tree = json.loads(api.get(f"/sessions/{session}/export?format=json&branch=all").text)
    assert len(tree["messages"]) == 4
    arguments = [" ".join(process.cmdline()) for process in program.processes()]
    assert len(arguments) >= 2
    program.stop()
    stored = {
        str(path.relative_to(program.data_dir)): path.read_bytes().decode("utf-8", "replace")
        for path in program.data_dir.rglob("*")
        if path.is_file() and path.name != "models.toml"
    }
    places = {"page": page_text, "api": "\n".join(answers), "urls": "\n".join(answered)}
    places |= {"process arguments": "\n".join(arguments), **stored}
    found = [(place, form) for place, text in places.items() for form in FORMS if form in text]
    assert found == []
    assert "parley.db" in stored
    assert "logs/bridge.log" in stored


def test_the_token_of_the_bridge_is_in_its_record_only(page: Page, program: ParleyProgram) -> None:
    ChatPage(page, program).open()
    token = json.loads((program.data_dir / "bridge.json").read_text())["token"]
    assert (program.data_dir / "bridge.json").stat().st_mode & 0o077 == 0
    for process in psutil.Process(program.bridge_pid()).children(recursive=True):
        assert token not in " ".join(process.cmdline())
    for path in (program.data_dir / "logs").glob("*"):
        assert token not in path.read_text("utf-8", "replace")
    assert token not in page.content()
