from datetime import datetime
from typing import Any

import pytest
from starlette.testclient import TestClient

from chat_core.models import Session, User
from chat_core.workbench import Workbench
from tests.api.waiting import wait_until_ended
from tests.support.runtimes import GatedRuntime

CHAT = "/api/chat"


def create(client: TestClient, **body: Any) -> str:
    answer = client.post(f"{CHAT}/sessions", json={"runtime": "echo", **body})
    assert answer.status_code == 201
    session_id: str = answer.json()["session_id"]
    return session_id


def ask(client: TestClient, session_id: str, text: str) -> dict[str, str]:
    answer = client.post(f"{CHAT}/sessions/{session_id}/runs", json={"message": text})
    assert answer.status_code == 202, answer.text
    started: dict[str, str] = answer.json()
    return started


def test_a_session_is_created_with_an_empty_body(client: TestClient) -> None:
    answer = client.post(f"{CHAT}/sessions")
    assert answer.status_code == 201
    assert set(answer.json()) == {"session_id"}


def test_a_created_session_is_listed_with_its_fields(client: TestClient) -> None:
    session_id = create(client, title="Trip", model_id="tour", skill_folder="travel")
    listed = client.get(f"{CHAT}/sessions").json()
    assert not listed["has_more"]
    (row,) = listed["sessions"]
    assert row["session_id"] == session_id
    assert (row["title"], row["model_id"], row["skill_folder"]) == ("Trip", "tour", "travel")
    assert (row["status"], row["pinned"], row["preview"]) == ("ACTIVE", False, "")
    assert (row["has_active_run"], row["waiting"], row["unseen"]) == (False, False, False)
    assert row["last_message_at"].endswith("Z")
    assert datetime.fromisoformat(row["last_message_at"]).tzinfo is not None


def test_the_list_is_paged_by_the_last_session_seen(client: TestClient) -> None:
    ids = [create(client, title=f"s{number}") for number in range(5)]
    first = client.get(f"{CHAT}/sessions", params={"limit": 3}).json()
    rest = client.get(f"{CHAT}/sessions", params={"limit": 3, "before": first["sessions"][-1]["session_id"]}).json()
    assert (first["has_more"], rest["has_more"]) == (True, False)
    assert [row["session_id"] for row in first["sessions"] + rest["sessions"]] == ids[::-1]


def test_the_list_finds_by_title_and_by_status(client: TestClient) -> None:
    found, archived = create(client, title="Holiday plans"), create(client, title="Old holiday")
    client.patch(f"{CHAT}/sessions/{archived}", json={"status": "archived"})
    assert [row["session_id"] for row in client.get(f"{CHAT}/sessions?q=holiday").json()["sessions"]] == [found]
    listed = client.get(f"{CHAT}/sessions?status=archived").json()["sessions"]
    assert [(row["session_id"], row["status"]) for row in listed] == [(archived, "ARCHIVED")]


def test_a_session_is_read_with_its_active_branch_and_what_happened(
    client: TestClient, workbench: Workbench, user: User
) -> None:
    session_id = create(client)
    started = ask(client, session_id, "hello there")
    wait_until_ended(workbench, user, started["run_id"])
    body = client.get(f"{CHAT}/sessions/{session_id}").json()
    assert body["session"]["title"] == "hello there"
    question, answer = body["messages"]
    assert (question["role"], question["content"], question["status"]) == ("USER", "hello there", "SENT")
    assert (question["parent_id"], question["logs"]) == (None, [])
    assert question["message_id"] == started["user_message_id"]
    assert (answer["role"], answer["content"], answer["status"]) == ("ASSISTANT", "hello there", "SUCCESS")
    assert (answer["message_id"], answer["parent_id"]) == (started["message_id"], question["message_id"])
    assert answer["run_id"] == started["run_id"]
    assert answer["version"] == {"index": 1, "count": 1, "message_ids": [answer["message_id"]]}
    assert [entry["kind"] for entry in answer["logs"]] == ["run_started", "thinking", "usage", "run_finished"]


def test_messages_come_in_windows_from_the_end(client: TestClient, workbench: Workbench, user: User) -> None:
    session_id = create(client)
    for number in range(4):
        wait_until_ended(workbench, user, ask(client, session_id, f"q{number}")["run_id"])
    url = f"{CHAT}/sessions/{session_id}/messages"
    last = client.get(url, params={"limit": 3}).json()
    assert [item["content"] for item in last["messages"]] == ["q2", "q3", "q3"]
    assert last["has_more"]
    earlier = client.get(url, params={"before": last["messages"][0]["message_id"], "limit": 50}).json()
    assert [item["content"] for item in earlier["messages"]] == ["q0", "q0", "q1", "q1", "q2"]
    assert not earlier["has_more"]


def test_a_session_is_renamed_pinned_and_given_another_model(client: TestClient) -> None:
    session_id = create(client)
    answer = client.patch(f"{CHAT}/sessions/{session_id}", json={"title": "New", "pinned": True, "model_id": "local"})
    assert answer.status_code == 200
    assert (answer.json()["title"], answer.json()["pinned"], answer.json()["model_id"]) == ("New", True, "local")
    unchanged = client.patch(f"{CHAT}/sessions/{session_id}", json={}).json()
    assert (unchanged["title"], unchanged["pinned"]) == ("New", True)


def test_a_deleted_session_is_gone_with_everything(client: TestClient, workbench: Workbench, user: User) -> None:
    session_id = create(client)
    started = ask(client, session_id, "hello")
    wait_until_ended(workbench, user, started["run_id"])
    assert client.delete(f"{CHAT}/sessions/{session_id}").status_code == 204
    for url in (f"sessions/{session_id}", f"messages/{started['message_id']}/log", f"runs/{started['run_id']}/state"):
        assert client.get(f"{CHAT}/{url}").status_code == 404
    assert workbench.store.check() == []


def test_a_reset_adds_a_marker_and_keeps_the_history(client: TestClient, workbench: Workbench, user: User) -> None:
    session_id = create(client)
    wait_until_ended(workbench, user, ask(client, session_id, "hello")["run_id"])
    answer = client.post(f"{CHAT}/sessions/{session_id}/reset", json={"keep_history": True})
    assert answer.status_code == 201
    last = client.get(f"{CHAT}/sessions/{session_id}").json()["messages"][-1]
    assert (last["message_id"], last["role"], last["status"]) == (answer.json()["message_id"], "SYSTEM", "RESET")


def test_a_reset_that_would_drop_the_history_is_refused(client: TestClient, session: Session) -> None:
    answer = client.post(f"{CHAT}/sessions/{session.uuid}/reset", json={"keep_history": False})
    assert answer.status_code == 400


def test_a_session_that_ended_unseen_is_seen_after_the_call(
    client: TestClient, workbench: Workbench, user: User
) -> None:
    session_id = create(client)
    wait_until_ended(workbench, user, ask(client, session_id, "hello")["run_id"])
    assert client.get(f"{CHAT}/sessions").json()["sessions"][0]["unseen"]
    assert client.post(f"{CHAT}/sessions/{session_id}/seen").status_code == 204
    assert not client.get(f"{CHAT}/sessions").json()["sessions"][0]["unseen"]


def test_a_running_session_says_so_in_the_list(client: TestClient, gated_session: Session, gated: GatedRuntime) -> None:
    ask(client, gated_session.uuid, "hello")
    gated.wait_until_started()
    (row,) = client.get(f"{CHAT}/sessions").json()["sessions"]
    assert (row["has_active_run"], row["waiting"]) == (True, False)
    assert row["since"].endswith("Z")


def test_the_tree_holds_every_branch(client: TestClient, workbench: Workbench, user: User) -> None:
    session_id = create(client)
    first = ask(client, session_id, "one")
    wait_until_ended(workbench, user, first["run_id"])
    edited = client.patch(f"{CHAT}/messages/{first['user_message_id']}", json={"content": "two"}).json()
    tree = client.get(f"{CHAT}/sessions/{session_id}/tree").json()["messages"]
    assert [(item["content"], item["parent_id"], item["is_active"], item["branch_order"]) for item in tree] == [
        ("one", None, False, 1),
        ("one", first["user_message_id"], True, 1),
        ("two", None, True, 2),
    ]
    assert tree[2]["message_id"] == edited["new_message_id"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("PATCH", "", {"title": "x"}),
        ("DELETE", "", None),
        ("POST", "/reset", {}),
        ("POST", "/seen", None),
        ("GET", "/messages", None),
        ("GET", "/tree", None),
        ("POST", "/runs", {"message": "x"}),
    ],
)
def test_a_session_that_is_not_there_or_not_mine_is_not_found(
    client: TestClient, workbench: Workbench, method: str, path: str, body: Any
) -> None:
    theirs = workbench.create_session(User(key="somebody else")).uuid
    for session_id in ("nope", theirs, "a%00b", "..%2f"):
        answer = client.request(method, f"{CHAT}/sessions/{session_id}{path}", json=body)
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "", {"title": 5}),
        ("POST", "", {"titel": "typo"}),
        ("POST", "", {"title": "x" * 201}),
        ("POST", "", {"runtime": ""}),
        ("PATCH", "/{id}", {"status": "gone"}),
        ("PATCH", "/{id}", {"pinned": "perhaps"}),
    ],
)
def test_a_wrong_body_is_refused_with_the_field_and_the_reason(
    client: TestClient, session: Session, method: str, path: str, body: Any
) -> None:
    answer = client.request(method, f"{CHAT}/sessions{path.format(id=session.uuid)}", json=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "invalid_input"
    (field,) = body
    assert error["detail"]["problems"][0]["field"] == field
    assert field in error["message"]


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "limit=many", "status=deleted", "q=" + "x" * 501])
def test_a_wrong_query_is_refused(client: TestClient, query: str) -> None:
    answer = client.get(f"{CHAT}/sessions?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_input"


def test_a_page_before_a_session_that_is_not_there_is_not_found(client: TestClient, session: Session) -> None:
    assert client.get(f"{CHAT}/sessions?before=nope").status_code == 404
    assert client.get(f"{CHAT}/sessions/{session.uuid}/messages?before=nope").status_code == 404
