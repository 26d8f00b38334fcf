"""Makes the file of a compiled list (`actors.lists.compiled`): entries are added one by one, then written at once.

While entries are added, a domain takes 12 bytes of memory and a network some 60.
Networks are written as disjoint ranges: one binary search finds the most specific network of an address.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from ipaddress import IPv4Network
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from actors.lists.compiled import KEY_SIZE, NO_NETWORK, ListHeader, digest_of, pack_header, sections
from config.files.durable import new_file, sync
from config.net.entries import read_network
from config.net.names import in_a_labels, is_host_name

WIDTHS = {4: 32, 6: 128}


def disjoint(networks: Iterable[tuple[int, int]], width: int) -> tuple[list[int], list[int]]:
    """Where each range begins, and the length of the most specific network in it; `NO_NETWORK` for none.

    `networks` are pairs of first address and length, sorted. Two networks are disjoint or one has the other, so those
    that are open at an address are a stack.
    """
    sweep = _Sweep(width)
    for start, length in networks:
        sweep.begin(start, length)
    sweep.close_until(1 << width)
    return sweep.starts, sweep.lengths


class _Sweep:
    def __init__(self, width: int) -> None:
        self._width = width
        self._open: list[tuple[int, int]] = []  # first address behind it, and length
        self.starts: list[int] = []
        self.lengths: list[int] = []

    def begin(self, start: int, length: int) -> None:
        self.close_until(start)
        self._open.append((start + (1 << (self._width - length)), length))
        self._mark(start, length)

    def close_until(self, address: int) -> None:
        """End the networks that end at or before this address."""
        while self._open and self._open[-1][0] <= address:
            end, _length = self._open.pop()
            if end < 1 << self._width:
                self._mark(end, self._open[-1][1] if self._open else NO_NETWORK)

    def _mark(self, start: int, length: int) -> None:
        """A range begins. One of the same length goes on: the address tells the networks in it apart."""
        if self.starts and self.starts[-1] == start:
            self.starts.pop()
            self.lengths.pop()
        if (self.lengths[-1] if self.lengths else NO_NETWORK) != length:
            self.starts.append(start)
            self.lengths.append(length)


class NumberedNetwork(NamedTuple):
    """A network: IP version, first address and length."""

    version: int
    start: int
    length: int


def domain_of(text: str) -> str:
    """`text` in lower case, in A-labels and without a dot at its end. Raises `ValueError`."""
    name = in_a_labels(text).lower().removesuffix(".")
    if not is_host_name(name):
        raise ValueError("is not a domain")
    return name


def range_of(text: str) -> NumberedNetwork:
    """An address or a network. Raises `ValueError`."""
    network = read_network(text)
    version = 4 if isinstance(network, IPv4Network) else 6
    return NumberedNetwork(version, int(network.network_address), network.prefixlen)


PARTS = 256
"""Digests are sorted in so many parts: only one of them is a list of Python's numbers at a time."""
FILTER_BITS_EACH = 16
BUCKET_SIZE = 16
"""Digests that a bucket has on average: a search in it takes four steps."""
_LOW64 = (1 << 64) - 1


class ListCompiler:
    """Collects entries. `write` makes the file; after that the object is of no use."""

    def __init__(self) -> None:
        self._key = os.urandom(KEY_SIZE)
        self._parts = [array("Q") for _ in range(PARTS)]
        self._filtered = array("I")
        self._networks: dict[int, list[tuple[int, int]]] = {4: [], 6: []}

    @property
    def added(self) -> int:
        """How many entries were added, repeated ones among them."""
        return len(self._filtered) + sum(len(each) for each in self._networks.values())

    def add_domain(self, name: str) -> None:
        """`name` is in lower case, in A-labels, without a dot at its end."""
        data = name.encode("ascii")
        digest = digest_of(data, self._key)
        self._parts[digest >> 56].append(digest)
        self._filtered.append(crc32(data))

    def add_network(self, network: NumberedNetwork) -> None:
        """An IPv4 or IPv6 network."""
        self._networks[network.version].append((network.start, network.length))

    def compile(self) -> CompiledContent:
        """What is to be written."""
        bits = self._filter()
        digests = array("Q")
        for number, part in enumerate(self._parts):
            digests.extend(sorted(set(part)))
            self._parts[number] = array("Q")
        networks = {version: sorted(set(each)) for version, each in self._networks.items()}
        return CompiledContent(self._key, bits, digests, networks)

    def _filter(self) -> bytearray:
        exponent = max(6, (len(self._filtered) * FILTER_BITS_EACH - 1).bit_length())
        exponent = min(exponent, 32)
        bits, mask = bytearray((1 << exponent) // 8), (1 << exponent) - 1
        for number in self._filtered:
            bit = number & mask
            bits[bit >> 3] |= 1 << (bit & 7)
        self._filtered = array("I")
        return bits


class CompiledContent:
    """The arrays of a file. `entries` counts each entry once."""

    def __init__(
        self, key: bytes, bits: bytearray, digests: array[int], networks: dict[int, list[tuple[int, int]]]
    ) -> None:
        self.entries = len(digests) + sum(len(each) for each in networks.values())
        starts4, lengths4 = disjoint(networks[4], WIDTHS[4])
        starts6, lengths6 = disjoint(networks[6], WIDTHS[6])
        buckets = _buckets(digests)
        self._header = ListHeader(
            key, 0, self.entries, len(digests), (len(bits) * 8).bit_length() - 1, (len(buckets) - 1).bit_length() - 1,
            len(starts4), len(starts6), 0,
        )  # fmt: skip
        self._arrays = (
            bits,
            digests,
            array("Q", [each >> 64 for each in starts6]),
            array("Q", [each & _LOW64 for each in starts6]),
            buckets,
            array("I", starts4),
            bytes(lengths4),
            bytes(lengths6),
        )

    def write(self, path: Path) -> None:
        """The file has this content or, after a crash at whatever moment, the one before. Raises `OSError`."""
        checksum = 0
        for each in self._arrays:
            checksum = crc32(each, checksum)
        header = self._header._replace(size=sections(self._header)[-1].end, checksum=checksum)
        fresh = path.with_name(f".{path.name}-{os.urandom(8).hex()}")
        try:
            with new_file(fresh) as file:
                file.write(pack_header(header))
                for each in self._arrays:
                    file.write(each)
            fresh.rename(path)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
        sync(path.parent)


def _buckets(digests: array[int]) -> array[int]:
    """Where the digests begin whose first bits are the number of a bucket, and behind the last one their number."""
    bits = max(0, (len(digests) // BUCKET_SIZE).bit_length())
    found = array("I", [0])
    for number in range(1, 1 << bits):
        found.append(bisect_left(digests, number << (64 - bits), found[-1]))
    found.append(len(digests))
    return found
