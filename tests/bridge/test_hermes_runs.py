"""The real agent in the real Bridge: what it does becomes the right events, and every branch its own context."""

import json
from typing import Any

from tests.bridge.conftest import SUMMARY
from tests.support.real_bridge import RealBridge
from tests.support.scripted_model import Reply, Usage, call, say, think

TODOS = [{"id": "1", "content": "read", "status": "in_progress"}, {"id": "2", "content": "write", "status": "pending"}]


def roles(messages: list[dict[str, Any]]) -> list[str]:
    return [message["role"] for message in messages]


# --- answers and tools ---


def test_thinking_answer_and_usage_arrive_and_the_turn_holds_the_question(bridge: RealBridge) -> None:
    run = bridge.ask("hello", Reply(think("Let me see."), say("Hello there, friend.")))

    final = run.end()

    assert run.kinds == ["thinking", "answer", "usage", "final"]
    assert "".join(data["text"] for data in run.all("thinking")) == "Let me see."
    assert "".join(data["text"] for data in run.all("answer")) == final.data["text"] == "Hello there, friend."
    assert final.data["model"] == "scripted"
    assert final.data["context"]["base"] is False
    assert [(message["role"], message["content"]) for message in run.context] == [
        ("user", "hello"),
        ("assistant", "Hello there, friend."),
    ]


def test_thinking_inside_the_text_is_told_apart_from_it(bridge: RealBridge) -> None:
    run = bridge.ask("hello", Reply(say("<think>secret plan</think>The answer.")))

    assert run.text == "The answer."
    assert "".join(data["text"] for data in run.all("answer")) == "The answer."
    assert "secret plan" in "".join(data["text"] for data in run.all("thinking"))


def test_todo_list_and_remarks_before_tools(bridge: RealBridge) -> None:
    run = bridge.ask("plan", Reply(say("Let me plan."), call("todo", {"todos": TODOS})), Reply(say("Planned.")))

    assert run.text == "Planned."
    assert run.kinds == ["answer", "answer_break", "tool_call", "tool_result", "todo_update", "answer", "usage",
                         "final"]  # fmt: skip
    called, result = run.all("tool_call")[0], run.results[0]
    assert called["name"] == result["name"] == "todo"
    assert called["args"] == {"todos": TODOS}
    assert called["call_id"] == result["call_id"]
    assert result["is_error"] is False
    assert [(todo["content"], todo["status"]) for todo in run.all("todo_update")[0]["todos"]] == [
        ("read", "in_progress"), ("write", "pending")
    ]  # fmt: skip
    assert run.all("answer")[-1]["text"].startswith("Planned")


def test_calls_of_unknown_tools_and_broken_arguments_are_visible_as_errors(bridge: RealBridge) -> None:
    run = bridge.ask(
        "do",
        Reply(call("nope_tool", {"a": 1})),
        Reply(call("todo", "{broken")),
        Reply(call("todo", {})),
        Reply(say("Done.")),
    )

    assert run.text == "Done."
    calls, results = run.all("tool_call"), run.results
    assert [entry["call_id"] for entry in calls] == [entry["call_id"] for entry in results]
    assert calls[0]["name"] == "nope_tool"
    assert calls[0]["args"] == {"a": 1}
    assert results[0]["is_error"] is True
    assert "does not exist" in results[0]["result"]
    assert results[-1]["is_error"] is False


def test_the_tool_tools_errors_are_marked(bridge: RealBridge) -> None:
    run = bridge.ask("read", Reply(call("read_file", {"path": "no-such-file.txt"})), Reply(say("There is none.")))

    run.end()

    assert run.results[0]["is_error"] is True


def test_a_clarify_question_waits_and_its_answer_reaches_the_model(bridge: RealBridge) -> None:
    run = bridge.ask(
        "colour?", Reply(call("clarify", {"question": "Which?", "choices": ["red", "blue"]})), Reply(say("Blue it is."))
    )

    question = run.answer("blue")

    assert question.data["question"] == "Which?"
    assert question.data["choices"] == ["red", "blue"]
    assert run.text == "Blue it is."
    assert '"user_response": "blue"' in bridge.model.requests[1].tool_results("clarify")[0]


def test_the_usage_of_a_run_is_its_own(bridge: RealBridge) -> None:
    first = bridge.ask("one", Reply(say("1"), usage=Usage(100, 20, 10, 5)), session="usage")
    first.end()
    second = bridge.ask("two", Reply(say("2"), usage=Usage(130, 7)), session="usage")

    assert first.all("usage")[0]["output_tokens"] == 20
    assert second.all("usage")[0]["output_tokens"] == 7
    assert second.all("usage")[0]["context_tokens"] == 130


def test_a_turn_makes_no_calls_of_its_own_to_the_model(bridge: RealBridge) -> None:
    context: list[list[dict[str, Any]]] = []
    for number in range(12):
        run = bridge.ask(f"turn {number}", Reply(say("ok")), session="quiet", contexts=context)
        assert run.text == "ok"
        context.append(run.context)

    assert len(bridge.model.requests) == 12
    assert all(request.is_streamed for request in bridge.model.requests)


# --- what the agent remembers ---


def test_the_model_gets_exactly_the_branch_and_no_keys_of_ours(bridge: RealBridge) -> None:
    turn = [{"role": "user", "content": "my name is Ada", "our_key": "x", "_private": 1},
            {"role": "assistant", "content": "Hi Ada", "our_key": "y"}]  # fmt: skip
    bridge.ask("left over", Reply(say("from another branch")), session="branch").end()

    bridge.ask("who am I?", Reply(say("Ada")), session="branch", contexts=[turn]).end()

    sent = [message for message in bridge.model.requests[-1].messages if message["role"] != "system"]
    assert [(message["role"], message["content"]) for message in sent] == [
        ("user", "my name is Ada"), ("assistant", "Hi Ada"), ("user", "who am I?")
    ]  # fmt: skip
    assert "our_key" not in json.dumps(bridge.model.requests[-1].body)
    assert "_private" not in json.dumps(bridge.model.requests[-1].body)


def test_tool_calls_of_earlier_turns_are_sent_again_with_their_results(bridge: RealBridge) -> None:
    first = bridge.ask("plan", Reply(call("todo", {"todos": TODOS})), Reply(say("Planned.")), session="tools")
    assert roles(first.context) == ["user", "assistant", "tool", "assistant"]

    bridge.ask("next", Reply(say("ok")), session="tools-on-another-bridge", contexts=[first.context]).end()

    sent = bridge.model.requests[-1].messages
    assert roles(sent)[1:] == ["user", "assistant", "tool", "assistant", "user"]
    assert "read" in bridge.model.requests[-1].tool_results("todo")[0]


def test_the_todo_list_of_another_branch_is_forgotten(bridge: RealBridge) -> None:
    bridge.ask("plan", Reply(call("todo", {"todos": TODOS})), Reply(say("ok")), session="todo").end()

    other = bridge.ask("look", Reply(call("todo", {})), Reply(say("empty")), session="todo")

    assert json.loads(other.all("tool_result")[0]["result"])["todos"] == []


def test_a_file_read_on_another_branch_is_read_again(bridge: RealBridge) -> None:
    read = Reply(call("read_file", {"path": "note.txt"}))
    folder = bridge.data / "work" / "files"
    folder.mkdir(parents=True)
    (folder / "note.txt").write_text("the content of the note\n")
    bridge.ask("read", read, Reply(say("ok")), session="files").end()

    again = bridge.ask("read", read, Reply(say("ok")), session="files")

    assert "the content of the note" in again.all("tool_result")[0]["result"]


def test_a_question_after_an_unanswered_one_keeps_both_in_the_turn(bridge: RealBridge) -> None:
    unanswered = [{"role": "user", "content": "first question"}]

    run = bridge.ask("second question", Reply(say("Both answered.")), contexts=[unanswered])

    assert run.context[0]["role"] == "user"
    assert run.context[0]["content"].endswith("second question")
    assert run.context[-1] == {"role": "assistant", "content": "Both answered."}
    sent = "\n".join(str(message["content"]) for message in bridge.model.requests[0].messages)
    assert "first question" in sent


def test_a_condensed_context_replaces_everything_before_it_and_stays_condensed(bridge: RealBridge) -> None:
    turns = [
        [{"role": "user", "content": f"count {number}"}, {"role": "assistant", "content": f"{number} word " * 900}]
        for number in range(30)
    ]
    run = bridge.ask("go on", Reply(say("Gone on.")), session="long", contexts=turns, model="small")

    final = run.end()

    compacted = run.all("context_compacted")
    assert len(compacted) == 1
    assert SUMMARY in compacted[0]["summary"]
    assert compacted[0]["condensed"] > 10
    assert final.data["context"]["base"] is True
    assert SUMMARY in json.dumps(run.context)
    assert run.context[-1]["content"] == "Gone on."
    assert len(json.dumps(run.context)) < len(json.dumps(turns))

    requests = len(bridge.model.requests)
    later = bridge.ask("and?", Reply(say("More.")), session="long", contexts=[run.context], model="small")
    assert later.text == "More."
    assert later.end().data["context"]["base"] is False
    assert len(bridge.model.requests) == requests + 1


# --- choices ---


def test_a_chosen_skill_reaches_the_model_in_that_run_only(bridge: RealBridge) -> None:
    bridge.ask("notes please", Reply(say("ok")), session="skill", skill_folder="meeting-notes").end()
    bridge.ask("and now", Reply(say("ok")), session="skill").end()

    with_skill, without = (request.system_text for request in bridge.model.requests)
    assert "A thing is a decision only if somebody agreed to it." in with_skill
    assert "A thing is a decision only if somebody agreed to it." not in without


def test_an_unknown_skill_is_an_error_that_names_it(bridge: RealBridge) -> None:
    error = bridge.ask("x", skill_folder="no-such-skill").end()

    assert error.kind == "error"
    assert error.data["code"] == "unknown_skill"
    assert "no-such-skill" in error.data["message"]


def test_the_shipped_skills_and_the_models_can_be_chosen(bridge: RealBridge) -> None:
    skills = {skill.folder: skill for skill in bridge.client.skills()}
    models = bridge.client.models()

    assert {"meeting-notes", "explain-simply", "compare-options", "debug-plan"} <= set(skills)
    assert all(skill.description for skill in skills.values())
    assert [model.id for model in models][:2] == ["scripted", "small"]
    assert [model.id for model in models if model.is_default] == ["scripted"]
    assert {"tour"} <= {model.id for model in models}


def test_a_model_without_tools_gets_none_and_a_small_prompt(bridge: RealBridge) -> None:
    bridge.client.write_memory("user", "The user likes marzipan.")

    assert bridge.ask("hi", Reply(say("hi")), model="plain").text == "hi"

    request = bridge.model.requests[0]
    assert request.tool_names == []
    assert "marzipan" not in request.system_text
    assert len(request.system_text) < 4000


def test_the_number_of_steps_is_bounded(bridge: RealBridge) -> None:
    run = bridge.ask("loop", *[Reply(call("todo", {})) for _ in range(3)], max_iterations=2)

    assert run.text == SUMMARY  # asked for without streaming, once the steps are used up
    assert len(bridge.model.requests) == 3
    assert len(run.all("tool_call")) == 2


# --- memory ---


def test_written_memory_is_in_the_prompt_of_a_session_that_is_already_known(bridge: RealBridge) -> None:
    bridge.ask("hi", Reply(say("hi")), session="memory").end()

    written = bridge.client.write_memory("user", "The user plays the oboe.")
    bridge.ask("hi", Reply(say("hi")), session="memory").end()

    assert written == bridge.client.memory("user")
    assert written.used == len("The user plays the oboe.")
    assert "oboe" not in bridge.model.requests[0].system_text
    assert "oboe" in bridge.model.requests[1].system_text


def test_what_the_agent_remembers_in_one_session_is_known_in_the_next_run_of_another(bridge: RealBridge) -> None:
    bridge.ask("hi", Reply(say("hi")), session="other").end()
    remember = call("memory", {"action": "add", "target": "memory", "content": "The project is called Kestrel."})
    bridge.ask("remember", Reply(remember), Reply(say("ok")), session="writer").end()

    bridge.ask("hi", Reply(say("hi")), session="other").end()

    assert "Kestrel" in bridge.client.memory("memory").text
    assert "Kestrel" in bridge.model.requests[-1].system_text
