"""The built scripts of the pages: up to date, complete in their words, and mounted without their weight."""

import hashlib
import json
import re
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from chat_core.i18n import LOCALES, Locale, Texts
from chat_core.ui.components import ASSETS, asset_hash, asset_url

SOURCES = Path(__file__).parents[2] / "frontend" / "src"
# The keys that are put together from a state: which states there are.
STATES = {
    "todo": ("pending", "in_progress", "completed", "cancelled"),
    "tool": ("running", "done", "error", "cut"),
    "end": ("SUCCESS", "FAILED", "STOPPED", "INTERRUPTED"),
    "approval": ("once", "session", "always", "deny"),
}


@pytest.mark.parametrize("name", ["panel.js", "composer.js", "branch_map.js", "scrolling.js"])
def test_built_script_was_built_from_the_present_sources(name: str) -> None:
    sources = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        sources.update(path.read_bytes())
    assert f"sources {sources.hexdigest()[:16]}." in (ASSETS / name).read_text(encoding="utf-8")[:200]


def test_licences_of_the_bundled_software_are_shipped_with_it() -> None:
    text = (ASSETS / "LICENSES.txt").read_text(encoding="utf-8")
    assert re.search(r"^marked \d", text, re.MULTILINE)
    assert re.search(r"^dompurify \d", text, re.MULTILINE)
    assert "Permission is hereby granted" in text
    assert "Apache License" in text or "Mozilla Public License" in text


def test_address_of_a_script_changes_with_its_content() -> None:
    assert asset_url("panel.js", "/base") == f"/base/api/assets/panel.js?v={asset_hash('panel.js')}"
    assert asset_hash("panel.js") != asset_hash("composer.js")


@pytest.mark.parametrize("locale", LOCALES)
def test_every_word_the_scripts_say_is_in_the_language(locale: Locale) -> None:
    for prefix, files in {
        "composer": ["composer.js"],
        "panel": ["panel", "rows", "question_card", "tools", "text"],
        "tree": ["branch_map.js"],
    }.items():
        texts = Texts(locale).group(prefix)
        for file in files:
            code = (SOURCES / Path(file).with_suffix(".js")).read_text(encoding="utf-8")
            for key in re.findall(r"\bt\(\s*[\"]([a-zA-Z_.]+)[\"]", code):
                assert key in texts or f"{key}.one" in texts, f"{file} says {key}"
    panel = Texts(locale).group("panel")
    wanted = {f"{group}.{state}" for group, states in STATES.items() for state in states}
    wanted |= {f"doing.{verb}" for verb in re.findall(r'\["\w+", "(\w+)", \[', (SOURCES / "tools.js").read_text())}
    wanted |= {f"question.closed_{state}" for state in STATES["end"]}
    assert wanted <= panel.keys()


def _page_with_a_panel() -> None:
    from chat_core.i18n import Texts
    from chat_core.models import RunState
    from chat_core.ui.live_panel import live_panel

    run = RunState("r1", "s1", "m1", "RUNNING", False, 0, None)
    live_panel(run, texts=Texts("en").group("panel"), base="/base", key="live_r1")


def test_a_panel_is_mounted_with_the_address_of_its_script_and_not_with_the_script() -> None:
    page = AppTest.from_function(_page_with_a_panel).run()
    assert not page.exception
    [mounted] = page.get("bidi_component")
    data = json.loads(mounted.proto.json)
    assert data["module"] == asset_url("panel.js", "/base")
    assert data["run"] == "r1"
    assert len(mounted.proto.js_content) < 4_000
