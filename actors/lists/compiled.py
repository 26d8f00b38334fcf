"""A compiled list, mapped: which entry matches a name or an address.

The mapping lives as long as the object, whatever becomes of the file's name meanwhile. Files are never altered in place
(`actors.lists.compiler`).

The file of a compiled list: a header, then arrays of fixed width in the byte order of the machine. Domains are 64-bit
digests with a random key of the file, sorted, so that neither their length nor their text takes space, and names that
collide can't be searched for. What matches is the end of the name that is looked up, so the text of the entry is known
without being stored. Two tables make a look-up cheap: a filter, bits by the CRC of a domain, excludes most names that
don't match, and an index by the first bits of a digest says where to search. A list of a million domains has 10 MB.

Networks are disjoint ranges: where each begins, and the length of the most specific network that covers it. Address and
length give the network itself.

The header has the size of the file and checksums. A file of another size or with a damaged header is not opened: to
read behind the end of a mapped file would end the process (SIGBUS).
"""

from __future__ import annotations

import mmap
import os
from bisect import bisect_left, bisect_right
from hashlib import blake2b
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import Path
from struct import Struct
from typing import Literal, NamedTuple
from zlib import crc32

from config.net.entries import ListHost

MAGIC = b"PFLIST\x00\x01"
KEY_SIZE = 16
NO_NETWORK = 255
"""The length in a range that no network covers."""

_HEADER = Struct("=8s16s8QI")
_CHECKSUM = Struct("=I")
HEADER_SIZE = _HEADER.size + _CHECKSUM.size
assert HEADER_SIZE % 8 == 0, "arrays behind it are aligned"


class ListError(Exception):
    """A list can't be read, made or fetched: the text says why."""


class ListDamaged(ListError):
    """The file is no compiled list, or was altered or cut: it is to be made anew."""


class ListHeader(NamedTuple):
    """`entries` is how many were compiled, without repeated ones. The filter has 2 to the power of `filter_bits` bits.

    `ranges4` and `ranges6` are numbers of ranges, `domains` of digests; `size` is that of the whole file.
    """

    key: bytes
    size: int
    entries: int
    domains: int
    filter_bits: int
    bucket_bits: int
    ranges4: int
    ranges6: int
    checksum: int


Form = Literal["B", "I", "Q"]


class Section(NamedTuple):
    """Where an array is: its first byte, the one behind it, and the format of its items."""

    start: int
    end: int
    form: Form


class Sections(NamedTuple):
    """All arrays of a file, in their order."""

    filter: Section
    digests: Section
    high6: Section
    low6: Section
    buckets: Section
    starts4: Section
    lengths4: Section
    lengths6: Section


_WIDTHS: dict[Form, int] = {"B": 1, "I": 4, "Q": 8}


def sections(header: ListHeader) -> Sections:
    """The arrays of a file with this header. The widest come first, so all are aligned."""
    ranges4, ranges6 = header.ranges4, header.ranges6
    counts: tuple[tuple[Form, int], ...] = (
        ("B", (1 << header.filter_bits) // 8),
        ("Q", header.domains),
        ("Q", ranges6),
        ("Q", ranges6),
        ("I", (1 << header.bucket_bits) + 1),
        ("I", ranges4),
        ("B", ranges4),
        ("B", ranges6),
    )
    found, position = [], HEADER_SIZE
    for form, count in counts:
        end = position + count * _WIDTHS[form]
        found.append(Section(position, end, form))
        position = end
    return Sections(*found)


def pack_header(header: ListHeader) -> bytes:
    """The first bytes of a file."""
    key, *numbers, checksum = header
    packed = _HEADER.pack(MAGIC, key, *numbers, 0, checksum)
    return packed + _CHECKSUM.pack(crc32(packed))


def unpack_header(data: bytes, size: int) -> ListHeader:
    """The header of a file of `size` bytes that begins with `data`. Raises `ListDamaged`."""
    if len(data) < HEADER_SIZE or not data.startswith(MAGIC):
        raise ListDamaged("is no compiled list")
    packed = data[: _HEADER.size]
    if _CHECKSUM.unpack(data[_HEADER.size : HEADER_SIZE]) != (crc32(packed),):
        raise ListDamaged("has a damaged header")
    _magic, key, *numbers, _unused, checksum = _HEADER.unpack(packed)
    header = ListHeader._make((key, *numbers, checksum))
    if header.size != size or sections(header)[-1].end != size:
        raise ListDamaged(f"has {size} bytes, not {header.size}")
    return header


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
