"""The one door to the statistics: sync, read a chart, find the sessions behind a number, ask by SQL."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from chat_core.analytics import behind
from chat_core.analytics.behind import Narrowing
from chat_core.analytics.cache import Cache, SyncReport
from chat_core.analytics.catalog import CHARTS
from chat_core.analytics.console import Console, ConsoleAnswer
from chat_core.analytics.filters import Filters
from chat_core.analytics.footer import Basis, Footer, read_footer
from chat_core.analytics.scope import Scope
from chat_core.analytics.source import Source
from chat_core.config import Settings
from chat_core.errors import NotFound
from chat_core.models import User


@dataclass(frozen=True, slots=True)
class ChartData:
    name: str
    table: pa.Table
    footer: Footer


@dataclass(frozen=True, slots=True)
class Choices:
    """What can be chosen in the filters: what occurs in the owner's calls and runs, the most used first."""

    tools: list[str]
    models: list[str]
    skills: list[str]
    runtimes: list[str]
    calls: int
    runs: int


class Analytics:
    """One object for each process (two would fight for the file). Nothing is opened before the first call."""

    def __init__(self, settings: Settings) -> None:
        self.polling_tools = frozenset(name.strip() for name in settings.polling_tools.split(",") if name.strip())
        self._cache = Cache(settings.data_dir / "analytics.duckdb", Source(settings.database_file))
        self._console = Console(settings.data_dir / "analytics-console")
        self._console_lock = threading.Lock()

    def close(self) -> None:
        """Let go of the file. The next call opens it again."""
        self._cache.close()
        self._console.close()

    def sync(self, user: User, now: datetime | None = None) -> SyncReport:
        """Take over what happened since the last time; every owner's rows, whoever asks."""
        return self._cache.sync(now or datetime.now(UTC))

    def rebuild(self, user: User, now: datetime | None = None) -> SyncReport:
        """Throw the copy away and make it again."""
        return self._cache.rebuild(now or datetime.now(UTC))

    def chart(self, user: User, name: str, filters: Filters, now: datetime | None = None) -> ChartData:
        """Return one chart's table and what it is made of. Raises `NotFound` for a name that no chart has."""
        if name not in CHARTS:
            raise NotFound(f"There is no chart {name!r}; choose from {', '.join(CHARTS)}.", name=name)
        chart = CHARTS[name]
        with self._scope(user, filters, now) as scope:
            return ChartData(name, chart.read(scope), read_footer(scope, chart.basis))

    def charts(
        self, user: User, names: list[str], filters: Filters, now: datetime | None = None
    ) -> dict[str, ChartData]:
        """Several charts of one moment; what they have in common is read once."""
        footers: dict[Basis, Footer] = {}
        found = {}
        with self._scope(user, filters, now) as scope:
            for name in names:
                chart = CHARTS[name]
                if chart.basis not in footers:
                    footers[chart.basis] = read_footer(scope, chart.basis)
                found[name] = ChartData(name, chart.read(scope), footers[chart.basis])
        return found

    def sessions_behind(
        self, user: User, filters: Filters, narrowing: Narrowing, now: datetime | None = None, *, before: bool = False
    ) -> pa.Table:
        """Return the sessions behind one number; `before` takes the period that the cards compare with."""
        with self._scope(user, filters, now) as scope:
            return behind.read(scope, narrowing, "before" if before else "now")

    def choices(self, user: User, filters: Filters, now: datetime | None = None) -> Choices:
        """Return what the filters offer, whatever is chosen in them now."""
        with self._scope(user, filters, now) as scope:
            ranked = {
                column: [
                    str(row[0])
                    for row in scope.rows(
                        f'SELECT {column} FROM "{fact}" WHERE owner = $owner'
                        " GROUP BY 1 ORDER BY COUNT(*) DESC, 1 LIMIT 200"
                    )
                ]
                for column, fact in (
                    ("tool", "call"),
                    ("model_id", "run"),
                    ("skill_folder", "run"),
                    ("runtime", "run"),
                )
            }
            calls, runs = scope.rows(
                'SELECT (SELECT COUNT(*) FROM "call" WHERE owner = $owner),'
                ' (SELECT COUNT(*) FROM "run" WHERE owner = $owner)'
            )[0]
        return Choices(
            tools=ranked["tool"],
            models=ranked["model_id"],
            skills=ranked["skill_folder"],
            runtimes=ranked["runtime"],
            calls=int(str(calls)),
            runs=int(str(runs)),
        )

    def session_title(self, user: User, session_uuid: str) -> str | None:
        """The title of one of the user's sessions; None when the user has no such session."""
        with self._cache.reader() as cursor:
            row = cursor.execute(
                "SELECT title FROM raw_session WHERE session_uuid = ? AND owner = ? AND NOT is_deleted",
                [session_uuid, user.key],
            ).fetchone()
        return str(row[0]) if row else None

    def ask_sql(self, user: User, sql: str) -> ConsoleAnswer:
        """Answer one SELECT over the user's own facts. Raises `InvalidInput` with DuckDB's words for a wrong one."""
        with self._cache.reader() as cursor, self._console_lock:
            file = self._console.copy_for(user, cursor)
        return self._console.ask(file, sql)

    @contextmanager
    def _scope(self, user: User, filters: Filters, now: datetime | None) -> Iterator[Scope]:
        with self._cache.reader() as cursor:
            # One transaction: the parts of a chart and its footer see the same sync.
            cursor.execute("BEGIN")
            yield Scope(cursor, user, filters, now or datetime.now(UTC), self.polling_tools)
