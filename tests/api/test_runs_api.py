from typing import Any

import pytest
from starlette.testclient import TestClient

from chat_core.config import Settings
from chat_core.errors import BridgeUnavailable
from chat_core.models import Session, User
from chat_core.workbench import Workbench
from tests.api.waiting import wait_for_question, wait_until_ended
from tests.support.runtimes import EchoRuntime, GatedRuntime, asks, asks_approval, reports_error

CHAT = "/api/chat"


def start(client: TestClient, session: Session, **body: Any) -> dict[str, str]:
    answer = client.post(f"{CHAT}/sessions/{session.uuid}/runs", json=body)
    assert answer.status_code == 202, answer.text
    started: dict[str, str] = answer.json()
    return started


def state(client: TestClient, run_id: str) -> dict[str, Any]:
    answer = client.get(f"{CHAT}/runs/{run_id}/state")
    assert answer.status_code == 200
    body: dict[str, Any] = answer.json()
    return body


def test_a_run_is_started_with_its_options(
    client: TestClient, workbench: Workbench, user: User, session: Session, echo: EchoRuntime
) -> None:
    started = start(client, session, message="hello", model_id="tour", skill_folder="travel", max_iterations=7)
    wait_until_ended(workbench, user, started["run_id"])
    (request,) = echo.requests
    assert (request.message, request.model, request.skill_folder) == ("hello", "tour", "travel")
    assert request.max_iterations == 7
    assert workbench.message(user, started["message_id"]).role == "ASSISTANT"


def test_the_state_names_session_message_status_and_last_seq(
    client: TestClient, workbench: Workbench, user: User, session: Session
) -> None:
    started = start(client, session, message="hello")
    entries = wait_until_ended(workbench, user, started["run_id"])
    assert state(client, started["run_id"]) == {
        "run_id": started["run_id"],
        "session_id": session.uuid,
        "message_id": started["message_id"],
        "status": "SUCCESS",
        "stop_requested": False,
        "last_seq": entries[-1].seq,
        "question": None,
    }


def test_a_second_run_in_a_busy_session_is_refused(
    client: TestClient, gated_session: Session, gated: GatedRuntime
) -> None:
    start(client, gated_session, message="first")
    gated.wait_until_started()
    answer = client.post(f"{CHAT}/sessions/{gated_session.uuid}/runs", json={"message": "second"})
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "session_busy"


def test_too_many_runs_are_refused_with_the_limit(
    open_bench: Any, settings: Settings, user: User, gated: GatedRuntime
) -> None:
    from starlette.applications import Starlette

    from chat_core.api.routes import api_routes

    bench = open_bench(settings=settings.model_copy(update={"max_runs_per_user": 1}))
    client = TestClient(Starlette(routes=api_routes(lambda: bench)))
    sessions = [bench.create_session(user, runtime="gated") for _ in range(2)]
    start(client, sessions[0], message="first")
    answer = client.post(f"{CHAT}/sessions/{sessions[1].uuid}/runs", json={"message": "second"})
    assert answer.status_code == 429
    assert answer.json()["error"]["code"] == "limit_reached"
    assert answer.json()["error"]["detail"] == {"limit": 1, "scope": "user"}
    assert int(answer.headers["retry-after"]) > 0


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"message": ""},
        {"message": "  \n"},
        {"message": None},
        {"message": 5},
        {"message": "x", "max_iterations": 0},
        {"message": "x", "max_iterations": 501},
        {"message": "x", "other": 1},
    ],
)
def test_a_run_that_cannot_be_right_is_refused_and_nothing_is_stored(
    client: TestClient, workbench: Workbench, user: User, session: Session, body: Any
) -> None:
    answer = client.post(f"{CHAT}/sessions/{session.uuid}/runs", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_input"
    assert workbench.tree(user, session.uuid) == []


def test_a_message_that_is_too_long_is_refused_with_the_limit(client: TestClient, session: Session) -> None:
    answer = client.post(f"{CHAT}/sessions/{session.uuid}/runs", json={"message": "x" * 200_001})
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "too_large"


def test_a_run_continues_after_the_message_it_names(
    client: TestClient, workbench: Workbench, user: User, session: Session
) -> None:
    first = start(client, session, message="one")
    wait_until_ended(workbench, user, first["run_id"])
    second = start(client, session, message="two")
    wait_until_ended(workbench, user, second["run_id"])
    beside = start(client, session, message="three", parent_message_id=first["message_id"])
    wait_until_ended(workbench, user, beside["run_id"])
    contents = [item.message.content for item in workbench.branch(user, session.uuid).messages]
    assert contents == ["one", "one", "three", "three"]


def test_an_edited_message_is_run_by_naming_it_as_parent(
    client: TestClient, workbench: Workbench, user: User, session: Session
) -> None:
    first = start(client, session, message="one")
    wait_until_ended(workbench, user, first["run_id"])
    edited = client.patch(f"{CHAT}/messages/{first['user_message_id']}", json={"content": "better"}).json()
    started = start(client, session, parent_message_id=edited["new_message_id"])
    wait_until_ended(workbench, user, started["run_id"])
    assert started["user_message_id"] == edited["new_message_id"]
    assert workbench.message(user, started["message_id"]).content == "better"


def test_a_parent_of_another_session_is_refused(
    client: TestClient, workbench: Workbench, user: User, session: Session
) -> None:
    other = workbench.create_session(user, runtime="echo")
    theirs = start(client, other, message="one")
    wait_until_ended(workbench, user, theirs["run_id"])
    without_text = client.post(
        f"{CHAT}/sessions/{session.uuid}/runs", json={"parent_message_id": theirs["user_message_id"]}
    )
    with_text = client.post(
        f"{CHAT}/sessions/{session.uuid}/runs", json={"message": "x", "parent_message_id": theirs["message_id"]}
    )
    assert (without_text.status_code, with_text.status_code) == (400, 404)
    assert workbench.tree(user, session.uuid) == []


def test_a_parent_that_cannot_be_one_is_refused(
    client: TestClient, workbench: Workbench, user: User, session: Session
) -> None:
    first = start(client, session, message="one")
    wait_until_ended(workbench, user, first["run_id"])
    url = f"{CHAT}/sessions/{session.uuid}/runs"
    assert client.post(url, json={"parent_message_id": first["message_id"]}).status_code == 400
    assert client.post(url, json={"message": "x", "parent_message_id": first["user_message_id"]}).status_code == 400
    assert client.post(url, json={"message": "x", "parent_message_id": "nope"}).status_code == 404


def test_a_question_is_in_the_state_and_answered_by_resume(
    client: TestClient, workbench: Workbench, user: User, gated_session: Session, gated: GatedRuntime
) -> None:
    gated.steps = [asks("Which one?", ["red", "blue"])]
    gated.release()
    started = start(client, gated_session, message="paint")
    wait_for_question(workbench, user, started["run_id"])
    waiting = state(client, started["run_id"])
    assert waiting["status"] == "WAITING"
    question = waiting["question"]
    assert (question["kind"], question["question"], question["choices"]) == ("clarify", "Which one?", ["red", "blue"])

    url = f"{CHAT}/runs/{started['run_id']}/resume"
    body = {"question_id": question["question_id"], "answer": "red"}
    answer = client.post(url, json=body)
    assert answer.status_code == 200
    assert (answer.json()["question"]["status"], answer.json()["question"]["answer"]) == ("ANSWERED", "red")
    assert client.post(url, json=body).status_code == 200
    wait_until_ended(workbench, user, started["run_id"])
    assert workbench.message(user, started["message_id"]).content == "You said red."

    other = client.post(url, json={**body, "answer": "blue"})
    assert other.status_code == 409
    assert other.json()["error"]["code"] == "already_answered"
    assert other.json()["error"]["detail"] == {"answer": "red"}


def test_the_detail_of_an_approval_is_in_the_state_and_another_word_is_refused(
    client: TestClient, workbench: Workbench, user: User, gated_session: Session, gated: GatedRuntime
) -> None:
    gated.steps = [asks_approval("rm -rf scratch")]
    gated.release()
    started = start(client, gated_session, message="clean")
    wait_for_question(workbench, user, started["run_id"])
    question = state(client, started["run_id"])["question"]
    assert (question["kind"], question["detail"]["command"]) == ("approval", "rm -rf scratch")
    url = f"{CHAT}/runs/{started['run_id']}/resume"
    refused = client.post(url, json={"question_id": question["question_id"], "answer": "maybe"})
    assert refused.status_code == 400
    assert client.post(url, json={"question_id": question["question_id"], "answer": "deny"}).status_code == 200


def test_a_question_of_a_stopped_run_is_closed(
    client: TestClient, workbench: Workbench, user: User, gated_session: Session, gated: GatedRuntime
) -> None:
    gated.steps = [asks()]
    gated.release()
    started = start(client, gated_session, message="paint")
    question = wait_for_question(workbench, user, started["run_id"]).question
    assert question is not None
    assert client.post(f"{CHAT}/runs/{started['run_id']}/stop").status_code == 202
    wait_until_ended(workbench, user, started["run_id"])
    late = client.post(
        f"{CHAT}/runs/{started['run_id']}/resume", json={"question_id": question.question_id, "answer": "red"}
    )
    assert late.status_code == 409
    assert late.json()["error"]["code"] == "question_closed"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"question_id": "nope", "answer": "x"}, 404),
        ({"question_id": "", "answer": "x"}, 400),
        ({"question_id": "nope"}, 400),
        ({"question_id": "nope", "answer": "x" * 20_001}, 400),
    ],
)
def test_an_answer_to_no_question_is_refused(
    client: TestClient, workbench: Workbench, user: User, session: Session, body: Any, status: int
) -> None:
    started = start(client, session, message="hello")
    wait_until_ended(workbench, user, started["run_id"])
    assert client.post(f"{CHAT}/runs/{started['run_id']}/resume", json=body).status_code == status


def test_stop_keeps_what_was_done_and_is_harmless_twice_and_after_the_end(
    client: TestClient, workbench: Workbench, user: User, gated_session: Session, gated: GatedRuntime
) -> None:
    started = start(client, gated_session, message="hello")
    gated.wait_until_started()
    for _ in range(2):
        answer = client.post(f"{CHAT}/runs/{started['run_id']}/stop")
        assert answer.status_code == 202
        assert answer.json() == {"run_id": started["run_id"]}
    wait_until_ended(workbench, user, started["run_id"])
    assert client.post(f"{CHAT}/runs/{started['run_id']}/stop").status_code == 202
    assert state(client, started["run_id"])["status"] == "STOPPED"


def test_a_failed_run_says_why_in_its_message(
    client: TestClient, workbench: Workbench, user: User, gated_session: Session, gated: GatedRuntime
) -> None:
    gated.steps = [reports_error("model_auth", "The key is wrong.")]
    gated.release()
    started = start(client, gated_session, message="hello")
    wait_until_ended(workbench, user, started["run_id"])
    last = client.get(f"{CHAT}/sessions/{gated_session.uuid}").json()["messages"][-1]
    assert (last["status"], last["error"]) == ("FAILED", {"code": "model_auth", "message": "The key is wrong."})


def test_a_bridge_that_is_away_is_a_503(
    client: TestClient, workbench: Workbench, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise BridgeUnavailable("The Bridge is not running.")

    monkeypatch.setattr(workbench, "ask", away)
    answer = client.post(f"{CHAT}/sessions/{session.uuid}/runs", json={"message": "x"})
    assert answer.status_code == 503
    assert answer.json()["error"] == {"code": "bridge_unavailable", "message": "The Bridge is not running."}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "state", None),
        ("GET", "stream", None),
        ("POST", "stop", None),
        ("POST", "resume", {"question_id": "q", "answer": "a"}),
    ],
)
def test_a_run_that_is_not_there_or_not_mine_is_not_found(
    client: TestClient, workbench: Workbench, method: str, path: str, body: Any
) -> None:
    somebody = User(key="somebody else")
    theirs = workbench.ask(somebody, workbench.create_session(somebody, runtime="echo").uuid, "hi").run_id
    wait_until_ended(workbench, somebody, theirs)
    for run_id in ("nope", theirs):
        answer = client.request(method, f"{CHAT}/runs/{run_id}/{path}", json=body)
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "not_found"
