"""Reads the arguments of a tool call: whether two calls are equal, and a short preview to recognise one by."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

PREVIEW_CHARS = 200

_ENCODER = json.JSONEncoder(ensure_ascii=True, sort_keys=True, separators=(",", ":"))
_DECODER = json.JSONDecoder()
_SECRET = re.compile(
    r'("[^"]*(?:password|passwd|secret|token|api_?key|authorization|credential)[^"]*"\s*:\s*)"(?:[^"\\]|\\.)*"?', re.I
)


@dataclass(frozen=True, slots=True)
class Arguments:
    """What the statistics keep of many calls' arguments, in their order.

    Fingerprints are equal exactly when the canonical JSON is; `parsed` is false for a text that is not JSON at all.
    """

    fingerprints: list[int]
    previews: list[str]
    parsed: list[bool]


def read_arguments(texts: Sequence[str]) -> Arguments:
    """Read the arguments of many calls; whatever the texts hold, this does not fail.

    Canonical means: keys sorted, no spaces, one way to escape. Text that is not JSON is compared as it is.
    """
    # One loop with few calls in it: a first sync reads hundreds of thousands of these.
    raw_decode, decode, encode, digest = _DECODER.raw_decode, _DECODER.decode, _ENCODER.encode, hashlib.blake2b
    read = Arguments([], [], [])
    for text in texts:
        is_json = True
        try:
            value, end = raw_decode(text)
            if end != len(text):
                value = decode(text)
            canonical = encode(value)
        except (ValueError, RecursionError):
            canonical, is_json = text, False
        hashed = digest(canonical.encode("utf-8", "replace"), digest_size=8).digest()
        read.fingerprints.append(int.from_bytes(hashed, "big", signed=True))
        read.previews.append(_preview(text))
        read.parsed.append(is_json)
    return read


def _preview(text: str) -> str:
    """The start of the text in one line; values of keys that name a secret are left out."""
    head = text[: PREVIEW_CHARS * 4]
    if _may_hold_secret(head.lower()):
        head = _SECRET.sub(r'\1"…"', head)
    line = " ".join(head.split())
    return line if len(line) <= PREVIEW_CHARS else line[: PREVIEW_CHARS - 1] + "…"


def _may_hold_secret(text: str) -> bool:
    # Ten times as fast as the expression above, and nearly always false.
    return (
        "passw" in text
        or "secret" in text
        or "token" in text
        or "api" in text
        or "authorization" in text
        or "credential" in text
    )
