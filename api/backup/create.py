"""The archive as it is made: written as a whole or not at all, and never one that a restore would refuse.

Where it goes is checked before anything is copied. The copies, which are consistent while the product writes the files,
are made in a private staging folder beside it, which is locked while it is in use. One that a killed process left
behind has copies of the configuration in it; the next backup to the same place deletes it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import json
import os
import shutil
import sqlite3
import stat
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from actors.sqlite import open_for_reading
from api.backup.archive import (
    FORMAT,
    KIND,
    MANIFEST,
    NAME,
    OPTIONAL,
    SEALED,
    BadArchive,
    Manifest,
    Member,
    Progress,
    no_progress,
    open_archive,
    read_manifest,
    seal_keys,
)
from api.store import StoreError, check_fleet_file
from config import VERSION, OperatorError
from config.files.durable import DATA_FORMAT, DataFormatError, Mark, new_file, require_own_format, sync, write_mark
from config.files.paths import DataDir

_STAGING = ".proxyfleet-backup-"
_FRESH = 60.0
"""Seconds for which a folder may be there and not be locked yet."""


class BadTarget(Exception):
    """No archive is written there; the text says why."""


def check_target(file: Path, data: DataDir) -> None:
    """Raise `BadTarget` when an archive of `data` may not be put at `file`, and `OSError` when that can't be found out.

    A file is only replaced when it is an archive, too, or empty.
    """
    if not file.parent.is_dir():
        raise BadTarget(f"{file.parent}: there is no such directory")
    if file.parent.resolve().is_relative_to(data.path.resolve()):
        raise BadTarget(f"{file}: is inside of the data directory, and would be lost with it; choose another place")
    if file.is_symlink():
        raise BadTarget(f"{file}: is a symbolic link; name the file that it leads to")
    if file.exists() and not _may_be_replaced(file):
        raise BadTarget(f"{file}: is there already, and is no backup; choose another name")


def _may_be_replaced(file: Path) -> bool:
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        return False
    try:
        with open_archive(file):
            return True
    except BadArchive:
        return status.st_size == 0


@contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """A private folder in `folder` for the time of the block. Raises `OSError`."""
    _remove_abandoned(folder)
    made = Path(tempfile.mkdtemp(dir=folder, prefix=_STAGING))
    held = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # some file systems of other machines lock no folders
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)  # the next one tries again
        os.close(held)


def _remove_abandoned(folder: Path) -> None:
    """Remove staging folders that no process has locked."""
    for path in folder.glob(f"{_STAGING}*"):
        status = path.lstat()
        ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        if ours and abs(time.time() - status.st_mtime) > _FRESH and _is_abandoned(path):
            shutil.rmtree(path, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # it is in use, or locks don't work there
        return False
    finally:
        os.close(held)
    return True


ATTEMPTS = 200
PAUSE = 0.05
"""Seconds between two attempts at the store; it is busy for milliseconds at a time."""

DATABASES = ("metrics", "webhooks", "lists")
_SQLITE = b"SQLite format 3\x00"
_OF_DATABASES = ("-wal", "-shm", "-journal")


class CollectError(OperatorError):
    """Something can't be copied; the text says what and why."""


def collect(data: DataDir, target: Path, with_logs: bool) -> tuple[tuple[str, ...], dict[str, bytes]]:
    """Copy all into `target`: the folders that it has now, and the content of the key files by name.

    Works while the product runs. Files whose names can't be in an archive are not the product's, and are left out.
    Raises `CollectError`.
    """
    with _translated(data, target):
        keys = _store_and_keys(data, target)
        folders = [*DATABASES, *(OPTIONAL if with_logs else ())]
        for name in folders:
            _databases(data.path / name, target / name)
    return tuple(folders), keys


@contextmanager
def _translated(data: DataDir, target: Path) -> Iterator[None]:
    """Errors as a sentence. A full disk is that of the copies, since reading needs no space."""
    try:
        yield
    except StoreError as error:
        raise CollectError(f"{data.path}: {error}") from error
    except sqlite3.Error as error:
        full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
        raise CollectError(_full(target) if full else f"{data.path}: {error}") from error
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise CollectError(_full(target) if full else f"{data.path}: {error.strerror or error}") from error


def _full(target: Path) -> str:
    return f"the disk of {target.parent.parent} is full"


def snapshot(data: DataDir, target: Path) -> DataDir:
    """Copy what a restore compares with into `target` while the product runs: the fleet's file, keys, format.

    Raises `CollectError`.
    """
    copy = DataDir(target)
    require_data(data)
    with _translated(data, target):
        copy.keys.mkdir(mode=0o700)
        for name, content in _store_and_keys(data, target).items():
            (copy.keys / name).write_bytes(content)
        write_mark(target, Mark())
    return copy


def require_data(data: DataDir) -> None:
    """Raise `CollectError` when there are no data, or of another format (`config.files.durable`)."""
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
        _copy_database(data.fleet, target.fleet)


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


def _files(folder: Path) -> list[Path]:
    """Those that can be in an archive, but for what belongs to databases."""
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    good = (path for path in found if NAME.fullmatch(path.name) and not path.name.endswith(_OF_DATABASES))
    return [path for path in good if path.is_file()]


def _is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def _copy_database(source: Path, target: Path) -> None:
    """In one transaction, which no writer waits for; of a damaged one there is no copy."""
    with closing(open_for_reading(source)) as database:
        database.execute("VACUUM INTO ?", [str(target)])
    target.chmod(0o600)


def create_backup(
    data: DataDir, file: Path, passphrase: str | None, with_logs: bool, progress: Progress = no_progress
) -> tuple[Manifest, str]:
    """Back `data` up into `file`, replacing a backup: its manifest, and the SHA-256 of the archive.

    Without a passphrase the keys are left out. Raises `CollectError`, `target.BadTarget`, `OSError`; then there is no
    new file.
    """
    check_target(file, data)
    with staging(file.parent) as staged:
        (staged / "data").mkdir(mode=0o700)
        manifest, keys = _copy_data(data, staged / "data", passphrase is not None, with_logs)
        _write_tar(staged / "archive", staged / "data", manifest, keys, passphrase, progress)
        digest = _digest(staged / "archive")
        (staged / "archive").replace(file)
    sync(file.parent)
    return manifest, digest


def _copy_data(data: DataDir, root: Path, with_keys: bool, with_logs: bool) -> tuple[Manifest, dict[str, bytes]]:
    """Copy all below `root`: the manifest of the copies, and the content of the key files by name."""
    require_data(data)
    installed = _inode(data)
    folders, keys = collect(data, root, with_logs)
    if _inode(data) != installed:
        raise CollectError(f"{data.path}: a backup was restored there meanwhile; try again")
    manifest = Manifest(
        kind=KIND,
        format=FORMAT,
        product=VERSION,
        data_format=DATA_FORMAT,
        created_at=time.time(),
        folders=folders,
        keys=with_keys,
        node=_node(data),
        files=tuple(_member(path, root) for path in sorted(root.rglob("*")) if path.is_file()),
    )
    try:
        read_manifest(_manifest_bytes(manifest))
    except BadArchive as error:
        raise CollectError(f"{data.path}: what is there can't be backed up: {error}") from error
    return manifest, keys


def _node(data: DataDir) -> str:
    """The id of the node that this is in its fleet; empty where it stands alone."""
    try:
        return str(json.loads(data.node.read_bytes())["id"])
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CollectError(f"{data.node}: can't be read: {error}") from error


def _inode(data: DataDir) -> int:
    """That of the fleet's file, which a restore replaces; 0 without one."""
    return data.fleet.stat().st_ino if data.fleet.is_file() else 0


def _member(path: Path, root: Path) -> Member:
    return Member(path=path.relative_to(root).as_posix(), size=path.stat().st_size, sha256=_digest(path))


def _manifest_bytes(manifest: Manifest) -> bytes:
    return manifest.model_dump_json(indent=1, exclude_defaults=True).encode()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_tar(
    target: Path, root: Path, manifest: Manifest, keys: dict[str, bytes], passphrase: str | None, progress: Progress
) -> None:
    head = _manifest_bytes(manifest)
    with (
        new_file(target) as file,
        tarfile.open(fileobj=file, mode="w:gz", format=tarfile.GNU_FORMAT, compresslevel=6) as tar,
    ):
        _add(tar, MANIFEST, head)
        if passphrase is not None:
            _add(tar, SEALED, seal_keys(keys, passphrase, head))
        done = 0
        for member in manifest.files:
            with (root / member.path).open("rb") as content:
                tar.addfile(_info(member.path, member.size), content)
            done += member.size
            progress(done, manifest.total)


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    tar.addfile(_info(name, len(content)), io.BytesIO(content))


def _info(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size, 0o600, int(time.time())
    return info
