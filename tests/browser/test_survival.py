"""What a person sees when the app, the Bridge or both are killed in the middle of a run, or stopped politely."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Page, expect

from tests.support.chat_page import LONG_MS, ChatPage
from tests.support.parley_program import REPOSITORY, ParleyProgram
from tests.support.scripted_model import Reply, ScriptedModel, call, hold, say


@pytest.fixture
def program(tmp_path: Path, model: ScriptedModel) -> Iterator[ParleyProgram]:
    """A Parley of its own for each test, because it is killed."""
    program = ParleyProgram(
        tmp_path / "data",
        models=[
            {
                "id": "scripted",
                "label": "Scripted",
                "base_url": model.base_url,
                "model": "scripted",
                "api_key": "the-right-key",
                "context_window": 128_000,
            }
        ],
    )
    program.start()
    yield program
    program.close()


def test_a_killed_app_rejoins_its_run_and_the_page_goes_on(
    page: Page, program: ParleyProgram, model: ScriptedModel
) -> None:
    chat = ChatPage(page, program).open()
    first, second = model.gate(), model.gate()
    question = call("clarify", {"question": "Which way?", "choices": ["left", "right"]})
    model.script(
        Reply(say("one two "), hold(first), say("three"), question), Reply(hold(second), say("You went left."))
    )
    session = chat.ask("Go", model="Scripted")
    expect(chat.area("answer")).to_contain_text("one two", timeout=LONG_MS)
    bridge = program.bridge_pid()
    program.kill()
    first.open()
    program.start()
    assert program.bridge_pid() == bridge
    chat.open(session)
    expect(chat.card).to_contain_text("Which way?", timeout=LONG_MS)
    program.kill()
    program.start()
    chat.open(session)
    chat.card.get_by_role("button", name="left").click()
    second.open()
    chat.expect_done()
    expect(chat.transcript).to_contain_text("You went left.", timeout=LONG_MS)
    assert chat.transcript.inner_text().count("You went left.") == 1


def test_a_killed_bridge_interrupts_the_run_and_the_next_send_works(
    page: Page, program: ParleyProgram, model: ScriptedModel
) -> None:
    chat = ChatPage(page, program).open()
    gate = model.gate()
    model.script(Reply(say("kept so far "), hold(gate)))
    chat.ask("Go", model="Scripted")
    expect(chat.area("answer")).to_contain_text("kept so far", timeout=LONG_MS)
    program.kill_bridge()
    expect(chat.transcript).to_contain_text(re.compile("Interrupted", re.I), timeout=LONG_MS)
    expect(chat.transcript).to_contain_text("kept so far")
    gate.open()
    model.script(Reply(say("and the rest.")))
    chat.page.get_by_role("button", name="Continue").click()
    expect(chat.transcript).to_contain_text("and the rest.", timeout=LONG_MS)
    chat.expect_done()
    texts = [message["content"] for message in model.requests[-1].messages if message["role"] == "assistant"]
    assert "kept so far" in texts[-1]
    model.script(Reply(say("Fine.")))
    chat.ask("Next")
    expect(chat.transcript).to_contain_text("Fine.", timeout=LONG_MS)


def test_a_polite_stop_with_open_pages_ends_and_leaves_no_process(
    page: Page, program: ParleyProgram, model: ScriptedModel
) -> None:
    chat = ChatPage(page, program).open()
    model.script(Reply(say("Hello.")))
    chat.ask("Hi", model="Scripted")
    chat.expect_done()
    bridge = psutil.Process(program.bridge_pid())
    program.stop()
    bridge.wait(5)
    expect(page.locator("body")).to_contain_text("Hello.")


def test_a_bridge_without_an_app_ends_by_itself(tmp_path: Path) -> None:
    program = ParleyProgram(tmp_path / "data", PARLEY_BRIDGE_GRACE_SECONDS="1")
    program.start()
    bridge = psutil.Process(program.bridge_pid())
    program.kill()
    bridge.wait(60)


def test_a_second_parley_on_the_same_folder_says_so_and_touches_nothing(program: ParleyProgram) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", "0"],
        cwd=REPOSITORY,
        env={**os.environ, "PARLEY_DATA_DIR": str(program.data_dir)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert second.returncode != 0
    assert "in use by another Parley" in second.stderr
    assert "Traceback" not in second.stderr
