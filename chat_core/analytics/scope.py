"""What one reader may see of the facts, as SQL: the owner's rows, in the window, by the chosen filters."""

from datetime import datetime
from functools import cached_property

import duckdb
import pyarrow as pa

from chat_core.analytics.filters import Filters, Values, Window
from chat_core.models import User

FINISHED = "outcome IN ('ok', 'error')"
"""Only these count in rates and durations: a running call is neither success nor failure, nor is a cut one."""


class Scope:
    """Builds the common parts of the charts' queries and runs them. One scope for one reading."""

    def __init__(
        self,
        cursor: duckdb.DuckDBPyConnection,
        user: User,
        filters: Filters,
        now: datetime,
        polling_tools: frozenset[str],
    ) -> None:
        self.cursor = cursor
        self.filters = filters
        self.now = now
        self._owner = user.key
        self.polling_tools = polling_tools if filters.polling is None else frozenset(filters.polling)

    @cached_property
    def window(self) -> Window:
        """The chosen window; for all time it begins with the first call."""
        chosen = self.filters.window(self.now)
        if self.filters.range != "all":
            return chosen
        first = self.cursor.execute(
            'SELECT LEAST((SELECT MIN(started_at) FROM "call" WHERE owner = $owner),'
            ' (SELECT MIN(started_at) FROM "run" WHERE owner = $owner))',
            {"owner": self._owner},
        ).fetchall()[0][0]
        start = first.replace(tzinfo=chosen.start.tzinfo) if first else chosen.start
        return Window(max(start, chosen.start), chosen.end)

    def calls(self, window: Window | None = None) -> str:
        """The calls that match all filters."""
        return self._rows("call", "started_at", window, True)

    def runs(self, window: Window | None = None) -> str:
        """The runs begun in the window; with a filter on tools or outcomes, those that made such a call."""
        rows = self._rows("run", "started_at", window, False)
        if self.filters.tools or self.filters.outcomes:
            rows += (
                f" AND run_id IN (SELECT run_id FROM ({self._rows('call', 'started_at', None, True, any_time=True)}))"
            )
        return rows

    def questions(self, window: Window | None = None) -> str:
        """The questions asked in the window; a filter on tools takes those that such a call waited for."""
        rows = self._rows("question", "asked_at", window, False)
        if self.filters.tools:
            rows += " AND tool IN (SELECT unnest($f_tools))"
        return rows

    def _rows(self, table: str, moment: str, window: Window | None, calls: bool, *, any_time: bool = False) -> str:
        conditions, _ = self.filters.call_conditions(with_calls_only=calls)
        when = "TRUE" if any_time else (window or self.window).sql(moment)
        return f'SELECT * FROM "{table}" WHERE owner = $owner AND {when} AND {conditions}'

    def local(self, column: str, window: Window | None = None) -> str:
        """The wall clock time of a UTC column in the viewer's zone."""
        window = window or self.window
        return self.filters.zone.local_sql(column, window.start, window.end)

    def table(self, sql: str, **values: object) -> pa.Table:
        """Run a query; `$owner` and the filters' values are always there."""
        return self.cursor.sql(sql, params=self._values(sql, values)).to_arrow_table()

    def rows(self, sql: str, **values: object) -> list[tuple[object, ...]]:
        """As `table`, for a few rows."""
        return self.cursor.execute(sql, self._values(sql, values)).fetchall()

    def _values(self, sql: str, values: Values) -> Values:
        _, chosen = self.filters.call_conditions()
        known = {"owner": self._owner, **chosen, **values}
        # DuckDB refuses values that a query does not name.
        return {name: value for name, value in known.items() if f"${name}" in sql}
