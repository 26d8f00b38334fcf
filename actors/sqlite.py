"""SQLite as the actors use it: one owner, WAL, files 0600, transactions begun by hand."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from config.paths import private_directory


def add_columns(database: sqlite3.Connection, table: str, names: Iterable[str]) -> bool:
    """Add the columns that an older version's `table` lacks, with 0 in every row; whether there were any."""
    there = {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
    missing = [name for name in names if name not in there]
    for name in missing:
        database.execute(f"ALTER TABLE {table} ADD COLUMN {name} NOT NULL DEFAULT 0")
    return bool(missing)


def open_database(file: Path, schema: str, any_thread: bool = False) -> sqlite3.Connection:
    """Open `file`, making it and its folder if need be, and run `schema` (`CREATE … IF NOT EXISTS`).

    With `any_thread` several threads may use it, one at a time: the caller holds a lock.

    A commit survives the death of the process at any moment, and all but the last moments a power cut (WAL with
    `synchronous=NORMAL`); the file is never torn. Raises `sqlite3.Error` and `config.paths.PathError`.
    """
    private_directory(file.parent)
    os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # its -wal and -shm get the same mode
    database = sqlite3.connect(file, isolation_level=None, check_same_thread=not any_thread)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    database.executescript(schema)
    return database
