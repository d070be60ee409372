import io
import json
import zipfile
from urllib.parse import unquote

import pytest
from starlette.testclient import TestClient

from chat_core.models import Session, User
from chat_core.workbench import Workbench
from tests.api.waiting import wait_for_question, wait_until_ended
from tests.support.runtimes import GatedRuntime, answers, asks, calls_tool, thinks

CHAT = "/api/chat"


@pytest.fixture
def rich(workbench: Workbench, user: User, gated_session: Session, gated: GatedRuntime) -> Session:
    """A session with two versions, thinking, a question, and a tool result that is kept apart."""
    gated.steps = [thinks("hm"), calls_tool("search", "x" * 100_000, query="q"), asks("Which?"), answers("```\nopen")]
    gated.release()
    first = workbench.ask(user, gated_session.uuid, "hello <b>")
    for started in (first, None):
        run_id = started.run_id if started else workbench.regenerate(user, first.message_uuid).run_id
        question = wait_for_question(workbench, user, run_id).question
        assert question is not None
        workbench.answer(user, run_id, question.question_id, "red")
        wait_until_ended(workbench, user, run_id)
    return gated_session


def test_a_session_is_exported_as_a_markdown_file(client: TestClient, rich: Session) -> None:
    answer = client.get(f"{CHAT}/sessions/{rich.uuid}/export")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/markdown; charset=utf-8"
    assert answer.headers["content-disposition"].startswith('attachment; filename="session.md"')
    assert answer.text.count("\n## Assistant\n") == 1
    assert "hello \\<b>" in answer.text
    whole = client.get(f"{CHAT}/sessions/{rich.uuid}/export?format=md&branch=all").text
    assert "version 1 of 2" in whole
    assert "version 2 of 2, chosen" in whole


def test_a_session_is_exported_as_json_with_everything(client: TestClient, rich: Session) -> None:
    answer = client.get(f"{CHAT}/sessions/{rich.uuid}/export?format=json")
    assert answer.headers["content-type"] == "application/json"
    file = answer.json()
    assert (file["format"], file["version"], len(file["messages"])) == ("parley-session", 1, 3)
    version = file["messages"][1]
    assert version["results"][0]["text"] == "x" * 100_000
    assert version["runs"][0]["questions"][0]["answer"] == "red"
    assert version["context"]["runtime"] == "gated"
    active = client.get(f"{CHAT}/sessions/{rich.uuid}/export?format=json&branch=active").json()
    assert [message["branch_order"] for message in active["messages"]] == [1, 2]


def test_an_imported_session_is_equal_and_importing_again_makes_no_second_one(
    client: TestClient, workbench: Workbench, user: User, rich: Session
) -> None:
    url = f"{CHAT}/sessions/import"
    exported = client.get(f"{CHAT}/sessions/{rich.uuid}/export?format=json").content
    imported = client.post(url, content=exported)
    assert imported.status_code == 201
    assert imported.json()["created"] is True
    session_id = imported.json()["session_id"]
    assert session_id != rich.uuid
    assert client.post(url, content=exported).json() == {"session_id": session_id, "created": False}

    again = client.get(f"{CHAT}/sessions/{session_id}/export?format=json").content
    assert client.post(url, content=again).json() == {"session_id": session_id, "created": False}
    assert len(client.get(f"{CHAT}/sessions").json()["sessions"]) == 2

    def contents(of: str) -> list[tuple[str, str]]:
        messages = client.get(f"{CHAT}/sessions/{of}").json()["messages"]
        return [(item["content"], item["created_at"]) for item in messages]

    assert contents(session_id) == contents(rich.uuid)
    assert workbench.store.check() == []


def test_an_imported_session_is_continued_with_what_the_agent_remembers(
    client: TestClient, workbench: Workbench, user: User, rich: Session, gated: GatedRuntime
) -> None:
    exported = client.get(f"{CHAT}/sessions/{rich.uuid}/export?format=json").content
    session_id = client.post(f"{CHAT}/sessions/import", content=exported).json()["session_id"]
    gated.steps = [answers("more")]
    wait_until_ended(workbench, user, workbench.ask(user, session_id, "go on").run_id)
    assert [turn[0]["content"] for turn in gated.requests[-1].contexts] == ["hello <b>"]
    assert gated.requests[-1].agent_session != gated.requests[0].agent_session


def test_an_import_that_was_deleted_a_moment_ago_is_brought_back(client: TestClient, rich: Session) -> None:
    exported = client.get(f"{CHAT}/sessions/{rich.uuid}/export?format=json").content
    session_id = client.post(f"{CHAT}/sessions/import", content=exported).json()["session_id"]
    client.delete(f"{CHAT}/sessions/{session_id}")
    assert client.post(f"{CHAT}/sessions/import", content=exported).json()["session_id"] == session_id
    assert client.get(f"{CHAT}/sessions/{session_id}").status_code == 200


def test_a_running_session_can_be_exported_and_its_import_is_interrupted(
    client: TestClient, workbench: Workbench, user: User, gated_session: Session, gated: GatedRuntime
) -> None:
    workbench.ask(user, gated_session.uuid, "hello")
    gated.wait_until_started()
    exported = client.get(f"{CHAT}/sessions/{gated_session.uuid}/export?format=json").content
    session_id = client.post(f"{CHAT}/sessions/import", content=exported).json()["session_id"]
    assert client.get(f"{CHAT}/sessions/{session_id}").json()["messages"][-1]["status"] == "INTERRUPTED"
    assert workbench.store.check() == []


def test_the_file_is_named_after_the_title_and_nothing_in_it_leaves_the_name(client: TestClient) -> None:
    title = '旅行 "a"; filename=evil.exe /../x\u202e'
    session_id = client.post(f"{CHAT}/sessions", json={"title": title}).json()["session_id"]
    header = client.get(f"{CHAT}/sessions/{session_id}/export?format=json").headers["content-disposition"]
    fixed, _, name = header.partition("; filename*=UTF-8''")
    assert fixed == 'attachment; filename="session.json"'
    assert ";" not in name
    assert unquote(name).startswith("旅行 ")
    assert not set(unquote(name)) & set('/\\":\u202e')


@pytest.mark.parametrize("query", ["format=pdf", "branch=some"])
def test_a_wrong_kind_of_export_is_refused(client: TestClient, session: Session, query: str) -> None:
    assert client.get(f"{CHAT}/sessions/{session.uuid}/export?{query}").status_code == 400


def test_an_export_of_nothing_is_not_found(client: TestClient, workbench: Workbench) -> None:
    theirs = workbench.create_session(User(key="other")).uuid
    for session_id in ("nope", theirs):
        assert client.get(f"{CHAT}/sessions/{session_id}/export").status_code == 404


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"\xff", b'{"format": "parley-session", "version": 1}'])
def test_an_import_that_could_not_be_a_session_is_refused(client: TestClient, body: bytes) -> None:
    answer = client.post(f"{CHAT}/sessions/import", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_input"
    assert client.get(f"{CHAT}/sessions").json()["sessions"] == []


def test_an_import_may_be_larger_than_other_bodies(client: TestClient, session: Session) -> None:
    exported = client.get(f"{CHAT}/sessions/{session.uuid}/export?format=json").json()
    body = json.dumps(exported).encode() + b" " * 2_000_000
    assert client.post(f"{CHAT}/sessions/import", content=body).status_code == 201


def test_a_deleted_session_is_restored(client: TestClient, session: Session) -> None:
    url = f"{CHAT}/sessions/{session.uuid}"
    assert client.delete(url).status_code == 204
    assert client.get(url).status_code == 404
    assert client.post(f"{url}/restore").json()["session_id"] == session.uuid
    assert client.get(url).status_code == 200
    assert client.post(f"{CHAT}/sessions/nope/restore").status_code == 404


def test_search_finds_titles_and_messages_as_plain_text(
    client: TestClient, workbench: Workbench, user: User, session: Session
) -> None:
    started = workbench.ask(user, session.uuid, 'say "NOT%_" 修复')
    wait_until_ended(workbench, user, started.run_id)
    for query in ('"NOT%_"', "修复", "ay"):
        hits = client.get(f"{CHAT}/search", params={"q": query}).json()["hits"]
        assert {hit["session_id"] for hit in hits} == {session.uuid}
        assert started.user_message_uuid in {hit["message_id"] for hit in hits}
        (hit,) = [hit for hit in hits if hit["message_id"] == started.user_message_uuid]
        begin, end = hit["matches"][0]
        assert hit["snippet"][begin:end] == query
    assert client.get(f"{CHAT}/search", params={"q": "nothing like it"}).json() == {"hits": [], "next_before": None}
    assert client.get(f"{CHAT}/search").status_code == 400


def test_many_sessions_are_exported_as_one_archive_that_can_be_imported(
    client: TestClient, workbench: Workbench, user: User, rich: Session
) -> None:
    workbench.update_session(user, rich.uuid, title='a/b: "c"')
    other = workbench.create_session(user, title="A b   c ", runtime="echo")
    answer = client.post(f"{CHAT}/sessions/export", json={"session_ids": [rich.uuid, other.uuid]})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/zip"
    assert answer.headers["content-disposition"] == 'attachment; filename="sessions.zip"'
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.namelist() == ["a b c.json", "A b c (2).json"]
        imported = client.post(f"{CHAT}/sessions/import", content=archive.read("a b c.json"))
    assert imported.json()["created"] is True


def test_an_archive_with_an_unknown_session_or_none_is_refused(client: TestClient, rich: Session) -> None:
    url = f"{CHAT}/sessions/export"
    assert client.post(url, json={"session_ids": [rich.uuid, "nobody"]}).status_code == 404
    assert client.post(url, json={"session_ids": []}).status_code == 400


def test_the_memory_of_a_session_is_told(client: TestClient, rich: Session) -> None:
    memory = client.get(f"{CHAT}/sessions/{rich.uuid}/memory").json()
    assert memory["turns"] == 1
    assert memory["working"][0] == {"role": "user", "text": "hello <b>", "tools": []}
    assert memory["tools"][0]["tool_name"] == "search"
    assert client.get(f"{CHAT}/sessions/nobody/memory").status_code == 404
