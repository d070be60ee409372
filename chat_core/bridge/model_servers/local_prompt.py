"""Turns a chat into text that a small base model completes well.

Gemma 3 270M as shipped is a *base* model: it has no chat format and continues whatever it is given. What works, found
by trying some hundred questions: "Question: ... Answer:" with a page of short examples before a first question; the
bare conversation for a follow-up (examples make it forget what was said, and so do answers in whole sentences); and
examples of small talk alone for a greeting, a thank-you or "who are you". The agent's system text and tools are left
out: the model cannot follow them, and leaving them out takes the first answer from four seconds to under one.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PROMPT_BYTES = 2_400
"""Budget of the older turns. A token is never shorter than a byte, so this many tokens are never exceeded."""
MESSAGE_BYTES = 2_600
"""The longest question the model is asked; a longer one is an error of the caller."""
ANSWER_CHARS = 400
"""Of an older answer only this much is repeated."""
STOPS = ("\nQuestion:", "\nAnswer:", "\n\n")

Turn = tuple[str, str]

_FACTS: tuple[Turn, ...] = (
    ("What is the chemical symbol for iron?", "Fe."),
    ("Name three animals", "Cat, horse and elephant."),
    ("What is 9 - 5?", "9 - 5 = 4."),
    ("How many months are in a year?", "12."),
    ("Who was Albert Einstein?", "A physicist who developed the theory of relativity."),
    ("Translate 'good night' to Spanish", "Buenas noches."),
    ("What is 2 times 6?", "2 times 6 = 12."),
    ("Is ice warm?", "No, ice is cold."),
    ("What is a volcano?", "An opening in the ground from which hot lava and gas come out."),
    ("What is the opposite of big?", "Small."),
    ("Tell me a joke", "Why did the chicken cross the road? To get to the other side!"),
    ("When did World War I end?", "In 1918."),
    ("Is fire hot?", "Yes, fire is hot."),
    ("How many days are in a week?", "7."),
    ("What is the largest planet?", "Jupiter."),
    ("How do you say 'dog' in French?", "Chien."),
    ("What is 4 + 3?", "4 + 3 = 7."),
    ("Who wrote Hamlet?", "William Shakespeare."),
    ("What is the capital of Spain?", "Madrid."),
)
_SMALL_TALK: tuple[Turn, ...] = (
    ("Goodbye", "Goodbye!"),
    ("What can you do?", "I can answer short questions. I am a small model, so please check my answers."),
    ("What is your name?", "My name is Gemma."),
    ("Who are you?", "I am Gemma, a small language model that runs on this computer."),
    ("How are you?", "I am fine, thank you. What would you like to know?"),
    ("Hello", "Hello! What would you like to know?"),
    ("Thanks", "You're welcome!"),
)
_CHINESE: tuple[Turn, ...] = (
    ("你好", "你好！你想知道什么？"),
    ("早上好", "早上好！你想知道什么？"),
    ("谢谢", "不客气！"),
    ("再见", "再见！"),
    ("你能做什么？", "我可以回答简短的问题。我是一个小模型，请核对我的回答。"),
    ("你是谁？", "我是 Gemma，一个在这台电脑上运行的小型语言模型。"),
    ("你叫什么名字？", "我叫 Gemma。"),
    ("日本的首都是哪里？", "东京。"),
    ("三加四等于几？", "三加四等于七。"),
    ("世界上最大的海洋是什么？", "太平洋。"),
    ("一年有几个月？", "十二个月。"),
    ("一周有几天？", "七天。"),
    ("“狗”用英语怎么说？", "Dog。"),
    ("谁写了《红楼梦》？", "曹雪芹。"),
    ("草是什么颜色？", "绿色。"),
    ("火山是什么？", "地面上喷出岩浆和气体的开口。"),
    ("西班牙的首都是哪里？", "马德里。"),
)

_IS_SMALL_TALK = re.compile(
    r"((hi|hello|hey|hallo|hiya|greetings|good (morning|afternoon|evening|night|day)|howdy|yo)( there| gemma| all)?"
    r"|how are you( doing)?( today)?|what'?s up|how do you do|nice to meet you"
    r"|thanks?( you)?( (so|very) much| a lot)?|thx|cheers|(good ?)?bye|see you( later| soon)?"
    r"|who are you|what are you|what'?s your name|what is your name|what can you do|what do you do|help"
    r"|are you (a|an) (ai|robot|bot|human|person)"
    r"|你好|您好|嗨|大家好|早上好|上午好|下午好|晚上好|晚安|你好吗|谢谢你?|多谢|再见|拜拜"
    r"|你是谁|你叫什么(名字)?|你能做什么|你会做什么)",
)
_GREETING_BEFORE = re.compile(
    r"^(hi|hello|hey)( there| gemma| all)?[ ,!.]+(?=\w)(?!(there|gemma|all)\b)", re.IGNORECASE
)
_CJK = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")
_WRITTEN_BY_THE_AGENT = (
    "[System:",
    "[Your active task list",
    "[IMPORTANT: Background process",
    "[CONTEXT COMPACTION",
)


@dataclass(frozen=True)
class Prompts:
    """What to complete, and what to try instead when that gives nothing."""

    first: str
    otherwise: str


class MessageTooLongError(ValueError):
    """The last message does not fit."""


def prompts_for(messages: Sequence[Mapping[str, Any]]) -> Prompts:
    """Return the text to complete for a chat in OpenAI format.

    Older turns are left out when they do not fit. Raises `MessageTooLongError` when the last message alone does not,
    and ValueError when nobody asked anything.
    """
    turns, question = _conversation(messages)
    if not question:
        raise ValueError("the request has no message of a user")
    if len(question.encode()) > MESSAGE_BYTES:
        raise MessageTooLongError(f"the message is longer than {MESSAGE_BYTES} bytes")
    examples = _page(_examples_for(question), question)
    if not turns or is_small_talk(question):
        return Prompts(examples, examples)
    return Prompts(_page(_newest_that_fit(turns), question), examples)


def _examples_for(question: str) -> tuple[Turn, ...]:
    if _CJK.search(question):
        return _CHINESE
    return _SMALL_TALK if is_small_talk(question) else _FACTS


def is_small_talk(text: str) -> bool:
    """Tell whether the message is a greeting, a thank-you, a goodbye or a question about the model itself."""
    plain = re.sub(r"[\s!.,?;:~！。，？、…]+", " ", text.lower()).strip()
    rest = _GREETING_BEFORE.sub("", plain)
    return any(_IS_SMALL_TALK.fullmatch(candidate.strip()) for candidate in (plain, rest))


def _conversation(messages: Sequence[Mapping[str, Any]]) -> tuple[list[Turn], str]:
    """Return the answered questions, oldest first and without small talk, and the open question."""
    turns: list[Turn] = []
    question = ""
    for message in messages:
        text = _folded(message.get("content"))
        match message.get("role"):
            case "user" if text and not text.startswith(_WRITTEN_BY_THE_AGENT):
                question = f"{question} {text}".strip()
            case "assistant" if text and question and not message.get("tool_calls"):
                if not is_small_talk(question):
                    turns.append((question, text[:ANSWER_CHARS]))
                question = ""
            case _:
                pass
    return turns, _GREETING_BEFORE.sub("", question)


def _folded(content: object) -> str:
    """Return the text of a message on one line: an empty line would end the answer."""
    if isinstance(content, list):
        content = " ".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    return " ".join(str(content or "").split())


def _newest_that_fit(turns: Sequence[Turn]) -> list[Turn]:
    """Return the newest turns within the budget.

    Half of the budget is freed at once when it is used up, so that the beginning stays the same over many turns and
    the model's cache of it keeps its worth.
    """
    kept: list[Turn] = []
    used = 0
    for turn in turns:
        kept.append(turn)
        used += _size(turn)
        if used > PROMPT_BYTES:
            while kept and used > PROMPT_BYTES // 2:
                used -= _size(kept.pop(0))
    return kept


def _size(turn: Turn) -> int:
    return sum(len(text.encode()) for text in turn) + len("Question: \nAnswer: \n\n")


def _page(turns: Sequence[Turn], question: str) -> str:
    lines = [f"Question: {asked}\nAnswer: {answered}\n\n" for asked, answered in turns]
    return "".join(lines) + f"Question: {question}\nAnswer:"


def warm_up_prompts() -> list[str]:
    """Return the texts whose beginnings the model should have read before the first question comes."""
    return [_page(_FACTS, "")]
