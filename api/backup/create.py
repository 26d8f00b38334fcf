"""The archive as it is made: written as a whole or not at all, and never one that a restore would refuse."""

from __future__ import annotations

import hashlib
import io
import tarfile
import time
from pathlib import Path

from api.backup import sealed_keys
from api.backup.archive import MANIFEST, SEALED, Progress, no_progress
from api.backup.manifest import FORMAT, KIND, BadArchive, Manifest, Member, read_manifest
from api.backup.snapshot import CollectError, collect, require_data
from api.backup.target import check_target, staging
from config import VERSION
from config.files.data_format import DATA_FORMAT
from config.files.durable import new_file, sync
from config.files.paths import DataDir


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
        files=tuple(_member(path, root) for path in sorted(root.rglob("*")) if path.is_file()),
    )
    try:
        read_manifest(_manifest_bytes(manifest))
    except BadArchive as error:
        raise CollectError(f"{data.path}: what is there can't be backed up: {error}") from error
    return manifest, keys


def _inode(data: DataDir) -> int:
    """That of the fleet's file, which a restore replaces; 0 without one."""
    return data.fleet.stat().st_ino if data.fleet.is_file() else 0


def _member(path: Path, root: Path) -> Member:
    return Member(path=path.relative_to(root).as_posix(), size=path.stat().st_size, sha256=_digest(path))


def _manifest_bytes(manifest: Manifest) -> bytes:
    return manifest.model_dump_json(indent=1).encode()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_tar(
    target: Path, root: Path, manifest: Manifest, keys: dict[str, bytes], passphrase: str | None, progress: Progress
) -> None:
    head = _manifest_bytes(manifest)
    with new_file(target) as file, tarfile.open(fileobj=file, mode="w:gz", compresslevel=6) as tar:
        _add(tar, MANIFEST, head)
        if passphrase is not None:
            _add(tar, SEALED, sealed_keys.seal(keys, passphrase, head))
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
