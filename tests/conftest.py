"""The fixtures every test of the app shares: a real store in a temporary folder and runs in this process."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chat_core.bridge.run_host import LocalRunHost
from chat_core.config import Settings, load_settings
from chat_core.models import LOCAL_USER, Session, User
from chat_core.workbench import Workbench, open_workbench
from tests.support.runtimes import EchoRuntime, GatedRuntime


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings({"data_dir": tmp_path / "data"})


@pytest.fixture
def echo() -> EchoRuntime:
    return EchoRuntime()


@pytest.fixture
def gated() -> GatedRuntime:
    return GatedRuntime()


@pytest.fixture
def host(echo: EchoRuntime, gated: GatedRuntime) -> Iterator[LocalRunHost]:
    host = LocalRunHost({"echo": echo, "gated": gated})
    yield host
    gated.release()
    host.close(5.0)


@pytest.fixture
def open_bench(settings: Settings, host: LocalRunHost) -> Iterator[Callable[[], Workbench]]:
    """Open workbenches over one data folder, one after the other: the way to test a restart."""
    opened: list[Workbench] = []

    def open_one(**options: Any) -> Workbench:
        opened.append(open_workbench(options.pop("settings", settings), options.pop("host", host)))
        return opened[-1]

    yield open_one
    for workbench in opened:
        workbench.close()


@pytest.fixture
def workbench(open_bench: Callable[[], Workbench]) -> Workbench:
    return open_bench()


@pytest.fixture
def user() -> User:
    return LOCAL_USER


@pytest.fixture
def session(workbench: Workbench, user: User) -> Session:
    """A session whose runs are answered at once by the echo runtime."""
    return workbench.create_session(user, runtime="echo")


@pytest.fixture
def gated_session(workbench: Workbench, user: User) -> Session:
    """A session whose runs wait at each step until the test opens the gate."""
    return workbench.create_session(user, runtime="gated")
