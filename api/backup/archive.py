"""The archive: written as a whole or not at all, and read with suspicion.

Whoever wrote an archive that is read may be anybody, so paths, sizes and kinds of its members are taken from the
manifest, which is checked, and from nowhere else.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeVar

from api.backup import sealed_keys
from api.backup.collecting import CollectError, collect, format_of
from api.backup.manifest import FORMAT, KIND, BadArchive, Manifest, Member, read_manifest
from config import VERSION
from config.paths import DataDir

MANIFEST, SEALED = "manifest.json", "keys.sealed"
_LARGEST_HEAD = 64 * 2**20
_LARGEST_EXTENSION = 64 * 2**10
"""Bytes of a long name and its like; `tarfile` reads them into memory, whatever size is claimed."""
_PIECE = 2**20

Progress = Callable[[int, int], None]
"""Told how many bytes of how many are done."""


def no_progress(_done: int, _total: int) -> None:
    """For whoever doesn't want to know."""


def write(
    data: DataDir, file: Path, passphrase: str | None, with_logs: bool, progress: Progress = no_progress
) -> tuple[Manifest, str]:
    """Back `data` up into `file`: its manifest, and the SHA-256 of the archive.

    Without a passphrase the keys are left out. Raises `CollectError`, `OSError`; then there is no new file.
    """
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=f".{file.name}-") as folder:
        staged = Path(folder)
        data_format = format_of(data)
        folders, keys = collect(data, staged / "data", with_logs) if _made(staged / "data") else ((), {})
        if format_of(data) != data_format:
            raise CollectError(f"{data.path}: the data were brought to another format meanwhile; try again")
        files = tuple(_member(path, staged / "data") for path in sorted((staged / "data").rglob("*")) if path.is_file())
        manifest = Manifest(
            kind=KIND,
            format=FORMAT,
            product=VERSION,
            data_format=data_format,
            created_at=time.time(),
            folders=folders,
            keys=passphrase is not None,
            files=files,
        )
        _write_tar(staged / "archive", staged / "data", manifest, keys, passphrase, progress)
        digest = _digest(staged / "archive")
        (staged / "archive").replace(file)
    _sync(file.parent)
    return manifest, digest


def _made(folder: Path) -> bool:
    folder.mkdir(mode=0o700)
    return True


def _member(path: Path, root: Path) -> Member:
    return Member(path=path.relative_to(root).as_posix(), size=path.stat().st_size, sha256=_digest(path))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_tar(
    target: Path, root: Path, manifest: Manifest, keys: dict[str, bytes], passphrase: str | None, progress: Progress
) -> None:
    head = manifest.model_dump_json(indent=1).encode()
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        with tarfile.open(fileobj=file, mode="w:gz", compresslevel=6) as tar:
            _add(tar, MANIFEST, head)
            if passphrase is not None:
                _add(tar, SEALED, sealed_keys.seal(keys, passphrase, head))
            done = 0
            for member in manifest.files:
                with (root / member.path).open("rb") as content:
                    tar.addfile(_info(member.path, member.size), content)
                done += member.size
                progress(done, manifest.total)
        file.flush()
        os.fsync(descriptor)


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    tar.addfile(_info(name, len(content)), io.BytesIO(content))


def _info(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size, 0o600, int(time.time())
    return info


# --- reading ---

T = TypeVar("T")


class _Info(tarfile.TarInfo):
    """A header that is read."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Info:
        info = super().frombuf(buf, encoding, errors)
        if not info.isreg() and info.size > _LARGEST_EXTENSION:
            raise BadArchive(f"{info.name!r} is not as the manifest says")
        return info


def _read(read: Callable[[], T]) -> T:
    """What `tarfile` reads; for some headers that are none it raises what `int` and the like raise."""
    try:
        return read()
    except (ValueError, OverflowError) as error:
        raise BadArchive(f"not a whole archive: {error}") from error


class Opened:
    """An archive whose manifest was read. `sealed` are its keys, as they are in there."""

    def __init__(self, stream: gzip.GzipFile, tar: tarfile.TarFile, head: bytes, sealed: bytes | None) -> None:
        self._stream = stream
        self._tar = tar
        self.head = head
        self.manifest = read_manifest(head)
        self.sealed = sealed
        if self.manifest.keys != (sealed is not None):
            raise BadArchive("its manifest and its members disagree about the keys")

    def extract(self, target: Path, progress: Progress = no_progress) -> None:
        """Every file below `target`, each found to be what the manifest says. Raises `BadArchive`, `OSError`."""
        expected = {member.path: member for member in self.manifest.files}
        for name in self.manifest.folders:
            (target / name).mkdir(mode=0o700)
        done = 0
        for info in _members(self._tar):
            member = expected.pop(info.name, None)
            if member is None or not info.isreg() or info.size != member.size:
                raise BadArchive(f"{info.name!r} is not as the manifest says")
            self._write(info, member, target / member.path)
            done += member.size
            progress(done, self.manifest.total)
        if expected:
            raise BadArchive(f"it was cut short: {next(iter(expected))} is missing")
        while self._stream.read(_PIECE):
            continue  # to the end, where gzip has its checksum

    def _write(self, info: tarfile.TarInfo, member: Member, path: Path) -> None:
        content = self._tar.extractfile(info)
        assert content is not None
        digest = hashlib.sha256()
        with path.open("xb") as file:
            while piece := content.read(_PIECE):
                digest.update(piece)
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        if digest.hexdigest() != member.sha256:
            raise BadArchive(f"{member.path} is damaged: its SHA-256 is another one")


@contextmanager
def opened(file: Path) -> Iterator[Opened]:
    """The archive in `file`. Raises `BadArchive`, also while it is read, and `OSError`."""
    with file.open("rb") as content:
        try:
            with gzip.GzipFile(fileobj=content) as stream, _tar(stream) as tar:
                yield _opened(stream, tar)
        except (tarfile.TarError, EOFError, zlib.error) as error:
            raise BadArchive(f"not a whole archive: {error}") from error
        except OSError as error:
            if error.errno is None:  # gzip's own
                raise BadArchive(f"not a whole archive: {error}") from error
            raise


def _tar(stream: gzip.GzipFile) -> tarfile.TarFile:
    return _read(lambda: tarfile.open(fileobj=stream, mode="r|", tarinfo=_Info))


def _opened(stream: gzip.GzipFile, tar: tarfile.TarFile) -> Opened:
    head = _first(tar, MANIFEST)
    manifest = read_manifest(head)
    return Opened(stream, tar, head, _first(tar, SEALED) if manifest.keys else None)


def _first(tar: tarfile.TarFile, name: str) -> bytes:
    info = _read(tar.next)
    if info is None or info.name != name or not info.isreg() or info.size > _LARGEST_HEAD:
        raise BadArchive(f"{name} is not where it should be: not a backup of Proxyfleet")
    content: IO[bytes] | None = tar.extractfile(info)
    assert content is not None
    return content.read()


def _members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    while (info := _read(tar.next)) is not None:
        yield info


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
