"""A compiled list, mapped: which entry matches a name or an address.

The mapping lives as long as the object, whatever becomes of the file's name meanwhile. Files are never altered in place
(`actors.lists.compiler`).
"""

from __future__ import annotations

import mmap
import os
from bisect import bisect_left, bisect_right
from hashlib import blake2b
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import Path
from zlib import crc32

from actors.lists.layout import HEADER_SIZE, NO_NETWORK, ListDamaged, Section, sections, unpack_header
from config.net.entries import ListHost

Address = IPv4Address | IPv6Address

_LOW64 = (1 << 64) - 1


class CompiledList:
    """One file. `entries` is how many entries it has; `identity` tells it from every other file."""

    __slots__ = (
        "_buckets",
        "_data",
        "_digests",
        "_filter",
        "_high6",
        "_key",
        "_lengths4",
        "_lengths6",
        "_low6",
        "_mask",
        "_shift",
        "_starts4",
        "checksum",
        "entries",
        "identity",
    )

    def __init__(self, path: Path) -> None:
        """Raises `ListDamaged` for a file that is none or was cut, and `OSError`. `verify` checks its content."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = os.fstat(descriptor)
            header = unpack_header(os.pread(descriptor, HEADER_SIZE, 0), found.st_size)
            self._data = memoryview(mmap.mmap(descriptor, found.st_size, prot=mmap.PROT_READ))
        finally:
            os.close(descriptor)
        self.identity = found.st_dev, found.st_ino, found.st_mtime_ns
        self.entries = header.entries
        self.checksum = header.checksum
        self._key = header.key
        self._mask = (1 << header.filter_bits) - 1
        self._shift = 64 - header.bucket_bits
        parts = sections(header)
        self._filter, self._digests = self._array(parts.filter), self._array(parts.digests)
        self._buckets = self._array(parts.buckets)
        self._starts4, self._lengths4 = self._array(parts.starts4), self._array(parts.lengths4)
        self._high6, self._low6 = self._array(parts.high6), self._array(parts.low6)
        self._lengths6 = self._array(parts.lengths6)

    def verify(self) -> None:
        """Read the whole file once. Raises `ListDamaged` when it is not as it was written. Usable in a thread."""
        if crc32(self._data[HEADER_SIZE:]) != self.checksum:
            raise ListDamaged("has damaged content")

    def of(self, host: ListHost) -> CompiledList | None:
        """What an entry matches; None for one that names a place, of which it has none."""
        return None if host.attribute else self

    def by_name(self, name: str) -> str | None:
        """The longest domain of the list that `name` is or is below of; `name` is in lower case, no dot at its end."""
        data, start = name.encode("ascii", "replace"), 0
        bits, mask = self._filter, self._mask
        while True:
            end = data[start:]
            bit = crc32(end) & mask
            if bits[bit >> 3] >> (bit & 7) & 1 and self._has(end):
                return name[start:]
            start = data.find(b".", start) + 1
            if not start:
                return None

    def by_address(self, address: Address) -> str | None:
        """The most specific network of the list that has this address, as text; one address is without a length."""
        return self._by_ipv4(address) if isinstance(address, IPv4Address) else self._by_ipv6(address)

    def _array(self, section: Section) -> memoryview:
        return self._data[section.start : section.end].cast(section.form)

    def _has(self, domain: bytes) -> bool:
        digest = digest_of(domain, self._key)
        bucket = digest >> self._shift
        last = self._buckets[bucket + 1]
        found = bisect_left(self._digests, digest, self._buckets[bucket], last)
        return found < last and bool(self._digests[found] == digest)

    def _by_ipv4(self, address: IPv4Address) -> str | None:
        number = int(address)
        index = bisect_right(self._starts4, number) - 1
        length = self._lengths4[index] if index >= 0 else NO_NETWORK
        if length >= 32:
            return None if length == NO_NETWORK else str(address)
        return str(IPv4Network((number >> (32 - length) << (32 - length), length)))

    def _by_ipv6(self, address: IPv6Address) -> str | None:
        number = int(address)
        high, low = number >> 64, number & _LOW64
        first = bisect_left(self._high6, high)
        index = bisect_right(self._low6, low, first, bisect_right(self._high6, high, first)) - 1
        length = self._lengths6[index] if index >= 0 else NO_NETWORK
        if length >= 128:
            return None if length == NO_NETWORK else str(IPv6Address(number))
        return str(IPv6Network((number >> (128 - length) << (128 - length), length)))

    def __repr__(self) -> str:
        return f"<CompiledList of {self.entries} entries>"


def digest_of(domain: bytes, key: bytes) -> int:
    """The number by which a file with this key knows a domain."""
    return int.from_bytes(blake2b(domain, digest_size=8, key=key).digest(), "big")
