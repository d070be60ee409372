"""The two models that are there without a key, with the real agent: the small local one and the guided tour."""

from pathlib import Path

from tests.support.real_bridge import RealBridge
from tests.support.scripted_model import ScriptedModel


def test_the_guided_tour_shows_every_kind_of_event_with_real_tools(bridge: RealBridge) -> None:
    run = bridge.ask("Show me around", model="tour", session="tour")
    choice = run.wait_for("clarify_request").data["choices"][0]
    run.answer(choice)
    approval = run.wait_for("approval_request")
    scratch = bridge.data / "work" / "tour" / "tour-scratch"
    assert scratch.exists(), "nothing is deleted before it is allowed"
    run.answer("once", count=2)

    text = run.text

    assert approval.data["command"].startswith("rm -rf")
    assert not scratch.exists()
    assert {"thinking", "answer", "answer_break", "tool_call", "tool_result", "todo_update", "usage"} <= set(run.kinds)
    assert {"todo", "skills_list", "skill_view", "memory", "terminal", "clarify"} <= {
        call["name"] for call in run.all("tool_call")
    }
    assert not [result for result in run.results if result["is_error"]]
    assert {todo["status"] for todo in run.all("todo_update")[-1]["todos"]} == {"completed"}
    assert choice in text
    assert "|---" in text
    assert "```" in text


def test_a_denied_deletion_of_the_tour_leaves_the_folder_and_ends_well(bridge: RealBridge) -> None:
    run = bridge.ask("Show me around", model="tour", session="tour-denied")
    run.answer("As for a beginner")
    run.wait_for("approval_request")
    run.answer("deny", count=2)

    assert run.end().kind == "final"
    assert (bridge.data / "work" / "tour-denied" / "tour-scratch").exists()


def test_the_local_model_answers_and_knows_the_turn_before(tmp_path: Path) -> None:
    with ScriptedModel() as unused:
        bridge = RealBridge(tmp_path, unused, {"PARLEY_MODEL_TIMEOUT_SECONDS": "60"}).start()
        try:
            first = bridge.ask("What is the capital of France?")
            assert first.end(90).kind == "final", first.end().data
            second = bridge.ask("And of Italy?", contexts=[first.context])

            assert first.end().data["model"] == "local"
            assert "Paris" in first.text
            assert "Rome" in second.text
            assert "".join(data["text"] for data in first.all("answer")).strip() == first.text
        finally:
            assert bridge.close() == 0
