"""Copies everything worth keeping into one file, also while Parley works, and puts it back.

`python -m chat_core.backup [--to FOLDER]` and `python -m chat_core.backup --restore FILE`.
"""

import argparse
import fcntl
import os
import shutil
import sqlite3
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path

from chat_core.config import Settings, load_settings
from chat_core.errors import InvalidInput, NotFound, ParleyError, StoreUnavailable
from chat_core.store.database import copy_database

DATABASE = "parley.db"
KEPT_FILES = ("settings.toml", "models.toml")
KEPT_FOLDERS = ("hermes", "work")
LEFT_OUT = {"logs", "cache", "sandboxes", "__pycache__"}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="chat_core.backup", description="Back up Parley's data, or restore it.")
    parser.add_argument("--to", type=Path, help="folder for the backup (default: backups/ in the data folder)")
    parser.add_argument("--restore", type=Path, metavar="FILE", help="put this backup back")
    wanted = parser.parse_args(arguments)
    try:
        settings = load_settings()
        if wanted.restore is not None:
            aside = restore(settings, wanted.restore, datetime.now())
            print(f"Restored {wanted.restore} into {settings.data_dir}.")
            if aside is not None:
                print(f"What was there before is kept in {aside}.")
        else:
            file = back_up(settings, wanted.to or settings.data_dir / "backups", datetime.now())
            print(f"{file}  ({file.stat().st_size / 1e6:.1f} MB)")
            print("It holds conversations and API keys: keep it as private as the data folder.")
    except ParleyError as problem:
        print(problem.message, file=sys.stderr)
        return 1
    except OSError as problem:
        print(f"{problem.filename or 'A file'}: {problem.strerror or problem}. Nothing was changed.", file=sys.stderr)
        return 1
    return 0


def back_up(settings: Settings, folder: Path, now: datetime) -> Path:
    """Return a new archive of the data folder; the database in it is one consistent moment.

    The archive appears under its name only when it is complete, and only its owner can read it.
    """
    if not settings.database_file.exists():
        raise NotFound(f"There is nothing to back up: {settings.data_dir} holds no database.")
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"parley-{now:%Y%m%d-%H%M%S}.tar.gz"
    part = target.with_name(target.name + ".part")
    with tempfile.TemporaryDirectory(dir=folder, prefix=".backup-") as scratch:
        copy = Path(scratch) / DATABASE
        copy_database(settings.database_file, copy)
        try:
            with open(part, "wb", opener=_private) as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
                archive.add(copy, DATABASE)
                for name, source in _kept(settings):
                    _add(archive, source, name, Path(scratch) / "copy")
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    return target


def restore(settings: Settings, archive_file: Path, now: datetime) -> Path | None:
    """Put a backup in the place of the data there is; return the folder that keeps what was there before.

    Refused, with nothing changed, while Parley runs and for a file that is no sound backup.
    """
    data_dir = settings.data_dir
    data_dir.mkdir(parents=True, exist_ok=True)
    with _data_folder_locked(data_dir), tempfile.TemporaryDirectory(dir=data_dir, prefix=".restore-") as scratch:
        unpacked = Path(scratch)
        _unpack(archive_file, unpacked)
        places = {name: data_dir / name for name in (DATABASE, *KEPT_FILES, *KEPT_FOLDERS)}
        places["hermes"] = settings.hermes_folder
        aside = data_dir / f"before-restore-{now:%Y%m%d-%H%M%S}"
        for name, place in places.items():
            _move(place, aside / name)
            _move(unpacked / name, place)
        for leftover in ("-wal", "-shm"):  # they belong to the database that went aside
            _move(data_dir / (DATABASE + leftover), aside / (DATABASE + leftover))
    return aside if aside.exists() else None


def _add(archive: tarfile.TarFile, source: Path, name: str, scratch: Path) -> None:
    """Add a file or a folder; what an agent at work deletes or changes meanwhile spoils nothing."""
    try:
        member = archive.gettarinfo(source, name)
        if member is not None and member.islnk():  # a file with two names is kept twice
            member.type, member.linkname = tarfile.REGTYPE, ""
        if member is None or _without_clutter(member) is None:
            return
        if member.isdir():
            archive.addfile(member)
            for child in sorted(source.iterdir()):
                _add(archive, child, f"{name}/{child.name}", scratch)
            return
        shutil.copyfile(source, scratch)
        member.size = scratch.stat().st_size
    except FileNotFoundError:
        return
    with open(scratch, "rb") as content:
        archive.addfile(member, content)


def _kept(settings: Settings) -> Iterator[tuple[str, Path]]:
    places = {name: settings.data_dir / name for name in (*KEPT_FILES, *KEPT_FOLDERS)}
    places["hermes"] = settings.hermes_folder
    return ((name, place) for name, place in places.items() if place.exists())


def _without_clutter(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return member if _is_plain(member) and not LEFT_OUT & set(Path(member.name).parts[1:]) else None


def _is_plain(member: tarfile.TarInfo) -> bool:
    path = Path(member.name)
    return (member.isfile() or member.isdir()) and not path.is_absolute() and ".." not in path.parts


def _unpack(archive_file: Path, folder: Path) -> None:
    if not archive_file.is_file():
        raise NotFound(f"There is no file {archive_file}.")
    try:
        with tarfile.open(archive_file) as archive:
            # Python before 3.11.4 has no filters: what we wrote is files and folders, nothing else is unpacked.
            archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
            archive.extractall(folder, [member for member in archive if _is_plain(member)])  # noqa: S202
        with closing(sqlite3.connect(folder / DATABASE)) as database:
            found = database.execute("PRAGMA quick_check").fetchone()[0]
            is_ours = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'chat_session'").fetchone()
    except (tarfile.TarError, EOFError, sqlite3.Error) as error:
        raise InvalidInput(f"{archive_file} is not a sound backup of Parley ({error}). Nothing was changed.") from None
    if found != "ok" or not is_ours:
        raise InvalidInput(f"{archive_file} is not a sound backup of Parley. Nothing was changed.")


def _move(source: Path, target: Path) -> None:
    if source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(source, target)


@contextmanager
def _data_folder_locked(folder: Path) -> Iterator[None]:
    with open(folder / "parley.lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StoreUnavailable(
                f"Parley is running on {folder}. Stop it first, then restore. Nothing was changed."
            ) from None
        yield


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
