"""Text from outside is made storable at the door."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_core.text import NESTED_TOO_DEEPLY, DeltaText, preview, storable, storable_json

ANY_TEXT = st.text(alphabet=st.characters(codec=None, categories=None))


@given(ANY_TEXT)
def test_storable_text_can_be_encoded_and_holds_no_nul(text: str) -> None:
    kept = storable(text)
    kept.encode("utf-8")
    assert "\x00" not in kept
    assert storable(kept) == kept


@given(ANY_TEXT, st.integers(0, 50))
def test_deltas_cut_anywhere_give_the_text_as_a_whole_does(text: str, cut: int) -> None:
    deltas = DeltaText()
    assert deltas.push(text[:cut]) + deltas.push(text[cut:]) + deltas.flush() == storable(text)


@given(ANY_TEXT, st.integers(5, 60), st.integers(1, 5), st.integers(2, 20))
def test_a_preview_is_bounded_in_bytes_lines_and_line_length(text: str, size: int, lines: int, width: int) -> None:
    cut = preview(text, max_bytes=size, max_lines=lines, max_line_chars=width)
    body = cut.removesuffix("\n…")
    assert len(body.encode("utf-8", "replace")) <= size
    assert len(body.split("\n")) <= lines
    assert all(len(line) <= width for line in body.split("\n"))


def test_a_short_text_is_its_own_preview() -> None:
    assert preview("two\nlines") == "two\nlines"


def test_keys_and_values_of_json_are_made_storable() -> None:
    assert storable_json({"\udc88": ["a\x00", 1, None]}) == {"\ufffd": ["a\ufffd", 1, None]}


@pytest.mark.parametrize("depth", [10, 100, 600, 900])
def test_json_of_any_depth_that_can_be_read_can_be_kept(depth: int) -> None:
    value = json.loads("[" * depth + "]" * depth)
    kept = storable_json(value)
    assert kept in (value, NESTED_TOO_DEEPLY)
    json.dumps(kept)
