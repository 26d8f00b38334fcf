"""The PROXY protocol: headers read by its text and in no other way, and headers built so that they are read."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.net.proxy_protocol import (
    HEADER_MAX,
    LOCAL_V2,
    BadHeader,
    ProxyHeader,
    build_v1,
    build_v2,
    crc32c,
    read_header,
)
from tests.kit.tables import table

SIGNATURE = bytes.fromhex("0d0a0d0a000d0a515549540a")
CLIENT4, PROXY4 = ("192.0.2.7", 56324), ("198.51.100.1", 443)
CLIENT6, PROXY6 = ("2001:db8::7", 56324), ("2001:db8::1", 443)
INET = bytes((192, 0, 2, 7, 198, 51, 100, 1)) + (56324).to_bytes(2, "big") + (443).to_bytes(2, "big")
UNIX = b"/run/a".ljust(108, b"\0") + b"/run/b".ljust(108, b"\0")


def v2(command: int, family: int, rest: bytes, length: int | None = None) -> bytes:
    return SIGNATURE + bytes((command, family)) + (len(rest) if length is None else length).to_bytes(2, "big") + rest


def tlv(kind: int, value: bytes) -> bytes:
    return bytes((kind,)) + len(value).to_bytes(2, "big") + value


WITH_ADDRESSES = {
    "the example of section 2.1": (
        b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n",
        ("192.168.0.1", 56324),
        ("192.168.0.11", 443),
    ),
    "the longest TCP4": (
        b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n",
        ("255.255.255.255", 65535),
        ("255.255.255.255", 65535),
    ),
    "the longest TCP6": (
        b"PROXY TCP6 " + b" ".join([b":".join([b"ffff"] * 8)] * 2) + b" 65535 65535\r\n",
        (":".join(["ffff"] * 8), 65535),
        (":".join(["ffff"] * 8), 65535),
    ),
    "TCP6 with a double colon, in upper case": (b"PROXY TCP6 2001:DB8::7 2001:db8::1 56324 443\r\n", CLIENT6, PROXY6),
    "TCP6 that is IPv4": (
        b"PROXY TCP6 ::ffff:c000:207 ::ffff:192.0.2.8 0 65535\r\n",
        ("192.0.2.7", 0),
        ("192.0.2.8", 65535),
    ),
    "version 2, TCP4": (v2(0x21, 0x11, INET), CLIENT4, PROXY4),
    "version 2, TCP6": (
        v2(0x21, 0x21, IPv6Address("2001:db8::7").packed + IPv6Address("2001:db8::1").packed + INET[-4:]),
        CLIENT6,
        PROXY6,
    ),
    "version 2 with TLVs": (
        v2(0x21, 0x11, INET + tlv(1, b"h2") + tlv(4, b"") + tlv(0xE0, b"x" * 300)),
        CLIENT4,
        PROXY4,
    ),
    "version 2 as long as it may be": (v2(0x21, 0x11, INET + tlv(4, bytes(4096 - 12 - 3))), CLIENT4, PROXY4),
}

WITHOUT_ADDRESSES = {
    "UNKNOWN": b"PROXY UNKNOWN\r\n",
    "UNKNOWN with anything behind it": b"PROXY UNKNOWN ffff::1 \0nonsense 9\r\n",
    "UNKNOWN of 107 octets": b"PROXY UNKNOWN ".ljust(105, b"x") + b"\r\n",
    "LOCAL": LOCAL_V2,
    "LOCAL with something to skip": v2(0x20, 0xFF, b"whatever"),
    "UNSPEC": v2(0x21, 0x00, b""),
    "UNSPEC with something to skip": v2(0x21, 0x00, b"\xff\xff\xff"),
    "datagrams": v2(0x21, 0x12, INET),
    "an unspecified transport over IPv4": v2(0x21, 0x10, INET),
    "a Unix socket": v2(0x21, 0x31, UNIX),
}

REFUSED = {
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "TLS": b"\x16\x03\x01\x00\x05",
    "SOCKS5": b"\x05\x01\x00",
    "another case": b"proxy TCP4 192.0.2.7 198.51.100.1 1 2\r\n",
    "no space": b"PROXYTCP4 192.0.2.7 198.51.100.1 1 2\r\n",
    "two spaces": b"PROXY TCP4  192.0.2.7 198.51.100.1 1 2\r\n",
    "a tab": b"PROXY TCP4\t192.0.2.7 198.51.100.1 1 2\r\n",
    "a space at the end": b"PROXY TCP4 192.0.2.7 198.51.100.1 1 2 \r\n",
    "LF alone": b"PROXY TCP4 192.0.2.7 198.51.100.1 1 2\n",
    "CR alone": b"PROXY TCP4 192.0.2.7 198.51.100.1 1 2\rGET",
    "a CR within UNKNOWN": b"PROXY UNKNOWN a\rb\r\n",
    "two CR": b"PROXY UNKNOWN\r\r\n",
    "an unknown family": b"PROXY TCP5 192.0.2.7 198.51.100.1 1 2\r\n",
    "UDP4": b"PROXY UDP4 192.0.2.7 198.51.100.1 1 2\r\n",
    "UNKNOWN with a tail": b"PROXY UNKNOWNS\r\n",
    "no addresses": b"PROXY TCP4\r\n",
    "one port": b"PROXY TCP4 192.0.2.7 198.51.100.1 1\r\n",
    "a port too large": b"PROXY TCP4 192.0.2.7 198.51.100.1 65536 2\r\n",
    "a port with a zero before it": b"PROXY TCP4 192.0.2.7 198.51.100.1 01 2\r\n",
    "a port with a sign": b"PROXY TCP4 192.0.2.7 198.51.100.1 +1 2\r\n",
    "an octet with a zero before it": b"PROXY TCP4 192.0.2.07 198.51.100.1 1 2\r\n",
    "an octet too large": b"PROXY TCP4 192.0.2.256 198.51.100.1 1 2\r\n",
    "three octets": b"PROXY TCP4 192.0.2 198.51.100.1 1 2\r\n",
    "IPv6 as TCP4": b"PROXY TCP4 ::1 ::1 1 2\r\n",
    "IPv4 as TCP6": b"PROXY TCP6 192.0.2.7 198.51.100.1 1 2\r\n",
    "a zone": b"PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n",
    "two double colons": b"PROXY TCP6 1::2::3 ::1 1 2\r\n",
    "no end within 107 octets": b"PROXY UNKNOWN ".ljust(107, b"x"),
    "an end behind 107 octets": b"PROXY UNKNOWN ".ljust(106, b"x") + b"\r\n",
    "version 1 in binary": v2(0x11, 0x11, INET),
    "version 3": v2(0x31, 0x11, INET),
    "an unassigned command": v2(0x22, 0x11, INET),
    "an unassigned family": v2(0x21, 0x41, INET),
    "an unassigned transport": v2(0x21, 0x13, INET),
    "too short for IPv4": v2(0x21, 0x11, INET[:-1]),
    "too short for IPv6": v2(0x21, 0x21, INET),
    "too short for a Unix socket": v2(0x21, 0x31, UNIX[:-1]),
    "over the limit": v2(0x21, 0x11, INET, 4097),
    "the longest length there is": v2(0x20, 0x00, b"", 65535),
    "half a TLV": v2(0x21, 0x11, INET + b"\x04\0"),
    "a TLV longer than the header": v2(0x21, 0x11, INET + b"\x04\0\x02x"),
    "a checksum of three octets": v2(0x21, 0x11, INET + tlv(3, b"abc")),
    "a wrong checksum": v2(0x21, 0x11, INET + tlv(3, b"abcd")),
    "two checksums": v2(0x21, 0x11, INET + tlv(3, bytes(4)) + tlv(3, bytes(4))),
    "a signature that goes wrong": SIGNATURE[:11] + b"\r",
}


@table("case", WITH_ADDRESSES)
def test_a_header_tells_the_client_and_where_it_connected_to(case: str) -> None:
    header, source, destination = WITH_ADDRESSES[case]
    assert read_header(header + b"GET") == ProxyHeader(len(header), source, destination)


@table("case", WITHOUT_ADDRESSES)
def test_a_header_without_a_tcp_client_leaves_the_addresses_of_the_connection(case: str) -> None:
    header = WITHOUT_ADDRESSES[case]
    assert read_header(header + b"\x05\x01\x00") == ProxyHeader(len(header))


@table("header", [*(row[0] for row in WITH_ADDRESSES.values()), *WITHOUT_ADDRESSES.values()])
def test_a_header_is_awaited_octet_by_octet_to_its_end(header: bytes) -> None:
    assert len(header) <= HEADER_MAX
    assert {read_header(header[:count]) for count in range(len(header))} == {None}
    assert read_header(header) is not None


@table("case", REFUSED)
def test_what_is_no_header_is_refused(case: str) -> None:
    with pytest.raises(BadHeader):
        read_header(REFUSED[case])


@pytest.mark.parametrize("case", ["HTTP", "TLS", "SOCKS5", "another case"])
def test_a_client_that_sends_no_header_is_refused_with_its_first_octet(case: str) -> None:
    with pytest.raises(BadHeader, match="something else"):
        read_header(REFUSED[case][:1])


def test_the_checksum_is_castagnolis() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32/ISCSI


def test_a_flipped_bit_is_reported_by_the_checksum() -> None:
    header = bytearray(build_v2(CLIENT4, PROXY4, checksum=True))
    assert read_header(bytes(header)) == ProxyHeader(len(header), CLIENT4, PROXY4)
    header[17] ^= 1
    with pytest.raises(BadHeader, match="checksum is wrong"):
        read_header(bytes(header))


def test_version_1_is_built_to_the_letter() -> None:
    assert build_v1(CLIENT4, PROXY4) == b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n"
    assert build_v1(CLIENT6, PROXY6) == b"PROXY TCP6 2001:db8::7 2001:db8::1 56324 443\r\n"


def test_two_families_are_both_written_as_ipv6() -> None:
    assert build_v1(CLIENT4, PROXY6) == b"PROXY TCP6 0:0:0:0:0:ffff:c000:207 2001:db8::1 56324 443\r\n"
    for built in (build_v1(CLIENT4, PROXY6), build_v2(CLIENT4, PROXY6)):
        assert read_header(built) == ProxyHeader(len(built), CLIENT4, PROXY6)


def test_version_2_is_built_to_the_octet() -> None:
    assert build_v2(CLIENT4, PROXY4) == v2(0x21, 0x11, INET)
    assert v2(0x20, 0x00, b"") == LOCAL_V2


def test_a_zone_is_not_reported() -> None:
    assert b"fe80::1 " in build_v1(("fe80::1%eth0", 1), PROXY6)


def test_what_is_no_address_is_not_built() -> None:
    with pytest.raises(ValueError, match=r"example\.com"):
        build_v1(("example.com", 1), PROXY4)


_PORTS = st.integers(0, 65535)
_ENDS4 = st.tuples(st.ip_addresses(v=4).map(str), _PORTS)
_ENDS6 = st.tuples(st.ip_addresses(v=6).map(str), _PORTS)


def _plain(end: tuple[str, int]) -> tuple[str, int]:
    address = IPv6Address(end[0]) if ":" in end[0] else IPv4Address(end[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address), end[1]


@given(st.one_of(_ENDS4, _ENDS6), st.one_of(_ENDS4, _ENDS6), st.sampled_from(["1", "2", "2c"]), st.binary(max_size=20))
def test_what_is_built_is_read(source: tuple[str, int], destination: tuple[str, int], how: str, rest: bytes) -> None:
    built = build_v1(source, destination) if how == "1" else build_v2(source, destination, checksum=how == "2c")
    assert read_header(built + rest) == ProxyHeader(len(built), _plain(source), _plain(destination))


@given(st.binary(max_size=200), st.sampled_from([b"", b"PROXY ", b"PROXY TCP4 ", SIGNATURE, SIGNATURE + b"\x21\x11"]))
def test_whatever_comes_is_a_header_is_refused_or_is_awaited_and_never_taken_back(tail: bytes, start: bytes) -> None:
    data, results = start + tail, []
    for count in range(len(data) + 1):
        try:
            results.append(read_header(data[:count]))
        except BadHeader:
            results.append("refused")
    decided = next((at for at, result in enumerate(results) if result is not None), len(results))
    assert results[:decided] == [None] * decided
    assert len({repr(result) for result in results[decided:]}) <= 1
