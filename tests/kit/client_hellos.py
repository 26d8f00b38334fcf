"""ClientHellos of real clients, taken apart and put together again."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache

from tests.kit.folders import ROOT

FILE = ROOT / "tests" / "unit" / "actors" / "forwarding" / "client_hellos.json"
FRAGMENT_MAX = 1 << 14
SERVER_NAME, ALPN, PRE_SHARED_KEY, SUPPORTED_VERSIONS = 0, 16, 41, 43


@dataclass(frozen=True)
class Sample:
    """A hello as a client sent it, and what it is known to offer."""

    client: str
    name: str
    alpn: str
    version: str
    octets: bytes

    @property
    def message(self) -> bytes:
        """Without the header of its record, of which every sample has one."""
        return self.octets[5:]


@cache
def samples() -> list[Sample]:
    """All of them."""
    return [
        Sample(row["client"], row["name"], row["alpn"], row["version"], base64.b64decode(row["hello"]))
        for row in json.loads(FILE.read_text(encoding="utf-8"))["hellos"]
    ]


def record(fragment: bytes, kind: int = 22, version: int = 0x0301) -> bytes:
    """One record, whatever its length."""
    return bytes((kind,)) + version.to_bytes(2, "big") + vector(fragment, 2)


def records(message: bytes, size: int = FRAGMENT_MAX) -> bytes:
    """The message in records of so many octets."""
    return b"".join(record(message[at : at + size]) for at in range(0, len(message), size))


def vector(content: bytes, width: int) -> bytes:
    """With its length before it, in so many octets."""
    return len(content).to_bytes(width, "big") + content


def server_name(name: bytes, kind: int = 0) -> bytes:
    """The value of the extension."""
    return vector(bytes((kind,)) + vector(name, 2), 2)


def protocols(*names: bytes) -> bytes:
    """The value of ALPN."""
    return vector(b"".join(vector(name, 1) for name in names), 2)


def versions(*offered: int) -> bytes:
    """The value of supported_versions."""
    return vector(b"".join(each.to_bytes(2, "big") for each in offered), 1)


@dataclass(frozen=True)
class Hello:
    """A hello taken apart. `extensions` is None where there isn't even their length."""

    version: int = 0x0303
    random: bytes = bytes(32)
    session: bytes = b""
    ciphers: bytes = b"\x13\x01\xc0\x2f"
    compressions: bytes = b"\0"
    extensions: tuple[tuple[int, bytes], ...] | None = ()

    def with_(self, *extensions: tuple[int, bytes]) -> Hello:
        """The same with these behind its extensions."""
        return replace(self, extensions=(*(self.extensions or ()), *extensions))

    def only(self, kinds: Iterable[int]) -> Hello:
        """The same with only its extensions of these types."""
        if self.extensions is None:
            return self
        return replace(self, extensions=tuple(each for each in self.extensions if each[0] in kinds))

    def block(self) -> bytes:
        """The extensions without the length of them all."""
        return b"".join(kind.to_bytes(2, "big") + vector(value, 2) for kind, value in self.extensions or ())

    def message(self) -> bytes:
        """As a handshake message."""
        body = self.version.to_bytes(2, "big") + self.random + vector(self.session, 1) + vector(self.ciphers, 2)
        body += vector(self.compressions, 1)
        if self.extensions is not None:
            body += vector(self.block(), 2)
        return b"\x01" + vector(body, 3)

    def octets(self) -> bytes:
        """In records."""
        return records(self.message())


def taken_apart(message: bytes) -> Hello:
    """The hello of a handshake message. Raises `ValueError` when its lengths don't come out even."""
    reader = _Reader(message)
    reader.take(4)
    version, random = int.from_bytes(reader.take(2), "big"), reader.take(32)
    session, ciphers, compressions = reader.vector(1), reader.vector(2), reader.vector(1)
    if not reader.left:
        return Hello(version, random, session, ciphers, compressions, None)
    block = _Reader(reader.vector(2))
    extensions = []
    while block.left:
        kind = int.from_bytes(block.take(2), "big")
        extensions.append((kind, block.vector(2)))
    if reader.left:
        raise ValueError("octets behind the extensions")
    return Hello(version, random, session, ciphers, compressions, tuple(extensions))


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def left(self) -> int:
        return len(self._data)

    def take(self, count: int) -> bytes:
        if count > len(self._data):
            raise ValueError("cut off")
        taken, self._data = self._data[:count], self._data[count:]
        return taken

    def vector(self, width: int) -> bytes:
        return self.take(int.from_bytes(self.take(width), "big"))
