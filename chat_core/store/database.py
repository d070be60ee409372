"""The one database file: its lock, its connections and the two doors `write` and `read`.

One writer connection under one lock; every transaction begins IMMEDIATE, because a transaction that reads
first and writes later fails with "database is locked" as soon as somebody else wrote in between.
"""

import errno
import fcntl
import os
import queue
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO

from sqlite_utils import Database as SqliteUtils

from chat_core.errors import StoreUnavailable
from chat_core.store import search_text
from chat_core.store.migrations import migrations

BUSY_TIMEOUT_SECONDS = 10.0
READERS = 8
CLOSE_SECONDS = 2.0
MIN_FREE_BYTES = 64 * 2**20
EMPTY_PAGES = 2
"""A database that was just made has no more pages; with more, but without a table, its first page is damaged."""

_DAMAGED = (
    "The database {file} is damaged. Move it away and restore the last backup (see README, Backup); "
    "nothing was changed."
)
_READ_ONLY = "The database {file} cannot be written. Make the file and its folder writable."


class Database:
    """An opened data folder. Open it with `Database.open`; close it with `close`."""

    def __init__(self, file: Path, lock: IO[str], writer: sqlite3.Connection) -> None:
        self.file = file
        self.min_free_bytes = MIN_FREE_BYTES
        self._lock_file = lock
        self._writer = writer
        self._write_lock = threading.Lock()
        self._readers: queue.LifoQueue[sqlite3.Connection] = queue.LifoQueue()
        self._reader_slots = threading.Semaphore(READERS)
        self._closed = False

    @classmethod
    def open(cls, file: Path) -> "Database":
        """Open or create the database and bring its schema up to date.

        Raises `StoreUnavailable` with a plain sentence when the folder is in use by another Parley, cannot be
        written, or holds a database that is corrupt or newer than this program. Nothing is changed then.
        """
        lock = _lock_folder(file.parent)
        try:
            with _plain_errors(file):
                if file.exists() and not os.access(file, os.W_OK):
                    # SQLite would open it and complain only at the first change.
                    raise StoreUnavailable(_READ_ONLY.format(file=file))
                writer = _connect(file)
                try:
                    _refuse_newer(writer, file)
                    if not writer.execute("PRAGMA schema_version").fetchone()[0]:
                        writer.execute("PRAGMA auto_vacuum = INCREMENTAL")
                    writer.execute("PRAGMA journal_mode = WAL")
                    migrations.apply(SqliteUtils(writer))
                    writer.row_factory = sqlite3.Row
                except BaseException:
                    writer.close()
                    raise
        except BaseException:
            lock.close()
            raise
        with suppress(PermissionError):  # the file of another user who lets us write
            file.chmod(0o600)
        return cls(file, lock, writer)

    @classmethod
    @contextmanager
    def reading(cls, file: Path) -> Iterator["Database"]:
        """Only read the database, also while another process works on it. Raises `StoreUnavailable`."""
        with _plain_errors(file), closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as reader:
            _refuse_newer(reader, file)
            with open(os.devnull) as no_lock:
                database = cls(file, no_lock, reader)
                yield database
                database.close()

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One transaction that is wholly stored or not at all. Never nest it, never wait for a network inside it."""
        with self._write_lock, _plain_errors(self.file):
            if self._closed:
                raise StoreUnavailable("The database is closed because Parley is stopping.")
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A read-only connection with one consistent view; it never waits for the writer."""
        with self._reader_slots, _plain_errors(self.file):
            if self._closed:
                raise StoreUnavailable("The database is closed because Parley is stopping.")
            try:
                connection = self._readers.get_nowait()
            except queue.Empty:
                connection = _connect(self.file)
                connection.execute("PRAGMA query_only = ON")
                connection.row_factory = sqlite3.Row
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                if self._closed:
                    connection.close()
                else:
                    self._readers.put(connection)

    def refuse_when_full(self) -> None:
        """Raise `StoreUnavailable` when the disk has no room for a run to store what it does."""
        free = shutil.disk_usage(self.file.parent).free
        if free < self.min_free_bytes:
            raise StoreUnavailable(
                f"The disk that holds {self.file.parent} has only {free // 2**20} MB left; a run needs "
                f"{self.min_free_bytes // 2**20} MB. Free some space, then send again; your text is kept."
            )

    def vacuum_some(self, pages: int) -> bool:
        """Give at most so many unused pages back to the disk; True when there are more."""
        with self._write_lock, _plain_errors(self.file):
            if self._closed:
                return False
            # Each step of the statement frees one page, and only `executescript` takes every step.
            self._writer.executescript(f"PRAGMA incremental_vacuum({pages})")
            return bool(self._writer.execute("PRAGMA freelist_count").fetchone()[0])

    def cut_wal(self) -> None:
        """Move what the write-ahead log holds into the file and cut it to nothing, unless readers are in the way."""
        # A connection of its own with little patience: waiting for readers must not hold up the writer.
        with _plain_errors(self.file), closing(_connect(self.file, timeout_seconds=0.1)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Close every connection and give the data folder free. Harmless twice."""
        with self._write_lock:
            if self._closed:
                return
            self._closed = True
            self._writer.close()
        # The last connection to close moves the write-ahead log into the file: wait for readers at work.
        deadline = time.monotonic() + CLOSE_SECONDS
        for _ in range(READERS):
            self._reader_slots.acquire(timeout=max(0.0, deadline - time.monotonic()))
        for _ in range(READERS):
            self._reader_slots.release()
        while True:
            try:
                self._readers.get_nowait().close()
            except queue.Empty:
                break
        self._lock_file.close()


def copy_database(source_file: Path, target_file: Path) -> None:
    """Write one consistent moment of the database to a new file, also while another process works on it.

    The target is private to its owner. Raises `StoreUnavailable` when the copy is not sound.
    """
    target_file.touch(mode=0o600)
    with (
        _plain_errors(source_file),
        closing(sqlite3.connect(f"{source_file.absolute().as_uri()}?mode=ro", uri=True, timeout=10)) as source,
        closing(sqlite3.connect(target_file)) as copy,
    ):
        # In one step, which is one read transaction: in several, each commit of the writer would start it anew.
        source.backup(copy)
        found = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise StoreUnavailable(f"The database {source_file} is damaged ({found}); the copy was not kept.")


def _connect(file: Path, timeout_seconds: float = BUSY_TIMEOUT_SECONDS) -> sqlite3.Connection:
    connection = sqlite3.connect(
        file, timeout=timeout_seconds, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = NORMAL")
    search_text.register(connection)
    return connection


def _refuse_newer(writer: sqlite3.Connection, file: Path) -> None:
    known = {migration.name for migration in migrations.pending(SqliteUtils(memory=True))}
    if writer.execute("SELECT 1 FROM sqlite_master WHERE name = '_sqlite_migrations'").fetchone():
        applied = {
            row[0]
            for row in writer.execute("SELECT name FROM _sqlite_migrations WHERE migration_set = ?", (migrations.name,))
        }
        if applied - known:
            raise StoreUnavailable(
                f"The database {file} was written by a newer Parley. Start that version, or use another data folder "
                "(PARLEY_DATA_DIR). Nothing was changed."
            )
    elif writer.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise StoreUnavailable(f"{file} is a database of another program. Nothing was changed.")
    elif writer.execute("PRAGMA page_count").fetchone()[0] > EMPTY_PAGES:
        raise StoreUnavailable(_DAMAGED.format(file=file))


def _lock_folder(folder: Path) -> IO[str]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder / "parley.lock", "a+")  # noqa: SIM115 - held until close
    except OSError as error:
        raise StoreUnavailable(
            f"The data folder {folder} cannot be written ({error.strerror}). Make it writable or set PARLEY_DATA_DIR."
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise StoreUnavailable(f"The data folder {folder} cannot be locked ({error.strerror}).") from error
        raise StoreUnavailable(
            f"The data folder {folder} is in use by another Parley. Stop that one, or set PARLEY_DATA_DIR to "
            "another folder."
        ) from None
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


@contextmanager
def _plain_errors(file: Path) -> Iterator[None]:
    """Turn the errors a person can do something about into `StoreUnavailable` sentences."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        sentence = _sentence(error, file)
        if sentence is None:
            raise
        raise StoreUnavailable(sentence) from error


def _sentence(error: sqlite3.DatabaseError, file: Path) -> str | None:
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return f"The disk that holds {file.parent} is full or failing. Free some space; nothing stored was lost."
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return f"Another program keeps the database {file} locked. Close it and try again; nothing was changed."
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return _READ_ONLY.format(file=file)
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return _DAMAGED.format(file=file)
    return None
