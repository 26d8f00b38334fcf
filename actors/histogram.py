"""Latencies as histograms with fixed buckets, so that those of many processes and of many minutes add up.

A percentile is always read from the sum of histograms: percentiles themselves can't be added or averaged. The bounds
grow by a fourth of an octave (19 %), from 62.5 µs to 70 minutes; within a bucket values are taken to lie evenly, so a
percentile is wrong by a few percent at most.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Final

PARTS = 4
"""Buckets of an octave."""
BOUNDS: tuple[float, ...] = tuple(0.001 * 2.0 ** (step / PARTS) for step in range(-4 * PARTS, 22 * PARTS + 1))
"""Upper bounds in seconds, inclusive. Longer values are in one more bucket."""
BUCKETS: Final = len(BOUNDS) + 1

Histogram = Mapping[int, int]
"""Count of values by number of the bucket; empty ones are left out."""


def bucket_of(seconds: float) -> int:
    """The number of the bucket of a latency."""
    return bisect_left(BOUNDS, seconds)


def sparse(counts: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Number and count of the buckets that aren't empty."""
    return tuple((number, count) for number, count in enumerate(counts) if count)


def percentile(histogram: Histogram, percent: float) -> float | None:
    """The latency in seconds below which `percent` of the values lie; None when there are none."""
    total = sum(histogram.values())
    if total <= 0:
        return None
    wanted, seen = total * percent / 100, 0
    for number in sorted(histogram):
        count = histogram[number]
        if count > 0 and seen + count >= wanted:
            return _within(number, (wanted - seen) / count)
        seen += count
    return BOUNDS[-1]


def cumulative(histogram: Histogram, bounds: Iterable[int]) -> list[int]:
    """The cumulative counts at the bounds of these buckets."""
    return [sum(count for number, count in histogram.items() if number <= bound) for bound in bounds]


def _within(number: int, part: float) -> float:
    """The value a `part` of the way through a bucket."""
    if number >= len(BOUNDS):
        return BOUNDS[-1]
    low = BOUNDS[number - 1] if number else 0.0
    return low + (BOUNDS[number] - low) * part
