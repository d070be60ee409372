import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from chat_core.exports.foreign_markdown import embedded, fenced, normal_lines, plain
from tests.exports.trees import HOSTILE, texts

READER = MarkdownIt("commonmark", {"html": True}).enable("table")


def kinds(text: str) -> list[str]:
    return [token.type for token in READER.parse(text)]


def all_kinds(text: str) -> set[str]:
    tokens = READER.parse(text)
    return {token.type for token in tokens} | {child.type for token in tokens for child in token.children or []}


def text_of(markdown: str) -> str:
    """What a reader sees of a paragraph."""
    (_, inline, _) = READER.parse(markdown)
    return "".join(child.content for child in inline.children or [])


@pytest.mark.parametrize(
    "text",
    [
        "A paragraph with **bold**, `code` and [a link](https://a.example).",
        "# Heading\n\n- one\n- two\n  - nested\n\n1. x\n\n> quote",
        "```python\nprint('<b>')\n```\n\ntext",
        "| a | b |\n|---|---|\n| 1 | 2 |",
        "a <https://a.example/x> b",
    ],
)
def test_ordinary_markdown_is_kept_to_the_letter(text: str) -> None:
    assert embedded(text) == text


def test_html_outside_code_becomes_text_and_code_stays_as_it_is() -> None:
    assert embedded("a <b>c</b> `<i>` d") == "a \\<b>c\\</b> `<i>` d"
    assert embedded("<div>\n\n`<p>`\n\n```\n<s>\n```") == "\\<div>\n\n`<p>`\n\n```\n<s>\n```"


def test_an_image_becomes_a_link() -> None:
    markdown = embedded("see ![chart](https://a.example/x.png)")
    assert markdown == "see \\![chart](https://a.example/x.png)"
    assert "image" not in all_kinds(markdown)


def test_an_open_fence_is_closed() -> None:
    assert embedded("text\n\n````\nopen ```") == "text\n\n````\nopen ```\n````"


@pytest.mark.parametrize("text", ["[a]: https://a.example\n\n[a]", "[x](javascript:alert(1))", "[x](data:text/html,1)"])
def test_what_cannot_stand_among_others_is_fenced(text: str) -> None:
    (token,) = READER.parse(embedded(text))
    assert (token.type, token.content) == ("fence", text + "\n")


def test_a_text_that_is_too_long_to_be_parsed_is_fenced() -> None:
    text = "# a <b>\n" * 20_000
    assert embedded(text).startswith("```\n# a <b>")


@given(texts)
def test_a_fence_gives_its_text_back(text: str) -> None:
    (token,) = READER.parse(fenced(text, "json"))
    assert (token.type, token.info) == ("fence", "json")
    wanted = normal_lines(text)
    assert token.content == wanted if wanted.endswith("\n") or not wanted else token.content == wanted + "\n"


@pytest.mark.parametrize("text", [*HOSTILE, "`````", "```\n````\n`````", "~~~", "ends with tick `"])
def test_every_known_trick_stays_inside_its_place(text: str) -> None:
    assert_contained(embedded(text))


@given(texts)
@settings(max_examples=300)
def test_no_text_leaves_its_place_or_becomes_html_or_an_image(text: str) -> None:
    assert_contained(embedded(text))


def assert_contained(markdown: str) -> None:
    document = f"# before\n\nnote\n\n{markdown}\n\n**after**\n\n## end\n"
    around = kinds("# before\n\nnote\n"), kinds("**after**\n\n## end\n")
    found = kinds(document)
    assert found[: len(around[0])] == around[0]
    assert found[-len(around[1]) :] == around[1]
    assert found == [*around[0], *kinds(markdown), *around[1]]
    assert not all_kinds(document) & {"html_block", "html_inline", "image"}


@given(texts)
@settings(max_examples=200)
def test_embedding_twice_changes_nothing_more(text: str) -> None:
    once = embedded(text)
    assert embedded(once) == once


@given(st.text(max_size=40))
def test_plain_text_is_seen_to_the_letter_and_means_nothing(text: str) -> None:
    written = plain(text)
    assert "\n" not in written
    if written:
        document = f"# x {written}\n\n{written} y\n\n*{written}*"
        assert kinds(document)[:3] == ["heading_open", "inline", "heading_close"]
        assert all_kinds(document) <= {
            "heading_open", "heading_close", "inline", "text", "paragraph_open", "paragraph_close", "em_open",
            "em_close",
        }  # fmt: skip


def test_plain_text_keeps_every_sign() -> None:
    text = r"1. # *a* <b> [c](d) `e` \ | ~f~ & ! $ {g} ^ _h_ -- x=y"
    assert text_of(plain(text)) == text


def test_plain_text_drops_line_breaks_controls_and_direction_overrides() -> None:
    assert plain("a\nb\x1bc\u202ed\u2028e") == "a b c d e"
