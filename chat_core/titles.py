"""Makes a session's title from its first message."""

import regex

from chat_core.text import storable

TITLE_CLUSTERS = 30

# A title needs the start only; this bounds the work on a message of megabytes.
_HEAD_CHARACTERS = 4_000
# One grapheme cluster may hold any number of combining marks; this bounds the row, not normal text.
_MAX_CHARACTERS = 300

_THINKING = regex.compile(r"<(think|thinking|reasoning)>.*?</\1>", regex.DOTALL | regex.IGNORECASE)
_THINKING_TAG = regex.compile(r"</?(?:think|thinking|reasoning)>", regex.IGNORECASE)
_FENCE_LINE = regex.compile(r"^[ \t]*(?:`{3,}[^`\n]*|~{3,}[^\n]*)$", regex.MULTILINE)
_SPACE = regex.compile(r"[\s\u200b\u2060\ufeff]+")
# Controls, and the marks that turn the direction of the text around them (also of our own page's).
_CONTROL = regex.compile(r"[\p{Cc}\u202a-\u202e\u2066-\u2069]")
_VISIBLE = regex.compile(r"[^\p{C}\p{Z}]")
_CLUSTER = regex.compile(r"\X")


def title_from(text: str) -> str:
    """Return the first 30 characters a person would count, as one line; '' when there is nothing to see.

    Never ends inside a grapheme cluster: a family emoji, a flag or a letter with its accents stays whole or
    goes whole. Thinking tags with their content and the lines of code fences are left out.
    """
    line = _one_line(text[:_HEAD_CHARACTERS])
    title = ""
    for count, cluster in enumerate(_CLUSTER.finditer(line)):
        if count == TITLE_CLUSTERS or len(title) + len(cluster[0]) > _MAX_CHARACTERS:
            break
        title += cluster[0]
    title = title.rstrip()
    return title if _VISIBLE.search(title) else ""


def _one_line(text: str) -> str:
    text = _THINKING.sub(" ", storable(text))
    text = _THINKING_TAG.sub(" ", text)
    text = _FENCE_LINE.sub(" ", text)
    text = _SPACE.sub(" ", text)
    return str(_CONTROL.sub("", text)).strip()
