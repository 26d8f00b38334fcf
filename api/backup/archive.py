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
_LARGEST_HEADER = 2 * _LARGEST_EXTENSION
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


class _Stream(gzip.GzipFile):
    """What `tarfile` reads, so many bytes for each header and its content: a map of holes has no bound of its own."""

    _left = 0

    def allow(self, content: int = 0) -> None:
        """Let so much be read until the next call, and what a header takes; `tarfile` reads some blocks ahead."""
        self._left = content + _LARGEST_HEADER

    def read(self, size: int | None = -1) -> bytes:
        """Raises `BadArchive`."""
        piece = super().read(size)
        self._left -= len(piece)
        if self._left < 0:
            raise BadArchive(f"not a whole archive: a header has more than {_LARGEST_HEADER} bytes")
        return piece


def _read(read: Callable[[], T]) -> T:
    """What `tarfile` reads. For malformed headers it raises what `int` and the like raise; here: `BadArchive`."""
    try:
        return read()
    except (ValueError, IndexError, OverflowError, RecursionError) as error:  # the last: headers about headers
        raise BadArchive(f"not a whole archive: {error}") from error


class OpenArchive:
    """An archive whose manifest was read. `sealed` are its keys, as they are in there."""

    def __init__(
        self,
        file: BufferedReader,
        stream: _Stream,
        tar: tarfile.TarFile,
        head: bytes,
        sealed: bytes | None,
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
        for info in _members(self._tar, self._stream):
            member = expected.pop(info.name, None)
            if member is None or not _is_plain(info) or info.size != member.size:
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
        self._stream.allow(info.size)
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
        self._stream.allow(2 * _LARGEST_REST)
        while piece := self._stream.read(_PIECE):
            rest += len(piece)
            if rest > _LARGEST_REST:
                raise BadArchive("something follows its end")


@contextmanager
def open_archive(file: Path) -> Iterator[OpenArchive]:
    """The archive in `file`. Raises `BadArchive`, also while it is read, and `OSError`."""
    with file.open("rb") as content:
        try:
            with _Stream(fileobj=content) as stream, _tar(stream) as tar:
                yield _read_head(content, stream, tar)
        except (tarfile.TarError, EOFError, zlib.error) as error:
            raise BadArchive(f"not a whole archive: {error}") from error
        except OSError as error:
            if error.errno is None:  # gzip's own
                raise BadArchive(f"not a whole archive: {error}") from error
            raise


def _tar(stream: _Stream) -> tarfile.TarFile:
    stream.allow()
    return _read(lambda: tarfile.open(fileobj=stream, mode="r|", tarinfo=_Info))


def _read_head(file: BufferedReader, stream: _Stream, tar: tarfile.TarFile) -> OpenArchive:
    head = _first_member(tar, stream, MANIFEST, LARGEST)
    sealed = _first_member(tar, stream, SEALED, _LARGEST_SEALED) if read_manifest(head).keys else None
    return OpenArchive(file, stream, tar, head, sealed)


def _is_plain(info: tarfile.TarInfo) -> bool:
    return info.isreg() and not info.issparse()


def _first_member(tar: tarfile.TarFile, stream: _Stream, name: str, largest: int) -> bytes:
    stream.allow()
    info = _read(tar.next)
    if info is None or info.name != name or not _is_plain(info) or info.size > largest:
        raise BadArchive(f"{name} is not where it should be: not a backup of Proxyfleet")
    stream.allow(info.size)
    content: IO[bytes] | None = tar.extractfile(info)
    assert content is not None
    return content.read()


def _members(tar: tarfile.TarFile, stream: _Stream) -> Iterator[tarfile.TarInfo]:
    stream.allow()
    while (info := _read(tar.next)) is not None:
        yield info
        stream.allow()
