"""Names of exported files: made from titles, which are foreign text."""

import re

_NOT_IN_FILE_NAMES = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069/\\:*?\"<>|]+")
_LONGEST = 100


def file_name(title: str, ending: str) -> str:
    """Return a name that every file system takes: the title without what means something in paths, and the ending."""
    words = " ".join(_NOT_IN_FILE_NAMES.sub(" ", title).split())
    stem = words.strip(" .")[:_LONGEST].rstrip(" .") or "session"
    return f"{stem}.{ending}"
