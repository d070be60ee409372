"""What goes into a run of hermes-agent and what comes out as the turn's context."""

from typing import Any

from chat_core.bridge.protocol import RunRequest
from chat_core.bridge.runtimes.hermes.transcript import context_of, history_of


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def agent(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def asked(message: str, *turns: list[dict[str, Any]]) -> RunRequest:
    return RunRequest(run_id="r", agent_session="s", message=message, contexts=list(turns))


CALL = {"id": "c1", "type": "function", "function": {"name": "todo", "arguments": "{}"}}


def test_history_is_a_copy_with_known_keys_and_roles_only() -> None:
    turn = [user("a") | {"ours": 1}, agent("b", tool_calls=[CALL | {"index": 0}], _private=2), {"role": "system"}]

    history = history_of(asked("next", turn))
    history[1]["tool_calls"][0]["id"] = "changed"

    assert history == [user("a"), agent("b", tool_calls=[CALL | {"id": "changed"}])]
    assert turn[1]["tool_calls"][0]["id"] == "c1"


def test_a_turn_begins_with_its_question_and_holds_everything_after_it() -> None:
    request = asked("two", [user("one"), agent("1")])
    result = [user("one"), agent("1"), user("two"), agent("", tool_calls=[CALL]),
              {"role": "tool", "content": "ok", "tool_call_id": "c1", "tool_name": "todo"}, agent("2")]  # fmt: skip

    context = context_of(request, history_of(request), result, compacted=False)

    assert context["base"] is False
    assert [message["role"] for message in context["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert "tool_name" not in context["messages"][2]


def test_the_same_question_asked_before_is_not_taken_for_this_one() -> None:
    request = asked("again", [user("again"), agent("1")])

    context = context_of(request, history_of(request), [user("again"), agent("1"), user("again"), agent("2")], False)

    assert context["messages"] == [user("again"), agent("2")]


def test_a_question_joined_to_an_unanswered_one_stands_alone_in_its_turn() -> None:
    request = asked("two", [user("one")])

    context = context_of(request, history_of(request), [user("one\n\ntwo"), agent("12")], False)

    assert context["messages"] == [user("two"), agent("12")]


def test_a_history_that_was_mended_on_the_way_does_not_shift_the_turn() -> None:
    request = asked("two", [user("one"), agent("", tool_calls=[CALL])])
    mended = [user("one"), agent("", tool_calls=[CALL]),
              {"role": "tool", "content": "[no result]", "tool_call_id": "c1"}, user("two"), agent("2")]  # fmt: skip

    assert context_of(request, history_of(request), mended, False)["messages"] == [user("two"), agent("2")]


def test_without_messages_the_turn_is_the_question() -> None:
    assert context_of(asked("q"), [], None, False) == {"base": False, "messages": [user("q")]}


def test_after_a_compaction_the_whole_context_is_the_base() -> None:
    request = asked("two", [user("one"), agent("1")])
    whole = [user("summary of before"), user("two"), agent("2")]

    assert context_of(request, history_of(request), whole, True) == {"base": True, "messages": whole}
