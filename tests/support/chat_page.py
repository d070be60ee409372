"""The chat page as a person uses it."""

import re

from playwright.sync_api import Locator, Page, expect

from tests.support.parley_program import ParleyProgram

LONG_MS = 60_000


class ChatPage:
    """One tab on the chat page of a running program."""

    def __init__(self, page: Page, program: ParleyProgram) -> None:
        self.page = page
        self.program = program

    def open(self, session: str = "", **query: str) -> "ChatPage":
        parts = [f"session={session}"] if session else []
        parts += [f"{name}={value}" for name, value in query.items()]
        self.page.goto(f"{self.program.url}/" + (f"?{'&'.join(parts)}" if parts else ""))
        self.box.wait_for(timeout=LONG_MS)
        return self

    @property
    def box(self) -> Locator:
        return self.page.get_by_role("textbox", name="Message to the agent")

    @property
    def send_button(self) -> Locator:
        return self.page.get_by_role("button", name="Send", exact=True)

    @property
    def stop_button(self) -> Locator:
        return self.page.get_by_role("button", name="Stop", exact=True)

    def choose_model(self, label: str) -> None:
        select = self.page.get_by_role("combobox", name="Model")
        expect(select.locator("option", has_text=label)).to_have_count(1, timeout=LONG_MS)
        value = select.locator("option", has_text=label).get_attribute("value")
        select.select_option(value)

    def ask(self, text: str, model: str = "") -> str:
        """Send the text and return the id of the session it went to."""
        if model:
            self.choose_model(model)
        self.box.fill(text)
        self.send_button.click()
        expect(self.page.get_by_text(text, exact=True).first).to_be_visible()
        expect(self.box).to_have_value("")
        self.page.wait_for_url(re.compile("session="))
        return self.session

    @property
    def session(self) -> str:
        found = re.search(r"session=([0-9a-f-]{36})", self.page.url)
        assert found, self.page.url
        return found[1]

    def area(self, name: str) -> Locator:
        """One of the areas of the live panel: status, thinking, todos, tools, questions, answer."""
        return self.page.locator(f'.live [data-area="{name}"]')

    @property
    def card(self) -> Locator:
        """The question that waits for an answer."""
        return self.page.locator(".card").filter(has=self.page.get_by_role("button"))

    @property
    def transcript(self) -> Locator:
        return self.page.locator(".st-key-transcript")

    def expect_done(self, timeout: float = LONG_MS) -> None:
        """Wait until no run works in the shown session and the answer stands in the transcript."""
        expect(self.page.locator(".live")).to_have_count(0, timeout=timeout)
        expect(self.send_button).to_be_visible(timeout=timeout)

    def row(self, session: str) -> Locator:
        """The session's row in the sidebar."""
        return self.page.locator(f'[class*="st-key-session-"][class*="{session}"]').first

    def new_chat(self) -> None:
        self.page.locator(".st-key-new-chat a").click()
        expect(self.page.get_by_text("What should the agent do?")).to_be_visible()
        expect(self.box).to_have_value("")

    def go_to(self, session: str) -> None:
        self.row(session).locator("a").click()
        self.page.wait_for_url(re.compile(session))

    def open_record(self) -> Locator:
        """Open the full record of the first answer that has one, and return it."""
        self.transcript.locator('[class*="st-key-activity-"] button').first.click()
        record = self.page.locator(".record-body").first
        record.wait_for()
        return record
