"""Checks what people hand in, before anything is stored."""

from chat_core.errors import InvalidInput, TooLarge
from chat_core.models import Question
from chat_core.text import storable

MAX_MESSAGE_CHARS = 200_000
MAX_TITLE_CHARS = 200
MAX_ANSWER_CHARS = 20_000


def checked_text(text: str) -> str:
    content = storable(text)
    if not content.strip():
        raise InvalidInput("The message is empty. Write something first.")
    if len(content) > MAX_MESSAGE_CHARS:
        raise TooLarge(
            f"The message has {len(content):,} characters; at most {MAX_MESSAGE_CHARS:,} can be sent.",
            limit=MAX_MESSAGE_CHARS,
        )
    return content


def checked_title(title: str) -> str:
    line = " ".join(storable(title).split())
    if len(line) > MAX_TITLE_CHARS:
        raise InvalidInput(f"The title has {len(line)} characters; at most {MAX_TITLE_CHARS} are kept.")
    return line


def check_answer(asked: Question, answer: str) -> None:
    if not answer.strip():
        raise InvalidInput("The answer is empty. Choose or write one.")
    if asked.kind == "approval" and asked.choices and answer not in asked.choices:
        raise InvalidInput(f"The answer {answer!r} is not one of {', '.join(asked.choices)}.")
