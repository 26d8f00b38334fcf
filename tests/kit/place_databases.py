"""Writes databases of places (MaxMind DB, version 2.0) for tests: networks, and a record for each.

https://maxmind.github.io/MaxMind-DB/
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from ipaddress import IPv4Network, ip_network
from typing import Any, Self

MARKER = b"\xab\xcd\xefMaxMind.com"
_KINDS = {16: 5, 32: 6, 64: 9}


class Number(int):
    """A number of so many bits; a plain one has 32."""

    bits: int

    def __new__(cls, value: int, bits: int) -> Self:
        made = super().__new__(cls, value)
        made.bits = bits
        return made


Node = list[Any]
"""Two branches: a node, a record that is a map, or None."""


def country(code: str) -> dict[str, Any]:
    """A record as in GeoLite2-Country."""
    return {"country": {"iso_code": code, "names": {"en": f"Country {code}"}}, "registered_country": {"iso_code": "ZZ"}}


def system(number: int) -> dict[str, Any]:
    """A record as in GeoLite2-ASN."""
    return {"autonomous_system_number": number, "autonomous_system_organization": f"Network {number}"}


def database(
    records: Mapping[str, Mapping[str, Any]], record_size: int = 24, ip_version: int = 6, kind: str = "Test"
) -> bytes:
    """The whole file. IPv4 networks are below ::/96 where `ip_version` is 6."""
    root: Node = [None, None]
    for text, record in sorted(records.items(), key=lambda each: ip_network(each[0]).prefixlen):
        _insert(root, _bits(text, ip_version), dict(record))
    nodes = _numbered(root)
    data, places = b"", dict[bytes, int]()
    tree = b""
    for node in nodes:
        pair = []
        for branch in node:
            if isinstance(branch, dict):
                packed = pack(branch)
                if packed not in places:
                    places[packed] = len(data)
                    data += packed
                pair.append(len(nodes) + 16 + places[packed])
            else:
                pair.append(len(nodes) if branch is None else next(i for i, each in enumerate(nodes) if each is branch))
        tree += _pair(pair[0], pair[1], record_size)
    about = {
        "binary_format_major_version": Number(2, 16), "binary_format_minor_version": Number(0, 16),
        "build_epoch": Number(1_700_000_000, 64), "database_type": kind, "description": {"en": "for tests"},
        "ip_version": Number(ip_version, 16), "languages": ["en"], "node_count": len(nodes),
        "record_size": Number(record_size, 16),
    }  # fmt: skip
    return tree + bytes(16) + data + MARKER + pack(about)


def pack(value: Any) -> bytes:
    """A value of the data section, without pointers."""
    if isinstance(value, bool):
        return _control(14, int(value))
    if isinstance(value, int):
        packed = value.to_bytes(8, "big").lstrip(b"\0")
        return _control(_KINDS[value.bits if isinstance(value, Number) else 32], len(packed)) + packed
    if isinstance(value, str):
        return _control(2, len(value.encode())) + value.encode()
    if isinstance(value, float):
        return _control(3, 8) + struct.pack(">d", value)
    if isinstance(value, dict):
        return _control(7, len(value)) + b"".join(pack(key) + pack(each) for key, each in value.items())
    return _control(11, len(value)) + b"".join(map(pack, value))


def _control(kind: int, size: int) -> bytes:
    head = min(size, 29)
    more = b"" if size < 29 else bytes([size - 29])
    assert size < 29 + 256, "longer values are not for tests"
    return (bytes([kind << 5 | head]) if kind < 8 else bytes([head, kind - 7])) + more


def _bits(text: str, ip_version: int) -> str:
    network = ip_network(text)
    width = network.max_prefixlen
    bits = f"{int(network.network_address):0{width}b}"[: network.prefixlen]
    return "0" * 96 + bits if isinstance(network, IPv4Network) and ip_version == 6 else bits


def _insert(node: Node, bits: str, record: dict[str, Any]) -> None:
    """Wider networks come first, so a record on the way is split."""
    for bit in map(int, bits[:-1]):
        if not isinstance(node[bit], list):
            node[bit] = [node[bit], node[bit]]
        node = node[bit]
    node[int(bits[-1])] = record


def _numbered(root: Node) -> list[Node]:
    found = [root]
    for node in found:
        found.extend(branch for branch in node if isinstance(branch, list))
    return found


def _pair(left: int, right: int, record_size: int) -> bytes:
    if record_size == 28:
        middle = bytes([left >> 24 << 4 | right >> 24])
        return (left & 0xFFFFFF).to_bytes(3, "big") + middle + (right & 0xFFFFFF).to_bytes(3, "big")
    return left.to_bytes(record_size // 8, "big") + right.to_bytes(record_size // 8, "big")
