"""How a fuzz input is laid out: a few octets that choose the circumstances, and then the bytes that come in.

```
| flags | cut | cut | bytes of the peer ... |
```

A mutation of a flag or a cut thus leaves the peer's bytes as they are. The same bytes are given in three ways: whole,
cut in three at the two places, and octet by octet; what comes of it must be the same.
"""

from __future__ import annotations

from typing import NamedTuple

HEADER = 3
MUCH = 64 * 1024
PIECE = 4096
BYTEWISE_MAX = 600
"""Octets given one by one at most; what is longer comes in pieces of seven, which is as odd and a good deal faster."""


class Input(NamedTuple):
    """One input, taken apart."""

    flags: int
    cuts: tuple[int, int]
    data: bytes

    def flag(self, number: int) -> bool:
        """Is this circumstance given?"""
        return bool(self.flags >> number & 1)

    def ways(self) -> list[list[bytes]]:
        """The pieces in which the bytes come, way by way."""
        data = self.data
        first, second = sorted(cut % (len(data) + 1) for cut in self.cuts)
        thirds = [data[:first], data[first:second], data[second:]]
        step = 1 if len(data) <= BYTEWISE_MAX else 7
        small = [data[at : at + step] for at in range(0, len(data), step)]
        return [[data], thirds, small]

    def much(self) -> list[bytes]:
        """The bytes again and again, in large pieces: for what depends on how much there is."""
        stream = self.data * (MUCH // len(self.data)) if self.data else b""
        return [stream[at : at + PIECE] for at in range(0, len(stream), PIECE)]


def read_input(octets: bytes) -> Input | None:
    """The input, or None when there are too few octets for one."""
    if len(octets) < HEADER:
        return None
    return Input(octets[0], (octets[1], octets[2]), octets[HEADER:])


def write_input(data: bytes, flags: int = 0, cuts: tuple[int, int] = (5, 40)) -> bytes:
    """The octets of an input; for seeds."""
    return bytes((flags, *cuts)) + data
