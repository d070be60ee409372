"""Cuts UTC times into the days and hours of a viewer's zone, before anything is grouped.

DuckDB is given the zone as a list of its offsets in the window, so that Python's and the browser's time zone
data are the only ones that count, and both nights of the clock change come out right: one day has 23 hours,
one has 25, and the hour that comes twice is two hours.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Zone:
    """A viewer's time zone."""

    info: ZoneInfo

    @property
    def name(self) -> str:
        return self.info.key

    def midnight(self, day: date) -> datetime:
        """The first moment of a day, in UTC."""
        local = datetime.combine(day, time(), tzinfo=self.info)
        # Where the clock skips midnight this is the moment after the skip, which is when that day begins.
        return local.astimezone(UTC)

    def midnight_after(self, day: date) -> datetime:
        """The moment a day is over."""
        return self.midnight(day + timedelta(days=1))

    def day_of(self, moment: datetime) -> date:
        return moment.astimezone(self.info).date()

    def offset_seconds(self, moment: datetime) -> int:
        offset = moment.astimezone(self.info).utcoffset()
        return int(offset.total_seconds()) if offset else 0

    def changes(self, start: datetime, end: datetime) -> list[tuple[datetime, int]]:
        """The moments in (start, end] at which the offset changes, each with the offset from then on."""
        found = []
        moment, offset = start, self.offset_seconds(start)
        while moment < end:
            following = min(moment + timedelta(days=1), end)
            if (new := self.offset_seconds(following)) != offset:
                found.append((_first_with(self, moment, following, new), new))
                offset = new
            moment = following
        return found

    def local_sql(self, column: str, start: datetime, end: datetime) -> str:
        """An SQL expression: the wall clock time of a UTC column, right for every moment in [start, end]."""
        return f"({column} + {self.offset_sql(column, start, end)})"

    def offset_sql(self, column: str, start: datetime, end: datetime) -> str:
        start, end = max(start, EARLIEST), max(end, EARLIEST)
        first = _interval(self.offset_seconds(start))
        changes = self.changes(start, end)
        if not changes:
            return first
        branches, offset = [], first
        for moment, new in changes:
            branches.append(f"WHEN {column} < {timestamp_sql(moment)} THEN {offset}")
            offset = _interval(new)
        return f"CASE {' '.join(branches)} ELSE {offset} END"


def timestamp_sql(moment: datetime) -> str:
    """A UTC moment as an SQL literal without a zone, which is how the facts hold times."""
    return f"TIMESTAMP '{moment.astimezone(UTC).replace(tzinfo=None).isoformat(sep=' ')}'"


def _first_with(zone: Zone, low: datetime, high: datetime, offset: int) -> datetime:
    """The first second in (low, high] that has this offset."""
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) / 2
        middle = middle.replace(microsecond=0)
        if middle <= low:
            break
        if zone.offset_seconds(middle) == offset:
            high = middle
        else:
            low = middle
    return high.replace(microsecond=0)


def _interval(seconds: int) -> str:
    return f"INTERVAL ({seconds}) SECOND"
