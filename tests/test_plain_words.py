import time

import pytest

from chat_core.text import plain_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("## Title **bold**", "Title bold"),
        ("Done `here`. See [the *notes*](https://e.example/a_b) ![x](y.png)", "Done here. See the notes x"),
        ("- [x] one\n- two\n  * three\n1. four", "one two three 1. four"),
        ("> ## quoted\n> more", "quoted more"),
        ("```python\nprint('a_b')\n```\nafter", "print('a_b') after"),
        ("| a | b |\n|---|:-:|\n| 1 | **2** |", "a b 1 2"),
        ("before\n\n---\n\nafter ~~gone~~", "before after gone"),
        ("cut in the **middle of bo", "cut in the middle of bo"),
        ("snake_case, __init__.py and a * b * c, 3 > 2, C#, #tag, x|y", None),
        ("2*3 = 6 and **", None),
        ("", ""),
    ],
)
def test_a_preview_reads_as_plain_words(text: str, words: str | None) -> None:
    expected = text if words is None else words
    if "__init__" in text:
        expected = expected.replace("__init__", "init")  # which is how Markdown itself shows it
    assert plain_words(text) == expected


@pytest.mark.parametrize("sign", ["*", "_", "`", "[", "|", "-", "> ", "**a", "![", "~~", "a*"])
def test_hostile_repetition_costs_no_time(sign: str) -> None:
    text = sign * (600 // len(sign))
    started = time.perf_counter()
    for _ in range(100):
        plain_words(text)
    assert time.perf_counter() - started < 2
