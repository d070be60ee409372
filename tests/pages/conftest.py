"""The pages over a real workbench, run by Streamlit's AppTest."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from chat_core.models import Started, User
from chat_core.process_workbench import set_process_workbench
from chat_core.workbench import Workbench

ROUTER = Path(__file__).parents[2] / "pages" / "_router.py"


@pytest.fixture
def open_page(workbench: Workbench) -> Iterator[Callable[..., AppTest]]:
    """Open the app at an address, as a new browser tab would."""
    set_process_workbench(workbench)

    def open_at(**query: str) -> AppTest:
        page = AppTest.from_file(str(ROUTER), default_timeout=20)
        for name, value in query.items():
            page.query_params[name] = value
        page.run()
        assert not page.exception, page.exception
        assert not page.error, page.error
        return page

    yield open_at
    set_process_workbench(None)


@pytest.fixture
def finish(workbench: Workbench, user: User) -> Callable[[Started], Started]:
    """Wait until a run has ended."""

    def wait(started: Started) -> Started:
        for _ in workbench.follow(user, started.run_id):
            pass
        return started

    return wait
