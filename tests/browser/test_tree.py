"""The tree in a real browser: versions in two tabs, the map, two versions compared, search, long sessions, copying."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from tests.support.chat_page import LONG_MS, ChatPage
from tests.support.parley_program import ParleyProgram
from tests.support.seeded_tree import LARGE_LINES, SeededTree, seed_tree

NARROW = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(tmp_path_factory.mktemp("tree")) / "data"


@pytest.fixture(scope="module")
def tree(data_dir: Path) -> SeededTree:
    return seed_tree(data_dir)


@pytest.fixture(scope="module")
def program(data_dir: Path, tree: SeededTree) -> Iterator[ParleyProgram]:
    program = ParleyProgram(data_dir)
    program.start()
    yield program
    program.close()


@pytest.fixture
def chat(page: Page, program: ParleyProgram) -> ChatPage:
    return ChatPage(page, program)


@pytest.fixture
def second_tab(browser: Browser, program: ParleyProgram) -> Iterator[ChatPage]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(20_000)
    yield ChatPage(context.new_page(), program)
    context.close()


def button(chat: ChatPage, name: str, message_id: str) -> Locator:
    return chat.page.locator(f".st-key-{name}-{message_id} button")


def version(chat: ChatPage, message_id: str) -> Locator:
    return chat.page.locator(f".st-key-versions-{message_id}").get_by_text(re.compile(r"^\d/\d$"))


def active_messages(program: ParleyProgram, session: str) -> list[str]:
    """The ids of the stored active branch, as the API tells them."""
    answer = httpx.get(f"{program.url}/api/chat/sessions/{session}", timeout=10).raise_for_status().json()
    return [message["message_id"] for message in answer["messages"]]


def is_in_view(chat: ChatPage, place: Locator) -> None:
    """Wait until the place is on the screen, above the composer."""
    place.wait_for(timeout=LONG_MS)
    handle = place.element_handle()
    chat.page.wait_for_function(
        """(node) => {
          const box = node.getBoundingClientRect();
          const end = document.querySelector('[data-testid="stBottom"]').getBoundingClientRect().top;
          return box.bottom > 40 && box.top < end - 20;
        }""",
        arg=handle,
    )


def no_sideways_scroll(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth") is True


def test_only_the_clicked_fork_moves_also_after_a_reload_and_in_two_tabs(
    chat: ChatPage, second_tab: ChatPage, tree: SeededTree
) -> None:
    first, other = tree.first_answers
    question, wording = tree.second_questions
    chat.open(tree.forked)
    second_tab.open(tree.forked)
    expect(version(chat, first)).to_have_text("1/2")
    expect(version(chat, question)).to_have_text("1/2")
    button(chat, "next", first).click()
    expect(chat.transcript).to_contain_text("Other first answer.")
    expect(version(chat, other)).to_have_text("2/2")
    expect(chat.transcript).to_contain_text("2 follow-up messages in version 1")
    expect(chat.transcript).not_to_contain_text("Second question")
    # The other tab still shows the first version; its click moves the fork it is at, and what leads there.
    button(second_tab, "next", question).click()
    expect(version(second_tab, wording)).to_have_text("2/2")
    expect(version(second_tab, first)).to_have_text("1/2")
    chat.open(tree.forked)
    expect(version(chat, wording)).to_have_text("2/2")
    expect(version(chat, first)).to_have_text("1/2")
    button(chat, "next", first).click()
    expect(chat.transcript).to_contain_text("Other first answer.")
    button(chat, "previous", other).click()
    expect(version(chat, wording)).to_have_text("2/2")
    button(chat, "previous", wording).click()
    expect(version(chat, question)).to_have_text("1/2")
    expect(chat.transcript).to_contain_text("Second answer.")


def test_the_map_works_by_keyboard_and_changes_nothing(
    chat: ChatPage, tree: SeededTree, program: ParleyProgram
) -> None:
    chat.open(tree.forked)
    expect(chat.transcript).to_contain_text("Second answer.")
    before = active_messages(program, tree.forked)
    assert before
    chat.page.locator(".st-key-open-map button").click()
    rows = chat.page.locator(".tree .row")
    expect(rows).to_have_count(7)
    expect(rows.first).to_contain_text("<img src=x onerror=alert(1)>")
    expect(chat.page.locator(".tree img")).to_have_count(0)
    here = chat.page.locator(".tree [aria-current]")
    expect(here).to_contain_text("Second answer.")
    expect(here).to_be_focused()
    chat.page.keyboard.press("Home")
    chat.page.keyboard.press("ArrowDown")
    expect(rows.nth(1)).to_be_focused()
    expect(rows.nth(1)).to_contain_text("Other first answer.")
    chat.page.keyboard.press("Enter")
    expect(chat.transcript).to_contain_text("Other first answer.")
    expect(chat.page.locator(".tree")).to_have_count(0)
    assert f"message={tree.first_answers[1]}" in chat.page.url
    is_in_view(chat, chat.page.locator(f".st-key-agent-linked-{tree.first_answers[1]}"))
    expect(chat.page.get_by_text("You are looking at another branch")).to_be_visible()
    assert active_messages(program, tree.forked) == before
    chat.page.get_by_role("button", name="Show the active branch").click()
    expect(chat.transcript).to_contain_text("Second answer.")


def test_the_map_of_a_long_session_folds_and_fits_a_phone(chat: ChatPage, tree: SeededTree) -> None:
    chat.page.set_viewport_size(NARROW)
    chat.open(tree.long)
    chat.page.locator(".st-key-open-map button").click()
    fold = chat.page.locator('.tree .row[data-kind="fold"]')
    expect(fold).to_contain_text("messages")
    rows = chat.page.locator(".tree .row")
    few = rows.count()
    no_sideways_scroll(chat.page)
    fold.click()
    expect(rows).to_have_count(few + 50)
    chat.page.keyboard.press("Escape")
    expect(chat.page.locator(".tree")).to_have_count(0)


def test_two_versions_stand_side_by_side_and_one_above_the_other_on_a_phone(chat: ChatPage, tree: SeededTree) -> None:
    chat.open(tree.forked)
    button(chat, "compare", tree.first_answers[0]).click()
    left, right = (chat.page.locator(f".st-key-compare-answer-{side}") for side in ("left", "right"))
    expect(left).to_contain_text("First answer.")
    expect(right).to_contain_text("Other first answer.")
    expect(left).to_contain_text("notes.md")
    expect(right).to_contain_text("failed")
    boxes = [place.bounding_box() for place in (left, right)]
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert boxes[1]["x"] > boxes[0]["x"] + boxes[0]["width"] - 1
    chat.page.set_viewport_size(NARROW)
    chat.page.wait_for_function(
        """() => {
          const [left, right] = ["left", "right"].map((side) =>
            document.querySelector(`.st-key-compare-answer-${side}`).getBoundingClientRect());
          return right.top >= left.bottom - 1;
        }"""
    )
    no_sideways_scroll(chat.page)


def test_search_opens_the_message_on_its_branch_with_the_match_in_view(
    chat: ChatPage, tree: SeededTree, program: ParleyProgram
) -> None:
    chat.open(tree.found)
    expect(chat.transcript).to_contain_text("Short.")
    before = active_messages(program, tree.found)
    chat.page.locator(".st-key-session-search input").fill("库修")
    hit = chat.page.locator('[class*="st-key-session-hit-"]')
    expect(hit).to_have_count(1)
    expect(hit.locator("strong", has_text="库修")).to_have_count(1)
    expect(hit).to_contain_text("other branch")
    hit.locator("a").click()
    answer = chat.page.locator(f".st-key-agent-linked-{tree.found_answer}")
    is_in_view(chat, answer.get_by_text("数据库修复"))
    chat.page.wait_for_function("CSS.highlights.has('parley-find')")
    assert active_messages(program, tree.found) == before
    for text in ('"库修"', "库修 OR x", "库%"):
        chat.page.locator(".st-key-session-search input").fill(text)
        expect(chat.page.get_by_text(f"Nothing matches “{text}”.")).to_be_visible()


def test_a_long_session_opens_at_its_end_and_more_comes_without_a_jump(chat: ChatPage, tree: SeededTree) -> None:
    chat.open(tree.long)
    is_in_view(chat, chat.page.get_by_text("Answer 999.", exact=True).first)
    chat.page.locator(".st-key-earlier button").scroll_into_view_if_needed()
    top = chat.page.locator(f".st-key-user-{tree.long_messages[1920]}")
    before = top.bounding_box()
    chat.page.locator(".st-key-earlier button").click()
    expect(chat.transcript).to_contain_text("Answer 925.")
    chat.page.wait_for_function(
        """([id, place]) => {
          const node = document.querySelector(`.st-key-user-${id}`);
          return node && Math.abs(node.getBoundingClientRect().top - place) < 4;
        }""",
        arg=[tree.long_messages[1920], before["y"] if before else 0],
    )


def test_a_link_far_up_shows_its_surroundings_and_both_ways_on(chat: ChatPage, tree: SeededTree) -> None:
    target = tree.long_messages[801]
    chat.open(tree.long, message=target)
    is_in_view(chat, chat.page.locator(f".st-key-agent-linked-{target}"))
    expect(chat.transcript).not_to_contain_text("Answer 999.")
    chat.page.locator(".st-key-later button").click()
    expect(chat.transcript).to_contain_text("Answer 455.")
    chat.page.locator(".st-key-earlier button").click()
    expect(chat.transcript).to_contain_text("Answer 345.")
    chat.page.get_by_role("button", name="Back to the latest").click()
    is_in_view(chat, chat.page.get_by_text("Answer 999.", exact=True).first)
    assert "message=" not in chat.page.url


@pytest.fixture
def clipboard(page: Page, program: ParleyProgram) -> BrowserContext:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=program.url)
    return page.context


def copied(page: Page, pattern: str) -> str:
    """Wait until the clipboard holds something of this form and return it."""
    text = page.evaluate(
        """async (pattern) => {
          const wanted = new RegExp(pattern);
          for (let left = 200; left > 0; left -= 1) {
            const text = await navigator.clipboard.readText();
            if (wanted.test(text)) return text;
            await new Promise((resolve) => setTimeout(resolve, 50));
          }
          return "";
        }""",
        pattern,
    )
    return str(text)


@pytest.mark.usefixtures("clipboard")
def test_an_answer_its_code_and_its_link_can_be_copied(chat: ChatPage, tree: SeededTree) -> None:
    answer = tree.first_answers[0]
    chat.open(tree.forked)
    place = chat.page.locator(f".st-key-agent-{answer}")
    place.hover()
    button(chat, "copy", answer).click()
    assert copied(chat.page, "First answer").startswith("First answer.\n\n```python\nprint('hello')\n```")
    place.locator("pre").hover()
    place.locator('[data-testid="stCodeCopyButton"], [data-testid="stCode"] button').first.click()
    assert copied(chat.page, "^print").strip() == "print('hello')"
    button(chat, "copy-link", answer).click()
    link = copied(chat.page, "^http")
    assert link == f"{chat.program.url}/?session={tree.forked}&message={answer}"
    chat.page.goto(link)
    is_in_view(chat, chat.page.locator(f".st-key-agent-linked-{answer}"))


def test_the_record_holds_the_whole_log_and_large_results_on_demand(chat: ChatPage, tree: SeededTree) -> None:
    answer = tree.first_answers[0]
    chat.open(tree.forked)
    chat.page.locator(f".st-key-activity-{answer} button").click()
    record = chat.page.locator(f".st-key-agent-{answer}")
    expect(record.get_by_text("Thought", exact=True)).to_be_visible()
    expect(record.get_by_text("4.1 k tokens").first).to_be_visible()
    record.locator(".tool .fold-head").click()
    expect(record.locator(".mono-box").first).to_contain_text("notes.md")
    result = record.locator(".mono-box").last
    expect(result).to_contain_text("line 0 of the large result")
    expect(result).not_to_contain_text("line 4000 of")
    result.get_by_role("button", name=re.compile("Show all")).click()
    expect(result).to_contain_text("line 4000 of")
    assert LARGE_LINES > 5000
    expect(result).to_contain_text("Only the first part")
