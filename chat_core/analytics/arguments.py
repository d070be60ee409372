"""Reads the arguments of a tool call: whether two calls are equal, and a short preview to recognise one by."""

import hashlib
import json
import re
from dataclasses import dataclass

PREVIEW_CHARS = 200

_ENCODER = json.JSONEncoder(ensure_ascii=True, sort_keys=True, separators=(",", ":"))
_DECODER = json.JSONDecoder()
_SECRET_WORD = re.compile("passw|secret|token|api_?key|authorization|credential", re.I)
_SECRET = re.compile(
    r'("[^"]*(?:password|passwd|secret|token|api_?key|authorization|credential)[^"]*"\s*:\s*)"(?:[^"\\]|\\.)*"?', re.I
)


@dataclass(frozen=True, slots=True)
class Arguments:
    """`fingerprint` is equal exactly when the canonical JSON is; `parsed` is false when it is not JSON at all."""

    fingerprint: int
    preview: str
    parsed: bool


def read_arguments(text: str) -> Arguments:
    """Return what the statistics keep of a call's arguments; whatever the text holds, this does not fail.

    Canonical means: keys sorted, no spaces, one way to escape. Text that is not JSON is compared as it is.
    """
    try:
        canonical, parsed = _ENCODER.encode(_DECODER.decode(text)), True
    except (ValueError, RecursionError):
        canonical, parsed = text, False
    digest = hashlib.blake2b(canonical.encode("utf-8", "replace"), digest_size=8).digest()
    return Arguments(int.from_bytes(digest, "big", signed=True), _preview(text), parsed)


def _preview(text: str) -> str:
    """The start of the text in one line; values of keys that name a secret are left out."""
    head = text[: PREVIEW_CHARS * 4]
    if _SECRET_WORD.search(head):
        head = _SECRET.sub(r'\1"…"', head)
    line = " ".join(head.split())
    return line if len(line) <= PREVIEW_CHARS else line[: PREVIEW_CHARS - 1] + "…"
