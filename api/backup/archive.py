"""Reading an archive, which `api.backup.create` makes, as untrusted input.

Anybody may have written it, so paths, sizes and kinds of its members are taken from the manifest, which is checked, and
from nowhere else.

The key files are under a passphrase: scrypt (RFC 7914) and AES-256-GCM, with the manifest as additional data. So the
seal opens only with the archive that it was made for: any change without the passphrase is detected, since the
manifest has the hashes of all files.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO, Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from config.files.durable import new_file
from config.text.formatting import size_text
from config.text.validation_messages import worded

KIND = "proxyfleet.backup"
FORMAT = 1
FLEET = "fleet.sqlite"
"""The file of configuration, accounts, history and audit trail, which lies in the data directory itself."""
FOLDERS = ("metrics", "webhooks", "lists", "logs")
"""Folders of the data directory that may be in an archive; keys are apart."""
OPTIONAL = ("logs",)

LARGEST = 4 * 2**20
"""Bytes of a manifest: enough for 20,000 files."""

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,200}", re.ASCII)
"""Names that a file in an archive may have: all that the product makes, and few of editors and file systems."""


_YEAR_10000 = 253402300800


class BadArchive(Exception):
    """It is no archive that this release can read; the text says why."""


class Member(BaseModel):
    """One file: its path below the data directory, its size in bytes and the SHA-256 of its content in hex."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str
    size: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Manifest(BaseModel):
    """`product` is the release that made it, `created_at` Unix seconds, `keys` whether the sealed keys are there.

    `data_format` is that of the data directory (`config.files.data_format`), `format` that of the archive.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["proxyfleet.backup"]
    format: int
    product: str
    data_format: Annotated[int, Field(ge=1)]
    created_at: Annotated[float, Field(ge=0, lt=_YEAR_10000)]
    folders: tuple[str, ...]
    keys: bool
    files: tuple[Member, ...]

    @property
    def total(self) -> int:
        """Bytes of all files."""
        return sum(member.size for member in self.files)


def read_manifest(content: bytes) -> Manifest:
    """The manifest in `content`. Raises `BadArchive`."""
    if len(content) > LARGEST:
        raise BadArchive(f"its manifest has more than {LARGEST} bytes")
    found = re.search(rb'"format": ?([0-9]{1,9})\b', content)
    if found is not None and int(found[1]) > FORMAT:
        raise BadArchive(f"format {int(found[1])} of a later release; this one reads up to {FORMAT}")
    try:
        manifest = Manifest.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "it"
        raise BadArchive(f"its manifest is invalid: {field} {worded(first)}") from error
    paths = [member.path for member in manifest.files]
    for path in paths:
        folder, _, name = path.partition("/")
        if path != FLEET and (folder not in manifest.folders or not NAME.fullmatch(name)):
            raise BadArchive(f"its manifest names {path!r}, which can't be in a backup")
    twice = len(set(paths)) != len(paths) or len(set(manifest.folders)) != len(manifest.folders)
    if twice or not set(manifest.folders) <= set(FOLDERS):
        raise BadArchive("its manifest contradicts itself")
    return manifest


N, R, P = 2**16, 8, 1
"""64 MiB and about a fifth of a second for each guess."""
SHORTEST = 12
_MOST_N = 2 * N
"""The highest cost that is accepted: an archive decides how much memory is needed to open it."""


def seal_keys(keys: Mapping[str, bytes], passphrase: str, manifest: bytes) -> bytes:
    """The sealed content of the key files, by name."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    salt, nonce = os.urandom(16), os.urandom(12)
    content = json.dumps({name: _text(key) for name, key in keys.items()}).encode()
    data = AESGCM(_derived(passphrase, salt, N)).encrypt(nonce, content, hashlib.sha256(manifest).digest())
    return json.dumps(
        {"kdf": "scrypt", "n": N, "salt": _text(salt), "nonce": _text(nonce), "data": _text(data)}
    ).encode()


def unseal_keys(sealed: bytes, passphrase: str, manifest: bytes) -> dict[str, bytes]:
    """The key files. Raises `BadArchive`."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        head = json.loads(sealed)
        n = int(head["n"])
        salt, nonce, data = (base64.b64decode(head[name], validate=True) for name in ("salt", "nonce", "data"))
        if head["kdf"] != "scrypt" or n < N or n & (n - 1):
            raise ValueError("not as this release seals")
        if n > _MOST_N:
            raise ValueError(
                f"scrypt with n={n} would take {_memory(n)}, and at most {_memory(_MOST_N)} are given to it"
            )
        content = AESGCM(_derived(passphrase, salt, n)).decrypt(nonce, data, hashlib.sha256(manifest).digest())
    except InvalidTag as error:
        raise BadArchive("its keys can't be opened: another passphrase, or the archive was altered") from error
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise BadArchive(f"its sealed keys are damaged: {error}") from error
    return {name: base64.b64decode(text) for name, text in json.loads(content).items()}


def _memory(n: int) -> str:
    return size_text(128 * n * R)


def check_passphrase(text: str) -> str:
    """`text` if it is long enough. Raises `ValueError`."""
    if len(text) < SHORTEST:
        raise ValueError(f"the passphrase must have at least {SHORTEST} characters")
    return text


def _derived(passphrase: str, salt: bytes, n: int) -> bytes:
    return hashlib.scrypt(passphrase.encode(), salt=salt, n=n, r=R, p=P, maxmem=132 * n * R * P + 2**20, dklen=32)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


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
