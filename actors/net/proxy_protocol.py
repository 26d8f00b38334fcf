"""The PROXY protocol, versions 1 and 2: who the client behind a balancer is, in a header before all other bytes.

After "The PROXY protocol, Versions 1 & 2" by Willy Tarreau (haproxy's doc/proxy-protocol.txt); sections are of it.
Nothing here waits or sends.

```
version 1 (2.1):  PROXY TCP4 192.0.2.7 198.51.100.1 56324 443 CR LF           at most 107 octets
                  PROXY UNKNOWN ... CR LF

version 2 (2.2):  | signature, 12 | 0x2, command | family, transport | length, 2 | addresses | TLVs ... |
```

A header is read whole or not at all: `read_header` parses what has come so far, and returns how many octets are the
header's. What can't become a header is refused with its first wrong octet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple

from actors.net.socks_wire import Endpoint
from config.net.addresses import unmapped

V1_MAX: Final = 107
"""The longest line of version 1, its CR LF included (2.1)."""

V2_LENGTH_MAX: Final = 4096
"""Octets behind the first 16 of version 2. Addresses need 36; the rest is for TLVs, a certificate perhaps."""

HEADER_MAX: Final = 16 + V2_LENGTH_MAX

_V1_START = b"PROXY "
_V1_UNKNOWN = b"UNKNOWN"
_V1_LINE = re.compile(
    rb"(TCP[46]) ([0-9A-Fa-f:.]{2,45}) ([0-9A-Fa-f:.]{2,45}) (0|[1-9][0-9]{0,4}) (0|[1-9][0-9]{0,4})", re.ASCII
)
_V2_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
_V2_FIXED = 16
_LOCAL, _PROXY = 0x20, 0x21
_INET, _INET6, _UNIX = 1, 2, 3
_STREAM, _DGRAM = 1, 2
_ADDRESSES = {_INET: 12, _INET6: 36, _UNIX: 216}
"""Octets of both addresses with their ports, by family."""
_CRC32C = 0x03


Ends = tuple[Endpoint, Endpoint]
"""Both addresses of a client's connection: its own, and the one that it connected to."""


class BadHeader(ValueError):
    """These octets are no header of the PROXY protocol; the text says what is wrong with them."""


class ProxyHeader(NamedTuple):
    """A whole header. `size` is its octets.

    `source` and `destination` are the client's address and the one that it connected to; both are None when the header
    has none that are ours to use (LOCAL, UNKNOWN, other transports than TCP): then the connection's own ones hold.
    IPv4 written as IPv6 becomes IPv4.
    """

    size: int
    source: Endpoint | None = None
    destination: Endpoint | None = None

    @property
    def ends(self) -> Ends | None:
        """Both addresses; None when the header has none."""
        return None if self.source is None or self.destination is None else (self.source, self.destination)


def read_header(data: bytes) -> ProxyHeader | None:
    """The header that `data` begins with; None when more is to come. Raises `BadHeader`."""
    if data.startswith(_V2_SIGNATURE[: len(data)]):
        return _read_v2(data)
    if data.startswith(_V1_START[: len(data)]):
        return _read_v1(data)
    raise BadHeader("it begins with something else")


# --- version 1 ---


def _read_v1(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\n", 0, V1_MAX)
    if end < 0:
        if len(data) >= V1_MAX:
            raise BadHeader(f"no end of the line within {V1_MAX} octets")
        _refuse_lone_cr(data[:-1])  # the last may be half of a CR LF
        return None
    line = data[:end]
    if not line.endswith(b"\r"):
        raise BadHeader("the line ends with LF alone")
    _refuse_lone_cr(line[:-1])
    ends = line[len(_V1_START) : -1]
    if ends == _V1_UNKNOWN or ends.startswith(_V1_UNKNOWN + b" "):
        return ProxyHeader(end + 1)
    return ProxyHeader(end + 1, *_v1_addresses(ends))


def _refuse_lone_cr(line: bytes) -> None:
    if b"\r" in line:
        raise BadHeader("there is a CR within the line")


def _v1_addresses(ends: bytes) -> tuple[Endpoint, Endpoint]:
    parts = _V1_LINE.fullmatch(ends)
    if parts is None:
        raise BadHeader("the line is not of the form TCP4 or TCP6, two addresses, two ports")
    family, *addresses = (part.decode("ascii") for part in parts.groups()[:3])
    ports = [int(part) for part in parts.groups()[3:]]
    if max(ports) > 65535:
        raise BadHeader("a port is above 65535")
    read = IPv4Address if family == "TCP4" else IPv6Address
    try:
        source, destination = (str(unmapped(read(address))) for address in addresses)
    except ValueError as error:
        raise BadHeader(f"an address is not of the family {family}") from error
    return (source, ports[0]), (destination, ports[1])


# --- version 2 ---


def _read_v2(data: bytes) -> ProxyHeader | None:
    command = _command(data[12]) if len(data) > 12 else _LOCAL
    family, transport = _family(data[13]) if command == _PROXY and len(data) > 13 else (0, 0)
    if len(data) < _V2_FIXED:
        return None
    length = int.from_bytes(data[14:16], "big")
    if length > V2_LENGTH_MAX:
        raise BadHeader(f"a length of {length} is over the limit of {V2_LENGTH_MAX}")
    used = _ADDRESSES.get(family, 0)
    if length < used:
        raise BadHeader(f"a length of {length} is too short for its addresses")
    size = _V2_FIXED + length
    if len(data) < size:
        return None
    if used:
        _check_tlvs(data[:size], _V2_FIXED + used)
    if transport != _STREAM or family not in (_INET, _INET6):
        return ProxyHeader(size)
    return ProxyHeader(size, *_v2_addresses(data[_V2_FIXED : _V2_FIXED + used]))


def _command(octet: int) -> int:
    if octet not in (_LOCAL, _PROXY):
        raise BadHeader(f"version and command are 0x{octet:02x}, neither 0x20 nor 0x21")
    return octet


def _family(octet: int) -> tuple[int, int]:
    family, transport = octet >> 4, octet & 15
    if family > _UNIX or transport > _DGRAM:
        raise BadHeader(f"family and transport 0x{octet:02x} are not assigned")
    return family, transport


def _v2_addresses(block: bytes) -> tuple[Endpoint, Endpoint]:
    width = (len(block) - 4) // 2
    source, destination = (str(unmapped(ip_address(block[at : at + width]))) for at in (0, width))
    ports = block[-4:]
    return (source, int.from_bytes(ports[:2], "big")), (destination, int.from_bytes(ports[2:], "big"))


def _check_tlvs(header: bytes, start: int) -> None:
    """Go over the TLVs behind the addresses: their lengths must come out even, and a checksum must be right (2.2.3)."""
    seen = False
    for kind, at, length in _tlvs(header, start):
        if kind != _CRC32C:
            continue
        if seen or length != 4:
            raise BadHeader("the checksum is not one of four octets")
        seen = True
        if crc32c(header[:at] + bytes(4) + header[at + 4 :]) != int.from_bytes(header[at : at + 4], "big"):
            raise BadHeader("the checksum is wrong")


def _tlvs(header: bytes, at: int) -> Iterator[tuple[int, int, int]]:
    """Type, index and length of each value."""
    while at < len(header):
        length = int.from_bytes(header[at + 1 : at + 3], "big")
        if at + 3 + length > len(header):
            raise BadHeader("a TLV is longer than the header")
        yield header[at], at + 3, length
        at += 3 + length


def crc32c(data: bytes) -> int:
    """The checksum of RFC 4960, appendix B (Castagnoli's polynomial)."""
    table = _crc_table()
    crc = 0xFFFFFFFF
    for octet in data:
        crc = (crc >> 8) ^ table[(crc ^ octet) & 0xFF]
    return crc ^ 0xFFFFFFFF


@cache
def _crc_table() -> tuple[int, ...]:
    """By octet; made when a header with a checksum comes, since few do."""
    table = []
    for octet in range(256):
        crc = octet
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


# --- what is sent to others ---

LOCAL_V2: Final = _V2_SIGNATURE + bytes((_LOCAL, 0, 0, 0))
"""The header of a connection that its sender makes for itself, a check for one: there is no client behind it."""


def build_v1(source: Endpoint, destination: Endpoint) -> bytes:
    """The line for a client at `source` that connected to `destination`.

    If only one of the addresses is IPv6, the other is written as IPv6 too. Zones, which mean nothing
    elsewhere, are left out.
    Raises `ValueError` for what is no address.
    """
    ends, family = _pair(source, destination)
    texts = [str(end) if end.version == 4 or end.ipv4_mapped is None else _hexadecimal(end) for end in ends]
    return f"PROXY TCP{family} {texts[0]} {texts[1]} {source[1]} {destination[1]}\r\n".encode("ascii")


def build_v2(source: Endpoint, destination: Endpoint, *, checksum: bool = False) -> bytes:
    """As `build_v1`, in version 2; with a CRC32c if `checksum`."""
    ends, family = _pair(source, destination)
    block = b"".join(end.packed for end in ends) + b"".join(end[1].to_bytes(2, "big") for end in (source, destination))
    kind = (_INET if family == 4 else _INET6) << 4 | _STREAM
    tail = b"\x03\0\x04\0\0\0\0" if checksum else b""
    header = _V2_SIGNATURE + bytes((_PROXY, kind)) + (len(block) + len(tail)).to_bytes(2, "big") + block + tail
    return header[:-4] + crc32c(header).to_bytes(4, "big") if checksum else header


def _pair(source: Endpoint, destination: Endpoint) -> tuple[list[IPv4Address | IPv6Address], int]:
    ends = [ip_address(end[0].partition("%")[0]) for end in (source, destination)]
    if ends[0].version == ends[1].version:
        return ends, ends[0].version
    return [IPv6Address(b"\0" * 10 + b"\xff\xff" + end.packed) if end.version == 4 else end for end in ends], 6


def _hexadecimal(address: IPv6Address) -> str:
    """In the one form that version 1 knows, whatever `str` makes of IPv4 in IPv6."""
    return ":".join(f"{int.from_bytes(address.packed[at : at + 2], 'big'):x}" for at in range(0, 16, 2))
