"""The texts of the pages in the viewer's language, and how times, durations and counts are written.

Texts live in `chat_core/locales/<locale>.json`, one flat object of `key: text`. A key with a count has two texts,
`<key>.one` and `<key>.other`. Values stand in braces: `"{count} tools"`.
"""

import json
import logging
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo

from chat_core.errors import ParleyError

Locale = Literal["en", "zh-CN"]
DayGroup = Literal["today", "yesterday", "earlier"]

LOCALES: dict[Locale, str] = {"en": "English", "zh-CN": "简体中文"}
DEFAULT_LOCALE: Locale = "en"

_FOLDER = Path(__file__).parent / "locales"
_log = logging.getLogger(__name__)


def choose_locale(preferred: str | None, browser: str | None) -> Locale:
    """Return the locale to speak: what the viewer chose, else the browser's language, else English."""
    for wish in (preferred, browser):
        for locale in LOCALES:
            if wish and wish.lower() == locale.lower():
                return locale
        if wish and wish.lower().split("-")[0].split("_")[0] == "zh":
            return "zh-CN"
        if wish and wish.lower().split("-")[0].split("_")[0] == "en":
            return "en"
    return DEFAULT_LOCALE


def zone_named(name: str | None) -> ZoneInfo:
    """Return the viewer's time zone; UTC when the browser told none or one we do not know."""
    try:
        return ZoneInfo(name or "UTC")
    except (ValueError, OSError, KeyError):
        return ZoneInfo("UTC")


@cache
def load_texts(locale: Locale) -> Mapping[str, str]:
    """Read the texts of one locale from its file (once)."""
    texts: dict[str, str] = json.loads((_FOLDER / f"{locale}.json").read_text(encoding="utf-8"))
    return texts


class Texts:
    """What the pages say, in one language."""

    def __init__(self, locale: Locale = DEFAULT_LOCALE) -> None:
        self.locale: Locale = locale
        self._texts = load_texts(locale)

    def t(self, key: str, **values: object) -> str:
        """Return the text of `key` with its values filled in.

        A key that this language lacks is said in English; one that nobody knows is returned as it is and logged:
        a page never fails for a missing word (the tests do).
        """
        text = self._texts.get(key) or load_texts(DEFAULT_LOCALE).get(key)
        if text is None:
            _log.warning("there is no text for the key %r", key)
            return key
        return text.format_map(values) if values else text

    def n(self, key: str, count: int, **values: object) -> str:
        """Return the text of `key` for a count, which it may show as `{count}`."""
        form = "one" if count == 1 else "other"
        return self.t(f"{key}.{form}", count=self.number(count), **values)

    def has(self, key: str) -> bool:
        """Tell whether there is a text for `key`."""
        return key in self._texts or key in load_texts(DEFAULT_LOCALE)

    def group(self, prefix: str) -> dict[str, str]:
        """Return the texts under `prefix.`, without the prefix: what a component in the browser gets."""
        start = prefix + "."
        both = {**load_texts(DEFAULT_LOCALE), **self._texts}
        return {key.removeprefix(start): text for key, text in both.items() if key.startswith(start)}

    def error(self, error: ParleyError) -> str:
        """Return the plain sentence for an error: the translated one when there is one, else the error's own."""
        key = f"error.{error.code}"
        if self.locale == DEFAULT_LOCALE or not self.has(key):
            return error.message
        try:
            return self.t(key, **error.values)
        except (KeyError, IndexError, ValueError):
            return error.message

    def number(self, value: int) -> str:
        """Return a whole number with its thousands grouped."""
        return f"{value:,}" if abs(value) >= 10_000 else str(value)

    def count(self, value: int) -> str:
        """Return a large number short: `950`, `4.1 k`, `12 k`, `1.3 M`."""
        for size, sign in ((1_000_000, "M"), (1_000, "k")):
            if value >= size * 0.9995:
                scaled = value / size
                return f"{scaled:.1f} {sign}" if scaled < 9.95 else f"{scaled:.0f} {sign}"
        return str(value)

    def duration(self, milliseconds: int | float) -> str:
        """Return a duration: `0.4 s`, `12 s`, `3 min 5 s`, `2 h 10 min`, `1 d 4 h`."""
        seconds = max(milliseconds, 0) / 1000
        if seconds < 0.95:
            return self.t("time.seconds", count=f"{seconds:.1f}")
        whole = round(seconds)
        if whole < 60:
            return self.t("time.seconds", count=whole)
        for unit, next_unit, size, part in (
            ("time.minutes", "time.seconds", 60, 1),
            ("time.hours", "time.minutes", 3600, 60),
            ("time.days", "time.hours", 86_400, 3600),
        ):
            if whole < size * (60 if size == 60 else 24) or size == 86_400:
                first, rest = divmod(whole, size)
                text = self.t(unit, count=first)
                return f"{text} {self.t(next_unit, count=rest // part)}" if rest // part else text
        raise AssertionError("unreachable")

    def since(self, moment: datetime, now: datetime) -> str:
        """Return how long ago something began, in its largest unit: `now`, `3 min`, `2 h`, `4 d`."""
        seconds = max((now - moment).total_seconds(), 0)
        if seconds < 60:
            return self.t("time.now")
        for unit, size, limit in (("minutes", 60, 60), ("hours", 3600, 24), ("days", 86_400, None)):
            if limit is None or seconds < size * limit:
                return self.t(f"time.{unit}", count=int(seconds // size))
        raise AssertionError("unreachable")

    def clock(self, moment: datetime, zone: ZoneInfo) -> str:
        """Return the time of day in the viewer's zone: `14:32`."""
        return f"{moment.astimezone(zone):%H:%M}"

    def day(self, moment: datetime, zone: ZoneInfo, now: datetime) -> str:
        """Return the day in the viewer's zone, shortest form that is clear: `Today`, `Yesterday`, `Mon`, `12 Mar`."""
        day, today = moment.astimezone(zone).date(), now.astimezone(zone).date()
        if day == today:
            return self.t("time.today")
        if day == today - timedelta(days=1):
            return self.t("time.yesterday")
        if today - timedelta(days=7) < day < today:
            return self.t(f"time.weekday.{day.isoweekday()}")
        return self._date(day, with_year=day.year != today.year)

    def row_time(self, moment: datetime, zone: ZoneInfo, now: datetime) -> str:
        """Return what stands at the right of a list row: the time under *Today* and *Yesterday*, else the day."""
        is_earlier = day_group(moment, zone, now) == "earlier"
        return self.day(moment, zone, now) if is_earlier else self.clock(moment, zone)

    def moment(self, moment: datetime, zone: ZoneInfo, now: datetime) -> str:
        """Return a full time in the viewer's zone: `Yesterday 14:32`, `12 Mar 2025 14:32`; only the time for today."""
        day = moment.astimezone(zone).date()
        clock = self.clock(moment, zone)
        return clock if day == now.astimezone(zone).date() else f"{self.day(moment, zone, now)} {clock}"

    def _date(self, day: date, with_year: bool) -> str:
        key = "time.date_with_year" if with_year else "time.date"
        return self.t(key, day=day.day, month=self.t(f"time.month.{day.month}"), month_number=day.month, year=day.year)


def day_group(moment: datetime, zone: ZoneInfo, now: datetime) -> DayGroup:
    """Return the group of the session list a time falls in, by the days of the viewer's zone."""
    day, today = moment.astimezone(zone).date(), now.astimezone(zone).date()
    if day >= today:
        return "today"
    return "yesterday" if day == today - timedelta(days=1) else "earlier"
