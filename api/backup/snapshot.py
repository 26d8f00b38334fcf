"""Consistent copies of the files of a data directory while the product may write them."""

from __future__ import annotations

import errno
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from actors.sqlite import open_for_reading
from api.backup.manifest import NAME, OPTIONAL
from api.store import StoreError, check_files
from api.store.accounts import accounts_file
from config.files.data_format import DataFormatError, Mark, read_mark, write_mark
from config.files.paths import DataDir

ATTEMPTS = 200
PAUSE = 0.05
"""Seconds between two attempts at the store; it is busy for milliseconds at a time."""

DATABASES = ("audit", "metrics", "webhooks", "lists")
_SQLITE = b"SQLite format 3\x00"
_OF_DATABASES = ("-wal", "-shm", "-journal")

FileStates = dict[Path, tuple[int, int, int]]


class CollectError(Exception):
    """Something can't be copied; the text says what and why."""


def collect(data: DataDir, target: Path, with_logs: bool) -> tuple[tuple[str, ...], dict[str, bytes]]:
    """Copy all into `target`: the folders that it has now, and the content of the key files by name.

    Works while the product runs. Files whose names can't be in an archive are not the product's, and are left out.
    Raises `CollectError`.
    """
    try:
        keys = _store_and_keys(data, target)
        check_files(target / "store")
        _accounts(data, target)
        folders = [*DATABASES, *(OPTIONAL if with_logs else ())]
        for name in folders:
            _databases(data.path / name, target / name)
    except StoreError as error:
        raise CollectError(f"{data.path}: start the product, which repairs what it can: {error}") from error
    except (OSError, sqlite3.Error) as error:
        raise CollectError(_error_text(data, target, error)) from error
    return ("store", *folders), keys


def _error_text(data: DataDir, target: Path, error: OSError | sqlite3.Error) -> str:
    """The error as a sentence. A full disk is that of the copies, since reading needs no space."""
    if isinstance(error, sqlite3.Error):
        full, text = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL, str(error)
    else:
        full, text = error.errno in (errno.ENOSPC, errno.EDQUOT), error.strerror or str(error)
    return f"the disk of {target.parent.parent} is full" if full else f"{data.path}: {text}"


def snapshot(data: DataDir, target: Path) -> DataDir:
    """Copy what a restore compares with into `target` while the product runs: store, keys, audit trail, format.

    Raises `CollectError`.
    """
    copy = DataDir(target)
    number = format_of(data)
    try:
        copy.keys.mkdir(mode=0o700)
        for name, content in _store_and_keys(data, target).items():
            (copy.keys / name).write_bytes(content)
        _accounts(data, target)
        _databases(data.path / "audit", target / "audit")
        write_mark(target, Mark(number))
    except (OSError, sqlite3.Error) as error:
        raise CollectError(_error_text(data, target, error)) from error
    return copy


def format_of(data: DataDir) -> int:
    """The format of the data (`config.files.data_format`). Raises `CollectError` while an upgrade of them isn't
    finished."""
    try:
        mark = read_mark(data.path)
    except (OSError, DataFormatError) as error:
        raise CollectError(str(error)) from error
    if mark is None or mark.installing is not None:
        raise CollectError(
            f"{data.path}: there are no data, or an upgrade of them was cut off: start the product first"
        )
    return mark.format


def _store_and_keys(data: DataDir, target: Path) -> dict[str, bytes]:
    """Read until no file was replaced while all were read: then they are of one moment."""
    for _ in range(ATTEMPTS):
        before = _file_states(data)
        try:
            contents = {path: path.read_bytes() for path in before}
        except FileNotFoundError:
            continue  # replaced just now
        if before == _file_states(data):
            return _write_store_copies(data, contents, target / "store")
        time.sleep(PAUSE)
    raise CollectError(f"{data.store}: changes all the time; try again when less is going on")


def _file_states(data: DataDir) -> FileStates:
    """Inode, size and time of each file; a file that was replaced has another inode.

    Staged files are included: with a journal (`api.store.commit_journal`) they are part of the store.
    """
    found: FileStates = {}
    for folder in (data.store, data.keys):
        for path in _archivable(folder):
            try:
                status = path.stat()
            except FileNotFoundError:
                continue  # the next reading differs then
            if path.is_file() and not path.name.startswith(accounts_file(data).name):
                found[path] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return found


def _write_store_copies(data: DataDir, contents: dict[Path, bytes], target: Path) -> dict[str, bytes]:
    target.mkdir(mode=0o700)
    keys = {}
    for path, content in contents.items():
        if path.parent == data.keys:
            keys[path.name] = content
        else:
            (target / path.name).write_bytes(content)
    return keys


def _accounts(data: DataDir, target: Path) -> None:
    """The accounts, which are in the store's folder and are altered in place, unlike the other files there."""
    file = accounts_file(data)
    if file.exists():
        _copy_database(file, target / "store" / file.name)


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
