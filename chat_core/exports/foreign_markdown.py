"""Puts Markdown that somebody else wrote into our own document so that it means there what it means alone.

An answer may hold raw HTML, an unclosed fence, a reference that catches brackets elsewhere, or an image that calls
out. Instead of trusting a list of tricks, each way of writing it down is read back by a parser and taken only when
the blocks are the same; the last way, a fence that is longer than any inside, always is.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

LONGEST_MARKDOWN = 100_000
"""Longer texts (characters) are fenced at once: parsing them several times would take seconds."""

Signature = tuple[Any, ...]

_BEFORE, _AFTER = "paragraph\n\n", "\n\n# heading\n"
_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")
_BACKTICKS = re.compile("`+")
_WEB_LINK = re.compile(r"(?:https?:|mailto:|#|/|\.|[^:]*$)", re.IGNORECASE)
# What may stand between code: an escape, a code span, a link in angle brackets, and the two signs we take away.
_OUTSIDE_CODE = re.compile(
    r"(?P<keep>\\.|(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`)|<[A-Za-z][A-Za-z0-9+.-]{1,31}:[^<>\s]*>)"
    r"|(?P<sign><|!(?=\[))",
    re.DOTALL,
)


def embedded(text: str) -> str:
    """Return `text` as Markdown to stand between blank lines: same blocks, no raw HTML, no images, nothing open."""
    text = normal_lines(text).strip("\n")
    if not text.strip():
        return ""
    if len(text) > LONGEST_MARKDOWN:
        return fenced(text)
    wanted = blocks_of(text, _meant())
    for candidate in _candidates(text):
        if _keeps_its_meaning(candidate, wanted):
            return candidate
    return fenced(text)


def fenced(text: str, info: str = "") -> str:
    """Return `text` as a code block whose fence is longer than any run of backticks inside."""
    text = normal_lines(text)
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    end = "" if text.endswith("\n") or not text else "\n"
    return f"{fence}{info}\n{text}{end}{fence}"


def plain(text: str) -> str:
    """Return `text` as one line in which no character means anything to Markdown or HTML."""
    return _PUNCTUATION.sub(r"\\\1", " ".join(_CONTROLS.sub(" ", text).split()))


def normal_lines(text: str) -> str:
    """Return `text` with the one line end that Markdown parsers keep."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def blocks_of(text: str, parser: MarkdownIt | None = None) -> list[Signature]:
    """Return what a reader sees of a document: its blocks and their text, without how it was written."""
    return [_signature(token) for token in (parser or _read()).parse(text)]


def _meant() -> MarkdownIt:
    """The parser that says what foreign text means: HTML is text, an image is a link."""
    return MarkdownIt("commonmark", {"html": False, "maxNesting": 40}).enable("table").disable("image")


def _read() -> MarkdownIt:
    """The parser that stands for every reader of the file: it knows HTML and images and follows every link."""
    parser = MarkdownIt("commonmark", {"html": True, "maxNesting": 40}).enable("table")
    parser.validateLink = lambda url: True  # type: ignore[method-assign]
    return parser


def _candidates(text: str) -> Iterator[str]:
    yield text
    escaped = _without_html_and_images(text)
    yield escaped
    closing = _closing_fence(text)
    if closing:
        yield f"{text}\n{closing}"
        yield f"{escaped}\n{closing}"


def _keeps_its_meaning(candidate: str, wanted: list[Signature]) -> bool:
    environment: dict[str, Any] = {}
    tokens = _read().parse(_BEFORE + candidate + _AFTER, environment)
    # A reference holds in the whole document, so it could change the text of other messages.
    if environment.get("references") or not all(_is_harmless(token) for token in tokens):
        return False
    around = blocks_of(_BEFORE), blocks_of(_AFTER)
    return [_signature(token) for token in tokens] == [*around[0], *wanted, *around[1]]


def _without_html_and_images(text: str) -> str:
    """Escape what starts HTML or an image, outside of code."""
    lines = text.split("\n")
    code = _code_lines(text)
    pieces: list[str] = []
    start = 0
    for number in range(len(lines) + 1):
        if number == len(lines) or number in code:
            if number > start:
                pieces.append(_OUTSIDE_CODE.sub(_escape_sign, "\n".join(lines[start:number])))
            if number < len(lines):
                pieces.append(lines[number])
            start = number + 1
    return "\n".join(pieces)


def _escape_sign(match: re.Match[str]) -> str:
    return match["keep"] or f"\\{match['sign']}"


def _code_lines(text: str) -> set[int]:
    return {
        line
        for token in _meant().parse(text)
        if token.type in {"fence", "code_block"} and token.map
        for line in range(*token.map)
    }


def _closing_fence(text: str) -> str:
    """Return what would close a fence that is still open at the end; '' when the text does not end in a fence."""
    fences = [token for token in _meant().parse(text) if token.type == "fence"]
    return fences[-1].markup if fences else ""


def _is_harmless(token: Token) -> bool:
    if token.type in {"html_block", "html_inline", "image"}:
        return False
    href = token.attrs.get("href")
    if href is not None and not _WEB_LINK.match(str(href)):
        return False
    return all(_is_harmless(child) for child in token.children or [])


def _signature(token: Token) -> Signature:
    content = token.content if not token.children and token.type != "inline" else ""
    return (
        token.type,
        token.tag,
        token.nesting,
        token.level,
        token.hidden,
        token.info if token.type == "fence" else "",
        tuple(sorted((name, str(value)) for name, value in token.attrs.items())),
        # The last line of an open fence has no line end until the fence is closed.
        content.removesuffix("\n") if token.type in {"fence", "code_block"} else content,
        tuple(_merged(token.children or [])),
    )


def _merged(children: Iterable[Token]) -> Iterator[Signature]:
    """Yield the inline parts with neighbouring texts joined: an escape splits a text, nobody sees that."""
    text = ""
    for child in children:
        if child.type in {"text", "text_special"}:
            text += child.content
            continue
        if text:
            yield ("text", text)
            text = ""
        yield _signature(child)
    if text:
        yield ("text", text)
