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
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from config.files.durable import new_file
from config.text.formatting import size_text, worded

KIND = "proxyfleet.backup"
FORMAT = 1
FLEET = "fleet.sqlite"
"""The file of configuration, accounts, history and audit trail, which lies in the data directory itself."""
FOLDERS = ("metrics", "webhooks", "lists", "logs")
"""Folders of the data directory that may be in an archive; keys are apart."""
OPTIONAL = ("logs",)

LARGEST = 4 * 2**20
"""Bytes of a manifest: enough for 20,000 files."""

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,80}", re.ASCII)
"""Names that a file in an archive may have: all that the product makes, and few of editors and file systems. With its
folder each fits into one block of a header."""


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

    `data_format` is that of the data directory (`config.files.durable`), `format` that of the archive. `node` is the
    id of the node of a fleet that it was made on; empty, and left out, where that stood alone.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["proxyfleet.backup"]
    format: int
    product: str
    data_format: Annotated[int, Field(ge=1)]
    created_at: Annotated[float, Field(ge=0, lt=_YEAR_10000)]
    folders: tuple[str, ...]
    keys: bool
    node: Annotated[str, Field(max_length=64)] = ""
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
_BLOCK = tarfile.BLOCKSIZE
_PIECE = 2**20
_LARGEST_REST = 2**20
"""Bytes behind the last member: zeros that fill a block up."""

Progress = Callable[[int, int], None]
"""Called with the bytes that are done, and with all bytes."""


def no_progress(_done: int, _total: int) -> None:
    """Report no progress."""


class _Members:
    """The members of an archive, one after another: plain files, whose headers are one block. `tarfile` itself would
    read long names, maps of holes and headers about headers into memory."""

    def __init__(self, stream: gzip.GzipFile) -> None:
        self._stream = stream

    def next(self) -> tarfile.TarInfo | None:
        """The header of the next one; None at the end. Raises `BadArchive`."""
        block = self._stream.read(_BLOCK)
        if block == bytes(_BLOCK):
            return None
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.TarError, ValueError) as error:
            raise BadArchive(f"not a whole archive: {error}") from error
        if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise BadArchive(f"{info.name!r} is not as the manifest says")
        return info

    def content(self, size: int) -> Iterator[bytes]:
        """The content behind the header. Raises `BadArchive`."""
        left = size
        while left > 0:
            piece = self._stream.read(min(left, _PIECE))
            if not piece:
                raise BadArchive("not a whole archive: it ends too early")
            left -= len(piece)
            yield piece
        self._stream.read(-size % _BLOCK)

    def read_rest(self) -> None:
        """Read to the end, where gzip verifies its checksum. Raises `BadArchive` when more follows."""
        rest = 0
        while piece := self._stream.read(_PIECE):
            rest += len(piece)
            if rest > _LARGEST_REST:
                raise BadArchive("something follows its end")


class OpenArchive:
    """An archive whose manifest was read. `sealed` are its keys, as they are in there."""

    def __init__(self, file: BufferedReader, members: _Members, head: bytes, sealed: bytes | None) -> None:
        self._file = file
        self._members = members
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
        while (info := self._members.next()) is not None:
            member = expected.pop(info.name, None)
            if member is None or info.size != member.size:
                raise BadArchive(f"{info.name!r} is not as the manifest says")
            self._write(member, target / member.path)
            done += member.size
            progress(done, self.manifest.total)
        if expected:
            raise BadArchive(f"it was cut short: {next(iter(expected))} is missing")
        self._members.read_rest()

    def digest(self) -> str:
        """The SHA-256 of the file that was read, in hex; call it when everything is read. Raises `OSError`."""
        self._file.seek(0)
        return hashlib.file_digest(self._file, "sha256").hexdigest()

    def _write(self, member: Member, path: Path) -> None:
        digest = hashlib.sha256()
        with new_file(path) as file:
            for piece in self._members.content(member.size):
                digest.update(piece)
                file.write(piece)
        if digest.hexdigest() != member.sha256:
            raise BadArchive(f"{member.path} is damaged: its SHA-256 is another one")


@contextmanager
def open_archive(file: Path) -> Iterator[OpenArchive]:
    """The archive in `file`. Raises `BadArchive`, also while it is read, and `OSError`."""
    with file.open("rb") as content:
        try:
            with gzip.GzipFile(fileobj=content) as stream:
                members = _Members(stream)
                head = _first_member(members, MANIFEST, LARGEST)
                sealed = _first_member(members, SEALED, _LARGEST_SEALED) if read_manifest(head).keys else None
                yield OpenArchive(content, members, head, sealed)
        except (EOFError, zlib.error) as error:
            raise BadArchive(f"not a whole archive: {error}") from error
        except OSError as error:
            if error.errno is None:  # gzip's own
                raise BadArchive(f"not a whole archive: {error}") from error
            raise


def _first_member(members: _Members, name: str, largest: int) -> bytes:
    info = members.next()
    if info is None or info.name != name or not 0 <= info.size <= largest:
        raise BadArchive(f"{name} is not where it should be: not a backup of Proxyfleet")
    return b"".join(members.content(info.size))
