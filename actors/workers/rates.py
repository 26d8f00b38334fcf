"""What one process moved for each bandwidth that it shares, in the last period, and how much it was short of.

The file is `SETS` sets of `WAYS` entries of eight words: the digest of the key, the period, then for each direction the
bytes moved in it and the flows that had to wait, and the bytes moved in the last second. The period is written last: a
reader in between sees new numbers for the period before.

In a full set a key takes the place of the one that moved nothing for the longest time, but of none that moved in the
last second; then it shares nothing.

How workers divide a bandwidth: what each may move in the next period, by what all moved in the last one. Pure. Each
worker computes its own share from the same numbers, so that shares add up to the whole. Where one saw older numbers
than another the sum may be more for a period or two; what was too much is made up for in the seconds after.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, TypeAlias

from actors.mapped_file import HEADER, FileKind, Words

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

KIND: Final = FileKind("rates", SETS * _SET)

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


FLOOR: Final = 1460
"""Bytes of a period that are divided among all, hungry or not: one segment, so that a first byte waits for no edge."""
FLOOR_PART: Final = 0.05
FLOOR_MAX: Final = 0.1
"""Parts of the whole that these bytes are at least, and at most."""
GROWTH: Final = 1.5
"""A worker without a waiting flow gets up to so many times what it moved."""
CORRECTION_MIN: Final = 0.8

Demand: TypeAlias = tuple[int, int]
"""What one worker moved in the last period, in bytes, and how many of its flows had to wait."""


def budget(rate: int, period: float, lately: int) -> float:
    """Bytes that all may move together in a period, when they moved `lately` in the last second."""
    correction = 1.0 if lately <= rate else max(CORRECTION_MIN, rate / lately)
    return rate * period * correction


def floor(whole: float, workers: int) -> float:
    """What each of them may move at least."""
    return min(max(FLOOR, FLOOR_PART * whole), FLOOR_MAX * whole) / workers


def share(whole: float, own: Demand, others: Iterable[Demand], workers: int) -> float:
    """What this worker gets of the whole. `others` are those that are not silent.

    One without a waiting flow gets what it needs, up to a fair part; the rest goes to the others by their waiting
    flows. If no flow waits it is even, among those that are not silent.
    """
    known = list(others)
    moved, own_flows = own
    least, own_want = floor(whole, workers), GROWTH * moved
    wants = [GROWTH * each for each, flows in known if not flows]
    if not own_flows:
        wants.append(own_want)
    hungry = own_flows + sum(flows for _moved, flows in known)
    left, got = whole - least * workers, 0.0
    weight = len(wants) + hungry
    for want in sorted(wants):
        given = min(want, left / weight)
        if want == own_want:
            got = given
        left -= given
        weight -= 1
    if own_flows:
        return least + left * own_flows / hungry
    return least + got + (0.0 if hungry else left / (1 + len(known)))


def share_alone(whole: float, workers: int) -> float:
    """What a worker gets when all others are silent."""
    return whole - floor(whole, workers) * (workers - 1)


def first_share(whole: float, moved: int, workers: int) -> float:
    """What a worker takes that was silent, until the next edge: a part of what the others left over."""
    return max(floor(whole, workers), (whole - moved) / workers)
