"""The ports that a proxy listens at: one, or a range of consecutive ones. Light to import: actors need it.

A range is written `20000-20999`, both ends included; a range of one port is that port. Stored models and messages have
the first port, and the last one beside it, 0 where there is only one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

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
