"""The live panel and the record in a real browser, over an API whose every word the test decides."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, Request

from tests.support.panel_browser import PanelApp, RunScript, answer_of, area, chromium, expect, panel_app

CHUNKS = [f"word{number} " for number in range(40)]


@pytest.fixture(scope="module")
def app() -> Iterator[PanelApp]:
    with panel_app() as app:
        yield app


@pytest.fixture(scope="module")
def context() -> Iterator[BrowserContext]:
    with chromium() as browser:
        context = browser.new_context(viewport={"width": 1200, "height": 800})
        context.set_default_timeout(8000)
        yield context


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    yield page
    page.close()
    assert problems == []


@pytest.fixture
def run(app: PanelApp, request: pytest.FixtureRequest) -> RunScript:
    app.behave(stream_status=200, resume={"status": 200, "body": {}}, hold_resume=False, replay_all=False)
    return app.run(request.node.name.removeprefix("test_")[:60]).add("run_started")


def say(run: RunScript, *chunks: str) -> None:
    run.add_many([("answer", {"text": chunk}) for chunk in chunks])


def card(page: Page, question_id: str) -> Any:
    return page.locator(f'[data-question="{question_id}"]')


# -- the five areas ----------------------------------------------------------------------------------------------


def test_every_area_fills_as_the_run_works(app: PanelApp, page: Page, run: RunScript) -> None:
    app.open(page, run=run.run_id)
    run.add("thinking", text="First look,\nthen leap.")
    run.add("todo_update", todos=[_todo("Look", "completed"), _todo("Leap", "in_progress")])
    run.add("answer", text="Let me look.").add("answer_break", text="Let me look.")
    run.add("tool_call", call_id="c1", name="search_files", args={"pattern": "*.md"})
    run.add("tool_result", call_id="c1", name="search_files", result="two files", duration_ms=412, is_error=False)
    run.add("tool_call", call_id="c2", name="read_file", args={"path": "docs/report.md"})

    expect(area(page, "status")).to_contain_text("Reading")
    expect(area(page, "status").locator("code")).to_have_text("report.md")
    expect(area(page, "thinking")).to_contain_text("then leap.")
    expect(area(page, "todos")).to_contain_text("1 of 2 done")
    expect(page.locator(".current-tools")).to_contain_text("read_file")
    expect(page.locator(".history > *")).to_have_count(2)
    expect(page.locator(".history > *").first).to_have_text("Let me look.")
    expect(page.locator(".history > *").nth(1)).to_contain_text("412 ms")
    expect(answer_of(page)).to_be_empty()

    run.ask("q1", "Which one?", ["This", "That"])
    expect(card(page, "q1")).to_contain_text("Which one?")
    expect(area(page, "status")).to_contain_text("Waiting for you")
    say(run, "It says **nothing**.")
    expect(answer_of(page).locator("strong")).to_have_text("nothing")


def test_elapsed_time_counts_from_the_start_of_the_run(app: PanelApp, page: Page) -> None:
    run = app.run("started-long-ago", started_ago_seconds=3700).add("run_started").add("thinking", text="Hm.")
    app.open(page, run=run.run_id)
    expect(area(page, "status")).to_contain_text("1 h 1 min")


def test_a_tool_row_opens_to_arguments_and_result_and_an_error_says_so(
    app: PanelApp, page: Page, run: RunScript
) -> None:
    app.open(page, run=run.run_id)
    run.add("tool_call", call_id="c1", name="terminal", args={"command": "make it so"})
    page.locator('[data-call="c1"] button').first.click()
    expect(page.locator('[data-call="c1"]')).to_contain_text("No result yet.")
    run.add("tool_result", call_id="c1", name="terminal", result='{"exit":2}', duration_ms=1200, is_error=True)

    row = page.locator('.history [data-call="c1"]')
    expect(row.locator(".tool-state")).to_have_text("failed")
    expect(row.locator("pre").first).to_have_text('{\n  "command": "make it so"\n}')
    expect(row.locator("pre").nth(1)).to_have_text('{\n  "exit": 2\n}')


def test_opened_thoughts_stay_open_while_more_arrive_and_over_a_rerun(
    app: PanelApp, page: Page, run: RunScript
) -> None:
    run.add("thinking", text="one\ntwo\nthree\nfour\nfive\n")
    app.open(page, run=run.run_id)
    page.get_by_role("button", name="Thinking").click()
    expect(area(page, "thinking").locator(".thought-box")).to_have_text("one\ntwo\nthree\nfour\nfive")
    run.add("thinking", text="six")
    page.get_by_role("button", name="Rerun").click()
    page.get_by_text("runs_of_the_script=2").wait_for()
    expect(area(page, "thinking").locator(".thought-box")).to_contain_text("six")
    expect(page.get_by_role("button", name="Thinking")).to_have_attribute("aria-expanded", "true")


def test_unknown_kinds_notices_and_helpers_are_shown_and_never_fatal(app: PanelApp, page: Page, run: RunScript) -> None:
    app.open(page, run=run.run_id)
    run.add("status", text="⏳ Retrying in 2.3s (attempt 1/3)", level="warning")
    run.add("subagent", event="subagent.start", subagent_id="s1", goal="Count the words")
    run.add("context_compacted", text="Summary of **before**", condensed=23)
    run.add("weather_report", text="Sunny").add("usage", input_tokens=10).add("todo_update", todos="nonsense")
    run.add("tool_call").add("tool_result", call_id="never-called", result=None)
    say(run, "Still here.")
    expect(answer_of(page)).to_have_text("Still here.")
    for words in ("Retrying in 2.3s", "Count the words", "condensed the earlier conversation", "Sunny"):
        expect(page.locator(".history")).to_contain_text(words)


# -- the stream --------------------------------------------------------------------------------------------------


def test_reload_in_the_middle_shows_the_whole_text_again(app: PanelApp, page: Page, run: RunScript) -> None:
    app.open(page, run=run.run_id)
    say(run, *CHUNKS[:20])
    expect(answer_of(page)).to_have_text("".join(CHUNKS[:20]).strip())
    page.reload()
    expect(answer_of(page)).to_have_text("".join(CHUNKS[:20]).strip())
    say(run, *CHUNKS[20:])
    expect(answer_of(page)).to_have_text("".join(CHUNKS).strip())


def test_a_cut_stream_is_rejoined_after_the_last_event_and_replayed_events_change_nothing(
    app: PanelApp, page: Page, run: RunScript
) -> None:
    app.open(page, run=run.run_id)
    run.add("tool_call", call_id="c1", name="terminal", args={"command": "sleep"})
    for part in range(3):
        say(run, *CHUNKS[part * 10 : part * 10 + 10])
        expect(answer_of(page)).to_contain_text(CHUNKS[part * 10 + 9].strip())
        app.behave(replay_all=part == 1)
        app.cut()
    run.add("tool_result", call_id="c1", name="terminal", result="ok", duration_ms=5, is_error=False)
    say(run, *CHUNKS[30:])
    expect(answer_of(page)).to_have_text("".join(CHUNKS).strip())
    expect(page.locator("[data-call]")).to_have_count(1)
    afters = [call["after"] for call in app.calls("stream") if call["run"] == run.run_id]
    assert afters == [0, 12, 22, 32]


def test_resync_starts_the_whole_run_again(app: PanelApp, page: Page, run: RunScript) -> None:
    run.add("thinking", text="An old thought.").add("tool_call", call_id="c1", name="terminal", args={})
    say(run, "What was ", "said.")
    app.open(page, run=run.run_id)
    expect(answer_of(page)).to_have_text("What was said.")
    app.forget(run.run_id)
    app.run(run.run_id).add("run_started").add("answer", text="What is true.")
    app.behave(resync_once=True)
    app.cut()
    expect(answer_of(page)).to_have_text("What is true.")
    expect(page.locator("[data-call]")).to_have_count(0)
    expect(page.locator(".live")).not_to_contain_text("An old thought.")


def test_a_hole_in_the_numbers_is_asked_for_and_then_accepted(app: PanelApp, page: Page, run: RunScript) -> None:
    app.open(page, run=run.run_id)
    say(run, "before ")
    expect(answer_of(page)).to_have_text("before")
    run.skip(3)
    say(run, "after")
    expect(answer_of(page)).to_have_text("before after")
    assert [call["after"] for call in app.calls("stream") if call["run"] == run.run_id] == [0, 2]


def test_two_tabs_show_the_same(app: PanelApp, page: Page, context: BrowserContext, run: RunScript) -> None:
    second = context.new_page()
    app.open(page, run=run.run_id)
    app.open(second, run=run.run_id)
    say(run, *CHUNKS)
    for tab in (page, second):
        expect(answer_of(tab)).to_have_text("".join(CHUNKS).strip())
    second.close()


def test_switching_between_two_runs_never_mixes_them(app: PanelApp, page: Page) -> None:
    runs = {name: app.run(f"switch-{name}").add("run_started") for name in ("AAAA", "BBBB")}
    app.open(page, run="switch-AAAA", other="switch-BBBB")
    for _ in range(3):
        for name, other in (("AAAA", "BBBB"), ("BBBB", "AAAA")):
            expect(page.locator(f'[data-run="switch-{name}"]')).to_be_visible()
            for run_name, script in runs.items():
                say(script, f"{run_name} ")
            written = f"{name} " * (runs[name].seq - 1)
            expect(answer_of(page)).to_have_text(written.strip())
            assert other not in page.locator(".live").inner_text()
            page.get_by_role("button", name="Other run").click()


def test_a_silent_stream_is_opened_again(app: PanelApp, page: Page, run: RunScript) -> None:
    page.clock.install()
    app.open(page, run=run.run_id)
    say(run, "Hello.")
    expect(answer_of(page)).to_have_text("Hello.")
    with page.expect_request(lambda request: "/stream?last_event_id=2" in request.url):
        page.clock.fast_forward(22_000)


def test_a_hidden_tab_lets_its_stream_go_and_takes_up_where_it_was(app: PanelApp, page: Page, run: RunScript) -> None:
    app.open(page, run=run.run_id)
    say(run, "seen ")
    expect(answer_of(page)).to_have_text("seen")
    _set_visibility(page, "hidden")
    expect(page.locator(".live")).to_have_attribute("data-line", "paused")
    say(run, "unseen")
    _set_visibility(page, "visible")
    expect(answer_of(page)).to_have_text("seen unseen")
    assert [call["after"] for call in app.calls("stream") if call["run"] == run.run_id] == [0, 2]


def test_offline_is_told_once_and_the_stream_comes_back_by_itself(app: PanelApp, page: Page, run: RunScript) -> None:
    page.clock.install()
    app.behave(stream_status=503)
    app.open(page, run=run.run_id)
    expect(area(page, "status")).to_contain_text("Connection lost")
    page.clock.fast_forward(6_000)
    page.get_by_text("offline=1").wait_for()
    page.clock.fast_forward(6_000)
    app.behave(stream_status=200)
    page.clock.fast_forward(6_000)
    say(run, "Back.")
    expect(answer_of(page)).to_have_text("Back.")
    expect(page.get_by_text("offline=1")).to_be_visible()


def test_nothing_to_stream_counts_as_finished(app: PanelApp, page: Page, run: RunScript) -> None:
    app.behave(stream_status=204)
    app.open(page, run=run.run_id)
    page.get_by_text("finished=1").wait_for()


# -- questions ---------------------------------------------------------------------------------------------------


def test_a_card_stays_until_the_server_has_confirmed_and_a_double_click_answers_once(
    app: PanelApp, page: Page, run: RunScript
) -> None:
    app.behave(hold_resume=True)
    app.open(page, run=run.run_id)
    run.ask("q1", "Tea or coffee?", ["Tea", "Coffee"])
    card(page, "q1").get_by_role("button", name="Tea").dblclick()
    expect(card(page, "q1")).to_contain_text("Sending your answer")
    expect(card(page, "q1").get_by_role("button", name="Coffee")).to_be_disabled()
    app.behave(hold_resume=False)
    expect(card(page, "q1")).to_have_count(0)
    expect(page.locator(".history")).to_contain_text("Answered: Tea")
    answers = [call for call in app.calls("resume") if call["run"] == run.run_id]
    assert [(call["question_id"], call["answer"]) for call in answers] == [("q1", "Tea")]


def test_two_questions_with_the_same_words_are_two_cards(app: PanelApp, page: Page, run: RunScript) -> None:
    app.open(page, run=run.run_id)
    run.ask("q1", "Go on?", ["Yes"])
    card(page, "q1").get_by_role("button", name="Yes").click()
    run.add("clarify_answer", text="Yes", question_id="q1", answered_by="local")
    run.ask("q2", "Go on?", ["Yes"])
    expect(card(page, "q2")).to_have_attribute("data-state", "open")
    card(page, "q2").get_by_role("button", name="Yes").click()
    expect(card(page, "q2")).to_have_count(0)
    assert [call["question_id"] for call in app.calls("resume") if call["run"] == run.run_id] == ["q1", "q2"]


def test_the_second_answer_is_told_which_was_the_first(app: PanelApp, page: Page, run: RunScript) -> None:
    error = {"code": "already_answered", "message": "…", "detail": {"answer": "Coffee"}}
    app.behave(resume={"status": 409, "body": {"error": error}})
    app.open(page, run=run.run_id)
    run.ask("q1", "Tea or coffee?", ["Tea", "Coffee"])
    card(page, "q1").get_by_role("button", name="Tea").click()
    expect(card(page, "q1")).to_contain_text("already answered with: Coffee")


def test_an_answer_that_did_not_get_through_is_kept_and_can_be_sent_again(
    app: PanelApp, page: Page, run: RunScript
) -> None:
    app.open(page, run=run.run_id)
    run.ask("q1", "What is it called?", [])
    page.route("**/resume", lambda route: route.abort())
    box = card(page, "q1").get_by_role("textbox")
    box.fill("A long and careful answer")
    box.press("Enter")
    expect(card(page, "q1")).to_contain_text("did not get through")
    expect(box).to_have_value("A long and careful answer")
    page.reload()
    expect(box).to_have_value("A long and careful answer")
    page.unroute("**/resume")
    card(page, "q1").get_by_role("button", name="Answer").click()
    expect(page.locator(".history")).to_contain_text("Answered: A long and careful answer")


def test_a_closed_question_explains_itself_and_the_late_answer_becomes_a_message(
    app: PanelApp, page: Page, run: RunScript
) -> None:
    app.open(page, run=run.run_id, keep="1", session="late-answer")
    run.ask("q1", "Which colour?", ["Red"])
    card(page, "q1").get_by_role("textbox").fill("Blue, please")
    run.add("run_stopped", status="STOPPED", text="")
    expect(card(page, "q1")).to_contain_text("closed: the run was stopped")
    expect(card(page, "q1").get_by_role("button", name="Red")).to_be_hidden()
    expect(page.get_by_label("Message to the agent")).to_have_value("Blue, please")


def test_an_approval_shows_the_true_command_and_can_be_denied(app: PanelApp, page: Page, run: RunScript) -> None:
    app.open(page, run=run.run_id)
    command = "rm -rf \u202etxt.safe\u202c /tmp/x\x1b[8m --no-preserve-root"
    run.ask("q1", "Delete?", ["once", "session", "deny"], kind="approval", command=command, description="deletes")
    shown = card(page, "q1").locator("pre")
    expect(shown).to_contain_text("rm -rf \\u202etxt.safe\\u202c /tmp/x --no-preserve-root")
    expect(card(page, "q1").get_by_role("button")).to_have_text(["Allow once", "Allow for this session", "Deny"])
    card(page, "q1").get_by_role("button", name="Deny").click()
    expect(page.locator(".history")).to_contain_text("Answered: Deny")
    assert [call["answer"] for call in app.calls("resume") if call["run"] == run.run_id] == ["deny"]


# -- foreign text ------------------------------------------------------------------------------------------------

HOSTILE = """
<script>window.pwned = 1</script><img src=x onerror="window.pwned = 2"><svg onload="window.pwned = 3">
</div></section><iframe srcdoc="<script>parent.pwned = 4</script>"></iframe>

[click](javascript:window.pwned=5) [data](data:text/html,<script>window.pwned=6</script>)
<a href="javascript:alert(1)">x</a>
![a picture](https://evil.example/pixel.png) [good](https://good.example/ "title\\" onmouseover=\\"window.pwned=7")
[<img src=x onerror=window.pwned=8>](https://good.example/two)

```html" onload="window.pwned=9
<img src=x onerror=window.pwned=10>
```

| a | b |
|---|---|
| <style>*{display:none}</style> | <br> \u202e reversed |

[![nested](https://evil.example/b.png)](vbscript:x) <https://good.example/three>
"""


def test_hostile_text_executes_nothing_and_calls_nothing(app: PanelApp, page: Page, run: RunScript) -> None:
    foreign: list[str] = []
    page.on("request", lambda request: _note_foreign(request, foreign))
    app.open(page, run=run.run_id, keep="1")
    run.add("thinking", text=HOSTILE).add("answer", text=HOSTILE).add("answer_break", text=HOSTILE)
    run.add("todo_update", todos=[_todo(HOSTILE, "pending"), {"content": {"a": HOSTILE}}, "x", None])
    run.add("tool_call", call_id="c1", name=HOSTILE, args={HOSTILE: HOSTILE})
    run.add("tool_result", call_id="c1", name=HOSTILE, result=HOSTILE, is_error=True)
    run.add("status", text=HOSTILE, level="error").add("subagent", goal=HOSTILE, event=HOSTILE)
    run.ask("q1", HOSTILE, [HOSTILE, "b"])
    for end in range(1, len(HOSTILE), 7):
        say(run, HOSTILE[end - 1 : end + 6])
    run.add("context_compacted", text=HOSTILE, condensed=HOSTILE)
    expect(answer_of(page).locator("table")).to_be_visible()
    page.locator('[data-call="c1"] button').first.click()
    page.locator(".note-row").click()
    run.add("run_failed", code=HOSTILE, message=HOSTILE)
    expect(area(page, "answer").locator(".ending")).to_be_visible()

    assert page.evaluate("window.pwned") is None
    assert page.locator(".live").locator("script, img, iframe, style, object, form").count() == 0
    assert page.locator(".live [onerror], .live [onload], .live [onmouseover], .live [style*=display]").count() == 0
    links = page.locator(".live a").evaluate_all("links => links.map(a => [a.protocol, a.target, a.rel])")
    assert links
    assert {tuple(link) for link in links} == {("https:", "_blank", "noopener noreferrer nofollow")}
    assert foreign == []


def test_a_huge_result_is_bounded_before_it_touches_the_page(app: PanelApp, page: Page, run: RunScript) -> None:
    app.open(page, run=run.run_id)
    results = {
        "endless line": "x" * 5_000_000,
        "many lines": "line\n" * 200_000,
        "wide lines": ("y" * 490 + "\n") * 49,
        "colours": "\x1b[31mred\x1b[0m " * 5_000,
        "progress": "".join(f"{percent}%\r" for percent in range(100)) + "done\nnext",
        "deep": "[" * 50_000 + "]" * 50_000,
    }
    for name, result in results.items():
        run.add("tool_call", call_id=name, name="terminal", args={"command": name})
        run.add("tool_result", call_id=name, name="terminal", result=result, duration_ms=1, is_error=False)
    expect(page.locator("[data-call='deep']")).to_have_count(1)
    page.get_by_role("button", name="earlier step").click()
    for name in results:
        page.locator(f'[data-call="{name}"] button').first.click()
    shown = {name: page.locator(f'[data-call="{name}"] pre').nth(1).inner_text() for name in results}
    assert all(len(text) < 5000 for text in shown.values())
    assert shown["many lines"].count("\n") <= 51
    assert shown["colours"].startswith("red red")
    assert shown["progress"].split("\n") == ["done", "next"]
    page.locator('[data-call="endless line"]').get_by_role("button", name="Show all").click()
    expect(page.locator('[data-call="endless line"]')).to_contain_text("Only the first part of 4.8 MB is shown")


def test_the_whole_of_a_stored_result_is_fetched_when_asked_for(app: PanelApp, page: Page, run: RunScript) -> None:
    app.behave(result="the whole text")
    app.open(page, run=run.run_id)
    run.add("tool_call", call_id="c1", name="terminal", args={})
    run.add("tool_result", call_id="c1", name="terminal", result="the", result_ref="ref1", bytes=90_000)
    page.locator('[data-call="c1"] button').first.click()
    page.get_by_role("button", name="Show all (88 kB)").click()
    expect(page.locator('[data-call="c1"] pre')).to_have_text("the whole text")


def test_the_whole_of_a_shortened_result_is_found_in_the_log(app: PanelApp, page: Page, run: RunScript) -> None:
    app.behave(log=[_entry(3, "tool_result", content="the whole of it", call_id="c1")])
    app.open(page, run=run.run_id)
    run.add("tool_call", call_id="c1", name="terminal", args={})
    run.add("tool_result", call_id="c1", name="terminal", result="the …", cut=True, is_error=False)
    page.locator('[data-call="c1"] button').first.click()
    page.get_by_role("button", name="Show all").click()
    expect(page.locator('[data-call="c1"] pre')).to_have_text("the whole of it")


# -- Markdown that grows -----------------------------------------------------------------------------------------

MARKDOWN = """# Title

Some *text* with a [link][later] and `code`.

1. one

   still one
2. two

   ```python
   nested = True

   more = False
   ```

3. three

```js
let a = `1`;

let b = 2;
```
~~~~text
``` not a fence
~~~~
- [x] done
- [ ] open

| a | b |
|---|--:|
| 1 | 2 |

> quoted

Last **words** of it.

[later]: https://good.example/later
"""


def test_text_that_came_in_pieces_looks_like_text_that_came_at_once(
    app: PanelApp, page: Page, context: BrowserContext, run: RunScript
) -> None:
    app.open(page, run=run.run_id, keep="1")
    for start in range(0, len(MARKDOWN), 41):
        say(run, MARKDOWN[start : start + 41])
        page.evaluate("() => new Promise(requestAnimationFrame)")
    run.add("run_finished", status="SUCCESS", text=MARKDOWN)
    whole = app.run("at-once").add("run_started").add("run_finished", status="SUCCESS", text=MARKDOWN)
    second = context.new_page()
    app.open(second, run=whole.run_id, keep="1")
    for tab in (page, second):
        expect(area(tab, "status")).to_contain_text("Finished")
        expect(answer_of(tab)).to_contain_text("Last words of it.")
    assert _outline(page) == _outline(second)
    assert answer_of(page).locator("ol").count() == 1
    assert answer_of(page).locator("ol li").count() == 3
    expect(answer_of(page).get_by_role("link", name="link")).to_have_attribute("href", "https://good.example/later")
    expect(answer_of(page).locator(".code-box")).to_have_count(3)
    second.close()


def test_closed_blocks_are_not_drawn_again(app: PanelApp, page: Page, run: RunScript) -> None:
    app.open(page, run=run.run_id)
    say(run, "First block.\n\nSecond ")
    expect(answer_of(page).locator("p")).to_have_count(2)
    answer_of(page).locator("p").evaluate_all("ps => ps.forEach(p => { p.kept = true; })")
    say(run, "grows.\n\nThird.")
    expect(answer_of(page).locator("p")).to_have_count(3)
    assert answer_of(page).locator("p").evaluate_all("ps => ps.map(p => p.kept ?? false)") == [True, True, False]


# -- the end, and reruns -----------------------------------------------------------------------------------------


def test_a_rerun_neither_remounts_the_panel_nor_opens_another_stream(app: PanelApp, page: Page, run: RunScript) -> None:
    app.open(page, run=run.run_id)
    say(run, "Same ")
    expect(answer_of(page)).to_have_text("Same")
    page.locator(".live").evaluate("node => { node.kept = true; }")
    for number in (2, 3):
        page.get_by_role("button", name="Rerun").click()
        page.get_by_text(f"runs_of_the_script={number}").wait_for()
    say(run, "panel")
    expect(answer_of(page)).to_have_text("Same panel")
    assert page.locator(".live").evaluate("node => node.kept")
    assert len([call for call in app.calls("stream") if call["run"] == run.run_id]) == 1


def test_the_end_is_told_to_the_page_once(app: PanelApp, page: Page, run: RunScript) -> None:
    app.open(page, run=run.run_id)
    say(run, "Done.")
    run.add("run_finished", status="SUCCESS", text="Done.")
    page.get_by_text("finished=1").wait_for()
    expect(page.locator(".live")).to_have_count(0)
    expect(page.get_by_text("runs_of_the_script=2")).to_be_visible()


def test_a_failed_run_keeps_its_text_and_tells_the_reason(app: PanelApp, page: Page, run: RunScript) -> None:
    app.open(page, run=run.run_id, keep="1")
    say(run, "Half an ans")
    run.add("run_failed", status="FAILED", code="model_rate_limit", message="Too many requests. It is kept.")
    expect(area(page, "status")).to_contain_text("Failed")
    expect(area(page, "answer")).to_contain_text("Half an ans")
    expect(area(page, "answer")).to_contain_text("Too many requests. It is kept.")


def test_the_view_follows_the_end_only_while_the_reader_is_there(app: PanelApp, page: Page, run: RunScript) -> None:
    app.open(page, run=run.run_id, lines="60")
    say(run, *(f"Line {number}\n\n" for number in range(30)))
    expect(answer_of(page)).to_contain_text("Line 29")
    expect(answer_of(page).get_by_text("Line 29")).to_be_in_viewport()
    page.mouse.move(600, 300)
    page.mouse.wheel(0, -900)
    jump = page.get_by_role("button", name="Jump to latest")
    expect(jump).to_be_visible()
    say(run, *(f"Line {number}\n\n" for number in range(30, 60)))
    expect(answer_of(page)).to_contain_text("Line 59")
    expect(answer_of(page).get_by_text("Line 59")).not_to_be_in_viewport()
    jump.click()
    expect(answer_of(page).get_by_text("Line 59")).to_be_in_viewport()
    expect(jump).to_be_hidden()
    # By the scroll bar: no wheel is turned.
    page.locator('[data-testid="stMain"]').evaluate("node => { node.scrollTop -= 700; }")
    expect(jump).to_be_visible()
    say(run, "Line 60")
    expect(answer_of(page)).to_contain_text("Line 60")
    expect(answer_of(page).get_by_text("Line 60")).not_to_be_in_viewport()


# -- the record --------------------------------------------------------------------------------------------------


def test_the_record_is_fetched_when_opened_and_shows_things_in_their_order(app: PanelApp, page: Page) -> None:
    app.behave(
        log=[
            _entry(1, "run_started"),
            _entry(2, "thinking", content="Hm.", seq_to=5),
            _entry(6, "answer_break", content="I will *look*."),
            _entry(7, "tool_call", content='{"path": "a.md"}', tool_name="read_file", call_id="c1"),
            _entry(8, "tool_result", content="text", tool_name="read_file", call_id="c1", duration_ms=30),
            _entry(9, "clarify_request", content="Sure?", meta={"question_id": "q1", "choices": ["Yes"]}),
            _entry(10, "clarify_answer", content="Yes", meta={"question_id": "q1", "answered_by": "local"}),
            _entry(11, "run_interrupted", meta={"status": "INTERRUPTED", "error": {"code": "x", "message": "Gone."}}),
            _entry(12, "run_started"),
            _entry(13, "tool_call", content="{}", tool_name="todo", call_id="c2"),
            _entry(14, "run_finished", content="Done.", meta={"status": "SUCCESS"}),
        ]
    )
    app.open(page, record="m-finished")
    line = page.get_by_role("button", name="Thought for 12 s")
    assert [call for call in app.calls("log") if call["message"] == "m-finished"] == []
    line.click()
    rows = page.locator(".record-body > *")
    expect(rows).to_have_count(6)
    for index, words in enumerate(("Hm.", "I will look.", "read_file", "Answered: Yes", "Interrupted", "todo")):
        expect(rows.nth(index)).to_contain_text(words)
    line.click()
    expect(rows.first).to_be_hidden()


def test_a_narrow_page_does_not_overflow(app: PanelApp, page: Page, run: RunScript) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    app.open(page, run=run.run_id)
    run.add("todo_update", todos=[_todo("A" * 300, "in_progress")])
    run.add("tool_call", call_id="c1", name="n" * 90, args={"command": "c" * 900})
    run.ask("q1", "W" * 400, ["choice " * 30, "B" * 90])
    say(run, "L" * 500 + "\n\n```\n" + "code " * 200 + "\n```\n\n| " + "wide | " * 30 + "\n|" + "---|" * 30 + "\n")
    expect(answer_of(page).locator("table")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator('[data-testid="stMain"]').evaluate("node => node.scrollWidth <= node.clientWidth")


# -- pieces ------------------------------------------------------------------------------------------------------


def _todo(content: str, status: str) -> dict[str, str]:
    return {"id": content[:10], "content": content, "status": status}


def _entry(seq: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"seq": seq, "kind": kind, "content": "", "meta": {}, "at": "2026-01-02T03:04:05.678Z", **fields}


def _note_foreign(request: Request, foreign: list[str]) -> None:
    # Streamlit's own usage statistics are switched off in the product's configuration.
    if (
        "127.0.0.1" not in request.url.split("?")[0]
        and "streamlit.io" not in request.url
        and "blob:" not in request.url
    ):
        foreign.append(request.url)


def _set_visibility(page: Page, state: str) -> None:
    page.evaluate(
        "state => { Object.defineProperty(document, 'visibilityState', { value: state, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        state,
    )


def _outline(page: Page) -> list[str]:
    script = "nodes => nodes.map(n => n.tagName + ':' + n.textContent.trim())"
    return answer_of(page).locator("h1, p, li, pre, th, td, blockquote, input, strong, em, a").evaluate_all(script)
