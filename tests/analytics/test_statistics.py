"""Each chart over a handful of calls whose right answer can be worked out on paper."""

from dataclasses import replace
from datetime import timedelta

import pytest

from chat_core.analytics.analytics import Analytics
from chat_core.analytics.behind import Narrowing
from chat_core.analytics.catalog import CHARTS
from chat_core.analytics.filters import Filters
from chat_core.analytics.intervals import wilson
from chat_core.errors import InvalidInput, NotFound
from chat_core.models import LOCAL_USER, User
from tests.analytics.conftest import NOW, Read
from tests.analytics.recorder import START, Recorder


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    # Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_the_wilson_interval_equals_published_values(successes: int, trials: int, low: float, high: float) -> None:
    assert wilson(successes, trials) == pytest.approx((low, high), abs=6e-5)


def test_the_wilson_interval_of_no_trials_is_unknown() -> None:
    assert wilson(0, 0) is None


def test_the_scorecard_counts_rates_and_percentiles(recorder: Recorder, read: Read) -> None:
    session = recorder.session()
    run = recorder.run(session)
    for ms in (100, 200, 300, 400):
        run.call("terminal", {"ms": ms}, ms=ms, error=ms == 400, result="x" * ms)
    run.call("terminal", finished=False)
    run.end("STOPPED")
    [row] = read("scorecard")
    assert (row["calls"], row["finished"], row["errors"], row["sessions"]) == (5, 4, 1, 1)
    assert row["error_rate"] == 0.25
    assert (row["error_rate_low"], row["error_rate_high"]) == pytest.approx(wilson(1, 4))
    assert (row["p50_ms"], row["p95_ms"], row["p99_ms"]) == pytest.approx((250, 385, 397))
    assert (row["tool_ms"], row["lost_ms"], row["result_bytes"]) == (1000, 400, 1000)


def test_the_scorecard_begins_with_the_tool_that_lost_most_time(recorder: Recorder, read: Read) -> None:
    run = recorder.run(recorder.session())
    run.call("good", ms=9_000)
    run.call("failing", ms=500, error=True)
    for _ in range(3):
        run.call("looping", ms=400)
    run.end()
    assert [(row["tool"], row["lost_ms"]) for row in read("scorecard")] == [
        ("looping", 800),
        ("failing", 500),
        ("good", 0),
    ]


def test_polling_tools_lose_no_time_by_repeating(recorder: Recorder, read: Read, everything: Filters) -> None:
    run = recorder.run(recorder.session())
    for _ in range(5):
        run.call("process", ms=100)
    run.end()
    assert read("scorecard")[0]["lost_ms"] == 0
    assert read("loops") == []
    assert read("scorecard", replace(everything, polling=()))[0]["lost_ms"] == 400
    assert len(read("loops", replace(everything, polling=("other",)))) == 1


def test_running_calls_are_in_no_rate(recorder: Recorder, read: Read) -> None:
    run = recorder.run(recorder.session(), status="RUNNING")
    run.call("terminal", finished=False)
    [row] = read("scorecard")
    assert (row["calls"], row["finished"], row["error_rate"], row["p50_ms"]) == (1, 0, None, None)
    assert read("cards")[0]["error_rate"] is None


def test_the_cards_compare_with_the_period_before(recorder: Recorder, read: Read, everything: Filters) -> None:
    session = recorder.session()
    for days_ago, calls in ((0, 3), (8, 2), (16, 1)):
        run = recorder.run(session, at=START - timedelta(days=days_ago))
        for _ in range(calls):
            run.call("terminal", ms=10)
        run.end()
    now, before = read("cards", replace(everything, range="7d"))
    assert (now["period"], now["calls"], before["period"], before["calls"]) == ("now", 3, "before", 2)


def test_a_rolling_window_reaches_back_by_hours(recorder: Recorder, read: Read, everything: Filters) -> None:
    session = recorder.session()
    for hours_ago in (23, 25):
        recorder.run(session, at=NOW - timedelta(hours=hours_ago)).call("terminal")
    assert read("cards", replace(everything, range="24h"))[0]["calls"] == 1


def test_waiting_for_people_is_counted_apart_from_tool_time(recorder: Recorder, read: Read) -> None:
    run = recorder.run(recorder.session())
    run.call("terminal", finished=False, call_id="a")
    run.question("approval", wait_ms=5_000)
    run.wait(300)
    run.result("terminal", "a", 5_300)
    run.end()
    row = read("cards")[0]
    assert (row["tool_ms"], row["waiting_ms"]) == (300, 5_000)
    [model] = read("models")
    assert model["run_ms"] == 300


def test_latency_bins_hold_every_finished_call_once(recorder: Recorder, read: Read) -> None:
    run = recorder.run(recorder.session())
    for ms in (0, 1, 9, 10, 99, 100, 1_000, 12_345):
        run.call("terminal", ms=ms)
    run.end()
    bins = read("latency_distribution")
    assert sum(row["calls"] for row in bins) == 8
    assert all(row["from_ms"] < row["to_ms"] for row in bins)
    edges = {round(row["from_ms"], 6): row["calls"] for row in bins}
    assert (edges[0], edges[10], edges[100], edges[1000]) == (1, 1, 1, 1)


def test_sequences_give_probability_and_lift(recorder: Recorder, read: Read) -> None:
    run = recorder.run(recorder.session())
    for tool in ("a", "b", "a", "b", "a", "c"):
        run.call(tool)
    run.end()
    rows = {(row["tool"], row["next_tool"]): row for row in read("sequences")}
    assert rows[("a", "b")]["probability"] == pytest.approx(2 / 3)
    # b follows 2 of 5 times whatever came before.
    assert rows[("a", "b")]["lift"] == pytest.approx((2 / 3) / (2 / 5))
    assert rows[("b", "a")]["probability"] == 1


def test_the_steps_end_in_the_outcome_of_the_run(recorder: Recorder, read: Read) -> None:
    for status, tools in (("SUCCESS", "ab"), ("FAILED", "a"), ("SUCCESS", "aaaaaa")):
        run = recorder.run(recorder.session())
        for tool in tools:
            run.call(tool, {"n": run.at.isoformat()})
        run.end(status)
    links = {(row["step"], row["source"], row["target"]): row["runs"] for row in read("steps")}
    assert links[(1, "a", "b")] == 1
    assert links[(2, "b", "SUCCESS")] == 1
    assert links[(1, "a", "FAILED")] == 1
    assert links[(5, "a", "more")] == 1
    assert max(step for step, _, _ in links) == 5


def test_what_happens_after_an_error_is_sorted_into_reactions(recorder: Recorder, read: Read) -> None:
    def failing_then(*calls: tuple[str, str, bool]) -> None:
        run = recorder.run(recorder.session())
        run.call("terminal", {"command": "x"}, error=True)
        for tool, command, error in calls:
            run.call(tool, {"command": command}, error=error)
        run.end("SUCCESS" if calls else "FAILED")

    failing_then(("terminal", "x", False))
    failing_then(("terminal", "y", False))
    failing_then(("read_file", "x", False))
    failing_then()
    undecided = recorder.run(recorder.session(), status="RUNNING")
    undecided.call("terminal", error=True)
    rows = {row["reaction"]: row for row in read("after_error")}
    assert {name: row["errors"] for name, row in rows.items()} == {
        "same_call": 1,
        "same_tool": 1,
        "other_tool": 1,
        "gave_up": 1,
    }
    assert rows["same_call"]["next_ok"] == 1
    assert rows["gave_up"]["next_ok"] is None
    assert rows["gave_up"]["run_ok"] == 0
    assert sum(row["share"] for row in rows.values()) == pytest.approx(1)


def test_a_loop_tells_what_it_burnt(recorder: Recorder, read: Read) -> None:
    run = recorder.run(recorder.session(title="In circles"))
    for _ in range(4):
        run.call("terminal", {"command": "x"}, ms=50)
    run.usage(300, 100)
    run.end()
    [loop] = read("loops")
    assert (loop["loop_kind"], loop["tools"], loop["length"], loop["calls_again"]) == ("repeat", "terminal", 4, 3)
    assert (loop["burnt_ms"], loop["burnt_tokens"], loop["title"]) == (150, 300, "In circles")
    assert read("loops_by_tool")[0]["loops"] == 1


def test_people_are_asked_answered_and_left_alone(recorder: Recorder, read: Read) -> None:
    run = recorder.run(recorder.session())
    run.question("approval", wait_ms=1_000)
    run.question("approval", wait_ms=3_000, answer="deny")
    run.question("approval", wait_ms=500, status="CLOSED")
    run.end()
    waiting = recorder.run(recorder.session(), status="WAITING")
    waiting.question("clarify", wait_ms=None)
    approval, clarify = read("people")
    assert (approval["asked"], approval["answered"], approval["closed"], approval["denied"]) == (3, 2, 1, 1)
    assert approval["p50_answer_ms"] == 2_000
    assert (clarify["asked"], clarify["open"], clarify["p50_answer_ms"], clarify["waiting_ms"]) == (1, 1, None, 0)


def test_models_are_compared_with_intervals(recorder: Recorder, read: Read) -> None:
    for model, status, calls in (("a", "SUCCESS", 2), ("a", "FAILED", 4), ("b", "SUCCESS", 0), ("b", "RUNNING", 1)):
        run = recorder.run(recorder.session(), model=model, status=status)
        for number in range(calls):
            run.call("terminal", {"n": number}, error=number == 0)
        if status != "RUNNING":
            run.end(status)
    first, second = read("models")
    assert (first["value"], first["runs"], first["calls_per_run"], first["success"]) == ("a", 2, 3, 0.5)
    assert (first["errors"], first["finished_calls"]) == (2, 6)
    assert (first["success_low"], first["success_high"]) == pytest.approx(wilson(1, 2))
    assert (second["value"], second["runs"], second["ended"], second["success"]) == ("b", 2, 1, 1)


def test_the_slowest_and_the_largest_call_come_first_with_their_message(recorder: Recorder, read: Read) -> None:
    run = recorder.run(recorder.session(title="Heavy"))
    run.call("slow", {"why": "patience"}, ms=9_000)
    run.call("large", ms=5, result="x" * 5_000)
    run.end()
    slowest, largest = read("slowest")[0], read("largest")[0]
    assert (slowest["tool"], slowest["arguments"], slowest["title"]) == ("slow", '{"why": "patience"}', "Heavy")
    assert (largest["tool"], largest["result_bytes"]) == ("large", 5_000)
    [uuid] = [row["message_uuid"] for row in recorder.sql("SELECT * FROM chat_message WHERE id = ?", run.message_id)]
    assert slowest["message_uuid"] == uuid


def test_a_large_result_counts_with_its_whole_size(recorder: Recorder, read: Read) -> None:
    run = recorder.run(recorder.session())
    run.entry("tool_call", tool_name="big", call_id="a", content="{}")
    run.entry(
        "tool_result", tool_name="big", call_id="a", content="the start", meta={"result_ref": "r", "bytes": 900_000}
    )
    run.end()
    assert read("largest")[0]["result_bytes"] == 900_000


def test_a_day_outside_its_band_is_noticed_with_its_first_session(
    recorder: Recorder, read: Read, everything: Filters
) -> None:
    for days_ago in range(10, -1, -1):
        session = recorder.session(title=f"{days_ago} days ago")
        run = recorder.run(session, at=START - timedelta(days=days_ago))
        for number in range(20):
            slow = 20 if days_ago == 2 else 1
            run.call("web_search", {"n": number}, ms=(100 + number) * slow)
        run.end()
    notices = read("change_notice", replace(everything, range="30d"))
    assert [(row["day"], row["measure"], row["direction"], row["title"]) for row in notices] == [
        ((START - timedelta(days=2)).date(), "p50_ms", "above", "2 days ago")
    ]
    assert notices[0]["band_high"] < notices[0]["value"]
    assert notices[0]["usual"] == pytest.approx(109.5, rel=0.01)


def test_few_calls_are_no_news(recorder: Recorder, read: Read, everything: Filters) -> None:
    for days_ago in range(10, -1, -1):
        run = recorder.run(recorder.session(), at=START - timedelta(days=days_ago))
        for number in range(3):
            run.call("web_search", {"n": number}, error=days_ago == 0, ms=100 if days_ago else 9_000)
    assert read("change_notice", replace(everything, range="30d")) == []


def test_only_active_branches_count_unless_all_are_wanted(recorder: Recorder, read: Read, everything: Filters) -> None:
    session = recorder.session()
    question = recorder.user_message(session)
    recorder.run(session, question, active=False).call("first")
    recorder.run(session, question, order=1).call("again")
    assert [row["tool"] for row in read("scorecard", replace(everything, branches="active"))] == ["again"]
    assert {row["tool"] for row in read("scorecard")} == {"first", "again"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"tools": ("read_file",)}, 1),
        ({"models": ("model-b",)}, 2),
        ({"skills": ("",)}, 2),
        ({"skills": ("review",)}, 2),
        ({"runtimes": ("other",)}, 0),
        ({"outcomes": ("error",)}, 1),
        ({"outcomes": ("error", "ok")}, 4),
        ({"tools": ("terminal",), "models": ("model-a",)}, 2),
    ],
)
def test_filters_restrict_the_calls(
    recorder: Recorder, read: Read, everything: Filters, change: dict[str, tuple[str, ...]], expected: int
) -> None:
    first = recorder.run(recorder.session())
    first.call("terminal", {"n": 1})
    first.call("terminal", {"n": 2}, error=True)
    second = recorder.run(recorder.session(), model="model-b", skill="review")
    second.call("terminal")
    second.call("read_file")
    assert sum(row["calls"] for row in read("scorecard", replace(everything, **change))) == expected


def test_nobody_sees_another_owners_numbers(recorder: Recorder, analytics: Analytics, everything: Filters) -> None:
    mine, hers = recorder.session(), recorder.session(owner="she")
    recorder.run(mine).call("my_tool")
    run = recorder.run(hers)
    for _ in range(4):
        run.call("her_tool", ms=50_000)
    run.question("approval", wait_ms=10)
    run.end()
    analytics.sync(LOCAL_USER, NOW)
    for name in CHARTS:
        chart = analytics.chart(LOCAL_USER, name, everything, NOW)
        assert "her_tool" not in str(chart.table.to_pylist()), name
    assert analytics.choices(LOCAL_USER, everything, NOW).tools == ["my_tool"]
    assert analytics.choices(User("she"), everything, NOW).tools == ["her_tool"]
    [uuid] = [row["session_uuid"] for row in recorder.sql("SELECT * FROM chat_session WHERE id = ?", hers)]
    assert analytics.sessions_behind(LOCAL_USER, everything, Narrowing(), NOW).num_rows == 1
    one_session = replace(everything, session=uuid)
    assert analytics.chart(LOCAL_USER, "scorecard", one_session, NOW).table.num_rows == 0
    assert analytics.session_title(LOCAL_USER, uuid) is None


def test_the_footer_says_what_was_counted_and_what_was_not(
    recorder: Recorder, analytics: Analytics, everything: Filters
) -> None:
    session = recorder.session()
    question = recorder.user_message(session)
    other = recorder.run(session, question, active=False)
    other.call("terminal")
    run = recorder.run(session, question, order=1, status="RUNNING")
    run.call("terminal", ms=10)
    run.result("terminal", "nothing", 5)
    run.call("terminal", finished=False)
    analytics.sync(LOCAL_USER, NOW)
    footer = analytics.chart(LOCAL_USER, "scorecard", replace(everything, branches="active"), NOW).footer
    assert footer.counted == 2
    assert footer.left_out == {"running": 1, "other_branch": 1, "orphan": 1}
    assert footer.zone == "UTC"
    assert footer.synced_at == NOW
    assert footer.last_log_id == recorder.sql("SELECT MAX(id) FROM chat_message_log")[0][0]


def test_every_number_leads_to_its_sessions(recorder: Recorder, analytics: Analytics, everything: Filters) -> None:
    failing, calm = recorder.session(title="failing"), recorder.session(title="calm")
    run = recorder.run(failing)
    run.call("terminal", {"n": 1}, error=True)
    run.call("terminal", {"n": 2}, error=True)
    recorder.run(calm).call("terminal")
    analytics.sync(LOCAL_USER, NOW)
    rows = analytics.sessions_behind(
        LOCAL_USER, everything, Narrowing("call", {"tool": "terminal", "outcome": "error"}), NOW
    ).to_pylist()
    assert [(row["title"], row["rows"], row["errors"], row["total_rows"]) for row in rows] == [("failing", 2, 2, 2)]
    assert rows[0]["session_uuid"]
    assert rows[0]["message_uuid"]


@pytest.mark.parametrize(
    "narrowing",
    [
        Narrowing("call", {"tool": "terminal", "next_tool": "terminal"}),
        Narrowing("call", {"reaction": "same_tool"}),
        Narrowing("call", {"weekday": "2", "hour": "9"}),
        Narrowing("call", {"since": "2026-03-10T00:00:00", "until": "2026-03-11T00:00:00"}),
        Narrowing("call", {"lost": "yes", "looped": "no", "finished": "yes", "timed": "yes", "min_ms": "1"}),
        Narrowing("run", {"link": "1:terminal>terminal", "status": "SUCCESS", "model": "model-a"}),
    ],
)
def test_narrowings_survive_the_url_and_find_the_session(
    recorder: Recorder, analytics: Analytics, everything: Filters, narrowing: Narrowing
) -> None:
    run = recorder.run(recorder.session())
    run.call("terminal", {"n": 1}, error=True)
    run.call("terminal", {"n": 2})
    run.end()
    analytics.sync(LOCAL_USER, NOW)
    again = Narrowing.from_text(narrowing.to_text())
    assert again == narrowing
    assert analytics.sessions_behind(LOCAL_USER, everything, again, NOW).num_rows == 1


def test_a_value_with_separators_survives_the_url() -> None:
    narrowing = Narrowing("call", {"tool": "a;b=c%3D"})
    assert Narrowing.from_text(narrowing.to_text()) == narrowing


@pytest.mark.parametrize("text", ["", "table", "call;tool", "call;owner=she", "call;1=1", "run;tool=x"])
def test_what_is_no_narrowing_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        Narrowing.from_text(text)


@pytest.mark.parametrize("value", ["x", "1; DROP TABLE call", ""])
def test_a_narrowing_by_no_number_is_refused(
    recorder: Recorder, analytics: Analytics, everything: Filters, value: str
) -> None:
    analytics.sync(LOCAL_USER, NOW)
    with pytest.raises(InvalidInput):
        analytics.sessions_behind(LOCAL_USER, everything, Narrowing("call", {"hour": value}), NOW)


def test_an_unknown_chart_is_not_found(recorder: Recorder, analytics: Analytics, everything: Filters) -> None:
    with pytest.raises(NotFound, match="There is no chart 'pie'"):
        analytics.chart(LOCAL_USER, "pie", everything, NOW)


@pytest.mark.parametrize("name", list(CHARTS))
def test_every_chart_of_nothing_is_a_table_without_rows(recorder: Recorder, read: Read, name: str) -> None:
    rows = read(name)
    assert rows == [] or name == "cards"
