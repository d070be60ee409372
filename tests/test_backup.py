"""Backup and restore: one file, made while Parley works, put back only when it is sound."""

import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from chat_core.backup import back_up, restore
from chat_core.config import Settings
from chat_core.errors import InvalidInput, NotFound, StoreUnavailable
from chat_core.models import LOCAL_USER
from chat_core.serve import PROJECT_FOLDER
from chat_core.workbench import Workbench

NOW = datetime(2026, 1, 2, 3, 4, 5)
OpenBench = Callable[[], Workbench]


def titles_of(workbench: Workbench) -> list[str]:
    return [row.session.title for row in workbench.list_sessions(LOCAL_USER).rows]


def test_a_backup_made_while_parley_works_restores_what_was_there(settings: Settings, open_bench: OpenBench) -> None:
    first = open_bench()
    first.create_session(LOCAL_USER, title="kept")
    (settings.data_dir / "models.toml").write_text("# models")
    (settings.hermes_folder / "memories").mkdir(parents=True)
    (settings.hermes_folder / "memories" / "MEMORY.md").write_text("Likes tea.")
    archive = back_up(settings, settings.data_dir / "backups", NOW)
    first.create_session(LOCAL_USER, title="later")
    (settings.hermes_folder / "memories" / "MEMORY.md").write_text("Likes coffee.")
    first.close()

    aside = restore(settings, archive, NOW)

    second = open_bench()
    assert titles_of(second) == ["kept"]
    assert second.store.check() == []
    assert (settings.data_dir / "models.toml").read_text() == "# models"
    assert (settings.hermes_folder / "memories" / "MEMORY.md").read_text() == "Likes tea."
    assert aside is not None
    assert (aside / "hermes" / "memories" / "MEMORY.md").read_text() == "Likes coffee."
    assert (aside / "parley.db").exists()


def test_a_backup_is_private_and_holds_no_logs_and_no_tokens(settings: Settings, open_bench: OpenBench) -> None:
    open_bench()
    for name in ("bridge.json", "logs/bridge.log", "hermes/logs/agent.log", "work/s1/note.txt"):
        file = settings.data_dir / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    (settings.data_dir / "work" / "s1" / "link").symlink_to("/etc/passwd")
    archive = back_up(settings, settings.data_dir / "backups", NOW)
    assert archive.name == "parley-20260102-030405.tar.gz"
    assert archive.stat().st_mode & 0o777 == 0o600
    with tarfile.open(archive) as opened:
        files = {member.name for member in opened.getmembers() if not member.isdir()}
    assert files == {"parley.db", "work/s1/note.txt"}
    assert [file.name for file in archive.parent.iterdir()] == [archive.name]


def test_without_a_database_there_is_nothing_to_back_up(settings: Settings) -> None:
    with pytest.raises(NotFound, match="nothing to back up"):
        back_up(settings, settings.data_dir / "backups", NOW)


def test_restoring_into_an_empty_folder_needs_nothing_set_aside(settings: Settings, open_bench: OpenBench) -> None:
    open_bench().create_session(LOCAL_USER, title="kept")
    archive = back_up(settings, settings.data_dir.parent, NOW)
    elsewhere = settings.model_copy(update={"data_dir": settings.data_dir.parent / "new"})
    assert restore(elsewhere, archive, NOW) is None
    assert elsewhere.database_file.exists()


def test_restoring_while_parley_runs_is_refused(settings: Settings, open_bench: OpenBench) -> None:
    running = open_bench()
    archive = back_up(settings, settings.data_dir.parent, NOW)
    running.create_session(LOCAL_USER, title="untouched")
    with pytest.raises(StoreUnavailable, match="Stop it first"):
        restore(settings, archive, NOW)
    assert titles_of(running) == ["untouched"]


@pytest.mark.parametrize("damage", ["cut", "no archive", "no database", "foreign database", "missing"])
def test_what_is_no_sound_backup_is_refused_and_changes_nothing(
    settings: Settings, open_bench: OpenBench, tmp_path: Path, damage: str
) -> None:
    workbench = open_bench()
    workbench.create_session(LOCAL_USER, title="untouched")
    archive = damaged(back_up(settings, tmp_path, NOW), damage)
    workbench.close()
    with pytest.raises((InvalidInput, NotFound)):
        restore(settings, archive, NOW)
    assert titles_of(open_bench()) == ["untouched"]
    assert not list(settings.data_dir.glob(".restore-*"))


def test_a_backup_that_points_outside_unpacks_nothing_there(
    settings: Settings, open_bench: OpenBench, tmp_path: Path
) -> None:
    open_bench().close()
    archive = back_up(settings, tmp_path, NOW)
    hostile = tmp_path / "hostile.tar.gz"
    with tarfile.open(archive) as source, tarfile.open(hostile, "w:gz") as target:
        for member in source:
            target.addfile(member, source.extractfile(member) if member.isfile() else None)
        outside = tarfile.TarInfo("../../escaped.txt")
        target.addfile(outside)
        link = tarfile.TarInfo("work/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        target.addfile(link)
    restore(settings, hostile, NOW)
    assert not list(tmp_path.rglob("escaped.txt"))
    assert not (settings.data_dir / "work" / "link").is_symlink()


def damaged(archive: Path, damage: str) -> Path:
    content = archive.read_bytes()
    broken = archive.with_name("broken.tar.gz")
    if damage == "cut":
        broken.write_bytes(content[: len(content) // 2])
    elif damage == "no archive":
        broken.write_bytes(b"hello")
    elif damage in {"no database", "foreign database"}:
        file = archive.with_name("some-file")
        file.write_bytes(b"")
        with tarfile.open(broken, "w:gz") as archive_file:
            archive_file.add(file, "parley.db" if damage == "foreign database" else "other.txt")
    return broken


def test_the_command_says_where_the_backup_is_and_that_it_is_private(
    settings: Settings, open_bench: OpenBench, tmp_path: Path
) -> None:
    open_bench()
    command = [sys.executable, "-m", "chat_core.backup", "--to", str(tmp_path / "copies")]
    environment = {**os.environ, "PARLEY_DATA_DIR": str(settings.data_dir)}
    done = subprocess.run(
        command, cwd=PROJECT_FOLDER, env=environment, capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 0, done.stderr
    assert "copies/parley-" in done.stdout
    assert "API keys" in done.stdout


def test_files_that_an_agent_deletes_or_grows_meanwhile_spoil_no_backup(
    settings: Settings, open_bench: OpenBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_bench()
    work = settings.data_dir / "work" / "s1"
    work.mkdir(parents=True)
    for name in ("a-gone.txt", "b-grows.txt", "c-kept.txt"):
        (work / name).write_text("x" * 10)
    os.link(work / "c-kept.txt", work / "d-same.txt")
    look_at = tarfile.TarFile.gettarinfo

    def changes_then(archive: tarfile.TarFile, name: Path, arcname: str) -> tarfile.TarInfo:
        member = look_at(archive, name, arcname)
        if arcname.endswith("a-gone.txt"):
            (work / "a-gone.txt").unlink()
        if arcname.endswith("b-grows.txt"):
            (work / "b-grows.txt").write_text("y" * 5)
        return member

    monkeypatch.setattr(tarfile.TarFile, "gettarinfo", changes_then)
    with tarfile.open(back_up(settings, settings.data_dir / "backups", NOW)) as archive:
        sizes = {member.name: member.size for member in archive.getmembers() if member.name.startswith("work/s1/")}
    assert sizes == {"work/s1/b-grows.txt": 5, "work/s1/c-kept.txt": 10, "work/s1/d-same.txt": 10}
