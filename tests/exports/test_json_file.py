import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings

from chat_core.errors import InvalidInput
from chat_core.exports.export_file import ExportFile, schema_text
from chat_core.exports.json_file import file_of, json_of, read_file, record_of
from chat_core.exports.markdown import active_branch
from chat_core.models import LOCAL_USER, User
from chat_core.store.store import Store
from chat_core.store.transfer import Transfer
from tests.exports.trees import session_files

DOCUMENT = Path(__file__).parents[2] / "docs" / "EXPORT.md"
TIME = "2026-01-01T00:00:00.000Z"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = Store.open(tmp_path_factory.mktemp("export") / "parley.db")
    yield store
    store.close()


def without_ids(value: Any) -> Any:
    """Name every id after the order in which it is met, so that trees compare equal up to ids."""
    names: dict[str, str] = {}
    keys = {"session_id", "message_id", "parent_id", "run_id", "question_id", "result_ref"}

    def walk(item: Any, key: str = "") -> Any:
        if isinstance(item, dict):
            return {name: walk(inner, name) for name, inner in item.items()}
        if isinstance(item, list):
            return [walk(inner) for inner in item]
        return names.setdefault(item, f"id{len(names)}") if key in keys and isinstance(item, str) else item

    return walk(value)


def as_json(file: ExportFile) -> Any:
    return json.loads(file.model_dump_json())


def import_file(store: Store, value: Any, user: User = LOCAL_USER) -> tuple[str, bool]:
    record = record_of(read_file(json.dumps(value)), user)
    return record.session.uuid, Transfer(store.database).insert(user, record)


@given(session_files())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_export_of_an_import_is_the_file_again_up_to_ids(store: Store, value: dict[str, Any]) -> None:
    session_id, _ = import_file(store, value)
    exported = file_of(Transfer(store.database).read(LOCAL_USER, session_id))
    assert without_ids(as_json(exported)) == without_ids(as_json(read_file(json.dumps(value))))
    assert store.check() == []


@given(session_files())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_importing_again_finds_the_session_even_from_its_own_export(store: Store, value: dict[str, Any]) -> None:
    session_id, _ = import_file(store, value)
    assert import_file(store, value) == (session_id, False)
    exported = json.loads(json_of(Transfer(store.database).read(LOCAL_USER, session_id)))
    assert exported["session"]["session_id"] == session_id
    assert import_file(store, exported) == (session_id, False)


@given(session_files())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_an_export_of_the_active_branch_is_a_session_of_its_own(store: Store, value: dict[str, Any]) -> None:
    session_id, _ = import_file(store, value)
    record = Transfer(store.database).read(LOCAL_USER, session_id)
    branch = json.loads(json_of(record, whole_tree=False))
    wanted = {item.message.uuid for item in active_branch(record.messages)}
    assert {message["message_id"] for message in branch["messages"]} == wanted
    branch_id, _ = import_file(store, branch)
    again = Transfer(store.database).read(LOCAL_USER, branch_id)
    contents = [item.message.content for item in active_branch(again.messages)]
    assert contents == [item.message.content for item in active_branch(record.messages)]
    assert store.check() == []


@given(session_files())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_every_export_is_what_the_schema_says(value: dict[str, Any]) -> None:
    record = record_of(read_file(json.dumps(value)), LOCAL_USER)
    jsonschema.validate(json.loads(json_of(record)), json.loads(schema_text()))


def test_two_users_import_one_file_into_two_sessions(store: Store) -> None:
    mine, first = import_file(store, simple())
    theirs, second = import_file(store, simple(), User(key="other"))
    assert first
    assert second
    assert mine != theirs
    assert Transfer(store.database).read(User(key="other"), theirs).session.owner == "other"
    assert store.check() == []


def test_a_run_that_was_at_work_is_interrupted_and_its_question_closed(store: Store) -> None:
    value = simple()
    answer = value["messages"][1]
    answer["status"] = "WAITING"
    answer["log"].pop()
    answer["log"].append(
        {"seq": 2, "kind": "clarify_request", "content": "?", "meta": {"question_id": "q"}, "at": TIME}
    )
    answer["runs"][0] |= {"status": "WAITING", "ended_at": None}
    answer["runs"][0]["questions"] = [
        {"question_id": "q", "kind": "clarify", "question": "?", "status": "WAITING", "asked_at": TIME}
    ]
    session_id, _ = import_file(store, value)
    item = Transfer(store.database).read(LOCAL_USER, session_id).messages[1]
    assert (item.message.status, item.runs[0].run.status) == ("INTERRUPTED", "INTERRUPTED")
    assert item.message.error is not None
    assert item.message.error.code == "imported_while_running"
    assert item.log[-1].kind == "run_interrupted"
    assert [question.status for question in item.questions] == ["CLOSED"]
    assert store.check() == []


def test_a_log_that_housekeeping_condensed_is_kept_with_its_gaps(store: Store) -> None:
    value = simple()
    answer = value["messages"][1]
    answer["log"] = [
        {"seq": 1, "seq_to": 5, "kind": "thinking", "content": "joined", "at": TIME},
        {"seq": 9, "kind": "run_finished", "content": "hi", "meta": {"run_id": "r", "status": "SUCCESS"}, "at": TIME},
    ]
    with pytest.raises(InvalidInput, match="entry 9 after 5"):
        read_file(json.dumps(value))
    answer["runs"][0]["condensed_at"] = TIME
    session_id, _ = import_file(store, value)
    log = Transfer(store.database).read(LOCAL_USER, session_id).messages[1].log
    assert [(entry.seq, entry.seq_to) for entry in log] == [(1, 5), (9, None)]
    assert store.check() == []


def simple() -> dict[str, Any]:
    """A session with one question and its answer."""
    return {
        "format": "parley-session",
        "version": 1,
        "session": {"session_id": "s", "created_at": TIME, "last_message_at": TIME, "updated_at": TIME},
        "messages": [
            {
                "message_id": "u",
                "role": "USER",
                "content": "hello",
                "status": "SENT",
                "branch_order": 1,
                "created_at": TIME,
            },
            {
                "message_id": "a",
                "parent_id": "u",
                "role": "ASSISTANT",
                "content": "hi",
                "status": "SUCCESS",
                "branch_order": 1,
                "run_id": "r",
                "created_at": TIME,
                "log": [
                    {"seq": 1, "kind": "run_started", "meta": {"run_id": "r"}, "at": TIME},
                    {"seq": 2, "kind": "run_finished", "meta": {"run_id": "r"}, "at": TIME},
                ],
                "runs": [{"run_id": "r", "status": "SUCCESS", "started_at": TIME, "ended_at": TIME}],
            },
        ],
    }


def changed(**changes: Any) -> dict[str, Any]:
    """The simple session with fields replaced: `a__status="x"` is a field of message a, `log__` of its first entry."""
    value = simple()
    user, answer = value["messages"]
    parts = {"u": user, "a": answer, "s": value["session"], "f": value, "r": answer["runs"][0], "l": answer["log"][0]}
    for name, item in changes.items():
        part, field = name.split("__")
        parts[part][field] = item
    return value


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (changed(f__format="other"), "not a session exported by Parley"),
        (changed(f__version=2), "newer Parley"),
        (changed(f__version="x"), "version"),
        (changed(f__extra=1), "extra"),
        (changed(a__parent_id="nope"), "parent does not come before it"),
        (changed(a__parent_id="a"), "parent does not come before it"),
        (changed(a__parent_id=None), "answers a USER message"),
        (changed(a__message_id="u"), "there twice"),
        (changed(u__is_active=False), "not exactly one version is active"),
        (changed(u__status="SUCCESS"), "cannot be SUCCESS"),
        (changed(u__role="SYSTEM", u__status="RESET"), "follows another message"),
        (changed(u__run_id="r"), "has no runs"),
        (changed(a__status="RUNNING"), "differ"),
        (changed(r__status="RUNNING"), "differ"),
        (changed(a__run_id="other"), "not that of its last run"),
        (changed(l__seq=0), "greater than or equal to 1"),
        (changed(l__seq=2), "entry 2 after 0"),
        (changed(l__seq_to=7), "entry 2 after 7"),
        (changed(l__kind="surprise"), "kind"),
        (changed(l__kind="run_failed"), "no single end"),
        (changed(l__meta={"result_ref": "gone"}), "tool result of entry 1 is missing"),
        (changed(s__created_at="yesterday"), "created_at"),
        (changed(s__created_at="2026-01-01T00:00:00"), "timezone"),
        (changed(s__created_at="0001-01-01T00:00:00+14:00"), "out of range"),
        (changed(s__session_id=""), "session_id"),
    ],
)
def test_a_file_that_could_not_be_a_session_is_refused_with_the_reason(value: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        read_file(json.dumps(value))


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"5", b'{"format":' + b"[" * 200_000, b"\xff\xfe", b'{"format": NaN}']
)
def test_what_is_no_session_at_all_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        read_file(data)


def test_text_that_cannot_be_stored_is_made_storable(store: Store) -> None:
    value = changed(u__content="a\udc88\x00b", a__content="\ud83d\ude00")
    session_id, _ = import_file(store, value)
    messages = Transfer(store.database).read(LOCAL_USER, session_id).messages
    assert [item.message.content for item in messages] == ["a\ufffd\ufffdb", "\U0001f600"]


def test_times_are_kept_to_the_millisecond_in_utc() -> None:
    file = read_file(json.dumps(changed(s__created_at="2026-05-01T12:00:00.123987+02:00")))
    assert json.loads(file.model_dump_json())["session"]["created_at"] == "2026-05-01T10:00:00.123Z"


def test_the_document_shows_the_schema_of_the_models() -> None:
    shown = DOCUMENT.read_text("utf-8").split("```json\n")[-1].split("\n```")[0]
    assert shown == schema_text(), "run: python -m tests.exports.write_schema"
    jsonschema.Draft202012Validator.check_schema(ExportFile.model_json_schema())
