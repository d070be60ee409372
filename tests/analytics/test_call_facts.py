"""What one call is: pairing, outcome, duration, and its place in the run."""

from tests.analytics.conftest import Facts
from tests.analytics.recorder import Recorder

CALLS = 'SELECT * FROM "call" ORDER BY log_id'


def test_a_call_and_its_result_are_one_row(recorder: Recorder, facts: Facts) -> None:
    run = recorder.run(recorder.session())
    run.call("terminal", {"command": "ls"}, ms=250, result="äöü")
    run.end()
    [call] = facts(CALLS)
    assert (call["tool"], call["outcome"], call["duration_ms"], call["step"]) == ("terminal", "ok", 250, 1)
    assert call["result_bytes"] == 6
    assert call["args_preview"] == '{"command": "ls"}'
    assert (call["model_id"], call["runtime"], call["run_id"]) == ("model-a", "hermes", run.run_id)


def test_a_call_of_a_run_at_work_is_running_and_of_an_ended_one_cut(recorder: Recorder, facts: Facts) -> None:
    at_work = recorder.run(recorder.session(), status="RUNNING")
    at_work.call("terminal", finished=False)
    stopped = recorder.run(recorder.session())
    stopped.call("terminal", finished=False)
    stopped.end("STOPPED")
    calls = facts(CALLS)
    assert [call["outcome"] for call in calls] == ["running", "cut"]
    assert [call["duration_ms"] for call in calls] == [None, None]


def test_parallel_calls_find_their_own_results(recorder: Recorder, facts: Facts) -> None:
    run = recorder.run(recorder.session())
    for key in ("a", "b"):
        run.call("read_file", {"path": key}, finished=False, call_id=key)
    run.result("read_file", "b", 20, error=True)
    run.result("read_file", "a", 70)
    run.end()
    assert [(call["args_preview"], call["outcome"], call["duration_ms"]) for call in facts(CALLS)] == [
        ('{"path": "a"}', "ok", 70),
        ('{"path": "b"}', "error", 20),
    ]


def test_a_call_id_used_again_belongs_to_the_nearest_call_before(recorder: Recorder, facts: Facts) -> None:
    run = recorder.run(recorder.session())
    run.call("read_file", finished=False, call_id="call_0")
    run.call("read_file", ms=30, call_id="call_0")
    run.end()
    assert [(call["outcome"], call["duration_ms"]) for call in facts(CALLS)] == [("cut", None), ("ok", 30)]


def test_without_call_ids_the_nth_result_of_a_tool_belongs_to_its_nth_call(recorder: Recorder, facts: Facts) -> None:
    run = recorder.run(recorder.session())
    run.call("read_file", finished=False, call_id="")
    run.call("read_file", finished=False, call_id="")
    run.result("read_file", "", 11)
    run.result("read_file", "", 22)
    run.end()
    assert [call["duration_ms"] for call in facts(CALLS)] == [11, 22]


def test_a_result_after_a_break_does_not_belong_to_a_call_before_it(recorder: Recorder, facts: Facts) -> None:
    run = recorder.run(recorder.session())
    run.call("terminal", finished=False, call_id="call_0")
    run.end("INTERRUPTED")
    run.entry("run_started", meta={"run_id": "run-continued"})
    run.call("terminal", ms=40, call_id="call_0")
    run.entry("run_finished", meta={"run_id": "run-continued"})
    calls = facts(CALLS)
    assert [(call["run_id"], call["outcome"], call["step"]) for call in calls] == [
        (run.run_id, "cut", 1),
        ("run-continued", "ok", 1),
    ]


def test_a_result_without_its_call_is_left_out_and_counted_as_orphan(recorder: Recorder, facts: Facts) -> None:
    run = recorder.run(recorder.session())
    run.result("terminal", "lost", 5)
    run.end()
    assert facts(CALLS) == []
    assert [row["reason"] for row in facts('SELECT * FROM "left_out"')] == ["orphan"]


def test_a_row_whose_time_cannot_be_read_is_left_out_as_unreadable(recorder: Recorder, facts: Facts) -> None:
    run = recorder.run(recorder.session())
    run.call("terminal", ms=10)
    run.end()
    recorder.sql("UPDATE chat_message_log SET created_at = 'once upon a time' WHERE kind = 'tool_call'")
    assert facts(CALLS) == []
    assert [row["reason"] for row in facts('SELECT * FROM "left_out"')] == ["unreadable"]


def test_waiting_for_an_approval_is_not_tool_time(recorder: Recorder, facts: Facts) -> None:
    run = recorder.run(recorder.session())
    run.call("terminal", finished=False, call_id="a")
    run.wait(100)
    run.question("approval", wait_ms=60_000)
    run.wait(900)
    run.result("terminal", "a", 61_000)
    run.end()
    [call] = facts(CALLS)
    assert (call["duration_ms"], call["wait_ms"]) == (1_000, 60_000)


def test_a_tool_that_tells_its_time_without_the_wait_is_believed(recorder: Recorder, facts: Facts) -> None:
    run = recorder.run(recorder.session())
    run.call("terminal", finished=False, call_id="a")
    run.question("approval", wait_ms=60_000)
    run.wait(900)
    run.result("terminal", "a", 880)
    run.end()
    assert facts(CALLS)[0]["duration_ms"] == 880


def test_a_parallel_call_that_did_not_wait_keeps_its_time(recorder: Recorder, facts: Facts) -> None:
    run = recorder.run(recorder.session())
    run.call("terminal", finished=False, call_id="asks")
    run.call("web_search", finished=False, call_id="works")
    run.question("approval", wait_ms=None)
    run.wait(2_000)
    run.result("web_search", "works", 2_000)
    run.wait(8_000)
    recorder.sql(
        "UPDATE run_question SET status = 'ANSWERED', answer = 'once', answered_at = ?",
        f"{run.at:%Y-%m-%dT%H:%M:%S.000Z}",
    )
    run.wait(500)
    run.result("terminal", "asks", 10_500)
    run.end()
    assert {call["tool"]: call["duration_ms"] for call in facts(CALLS)} == {"terminal": 500, "web_search": 2_000}


def test_equal_arguments_are_equal_whatever_the_order_of_their_keys(recorder: Recorder, facts: Facts) -> None:
    run = recorder.run(recorder.session())
    for text in ('{"a": 1, "b": {"x": 1, "y": 2}}', '{"b":{"y":2,"x":1},"a":1}', '{"a": 2, "b": {"x": 1, "y": 2}}'):
        run.call("terminal", text)
    run.end()
    first, second, third = facts(CALLS)
    assert first["args_hash"] == second["args_hash"] != third["args_hash"]
    assert first["next_same_arguments"] is True
    assert second["next_same_arguments"] is False


def test_arguments_that_are_not_json_are_compared_as_text(recorder: Recorder, facts: Facts) -> None:
    run = recorder.run(recorder.session())
    run.call("terminal", "{broken")
    run.call("terminal", "{broken")
    run.end()
    calls = facts(CALLS)
    assert [call["args_parsed"] for call in calls] == [False, False]
    assert calls[0]["next_same_arguments"] is True


def test_secrets_in_arguments_do_not_reach_the_preview(recorder: Recorder, facts: Facts) -> None:
    run = recorder.run(recorder.session())
    run.call("fetch_page", '{"url": "https://example.org", "api_key": "MARKER-1", "Authorization": "Bearer MARKER-2')
    run.end()
    [call] = facts(CALLS)
    assert "MARKER" not in call["args_preview"]
    assert "https://example.org" in call["args_preview"]


def test_three_equal_calls_are_a_loop_and_two_are_not(recorder: Recorder, facts: Facts) -> None:
    run = recorder.run(recorder.session())
    for command in ("a", "a", "b", "c", "c", "c"):
        run.call("terminal", {"command": command})
    run.end()
    calls = facts(CALLS)
    assert [call["loop_kind"] for call in calls] == ["", "", "", "repeat", "repeat", "repeat"]
    assert [call["in_loop_again"] for call in calls] == [False, False, False, False, True, True]
    assert {call["loop_length"] for call in calls if call["loop_kind"]} == {3}


def test_two_calls_in_turn_are_a_loop_from_the_second_round_on(recorder: Recorder, facts: Facts) -> None:
    run = recorder.run(recorder.session())
    for tool in ("todo", "terminal", "read_file", "terminal", "read_file", "write_file"):
        run.call(tool)
    run.end()
    calls = facts(CALLS)
    assert [call["loop_kind"] for call in calls] == ["", "", "", "alternate", "alternate", ""]
    assert {call["loop_length"] for call in calls if call["loop_kind"]} == {4}
    assert calls[3]["loop_tools"] == ["read_file", "terminal"]


def test_a_b_a_alone_is_no_loop(recorder: Recorder, facts: Facts) -> None:
    run = recorder.run(recorder.session())
    for tool in ("terminal", "read_file", "terminal"):
        run.call(tool)
    run.end()
    assert [call["loop_kind"] for call in facts(CALLS)] == ["", "", ""]


def test_a_log_without_run_rows_is_read_as_well(recorder: Recorder, facts: Facts) -> None:
    run = recorder.run(recorder.session())
    run.call("terminal", ms=10)
    run.call("terminal", finished=False)
    run.end("FAILED")
    recorder.sql("DELETE FROM run")
    assert [(call["outcome"], call["run_status"]) for call in facts(CALLS)] == [("ok", "FAILED"), ("cut", "FAILED")]
