"""Hostile text through every surface, in a real browser: shown as text, nothing runs, nobody is called."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from chat_core.bridge.run_host import LocalRunHost
from tests.support.chat_page import LONG_MS, ChatPage
from tests.support.hostile import MARK, Canary, HostileChoices, HostileRuntime, markup
from tests.support.parley_program import ParleyProgram
from tests.support.served_bridge import TOKEN, served_bridge

# Looks through open shadow roots too.
REMOTE_PARTS = """
() => {
  const found = [];
  const look = (root) => {
    for (const element of root.querySelectorAll('*')) {
      const address = element.getAttribute('src') ?? element.getAttribute('srcset') ?? '';
      if (address.includes('127.0.0.1') && !address.startsWith(location.origin)) found.push(element.outerHTML);
      if (element.href?.startsWith?.('javascript:')) found.push(element.outerHTML);
      for (const { name } of element.attributes) if (name.startsWith('on')) found.push(element.outerHTML);
      if (element.shadowRoot) look(element.shadowRoot);
    }
  };
  look(document);
  return found;
}
"""


@pytest.fixture(scope="module")
def canary() -> Iterator[Canary]:
    with Canary() as canary:
        yield canary


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, canary: Canary) -> Iterator[ParleyProgram]:
    host = LocalRunHost({"hermes": HostileRuntime(canary.url)})
    with served_bridge(host, HostileChoices(canary.url)) as address:
        program = ParleyProgram(
            Path(tmp_path_factory.mktemp("parley")) / "data",
            PARLEY_BRIDGE_URL=address.url,
            PARLEY_BRIDGE_TOKEN=TOKEN,
        )
        program.start()
        yield program
        program.close()
        host.close(5)


@pytest.fixture
def chat(page: Page, program: ParleyProgram) -> ChatPage:
    return ChatPage(page, program).open()


def nothing_happened(page: Page, canary: Canary) -> None:
    assert canary.paths == []
    assert page.evaluate("window.hostile") is None
    assert page.evaluate(REMOTE_PARTS) == []


def send(chat: ChatPage, text: str) -> None:
    chat.box.fill(text)
    chat.send_button.click()
    expect(chat.box).to_have_value("")


def test_markup_in_every_field_is_text_while_the_run_works_and_afterwards(
    chat: ChatPage, browser: Browser, canary: Canary
) -> None:
    send(chat, "ask me\n" + markup(canary.url, "user"))
    expect(chat.card).to_contain_text(f"{MARK} question", timeout=LONG_MS)
    for row in chat.page.locator(".live .history button").all():
        row.click()
    expect(chat.page.locator(".live")).to_contain_text(f"{MARK} result")
    expect(chat.area("todos")).to_contain_text(f"{MARK} todo")
    nothing_happened(chat.page, canary)
    chat.card.get_by_role("button", name="fine").click()
    chat.expect_done()
    expect(chat.transcript).to_contain_text(f"{MARK} answer")
    expect(chat.transcript).to_contain_text(f"{MARK} user")
    expect(chat.page.locator('[data-testid="stSidebar"]')).to_contain_text("ask me")
    nothing_happened(chat.page, canary)
    other = ChatPage(browser.new_context().new_page(), chat.program).open(chat.session)
    expect(other.transcript).to_contain_text(f"{MARK} answer", timeout=LONG_MS)
    nothing_happened(other.page, canary)
    other.page.context.close()


def test_the_opened_record_of_a_hostile_run_is_text(chat: ChatPage, canary: Canary) -> None:
    send(chat, "small")
    chat.expect_done()
    expect(chat.open_record()).to_contain_text(f"{MARK} thinking", timeout=LONG_MS)
    nothing_happened(chat.page, canary)


def test_huge_results_leave_the_page_responsive(chat: ChatPage, browser: Browser, canary: Canary) -> None:
    send(chat, "huge")
    chat.expect_done()
    expect(chat.transcript).to_contain_text(f"{MARK} answer")
    again = ChatPage(browser.new_context().new_page(), chat.program).open(chat.session)
    expect(again.transcript).to_contain_text(f"{MARK} answer", timeout=10_000)
    expect(again.open_record()).to_contain_text("one_line", timeout=10_000)
    again.box.fill("still here")
    expect(again.box).to_have_value("still here", timeout=2_000)
    nothing_happened(again.page, canary)
    again.page.context.close()
