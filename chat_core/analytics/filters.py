"""Which part of the facts a reader looks at: read from the URL or the API, written back, and turned into SQL."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Literal, get_args

from chat_core.analytics.zone import EARLIEST, Zone, timestamp_sql
from chat_core.errors import InvalidInput
from chat_core.i18n import zone_named

Outcome = Literal["ok", "error", "running", "cut"]
Branches = Literal["active", "all"]
Bucket = Literal["auto", "hour", "day", "week"]

CALENDAR_DAYS = {"today": 1, "7d": 7, "30d": 30, "90d": 90, "365d": 365}
"""Calendar days in the viewer's zone, today included."""
ROLLING_HOURS = {"24h": 24, "7x24h": 168, "30x24h": 720}
RANGES = (*CALENDAR_DAYS, *ROLLING_HOURS, "all", "custom")
DEFAULT_RANGE = "30d"

Values = dict[str, object]


@dataclass(frozen=True, slots=True)
class Window:
    """From `start` up to, not including, `end`."""

    start: datetime
    end: datetime

    def sql(self, column: str) -> str:
        return f"({column} >= {timestamp_sql(self.start)} AND {column} < {timestamp_sql(self.end)})"


@dataclass(frozen=True, slots=True)
class Filters:
    """What the reader chose. Empty lists mean: no restriction."""

    zone: Zone
    range: str = DEFAULT_RANGE
    first_day: date | None = None
    last_day: date | None = None
    tools: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    session: str = ""
    outcomes: tuple[Outcome, ...] = ()
    branches: Branches = "active"
    bucket: Bucket = "auto"
    polling: tuple[str, ...] | None = None
    """Tools that may repeat themselves; None: the setting."""

    def window(self, now: datetime) -> Window:
        """The chosen time. Calendar days begin at the viewer's midnight; `now` itself is the last moment."""
        end = now + timedelta(milliseconds=1)
        if self.range in ROLLING_HOURS:
            return Window(now - timedelta(hours=ROLLING_HOURS[self.range]), end)
        if self.range in CALENDAR_DAYS:
            first = self.zone.day_of(now) - timedelta(days=CALENDAR_DAYS[self.range] - 1)
            return Window(self.zone.midnight(first), end)
        if self.range == "custom" and self.first_day and self.last_day:
            return Window(self.zone.midnight(self.first_day), self.zone.midnight(self.last_day + timedelta(days=1)))
        return Window(EARLIEST, end)

    def window_before(self, now: datetime) -> Window | None:
        """The period to compare with: as long, right before, up to the same time of day. None for all time."""
        window = self.window(now)
        if self.range in ROLLING_HOURS:
            return Window(window.start - timedelta(hours=ROLLING_HOURS[self.range]), window.start)
        if self.range in CALENDAR_DAYS:
            days = CALENDAR_DAYS[self.range]
            local_end = now.astimezone(self.zone.info).replace(tzinfo=None) - timedelta(days=days)
            end = local_end.replace(tzinfo=self.zone.info).astimezone(UTC)
            start = self.zone.midnight(self.zone.day_of(window.start) - timedelta(days=days))
            return Window(start, min(end, window.start))
        if self.range == "custom" and self.first_day and self.last_day:
            days = (self.last_day - self.first_day).days + 1
            return Window(self.zone.midnight(self.first_day - timedelta(days=days)), window.start)
        return None

    def call_conditions(self, *, with_calls_only: bool = True) -> tuple[str, Values]:
        """The choice as SQL over a fact table, without owner and time.

        `with_calls_only` false leaves out tools and outcomes, which only calls have.
        """
        conditions, values = ["TRUE"], Values()
        wanted: list[tuple[str, str, Sequence[str]]] = [
            ("model_id", "models", self.models),
            ("skill_folder", "skills", self.skills),
            ("runtime", "runtimes", self.runtimes),
        ]
        if with_calls_only:
            wanted += [("tool", "tools", self.tools), ("outcome", "outcomes", self.outcomes)]
        for column, name, chosen in wanted:
            if chosen:
                conditions.append(f"{column} IN (SELECT unnest($f_{name}))")
                values[f"f_{name}"] = list(chosen)
        if self.session:
            conditions.append("session_id = (SELECT id FROM raw_session WHERE session_uuid = $f_session)")
            values["f_session"] = self.session
        if self.branches == "active":
            conditions.append("on_active_branch")
        return " AND ".join(conditions), values

    def to_query(self) -> dict[str, list[str]]:
        """The choice as URL parameters; what is the default is left out."""
        query: dict[str, list[str]] = {}
        if self.range != DEFAULT_RANGE:
            query["range"] = [self.range]
        if self.range == "custom" and self.first_day and self.last_day:
            query["from"], query["to"] = [self.first_day.isoformat()], [self.last_day.isoformat()]
        for name, chosen in (
            ("tool", self.tools),
            ("model", self.models),
            ("skill", self.skills),
            ("runtime", self.runtimes),
            ("outcome", self.outcomes),
        ):
            if chosen:
                query[name] = list(chosen)
        if self.session:
            query["session"] = [self.session]
        if self.branches != "active":
            query["branches"] = [self.branches]
        if self.bucket != "auto":
            query["bucket"] = [self.bucket]
        if self.polling is not None:
            query["polling"] = list(self.polling) or [""]
        return query


def read_filters(query: Mapping[str, Sequence[str]], default_zone: str | None = None, *, strict: bool) -> Filters:
    """Read the choice from URL parameters.

    `strict` raises `InvalidInput` for what cannot be right (the API); otherwise it is ignored (a page with a
    mistyped or old URL still opens).
    """
    reader = _QueryReader(query, strict)
    zone_name = reader.one("zone") or default_zone or "UTC"
    zone = zone_named(zone_name)
    if strict and zone.key != zone_name:
        raise InvalidInput(
            f"There is no time zone {zone_name!r}; give an IANA name such as Europe/Berlin.", name="zone"
        )
    first_day, last_day = reader.day("from"), reader.day("to")
    chosen_range = reader.choice("range", RANGES, "custom" if first_day and last_day else DEFAULT_RANGE)
    if chosen_range == "custom" and not (first_day and last_day):
        if strict:
            raise InvalidInput("A custom range needs from=YYYY-MM-DD and to=YYYY-MM-DD.", name="range")
        chosen_range = DEFAULT_RANGE
    if first_day and last_day and first_day > last_day:
        if strict:
            raise InvalidInput(f"from={first_day} is after to={last_day}.", name="from")
        first_day, last_day = last_day, first_day
    return Filters(
        zone=Zone(zone),
        range=chosen_range,
        first_day=first_day,
        last_day=last_day,
        tools=reader.many("tool"),
        models=reader.many("model"),
        skills=reader.many("skill"),
        runtimes=reader.many("runtime"),
        session=reader.one("session"),
        outcomes=tuple(name for name in get_args(Outcome) if name in reader.choices("outcome", get_args(Outcome))),
        branches="all" if reader.choice("branches", get_args(Branches), "active") == "all" else "active",
        bucket=_bucket(reader.choice("bucket", get_args(Bucket), "auto")),
        polling=tuple(name for name in reader.many("polling", keep_empty=True) if name) if "polling" in query else None,
    )


def _bucket(name: str) -> Bucket:
    return next((bucket for bucket in get_args(Bucket) if bucket == name), "auto")


class _QueryReader:
    def __init__(self, query: Mapping[str, Sequence[str]], strict: bool) -> None:
        self._query = query
        self._strict = strict

    def many(self, name: str, *, keep_empty: bool = False) -> tuple[str, ...]:
        values = self._query.get(name, ())
        if len(values) > 200:
            raise InvalidInput(f"{name} may be given 200 times at most.", name=name)
        # An empty model or skill is a choice: runs without one.
        may_be_empty = keep_empty or name in {"model", "skill"}
        return tuple(dict.fromkeys(value[:200] for value in values if value or may_be_empty))

    def one(self, name: str) -> str:
        values = self._query.get(name, ())
        return values[-1][:200] if values else ""

    def choice(self, name: str, allowed: Sequence[str], default: str) -> str:
        value = self.one(name)
        if not value:
            return default
        if value in allowed:
            return value
        if self._strict:
            raise InvalidInput(f"{name}={value!r} is not known; choose from {', '.join(allowed)}.", name=name)
        return default

    def choices(self, name: str, allowed: Sequence[str]) -> tuple[str, ...]:
        values = self.many(name)
        for value in values:
            if value not in allowed and self._strict:
                raise InvalidInput(f"{name}={value!r} is not known; choose from {', '.join(allowed)}.", name=name)
        return tuple(value for value in values if value in allowed)

    def day(self, name: str) -> date | None:
        value = self.one(name)
        if not value:
            return None
        try:
            return date.fromisoformat(value)
        except ValueError:
            if self._strict:
                raise InvalidInput(f"{name}={value!r} is not a day; write YYYY-MM-DD.", name=name) from None
            return None
