"""The whole program in a real browser: app, Bridge, hermes-agent, and models that are scripted or local."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.support.panel_browser import chromium
from tests.support.parley_program import ParleyProgram
from tests.support.scripted_model import ScriptedModel

TIMEOUT_MS = 20_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    """The endpoint behind the model "Scripted"; each test writes its script."""
    with ScriptedModel(api_key="the-right-key") as model:
        yield model


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, model: ScriptedModel) -> Iterator[ParleyProgram]:
    program = ParleyProgram(
        Path(tmp_path_factory.mktemp("parley")) / "data",
        models=[
            {
                "id": "scripted",
                "label": "Scripted",
                "base_url": model.base_url,
                "model": "scripted",
                "api_key": "the-right-key",
                "context_window": 128_000,
            },
            {
                "id": "refusing",
                "label": "Refusing",
                "base_url": "http://127.0.0.1:9/v1",
                "model": "none",
                "api_key": "x",
                "context_window": 128_000,
            },
        ],
        PARLEY_TOOLSETS="todo,memory,skills,clarify,terminal",
        PARLEY_MODEL_RETRIES="1",
    )
    program.start()
    yield program
    program.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of its own browser session; an error in its scripts fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(TIMEOUT_MS)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    yield page
    context.close()
    assert problems == []
