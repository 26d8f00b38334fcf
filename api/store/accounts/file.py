"""The file as a whole: whose it is, whether it is sound, what changed in it, and its errors as those of stores."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from actors.sqlite import FileTooNew, open_database, open_for_reading, transaction
from api.store.accounts.schema import NAMED_POLICIES, SCHEMA, TABLES, accounts_file
from api.store.interface import Change, HistoryPruned, StoreDamaged, StoreError, StoreTooNew, StoreWriteError
from config.files.paths import DataDir, PathError

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def check_accounts_file(folder: Path) -> None:
    """Raise `StoreError` when the file in a store's folder is damaged or of a later release. None at all is fine."""
    file = folder / accounts_file(DataDir(folder)).name
    if not file.exists():
        return
    with translated(file), closing(open_for_reading(file)) as database:
        (found,) = database.execute("PRAGMA user_version").fetchone()
        if found > 1:
            raise StoreTooNew(f"{file}: has format {found}; this release knows up to 1")
        check_file(database, file)


def read_named_policies(data: DataDir) -> list[str]:
    """The names of policies that plans and accounts have, while no other process has the file open.

    Raises `StoreError`.
    """
    file = accounts_file(data)
    if not file.exists():
        return []
    with translated(file), closing(open_for_reading(file)) as database:
        if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'plans'").fetchone() is None:
            return []
        return [name for (name,) in database.execute(NAMED_POLICIES)]


def start_over_above(data: DataDir, revision: int) -> None:
    """Make the accounts of a closed store those of another one, whose next step has a number above `revision`.

    A table of the accounts before is made anew then. Raises `StoreError`.
    """
    file = accounts_file(data)
    if not file.exists():
        return
    with translated(file), closing(open_database(file, SCHEMA)) as database, transaction(database):
        _, known, _ = meta(database)
        above = max(known, revision)
        database.execute("DELETE FROM gone")
        database.execute("UPDATE meta SET store = ?, revision = ?, horizon = ?", [secrets.token_hex(8), above, above])


def meta(database: sqlite3.Connection) -> tuple[str, int, int]:
    """Id, revision and horizon of the store."""
    row = database.execute("SELECT store, revision, horizon FROM meta").fetchone()
    if row is None:
        database.execute("INSERT INTO meta VALUES (1, ?, 0, 0)", [secrets.token_hex(8)])
        return meta(database)
    return str(row[0]), int(row[1]), int(row[2])


@contextmanager
def changes_since(database: sqlite3.Connection, since: int) -> Iterator[Iterator[Change]]:
    """Of one moment, in order, read one by one within the block. Raises `HistoryPruned`."""
    database.execute("BEGIN")
    try:
        _, _, horizon = meta(database)
        if since < horizon:
            raise HistoryPruned(horizon)
        yield _changes(database, since)
    finally:
        database.execute("ROLLBACK")


_CHANGES = " UNION ALL ".join(
    (
        *(f"SELECT revision, '{name}', id, body FROM {name} WHERE revision > :since" for name in TABLES),  # noqa: S608 - names of ours
        "SELECT revision, collection, id, NULL FROM gone WHERE revision > :since",
    )
)


def _changes(database: sqlite3.Connection, since: int) -> Iterator[Change]:
    for revision, collection, identifier, body in database.execute(f"{_CHANGES} ORDER BY 1", {"since": since}):
        yield Change(collection, identifier, revision, None if body is None else json.loads(body))


def check_file(database: sqlite3.Connection, file: Path) -> None:
    (found,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise StoreDamaged(f"{file}: is damaged: {found}; restore it")


@contextmanager
def translated(file: Path) -> Iterator[None]:
    """SQLite's errors as those of stores."""
    try:
        yield
    except FileTooNew as error:
        raise StoreTooNew(str(error)) from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _DAMAGED:
            raise StoreDamaged(f"{file}: {error}; restore it") from error
        raise StoreWriteError(f"{file}: {error}") from error
    except (PathError, OSError) as error:
        raise StoreError(f"{file}: {error}") from error
