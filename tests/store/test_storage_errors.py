"""What goes wrong with disks and files: said plainly, nothing touched, nothing claimed that is not stored."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from chat_core.bridge.run_host import LocalRunHost
from chat_core.config import Settings
from chat_core.errors import StoreUnavailable
from chat_core.models import Session, User
from chat_core.store.database import Database
from chat_core.workbench import Workbench, open_workbench
from tests.support.runs import contents, finish, wait_for
from tests.support.runtimes import GatedRuntime, answers, hangs_until_stop, thinks
from tests.support.waiting import until

OpenBench = Callable[[], Workbench]


@pytest.fixture
def made(open_bench: OpenBench, settings: Settings, user: User) -> Settings:
    """A data folder with one session, closed."""
    workbench = open_bench()
    workbench.create_session(user, title="kept")
    workbench.close()
    return settings


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chat_core.store.database.BUSY_TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr("chat_core.store.database._connect.__defaults__", (0.1,))


def snapshot(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file() and file.name != "parley.lock"}


def refusal(settings: Settings, host: LocalRunHost) -> str:
    with pytest.raises(StoreUnavailable) as refused:
        open_workbench(settings, host).close()
    return refused.value.message


# -- full ---------------------------------------------------------------------------------------------------------


def fill(database: Database) -> None:
    """Let the file grow no more, as a full disk would."""
    with database.write() as db:
        pages = db.execute("PRAGMA page_count").fetchone()[0]
    database._writer.execute(f"PRAGMA max_page_count = {pages}")


def make_room(database: Database) -> None:
    database._writer.execute("PRAGMA max_page_count = 1000000")


def test_a_full_disk_before_a_run_refuses_it_and_stores_nothing(
    workbench: Workbench, session: Session, user: User
) -> None:
    fill(workbench.store.database)
    with pytest.raises(StoreUnavailable, match="full"):
        workbench.ask(user, session.uuid, "x" * 100_000)
    assert workbench.tree(user, session.uuid) == []
    make_room(workbench.store.database)
    finish(workbench, user, workbench.ask(user, session.uuid, "hello").run_id)
    assert contents(workbench, user, session) == ["hello", "hello"]
    assert workbench.store.check() == []


def test_a_disk_that_fills_during_a_run_loses_nothing_once_there_is_room(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    text = "0123456789" * 5_000
    gated.steps = [thinks("first"), answers(text)]
    started = workbench.ask(user, gated_session.uuid, "go")
    gated.release(1)
    wait_for(workbench, user, started.run_id, "thinking")
    fill(workbench.store.database)
    gated.release()
    gated.wait_until_ended()
    until(lambda: workbench.trouble() is not None)
    assert workbench.run_state(user, started.run_id).status == "RUNNING"
    assert workbench.health()["status"] == "degraded"
    make_room(workbench.store.database)
    entries = finish(workbench, user, started.run_id)
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert workbench.message(user, started.message_uuid).content == text
    assert workbench.message(user, started.message_uuid).status == "SUCCESS"
    assert workbench.trouble() is None
    assert workbench.store.check() == []


def test_a_run_whose_end_could_not_be_stored_in_time_still_ends_as_it_ended(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chat_core.runner.FLUSH_SECONDS", 0.2)
    gated.steps = [answers("done " * 10_000)]
    started = workbench.ask(user, gated_session.uuid, "go")
    fill(workbench.store.database)
    gated.release()
    gated.wait_until_ended()
    until(lambda: workbench._pool.active == 0)
    make_room(workbench.store.database)
    finish(workbench, user, started.run_id)
    assert workbench.message(user, started.message_uuid).status == "SUCCESS"
    assert workbench.store.check() == []


def test_stop_reaches_the_agent_even_when_the_database_takes_no_changes(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [hangs_until_stop()]
    gated.release()
    started = workbench.ask(user, gated_session.uuid, "go")
    gated.wait_until_started()
    with closing(sqlite3.connect(workbench.settings.database_file)) as other:
        other.execute("BEGIN IMMEDIATE")
        workbench.store.database._writer.execute("PRAGMA busy_timeout = 50")
        workbench.stop(user, started.run_id)
        gated.wait_until_ended()
        other.rollback()
    finish(workbench, user, started.run_id)
    assert workbench.message(user, started.message_uuid).status == "STOPPED"


def test_a_run_rejoined_after_a_full_disk_and_a_restart_is_whole(
    open_bench: OpenBench, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [thinks("a"), answers("b" * 50_000)]
    first = open_bench()
    session = first.create_session(user, runtime="gated")
    started = first.ask(user, session.uuid, "go")
    gated.release(1)
    wait_for(first, user, started.run_id, "thinking")
    fill(first.store.database)
    gated.release()
    gated.wait_until_ended()
    until(lambda: first.trouble() is not None)
    first.close()
    second = open_bench()
    finish(second, user, started.run_id)
    assert contents(second, user, session) == ["go", "b" * 50_000]
    assert second.store.check() == []


# -- locked -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("impatient")
def test_a_database_locked_by_another_program_is_told_and_works_again_afterwards(
    workbench: Workbench, session: Session, user: User
) -> None:
    with closing(sqlite3.connect(workbench.settings.database_file)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            workbench.ask(user, session.uuid, "hello")
        assert workbench.list_sessions(user).rows[0].session.uuid == session.uuid
        other.rollback()
    finish(workbench, user, workbench.ask(user, session.uuid, "hello").run_id)
    assert contents(workbench, user, session) == ["hello", "hello"]


@pytest.mark.usefixtures("impatient")
def test_a_lock_during_a_run_delays_its_log_and_loses_nothing(
    workbench: Workbench, gated_session: Session, gated: GatedRuntime, user: User
) -> None:
    gated.steps = [answers("one "), answers("two")]
    started = workbench.ask(user, gated_session.uuid, "go")
    with closing(sqlite3.connect(workbench.settings.database_file)) as other:
        other.execute("BEGIN IMMEDIATE")
        gated.release()
        gated.wait_until_ended()
        until(lambda: workbench.trouble() is not None)
        other.rollback()
    entries = finish(workbench, user, started.run_id)
    assert "".join(entry.content for entry in entries if entry.kind == "answer") == "one two"
    assert workbench.store.check() == []


@pytest.mark.usefixtures("impatient")
def test_a_database_locked_at_the_start_is_refused_plainly(made: Settings, host: LocalRunHost) -> None:
    with closing(sqlite3.connect(made.database_file)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE chat_session SET title = title")
        assert "locked" in refusal(made, host)
        other.rollback()


# -- not ours to write --------------------------------------------------------------------------------------------


OPEN_AS_NOBODY = """
import os, sys, tempfile
from pathlib import Path
from chat_core.errors import StoreUnavailable
from chat_core.store.store import Store
with tempfile.TemporaryDirectory() as folder:  # imports what nobody could not read
    Store.open(Path(folder) / "parley.db").close()
if os.getuid() == 0:  # modes do not stop root
    os.setgid(65534); os.setuid(65534)
try:
    Store.open(Path(sys.argv[1])).close()
except StoreUnavailable as refused:
    print(refused.message)
"""


@pytest.fixture
def public(made: Settings) -> Iterator[Path]:
    """A copy of the data folder that every user of this machine can reach."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    shutil.copytree(made.data_dir, folder / "data")
    (folder / "data" / "parley.lock").unlink()
    (folder / "data" / "parley.db").chmod(0o644)
    yield folder / "data"
    (folder / "data").chmod(0o755)
    shutil.rmtree(folder)


def opened_as_nobody(file: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", OPEN_AS_NOBODY, str(file)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_read_only_folder_is_named(public: Path) -> None:
    before = snapshot(public)
    public.chmod(0o555)
    told = opened_as_nobody(public / "parley.db")
    assert "cannot be written" in told
    assert str(public) in told
    assert snapshot(public) == before


def test_a_read_only_file_is_named(public: Path) -> None:
    before = snapshot(public)
    public.chmod(0o777)
    (public / "parley.db").chmod(0o444)
    told = opened_as_nobody(public / "parley.db")
    assert "cannot be written" in told
    assert str(public / "parley.db") in told
    assert snapshot(public)["parley.db"] == before["parley.db"]


# -- damaged, newer, foreign --------------------------------------------------------------------------------------


def test_a_damaged_page_is_told_and_the_file_left_alone(made: Settings, host: LocalRunHost) -> None:
    body = bytearray(made.database_file.read_bytes())
    body[100:4000] = os.urandom(3900)
    made.database_file.write_bytes(bytes(body))
    before = snapshot(made.data_dir)
    assert "damaged" in refusal(made, host)
    assert snapshot(made.data_dir)["parley.db"] == before["parley.db"]


def test_a_database_of_another_program_is_refused_and_left_alone(settings: Settings, host: LocalRunHost) -> None:
    settings.data_dir.mkdir(parents=True)
    with closing(sqlite3.connect(settings.database_file)) as other:
        other.execute("CREATE TABLE theirs (x)")
    before = snapshot(settings.data_dir)
    assert "another program" in refusal(settings, host)
    assert snapshot(settings.data_dir)["parley.db"] == before["parley.db"]


def test_an_empty_file_becomes_a_new_database(settings: Settings, open_bench: OpenBench, user: User) -> None:
    settings.data_dir.mkdir(parents=True)
    settings.database_file.touch()
    open_bench().create_session(user)


def test_a_second_app_is_refused_and_the_first_works_on(
    workbench: Workbench, session: Session, settings: Settings, user: User
) -> None:
    program = (
        "import sys; from pathlib import Path; from chat_core.store.store import Store; Store.open(Path(sys.argv[1]))"
    )
    second = subprocess.run(
        [sys.executable, "-c", program, str(settings.database_file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert second.returncode == 1
    assert "in use by another Parley" in second.stderr
    finish(workbench, user, workbench.ask(user, session.uuid, "hello").run_id)
    assert workbench.store.check() == []


def test_a_database_whose_first_page_shows_no_tables_is_damaged_not_new(made: Settings, host: LocalRunHost) -> None:
    body = bytearray(made.database_file.read_bytes())
    body[103:105] = b"\0\0"  # the number of rows of the schema table on its first page
    body[100] = 13
    made.database_file.write_bytes(bytes(body))
    before = made.database_file.read_bytes()
    assert "damaged" in refusal(made, host)
    assert made.database_file.read_bytes() == before
