"""The README names every setting and only targets that exist."""

import re
from pathlib import Path

from chat_core.config import Settings

PROJECT_FOLDER = Path(__file__).resolve().parents[1]
README = (PROJECT_FOLDER / "README.md").read_text("utf-8")


def test_every_setting_is_in_the_table() -> None:
    missing = [name for name in Settings.model_fields if f"`PARLEY_{name.upper()}`" not in README]
    assert missing == []


def test_every_make_target_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (PROJECT_FOLDER / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)", README))
    assert named - targets == set()


def test_every_linked_file_exists() -> None:
    linked = re.findall(r"(?<!!)\[[^]]*\]\(([^)#:]+)\)", README)
    assert len(linked) > 4
    assert [link for link in linked if not (PROJECT_FOLDER / link).exists()] == []
