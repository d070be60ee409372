"""Foreign Markdown is shown as it was meant, and as nothing more."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from chat_core.ui.markdown import LONGEST_MARKDOWN, plain, preview_words, safe_markdown

SPLIT = ":small[]{}"


def html(markdown: str) -> str:
    """What GitHub's Markdown makes of it, without our empty element."""
    parser = MarkdownIt("commonmark", {"maxNesting": 40}).enable(["table", "strikethrough"])
    page = str(parser.render(markdown)).replace(SPLIT, "").replace("\n</code></pre>", "</code></pre>")
    page = re.sub(
        r"<h(\d)>.*?</h\1>", lambda found: found[0].replace("<br />", "").replace("\n", " "), page, flags=re.DOTALL
    )
    page = re.sub(r'<code class="[^"]*">', "<code>", page)
    for tag in ("em", "strong", "s"):  # emphasis inside the same emphasis looks the same
        page = _without_nested(page, tag)
    return page


def _without_nested(page: str, tag: str) -> str:
    parts, depth = [], 0
    for part in re.split(f"(</?{tag}>)", page):
        depth += {f"<{tag}>": 1, f"</{tag}>": 0}.get(part, 0)
        if part not in (f"<{tag}>", f"</{tag}>") or depth == 1:
            parts.append(part)
        depth -= part == f"</{tag}>"
    return "".join(parts)


def shown(markdown: str) -> str:
    """The words a reader sees of one paragraph."""
    text = re.sub(r"<[^>]*>", "", html(markdown))
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&amp;", "&").strip()


@pytest.mark.parametrize(
    "text",
    [
        "It costs $5 and $10.",
        "export $HOME_DIR and ${A}_${B} to $X",
        ":red[not red] and :blue-badge[no badge] and :small[big]",
        ":material/home: and :material_home: and :streamlit:",
        ":tada: :+1: :heavy_check_mark: 10:30:45 std::vector a:b",
        "a -> b <- c <-> d -- e >= f <= g ~= h",
        "~5 and ~6, :shimmer[x] :help[y]",
        "<script>alert(1)</script> and <b>bold</b>",
        "::leaf and :::container",
    ],
)
def test_what_is_special_only_to_streamlit_is_shown_to_the_letter(text: str) -> None:
    safe = safe_markdown(text)
    assert shown(safe) == text
    assert not live_signs(safe)


@pytest.mark.parametrize(
    ("text", "maths"),
    [
        (r"so \(a^2\) is", "so $a^2$ is"),
        (r"\[x = \frac{1}{2}\]", "$$\nx = \\frac{1}{2}\n$$"),
        ("\\[\nx\n= y\n- z\n\\]", "$$\nx\n= y\n- z\n$$"),
        ("$$\nE = mc^2\n$$", "$$\nE = mc^2\n$$"),
        ("$$E = mc^2$$", "$$\nE = mc^2\n$$"),
        ("the sum $$a_1 + a_2$$ here", "the sum $$a_1 + a_2$$ here"),
        (r"with $x$ and $\alpha_i$", r"with $x$ and $\alpha_i$"),
        ("| a |\n|---|\n| \\(\\|x\\|\\) |", "| a |\n| --- |\n| $\\vert x\\vert$ |"),
    ],
)
def test_maths_of_models_becomes_maths(text: str, maths: str) -> None:
    assert re.sub(" +", " ", safe_markdown(text)) == maths


def test_images_become_links_and_load_nothing() -> None:
    safe = safe_markdown("![a cat](https://evil.example/cat.png?q=1) ![](https://e.example/x)")
    assert "![" not in safe
    assert "[a cat](<https://evil.example/cat.png?q=1>)" in safe
    assert "(<https://e.example/x>)" in safe


@pytest.mark.parametrize(
    "target",
    [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "data:text/html,x",
        "vbscript:x",
        "/api/chat/x",
        "x.md",
        "//e.example",
    ],
)
def test_a_link_that_does_not_lead_to_the_web_is_text(target: str) -> None:
    safe = safe_markdown(f"[click]({target}) and [ref][r]\n\n[r]: {target}")
    assert "<a " not in html(safe)
    assert "click" in shown(safe)
    assert target.rsplit(":", maxsplit=1)[-1] in shown(safe)


def test_web_addresses_stay_links() -> None:
    safe = safe_markdown("see https://example.com/a_b_c:x:/d. and <https://e.example> and [me](mailto:a@b.example)")
    assert 'href="https://example.com/a_b_c:x:/d"' in html(safe)
    assert 'href="https://e.example"' in html(safe)
    assert 'href="mailto:a@b.example"' in html(safe)


def test_code_is_untouched() -> None:
    code = "$HOME <b> ![x](y) :red[z] -> \\(a\\) [l](javascript:x)\n\n    deeper & *more* |"
    safe = safe_markdown(f"Look, `a | $b <c> :tada:`:\n\n```bash\n{code}\n```\n")
    assert code in safe
    assert "`a | $b <c> :tada:`" in safe


def test_code_that_holds_fences_stays_whole() -> None:
    code = "````\n```python\nx\n```\n````"
    assert f"<code>{code}</code>" in html(safe_markdown(f"`````\n{code}\n`````\n<x>"))


def test_mermaid_is_shown_as_code_because_it_can_load_images() -> None:
    assert safe_markdown("```mermaid\ngraph TD\n```") == "```text\ngraph TD\n```"


def test_task_lists_stay_task_lists() -> None:
    assert safe_markdown("- [x] done\n- [ ] open: <b>\n") == "- [x] done\n- [ ] open: \\<b\\>"


def test_line_breaks_of_what_a_person_typed_are_kept() -> None:
    assert "<br" in html(safe_markdown("one\ntwo", line_breaks=True))


def test_direction_overrides_are_dropped() -> None:
    assert "\u202e" not in safe_markdown("a\u202eb <x>")
    assert plain("a\u202eb") == "ab"


def test_a_huge_text_is_shown_as_plain_text() -> None:
    assert safe_markdown("<x> " * LONGEST_MARKDOWN).startswith("```text\n")


def test_an_endless_line_is_broken_so_that_a_browser_paints_it() -> None:
    shown = safe_markdown("z" * 5_000_000)
    assert max(map(len, shown.split("\n"))) <= 1000
    assert shown.count("z") == 5_000_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("## What you **have** seen\n\nYou asked", "What you have seen You asked"),
        ("- one\n- `two`\n> three", "one two three"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "a b 1 2"),
        ("```python\nx = a * b_c\n```", "x = a * b_c"),
    ],
)
def test_a_preview_has_the_words_without_the_marks(text: str, words: str) -> None:
    assert preview_words(text, 40) == words


def test_a_preview_is_cut_and_never_walks_a_huge_text() -> None:
    assert preview_words("a" * 10_000_000, 20) == "a" * 20


def live_signs(safe: str) -> list[str]:
    """What Streamlit would still take for more than Markdown, in text without code, maths and addresses."""
    bare = re.sub(r"\]\(<[^>]*>\)", "](", safe.replace("\\\\", "§").replace(SPLIT, "\0"))
    return re.findall(r"(?<!\\):[A-Za-z]|(?<!\\)\$|(?<!\\)!\[|(?<!\\)<|(?<![\\~])~(?!~)|:material[/_]\w+:|:\w+:", bare)


SIGNS = st.sampled_from(
    [
        *"ab1 \n\n*_~#>-+=.()[]!|:$<\\&\"'{}/",
        *("**", "~~", "- ", "1. ", "> ", "# ", ":red[", ":tada:", "<b>", "->"),
        *("![x](", "](javascript:x)", "https://e.example/", ":material/home:"),
    ]
)
HOSTILE = st.lists(SIGNS, max_size=40).map("".join)
STRUCTURE = st.lists(
    st.sampled_from(
        [
            "word",
            "x",
            " ",
            "\n",
            "\n\n",
            "* ",
            "- ",
            "1. ",
            "7) ",
            "> ",
            "# ",
            "**",
            "*",
            "~~",
            "`",
            "`a",
            "```\n",
            "    ",
            "  ",
            "+",
            "---\n",
            ":x",
            "$",
            "é",
            "。",
            "|",
            "|a|b|\n|-|:-:|\n|c|",
        ]
    ),
    max_size=30,
).map("".join)


@given(HOSTILE)
@settings(max_examples=400, deadline=None)
def test_no_foreign_text_wakes_a_streamlit_extra(text: str) -> None:
    text = (
        text.replace("`", "")
        .replace("~~~", "~~ ")
        .replace("$$", "$ $")
        .replace("\\(", "(")
        .replace("\\[", "[")
        .replace("    ", "")
    )
    safe = safe_markdown(text)
    if re.search(r"(?<!\\)\$", safe):  # a lone formula such as $a$: allowed
        return
    assert not live_signs(safe), safe
    assert "<a " not in html(safe) or re.search(r'href="(https?://|mailto:)', html(safe))


@given(STRUCTURE)
@settings(max_examples=600, deadline=None)
def test_ordinary_markdown_keeps_its_structure(text: str) -> None:
    text = text.replace("$", "$ ")
    assert html(safe_markdown("$ <b>\n\n" + text)) == html("$ &lt;b&gt;\n\n" + text)


@given(st.text(alphabet=st.sampled_from(list("ab1 \n*_~#>-+=.()[]!|:$<\\&\"'{}/`é。")), max_size=40))
@settings(max_examples=400, deadline=None)
def test_a_label_shows_any_text_to_the_letter(text: str) -> None:
    label = plain(text)
    assert "\n" not in label
    assert shown(label) == " ".join(text.split())
    assert not live_signs(label.replace("\\`", "´"))
