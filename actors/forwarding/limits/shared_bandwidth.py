"""A bandwidth that the workers of a proxy divide anew in each period, by what each moved and was short of in the last.

At the edge of a period a worker that moved something in the last second writes what it was, reads what the others
wrote, and takes its share (`actors.workers.rates`). One that moves nothing has no timer; when it begins again it takes
a part of what the others left over, until the next edge.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from actors.bus.loop import Loop
from actors.forwarding.limits.token_bucket import TokenBucket
from actors.workers.rates import PERIOD, Demand, Moved, budget, first_share, period_at, share, share_alone
from actors.workers.worker import Worker

_SECOND = round(1 / PERIOD)
"""Periods of a second."""
_AFTER_EDGE = 0.001
"""Seconds; a timer at the very edge may be early by a rounding."""
_SAME = 0.005
"""Part of the whole by which a share must differ to be another."""


class _SharedDirection:
    """One direction, as its bucket sees it: counts what moves and what waits, and sets the bucket's rate."""

    def __init__(self, bandwidth: SharedBandwidth, bucket: TokenBucket, workers: int) -> None:
        self._bandwidth = bandwidth
        self._bucket = bucket
        self._whole = bucket.rate
        self._moved = 0
        self._flows = 0
        self.lately = 0
        """Bytes of the last second, up to the last edge."""
        self._periods: deque[int] = deque((0,) * _SECOND, maxlen=_SECOND)
        bucket.sharing = self
        self.rest(workers)

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
        own = rate * self._bucket.rate // self._whole if self._whole else rate // self._bandwidth.workers
        self._whole = rate
        self._forget_second()  # what moved at the former rate was not too much
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

    def divide(self, own: Demand, others: Sequence[Demand], lately: int, workers: int) -> None:
        """Take the share of the next period; `others` are those that are not silent."""
        if not self._whole:
            return
        whole = budget(self._whole, PERIOD, self.lately + lately)
        self._set(share(whole, own, others, workers) if others else share_alone(whole, workers))

    def take_first(self, moved: int, lately: int, workers: int) -> None:
        """Take what is left over, until the next edge."""
        self._set(first_share(budget(self._whole, PERIOD, lately), moved, workers))

    def rest(self, workers: int) -> None:
        """Take an even part: what the others do isn't watched any more."""
        self._forget_second()
        self._set(self._whole * PERIOD / workers)

    def _forget_second(self) -> None:
        self.lately = 0
        self._periods.extend((0,) * _SECOND)

    def _set(self, own: float) -> None:
        rate = max(1, int(own / PERIOD))
        if self._whole and abs(rate - self._bucket.rate) > _SAME * self._whole:
            self._bucket.set_share(rate)


class SharedBandwidth:
    """Both directions of the bandwidth of a proxy, account or rule."""

    def __init__(self, loop: Loop, worker: Worker, digest: int, inward: TokenBucket, outward: TokenBucket) -> None:
        self._loop = loop
        self._worker = worker
        self._digest = digest
        self._active = False
        self._inward = _SharedDirection(self, inward, self.workers)
        self._outward = _SharedDirection(self, outward, self.workers)

    @property
    def workers(self) -> int:
        """Those that live."""
        return max(1, self._worker.processes)

    def begin(self) -> None:
        """Something moves or waits."""
        if self._active:
            return
        self._active = True
        others, workers = self._others(period_at(self._loop.now) - 1), self.workers
        self._inward.take_first(sum(each[0] for each in others), sum(each[4] for each in others), workers)
        self._outward.take_first(sum(each[1] for each in others), sum(each[5] for each in others), workers)
        self._await_edge()

    def _await_edge(self) -> None:
        now = self._loop.now
        self._loop.call_later((period_at(now) + 1) * PERIOD - now + _AFTER_EDGE, self._on_edge)

    def _on_edge(self) -> None:
        inward, outward, workers = self._inward, self._outward, self.workers
        if inward.is_quiet and outward.is_quiet:
            self._active = False
            inward.rest(workers)
            outward.rest(workers)
            return
        period = period_at(self._loop.now) - 1
        own_in, own_out = inward.end_period(), outward.end_period()
        moved = own_in[0], own_out[0], own_in[1], own_out[1], inward.lately, outward.lately
        if self._worker.write_rates(self._digest, period, moved):
            others = self._others(period)
            inward.divide(own_in, [(each[0], each[2]) for each in others], sum(each[4] for each in others), workers)
            outward.divide(own_out, [(each[1], each[3]) for each in others], sum(each[5] for each in others), workers)
        else:
            inward.rest(workers)
            outward.rest(workers)
        self._await_edge()

    def _others(self, period: int) -> list[Moved]:
        """What each of the other workers moved that are not silent."""
        return self._worker.rates_elsewhere(self._digest, period, self._loop.now)

    def __repr__(self) -> str:
        return f"<SharedBandwidth{', active' if self._active else ''}>"
