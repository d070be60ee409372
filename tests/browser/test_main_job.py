"""The main job, end to end: ask the real agent in the browser and watch it work."""

import re
import time

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.chat_page import LONG_MS, ChatPage
from tests.support.parley_program import ParleyProgram
from tests.support.scripted_model import (
    Refusal,
    Reply,
    ScriptedModel,
    call,
    context_too_long,
    cut,
    for_questions,
    hang,
    hold,
    no_such_model,
    rate_limited,
    say,
    send_headers,
    server_error,
    think,
    wrong_key,
)


@pytest.fixture
def chat(page: Page, program: ParleyProgram) -> ChatPage:
    return ChatPage(page, program).open()


def test_the_local_model_answers_and_a_follow_up_knows_the_first_turn(chat: ChatPage) -> None:
    chat.ask("What is the capital of France?", model="Local")
    expect(chat.transcript.get_by_text("Paris").first).to_be_visible(timeout=LONG_MS)
    chat.expect_done()
    chat.ask("And of Italy?")
    expect(chat.transcript.get_by_text("Rome").first).to_be_visible(timeout=LONG_MS)
    chat.expect_done()


def test_the_guided_tour_fills_every_area_and_uses_the_answer(chat: ChatPage) -> None:
    chat.ask("Show me around", model="Guided tour")
    expect(chat.area("thinking")).not_to_be_empty(timeout=LONG_MS)
    expect(chat.area("todos")).to_contain_text("done", timeout=LONG_MS)
    expect(chat.area("tools")).to_contain_text("todo")
    expect(chat.area("status")).not_to_be_empty()
    approved = clarified = False
    for _ in range(2):
        expect(chat.card).to_be_visible(timeout=LONG_MS)
        if chat.card.get_attribute("data-kind") == "approval":
            expect(chat.card.locator(".command")).to_contain_text("rm -r")
            question = chat.card.get_attribute("data-question")
            chat.card.get_by_role("button", name="Allow once").click()
            approved = True
        else:
            question = chat.card.get_attribute("data-question")
            choice = chat.card.locator(".choices button").first
            words = choice.inner_text()
            choice.click()
            clarified = True
        expect(chat.page.locator(f'.card[data-question="{question}"]').get_by_role("button")).to_have_count(0)
    assert approved
    assert clarified
    chat.expect_done()
    expect(chat.transcript.get_by_role("table").first).to_be_visible()
    expect(chat.transcript.locator("pre").first).to_be_visible()
    expect(chat.transcript).to_contain_text(words)


def test_an_endpoint_of_the_models_file_answers(chat: ChatPage, model: ScriptedModel) -> None:
    model.script(Reply(think("A greeting."), say("Hello **there**.")))
    chat.ask("Hi", model="Scripted")
    expect(chat.transcript.locator("strong", has_text="there").first).to_be_visible(timeout=LONG_MS)
    chat.expect_done()
    assert model.requests[-1].key_is_right


def test_a_chosen_skill_reaches_the_model_and_is_recorded(chat: ChatPage, model: ScriptedModel) -> None:
    model.script(Reply(say("Noted.")))
    select = chat.page.get_by_role("combobox", name="Skill")
    expect(select.locator("option")).not_to_have_count(1)
    folder = select.locator("option").nth(1).get_attribute("value") or ""
    name = select.locator("option").nth(1).inner_text()
    select.select_option(folder)
    chat.ask("Use your skill", model="Scripted")
    chat.expect_done()
    assert folder.split("/")[-1] in model.requests[-1].system_text
    expect(chat.page.locator("body")).to_contain_text(name)


def test_stop_while_thinking_keeps_the_thoughts(chat: ChatPage, model: ScriptedModel) -> None:
    gate = model.gate()
    model.script(Reply(think("Deep thoughts. "), hold(gate), say("never")))
    chat.ask("Think hard", model="Scripted")
    expect(chat.area("thinking")).to_contain_text("Deep thoughts", timeout=LONG_MS)
    started = time.monotonic()
    chat.stop_button.click()
    chat.expect_done(timeout=5_000)
    assert time.monotonic() - started < 5
    gate.open()
    expect(chat.transcript).to_contain_text("Stopped")
    model.script(Reply(say("Fine.")))
    chat.ask("Go on then")
    expect(chat.transcript).to_contain_text("Fine.", timeout=LONG_MS)


def test_stop_in_a_running_tool_keeps_its_call(chat: ChatPage, model: ScriptedModel) -> None:
    model.script(Reply(call("terminal", {"command": "sleep 60"})), Reply(say("never")))
    chat.ask("Sleep", model="Scripted")
    expect(chat.area("tools")).to_contain_text("terminal", timeout=LONG_MS)
    chat.stop_button.click()
    chat.expect_done(timeout=15_000)
    expect(chat.transcript).to_contain_text("Stopped")
    expect(chat.transcript).to_contain_text("1 tool")


def test_stop_while_a_question_waits_closes_it(chat: ChatPage, model: ScriptedModel) -> None:
    model.script(Reply(call("clarify", {"question": "Which way?", "choices": ["left", "right"]})), Reply(say("never")))
    chat.ask("Ask me", model="Scripted")
    expect(chat.card).to_contain_text("Which way?", timeout=LONG_MS)
    chat.stop_button.click()
    chat.expect_done(timeout=5_000)
    expect(chat.card).to_have_count(0)
    expect(chat.transcript).to_contain_text("Stopped")


def test_two_sessions_work_at_once_and_nothing_is_mixed(chat: ChatPage, model: ScriptedModel) -> None:
    gate_a, gate_b = model.gate(), model.gate()
    answers = {
        "task A": [Reply(say("AAAA one "), hold(gate_a), say("AAAA two"))],
        "task B": [
            Reply(call("clarify", {"question": "BBBB which?", "choices": ["x", "y"]})),
            Reply(say("BBBB start "), hold(gate_b), say("BBBB end")),
        ],
    }
    model.script(choose=for_questions(answers))
    session_a = chat.ask("task A", model="Scripted")
    expect(chat.area("answer")).to_contain_text("AAAA one", timeout=LONG_MS)
    chat.new_chat()
    session_b = chat.ask("task B", model="Scripted")
    expect(chat.card).to_contain_text("BBBB which?", timeout=LONG_MS)
    chat.go_to(session_a)
    expect(chat.area("answer")).to_contain_text("AAAA one")
    expect(chat.page.locator(".st-key-transcript")).not_to_contain_text("BBBB")
    expect(chat.row(session_b)).to_contain_text("waiting", timeout=LONG_MS, ignore_case=True)
    chat.go_to(session_b)
    chat.card.get_by_role("button", name="x", exact=True).click()
    expect(chat.area("answer")).to_contain_text("BBBB start", timeout=LONG_MS)
    expect(chat.page.locator(".st-key-transcript")).not_to_contain_text("AAAA")
    chat.go_to(session_a)
    gate_a.open()
    chat.expect_done()
    expect(chat.transcript).to_contain_text("AAAA one AAAA two")
    gate_b.open()
    chat.go_to(session_b)
    expect(chat.transcript).to_contain_text("BBBB start BBBB end", timeout=LONG_MS)
    expect(chat.transcript).not_to_contain_text("AAAA")


def test_reload_in_the_middle_continues_the_same_text_and_keeps_the_question(
    chat: ChatPage, model: ScriptedModel, browser: Browser
) -> None:
    first, second = model.gate(), model.gate()
    words = " ".join(f"word{number}" for number in range(200))
    more = " ".join(f"more{number}" for number in range(200))
    model.script(
        Reply(say(f"{words} "), hold(first), say(more), hold(second), call("clarify", {"question": "Enough?"})),
        Reply(say("The end.")),
    )
    session = chat.ask("Write a lot", model="Scripted")
    expect(chat.area("answer")).to_contain_text("word199", timeout=LONG_MS)
    chat.box.fill("my draft")
    chat.open(session)
    expect(chat.area("answer")).to_contain_text("word199")
    expect(chat.box).to_have_value("my draft")
    first.open()
    expect(chat.area("answer")).to_contain_text("more199", timeout=LONG_MS)
    assert re.sub(r"\s+", " ", chat.area("answer").inner_text()).strip() == f"{words} {more}"
    second.open()
    expect(chat.card).to_contain_text("Enough?", timeout=LONG_MS)
    other = browser.new_context()
    second_tab = ChatPage(other.new_page(), chat.program).open(session)
    expect(second_tab.card).to_contain_text("Enough?", timeout=LONG_MS)
    chat.open(session)
    expect(chat.card).to_contain_text("Enough?")
    chat.card.get_by_role("textbox").fill("yes")
    chat.card.get_by_role("button", name="Answer", exact=True).click()
    chat.expect_done()
    expect(chat.transcript).to_contain_text("The end.")
    second_tab.expect_done()
    expect(second_tab.transcript).to_contain_text("The end.", timeout=LONG_MS)
    other.close()


ERRORS = {
    "wrong key": ([wrong_key()], "key"),
    "no such model": ([no_such_model()], "model"),
    "rate limit": ([rate_limited()] * 6, "rate|busy|limit|moment"),
    "server error": ([server_error()] * 6, "error|fail"),
    "context too long": ([context_too_long()] * 8, "long|context"),
    "other refusal": ([Refusal(400, "no", "bad")], "refused|request"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_of_the_model_is_a_plain_sentence_and_the_next_send_works(
    chat: ChatPage, model: ScriptedModel, name: str
) -> None:
    answers, words = ERRORS[name]
    model.script(*answers)
    chat.ask(f"Try {name}", model="Scripted")
    failed = chat.page.locator('[class*="st-key-"]').filter(has_text=re.compile("Failed|went wrong|failed", re.I)).last
    expect(failed).to_contain_text(re.compile(words, re.I), timeout=LONG_MS)
    chat.expect_done()
    expect(chat.transcript).not_to_contain_text("Traceback")
    model.script(Reply(say("All good.")))
    chat.ask("Once more")
    expect(chat.transcript).to_contain_text("All good.", timeout=LONG_MS)


def test_a_refused_connection_says_so(chat: ChatPage) -> None:
    chat.ask("Anybody there?", model="Refusing")
    expect(chat.transcript).to_contain_text(re.compile("reach|connect", re.I), timeout=LONG_MS)
    chat.expect_done()


def test_a_cut_stream_is_continued(chat: ChatPage, model: ScriptedModel) -> None:
    model.script(Reply(say("The first half "), cut()), Reply(say("and the second half.")))
    chat.ask("Tell me", model="Scripted")
    expect(chat.transcript).to_contain_text("and the second half.", timeout=LONG_MS)
    chat.expect_done()
    expect(chat.transcript).to_contain_text("The first half")


def test_a_hanging_endpoint_can_be_stopped(chat: ChatPage, model: ScriptedModel) -> None:
    model.script(Reply(send_headers(), hang()))
    chat.ask("Hello?", model="Scripted")
    expect(chat.stop_button).to_be_visible(timeout=LONG_MS)
    chat.stop_button.click()
    chat.expect_done(timeout=5_000)
