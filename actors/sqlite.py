"""SQLite for actors and the audit trail: one owner, WAL, files 0600, explicit transactions, a format in each file.

The format is in the file itself (`PRAGMA user_version`).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from config.files.paths import private_directory

FORMAT = 1
"""Of each file; a release that stores something that the one before could not read counts up."""
CHECKPOINT_PAGES = 4_000
"""Pages of 4 KiB to which the `-wal` of a file with `sync_each_commit` grows before it is brought into the file."""
LARGEST_LOG = 2 * CHECKPOINT_PAGES * 4096
"""Bytes that such a `-wal` keeps once its content is in the file, whatever a large change has made of it."""


class FileTooNew(sqlite3.DatabaseError):
    """A newer release wrote this file; nothing in it was changed."""


def open_database(file: Path, schema: str, any_thread: bool = False) -> sqlite3.Connection:
    """Open `file`, making it and its folder if need be, and run `schema` (`CREATE … IF NOT EXISTS`).

    With `any_thread` several threads may use it, one at a time: the caller holds a lock.

    A commit survives the death of the process at any moment, and all but the last moments a power cut (WAL with
    `synchronous=NORMAL`); the file is never torn, and a new one has all of the schema or nothing. Raises
    `sqlite3.Error` (`FileTooNew`) and `config.files.paths.PathError`.
    """
    private_directory(file.parent)
    os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # its -wal and -shm get the same mode
    database = sqlite3.connect(file, isolation_level=None, check_same_thread=not any_thread)
    try:
        _require_format(database, file)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=NORMAL")
        is_new = database.execute("SELECT 1 FROM sqlite_schema").fetchone() is None
        database.executescript(f"BEGIN IMMEDIATE; {schema}; COMMIT" if is_new else schema)
        return database
    except BaseException:
        database.close()
        raise


def sync_each_commit(database: sqlite3.Connection) -> None:
    """Have each commit synced before it returns, so that it survives a power cut, too.

    A checkpoint takes two more syncs, about as long as the commit itself. At SQLite's 1,000 pages one commit of 130 has
    one, which is the slowest percent of changes that commit to two files.
    """
    database.execute("PRAGMA synchronous=FULL")
    database.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
    database.execute(f"PRAGMA journal_size_limit={LARGEST_LOG}")


def open_for_reading(file: Path, alone: bool = False) -> sqlite3.Connection:
    """Open only to read what another process may be writing to at this moment. Raises `sqlite3.Error`.

    For that SQLite makes files beside it. It makes none when no other process has it open, which the caller knows
    (`alone`) or a read-only file system says, and nothing is left in its `-wal`.
    """
    wal = file.with_name(f"{file.name}-wal")
    unshared = (alone or not os.access(file.parent, os.W_OK)) and not (wal.exists() and wal.stat().st_size)
    return sqlite3.connect(
        f"{file.absolute().as_uri()}?{'immutable=1' if unshared else 'mode=ro'}", uri=True, timeout=30
    )


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Everything done within is committed together; after an error, that of the commit included, nothing of it is.

    The write lock is taken at the beginning, so a transaction that has read something can't be refused its first write.
    """
    database.execute("BEGIN IMMEDIATE")
    try:
        yield database
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:  # SQLite has rolled back by itself after some errors, as on a full disk
            database.execute("ROLLBACK")
        raise


def _require_format(database: sqlite3.Connection, file: Path) -> None:
    (found,) = database.execute("PRAGMA user_version").fetchone()
    if found > FORMAT:
        raise FileTooNew(f"{file}: has format {found}; this release reads format {FORMAT}")
    if found < FORMAT:
        database.execute(f"PRAGMA user_version = {FORMAT}")
