"""What a test reads off a page that AppTest has run."""

import json
import re
from typing import Any

from streamlit.testing.v1 import AppTest

TEXTS = ("markdown", "caption", "header", "text_area", "code")


def words(page: AppTest) -> str:
    """Everything the page says, from top to bottom; what it escapes is read as a person would see it."""
    parts = []
    for element in page._tree:
        text = getattr(element, "value", None) if element.type in TEXTS else getattr(element, "label", None)
        if isinstance(text, str):
            parts.append(text)
    return re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", "\n".join([*parts, *links(page)]))


def links(page: AppTest) -> list[str]:
    return [element.proto.label for element in page.get("page_link")]


def rows(page: AppTest) -> list[str]:
    """The labels of the session list, in order."""
    return [label for label in links(page) if label.startswith("**")]


def component(page: AppTest, module: str) -> dict[str, Any]:
    """What a component of ours was given, found by the script it loads."""
    for element in page.get("bidi_component"):
        data: dict[str, Any] = json.loads(element.proto.json)
        if module in str(data.get("module", "")):
            return data
    raise AssertionError(f"there is no component that loads {module}")


def has_component(page: AppTest, module: str) -> bool:
    try:
        component(page, module)
    except AssertionError:
        return False
    return True
