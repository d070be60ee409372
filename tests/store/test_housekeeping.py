"""Ended logs are condensed, old records go when asked to, and space comes back."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from chat_core import retention
from chat_core.bridge.run_host import LocalRunHost
from chat_core.config import Settings
from chat_core.errors import StoreUnavailable
from chat_core.models import LogEntry, Session, Started, User
from chat_core.workbench import Workbench, open_workbench
from tests.support.runs import finish
from tests.support.runtimes import GatedRuntime, answers, calls_tool, chunks, emits, hangs_until_stop, thinks
from tests.support.stored import add_message

OPEN = threading.Event()
ROW_BYTES = 100
"""What a row costs besides its text, generously."""


def later(hours: float = 2) -> datetime:
    return datetime.now(UTC) + timedelta(hours=hours)


def log_bytes(workbench: Workbench) -> int:
    with workbench.store.database.read() as db:
        sizes = db.execute(
            "SELECT sum(length(CAST(content AS BLOB)) + length(COALESCE(meta_json, '')) + ?) FROM chat_message_log",
            (ROW_BYTES,),
        )
        return int(sizes.fetchone()[0])


def long_run(workbench: Workbench, session: Session, gated: GatedRuntime, user: User) -> Started:
    """A run with many thinking and answer entries that no writer has joined."""
    gated.steps = [
        *(thinks(f"thought {number} " + "字" * 100) for number in range(60)),
        calls_tool("todo", result="x" * 100_000),
        *(answers(f"word {number} ") for number in range(60)),
    ]
    gated.release()
    started = workbench.ask(user, session.uuid, "go")
    finish(workbench, user, started.run_id)
    return started


@pytest.fixture
def unjoined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every delta becomes a row of its own, as with a slow model."""
    monkeypatch.setattr("chat_core.log_writer._DELTAS", frozenset())


def joined_text(log: list[LogEntry], kind: str) -> str:
    return "".join(entry.content for entry in log if entry.kind == kind)


@pytest.mark.usefixtures("unjoined")
def test_an_hour_after_the_end_answers_go_and_thinking_is_joined_into_rows_of_4_kib(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    started = long_run(workbench, gated_session, gated, user)
    before = workbench.log(user, started.message_uuid)
    assert workbench.store.housekeeping.condense(datetime.now(UTC), OPEN) == 0
    assert workbench.store.housekeeping.condense(later(), OPEN) == 1
    after = workbench.log(user, started.message_uuid)
    thinking = [entry for entry in after if entry.kind == "thinking"]
    assert sum(entry.kind == "answer" for entry in before) == 60
    assert not [entry for entry in after if entry.kind == "answer"]
    assert joined_text(after, "thinking") == joined_text(before, "thinking")
    assert len(thinking) < 8
    assert max(len(entry.content.encode()) for entry in thinking) <= 4096
    assert [entry.seq for entry in thinking[1:]] == [(entry.seq_to or 0) + 1 for entry in thinking[:-1]]
    others = {entry.seq: entry for entry in before if entry.kind not in ("answer", "thinking")}
    assert {entry.seq: entry for entry in after if entry.kind != "thinking"} == others
    assert workbench.store.housekeeping.condense(later(), OPEN) == 0
    assert workbench.store.check() == []


@pytest.mark.usefixtures("unjoined")
def test_condensing_that_was_cut_off_goes_on_where_it_was(
    workbench: Workbench,
    gated_session: Session,
    gated: GatedRuntime,
    user: User,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("chat_core.store.housekeeping.ROWS_AT_ONCE", 7)
    started = long_run(workbench, gated_session, gated, user)
    before = workbench.log(user, started.message_uuid)
    closing = threading.Event()
    closing.set()
    rounds = 0
    while workbench.store.housekeeping.condense(later(), closing) == 0:
        assert workbench.store.check() == []
        rounds += 1
        assert rounds < 40
    after = workbench.log(user, started.message_uuid)
    assert rounds > 3
    assert joined_text(after, "thinking") == joined_text(before, "thinking")
    assert joined_text(after, "answer") == ""


@pytest.mark.usefixtures("unjoined")
def test_a_continued_message_keeps_the_log_of_its_newer_run(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [answers("a"), answers("b"), hangs_until_stop()]
    gated.release()
    started = workbench.ask(user, gated_session.uuid, "go")
    for entry in workbench.follow(user, started.run_id):
        if entry.content == "b":
            workbench.stop(user, started.run_id)
    gated.steps = [answers("c"), answers("d"), hangs_until_stop()]
    again = workbench.continue_run(user, started.message_uuid)
    for entry in workbench.follow(user, again.run_id):
        if entry.content == "d":
            break
    assert workbench.store.housekeeping.condense(later(), OPEN) == 1
    answered = [entry.content for entry in workbench.log(user, started.message_uuid) if entry.kind == "answer"]
    assert answered == ["c", "d"]
    assert workbench.store.check() == []
    workbench.stop(user, again.run_id)
    finish(workbench, user, again.run_id)
    assert workbench.message(user, started.message_uuid).content == "ab\n\ncd"


def test_a_late_reader_of_a_condensed_run_gets_the_end_with_the_whole_text(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    started = long_run(workbench, gated_session, gated, user)
    workbench.store.housekeeping.condense(later(), OPEN)
    last = finish(workbench, user, started.run_id)[-1]
    assert last.kind == "run_finished"
    assert last.content == workbench.message(user, started.message_uuid).content


def test_bc26_the_log_of_a_long_answer_stays_small_and_its_space_comes_back(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, settings: Settings, user: User
) -> None:
    text_bytes = 400_000
    gated.steps = [chunks(text_bytes // 20, "twenty characters...")]
    gated.release()
    started = workbench.ask(user, gated_session.uuid, "go")
    finish(workbench, user, started.run_id, timeout=60)
    assert len(workbench.message(user, started.message_uuid).content) == text_bytes
    assert log_bytes(workbench) <= 5 * text_bytes
    workbench.store.housekeeping.condense(later(), OPEN)
    assert log_bytes(workbench) <= 1.5 * text_bytes
    workbench.store.housekeeping.give_space_back(OPEN)
    assert file_bytes(settings) <= 3 * text_bytes + 300_000
    workbench.delete_session(user, gated_session.uuid, undo_seconds=0)
    workbench.store.housekeeping.give_space_back(OPEN)
    assert file_bytes(settings) < 500_000
    assert workbench.store.check() == []


def test_a_step_gives_back_as_many_pages_as_it_says(workbench: Workbench, session: Session, user: User) -> None:
    for _ in range(20):
        add_message(workbench, session, "x" * 50_000)
    workbench.delete_session(user, session.uuid, undo_seconds=0)
    database = workbench.store.database

    def unused() -> int:
        with database.read() as db:
            return int(db.execute("PRAGMA freelist_count").fetchone()[0])

    before = unused()
    assert before > 200
    assert database.vacuum_some(100)
    assert unused() == before - 100
    assert not database.vacuum_some(1_000_000)
    assert unused() == 0


def file_bytes(settings: Settings) -> int:
    folder: Path = settings.data_dir
    return sum(file.stat().st_size for file in folder.glob("parley.db*"))


def test_old_records_are_told_first_and_removed_then(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    started = long_run(workbench, gated_session, gated, user)
    before = workbench.log(user, started.message_uuid)
    now = later(24 * 10)
    would = workbench.store.housekeeping.old_records(now, 9)
    assert (would.runs, would.entries, would.tool_results) == (1, len(before) - 2, 1)
    assert would.text_bytes > 0
    assert would.tool_result_bytes > 0
    assert workbench.log(user, started.message_uuid) == before
    assert workbench.old_records(user, 9).runs == 0
    assert workbench.store.housekeeping.remove_old_records(now, 11, OPEN) == 0
    assert workbench.store.housekeeping.remove_old_records(now, 9, OPEN) == 1
    first, note, last = workbench.log(user, started.message_uuid)
    assert (first.kind, note.kind, last.kind) == ("run_started", "status", "run_finished")
    assert note.meta == {"code": "record_removed", "days": 9}
    assert (note.seq, note.seq_to) == (2, last.seq - 1)
    assert workbench.message(user, started.message_uuid).content.startswith("word 0 word 1")
    assert workbench.store.housekeeping.old_records(now, 9).runs == 0
    with workbench.store.database.read() as db:
        assert db.execute("SELECT count(*) FROM tool_result").fetchone()[0] == 0
    assert workbench.store.check() == []


def test_removing_that_was_cut_off_goes_on_and_a_condensed_log_can_be_removed(
    workbench: Workbench,
    gated_session: Session,
    gated: GatedRuntime,
    user: User,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("chat_core.store.housekeeping.ROWS_AT_ONCE", 1)
    gated.steps = [
        thinks("a"),
        calls_tool("todo", result="x" * 100_000),
        answers("b"),
        emits("status", text="c", level="info"),
    ]
    gated.release()
    started = workbench.ask(user, gated_session.uuid, "go")
    finish(workbench, user, started.run_id)
    workbench.store.housekeeping.condense(later(), OPEN)
    closing = threading.Event()
    closing.set()
    rounds = 0
    while workbench.store.housekeeping.remove_old_records(later(100), 1, closing) == 0:
        assert workbench.store.check() == []
        rounds += 1
        assert rounds < 20
    assert rounds > 2
    assert len(workbench.log(user, started.message_uuid)) == 3
    assert workbench.store.check() == []


def test_housekeeping_lets_runs_write_between_its_steps(
    workbench: Workbench, gated_session: Session, session: Session, gated: GatedRuntime, user: User
) -> None:
    """Readers and writers get in while a long housekeeping is under way."""
    long_run(workbench, gated_session, gated, user)
    inside, let_go = threading.Event(), threading.Event()

    class Held(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            inside.set()
            return not let_go.wait(10)

    thread = threading.Thread(target=workbench.store.housekeeping.condense, args=(later(), Held()))
    thread.start()
    assert inside.wait(5)
    finish(workbench, user, workbench.ask(user, session.uuid, "hello").run_id)
    let_go.set()
    thread.join(10)
    assert workbench.store.check() == []


def test_a_run_is_refused_when_the_disk_is_nearly_full_and_nothing_is_stored(
    workbench: Workbench, session: Session, user: User
) -> None:
    workbench.store.database.min_free_bytes = 1 << 60
    with pytest.raises(StoreUnavailable, match="MB left"):
        workbench.ask(user, session.uuid, "hello")
    assert workbench.tree(user, session.uuid) == []
    workbench.store.database.min_free_bytes = 0
    finish(workbench, user, workbench.ask(user, session.uuid, "hello").run_id)


def test_housekeeping_runs_by_itself(
    settings: Settings, host: LocalRunHost, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chat_core.workbench.FIRST_HOUSEKEEPING_SECONDS", 0.0)
    done = threading.Event()
    monkeypatch.setattr("chat_core.store.housekeeping.Housekeeping.give_space_back", lambda _self, _closing: done.set())
    workbench = open_workbench(settings, host)
    try:
        assert done.wait(5)
        add_message(workbench, workbench.create_session(user), "x")
    finally:
        workbench.close()


def test_the_dry_run_of_the_retention_works_beside_a_running_parley(
    workbench: Workbench,
    gated_session: Session,
    gated: GatedRuntime,
    user: User,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    started = long_run(workbench, gated_session, gated, user)
    before = workbench.log(user, started.message_uuid)
    monkeypatch.setenv("PARLEY_DATA_DIR", str(workbench.settings.data_dir))
    assert retention.main(["--days", "0"]) == 0
    assert "records of 1 runs would go" in capsys.readouterr().out
    assert retention.main(["--days", "9"]) == 0
    assert "records of 0 runs would go" in capsys.readouterr().out
    assert workbench.log(user, started.message_uuid) == before
    monkeypatch.setenv("PARLEY_DATA_DIR", str(workbench.settings.data_dir / "nothing"))
    assert retention.main(["--days", "9"]) == 1
