import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from chat_core.titles import TITLE_CLUSTERS, title_from

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"
FLAG = "\U0001f1e9\U0001f1ea"
HAND = "\U0001f44b\U0001f3fd"
ACCENTED = "e\u0301\u0323"
HANGUL = "\u1112\u1161\u11ab"


@pytest.mark.parametrize("cluster", [FAMILY, FLAG, HAND, ACCENTED, HANGUL, "修", "a"])
def test_a_cluster_on_the_limit_stays_whole_and_the_next_one_goes_whole(cluster: str) -> None:
    assert title_from("x" * 29 + cluster * 3) == "x" * 29 + cluster
    assert title_from(cluster * 40) == cluster * TITLE_CLUSTERS


def test_a_short_message_is_its_own_title() -> None:
    assert title_from("What is the capital of France?") == "What is the capital of France?"


def test_line_breaks_and_runs_of_space_become_one_space() -> None:
    assert title_from("  one\r\n\n two\t\tthree\u2028four\u3000five\n") == "one two three four five"


def test_a_cut_after_a_space_leaves_no_space_at_the_end() -> None:
    assert title_from("x" * 29 + " yyy") == "x" * 29


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("<think>let me see\nhm</think>Plan a trip", "Plan a trip"),
        ("<THINKING>a</THINKING> Plan <think>b</think> a trip", "Plan a trip"),
        ("<think>never closed", "never closed"),
        ("```python\nprint(1)\n```", "print(1)"),
        ("~~~\nfix this\n~~~~\nplease", "fix this please"),
        ("use `ls` here", "use `ls` here"),
        ("```json\n```", ""),
    ],
)
def test_thinking_and_fences_are_not_part_of_a_title(text: str, title: str) -> None:
    assert title_from(text) == title


@pytest.mark.parametrize("text", ["", " \n\t", "\u200b\u200b", "\u200d", "<think>x</think>", "\x07\u202e"])
def test_nothing_to_see_gives_no_title(text: str) -> None:
    assert title_from(text) == ""


def test_controls_and_direction_overrides_are_dropped() -> None:
    assert title_from("a\u202eb\u2066c\x07d") == "abcd"


def test_what_cannot_be_stored_is_replaced() -> None:
    assert title_from("bad \udc88 and \ud83d\ude00") == "bad \ufffd and \U0001f600"


def test_one_cluster_of_thousands_of_marks_does_not_fill_the_row() -> None:
    assert title_from("ab" + "e" + "\u0301" * 3000) == "ab"


@given(st.text(max_size=200))
def test_every_title_is_one_bounded_line_of_whole_clusters(text: str) -> None:
    title = title_from(text)
    assert "\n" not in title
    assert "\r" not in title
    assert title == title.strip()
    assert len(regex.findall(r"\X", title)) <= TITLE_CLUSTERS
    title.encode("utf-8")
