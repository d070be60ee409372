"""Many exported sessions as one zip archive."""

import io
import zipfile
from collections.abc import Iterable

from chat_core.exports.file_name import file_name


def archive_of(files: Iterable[tuple[str, str]], ending: str) -> bytes:
    """Return a zip archive of texts, each named after its title; equal names are numbered."""
    buffer = io.BytesIO()
    taken: set[str] = set()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for title, text in files:
            archive.writestr(_free_name(title, ending, taken), text.encode("utf-8", "replace"))
    return buffer.getvalue()


def _free_name(title: str, ending: str, taken: set[str]) -> str:
    """Return a name nobody has yet, also where upper and lower case are the same."""
    name, number = file_name(title, ending), 1
    stem = name.removesuffix(f".{ending}")
    while name.lower() in taken:
        number += 1
        name = f"{stem} ({number}).{ending}"
    taken.add(name.lower())
    return name
