"""Header fields of plain requests that a proxy, or a rule of a policy, sets and removes.

They are changed in the head as it would be sent: what `Connection` has named is gone then, and what is set stays.

`Forwarded` (RFC 7239) and `X-Forwarded-For`: the client's address, behind what the request has of the field already. A
client can write the field itself, so an origin may believe the last element alone, which is the proxy's. What came is
put into one line with it, and left out when it is no such list: the element would be a part of an open quotation.

The field `Via`: the entry that a proxy adds, and whether it is there already (RFC 9110 7.6.3). A proxy knows itself by
its pseudonym alone: by host name and port, two machines of one name in a chain would be a loop.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from actors.forwarding.protocols.failures import PROXY_NAME
from config.net.names import OWN_FIELDS, canonical_name

_END: Final = b"\r\n\r\n"
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.ASCII)
_VALUE = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?", re.ASCII)

FieldChanges = Mapping[bytes, bytes | None]
"""By canonical names: the line to set, or None to remove the field."""


class HeaderChanges(NamedTuple):
    """`removed` are canonical names, those that are set among them; `lines` are the fields to set."""

    removed: frozenset[bytes]
    lines: tuple[bytes, ...]

    def apply(self, head: bytes) -> bytes:
        """The head of a request, as it would be sent, with the changes."""
        first, *lines = head.removesuffix(_END).split(b"\r\n")
        remaining = (line for line in lines if canonical_field(line) not in self.removed)
        return b"\r\n".join((first, *remaining, *self.lines)) + _END


def canonical_field(line: bytes) -> bytes:
    """The canonical name of the field in a line."""
    return line.partition(b":")[0].lower().replace(b"_", b"-")


def field_changes(to_set: Iterable[tuple[str, str]], to_remove: Iterable[str]) -> FieldChanges:
    """What these names and values change.

    Raises `ValueError` for a field that may not be changed, and for what would not be one field.
    """
    changes: dict[bytes, bytes | None] = {_checked_name(name): None for name in to_remove}
    changes.update((_checked_name(name), f"{name}: {_checked_value(name, value)}".encode()) for name, value in to_set)
    return changes


def merged(changes: Iterable[FieldChanges]) -> HeaderChanges | None:
    """All of them; of two that change one field the first decides. None: nothing."""
    fields: dict[bytes, bytes | None] = {}
    for each in changes:
        fields = {**each, **fields}
    if not fields:
        return None
    return HeaderChanges(frozenset(fields), tuple(line for line in fields.values() if line))


def _checked_name(name: str) -> bytes:
    found = canonical_name(name)
    if _NAME.fullmatch(name) is None or found in OWN_FIELDS:
        raise ValueError(f"{name!r} may be neither set nor removed")
    return found.encode()


def _checked_value(name: str, value: str) -> str:
    if _VALUE.fullmatch(value) is None:
        raise ValueError(f"the value of {name} is not one of a header field")
    return value


_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_QUOTED = rb"\"(?:[\t\x20\x21\x23-\x5b\x5d-\x7e]|\\[\t\x20-\x7e])*+\""
_PAIR = rb"(?:" + _TOKEN + rb"=(?:" + _TOKEN + rb"|" + _QUOTED + rb"))?+"
_LIST = re.compile(_PAIR + rb"(?:[\t ]*+[;,][\t ]*+" + _PAIR + rb")*+")
"""RFC 7239 4, with the blanks around semicolons that some send."""
_ADDRESSES = re.compile(rb"[0-9A-Za-z.:_%\[\]\-]*+(?:[\t ]*+,[\t ]*+[0-9A-Za-z.:_%\[\]\-]*+)*+")
_PLAIN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


CACHED_ELEMENTS: Final = 256


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
        remaining = [line for line in lines if canonical_field(line) not in self._dropped]
        added = () if self.changes is None else self.changes.lines
        if self.field is not None:
            ours = self._added(client_ip, host)
            before = self._before(self.field, lines) if len(remaining) < len(lines) else b""
            added = (*added, b"%b: %b" % (self.field.name, before + b", " + ours if before else ours))
        return b"\r\n".join((first, *remaining, *added)) + _END

    def _added(self, client_ip: str, host: bytes) -> bytes:
        return address_of(client_ip) if self.field is X_FORWARDED_FOR else element(client_ip, host, self.by)

    def _before(self, field: ForwardedField, lines: Iterable[bytes]) -> bytes:
        """What the request has of the field, in one line; empty if it is none of that, or not to be kept."""
        if self.changes is not None and field.canonical in self.changes.removed:
            return b""
        before = b", ".join(_values(lines, field))
        return before if field.is_value(before) else b""


@lru_cache(maxsize=CACHED_ELEMENTS)
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


_ONE_TOKEN = re.compile(_TOKEN)


def pseudonym_of(proxy_id: str) -> bytes:
    """The name that this proxy has, and no other."""
    return f"{PROXY_NAME}-{proxy_id[-8:]}".encode()


def received_by(pseudonym: bytes, machine: str, port: int) -> bytes:
    """The entry behind the version: host name and port of the proxy, or its pseudonym alone where the field's grammar
    has no such host name."""
    host = machine.encode("ascii", "replace")
    return b"%b:%d (%b)" % (host, port, pseudonym) if _ONE_TOKEN.fullmatch(host) else pseudonym


def extended_via(before: bytes | None, minor: int, name: bytes) -> bytes:
    """`before` with an entry for HTTP/1.`minor` behind it, or as it is without a `name`; empty for no field."""
    if not name:
        return before or b""
    ours = b"1.1 " + name if minor else b"1.0 " + name
    return ours if before is None else before + b", " + ours


def passed_here(via: bytes | None, pseudonym: bytes) -> bool:
    """True when `via` names the proxy of this pseudonym, as a name or in a comment."""
    return via is not None and any(_names(hop.split()[1:3], pseudonym) for hop in via.split(b","))


def _names(words: list[bytes], pseudonym: bytes) -> bool:
    return words[:1] == [pseudonym] or words[1:] == [b"(%b)" % pseudonym]
