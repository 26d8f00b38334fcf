"""Response policy zones: zone files (RFC 1035, section 5) whose names are triggers (draft-vixie-dnsop-dns-rpz).

`name CNAME .` and other actions list the name, `rpz-passthru` excepts it. Names of a trigger for clients or name
servers list nothing, and those for addresses (`rpz-ip`) list networks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address

from actors.lists.formats.parsers import NOTHING, Skip

_TYPES = frozenset(("A", "AAAA", "CNAME", "TXT", "MX", "SRV", "PTR", "LOC", "HTTPS", "SVCB"))
_OF_THE_ZONE = frozenset(("SOA", "NS", "DNSKEY", "RRSIG", "NSEC", "NSEC3", "NSEC3PARAM", "DS"))
_CLASSES = frozenset(("IN", "CH", "HS"))
_TTL = re.compile(r"(?:[0-9]{1,10}[smhdw])*+[0-9]{0,10}+", re.IGNORECASE | re.ASCII)
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*+"?+')
"""A text; one without end goes to the end of the line."""
_EXCEPTIONS = ("rpz-passthru.", "rpz-passthru")
_OTHER_TRIGGERS = ("rpz-client-ip", "rpz-nsdname", "rpz-nsip")


class Rpz:
    """A parser with the state of a zone file: its origin, the owner of the last record, open parentheses.

    `networks`: triggers by address are the entries, in place of those by name.
    """

    def __init__(self, networks: bool) -> None:
        self._networks = networks
        self._origin = ""
        self._owner = ""
        self._open = 0

    def __call__(self, line: str) -> Sequence[str]:
        """The entries of a line; see `actors.lists.formats.parsers`. `line` has its blanks at the beginning."""
        text = _QUOTED.sub('"', line).partition(";")[0]
        continued = self._open > 0
        self._open = max(0, self._open + text.count("(") - text.count(")"))
        if continued or not text.strip():
            return NOTHING
        if text.startswith("$"):
            return self._directive(text.split())
        words = text.split()
        if not text[0].isspace():
            self._owner = words.pop(0)
        return self._record(words)

    def _directive(self, words: list[str]) -> Sequence[str]:
        if words[0].upper() == "$ORIGIN" and len(words) > 1:
            self._origin = _absolute(words[1], self._origin)
        elif words[0].upper() != "$TTL":
            raise Skip(f"{words[0][:20]} is not supported")
        return NOTHING

    def _record(self, words: list[str]) -> Sequence[str]:
        while words and (words[0].upper() in _CLASSES or _TTL.fullmatch(words[0])):
            words.pop(0)
        kind = words[0].upper() if words else ""
        if kind in _OF_THE_ZONE:
            if kind == "SOA" and self._owner != "@":
                self._origin = _absolute(self._owner, self._origin)
            return NOTHING
        if kind not in _TYPES:
            raise Skip("is no record of a zone")
        if len(words) > 1 and words[1].lower() in _EXCEPTIONS:
            raise Skip("is an exception")
        return self._trigger(self._relative(self._owner))

    def _relative(self, owner: str) -> str:
        """The owner without the name of the zone."""
        if not owner.endswith("."):
            return owner.lower()
        zone = self._origin.lower()
        name = owner.lower()
        if not zone or not name.endswith("." + zone):
            raise Skip("is not below the name of the zone")
        return name.removesuffix("." + zone)

    def _trigger(self, name: str) -> Sequence[str]:
        if name.endswith(_OTHER_TRIGGERS):
            raise Skip("is not about targets")
        is_network = name.endswith(".rpz-ip")
        if is_network != self._networks:
            raise Skip("is a name" if self._networks else "is an address")
        return (_network(name.removesuffix(".rpz-ip")),) if is_network else (name.removeprefix("*."),)


def _absolute(name: str, origin: str) -> str:
    return name if name.endswith(".") else f"{name}.{origin}" if origin else f"{name}."


def _network(trigger: str) -> str:
    """`24.0.2.0.192` is 192.0.2.0/24, `48.zz.8.db8.2001` is 2001:db8:8::/48."""
    length, *parts = trigger.split(".")
    parts.reverse()
    try:
        if len(parts) == 4 and "zz" not in parts:
            return f"{IPv4Address('.'.join(parts))}/{int(length)}"
        return f"{IPv6Address(_colons(parts))}/{int(length)}"
    except ValueError:
        raise Skip("is not an address") from None


def _colons(parts: list[str]) -> str:
    """Words of an IPv6 address; `zz` is the run of zeros."""
    text = ":".join("" if each == "zz" else each for each in parts)
    return "::" if parts == ["zz"] else f":{text}" if parts[0] == "zz" else f"{text}:" if parts[-1] == "zz" else text
