"""A bandwidth that processes divide anew in each period, by what each moved and was short of in the last.

A process that begins to move something takes a line, which the others see; one that has moved nothing for a second
gives it back. While it is the only one it has all of the bandwidth, and looks after nothing but whether another begins.
From then on it writes at the edge of each period what it moved, reads what the others wrote, and takes its share.
One that begins takes a part of what the others left over, until the next edge.

Each process computes its own share from the same numbers, so that shares add up to the whole. Where one saw older
numbers than another the sum may be more for a period or two; what was too much is made up for in the seconds after.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from actors.bus.loop import Loop, Timer
from actors.forwarding.limits.token_bucket import TokenBucket
from actors.state.counts import DIVIDED, PERIOD, Moved, SharedKey, period_at

FLOOR: Final = 1460
"""Bytes of a period that are divided among all, hungry or not: one segment, so that a first byte waits for no edge."""
FLOOR_PART: Final = 0.05
FLOOR_MAX: Final = 0.1
"""Parts of the whole that these bytes are at least, and at most."""
GROWTH: Final = 1.5
"""A process without a waiting flow gets up to so many times what it moved."""
CORRECTION_MIN: Final = 0.8

Demand: TypeAlias = tuple[int, int]
"""What one process moved in the last period, in bytes, and how many of its flows had to wait."""


def budget(rate: int, period: float, lately: int) -> float:
    """Bytes that all may move together in a period, when they moved `lately` in the last second."""
    correction = 1.0 if lately <= rate else max(CORRECTION_MIN, rate / lately)
    return rate * period * correction


def floor(whole: float, processes: int) -> float:
    """What each of them may move at least."""
    return min(max(FLOOR, FLOOR_PART * whole), FLOOR_MAX * whole) / processes


def share(whole: float, own: Demand, others: Iterable[Demand], processes: int) -> float:
    """What this process gets of the whole. `others` are those that are not silent.

    One without a waiting flow gets what it needs, up to a fair part; the rest goes to the others by their waiting
    flows. If no flow waits it is even, among those that are not silent.
    """
    known = list(others)
    moved, own_flows = own
    least, own_want = floor(whole, processes), GROWTH * moved
    wants = [GROWTH * each for each, flows in known if not flows]
    if not own_flows:
        wants.append(own_want)
    hungry = own_flows + sum(flows for _moved, flows in known)
    left, got = whole - least * processes, 0.0
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


def share_alone(whole: float, processes: int) -> float:
    """What a process gets when all others are silent."""
    return whole - floor(whole, processes) * (processes - 1)


def first_share(whole: float, moved: int, processes: int) -> float:
    """What a process takes that was silent, until the next edge: a part of what the others left over."""
    return max(floor(whole, processes), (whole - moved) / processes)


BANDWIDTH: Final = "bandwidth"
"""Begins the key of a bandwidth."""
_SECOND = round(1 / PERIOD)
"""Periods of a second."""
_AFTER_EDGE = 0.001
"""Seconds; a timer at the very edge may be early by a rounding."""
_SAME = 0.005
"""Part of the whole by which a share must differ to be another."""
_BEGINS = Moved(0, 0, 1, 1, 0, 0)
"""What one that begins says of the period before: that it waits, so the others leave it a part at their next edge."""
_ALONE = 1.0
"""Seconds after which one that is alone looks whether it has moved anything."""


class _SharedDirection:
    """One direction, as its bucket sees it: counts what moves and what waits, and sets the bucket's rate."""

    def __init__(self, bandwidth: SharedBandwidth, bucket: TokenBucket) -> None:
        self._bandwidth = bandwidth
        self._bucket = bucket
        self._whole = bucket.rate
        self._moved = 0
        self._flows = 0
        self.lately = 0
        """Bytes of the last second, up to the last edge."""
        self._periods: deque[int] = deque((0,) * _SECOND, maxlen=_SECOND)
        bucket.sharing = self

    def begin(self) -> None:
        """See `Sharing`."""
        self._bandwidth.begin()

    def end(self) -> None:
        """See `Sharing`."""
        self._bandwidth.end()

    def moved(self, count: int) -> None:
        """See `Sharing`."""
        self._moved += count
        self._bandwidth.begin()

    def waits(self, count: int) -> None:
        """See `Sharing`."""
        if count > self._flows:
            self._flows = count
        self._bandwidth.begin()

    def new_rate(self, rate: int) -> int:
        """See `Sharing`."""
        own = rate * self._bucket.rate // self._whole if self._whole else rate
        self._whole = rate
        self._forget_second()  # what moved at the previous rate was not too much
        return max(1, own) if rate else 0

    @property
    def is_quiet(self) -> bool:
        """Whether nothing has moved in the last second, and nothing waits."""
        return not (self._moved or self._flows or self.lately)

    def end_period(self) -> Demand:
        """What moved in the period, and the flows that waited."""
        demand = self._moved, self._flows
        self.lately += self._moved - self._periods[0]
        self._periods.append(self._moved)
        self._moved, self._flows = 0, self._bucket.waiting
        return demand

    def divide(self, own: Demand, others: Sequence[Demand], lately: int, processes: int) -> None:
        """Take the share of the next period; `others` are those that are not silent."""
        if not self._whole:
            return
        whole = budget(self._whole, PERIOD, self.lately + lately)
        self._set(share(whole, own, others, processes) if others else share_alone(whole, processes))

    def take_first(self, moved: int, lately: int, processes: int) -> None:
        """Take what is left over, until the next edge."""
        self._set(first_share(budget(self._whole, PERIOD, lately), moved, processes))

    def take_all(self) -> bool:
        """No other process is there. Returns whether anything has moved or waited since this was said last."""
        moved = bool(self._moved or self._bucket.waiting)
        self._moved, self._flows = 0, 0
        self._forget_second()
        self._set(self._whole * PERIOD)
        return moved

    def _forget_second(self) -> None:
        self.lately = 0
        self._periods.extend((0,) * _SECOND)

    def _set(self, own: float) -> None:
        rate = max(1, int(own / PERIOD))
        if self._whole and abs(rate - self._bucket.rate) > _SAME * self._whole:
            self._bucket.set_share(rate)


def divide(
    loop: Loop, key_of: Callable[[str], SharedKey], inward: TokenBucket, outward: TokenBucket
) -> SharedBandwidth | None:
    """Divide the bandwidth of these buckets from now on, if it is limited and not divided yet."""
    if (inward.rate or outward.rate) and inward.sharing is None:
        return SharedBandwidth(loop, key_of(BANDWIDTH), inward, outward)
    return None


class SharedBandwidth:
    """Both directions of the bandwidth of a proxy, account or rule; `key` is for this alone."""

    def __init__(self, loop: Loop, key: SharedKey, inward: TokenBucket, outward: TokenBucket) -> None:
        self._loop = loop
        self._key = key
        key.set_limits(DIVIDED)
        self.resting = True
        self._alone = False
        self._timer: Timer | None = None
        self._inward = _SharedDirection(self, inward)
        self._outward = _SharedDirection(self, outward)

    def begin(self) -> None:
        """Something moves or waits, or is about to."""
        if self.resting:
            self.resting = False
            self._key.begin()
            self._take_first()
        elif self._alone and not self._key.unchanged:
            self._take_first()

    def end(self) -> None:
        """It is divided no more: what it belongs to is gone."""
        if self._timer is not None:
            self._timer.cancel()
        self._key.release()
        self.resting, self._alone = True, False

    def _take_first(self) -> None:
        period, processes = period_at(self._loop.now) - 1, self._processes()
        self._alone = processes == 1
        if self._alone:
            self._take_all()
            return
        others = self._key.moved_by_others(period)
        self._key.write_moved(period, _BEGINS)
        lately_in, lately_out = sum(each.lately_in for each in others), sum(each.lately_out for each in others)
        self._inward.take_first(sum(each.bytes_in for each in others), lately_in, processes)
        self._outward.take_first(sum(each.bytes_out for each in others), lately_out, processes)
        self._await_edge()

    def _take_all(self) -> bool:
        moved_in, moved_out = self._inward.take_all(), self._outward.take_all()
        self._call_later(_ALONE)
        return moved_in or moved_out

    def _await_edge(self) -> None:
        now = self._loop.now
        self._call_later((period_at(now) + 1) * PERIOD - now + _AFTER_EDGE)

    def _call_later(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        if self._alone:
            if not self._take_all():
                self.end()
        elif self._inward.is_quiet and self._outward.is_quiet:
            self.end()
        else:
            self._divide()

    def _divide(self) -> None:
        inward, outward, processes = self._inward, self._outward, self._processes()
        if processes == 1:
            self._alone = True
            self._take_all()
            return
        period = period_at(self._loop.now) - 1
        own_in, own_out = inward.end_period(), outward.end_period()
        moved = Moved(own_in[0], own_out[0], own_in[1], own_out[1], inward.lately, outward.lately)
        self._key.write_moved(period, moved)
        others = self._key.moved_by_others(period)
        lately_in, lately_out = sum(each.lately_in for each in others), sum(each.lately_out for each in others)
        inward.divide(own_in, [(each.bytes_in, each.flows_in) for each in others], lately_in, processes)
        outward.divide(own_out, [(each.bytes_out, each.flows_out) for each in others], lately_out, processes)
        self._await_edge()

    def _processes(self) -> int:
        return 1 + len(self._key.connections_of_each())

    def __repr__(self) -> str:
        return f"<SharedBandwidth{', resting' if self.resting else ''}>"
