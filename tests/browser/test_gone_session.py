"""A session that is deleted elsewhere takes no text and no later message with it."""

import re

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.support.chat_page import LONG_MS, ChatPage
from tests.support.parley_program import ParleyProgram
from tests.support.scripted_model import Reply, ScriptedModel, say


@pytest.fixture
def chat(page: Page, program: ParleyProgram) -> ChatPage:
    return ChatPage(page, program).open()


def test_text_sent_into_a_session_that_is_gone_comes_back_and_can_be_sent_anew(
    chat: ChatPage, model: ScriptedModel
) -> None:
    model.script(Reply(say("First.")))
    session = chat.ask("One", model="Scripted")
    chat.expect_done()
    chat.box.fill("precious words")
    httpx.delete(f"{chat.program.url}/api/chat/sessions/{session}").raise_for_status()
    chat.send_button.click()
    expect(chat.page.locator("body")).to_contain_text(re.compile("does not exist", re.I), timeout=LONG_MS)
    expect(chat.box).to_have_value("precious words", timeout=LONG_MS)
    model.script(Reply(say("Second.")))
    chat.send_button.click()
    expect(chat.transcript).to_contain_text("Second.", timeout=LONG_MS)
    assert chat.session != session


def test_after_a_dead_link_a_new_chat_shows_where_its_message_went(chat: ChatPage, model: ScriptedModel) -> None:
    chat.open("00000000-0000-0000-0000-000000000000")
    model.script(Reply(say("Here I am.")))
    chat.page.locator(".st-key-new-chat a").click()
    chat.choose_model("Scripted")
    chat.box.fill("Where are you?")
    chat.send_button.click()
    expect(chat.transcript).to_contain_text("Here I am.", timeout=LONG_MS)
    assert chat.session != "00000000-0000-0000-0000-000000000000"
