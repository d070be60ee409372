"""The composer in a real browser: nothing typed is ever lost, nothing is sent twice or to the wrong session."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Locator, Page

from tests.support.panel_browser import PanelApp, chromium, expect, panel_app


@pytest.fixture(scope="module")
def app() -> Iterator[PanelApp]:
    with panel_app() as app:
        yield app


@pytest.fixture(scope="module")
def context() -> Iterator[BrowserContext]:
    with chromium() as browser:
        context = browser.new_context(viewport={"width": 1000, "height": 700})
        context.set_default_timeout(8000)
        yield context


@pytest.fixture
def page(context: BrowserContext, app: PanelApp) -> Iterator[Page]:
    """A page whose browser storage is empty."""
    app.behave(stop_status=202, stream_status=200)
    page = context.new_page()
    page.goto(f"{app.address}/api/assets/composer.js")
    page.evaluate("localStorage.clear()")
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    yield page
    page.close()
    assert problems == []


def box(page: Page) -> Locator:
    return page.get_by_label("Message to the agent")


def send_button(page: Page) -> Locator:
    return page.get_by_role("button", name="Send")


def stored(page: Page) -> dict[str, str]:
    return page.evaluate("() => ({ ...localStorage })")


def test_enter_sends_with_model_and_skill_and_shift_enter_breaks_the_line(app: PanelApp, page: Page) -> None:
    app.open(page, session="s1")
    page.get_by_label("Model").select_option("tour")
    page.get_by_label("Skill").select_option("code-review")
    box(page).press_sequentially("first")
    box(page).press("Shift+Enter")
    box(page).press_sequentially("second")
    box(page).press("Enter")
    page.get_by_text("sent[s1|tour|code-review] first").wait_for()
    expect(box(page)).to_have_value("")
    expect(box(page)).to_be_editable()
    assert "first" not in str(stored(page))
    expect(page.get_by_label("Model")).to_have_value("tour")


@pytest.mark.parametrize("event", [{"isComposing": True}, {"keyCode": 229}], ids=["composing", "code-229"])
def test_enter_that_ends_a_word_of_an_input_method_does_not_send(
    app: PanelApp, page: Page, event: dict[str, object]
) -> None:
    app.open(page)
    box(page).fill("你好")
    box(page).evaluate(
        "(node, init) => node.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, ...init }))",
        event,
    )
    page.get_by_role("button", name="Rerun").click()
    page.get_by_text("runs_of_the_script=2").wait_for()
    expect(box(page)).to_have_value("你好")
    expect(page.get_by_text("sent[")).to_have_count(0)


def test_drafts_belong_to_their_session_and_survive_switching_and_reload(app: PanelApp, page: Page) -> None:
    app.open(page, session="s1")
    box(page).fill("for the first")
    page.get_by_label("Model").select_option("local")
    page.get_by_role("button", name="Other session").click()
    expect(box(page)).to_have_value("")
    expect(page.get_by_label("Model")).to_have_value("")
    box(page).fill("for the second")
    page.get_by_role("button", name="Back").click()
    expect(box(page)).to_have_value("for the first")
    page.reload()
    expect(box(page)).to_have_value("for the first")
    expect(page.get_by_label("Model")).to_have_value("local")
    app.open(page, session="s2")
    expect(box(page)).to_have_value("for the second")
    app.open(page, session="")
    expect(box(page)).to_have_value("")


def test_the_draft_of_a_new_chat_is_forgotten_when_it_has_become_a_session(app: PanelApp, page: Page) -> None:
    app.open(page, session="")
    box(page).fill("the very first question")
    send_button(page).click()
    page.get_by_text("sent[||] the very first question").wait_for()
    expect(page).to_have_url(re.compile("session=made-by-send"))
    expect(box(page)).to_have_value("")
    app.open(page, session="")
    expect(box(page)).to_have_value("")


def test_a_refused_text_stays_with_the_reason_as_plain_text(app: PanelApp, page: Page) -> None:
    app.open(page)
    box(page).fill("please refuse this")
    send_button(page).click()
    expect(page.get_by_role("alert")).to_have_text("Only <b>5</b> runs at a time. Your text is kept.")
    expect(box(page)).to_have_value("please refuse this")
    expect(box(page)).to_be_editable()
    page.reload()
    expect(box(page)).to_have_value("please refuse this")


def test_a_send_that_nobody_confirms_gives_the_text_back(app: PanelApp, page: Page) -> None:
    page.clock.install()
    app.open(page)
    box(page).fill("silent please")
    send_button(page).click()
    page.get_by_text("sent[s1||] silent please").wait_for()
    expect(box(page)).not_to_be_editable()
    page.clock.fast_forward(11_000)
    expect(box(page)).to_be_editable()
    expect(box(page)).to_have_value("silent please")
    expect(page.get_by_role("alert")).to_contain_text("did not confirm")
    box(page).press_sequentially("!")
    page.reload()
    expect(box(page)).to_have_value("silent please!")


def test_a_page_closed_while_sending_warns_before_the_text_is_sent_again(app: PanelApp, page: Page) -> None:
    app.open(page)
    box(page).fill("silent at first")
    send_button(page).click()
    page.get_by_text("sent[s1||] silent").wait_for()
    page.reload()
    expect(box(page)).to_have_value("silent at first")
    expect(page.get_by_role("alert")).to_contain_text("on its way when the page was closed")


def test_a_second_enter_does_not_send_again(app: PanelApp, page: Page) -> None:
    app.open(page)
    box(page).fill("silent, and only once")
    box(page).press("Enter")
    box(page).press("Enter")
    page.get_by_role("button", name="Rerun").click()
    page.get_by_text("runs_of_the_script=3").wait_for()
    expect(page.get_by_text("sent[")).to_have_count(1)


def test_while_a_run_works_one_can_write_but_not_send_and_stop_stands_in_its_place(app: PanelApp, page: Page) -> None:
    app.run("working").add("run_started")
    app.open(page, run="working")
    expect(send_button(page)).to_be_hidden()
    box(page).fill("the next question")
    box(page).press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("still working")
    expect(box(page)).to_have_value("the next question")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Stopping…")).to_be_disabled()
    assert [call["run"] for call in app.calls("stop")] == ["working"]
    app.run("working").skip(1).add("run_stopped", status="STOPPED", text="")
    expect(send_button(page)).to_be_enabled()
    expect(page.get_by_role("alert")).to_be_hidden()
    expect(box(page)).to_have_value("the next question")


def test_a_stop_that_did_not_get_through_can_be_tried_again(app: PanelApp, page: Page) -> None:
    app.run("stubborn").add("run_started")
    app.behave(stop_status=503)
    app.open(page, run="stubborn")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("alert")).to_contain_text("did not get through")
    expect(page.get_by_role("button", name="Stop")).to_be_enabled()


def test_a_long_paste_is_kept_and_counted_and_not_sent(app: PanelApp, page: Page) -> None:
    app.open(page)
    box(page).fill("x" * 200_000)
    expect(page.get_by_text("200,000 of 100,000")).to_be_visible()
    expect(send_button(page)).to_be_disabled()
    box(page).press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("longer than 100,000 characters")
    assert box(page).evaluate("node => node.clientHeight") < 300
    page.reload()
    expect(box(page)).to_have_value("x" * 200_000)
    box(page).fill("😀" * 60_000)
    expect(send_button(page)).to_be_enabled()


def test_the_box_grows_to_ten_lines_and_then_scrolls(app: PanelApp, page: Page) -> None:
    app.open(page)
    height = "node => node.clientHeight"
    one = box(page).evaluate(height)
    box(page).fill("\n".join("12345"))
    five = box(page).evaluate(height)
    box(page).fill("\n".join(["line"] * 60))
    most = box(page).evaluate(height)
    assert one < 40 < five < most < 260


def test_an_example_question_fills_the_box_once(app: PanelApp, page: Page) -> None:
    app.open(page)
    page.get_by_role("button", name="Example").click()
    expect(box(page)).to_have_value("What can you do?")
    expect(page.get_by_label("Model")).to_have_value("tour")
    box(page).fill("My own words")
    page.get_by_role("button", name="Rerun").click()
    page.get_by_text("runs_of_the_script=3").wait_for()
    expect(box(page)).to_have_value("My own words")


def test_old_drafts_are_pruned_and_other_things_in_the_storage_are_left_alone(app: PanelApp, page: Page) -> None:
    app.open(page)
    page.evaluate(
        """() => {
            const monthsAgo = Date.now() - 40 * 86400000;
            localStorage.setItem("parley.draft.v1.old", JSON.stringify({ text: "old", at: monthsAgo }));
            localStorage.setItem("parley.draft.v1.broken", "{");
            localStorage.setItem("parley.draft.v1.fresh", JSON.stringify({ text: "fresh", at: Date.now() }));
            localStorage.setItem("somebody.else", "x");
        }"""
    )
    page.reload()
    expect(box(page)).to_be_visible()
    kept = stored(page)
    assert "parley.draft.v1.fresh" in kept
    assert "somebody.else" in kept
    assert not {"parley.draft.v1.old", "parley.draft.v1.broken"} & kept.keys()


def test_labels_follow_the_language(app: PanelApp, page: Page) -> None:
    app.open(page, lang="zh")
    expect(page.get_by_label("给智能体的消息")).to_be_visible()
    expect(page.get_by_role("button", name="发送")).to_be_visible()
