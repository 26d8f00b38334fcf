"""SQLite as the actors use it: one owner, WAL, files 0600, transactions begun by hand."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from config.paths import private_directory


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
