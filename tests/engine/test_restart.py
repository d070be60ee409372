"""What survives when the app goes away and comes back, with and without its Bridge."""

from collections.abc import Callable

import pytest

from chat_core.bridge.run_host import LocalRunHost
from chat_core.config import Settings
from chat_core.errors import StoreUnavailable
from chat_core.models import User
from chat_core.workbench import Workbench, open_workbench
from tests.support.runs import contents, finish, wait_for
from tests.support.runtimes import GatedRuntime, answers, asks, calls_tool, emits, thinks

Open = Callable[..., Workbench]


def test_a_run_is_rejoined_after_the_app_was_gone_and_nothing_is_lost_or_doubled(
    open_bench: Open, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [thinks("a"), answers("one "), answers("two "), answers("three")]
    first = open_bench()
    session = first.create_session(user, runtime="gated")
    started = first.ask(user, session.uuid, "go")
    gated.release(2)
    before = wait_for(first, user, started.run_id, "answer")
    first.close()
    gated.release(1)
    second = open_bench()
    gated.release()
    entries = finish(second, user, started.run_id)
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert before in entries
    assert "".join(entry.content for entry in entries if entry.kind == "answer") == "one two three"
    assert contents(second, user, session) == ["go", "one two three"]
    assert second.store.check() == []


def test_a_waiting_question_can_be_answered_after_a_restart(open_bench: Open, gated: GatedRuntime, user: User) -> None:
    gated.steps = [asks("Which?", ["red"])]
    gated.release()
    first = open_bench()
    session = first.create_session(user, runtime="gated")
    started = first.ask(user, session.uuid, "go")
    wait_for(first, user, started.run_id, "clarify_request")
    first.close()
    second = open_bench()
    question = second.run_state(user, started.run_id).question
    assert question is not None
    second.answer(user, started.run_id, question.question_id, "red")
    finish(second, user, started.run_id)
    assert contents(second, user, session) == ["go", "You said red."]


def test_a_run_whose_bridge_is_gone_becomes_interrupted_and_keeps_everything(
    open_bench: Open, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [
        thinks("Hm."),
        calls_tool("todo"),
        emits("tool_call", call_id="open", name="terminal", args={}),
        answers("partial"),
        answers("never"),
    ]
    first = open_bench()
    session = first.create_session(user, runtime="gated")
    started = first.ask(user, session.uuid, "go")
    gated.release(4)
    wait_for(first, user, started.run_id, "answer")
    first.close()
    second = open_bench(host=LocalRunHost({"gated": GatedRuntime()}))
    entries = finish(second, user, started.run_id)
    message = second.message(user, started.message_uuid)
    assert (message.status, message.content) == ("INTERRUPTED", "partial")
    assert message.error is not None
    assert message.error.code == "bridge_lost"
    assert [entry.kind for entry in entries[-2:]] == ["tool_result", "run_interrupted"]
    assert entries[-2].meta["outcome"] == "unknown"
    assert not second.has_activity(user)
    assert second.store.check() == []


def test_continue_goes_on_in_the_same_message_with_the_kept_turn(
    open_bench: Open, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [calls_tool("todo", result="made"), answers("first half"), answers("never")]
    first = open_bench()
    session = first.create_session(user, runtime="gated")
    started = first.ask(user, session.uuid, "go")
    gated.release(2)
    wait_for(first, user, started.run_id, "answer")
    first.close()
    fresh = GatedRuntime([answers("second half")])
    fresh.release()
    second = open_bench(host=LocalRunHost({"gated": fresh}))
    finish(second, user, started.run_id)
    again = second.continue_run(user, started.message_uuid)
    assert again.message_uuid == started.message_uuid
    entries = finish(second, user, again.run_id)
    assert contents(second, user, session) == ["go", "first half\n\nsecond half"]
    given = [message for turn in fresh.requests[0].contexts for message in turn]
    assert [message["role"] for message in given] == ["user", "assistant", "tool", "assistant"]
    assert given[-1]["content"] == "first half"
    assert entries[0].kind == "run_started"
    assert entries[0].seq > 1
    finish(second, user, second.ask(user, session.uuid, "next").run_id)
    later = [message["content"] for turn in fresh.requests[-1].contexts for message in turn]
    assert later[0] == "go"
    assert later[-1] == "second half"
    assert second.store.check() == []


def test_one_process_owns_a_data_folder(workbench: Workbench, settings: Settings, host: LocalRunHost) -> None:
    with pytest.raises(StoreUnavailable, match="in use by another Parley"):
        open_workbench(settings, host)
    assert workbench.store.check() == []


def test_a_newer_database_is_refused_and_left_alone(open_bench: Open, settings: Settings) -> None:
    first = open_bench()
    with first.store.database.write() as db:
        db.execute(
            "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('parley', 'm999_future', 'now')"
        )
    first.close()
    before = settings.database_file.read_bytes()
    with pytest.raises(StoreUnavailable, match="newer Parley"):
        open_bench()
    assert settings.database_file.read_bytes() == before


def test_a_corrupt_database_is_refused_and_left_alone(open_bench: Open, settings: Settings) -> None:
    settings.data_dir.mkdir(parents=True)
    settings.database_file.write_bytes(b"not a database at all" * 100)
    before = settings.database_file.read_bytes()
    with pytest.raises(StoreUnavailable, match="damaged"):
        open_bench()
    assert settings.database_file.read_bytes() == before
