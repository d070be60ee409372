from typing import Any

import pytest
from starlette.testclient import TestClient

from chat_core.models import Session, Started, User
from chat_core.workbench import Workbench
from tests.api.waiting import wait_until_ended
from tests.support.runtimes import EchoRuntime, GatedRuntime, calls_tool, echoes

CHAT = "/api/chat"


@pytest.fixture
def asked(workbench: Workbench, user: User, session: Session) -> Started:
    started = workbench.ask(user, session.uuid, "hello")
    wait_until_ended(workbench, user, started.run_id)
    return started


def test_regenerate_makes_a_new_active_version_beside_the_old_one(
    client: TestClient, workbench: Workbench, user: User, asked: Started, echo: EchoRuntime
) -> None:
    answer = client.post(f"{CHAT}/messages/{asked.message_uuid}/regenerate", json={"model_id": "tour"})
    assert answer.status_code == 202
    new_id = answer.json()["new_message_id"]
    wait_until_ended(workbench, user, answer.json()["run_id"])
    assert echo.requests[-1].model == "tour"
    versions = client.get(f"{CHAT}/messages/{asked.message_uuid}/versions").json()
    assert [(item["message_id"], item["branch_order"], item["is_active"]) for item in versions] == [
        (asked.message_uuid, 1, False),
        (new_id, 2, True),
    ]
    assert versions[0]["preview"] == "hello"


def test_a_version_is_activated_and_the_branch_follows(
    client: TestClient, workbench: Workbench, user: User, session: Session, asked: Started
) -> None:
    again = client.post(f"{CHAT}/messages/{asked.message_uuid}/regenerate").json()
    wait_until_ended(workbench, user, again["run_id"])
    assert client.post(f"{CHAT}/messages/{asked.message_uuid}/activate").status_code == 204
    last = client.get(f"{CHAT}/sessions/{session.uuid}").json()["messages"][-1]
    assert last["message_id"] == asked.message_uuid
    assert last["version"] == {
        "index": 1,
        "count": 2,
        "message_ids": [asked.message_uuid, again["new_message_id"]],
    }


def test_a_whole_branch_is_activated_from_a_message_far_down(
    client: TestClient, workbench: Workbench, user: User, session: Session, asked: Started
) -> None:
    deep = workbench.ask(user, session.uuid, "deeper")
    wait_until_ended(workbench, user, deep.run_id)
    again = client.post(f"{CHAT}/messages/{asked.message_uuid}/regenerate").json()
    wait_until_ended(workbench, user, again["run_id"])
    assert client.post(f"{CHAT}/messages/{deep.message_uuid}/activate-branch").status_code == 204
    shown = client.get(f"{CHAT}/sessions/{session.uuid}").json()["messages"]
    assert shown[-1]["message_id"] == deep.message_uuid


def test_the_branch_of_another_version_is_read_without_changing_what_is_active(
    client: TestClient, workbench: Workbench, user: User, session: Session, asked: Started
) -> None:
    again = client.post(f"{CHAT}/messages/{asked.message_uuid}/regenerate").json()
    wait_until_ended(workbench, user, again["run_id"])
    url = f"{CHAT}/sessions/{session.uuid}/messages"
    assert client.get(url, params={"message": asked.message_uuid}).json()["messages"][-1]["message_id"] == (
        asked.message_uuid
    )
    assert client.get(url).json()["messages"][-1]["message_id"] == again["new_message_id"]


def test_edit_makes_a_new_version_of_the_question_without_a_run(
    client: TestClient, workbench: Workbench, user: User, asked: Started
) -> None:
    answer = client.patch(f"{CHAT}/messages/{asked.user_message_uuid}", json={"content": "better"})
    assert answer.status_code == 200
    new = workbench.message(user, answer.json()["new_message_id"])
    assert (new.role, new.content, new.is_active, new.branch_order) == ("USER", "better", True, 2)


def test_a_stopped_answer_is_continued_in_the_same_message(
    client: TestClient, workbench: Workbench, user: User, gated_session: Session, gated: GatedRuntime
) -> None:
    started = workbench.ask(user, gated_session.uuid, "hello")
    gated.wait_until_started()
    workbench.stop(user, started.run_id)
    wait_until_ended(workbench, user, started.run_id)
    gated.release()
    answer = client.post(f"{CHAT}/messages/{started.message_uuid}/continue")
    assert answer.status_code == 202
    assert answer.json()["message_id"] == started.message_uuid
    assert answer.json()["run_id"] != started.run_id
    wait_until_ended(workbench, user, answer.json()["run_id"])
    assert workbench.message(user, started.message_uuid).status == "SUCCESS"


def test_the_log_is_whole_and_the_session_shows_the_start_of_long_results(
    client: TestClient, workbench: Workbench, user: User, gated_session: Session, gated: GatedRuntime
) -> None:
    result = "line\n" * 3_000
    gated.steps = [calls_tool("search", result, query="x"), echoes()]
    gated.release()
    started = workbench.ask(user, gated_session.uuid, "hello")
    wait_until_ended(workbench, user, started.run_id)
    log = client.get(f"{CHAT}/messages/{started.message_uuid}/log").json()
    assert log["message_id"] == started.message_uuid
    assert [entry["seq"] for entry in log["entries"]] == list(range(1, len(log["entries"]) + 1))
    kinds = [entry["kind"] for entry in log["entries"]]
    assert kinds == ["run_started", "tool_call", "tool_result", "answer", "run_finished"]
    assert log["entries"][2]["content"] == result
    shown = client.get(f"{CHAT}/sessions/{gated_session.uuid}").json()["messages"][-1]["logs"][2]
    assert shown["content"].startswith("line\nline")
    assert len(shown["content"]) < 4_200


def test_a_large_result_is_downloaded_whole_as_a_file(
    client: TestClient, workbench: Workbench, user: User, gated_session: Session, gated: GatedRuntime
) -> None:
    result = "<script>alert(1)</script>\u2028é" * 5_000
    gated.steps = [calls_tool("search", result), echoes()]
    gated.release()
    started = workbench.ask(user, gated_session.uuid, "hello")
    entries = wait_until_ended(workbench, user, started.run_id)
    (ref,) = [entry.meta["result_ref"] for entry in entries if entry.kind == "tool_result"]
    answer = client.get(f"{CHAT}/results/{ref}")
    assert answer.status_code == 200
    assert answer.content.decode("utf-8") == result
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_what_a_message_is_not_fit_for_is_refused(client: TestClient, asked: Started) -> None:
    question, answer = f"{CHAT}/messages/{asked.user_message_uuid}", f"{CHAT}/messages/{asked.message_uuid}"
    assert client.post(f"{question}/regenerate").status_code == 400
    assert client.patch(answer, json={"content": "x"}).status_code == 400
    assert client.patch(question, json={"content": ""}).status_code == 400
    assert client.patch(question, json={"content": " \n"}).status_code == 400
    assert client.patch(question, json={}).status_code == 400
    finished = client.post(f"{answer}/continue")
    assert finished.status_code == 409
    assert finished.json()["error"]["code"] == "conflict"


def test_a_busy_session_refuses_regenerate_and_edit(
    client: TestClient, workbench: Workbench, user: User, gated_session: Session, gated: GatedRuntime
) -> None:
    started = workbench.ask(user, gated_session.uuid, "hello")
    gated.wait_until_started()
    assert client.post(f"{CHAT}/messages/{started.message_uuid}/regenerate").status_code == 409
    assert client.patch(f"{CHAT}/messages/{started.user_message_uuid}", json={"content": "x"}).status_code == 409
    assert client.post(f"{CHAT}/sessions/{gated_session.uuid}/reset").status_code == 409


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "", {"content": "x"}),
        ("POST", "/regenerate", {}),
        ("POST", "/continue", None),
        ("GET", "/versions", None),
        ("POST", "/activate", None),
        ("POST", "/activate-branch", None),
        ("GET", "/log", None),
    ],
)
def test_a_message_that_is_not_there_or_not_mine_is_not_found(
    client: TestClient, workbench: Workbench, method: str, path: str, body: Any
) -> None:
    somebody = User(key="somebody else")
    theirs = workbench.ask(somebody, workbench.create_session(somebody, runtime="echo").uuid, "hi")
    wait_until_ended(workbench, somebody, theirs.run_id)
    for message_id in ("nope", theirs.message_uuid, theirs.user_message_uuid):
        answer = client.request(method, f"{CHAT}/messages/{message_id}{path}", json=body)
        assert answer.status_code == 404


def test_a_tool_result_that_is_not_there_is_not_found(client: TestClient) -> None:
    assert client.get(f"{CHAT}/results/nope").status_code == 404
