"""Reading an archive, which `api.backup.create` makes, as untrusted input.

Anybody may have written it, so paths, sizes and kinds of its members are taken from the manifest, which is checked, and
from nowhere else.
"""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO, TypeVar

from api.backup.manifest import LARGEST, BadArchive, read_manifest
from config.files.durable import new_file

MANIFEST, SEALED = "manifest.json", "keys.sealed"
_LARGEST_SEALED = 2**20
_LARGEST_EXTENSION = 64 * 2**10
"""Bytes of a long name and its like; `tarfile` reads them into memory, whatever size is claimed."""
_PIECE = 2**20
_LARGEST_REST = 2**20
"""Bytes behind the last member: zeros that fill a block up."""

Progress = Callable[[int, int], None]
"""Called with the bytes that are done, and with all bytes."""


def no_progress(_done: int, _total: int) -> None:
    """Report no progress."""


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
    """What `tarfile` reads. For malformed headers it raises what `int` and the like raise; here: `BadArchive`."""
    try:
        return read()
    except (ValueError, OverflowError, RecursionError) as error:  # the last for headers about headers about headers
        raise BadArchive(f"not a whole archive: {error}") from error


class OpenArchive:
    """An archive whose manifest was read. `sealed` are its keys, as they are in there."""

    def __init__(
        self, file: BufferedReader, stream: gzip.GzipFile, tar: tarfile.TarFile, head: bytes, sealed: bytes | None
    ) -> None:
        self._file = file
        self._stream = stream
        self._tar = tar
        self.head = head
        self.manifest = read_manifest(head)
        self.sealed = sealed
        if self.manifest.keys != (sealed is not None):
            raise BadArchive("its manifest and its members disagree about the keys")

    def extract(self, target: Path, progress: Progress = no_progress) -> None:
        """Every file below `target`, each found to be what the manifest says. Raises `BadArchive`, `OSError`.

        Files get the mode 0600 and folders 0700, whatever the archive says.
        """
        expected = {member.path: member for member in self.manifest.files}
        for name in self.manifest.folders:
            (target / name).mkdir(mode=0o700)
        done = 0
        for info in _members(self._tar):
            member = expected.pop(info.name, None)
            if member is None or not info.isreg() or info.size != member.size:
                raise BadArchive(f"{info.name!r} is not as the manifest says")
            self._write(info, member.sha256, target / member.path)
            done += member.size
            progress(done, self.manifest.total)
        if expected:
            raise BadArchive(f"it was cut short: {next(iter(expected))} is missing")
        self._check_trailer()

    def digest(self) -> str:
        """The SHA-256 of the file that was read, in hex; call it when everything is read. Raises `OSError`."""
        self._file.seek(0)
        return hashlib.file_digest(self._file, "sha256").hexdigest()

    def _write(self, info: tarfile.TarInfo, sha256: str, path: Path) -> None:
        content = self._tar.extractfile(info)
        assert content is not None
        digest = hashlib.sha256()
        with new_file(path) as file:
            while piece := content.read(_PIECE):
                digest.update(piece)
                file.write(piece)
        if digest.hexdigest() != sha256:
            raise BadArchive(f"{info.name} is damaged: its SHA-256 is another one")

    def _check_trailer(self) -> None:
        """Read to the end, where gzip verifies its checksum. Raises `BadArchive` when more follows."""
        rest = 0
        while piece := self._stream.read(_PIECE):
            rest += len(piece)
            if rest > _LARGEST_REST:
                raise BadArchive("something follows its end")


@contextmanager
def open_archive(file: Path) -> Iterator[OpenArchive]:
    """The archive in `file`. Raises `BadArchive`, also while it is read, and `OSError`."""
    with file.open("rb") as content:
        try:
            with gzip.GzipFile(fileobj=content) as stream, _tar(stream) as tar:
                yield _read_head(content, stream, tar)
        except (tarfile.TarError, EOFError, zlib.error) as error:
            raise BadArchive(f"not a whole archive: {error}") from error
        except OSError as error:
            if error.errno is None:  # gzip's own
                raise BadArchive(f"not a whole archive: {error}") from error
            raise


def _tar(stream: gzip.GzipFile) -> tarfile.TarFile:
    return _read(lambda: tarfile.open(fileobj=stream, mode="r|", tarinfo=_Info))


def _read_head(file: BufferedReader, stream: gzip.GzipFile, tar: tarfile.TarFile) -> OpenArchive:
    head = _first_member(tar, MANIFEST, LARGEST)
    manifest = read_manifest(head)
    return OpenArchive(file, stream, tar, head, _first_member(tar, SEALED, _LARGEST_SEALED) if manifest.keys else None)


def _first_member(tar: tarfile.TarFile, name: str, largest: int) -> bytes:
    info = _read(tar.next)
    if info is None or info.name != name or not info.isreg() or info.size > largest:
        raise BadArchive(f"{name} is not where it should be: not a backup of Proxyfleet")
    content: IO[bytes] | None = tar.extractfile(info)
    assert content is not None
    return content.read()


def _members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    while (info := _read(tar.next)) is not None:
        yield info
