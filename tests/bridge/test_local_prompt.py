"""What the local model is given to complete."""

from typing import Any

import pytest

from chat_core.bridge.model_servers.local_prompt import (
    ANSWER_CHARS,
    MESSAGE_BYTES,
    PROMPT_BYTES,
    MessageTooLongError,
    is_small_talk,
    prompts_for,
)


def chat(*texts: str) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    turns = [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]
    return [{"role": "system", "content": "You are an agent with many tools."}, *turns]


def test_a_first_question_comes_after_examples() -> None:
    prompt = prompts_for(chat("What is the capital of France?")).first
    assert prompt.endswith("\n\nQuestion: What is the capital of France?\nAnswer:")
    assert "Madrid." in prompt
    assert "many tools" not in prompt


def test_a_follow_up_comes_after_the_conversation_alone() -> None:
    prompts = prompts_for(chat("What is the capital of France?", "Paris.", "And of Italy?"))
    assert prompts.first == (
        "Question: What is the capital of France?\nAnswer: Paris.\n\nQuestion: And of Italy?\nAnswer:"
    )
    assert "Madrid." in prompts.otherwise


def test_a_chinese_question_comes_after_chinese_examples() -> None:
    prompt = prompts_for(chat("法国的首都是哪里？")).first
    assert "马德里" in prompt
    assert "Madrid" not in prompt


@pytest.mark.parametrize(
    "text",
    [
        "Hello",
        "hi there, how are you?",
        "Good morning!",
        "Thanks a lot!",
        "Who are you?",
        "what's up?",
        "bye",
        "你好！",
    ],
)
def test_small_talk_is_recognised(text: str) -> None:
    assert is_small_talk(text)


@pytest.mark.parametrize(
    "text", ["What is the capital of France?", "Hi, what is 2 + 2?", "Who are the Beatles?", "法国"]
)
def test_a_question_is_not_small_talk(text: str) -> None:
    assert not is_small_talk(text)


def test_small_talk_is_neither_remembered_nor_mixed_with_the_conversation() -> None:
    after_hello = prompts_for(chat("Hello", "Hello!", "What is the capital of France?")).first
    thanks = prompts_for(chat("What is the capital of France?", "Paris.", "Thanks!")).first
    assert "Question: What is the capital of France?" in after_hello
    assert "Hello!" not in after_hello
    assert "Paris" not in thanks


def test_a_greeting_before_a_question_is_left_out() -> None:
    assert prompts_for(chat("Hi, what is 2 + 2?")).first.endswith("Question: what is 2 + 2?\nAnswer:")


def test_older_turns_are_left_out_when_they_do_not_fit() -> None:
    turns = [text for number in range(100) for text in (f"Question number {number}?", "word " * 100)]
    prompt = prompts_for(chat(*turns, "And now?")).first
    assert len(prompt.encode()) < PROMPT_BYTES + MESSAGE_BYTES
    assert "number 99?" in prompt
    assert "number 0?" not in prompt


def test_the_beginning_of_a_long_conversation_stays_the_same_for_many_turns() -> None:
    turns = [text for number in range(60) for text in (f"Question number {number}?", "word " * 10)]
    beginnings = {prompts_for(chat(*turns[: 2 * count], "And now?")).first[:60] for count in range(40, 60)}
    assert len(beginnings) <= 3


def test_long_answers_are_shortened_and_empty_lines_folded() -> None:
    prompt = prompts_for(chat("Tell me", "one\n\ntwo " + "x" * 5_000, "More?")).first
    assert "one two" in prompt
    assert "x" * (ANSWER_CHARS + 1) not in prompt


def test_a_message_that_does_not_fit_is_refused() -> None:
    with pytest.raises(MessageTooLongError):
        prompts_for(chat("x" * (MESSAGE_BYTES + 1)))


def test_commentary_tool_results_and_notes_of_the_agent_are_left_out() -> None:
    messages = [
        *chat("What is in the folder?"),
        {"role": "assistant", "content": "Let me look.", "tool_calls": [{"id": "1"}]},
        {"role": "tool", "tool_call_id": "1", "content": "secret.txt"},
        {"role": "user", "content": "[System: Your previous response was cut off by a network error]"},
        {"role": "assistant", "content": "One file."},
        {"role": "user", "content": [{"type": "text", "text": "Which one?"}]},
    ]
    assert prompts_for(messages).first == (
        "Question: What is in the folder?\nAnswer: One file.\n\nQuestion: Which one?\nAnswer:"
    )


def test_a_request_without_a_question_is_refused() -> None:
    with pytest.raises(ValueError, match="no message of a user"):
        prompts_for([{"role": "system", "content": "hello"}])
