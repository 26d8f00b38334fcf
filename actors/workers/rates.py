"""What one process moved for each bandwidth that it shares, in the last period, and how much it was short of.

The file is `SETS` sets of `WAYS` entries of eight words: the digest of the key, the period, then for each direction the
bytes moved in it and the flows that had to wait, and the bytes moved in the last second. The period is written last: a
reader in between sees new numbers for the period before.

In a full set a key takes the place of the one that moved nothing for the longest time, but of none that moved in the
last second; then it shares nothing.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

from actors.workers.mapped import HEADER, Kind, Words

SETS: Final = 512
WAYS: Final = 8
_ENTRY: Final = 8
_SET: Final = WAYS * _ENTRY
_PERIOD, _FIRST = 1, 2
_NUMBERS = struct.Struct("@6Q")

PERIOD: Final = 0.1
"""Seconds."""
PERIODS_KEPT: Final = 3
"""A process that has said nothing for so many periods moves nothing."""
_SECOND: Final = round(1 / PERIOD)

KIND: Final = Kind("rates", SETS * _SET)

Moved: TypeAlias = tuple[int, int, int, int, int, int]
"""What one process moved in one period: bytes inward and outward, flows that had to wait inward and outward, and bytes
inward and outward in the second up to its end."""


def period_at(now: float) -> int:
    """The period of a moment of the monotonic clock."""
    return int(now / PERIOD)


class RateTable:
    """The rates of one process, for itself to write or for another to read."""

    __slots__ = ("_bytes", "_words")

    def __init__(self, words: Words) -> None:
        self._words = words
        self._bytes = words.cast("B")

    def read(self, digest: int, period: int) -> Moved | None:
        """What it moved lately, as of this period; None when it is silent."""
        words, at = self._words, self._find(digest)
        if at < 0 or words[at + _PERIOD] <= period - PERIODS_KEPT:
            return None
        moved = _NUMBERS.unpack_from(self._bytes, 8 * (at + _FIRST))
        return moved if words[at] == digest else None

    # --- for the process whose table it is ---

    def clean(self) -> None:
        """The process that wrote here before has ended."""
        number = SETS * WAYS
        self._words[HEADER::_ENTRY] = memoryview(bytes(8 * number)).cast("Q")

    def write(self, digest: int, period: int, moved: Moved) -> bool:
        """This is what it moved in this period. Returns False when the key has no place."""
        words, at = self._words, self._find(digest)
        if at < 0:
            at = self._place(digest, period)
            if at < 0:
                return False
        _NUMBERS.pack_into(self._bytes, 8 * (at + _FIRST), *moved)
        words[at + _PERIOD] = period
        return True

    def _find(self, digest: int) -> int:
        base = HEADER + digest % SETS * _SET
        digests = self._words[base : base + _SET : _ENTRY].tolist()
        return base + _ENTRY * digests.index(digest) if digest in digests else -1

    def _place(self, digest: int, period: int) -> int:
        words, base = self._words, HEADER + digest % SETS * _SET
        at = min(range(base, base + _SET, _ENTRY), key=lambda each: words[each] and words[each + _PERIOD] + 1)
        if words[at] and words[at + _PERIOD] > period - _SECOND:
            return -1
        words[at] = words[at + _PERIOD] = 0
        words[at] = digest
        return at
