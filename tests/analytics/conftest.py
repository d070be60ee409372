"""A recorded log and the statistics over it."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from chat_core.analytics.analytics import Analytics
from chat_core.analytics.filters import Filters
from chat_core.analytics.zone import Zone
from chat_core.config import Settings
from chat_core.i18n import zone_named
from chat_core.models import LOCAL_USER
from tests.analytics.recorder import START, Recorder

NOW = START + timedelta(hours=6)
Read = Callable[..., list[dict[str, Any]]]
Facts = Callable[[str], list[dict[str, Any]]]


@pytest.fixture
def recorder(settings: Settings) -> Iterator[Recorder]:
    recorder = Recorder(settings.database_file)
    yield recorder
    recorder.close()


@pytest.fixture
def analytics(settings: Settings) -> Iterator[Analytics]:
    analytics = Analytics(settings)
    yield analytics
    analytics.close()


@pytest.fixture
def everything() -> Filters:
    """All time, all branches, UTC."""
    return Filters(zone=Zone(zone_named("UTC")), range="all", branches="all")


@pytest.fixture
def read(analytics: Analytics, everything: Filters) -> Read:
    """Sync, then read a chart's rows."""

    def read_chart(name: str, filters: Filters | None = None, now: datetime = NOW) -> list[dict[str, Any]]:
        analytics.sync(LOCAL_USER, now)
        return analytics.chart(LOCAL_USER, name, filters or everything, now).table.to_pylist()

    return read_chart


@pytest.fixture
def facts(analytics: Analytics) -> Facts:
    """Sync, then run a query over the fact tables themselves."""

    def ask(sql: str) -> list[dict[str, Any]]:
        analytics.sync(LOCAL_USER, NOW)
        with analytics._cache.reader() as cursor:
            return cursor.sql(sql).to_arrow_table().to_pylist()

    return ask
