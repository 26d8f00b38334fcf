"""How workers divide a bandwidth: what each may move in the next period, by what all moved in the last one. Pure.

Each worker computes its own share from the same numbers, so that shares add up to the whole. Where one saw older
numbers than another the sum may be more for a period or two; what was too much is made up for in the seconds after.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

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
