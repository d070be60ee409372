"""Makes text from outside storable, and cuts it to previews.

Text reaches us from models, tools and files. It may hold NUL (SQLite would cut there) and lone surrogates
(they cannot be encoded as UTF-8). Everything that enters the store passes one of these functions first.
"""

import re
from typing import Any

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
NESTED_TOO_DEEPLY = "(nested too deeply to be kept)"

_BLOCK_MARKS = re.compile(
    r"^[ \t]*(?:(?:`{3,}|~{3,})[^\n]*|[|:-][|:\- \t]*$|(?:(?:\#{1,6}|>|[-*+])(?:[ \t]+|$))+(?:\[[ xX]\] )?)",
    re.MULTILINE,
)
_CELL_BORDERS = re.compile(r"^[ \t]*\|(.*?)\|?[ \t]*$", re.MULTILINE)
_LINKS = re.compile(r"!?\[([^\[\]\n]*)\]\([^()\s]*(?:\s\"[^\"\n]*\")?\)")
_CODE = re.compile(r"(?<!`)(`{1,2})(?!`)(.+?)(?<!`)\1(?!`)")
_EMPHASIS = (
    re.compile(r"(\*{1,3}|~~)(?=\S)([^\n]+?)(?<=[^\s*])\1(?!\*)"),
    re.compile(r"(?<!\w)(_{1,2})(?=[^\s_])([^\n]*?[^\s_])\1(?!\w)"),
)
_CUT_MARKS = re.compile(r"(?<![^\s(])(?:\*\*|~~|`)(?=\S)(?=[^\n]*\Z)")

_PAIR = re.compile("([\ud800-\udbff])([\udc00-\udfff])")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """Return `text` with surrogate pairs joined and NUL and lone surrogates replaced by U+FFFD."""
    if not _UNSTORABLE.search(text):
        return text
    joined = _PAIR.sub(_join_pair, text)
    return _UNSTORABLE.sub(REPLACEMENT, joined)


def storable_json(value: Any) -> Any:
    """Return foreign JSON with every string (keys too) made storable; nothing else changes.

    What is nested so deeply that no later step could walk it is replaced as a whole, with a note.
    """
    try:
        return _storable_json(value)
    except RecursionError:
        return NESTED_TOO_DEEPLY


def _storable_json(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, list):
        return [_storable_json(item) for item in value]
    if isinstance(value, dict):
        return {storable(str(key)): _storable_json(item) for key, item in value.items()}
    return value


def _join_pair(match: re.Match[str]) -> str:
    high, low = ord(match[1]), ord(match[2])
    return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


class DeltaText:
    """Makes a stream of text deltas storable, joining a surrogate pair that was split over two deltas."""

    def __init__(self) -> None:
        self._held = ""

    def push(self, delta: str) -> str:
        """Return what can be stored now; a trailing high surrogate waits for the next delta."""
        text = self._held + delta
        self._held = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._held = text[-1]
            text = text[:-1]
        return storable(text)

    def flush(self) -> str:
        """Return what was still held back, replaced: nothing can complete it any more."""
        held, self._held = self._held, ""
        return storable(held)


def preview(text: str, max_bytes: int = 4096, max_lines: int = 50, max_line_chars: int = 500) -> str:
    """Return the start of `text`, bounded in UTF-8 bytes, in lines and in the length of each line.

    What was cut is marked with an ellipsis. The whole text is never walked when it is huge.
    """
    head = text[: max_bytes + 1]
    cut = len(head) < len(text)
    lines = head.split("\n")
    if len(lines) > max_lines:
        lines, cut = lines[:max_lines], True
    short = [line if len(line) <= max_line_chars else line[: max_line_chars - 1] + "…" for line in lines]
    result = "\n".join(short)
    encoded = result.encode("utf-8", "replace")
    if len(encoded) > max_bytes:
        result, cut = encoded[: max_bytes - 4].decode("utf-8", "ignore"), True
    return result + "\n…" if cut else result


def plain_words(text: str) -> str:
    """Return the start of a Markdown text as one line of plain words, without its marks.

    Cheap and approximate: for lists, where a text shall be recognised. A mark that the cut left without its partner
    goes too.
    """
    bare = _BLOCK_MARKS.sub("", text)
    bare = _CELL_BORDERS.sub(lambda row: " ".join(row[1].split("|")), bare)
    bare = _LINKS.sub(r"\1", bare)
    bare = _CODE.sub(r"\2", bare)
    for marks in _EMPHASIS:
        bare = marks.sub(r"\2", bare)
    return " ".join(_CUT_MARKS.sub("", bare).split())
