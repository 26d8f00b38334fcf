"""Names of hosts, domains and header fields, and ports of proxies, read from text. Light to import: actors need it.

A range is written `20000-20999`, both ends included; a range of one port is that port. Stored models and messages have
the first port, and the last one beside it, 0 where there is only one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address

NUMERIC_END = re.compile(r"(?:^|\.)(?:0[xX][0-9A-Fa-f]*|[0-9]+)$", re.ASCII)
"""The last label is a number: resolvers take such a name for an odd spelling of an address (`127.1`, `0x7f.1`)."""
_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[A-Za-z0-9_-]{1,63}(?<!-))*", re.ASCII)


def is_host_name(text: str) -> bool:
    """Whether `text` is the name of a host, in ASCII and without a dot at its end; an underscore is allowed."""
    return len(text) <= 253 and _NAME.fullmatch(text) is not None and not NUMERIC_END.search(text)


def from_this_machine(host: str) -> str:
    """The host by which this machine reaches a listener at `host`: loopback where it listens at all addresses."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - nothing is bound here


def is_loopback(host: str) -> bool:
    """Whether a host, by its address or as `localhost`, is reached from this machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


_LONGEST = 254


def read_domain(text: str) -> str:
    """A domain in lower case, without a dot at its end; it stands for itself and all below. Raises `ValueError`."""
    name = text.lower().removesuffix(".")
    if text.startswith(("*.", ".")):
        raise ValueError("must be the domain alone: it matches itself and every name below it")
    if not text.isascii() or not is_host_name(name):
        raise ValueError("must be a domain like example.com, in ASCII (an IDN begins with xn--)")
    return name


def in_a_labels(text: str) -> str:
    """An entry as people may write it, with the letters of its name in A-labels (RFC 5890). Raises `ValueError`.

    `*.b\u00fccher.example:443` becomes `*.xn--bcher-kva.example:443`; what is ASCII stays. Letters are mapped as
    browsers do (UTS 46), and never compared by their looks: a Cyrillic letter makes another name than a Latin one.
    """
    if text.isascii():
        return text
    host, colon, ports = text.partition(":")
    name = host.removeprefix("*.")
    return host[: len(host) - len(name)] + _a_labels(name) + colon + ports


def _a_labels(name: str) -> str:
    if name.isascii():
        return name
    import idna  # tables of Unicode, which only such names need

    try:
        found = idna.encode(name, uts46=True).decode("ascii") if len(name) <= _LONGEST else ""
    except UnicodeError:
        found = ""
    if not is_host_name(found.removesuffix(".")):
        raise ValueError("is no name that a domain can have")
    return found


_FRAMING = (
    "connection content-length expect host http2-settings keep-alive max-forwards proxy-authenticate "
    "proxy-authentication-info proxy-authorization proxy-connection te trailer transfer-encoding upgrade via"
)
OWN_FIELDS = frozenset(_FRAMING.split())
"""Fields of framing, of routing and of one hop, by which hops understand each other: a proxy sets them itself."""


def canonical_name(name: str) -> str:
    """One spelling for all names that servers may take for the same: without case, and `_` is `-`.

    Many hand `X-User` and `X_User` to applications as one variable, so one of them would stand for the other.
    """
    return name.lower().replace("_", "-")


PORTS_MAX = 4096
"""Ports of one proxy: each is a socket in the supervisor and in every process of the proxy."""
FORM = "must be a port from 1 to 65535, or a range like 20000-20999"
_RANGE = re.compile(r"([1-9][0-9]{0,4})(?:-([1-9][0-9]{0,4}))?", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Ports:
    """Consecutive ports, `first` and `last` included."""

    first: int
    last: int

    @classmethod
    def of(cls, first: int, last: int = 0) -> Ports:
        """From the two numbers of a stored model or a message."""
        return cls(first, last or first)

    @classmethod
    def read(cls, text: str) -> Ports:
        """From `20000-20999` or `20000`. Raises `ValueError`."""
        match = _RANGE.fullmatch(text)
        if match is None:
            raise ValueError(FORM)
        first, last = int(match[1]), int(match[2] or match[1])
        if max(first, last) > 65535:
            raise ValueError(FORM)
        if last < first:
            raise ValueError("must have the lower port first")
        return cls(first, last)

    @classmethod
    def given(cls, value: int | str) -> Ports:
        """From `port` of a request or response. Raises `ValueError`."""
        return cls(value, value) if isinstance(value, int) else cls.read(value)

    @property
    def stored_last(self) -> int:
        """As stored models and messages have the last port: 0 where there is only one."""
        return 0 if self.last == self.first else self.last

    @property
    def written(self) -> int | str:
        """As requests and responses have it: one port is a number."""
        return self.first if self.first == self.last else str(self)

    def overlaps(self, other: Ports) -> bool:
        """Whether a port is in both."""
        return self.first <= other.last and other.first <= self.last

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def __contains__(self, port: object) -> bool:
        return isinstance(port, int) and self.first <= port <= self.last


Range = tuple[str, int, int]
"""A host, and the first and the last of consecutive ports."""


def merged(ranges: Iterable[Range]) -> list[Range]:
    """The same addresses in order, each once; consecutive ports of a host are one range."""
    found: list[Range] = []
    for host, first, last in sorted(ranges):
        before = found[-1] if found else ("", 0, -1)
        if before[0] == host and first <= before[2] + 1:
            found[-1] = (host, before[1], max(last, before[2]))
        else:
            found.append((host, first, last))
    return found
