"""Makes the file of a list of kind `geo`: a MaxMind database, as it came, once all of it was found to be readable.

It may come inside a tar archive. All that its tree leads to is looked up once, so no look-up in it fails later.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any, Final

import maxminddb

from actors.lists.compiled import ListError
from actors.lists.files import file_name
from actors.lists.places import asn_of, country_of
from actors.lists.streams import Chunks, first_and_rest, joined
from config.files.durable import new_file, sync

_TAR: Final = 257, b"ustar"
_PIECE: Final = 64 * 1024


def store_database(chunks: Chunks, folder: Path, list_id: str, entries_before: int) -> tuple[str, int]:
    """Write the database that `chunks` are; the name of its file, and how many entries it has.

    Raises `ListError` for one that can't be read or has less than half of the entries before, and `OSError`.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    fresh = folder / f".{file_name(list_id, '0')}"
    fresh.unlink(missing_ok=True)  # of a fetch that was killed
    try:
        digest = _write(untarred(chunks), fresh)
        entries = check_database(fresh)
        if entries * 2 < entries_before:
            raise ListError(f"it has {entries} entries now, {entries_before} before: less than half")
        name = file_name(list_id, digest)
        fresh.rename(folder / name)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    sync(folder)
    return name, entries


def untarred(chunks: Chunks) -> Chunks:
    """The first database in an archive, or `chunks` where they are none. Raises `ListError`."""
    first, rest = first_and_rest(chunks, _TAR[0] + len(_TAR[1]))
    if first[_TAR[0] :].startswith(_TAR[1]):
        return _from_archive(joined(first, rest))
    return joined(first, rest)


def check_database(path: Path) -> int:
    """Look each place up that a database has; how many there are. Raises `ListError` and `OSError`."""
    try:
        with maxminddb.open_database(path) as reader, path.open("rb") as file:
            about = reader.metadata()
            tree = Tree(file.read(about.node_count * about.record_size // 4), about.record_size)
            is_old, useful, found = about.ip_version == 4, False, 0
            for first in tree.places(32 if is_old else 128):
                record: Any = reader.get(IPv4Address(first) if is_old else IPv6Address(first))
                found += 1
                useful = useful or (isinstance(record, dict) and bool(country_of(record) or asn_of(record)))
    except (maxminddb.InvalidDatabaseError, ValueError, TypeError, KeyError) as error:
        raise ListError("it is no MaxMind database, or damaged") from error
    if found and not useful:
        raise ListError("it has neither countries nor autonomous systems")
    return found


def _write(chunks: Chunks, path: Path) -> str:
    digest = hashlib.sha256()
    with new_file(path) as file:
        for chunk in chunks:
            digest.update(chunk)
            file.write(chunk)
    return digest.hexdigest()


class Tree:
    """The search tree of a database: nodes with two records of `bits` bits, each another node, a place or nothing."""

    def __init__(self, data: bytes, bits: int) -> None:
        self._data = data
        self._bits = bits
        self._size = bits // 4
        self._nodes = len(data) // self._size

    def places(self, width: int) -> Iterator[int]:
        """For each place once the first address, of `width` bits, that leads to it.

        Nodes may be shared, as those of IPv4 are. Raises `ValueError` for a tree in which a look-up would not end.
        """
        heights, open_nodes, seen = bytearray(self._nodes), bytearray(self._nodes), set[int]()
        waiting = [(0, 0, width)] if self._nodes else []
        while waiting:
            node, first, left = waiting[-1]
            if heights[node]:
                waiting.pop()
                continue
            pair = self._pair(node)
            if open_nodes[node]:
                heights[node] = self._height(pair, heights, width)
                continue
            open_nodes[node] = 1
            for bit, record in enumerate(pair):
                address = first | bit << (left - 1)
                if record < self._nodes:
                    if left == 1 or (open_nodes[record] and not heights[record]):
                        raise ValueError("the tree is too deep, or a circle")
                    waiting.append((record, address, left - 1))
                elif record > self._nodes and record not in seen:
                    seen.add(record)
                    yield address

    def _height(self, pair: tuple[int, int], heights: bytearray, width: int) -> int:
        """The longest way from a node to an end, of which both records are known."""
        height = 1 + max(heights[record] if record < self._nodes else 0 for record in pair)
        if height > width:
            raise ValueError("the tree is too deep")
        return height

    def _pair(self, node: int) -> tuple[int, int]:
        start = node * self._size
        both = int.from_bytes(self._data[start : start + self._size], "big")
        if self._bits == 28:  # the upper four bits of both are in the byte between them
            return both >> 32 | (both >> 28 & 0xF) << 24, both & 0xFFFFFFF
        return both >> self._bits, both & ((1 << self._bits) - 1)


def _from_archive(chunks: Chunks) -> Chunks:
    try:
        with tarfile.open(mode="r|", fileobj=io.BufferedReader(_File(chunks))) as archive:
            for member in archive:
                content = archive.extractfile(member) if member.name.endswith(".mmdb") else None
                if content is not None:
                    while piece := content.read(_PIECE):
                        yield piece
                    return
    except tarfile.TarError:
        raise ListError("it is a damaged archive") from None
    raise ListError("it is an archive without a database (*.mmdb)")


class _File(io.RawIOBase):
    """Chunks as a file."""

    def __init__(self, chunks: Chunks) -> None:
        self._chunks = chunks
        self._waiting = b""

    def readable(self) -> bool:
        """See `io.IOBase`."""
        return True

    def readinto(self, buffer: Any) -> int:
        """See `io.RawIOBase`."""
        while not self._waiting:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._waiting = chunk
        data, self._waiting = self._waiting[: len(buffer)], self._waiting[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)
