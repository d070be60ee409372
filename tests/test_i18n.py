"""Every text a page asks for exists in every language, and times read as people of the viewer's zone expect."""

import re
import string
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from chat_core import errors, i18n
from chat_core.errors import ParleyError, SessionBusy
from chat_core.i18n import DEFAULT_LOCALE, LOCALES, Texts, choose_locale, day_group, load_texts, zone_named

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("pages/*.py"), *ROOT.glob("chat_core/ui/*.py")]
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


def keys_in_source() -> set[str]:
    """The keys that stand literally in a call of `t` or `n`; a counted key stands for its two forms."""
    keys: set[str] = set()
    for file in PAGES:
        source = file.read_text(encoding="utf-8")
        keys |= set(re.findall(r"\bt\.t\(\s*\"([a-z0-9_.]+)\"", source))
        keys |= set(re.findall(r"texts\.t\(\s*\"([a-z0-9_.]+)\"", source))
        for key in re.findall(r"\b(?:t|texts)\.n\(\s*\"([a-z0-9_.]+)\"", source):
            keys |= {f"{key}.one", f"{key}.other"}
    return keys


def names_in(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


@pytest.mark.parametrize("locale", LOCALES)
def test_every_language_has_every_key(locale: i18n.Locale) -> None:
    assert set(load_texts(locale)) == set(load_texts(DEFAULT_LOCALE))


@pytest.mark.parametrize("locale", LOCALES)
def test_no_text_is_empty_or_asks_for_values_the_english_one_lacks(locale: i18n.Locale) -> None:
    english = load_texts(DEFAULT_LOCALE)
    for key, text in load_texts(locale).items():
        assert text.strip(), key
        # A date may be written with the number or the name of its month.
        assert names_in(text) - {"month_number", "year", "day"} <= names_in(english[key]) | {"month"}, key


def test_every_key_in_the_source_of_the_pages_has_a_text() -> None:
    keys = keys_in_source()
    assert len(keys) > 60
    assert sorted(key for key in keys if key not in load_texts(DEFAULT_LOCALE)) == []


def test_every_error_a_page_can_meet_has_a_translation() -> None:
    shown = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ParleyError)]
    inner = {"lease_lost", "run_unknown", "settings", "invalid_input"}  # never reach a page, or name the value at fault
    codes = {kind.code for kind in shown} - inner
    assert sorted(code for code in codes if not Texts("zh-CN").has(f"error.{code}")) == []


def test_a_missing_key_is_shown_as_itself_and_never_fails_a_page() -> None:
    assert Texts().t("no.such.key") == "no.such.key"


@pytest.mark.parametrize(
    ("preferred", "browser", "locale"),
    [
        (None, None, "en"),
        (None, "zh", "zh-CN"),
        (None, "zh-TW", "zh-CN"),
        (None, "zh_Hans", "zh-CN"),
        (None, "de-DE", "en"),
        ("en", "zh-CN", "en"),
        ("zh-CN", "en-US", "zh-CN"),
        ("xx", "zh-CN", "zh-CN"),
        ("", "", "en"),
    ],
)
def test_the_viewers_choice_comes_before_the_browsers_language(
    preferred: str | None, browser: str | None, locale: str
) -> None:
    assert choose_locale(preferred, browser) == locale


def test_an_error_is_said_in_english_by_its_own_sentence_and_in_chinese_by_ours() -> None:
    error = SessionBusy("The session is busy with 'x'.")
    assert Texts("en").error(error) == "The session is busy with 'x'."
    assert Texts("zh-CN").error(error) == load_texts("zh-CN")["error.session_busy"]


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [
        (0, "0.0 s"),
        (400, "0.4 s"),
        (949, "0.9 s"),
        (12_400, "12 s"),
        (59_600, "1 min"),
        (185_000, "3 min 5 s"),
        (3_600_000, "1 h"),
        (7_800_000, "2 h 10 min"),
        (100_800_000, "1 d 4 h"),
        (-5, "0.0 s"),
    ],
)
def test_durations(milliseconds: int, words: str) -> None:
    assert Texts().duration(milliseconds) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0"), (950, "950"), (999, "999"), (1000, "1.0 k"), (4_120, "4.1 k"), (12_345, "12 k"), (1_300_000, "1.3 M")],
)
def test_counts_are_short(value: int, words: str) -> None:
    assert Texts().count(value) == words


def test_one_and_many_have_their_own_words() -> None:
    assert Texts().n("activity.tools", 1) == "1 tool"
    assert Texts().n("activity.tools", 5) == "5 tools"


@pytest.mark.parametrize(
    ("ago", "words"),
    [
        (timedelta(seconds=5), "now"),
        (timedelta(minutes=3), "3 min"),
        (timedelta(hours=2), "2 h"),
        (timedelta(4), "4 d"),
    ],
)
def test_how_long_something_waits(ago: timedelta, words: str) -> None:
    assert Texts().since(NOW - ago, NOW) == words


def test_days_are_those_of_the_viewers_zone() -> None:
    moment = datetime(2026, 11, 29, 23, 30, tzinfo=UTC)  # half past midnight in Berlin
    assert day_group(moment, BERLIN, NOW) == "today"
    assert day_group(moment, ZoneInfo("UTC"), NOW) == "yesterday"
    assert Texts().row_time(moment, BERLIN, NOW) == "00:30"
    assert Texts().moment(moment, ZoneInfo("UTC"), NOW) == "Yesterday 23:30"


def test_older_days_are_named_by_weekday_then_by_date() -> None:
    zone = ZoneInfo("UTC")
    assert Texts().day(NOW - timedelta(days=3), zone, NOW) == "Fri"
    assert Texts().day(NOW - timedelta(days=40), zone, NOW) == "21 Oct"
    assert Texts().day(NOW - timedelta(days=400), zone, NOW) == "26 Oct 2025"
    assert Texts("zh-CN").day(NOW - timedelta(days=40), zone, NOW) == "10月21日"
    assert day_group(NOW - timedelta(days=2), zone, NOW) == "earlier"


@pytest.mark.parametrize("name", [None, "", "No/Where", "../etc/passwd", "\x00"])
def test_an_unknown_zone_is_utc(name: str | None) -> None:
    assert zone_named(name).key == "UTC"
