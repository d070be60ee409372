"""Days and hours are cut in the viewer's zone, on both nights of the clock change too."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chat_core.analytics.filters import Filters, read_filters
from chat_core.analytics.zone import Zone, timestamp_sql
from chat_core.errors import InvalidInput
from chat_core.i18n import zone_named
from tests.analytics.conftest import Read
from tests.analytics.recorder import Recorder

BERLIN = Zone(zone_named("Europe/Berlin"))


def _in_berlin(**values: object) -> Filters:
    return Filters(zone=BERLIN, branches="all", **values)  # type: ignore[arg-type]


def _calls_at(recorder: Recorder, *moments: datetime) -> None:
    session = recorder.session()
    for moment in moments:
        run = recorder.run(session, at=moment)
        run.call("terminal")
        run.end()


def test_the_spring_night_has_23_hours(recorder: Recorder, read: Read) -> None:
    # 29 March 2026: 02:00 becomes 03:00 in Berlin.
    begin = datetime(2026, 3, 28, 23, tzinfo=UTC)
    _calls_at(recorder, *(begin + timedelta(hours=hour) for hour in range(-1, 25)))
    filters = _in_berlin(range="custom", first_day=date(2026, 3, 29), last_day=date(2026, 3, 29), bucket="hour")
    rows = read("trend", filters, datetime(2026, 4, 2, tzinfo=UTC))
    assert len(rows) == 23
    assert [row["bucket"].hour for row in rows] == [0, 1, *range(3, 24)]
    [day] = read("trend", replace(filters, bucket="day"), datetime(2026, 4, 2, tzinfo=UTC))
    assert (day["calls"], day["bucket_end"] - day["bucket_start"]) == (23, timedelta(hours=23))


def test_the_autumn_night_has_25_hours_and_the_double_hour_is_two(recorder: Recorder, read: Read) -> None:
    # 25 October 2026: 03:00 becomes 02:00 in Berlin.
    begin = datetime(2026, 10, 24, 22, tzinfo=UTC)
    _calls_at(recorder, *(begin + timedelta(hours=hour) for hour in range(-1, 27)))
    filters = _in_berlin(range="custom", first_day=date(2026, 10, 25), last_day=date(2026, 10, 25), bucket="hour")
    now = datetime(2026, 11, 2, tzinfo=UTC)
    rows = read("trend", filters, now)
    assert [row["bucket"].hour for row in rows] == [0, 1, 2, 2, *range(3, 24)]
    assert len({row["bucket_start"] for row in rows}) == 25
    assert all(row["calls"] == 1 for row in rows)
    [day] = read("trend", replace(filters, bucket="day"), now)
    assert (day["calls"], day["bucket_end"] - day["bucket_start"]) == (25, timedelta(hours=25))
    assert {row["hour"]: row["calls"] for row in read("heatmap", filters, now)}[2] == 2


def test_a_call_just_before_midnight_belongs_to_the_viewers_day(recorder: Recorder, read: Read) -> None:
    # 22:30 UTC is 00:30 of the next day in Berlin in summer.
    _calls_at(recorder, datetime(2026, 6, 1, 22, 30, tzinfo=UTC))
    now = datetime(2026, 6, 3, tzinfo=UTC)
    [row] = read("trend", _in_berlin(range="7d"), now)
    assert row["bucket"].date() == date(2026, 6, 2)
    [cell] = read("heatmap", _in_berlin(range="7d"), now)
    assert (cell["weekday"], cell["hour"]) == (2, 0)


def test_the_bucket_at_work_is_marked_incomplete(recorder: Recorder, read: Read) -> None:
    now = datetime(2026, 6, 3, 12, tzinfo=UTC)
    _calls_at(recorder, now - timedelta(days=1), now - timedelta(hours=1))
    rows = read("trend", _in_berlin(range="7d"), now)
    assert [(row["bucket"].day, row["complete"]) for row in rows] == [(2, True), (3, False)]


def test_weeks_begin_on_monday_and_a_cut_week_is_incomplete(recorder: Recorder, read: Read) -> None:
    now = datetime(2026, 6, 3, 12, tzinfo=UTC)
    _calls_at(recorder, datetime(2026, 5, 29, 12, tzinfo=UTC), datetime(2026, 6, 1, 12, tzinfo=UTC))
    rows = read("trend", _in_berlin(range="7d", bucket="week"), now)
    assert [(row["bucket"].date(), row["complete"]) for row in rows] == [
        (date(2026, 5, 25), False),
        (date(2026, 6, 1), False),
    ]


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", date(2026, 3, 29), 23),
        ("Europe/Berlin", date(2026, 10, 25), 25),
        ("America/New_York", date(2026, 3, 8), 23),
        ("Asia/Kathmandu", date(2026, 3, 8), 24),
        ("Australia/Lord_Howe", date(2026, 4, 5), 24.5),
        ("Africa/Cairo", date(2026, 4, 24), 23),
        ("America/Sao_Paulo", date(2018, 11, 4), 23),
    ],
)
def test_days_are_as_long_as_the_zone_says(zone: str, day: date, hours: float) -> None:
    viewer = Zone(zone_named(zone))
    assert viewer.midnight_after(day) - viewer.midnight(day) == timedelta(hours=hours)


@settings(max_examples=60, deadline=None)
@given(
    zone=st.sampled_from(
        ["Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Africa/Cairo", "Pacific/Apia"]
    ),
    moments=st.lists(
        st.datetimes(min_value=datetime(2009, 1, 1), max_value=datetime(2030, 1, 1)), min_size=1, max_size=30
    ),
)
def test_sql_gives_the_wall_clock_that_python_gives(zone: str, moments: list[datetime]) -> None:
    viewer = Zone(zone_named(zone))
    aware = [moment.replace(microsecond=0, tzinfo=UTC) for moment in moments]
    sql = viewer.local_sql("at_utc", min(aware), max(aware))
    rows = ", ".join(f"({number}, {timestamp_sql(moment)})" for number, moment in enumerate(aware))
    found = duckdb.sql(f"SELECT {sql} FROM (VALUES {rows}) AS moments(number, at_utc) ORDER BY number").fetchall()
    assert [row[0] for row in found] == [moment.astimezone(viewer.info).replace(tzinfo=None) for moment in aware]


def test_the_period_before_is_as_long_over_a_clock_change() -> None:
    now = datetime(2026, 3, 30, 10, tzinfo=UTC)
    filters = _in_berlin(range="7d")
    before = filters.window_before(now)
    assert before is not None
    assert before.start == BERLIN.midnight(date(2026, 3, 17))
    assert before.end.astimezone(BERLIN.info).replace(tzinfo=None) == datetime(2026, 3, 23, 12)


def test_filters_survive_the_url() -> None:
    filters = Filters(
        zone=BERLIN,
        range="custom",
        first_day=date(2026, 1, 2),
        last_day=date(2026, 2, 3),
        tools=("a", "b"),
        models=("",),
        skills=("review",),
        runtimes=("hermes",),
        session="0000-1111",
        outcomes=("ok", "error"),
        branches="all",
        bucket="week",
        polling=("poll",),
    )
    assert read_filters(filters.to_query(), "Europe/Berlin", strict=True) == filters


@pytest.mark.parametrize(
    "query",
    [
        {"range": ["yesterday"]},
        {"range": ["custom"]},
        {"from": ["2026-13-01"], "to": ["2026-02-01"]},
        {"from": ["2026-03-01"], "to": ["2026-02-01"]},
        {"zone": ["Mars/Olympus"]},
        {"outcome": ["fine"]},
        {"branches": ["none"]},
        {"bucket": ["minute"]},
    ],
)
def test_a_wrong_filter_is_refused_by_the_api_and_forgiven_by_the_page(query: dict[str, list[str]]) -> None:
    with pytest.raises(InvalidInput):
        read_filters(query, "UTC", strict=True)
    assert read_filters(query, "UTC", strict=False).zone
