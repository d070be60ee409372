"""Reads and writes the agent's own memory files with hermes-agent's functions."""

from typing import Any

from chat_core.bridge.protocol import MemoryText
from chat_core.bridge.runtimes.hermes.engine import Engine
from chat_core.errors import InvalidInput
from chat_core.text import storable


def read_memory(engine: Engine, which: str) -> MemoryText:
    """Return the file as it is on disk, with its limit; both count characters."""
    store = engine.memory.load_on_disk_store()
    text = _text_of(store._path_for(which))
    return MemoryText(text=text, limit=int(store._char_limit(which)), used=len(text))


def write_memory(engine: Engine, which: str, text: str) -> MemoryText:
    """Replace the whole file and return it.

    Entries are divided by a line with only `§`. Raises InvalidInput with the reason when the agent could not read
    the text back as it is; the file is left as it was.
    """
    store = engine.memory.load_on_disk_store()
    entries = _entries(engine, text)
    limit = int(store._char_limit(which))
    whole = engine.memory.ENTRY_DELIMITER.join(entries)
    if len(whole) > limit:
        raise InvalidInput(f"The text has {len(whole)} characters; the agent reads at most {limit}.", limit=limit)
    for entry in entries:
        if engine.memory._scan_memory_content(entry):
            start = entry[:40].replace("\n", " ")
            raise InvalidInput(
                f"The entry that begins with {start!r} reads like an instruction to take over the agent or to leak "
                "secrets; the agent would not be shown it."
            )
    path = store._path_for(which)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with store._file_lock(path):
        store._write_file(path, entries)
    return read_memory(engine, which)


def _entries(engine: Engine, text: str) -> list[str]:
    if storable(text) != text:
        raise InvalidInput("The text holds characters that cannot be stored (NUL or half of a character).")
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    entries = [entry.strip() for entry in plain.strip().split(engine.memory.ENTRY_DELIMITER)]
    entries = [entry for entry in entries if entry]
    if any(entry.strip() in {"§"} or entry.startswith("§\n") or entry.endswith("\n§") for entry in entries):
        raise InvalidInput("A line with only § divides entries; there is one with nothing on one side of it.")
    if len(set(entries)) != len(entries):
        raise InvalidInput("The same entry stands there twice; the agent would keep only one.")
    return entries


def _text_of(path: Any) -> str:
    try:
        return storable(path.read_text("utf-8", "replace"))
    except FileNotFoundError:
        return ""
