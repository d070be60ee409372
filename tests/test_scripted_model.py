"""The scripted model server does what a script says: other tests stand on it."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.scripted_model import (
    Reply,
    ScriptedModel,
    Usage,
    call,
    call_cut_inside,
    context_too_long,
    cut,
    for_questions,
    hang,
    hold,
    no_such_model,
    rate_limited,
    say,
    send_headers,
    server_error,
    think,
    unused_address,
    wrong_key,
)

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as server:
        yield server


def body(text: str = "hello", stream: bool = True) -> dict[str, Any]:
    return {"model": "scripted", "stream": stream, "messages": [{"role": "user", "content": text}]}


def post(model: ScriptedModel, text: str = "hello", stream: bool = True, **options: Any) -> httpx.Response:
    return httpx.post(f"{model.base_url}/chat/completions", json=body(text, stream), timeout=10, **options)


def chunks_of(response: httpx.Response) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def joined(chunks: list[dict[str, Any]], key: str) -> str:
    return "".join(choice["delta"].get(key) or "" for chunk in chunks for choice in chunk["choices"])


def finish_reason_of(chunks: list[dict[str, Any]]) -> Any:
    return next(choice["finish_reason"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"])


def test_text_and_reasoning_are_streamed_in_pieces_and_end_with_usage(model: ScriptedModel) -> None:
    model.script(Reply(think("let me see"), say("Hello there", chunk=3), usage=Usage(7, 3, 2, 1)))
    chunks = chunks_of(post(model))
    assert joined(chunks, "content") == "Hello there"
    assert joined(chunks, "reasoning_content") == "let me see"
    assert finish_reason_of(chunks) == "stop"
    assert chunks[-1]["usage"]["prompt_tokens"] == 7
    assert len(chunks) > 6


def test_a_request_that_does_not_stream_gets_one_message(model: ScriptedModel) -> None:
    model.script(Reply(say("Hello"), call("todo", {"todos": []})))
    message = post(model, stream=False).json()["choices"][0]["message"]
    assert message["content"] == "Hello"
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"todos": []}


def test_every_tool_call_has_an_id_of_its_own(model: ScriptedModel) -> None:
    model.script(Reply(call("todo", {}), call("todo", {})), Reply(call("todo", {"merge": True})))
    streams = [chunks_of(post(model)), chunks_of(post(model))]
    pieces = [piece for chunks in streams for chunk in chunks for choice in chunk["choices"]
              for piece in choice["delta"].get("tool_calls", [])]  # fmt: skip
    ids = [piece["id"] for piece in pieces if "id" in piece]
    assert len(ids) == len(set(ids)) == 3
    assert {finish_reason_of(chunks) for chunks in streams} == {"tool_calls"}


def test_a_gate_holds_the_stream_until_it_is_opened(model: ScriptedModel) -> None:
    gate = model.gate()
    model.script(Reply(say("before"), hold(gate), say("after")))
    with httpx.stream("POST", f"{model.base_url}/chat/completions", json=body(), timeout=10) as response:
        lines = response.iter_lines()
        seen = next(line for line in lines if "before" in line)
        gate.wait_until_reached()
        assert "after" not in seen
        gate.open()
        assert any("after" in line for line in lines)


def test_leaving_a_held_stream_is_noticed(model: ScriptedModel) -> None:
    model.script(Reply(say("before"), hold(model.gate())))
    with httpx.stream("POST", f"{model.base_url}/chat/completions", json=body(), timeout=10) as response:
        next(line for line in response.iter_lines() if "before" in line)
    assert model.requests[0].client_left.wait(5)


@pytest.mark.parametrize(
    ("refusal", "status"),
    [
        (wrong_key(), 401),
        (no_such_model(), 404),
        (rate_limited(1), 429),
        (server_error(), 500),
        (context_too_long(), 400),
    ],
)
def test_an_error_has_its_status_and_an_openai_error_body(model: ScriptedModel, refusal: Any, status: int) -> None:
    model.script(refusal)
    response = post(model)
    assert response.status_code == status
    assert response.json()["error"]["message"]


def test_a_cut_stream_ends_without_its_end(model: ScriptedModel) -> None:
    model.script(Reply(say("some text"), cut()))
    with pytest.raises(httpx.RemoteProtocolError):
        post(model)


def test_a_cut_before_the_headers_gives_no_response(model: ScriptedModel) -> None:
    model.script(Reply(cut()))
    with pytest.raises(httpx.RemoteProtocolError):
        post(model)


def test_a_tool_call_can_break_off_in_its_arguments(model: ScriptedModel) -> None:
    model.script(Reply(call_cut_inside("todo", {"todos": [{"id": "1", "content": "read"}]})))
    received: list[str] = []
    with (
        pytest.raises(httpx.RemoteProtocolError),
        httpx.stream("POST", f"{model.base_url}/chat/completions", json=body(), timeout=10) as response,
    ):
        received.extend(response.iter_lines())
    assert any("todo" in line for line in received)


def test_silence_before_the_headers_is_a_read_timeout(model: ScriptedModel) -> None:
    model.script(Reply(hang()))
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{model.base_url}/chat/completions", json=body(), timeout=0.3)


def test_silence_after_the_headers_has_a_status(model: ScriptedModel) -> None:
    model.script(Reply(send_headers(), hang()))
    with httpx.stream("POST", f"{model.base_url}/chat/completions", json=body(), timeout=0.3) as response:
        assert response.status_code == 200
        with pytest.raises(httpx.ReadTimeout):
            list(response.iter_lines())


def test_refusing_and_listening_again_keeps_the_address(model: ScriptedModel) -> None:
    model.script(Reply(say("back")))
    model.refuse_connections()
    with pytest.raises(httpx.ConnectError):
        post(model)
    model.start()
    assert joined(chunks_of(post(model)), "content") == "back"


def test_nothing_listens_at_the_unused_address() -> None:
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{unused_address()}/models")


def test_no_parts_are_an_empty_answer_and_a_finish_reason_can_be_given(model: ScriptedModel) -> None:
    model.script(Reply(), Reply(say("cut sh"), finish_reason="length"))
    empty, short = chunks_of(post(model)), chunks_of(post(model))
    assert joined(empty, "content") == ""
    assert finish_reason_of(short) == "length"


def test_requests_are_kept_without_their_secrets() -> None:
    with ScriptedModel(Reply(say("ok")), api_key="sk-secret") as model:
        post(model, "what is on the wire?", headers={"Authorization": "Bearer sk-secret", "X-Trace": "7"})
    request = model.requests[0]
    assert request.last_user_text == "what is on the wire?"
    assert request.key_is_right
    assert request.headers["x-trace"] == "7"
    assert "sk-secret" not in repr(request)


def test_a_wrong_key_is_refused() -> None:
    with ScriptedModel(Reply(say("ok")), api_key="sk-secret") as model:
        assert post(model, headers={"Authorization": "Bearer sk-other"}).status_code == 401


def test_a_request_the_script_does_not_know_is_refused_and_listed(model: ScriptedModel) -> None:
    assert post(model).status_code == 400
    assert [request.number for request in model.unexpected] == [1]


def test_side_jobs_do_not_consume_the_script() -> None:
    with ScriptedModel(Reply(say("main")), side_jobs=Reply(say("summary"))) as model:
        side = post(model, stream=False).json()["choices"][0]["message"]["content"]
        assert (side, joined(chunks_of(post(model)), "content")) == ("summary", "main")


def test_replies_chosen_by_question_do_not_mix_between_parallel_sessions(model: ScriptedModel) -> None:
    model.script(choose=for_questions({"red": [Reply(say("RED"))], "blue": [Reply(say("BLUE"))]}))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda text: joined(chunks_of(post(model, text)), "content"), ["red", "blue"] * 8))
    assert answers == ["RED", "BLUE"] * 8


def test_waiting_for_a_request_returns_it(model: ScriptedModel) -> None:
    model.script(Reply(say("ok")))
    sender = threading.Thread(target=post, args=(model, "late"))
    sender.start()
    assert model.wait_for_requests(1).last_user_text == "late"
    sender.join(5)


def test_models_are_listed_with_a_context_length_agents_accept(model: ScriptedModel) -> None:
    card = httpx.get(f"{model.base_url}/models").json()["data"][0]
    assert card["id"] == "scripted"
    assert card["context_length"] >= 64_000


def test_closing_releases_held_replies() -> None:
    with ScriptedModel() as model:
        gate = model.gate()
        model.script(Reply(say("before"), hold(gate)))
        with httpx.stream("POST", f"{model.base_url}/chat/completions", json=body(), timeout=10):
            gate.wait_until_reached()
            model.close()
            assert model.requests[0].client_left.wait(5)


def test_as_a_process_it_prints_its_address_and_streams_the_chunks_asked_for() -> None:
    command = [sys.executable, "-m", "tests.support.scripted_model", "--chunks", "30", "--rate", "0", "--stamped"]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = json.loads(process.stdout.readline())["base_url"]
            response = httpx.post(f"{address}/chat/completions", json=body(), timeout=10)
            pieces = joined(chunks_of(response), "content").split()
            assert [piece.split("@")[0] for piece in pieces] == [str(number) for number in range(30)]
        finally:
            process.terminate()
