"""The guided tour: what it does at each step, and with the real agent in conversations of several turns."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from chat_core.bridge.model_servers.tour import routes
from chat_core.bridge.model_servers.tour_script import Message, Reply, ToolCall, next_reply
from tests.support.real_bridge import LiveRun, RealBridge

RUN_SECONDS = 25


def play(
    question: str,
    answer: str = "With an example",
    deletion: dict[str, Any] | None = None,
    before: list[Message] | None = None,
) -> tuple[Reply, list[Message]]:
    """Play the tour with made-up tool results; return its last reply and all messages."""
    messages = [*(before or []), {"role": "user", "content": question}]
    for number in range(30):
        reply = next_reply(messages)
        if not reply.calls:
            return reply, messages
        ids = [f"call_{len(messages)}_{number}_{index}" for index in range(len(reply.calls))]
        calls = [
            {"id": call_id, "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}
            for call_id, call in zip(ids, reply.calls, strict=True)
        ]
        messages.append({"role": "assistant", "content": reply.text, "tool_calls": calls})
        for call_id, call in zip(ids, reply.calls, strict=True):
            result = made_up_result(call, answer, deletion or {"exit_code": 0, "error": None})
            messages.append({"role": "tool", "tool_call_id": call_id, "content": json.dumps(result)})
    raise AssertionError("the tour does not end")


def made_up_result(call: ToolCall, answer: str, deletion: dict[str, Any]) -> dict[str, Any]:
    match call.name:
        case "clarify":
            return {"user_response": answer}
        case "skills_list":
            return {"skills": [{"name": "explain-simply"}]}
        case "terminal":
            return deletion if "rm -r" in call.arguments["command"] else {"exit_code": 0}
        case _:
            return {"success": True}


def test_the_first_words_and_the_report_say_that_the_words_are_scripted() -> None:
    assert "scripted" in next_reply([{"role": "user", "content": "hi"}]).text.splitlines()[0]
    assert "scripted" in play("hi")[0].text.splitlines()[0]


def test_the_users_text_is_taken_up_as_text_not_as_markup() -> None:
    intro = next_reply([{"role": "user", "content": "**bold** <b>x</b> {curly} | $5"}]).text
    assert r"\*\*bold\*\* \<b\>x\</b\> \{curly\} \| \$5" in intro


def test_the_report_follows_the_choice() -> None:
    reports = {
        choice: play("hi", choice)[0].text for choice in ("Short and factual", "With an example", "As for a beginner")
    }
    assert all(choice in report and "|---" in report and "```bash" in report for choice, report in reports.items())
    assert "An example." in reports["With an example"]
    assert "In plain words." in reports["As for a beginner"]
    assert len(reports["Short and factual"]) < min(len(reports["With an example"]), len(reports["As for a beginner"]))


def test_a_free_text_answer_is_repeated_and_not_claimed_to_be_followed() -> None:
    report = play("hi", "As a *poem*, please")[0].text
    assert r"As a \*poem\*, please" in report
    assert "cannot follow" in report


@pytest.mark.parametrize(
    ("deletion", "words", "last_todo"),
    [
        ({"exit_code": 0, "error": None}, "It is deleted", "completed"),
        (
            {"exit_code": -1, "error": "BLOCKED: Command denied by user.", "status": "blocked"},
            "still there",
            "cancelled",
        ),
        ({"exit_code": 1, "error": "rm: cannot remove"}, "did not succeed", "cancelled"),
    ],
)
def test_the_report_says_honestly_what_became_of_the_folder(
    deletion: dict[str, Any], words: str, last_todo: str
) -> None:
    report, messages = play("hi", deletion=deletion)
    todos = [
        json.loads(call["function"]["arguments"])["todos"]
        for message in messages
        for call in message.get("tool_calls", [])
        if call["function"]["name"] == "todo"
    ]
    assert words in report.text
    assert todos[-1][-1]["status"] == last_todo


def test_a_chinese_message_is_answered_in_chinese() -> None:
    report, _ = play("带我看看", "带一个例子")
    assert "脚本" in report.text.splitlines()[0]
    assert "一个例子" in report.text


def test_every_message_of_the_user_starts_the_tour_anew() -> None:
    _, messages = play("hi")
    reply = next_reply([*messages, {"role": "assistant", "content": "done"}, {"role": "user", "content": "once more"}])
    assert "once more" in reply.text
    assert [call.name for call in reply.calls] == ["todo"]


def test_a_note_of_the_agent_does_not_start_the_tour_anew() -> None:
    _, messages = play("hi")
    note = {"role": "user", "content": "[System: Your previous response was truncated]"}
    assert "What you have just seen" in next_reply([*messages, note]).text


def test_only_the_key_opens_the_tour() -> None:
    async def statuses() -> list[int]:
        transport = httpx.ASGITransport(Starlette(routes=routes("right-key", 0.0)))
        async with httpx.AsyncClient(transport=transport, base_url="http://tour") as client:
            keys = ("wrong-key", "right-key")
            headers = [{"Authorization": f"Bearer {key}"} for key in keys]
            return [(await client.get("/tour/v1/models", headers=header)).status_code for header in headers]

    assert asyncio.run(statuses()) == [401, 200]


# -- with the real agent -----------------------------------------------------------------------------------------


def take_tour(run: LiveRun, answer: str, decision: str) -> str:
    run.wait_for("clarify_request")
    run.answer(answer)
    run.wait_for("approval_request")
    run.answer(decision, count=2)
    assert run.end(RUN_SECONDS).kind == "final", run.end().data
    return run.text


def test_with_the_real_agent_a_free_text_answer_and_a_denial_come_back_in_the_report(bridge: RealBridge) -> None:
    report = take_tour(bridge.ask("Show me", model="tour", session="tour-free"), "like a letter", "deny")
    assert "like a letter" in report
    assert "still there" in report
    assert (bridge.data / "work" / "tour-free" / "tour-scratch" / "note.txt").exists()


def test_with_the_real_agent_the_tour_works_as_second_turn_and_after_a_stop(bridge: RealBridge) -> None:
    first = bridge.ask("Show me", model="tour", session="tour-turns")
    take_tour(first, "Short and factual", "once")
    stopped = bridge.ask("Again", model="tour", session="tour-turns", contexts=[first.context])
    stopped.wait_for("clarify_request")
    stopped.stop()
    third = bridge.ask("Once more", model="tour", session="tour-turns", contexts=[first.context, stopped.context])
    report = take_tour(third, "With an example", "once")
    assert "It is deleted" in report
    calls = [call["call_id"] for run in (first, stopped, third) for call in run.all("tool_call")]
    assert len(calls) == len(set(calls))
    assert {todo["status"] for todo in third.all("todo_update")[-1]["todos"]} == {"completed"}


def test_a_second_turn_does_not_report_calls_of_the_turn_before(bridge: RealBridge) -> None:
    first = bridge.ask("Show me", model="tour", session="tour-twice")
    take_tour(first, "Short and factual", "once")
    second = bridge.ask("Again", model="tour", session="tour-twice", contexts=[first.context])
    second.wait_for("tool_call")
    second.stop()
    assert second.kinds[0] == "thinking"
    assert not [result for result in second.results if result["is_error"]]


def test_tours_in_two_sessions_at_once_do_not_mix(bridge: RealBridge) -> None:
    runs = [bridge.ask(f"Tour {name}", model="tour", session=f"tour-{name}") for name in ("left", "right")]
    for run in runs:
        run.wait_for("clarify_request")
    for run, answer in zip(runs, ("to the left", "to the right"), strict=True):
        run.answer(answer)
    for run in runs:
        run.wait_for("approval_request")
        run.answer("once", count=2)
    assert "to the left" in runs[0].text
    assert "to the right" in runs[1].text


def test_the_tour_leaves_no_note_in_the_agents_memory(bridge: RealBridge) -> None:
    take_tour(bridge.ask("Show me", model="tour", session="tour-memory"), "Short and factual", "once")
    memory = bridge.data / "hermes" / "memories" / "MEMORY.md"
    assert "tour" not in (memory.read_text("utf-8") if memory.exists() else "").lower()
