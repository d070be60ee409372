"""Each way in which a model can fail: the right code, a plain sentence, and the next run works."""

import re

import pytest

from tests.support.real_bridge import MODEL_KEY, LiveRun, RealBridge
from tests.support.scripted_model import (
    Answer,
    Refusal,
    Reply,
    call_cut_inside,
    context_too_long,
    cut,
    hang,
    no_such_model,
    rate_limited,
    say,
    send_headers,
    server_error,
    think,
    wrong_key,
)

TODO = call_cut_inside("todo", {"todos": [{"id": "1", "content": "read", "status": "pending"}]})


def assert_failed(run: LiveRun, code: str, sentence: str) -> None:
    error = run.end()
    assert error.kind == "error", run.kinds
    assert error.data["code"] == code
    assert sentence in error.data["message"]
    assert "Traceback" not in error.data["message"]
    assert error.data["context"]["messages"][0] == {"role": "user", "content": "question"}


FAILURES: dict[str, tuple[list[Answer], str, str]] = {
    "wrong key": ([wrong_key()], "model_auth", "refused the key"),
    "forbidden": ([Refusal(403, "no access")], "model_auth", "HTTP 403"),
    "no such model": ([no_such_model()], "model_not_found", "not found"),
    "bad request": ([Refusal(400, f"temperature is wrong, {MODEL_KEY}")], "model_bad_request", "temperature is wrong"),
    "rate limit": ([rate_limited()] * 2, "model_rate_limit", "too many requests"),
    "server error": ([server_error()] * 2, "model_server_error", "HTTP 500"),
    "context too long": ([context_too_long()], "context_too_long", "longer than Scripted can take"),
    "empty answers": ([Reply()] * 4, "model_no_answer", "only empty answers"),
    "thoughts only": ([Reply(think("hm"))] * 6, "model_no_answer", "only empty answers"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failing_model_is_told_in_a_plain_sentence(bridge: RealBridge, name: str) -> None:
    answers, code, sentence = FAILURES[name]

    run = bridge.ask("question", *answers)

    assert_failed(run, code, sentence)
    assert "Scripted" in run.end().data["message"]
    assert all(MODEL_KEY not in str(event.data) for event in run.events)


def test_retries_are_told_while_they_happen_and_only_once(bridge: RealBridge) -> None:
    run = bridge.ask("question", server_error(), Reply(say("Now it works.")))
    status = run.wait_for("status")

    assert run.text == "Now it works."
    assert status.data["code"] == "retry"
    assert "Retrying" in status.data["text"]
    told = [event.data["text"] for event in run.events if event.kind == "status"]
    assert len(told) == len(set(told))


def test_a_stream_cut_in_the_text_goes_on_by_itself(bridge: RealBridge) -> None:
    run = bridge.ask("question", Reply(say("Part one"), cut()), Reply(say(" and two.")))

    assert run.text == "Part one and two."
    assert "".join(data["text"] for data in run.all("answer")) == "Part one and two."


def test_a_stream_cut_before_the_first_word_is_asked_again(bridge: RealBridge) -> None:
    run = bridge.ask("question", Reply(send_headers(), cut()), Reply(say("Here.")))

    assert run.text == "Here."


def test_a_stream_cut_inside_a_tool_call_leaves_no_remark_in_the_answer(bridge: RealBridge) -> None:
    run = bridge.ask("question", *[Reply(say("Let me. "), TODO)] * 3, Reply(say("Here is the rest.")))

    assert run.text.endswith("Here is the rest.")
    shown = run.text + "".join(data["text"] for data in run.all("answer"))
    assert not re.search(r"⚠|stalled|dropped|reconnecting", shown)
    assert any("mid tool-call" in event.data["text"] for event in run.events if event.kind == "status")


def test_an_answer_cut_at_its_length_is_continued(bridge: RealBridge) -> None:
    run = bridge.ask("question", Reply(say("Part one"), finish_reason="length"), Reply(say(" and two.")))

    assert run.text == "Part one and two."


@pytest.mark.parametrize("reply", [Reply(hang()), Reply(say("Begun "), hang())], ids=["at once", "in the middle"])
def test_a_model_that_falls_silent_is_given_up_in_bounded_time(bridge: RealBridge, reply: Reply) -> None:
    run = bridge.ask("question", *[reply] * 6)

    assert_failed(run, "model_timeout", "stayed silent")
    bridge.model.script()


def test_an_endpoint_that_never_says_a_word_is_given_up_in_bounded_time(bridge: RealBridge) -> None:
    run = bridge.ask("question", model="silent")

    assert_failed(run, "model_timeout", "Silent")


def test_a_refused_connection_is_told_as_unreachable(bridge: RealBridge) -> None:
    bridge.model.refuse_connections()

    run = bridge.ask("question", session="refused")

    assert_failed(run, "model_unreachable", "cannot be reached")
    bridge.model.start()
    assert bridge.ask("again", Reply(say("Back.")), session="refused").text == "Back."


def test_an_unknown_model_is_told_by_its_name(bridge: RealBridge) -> None:
    assert_failed(bridge.ask("question", model="no-such-model"), "unknown_model", "no-such-model")


def test_after_a_failure_the_same_session_works(bridge: RealBridge) -> None:
    bridge.ask("question", wrong_key(), session="recover").end()

    assert bridge.ask("question", Reply(say("Fine.")), session="recover").text == "Fine."
