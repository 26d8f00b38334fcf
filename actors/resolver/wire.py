"""DNS messages (RFC 1035): one question out, and what is believed of a response to it.

A response counts only when it has the id and the question of the query, letter by letter: the letters of a name are
sent in random case (draft-vixie-dnsext-dns0x20). Of its records only those count that the question's name leads to.
"""

from __future__ import annotations

import secrets
import struct
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import dns.exception
import dns.ipv4
import dns.ipv6
import dns.name

A, CNAME, SOA, AAAA = 1, 5, 6, 28
NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED = range(6)
RCODES = ("NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED")
PAYLOAD = 1232
"""Bytes that a UDP response may have, so that it isn't fragmented (RFC 9715)."""
STREAM_MAX = 16 * 1024
"""Bytes of a response over TCP, TLS and HTTPS."""
ADDRESSES_MAX = 32
"""Addresses of a name that are used; nothing connects to more."""
RECORDS_MAX = 512
LABELS_MAX = 2048
"""Of all names in a response; compressed, hundreds of names with 127 labels fit into one."""
ALIASES_MAX = 12
TTL_MAX = 7 * 86_400
NAMES_MAX = 512
"""Packed names that are kept: each is wanted for both kinds of addresses, and to learn whether it is a name."""

_HEADER = struct.Struct("!HHHHHH")
_RECORD = struct.Struct("!HHIH")
_RESPONSE, _TRUNCATED, _OPCODE, _RECURSION = 0x8000, 0x0200, 0x7800, 0x0100
_EDNS = b"\0" + struct.pack("!HHIH", 41, PAYLOAD, 0, 0)
_IN = 1
_TO_QUESTION = b"\xc0\x0c"
"""A pointer to the name of the question (RFC 1035, section 4.1.4)."""


class NotAName(ValueError):
    """The text can't be asked for in the DNS."""


class Bogus(Exception):
    """A message that is no response to the query; the text is a word for the counter."""


class OtherCase(Bogus):
    """The name in the response has its letters in another case: forged, or of a server that changes names."""


class DnsQuery(NamedTuple):
    """A query without its id. `question` is the question section, which the response has to repeat."""

    name: str
    kind: int
    question: bytes
    edns: bool

    def with_id(self, number: int) -> bytes:
        """The message."""
        head = _HEADER.pack(number, _RECURSION, 1, 0, 0, int(self.edns))
        return head + self.question + (_EDNS if self.edns else b"")


class DnsResponse(NamedTuple):
    """What a response says about the name. `ttl` is seconds; `alias` is where an unfinished chain of CNAMEs ends.

    `negative_ttl` is RFC 2308's, None when the response doesn't say how long the name has no addresses.
    """

    code: int
    truncated: bool = False
    addresses: tuple[str, ...] = ()
    ttl: int = 0
    alias: str = ""
    negative_ttl: int | None = None


@lru_cache(maxsize=NAMES_MAX)
def pack_name(name: str) -> bytes:
    """A name without its final dot as it is sent. Raises `NotAName`."""
    labels = name.split(".")
    if len(name) > 253 or not all(0 < len(label) < 64 for label in labels) or not name.isascii():
        raise NotAName(name)
    return b"".join(bytes((len(label),)) + label.encode() for label in labels) + b"\0"


def new_query(name: str, kind: int, mixed_case: bool = True, edns: bool = True) -> DnsQuery:
    """A query for the records of this kind. Raises `NotAName`."""
    packed = pack_name(name.lower())
    if mixed_case:
        packed = _in_random_case(packed)
    return DnsQuery(name, kind, packed + struct.pack("!HH", kind, _IN), edns)


_CASE_BITS = bytes(0x20 if 97 <= each <= 122 else 0 for each in range(256))


def _in_random_case(packed: bytes) -> bytes:
    """The name with each letter in upper case or not, by chance. (A length is below 64, and no letter.)"""
    letters = int.from_bytes(packed.translate(_CASE_BITS), "big")
    flips = letters & secrets.randbits(8 * len(packed))
    return (int.from_bytes(packed, "big") ^ flips).to_bytes(len(packed), "big")


def read_response(message: bytes, query: DnsQuery, number: int) -> DnsResponse:
    """What the message says as a response to the query with this id. Raises `Bogus`."""
    if len(message) < _HEADER.size:
        raise Bogus("malformed")
    found, flags, questions, in_first, authority, _more = _HEADER.unpack_from(message)
    if found != number:
        raise Bogus("id")
    if not flags & _RESPONSE or flags & _OPCODE:
        raise Bogus("malformed")
    code, end = flags & 0x0F, _HEADER.size + len(query.question)
    if questions == 0 and code in (FORMERR, NOTIMP, REFUSED, SERVFAIL):
        return DnsResponse(code)  # as servers reply that couldn't read it
    if questions != 1 or len(message) < end:
        raise Bogus("question")
    _check_question(message[_HEADER.size : end], query.question)
    if flags & _TRUNCATED or code not in (NOERROR, NXDOMAIN):
        return DnsResponse(code, bool(flags & _TRUNCATED))
    try:
        return _read_records(message, end, in_first, authority, query, code)
    except (dns.exception.DNSException, struct.error, UnicodeError) as error:
        raise Bogus("malformed") from error


def _check_question(repeated: bytes, sent: bytes) -> None:
    if repeated != sent:
        raise OtherCase("case") if repeated.lower() == sent.lower() else Bogus("question")


@dataclass(slots=True)
class _Records:
    """Of the sections that matter, by owner in lower case."""

    addresses: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    aliases: dict[str, tuple[str, int]] = field(default_factory=dict)
    negative_ttls: list[int] = field(default_factory=list)
    labels: int = 0
    """Of the names that were read."""


def _read_records(message: bytes, place: int, in_first: int, authority: int, query: DnsQuery, code: int) -> DnsResponse:
    if in_first + authority > RECORDS_MAX:
        raise Bogus("overlong")
    records = _Records()
    for number in range(in_first + authority):
        place = _read_record(message, place, records, query, number < in_first)
    return _follow(records, query.name, code)


def _read_record(message: bytes, place: int, records: _Records, query: DnsQuery, of_first: bool) -> int:
    """Returns where the record ends."""
    wanted = query.kind
    if message.startswith(_TO_QUESTION, place):  # as of nearly all
        owner, place = query.name, place + len(_TO_QUESTION)
    else:
        owner, place = _read_name(message, place, records)
    kind, of_class, ttl, length = _RECORD.unpack_from(message, place)
    place += _RECORD.size
    end: int = place + length
    if end > len(message):
        raise Bogus("malformed")
    ttl = 0 if ttl > 0x7FFFFFFF else min(ttl, TTL_MAX)  # RFC 2181, section 8
    if of_class == _IN and of_first and kind == wanted:
        records.addresses.setdefault(owner, []).append((_address(message[place:end], wanted), ttl))
    elif of_class == _IN and of_first and kind == CNAME:
        records.aliases.setdefault(owner, (_read_name(message, place, records)[0], ttl))
    elif of_class == _IN and not of_first and kind == SOA:
        minimum = int.from_bytes(message[place:end][-4:], "big")
        records.negative_ttls.append(min(ttl, minimum))  # RFC 2308, section 5
    return end


def _read_name(message: bytes, place: int, records: _Records) -> tuple[str, int]:
    """A name in lower case without its final dot, and where it ends in the message."""
    name, used = dns.name.from_wire(message, place)
    records.labels += len(name.labels)
    if records.labels > LABELS_MAX:
        raise Bogus("overlong")
    if any(b"." in label for label in name.labels):
        raise Bogus("malformed")  # it would read as another name
    return b".".join(name.labels[:-1]).decode("ascii").lower(), place + used


def _address(data: bytes, kind: int) -> str:
    return dns.ipv4.inet_ntoa(data) if kind == A else dns.ipv6.inet_ntoa(data)


def _follow(records: _Records, name: str, code: int) -> DnsResponse:
    """From the name by CNAMEs to addresses. Raises `Bogus` for a loop and for too long a chain."""
    seen, ttl = {name}, TTL_MAX
    while name in records.aliases:
        name, alias_ttl = records.aliases[name]
        ttl = min(ttl, alias_ttl)
        if name in seen or len(seen) > ALIASES_MAX:
            raise Bogus("alias_loop")
        seen.add(name)
    found = records.addresses.get(name, [])
    if found:
        ttl = min(ttl, *(each for _address, each in found))
        return DnsResponse(code, False, tuple(dict.fromkeys(each for each, _ttl in found))[:ADDRESSES_MAX], ttl)
    negative = min(records.negative_ttls) if records.negative_ttls else None
    unfinished = len(seen) > 1 and negative is None and code == NOERROR
    return DnsResponse(code, ttl=ttl, alias=name if unfinished else "", negative_ttl=negative)
