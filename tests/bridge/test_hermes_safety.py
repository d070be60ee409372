"""Nothing dangerous runs unasked, sessions do not see each other, and a stop stops."""

import re
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.support.real_bridge import MODEL_KEY, PYTHON, ROOT, TOKEN, LiveRun, RealBridge
from tests.support.scripted_model import Reply, call, hold, say, think

STOP_SECONDS = 2.0


def folder_of(bridge: RealBridge, session: str) -> Path:
    folder = bridge.data / "work" / session
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def delete(name: str) -> Reply:
    return Reply(call("terminal", {"command": f"rm -rf {name}"}))


def shell(command: str) -> Reply:
    return Reply(call("terminal", {"command": command}))


# --- approvals ---


def test_a_denied_command_does_not_run(bridge: RealBridge) -> None:
    precious = folder_of(bridge, "deny") / "precious"
    precious.mkdir()

    run = bridge.ask("clean", delete("precious"), Reply(say("I did not.")), session="deny")
    question = run.answer("deny")

    assert run.text == "I did not."
    assert precious.exists()
    assert question.data["command"] == "rm -rf precious"
    assert question.data["choices"] == ["once", "session", "deny"]
    assert question.data["description"]
    assert "BLOCKED" in run.results[0]["result"]
    assert run.results[0]["is_error"] is True


def test_an_approval_for_once_is_for_one_command(bridge: RealBridge) -> None:
    folder = folder_of(bridge, "once")
    (folder / "a").mkdir()
    (folder / "b").mkdir()

    run = bridge.ask("clean", delete("a"), delete("b"), Reply(say("done")), session="once")
    run.answer("once")
    run.answer("deny", count=2)

    assert run.text == "done"
    assert not (folder / "a").exists()
    assert (folder / "b").exists()


def test_an_approval_for_the_session_lasts_until_the_session_is_forgotten(bridge: RealBridge) -> None:
    script = [delete("a"), Reply(say("done"))]
    first = bridge.ask("clean", *script, session="grant")
    first.answer("session")
    assert first.text == "done"

    second = bridge.ask("clean", *script, session="grant")
    assert second.text == "done"
    assert second.all("approval_request") == []

    foreign = bridge.ask("clean", *script, session="grant-of-somebody-else")
    foreign.answer("deny")
    assert foreign.text == "done"

    bridge.client.forget("grant")
    asked_again = bridge.ask("clean", *script, session="grant")
    asked_again.answer("deny")
    assert asked_again.text == "done"


GUARDS = """
    import threading
    from chat_core.bridge.runtimes.hermes.approvals import approvals_bound
    from chat_core.bridge.runtimes.hermes.engine import load_engine, prepare_environment
    from chat_core.bridge.settings import read_settings
    import os, pathlib, sys

    settings = read_settings({"PARLEY_BRIDGE_TOKEN": "t", "PARLEY_DATA_DIR": sys.argv[1]})
    prepare_environment(settings)
    engine = load_engine()

    class Control:
        stop_requested = False
        def __init__(self, answer): self.answer = answer
        def ask(self, *args, **data):
            if self.answer is ValueError: raise ValueError("broken")
            return self.answer

    def approved(answer):
        with approvals_bound(engine, Control(answer), "session-1", sys.argv[1], lambda: None):
            return engine.approval.check_all_command_guards("rm -rf scratch", "local")["approved"]

    for answer in (ValueError, None, "deny", "always", "", "nonsense"):
        assert approved(answer) is False, answer
    assert approved("once") is True

    unbound = []
    thread = threading.Thread(target=lambda: unbound.append(
        engine.approval.check_all_command_guards("rm -rf scratch", "local")["approved"]))
    thread.start(); thread.join()
    assert unbound == [False], unbound
    print("guarded")
"""


def test_only_a_clear_yes_is_a_yes_and_outside_of_a_session_everything_is_a_no(tmp_path: Path) -> None:
    assert PYTHON.exists()

    done = subprocess.run(
        [PYTHON, "-c", textwrap.dedent(GUARDS), str(tmp_path)],
        cwd=ROOT, env={"HERMES_YOLO_MODE": "1", "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.stdout.strip().endswith("guarded"), done.stderr[-2000:]


# --- sessions apart ---


def test_shells_of_two_sessions_share_neither_folder_nor_variables(bridge: RealBridge) -> None:
    bridge.ask("a", shell("export FOO=from-a; pwd > where; echo $FOO"), Reply(say("ok")), session="shell-a").end()
    other = bridge.ask("b", shell("pwd; echo [$FOO]; ls; echo $HERMES_SESSION_ID"), Reply(say("ok")), session="shell-b")

    result = other.all("tool_result")[0]["result"]

    assert str(folder_of(bridge, "shell-b")) in result
    assert "[]" in result
    assert "where" not in result
    assert "shell-a" not in result
    assert (folder_of(bridge, "shell-a") / "where").read_text().strip() == str(folder_of(bridge, "shell-a"))


def test_the_agents_shell_has_no_secrets_of_ours(bridge: RealBridge) -> None:
    run = bridge.ask("env", shell("env"), Reply(say("ok")))

    shown = run.all("tool_result")[0]["result"]

    assert "PATH=" in shown
    for secret in (TOKEN, MODEL_KEY, "sk-inherited", "PARLEY_", "OPENAI_"):
        assert secret not in shown


def test_runs_of_many_sessions_at_once_are_not_mixed(bridge: RealBridge) -> None:
    bridge.model.script(choose=lambda request: Reply(say(f"answer to {request.last_user_text} " * 40, 7, 0.002)))
    runs = [bridge.ask(f"question-{number}", session=f"mix-{number}") for number in range(4)]

    for number, run in enumerate(runs):
        assert set(re.findall(r"question-(\d)", run.text)) == {str(number)}
        assert run.text.strip() == "".join(data["text"] for data in run.all("answer")).strip()


# --- stop ---


def assert_stopped(run: LiveRun, text: str = "") -> None:
    final = run.end()
    assert final.kind == "final"
    assert final.data["interrupted"] is True
    assert final.data["text"].strip() == text
    assert "interrupted" not in final.data["text"].lower()
    calls = [event.data["call_id"] for event in run.events if event.kind == "tool_call"]
    results = [event.data["call_id"] for event in run.events if event.kind == "tool_result"]
    assert calls == results, "a call has no end"


def assert_next_run_works(bridge: RealBridge, session: str) -> None:
    assert bridge.ask("again", Reply(say("Here I am.")), session=session).text == "Here I am."


@pytest.mark.parametrize("first", [think("Hm, "), say("First half, ")], ids=["thinking", "answering"])
def test_stop_while_the_model_speaks_keeps_what_it_said(bridge: RealBridge, first: object) -> None:
    gate = bridge.model.gate()
    run = bridge.ask("x", Reply(first, hold(gate), say("never")), session="stop")  # type: ignore[arg-type]
    kind = "thinking" if first == think("Hm, ") else "answer"
    run.wait_for(kind)

    assert run.stop() < STOP_SECONDS
    assert_stopped(run, "" if kind == "thinking" else "First half,")
    assert_next_run_works(bridge, "stop")


def test_stop_before_the_first_word_closes_the_call(bridge: RealBridge) -> None:
    gate = bridge.model.gate()
    run = bridge.ask("x", Reply(hold(gate), say("never")), session="stop-early")
    gate.wait_until_reached()

    assert run.stop() < STOP_SECONDS
    assert_stopped(run)
    assert_next_run_works(bridge, "stop-early")


def test_stop_in_a_running_tool_ends_the_tool(bridge: RealBridge) -> None:
    run = bridge.ask("x", shell("touch started; sleep 30; touch finished"), session="stop-tool")
    run.wait_for("tool_call")

    run.stop()

    assert_stopped(run)
    assert "interrupted" in run.results[0]["result"].lower()
    assert not (folder_of(bridge, "stop-tool") / "finished").exists()
    assert_next_run_works(bridge, "stop-tool")


def test_stop_while_a_question_waits_closes_it(bridge: RealBridge) -> None:
    run = bridge.ask("x", Reply(call("clarify", {"question": "Which?", "choices": ["a"]})), session="stop-question")
    run.wait_for("clarify_request")

    assert run.stop() < STOP_SECONDS
    assert_stopped(run)
    assert_next_run_works(bridge, "stop-question")


def test_stop_while_an_approval_waits_denies_it(bridge: RealBridge) -> None:
    precious = folder_of(bridge, "stop-approval") / "precious"
    precious.mkdir(exist_ok=True)
    run = bridge.ask("x", delete("precious"), session="stop-approval")
    run.wait_for("approval_request")

    assert run.stop() < STOP_SECONDS
    assert_stopped(run)
    assert precious.exists()
    assert_next_run_works(bridge, "stop-approval")


def test_stop_while_a_silent_endpoint_is_asked_is_immediate(bridge: RealBridge) -> None:
    run = bridge.ask("x", model="silent")

    assert run.stop() < STOP_SECONDS
    assert_stopped(run)


def test_a_run_after_a_stop_in_its_session_waits_for_the_agent(bridge: RealBridge) -> None:
    gate = bridge.model.gate()
    stopped = bridge.ask("x", Reply(say("one "), hold(gate)), Reply(say("Second.")), session="turns")
    stopped.wait_for("answer")
    second = bridge.ask("y", session="turns")

    stopped.stop()

    assert second.text == "Second."
