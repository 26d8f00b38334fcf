"""The file of a compiled list: a header, then arrays of fixed width in the byte order of the machine.

Domains are 64-bit digests with a random key of the file, sorted, so that neither their length nor their text takes
space, and names that collide can't be searched for. What matches is the end of the name that is looked up, so the text
of the entry is known without being stored. Two tables make a look-up cheap: a filter, bits by the CRC of a domain,
excludes most names that don't match, and an index by the first bits of a digest says where to search. A list of a
million domains has 10 MB.

Networks are disjoint ranges: where each begins, and the length of the most specific network that covers it. Address and
length give the network itself.

The header has the size of the file and checksums. A file of another size or with a damaged header is not opened: to
read behind the end of a mapped file would end the process (SIGBUS).
"""

from __future__ import annotations

from struct import Struct
from typing import Literal, NamedTuple
from zlib import crc32

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


class Header(NamedTuple):
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


def sections(header: Header) -> Sections:
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


def pack_header(header: Header) -> bytes:
    """The first bytes of a file."""
    key, *numbers, checksum = header
    packed = _HEADER.pack(MAGIC, key, *numbers, 0, checksum)
    return packed + _CHECKSUM.pack(crc32(packed))


def unpack_header(data: bytes, size: int) -> Header:
    """The header of a file of `size` bytes that begins with `data`. Raises `ListDamaged`."""
    if len(data) < HEADER_SIZE or not data.startswith(MAGIC):
        raise ListDamaged("is no compiled list")
    packed = data[: _HEADER.size]
    if _CHECKSUM.unpack(data[_HEADER.size : HEADER_SIZE]) != (crc32(packed),):
        raise ListDamaged("has a damaged header")
    _magic, key, *numbers, _unused, checksum = _HEADER.unpack(packed)
    header = Header._make((key, *numbers, checksum))
    if header.size != size or sections(header)[-1].end != size:
        raise ListDamaged(f"has {size} bytes, not {header.size}")
    return header
