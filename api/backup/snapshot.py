"""Consistent copies of the files of a data directory while the product may write them."""

from __future__ import annotations

import errno
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from actors.sqlite import open_for_reading
from api.backup.manifest import NAME, OPTIONAL
from api.store import StoreError, check_fleet_file
from config.files.data_format import DataFormatError, Mark, require_own_format, write_mark
from config.files.paths import DataDir

ATTEMPTS = 200
PAUSE = 0.05
"""Seconds between two attempts at the store; it is busy for milliseconds at a time."""

DATABASES = ("metrics", "webhooks", "lists")
_SQLITE = b"SQLite format 3\x00"
_OF_DATABASES = ("-wal", "-shm", "-journal")


class CollectError(Exception):
    """Something can't be copied; the text says what and why."""


def collect(data: DataDir, target: Path, with_logs: bool) -> tuple[tuple[str, ...], dict[str, bytes]]:
    """Copy all into `target`: the folders that it has now, and the content of the key files by name.

    Works while the product runs. Files whose names can't be in an archive are not the product's, and are left out.
    Raises `CollectError`.
    """
    try:
        keys = _store_and_keys(data, target)
        folders = [*DATABASES, *(OPTIONAL if with_logs else ())]
        for name in folders:
            _databases(data.path / name, target / name)
    except StoreError as error:
        raise CollectError(f"{data.path}: {error}") from error
    except (OSError, sqlite3.Error) as error:
        raise CollectError(_error_text(data, target, error)) from error
    return tuple(folders), keys


def _error_text(data: DataDir, target: Path, error: OSError | sqlite3.Error) -> str:
    """The error as a sentence. A full disk is that of the copies, since reading needs no space."""
    if isinstance(error, sqlite3.Error):
        full, text = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL, str(error)
    else:
        full, text = error.errno in (errno.ENOSPC, errno.EDQUOT), error.strerror or str(error)
    return f"the disk of {target.parent.parent} is full" if full else f"{data.path}: {text}"


def snapshot(data: DataDir, target: Path) -> DataDir:
    """Copy what a restore compares with into `target` while the product runs: the fleet's file, keys, format.

    Raises `CollectError`.
    """
    copy = DataDir(target)
    require_data(data)
    try:
        copy.keys.mkdir(mode=0o700)
        for name, content in _store_and_keys(data, target).items():
            (copy.keys / name).write_bytes(content)
        write_mark(target, Mark())
    except StoreError as error:
        raise CollectError(f"{data.path}: {error}") from error
    except (OSError, sqlite3.Error) as error:
        raise CollectError(_error_text(data, target, error)) from error
    return copy


def require_data(data: DataDir) -> None:
    """Raise `CollectError` when there are no data, or of another format (`config.files.data_format`)."""
    try:
        mark = require_own_format(data.path)
    except DataFormatError as error:
        raise CollectError(str(error)) from error
    if mark is None:
        raise CollectError(f"{data.path}: there are no data: start the product first")


def _store_and_keys(data: DataDir, target: Path) -> dict[str, bytes]:
    """Copy the fleet between two readings of the keys that are alike: then its secrets are sealed with them."""
    for _ in range(ATTEMPTS):
        keys = _keys(data)
        _fleet(data, DataDir(target))
        if keys == _keys(data):
            return keys
        time.sleep(PAUSE)
    raise CollectError(f"{data.keys}: changes all the time; try again when less is going on")


def _fleet(data: DataDir, target: DataDir) -> None:
    """Of one moment, and without what was deleted."""
    target.fleet.unlink(missing_ok=True)
    check_fleet_file(data)
    if data.fleet.exists():
        with closing(open_for_reading(data.fleet)) as database:
            database.execute("VACUUM INTO ?", [str(target.fleet)])
        target.fleet.chmod(0o600)


def _keys(data: DataDir) -> dict[str, bytes]:
    found = {}
    for path in _files(data.keys):
        with suppress(FileNotFoundError):  # replaced just now: the next reading differs then
            found[path.name] = path.read_bytes()
    return found


def _databases(source: Path, target: Path) -> None:
    """Each database in one transaction of its own; other files as they are."""
    target.mkdir(mode=0o700)
    for path in _files(source):
        if _is_database(path):
            _copy_database(path, target / path.name)
        else:
            shutil.copyfile(path, target / path.name)


def _files(folder: Path) -> Iterator[Path]:
    yield from (path for path in _archivable(folder) if path.is_file() and not path.name.endswith(_OF_DATABASES))


def _archivable(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if NAME.fullmatch(path.name)) if folder.is_dir() else []


def _is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def _copy_database(source: Path, target: Path) -> None:
    """By SQLite's backup interface in one step: readers of a WAL don't block the writer."""
    with closing(open_for_reading(source)) as reading, closing(sqlite3.connect(target)) as writing:
        reading.backup(writing)
        writing.execute("PRAGMA journal_mode=DELETE")  # so that the copy is one file
        (found,) = writing.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise CollectError(f"{source}: the database is damaged: {found}")
