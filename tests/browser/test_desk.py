"""The desk round the conversations, in the whole program: files out and in, drafts, memory, settings."""

import json
import re
import zipfile
from pathlib import Path

import pytest
from playwright.sync_api import Download, Page, expect

from tests.support.chat_page import LONG_MS, ChatPage
from tests.support.parley_program import ParleyProgram
from tests.support.scripted_model import Reply, ScriptedModel, hold, say


@pytest.fixture
def chat(page: Page, program: ParleyProgram) -> ChatPage:
    return ChatPage(page, program)


def answered(chat: ChatPage, model: ScriptedModel, question: str, answer: str = "Done.") -> str:
    """Ask in a new session and wait for the answer."""
    chat.open()
    model.script(Reply(say(answer)))
    session = chat.ask(question, model="Scripted")
    chat.expect_done()
    return session


def export(chat: ChatPage, name: str) -> Download:
    chat.page.locator(".st-key-session-actions button").click()
    with chat.page.expect_download() as found:
        chat.page.locator(f".st-key-export-{name} button").click()
    chat.page.keyboard.press("Escape")
    return found.value


def choose_of_list(chat: ChatPage, words: str) -> None:
    chat.page.locator(".st-key-list-menu button").first.click()
    chat.page.get_by_text(words).click()


def choose_of_row(chat: ChatPage, session: str, words: str) -> None:
    chat.row(session).hover()
    chat.row(session).locator('[class*="st-key-menu-"] button').click()
    chat.page.get_by_role("menuitem", name=words).or_(chat.page.get_by_text(words, exact=True)).first.click()


def test_a_conversation_goes_out_as_files_while_a_run_works_and_comes_in_again(
    chat: ChatPage, model: ScriptedModel, tmp_path: Path
) -> None:
    session = answered(chat, model, "What is a/b?", "## An **answer**")
    gate = model.gate()
    model.script(Reply(say("half of it "), hold(gate), say("the rest")))
    chat.ask("And more?")
    expect(chat.area("answer")).to_contain_text("half of it", timeout=LONG_MS)
    markdown = export(chat, "md")
    assert markdown.suggested_filename == "What is a b.md"
    assert "An **answer**" in markdown.path().read_text("utf-8")
    gate.open()
    chat.expect_done()

    whole = export(chat, "json")
    assert whole.suggested_filename == "What is a b.json"
    file = tmp_path / "exported.json"
    whole.save_as(file)
    assert len(json.loads(file.read_text("utf-8"))["messages"]) == 4
    for told in ("This conversation was imported.", "was imported before"):
        choose_of_list(chat, "Import a conversation")
        chat.page.locator('[data-testid="stFileUploader"] input[type=file]').set_input_files(file)
        expect(chat.page.get_by_text(told)).to_be_visible(timeout=LONG_MS)
        expect(chat.transcript).to_contain_text("half of it the rest")
    assert chat.session != session


def test_a_file_that_cannot_be_made_is_told_in_words(chat: ChatPage, model: ScriptedModel) -> None:
    answered(chat, model, "Gone soon")
    chat.page.route("**/export?*", lambda route: route.abort())
    chat.page.locator(".st-key-session-actions button").click()
    chat.page.locator(".st-key-export-md button").click()
    expect(chat.page.get_by_text("The file could not be made.")).to_be_visible()


def test_many_conversations_go_out_as_one_archive(chat: ChatPage, model: ScriptedModel) -> None:
    sessions = [answered(chat, model, f"Archive question {number}") for number in range(2)]
    choose_of_list(chat, "Select conversations")
    for session in sessions:
        chat.page.locator(f".st-key-select-{session} label").click()
    expect(chat.page.get_by_text("2 selected")).to_be_visible()
    with chat.page.expect_download() as found:
        chat.page.locator(".st-key-select-export button").click()
    with zipfile.ZipFile(found.value.path()) as archive:
        assert sorted(archive.namelist()) == ["Archive question 0.json", "Archive question 1.json"]


def test_a_deletion_can_be_undone_and_the_offer_goes_by_itself(chat: ChatPage, model: ScriptedModel) -> None:
    session = answered(chat, model, "Delete me")
    choose_of_row(chat, session, "Delete")
    expect(chat.page.get_by_text("What should the agent do?")).to_be_visible()
    chat.page.locator(".st-key-undo-delete button").click()
    expect(chat.transcript).to_contain_text("Delete me")
    assert chat.session == session
    choose_of_row(chat, session, "Delete")
    expect(chat.page.locator(".st-key-undo-delete")).to_be_visible()
    expect(chat.page.locator(".st-key-undo-delete")).to_have_count(0, timeout=20_000)


def test_a_finished_session_has_a_dot_until_somebody_looks(chat: ChatPage, model: ScriptedModel) -> None:
    chat.open()
    gate = model.gate()
    model.script(Reply(hold(gate), say("**Ready** now.")))
    session = chat.ask("Take your time", model="Scripted")
    chat.new_chat()
    gate.open()
    expect(chat.row(session)).to_contain_text("●", timeout=LONG_MS)
    expect(chat.row(session)).to_contain_text("Ready now.")
    chat.go_to(session)
    expect(chat.transcript).to_contain_text("Ready now.")
    expect(chat.row(session)).not_to_contain_text("●")


def test_drafts_survive_switching_reload_a_failed_send_and_a_restart(
    chat: ChatPage, model: ScriptedModel, program: ParleyProgram
) -> None:
    first, second = answered(chat, model, "First session"), answered(chat, model, "Second session")
    chat.box.fill("draft of the second")
    chat.go_to(first)
    expect(chat.transcript).to_contain_text("First session")
    expect(chat.box).to_have_value("")
    chat.box.fill("draft of the first\nwith a second line")
    chat.go_to(second)
    expect(chat.box).to_have_value("draft of the second")
    chat.page.reload()
    expect(chat.box).to_have_value("draft of the second", timeout=LONG_MS)

    program.kill()
    chat.box.press("Enter")
    expect(chat.box).to_have_value("draft of the second")
    program.start()
    chat.open(first)
    expect(chat.box).to_have_value("draft of the first\nwith a second line")
    chat.open(second)
    expect(chat.box).to_have_value("draft of the second")
    model.script(Reply(say("It came through.")))
    chat.box.press("Enter")
    expect(chat.transcript).to_contain_text("It came through.", timeout=LONG_MS)
    expect(chat.box).to_have_value("")
    chat.page.reload()
    chat.expect_done()
    expect(chat.box).to_have_value("")


def test_the_agents_memory_is_read_edited_and_a_refusal_keeps_the_text(chat: ChatPage, model: ScriptedModel) -> None:
    answered(chat, model, "Remember something")
    chat.page.locator(".st-key-open-memory button").click()
    drawer = chat.page.get_by_role("dialog")
    expect(drawer).to_contain_text("of 128,000 tokens")
    expect(drawer).to_contain_text("Remember something")
    drawer.get_by_role("tab", name="Long-term").click()
    box = drawer.locator(".st-key-memory-text-user textarea")
    box.fill("Likes short answers.")
    drawer.locator(".st-key-memory-save-user button").click()
    expect(drawer.get_by_text("Saved")).to_be_visible()
    box.fill("x" * 5000)
    drawer.locator(".st-key-memory-save-user button").click()
    expect(drawer.locator(".st-key-notice-memory-user")).to_contain_text("the agent reads at most")
    expect(box).to_have_value("x" * 5000)
    drawer.locator(".st-key-memory-revert-user button").click()
    expect(box).to_have_value("Likes short answers.")


def test_the_statistics_of_a_session_are_one_click_away(chat: ChatPage, model: ScriptedModel) -> None:
    session = answered(chat, model, "Count me")
    chat.page.locator(".st-key-session-actions button").click()
    chat.page.get_by_text("Statistics of this conversation").click()
    chat.page.wait_for_url(re.compile(f"analytics.*session={session}"))
    expect(chat.page.get_by_role("heading", name="Statistics")).to_be_visible(timeout=LONG_MS)


def test_settings_name_the_models_and_the_theme_holds_on_every_page(chat: ChatPage, program: ParleyProgram) -> None:
    page = chat.page
    page.goto(f"{program.url}/settings")
    expect(page.get_by_text("Scripted", exact=True)).to_be_visible(timeout=LONG_MS)
    main = page.locator('[data-testid="stMain"]')
    expect(main).to_contain_text("models.toml")
    expect(page.get_by_text("A folder is not a sandbox.")).to_be_visible()
    assert "the-right-key" not in page.content()
    page.get_by_role("radio", name="Dark").check()
    app = page.locator('[data-testid="stApp"]')
    expect(app).to_have_css("background-color", "rgb(23, 24, 27)", timeout=LONG_MS)
    chat.open()
    expect(app).to_have_css("background-color", "rgb(23, 24, 27)")
    page.goto(f"{program.url}/settings")
    expect(page.get_by_role("radio", name="Dark")).to_be_checked(timeout=LONG_MS)
