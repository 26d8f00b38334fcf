"""`Forwarded` (RFC 7239) and `X-Forwarded-For`: the client's address, behind what the request has of the field already.

A client can write the field itself, so an origin may believe the last element alone, which is the proxy's. What came is
put into one line with it, and left out when it is no such list: the element would be a part of an open quotation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from actors.forwarding.protocols.http.header_changes import HeaderChanges, canonical_field

_END: Final = b"\r\n\r\n"
_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_QUOTED = rb"\"(?:[\t\x20\x21\x23-\x5b\x5d-\x7e]|\\[\t\x20-\x7e])*+\""
_PAIR = rb"(?:" + _TOKEN + rb"=(?:" + _TOKEN + rb"|" + _QUOTED + rb"))?+"
_LIST = re.compile(_PAIR + rb"(?:[\t ]*+[;,][\t ]*+" + _PAIR + rb")*+")
"""RFC 7239 4, with the blanks around semicolons that some send."""
_ADDRESSES = re.compile(rb"[0-9A-Za-z.:_%\[\]\-]*+(?:[\t ]*+,[\t ]*+[0-9A-Za-z.:_%\[\]\-]*+)*+")
_PLAIN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


ELEMENTS_KEPT: Final = 256


class ForwardedField(NamedTuple):
    """One of the two fields: its name, its canonical name, and what of it a client may have written."""

    name: bytes
    canonical: bytes
    is_value: Callable[[bytes], object]


FORWARDED: Final = ForwardedField(b"Forwarded", b"forwarded", _LIST.fullmatch)
X_FORWARDED_FOR: Final = ForwardedField(b"X-Forwarded-For", b"x-forwarded-for", _ADDRESSES.fullmatch)
FIELDS: Final = {"x-forwarded-for": X_FORWARDED_FOR, "rfc7239": FORWARDED}
"""By the modes of `headers.forwarded`; any other adds none."""


class OwnHeaders:
    """What a proxy does to the head of every plain request."""

    __slots__ = ("_dropped", "by", "changes", "field")

    def __init__(self, changes: HeaderChanges | None, field: ForwardedField | None, by: bytes) -> None:
        """`by` is how it names itself in `Forwarded`, or empty."""
        self.changes = changes
        self.field = field
        self.by = by
        removed = frozenset() if changes is None else changes.removed
        self._dropped = removed if field is None else removed | {field.canonical}

    def change(self, client_ip: str, host: bytes) -> Callable[[bytes], bytes]:
        """Makes the head that is sent of what it would be, for a request of this client to `host`."""
        return lambda head: self.apply(head, client_ip, host)

    def apply(self, head: bytes, client_ip: str, host: bytes) -> bytes:
        """The head with the fields removed, set and added."""
        first, *lines = head.removesuffix(_END).split(b"\r\n")
        kept = [line for line in lines if canonical_field(line) not in self._dropped]
        added = () if self.changes is None else self.changes.lines
        if self.field is not None:
            ours = self._added(client_ip, host)
            before = self._before(self.field, lines) if len(kept) < len(lines) else b""
            added = (*added, b"%b: %b" % (self.field.name, before + b", " + ours if before else ours))
        return b"\r\n".join((first, *kept, *added)) + _END

    def _added(self, client_ip: str, host: bytes) -> bytes:
        return address_of(client_ip) if self.field is X_FORWARDED_FOR else element(client_ip, host, self.by)

    def _before(self, field: ForwardedField, lines: Iterable[bytes]) -> bytes:
        """What the request has of the field, in one line; empty if it is none of that, or not to be kept."""
        if self.changes is not None and field.canonical in self.changes.removed:
            return b""
        before = b", ".join(_values(lines, field))
        return before if field.is_value(before) else b""


@lru_cache(maxsize=ELEMENTS_KEPT)
def element(client_ip: str, host: bytes, by: bytes) -> bytes:
    """The proxy's element of `Forwarded`; `by` is an identifier, or empty for none."""
    pairs = [b"for=" + node(client_ip), b"host=" + quoted(host), b"proto=http"]
    return b";".join([*pairs, b"by=" + by] if by else pairs)


def node(address: str) -> bytes:
    """An address as RFC 7239 6 writes it, `unknown` for none."""
    text = address_of(address)
    return b'"[%b]"' % text if b":" in text else text


def address_of(client_ip: str) -> bytes:
    """The address without its zone, `unknown` for none."""
    return client_ip.partition("%")[0].encode("ascii") or b"unknown"


def quoted(value: bytes) -> bytes:
    """A value of a pair: as it is where it is a token."""
    if _PLAIN.fullmatch(value):
        return value
    return b'"%b"' % value.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def _values(lines: Iterable[bytes], field: ForwardedField) -> Iterable[bytes]:
    """The values of the field itself, not of those that only look like it to some servers."""
    parts = (line.partition(b":") for line in lines)
    values = (value.strip(b" \t") for name, _colon, value in parts if name.lower() == field.canonical)
    return filter(None, values)
