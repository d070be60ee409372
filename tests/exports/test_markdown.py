import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from markdown_it import MarkdownIt
from markdown_it.token import Token

from chat_core.exports.foreign_markdown import normal_lines
from chat_core.exports.json_file import read_file, record_of
from chat_core.exports.markdown import active_branch, markdown_of, tree_order
from chat_core.models import LOCAL_USER
from chat_core.store.transfer import SessionRecord
from tests.exports.test_json_file import TIME, simple
from tests.exports.trees import session_files

READER = MarkdownIt("commonmark", {"html": True}).enable("table")
MEANT = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")


def record(value: dict[str, Any]) -> SessionRecord:
    return record_of(read_file(json.dumps(value)), LOCAL_USER)


def kinds_below(tokens: list[Token]) -> set[str]:
    return {token.type for token in tokens} | {child.type for token in tokens for child in token.children or []}


def headings(markdown: str) -> list[str]:
    tokens = READER.parse(markdown)
    return [
        "".join(child.content for child in tokens[at + 1].children or [])
        for at, token in enumerate(tokens)
        if token.type == "heading_open" and token.level == 0 and token.tag in {"h1", "h2"}
    ]


def test_a_session_reads_as_title_and_messages_with_times_model_and_tools() -> None:
    value = simple()
    value["session"] |= {"title": "My *trip*", "model_id": "tour"}
    answer = value["messages"][1]
    answer |= {"model_id": "tour", "completed_at": "2026-01-01T00:00:12.000Z"}
    answer["log"] = [
        {"seq": 1, "kind": "run_started", "meta": {"run_id": "r"}, "at": TIME},
        {"seq": 2, "kind": "tool_call", "tool_name": "web_search", "call_id": "c", "content": '{"q":"x"}', "at": TIME},
        {
            "seq": 3,
            "kind": "tool_result",
            "tool_name": "web_search",
            "call_id": "c",
            "content": "```\nfound\n```",
            "duration_ms": 12,
            "is_error": True,
            "at": TIME,
        },
        {"seq": 4, "kind": "run_finished", "meta": {"run_id": "r"}, "at": TIME},
    ]
    assert markdown_of(record(value)) == (
        "# My \\*trip\\*\n\n"
        "*Started 2026-01-01 00:00 UTC · last message 2026-01-01 00:00 UTC · model tour*\n\n"
        "## User\n\n*2026-01-01 00:00 UTC*\n\nhello\n\n"
        "## Assistant\n\n*2026-01-01 00:00 UTC · model tour · 12 s · success*\n\n"
        "**Tool call:** web\\_search (12 ms, error)\n\n"
        '```json\n{\n  "q": "x"\n}\n```\n\n'
        "````text\n```\nfound\n```\n````\n\n"
        "**Answer:**\n\nhi\n"
    )


def test_questions_are_shown_with_what_was_answered() -> None:
    value = simple()
    answer = value["messages"][1]
    answer["log"].insert(
        1, {"seq": 2, "kind": "clarify_request", "content": "Red?", "meta": {"question_id": "q"}, "at": TIME}
    )
    answer["log"][2]["seq"] = 3
    asked = {"question_id": "q", "kind": "clarify", "question": "Red?", "asked_at": TIME}
    answer["runs"][0]["questions"] = [{**asked, "status": "ANSWERED", "answer": "yes"}]
    markdown = markdown_of(record(value))
    assert "**The agent asked:**\n\nRed?\n\n**The answer:**\n\nyes\n\n**Answer:**\n\nhi" in markdown
    answer["runs"][0]["questions"] = [{**asked, "status": "CLOSED"}]
    assert "Red?\n\n**It was not answered.**" in markdown_of(record(value))


def test_a_failed_message_says_why_and_an_untitled_session_has_a_heading() -> None:
    value = simple()
    answer = value["messages"][1]
    answer |= {"status": "FAILED", "error": {"code": "model_auth", "message": "The key is <wrong>."}}
    answer["runs"][0]["status"] = "FAILED"
    answer["log"][1]["kind"] = "run_failed"
    markdown = markdown_of(record(value))
    assert markdown.startswith("# Untitled session\n")
    assert markdown.endswith("**Ended with an error:** The key is \\<wrong\\>\\. (model\\_auth)\n")


def test_the_whole_tree_names_each_message_its_version_and_what_it_follows() -> None:
    value = simple()
    again = {**value["messages"][1], "message_id": "b", "branch_order": 2, "run_id": None, "runs": [], "log": []}
    value["messages"][1]["is_active"] = False
    value["messages"].append(again)
    assert headings(markdown_of(record(value), whole_tree=True)) == [
        "Untitled session",
        "1. User",
        "2. Assistant (version 1 of 2; after 1)",
        "3. Assistant (version 2 of 2, chosen; after 1)",
    ]
    assert headings(markdown_of(record(value))) == ["Untitled session", "User", "Assistant"]


@given(session_files())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_foreign_text_never_becomes_html_images_or_messages(value: dict[str, Any]) -> None:
    session = record(value)
    for whole_tree in (False, True):
        markdown = markdown_of(session, whole_tree=whole_tree)
        shown = tree_order(session.messages) if whole_tree else active_branch(session.messages)
        tokens = READER.parse(markdown)
        assert not kinds_below(tokens) & {"html_block", "html_inline", "image"}
        ours = [
            text for text in headings(markdown)
            if text.split(". ")[-1].split(" (")[0] in {"User", "Assistant", "System"}
        ]  # fmt: skip
        assert len(ours) == len(shown)


@given(session_files())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_reading_the_file_back_gives_the_blocks_of_every_answer(value: dict[str, Any]) -> None:
    session = record(value)
    markdown = markdown_of(session)
    found = [_seen(token) for token in READER.parse(markdown)]
    at = 0
    for item in active_branch(session.messages):
        text = normal_lines(item.message.content).strip("\n")
        wanted = [_seen(token) for token in MEANT.parse(text)]
        as_code = [("fence", text, ())]
        place = _find(found, wanted, at)
        if place < 0:
            wanted, place = as_code, _find(found, as_code, at)
        assert place >= 0, text
        at = place + len(wanted)


def _seen(token: Token) -> tuple[Any, ...]:
    children: list[tuple[str, str]] = []
    for child in token.children or []:
        if child.type in {"text", "text_special"} and children and children[-1][0] == "text":
            children[-1] = ("text", children[-1][1] + child.content)
        else:
            children.append(("text" if child.type == "text_special" else child.type, child.content))
    content = "" if token.type == "inline" else token.content
    # The last line of a fence that was left open has no line end until it is closed.
    return (token.type, content.removesuffix("\n"), tuple(children))


def _find(tokens: list[Any], wanted: list[Any], start: int) -> int:
    for at in range(start, len(tokens) - len(wanted) + 1):
        if tokens[at : at + len(wanted)] == wanted:
            return at
    return -1
