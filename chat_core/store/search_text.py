"""How text is compared in a search: without case, character by character, with nothing in it being an operator.

The folded text is as long as the text, so a place found in one is the same place in the other.
"""

import itertools
import sqlite3

MAX_TERMS = 24
"""Of a long query so many pieces are looked up; whether a text holds all of it is then seen in the text."""

_END = "\x01"
_ASCII_AS_WORD_CHARACTER = 0xE000
"""FTS5's `ascii` tokenizer takes every character outside ASCII as part of a word; these ones are private."""


def fold(text: str) -> str:
    """Return `text` without case, of the same length. ASCII letters fold as in LIKE; nothing else becomes ASCII."""
    if text.isascii():
        return text.lower()
    folded = text.casefold()
    if len(folded) != len(text) or "\N{KELVIN SIGN}" in text or "\N{LATIN SMALL LETTER LONG S}" in text:
        return "".join(map(_fold_character, text))
    return folded


def _fold_character(character: str) -> str:
    if character.isascii():
        return character.lower()
    for folded in (character.casefold(), character.lower()):
        if len(folded) == 1 and not folded.isascii():
            return folded
    return character


def holds(text: str, folded_query: str) -> bool:
    """Whether the text holds the folded query."""
    return folded_query in fold(text)


def pairs(text: str) -> str:
    """Return the pairs of neighbours of which one is outside ASCII, each once, as words divided by spaces.

    They find what is too short for trigrams: Chinese and Japanese words mostly have one or two characters.
    """
    if text.isascii():
        return ""
    folded = fold(text) + _END
    found = {
        first + second for first, second in itertools.pairwise(folded) if not (first.isascii() and second.isascii())
    }
    return " ".join(_word(pair) for pair in found)


def trigram_terms(folded_query: str) -> str:
    """Return the FTS5 query for texts that can hold a query of three characters or more."""
    terms = list(dict.fromkeys(folded_query[start : start + 3] for start in range(len(folded_query) - 2)))
    if len(terms) > MAX_TERMS:
        terms = [terms[number * len(terms) // MAX_TERMS] for number in range(MAX_TERMS)]
    return " ".join(_quoted(term) for term in terms)


def pair_term(folded_query: str) -> str:
    """Return the FTS5 query for texts that hold a query of one or two characters, not all of them ASCII."""
    word = _quoted(_word(folded_query))
    return f"{word}*" if len(folded_query) == 1 else word


def register(connection: sqlite3.Connection) -> None:
    """Give the connection the functions that the triggers and searches use."""
    connection.create_function("parley_fold", 1, fold, deterministic=True)
    connection.create_function("parley_pairs", 1, pairs, deterministic=True)
    connection.create_function("parley_holds", 2, holds, deterministic=True)


def _quoted(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'


def _word(pair: str) -> str:
    return "".join(
        chr(_ASCII_AS_WORD_CHARACTER + ord(character)) if character.isascii() else character for character in pair
    )
