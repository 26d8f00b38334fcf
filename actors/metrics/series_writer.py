"""From counters to what is shown of them over time: the live figures, and the series on disk.

What a process has counted since its last word was counted in the second that has just passed, since it tells every
second. Only after a start of the collector it may be more: what happened while nobody listened. That is spread over
this time, so that there is no spike, and it isn't shown as what goes on now, unless this time was a few seconds only.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from actors.bus.messages.metrics import Counters
from actors.metrics.increments import Increments, sum_of
from actors.metrics.live_rates import RATE_TICKS, Figures, Live
from actors.metrics.series import DAY, RAW, TOTAL, Series
from actors.metrics.totals import CounterDelta, Totals

log = logging.getLogger(__name__)

PARTS_MAX = 360
"""Pieces at most that are made of what happened while nobody listened."""
CLEAN_PERIOD = 600.0


class SeriesWriter:
    """The series beside `totals`, and the live figures. `clock` is monotonic, `wall` Unix seconds."""

    def __init__(
        self, totals: Totals, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self._totals = totals
        self._clock = clock
        self._wall = wall
        self.series = Series(totals.database)
        self.live = Live(clock)
        self._began = wall()
        self._listened_until = min(self.series.last_filled() or self._began, self._began)
        self._ticked = self._stored = clock()
        self._cleaned = clock() - CLEAN_PERIOD
        self._grown: dict[str, Increments] = {}
        self._asked = False
        totals.beside = self

    def take(self, counters: Counters) -> None:
        """A process said its counters."""
        delta = self._totals.take(counters)
        if counters.resident:
            self.series.add(counters.proxy_id, Increments.of_resident(counters.resident), self._wall())
        if not delta.amounts:
            return
        since = self._unheard_since(delta, counters)
        if since is None or self._wall() - since <= RATE_TICKS:  # live figures are of so many seconds anyway
            self._count(counters.proxy_id, delta.amounts, self._wall())
            self._grown.setdefault(counters.proxy_id, Increments()).add(delta.amounts)
        else:
            self._spread(counters.proxy_id, delta.amounts, since)

    def tick(self, cpu: float, memory: float) -> None:
        """A second has passed; the machine's processors and memory are in use by so many percent."""
        now, at = self._clock(), self._wall()
        grown, self._grown = self._grown, {}
        self._count_active(at)
        self.series.add_machine(now - self._ticked, cpu, memory, at)
        if grown:
            grown[TOTAL] = sum_of(grown.values())
        self.live.tick(grown)
        self._ticked = now

    def figures(self, proxy_ids: Iterable[str] | None = None) -> Figures:
        """The live figures, up to what was heard last; of all proxies when none is named."""
        names = self._grown if proxy_ids is None else [each for each in proxy_ids if each in self._grown]
        return self.live.figures(proxy_ids, sum_of(self._grown[each] for each in names))

    def ask(self) -> None:
        """Somebody is about to read: the next time the totals are saved, everything is written."""
        self._asked = True

    def forget(self, proxy_id: str) -> None:
        """The proxy was deleted. Its series go when they are old; nobody asks for them any more."""
        self._grown.pop(proxy_id, None)
        self.live.forget(proxy_id)

    # --- saved beside the totals ---

    def pending(self) -> bool:
        """Even when nothing is counted the machine's figures are written now and then."""
        return self._asked or self._clock() - self._stored >= RAW

    def store(self) -> None:
        """Within the transaction of the totals."""
        self.series.store(self._wall())
        if self._clock() - self._cleaned >= CLEAN_PERIOD:
            self.series.forget_old(self._wall())

    def stored(self) -> None:
        """It was committed."""
        self._asked = False
        self._stored = self._clock()
        if self._stored - self._cleaned >= CLEAN_PERIOD:
            self._cleaned = self._stored
        self.series.stored(self._wall())

    def not_stored(self) -> None:
        """The disk can't be written to."""
        if lost := self.series.failed():
            log.error("lost %d buckets of metrics: the disk cannot be written to", lost)

    def _count(self, proxy_id: str, amounts: Increments, at: float) -> None:
        self.series.add(proxy_id, amounts, at)
        self.series.add(TOTAL, amounts, at)

    def _count_active(self, at: float) -> None:
        open_now = {proxy_id: active for proxy_id, active in self._totals.active().items() if active}
        for proxy_id, active in open_now.items():
            self.series.add(proxy_id, Increments.of_active(active), at)
        if open_now:
            self.series.add(TOTAL, Increments.of_active(sum(open_now.values())), at)

    # --- what nobody listened to ---

    def _unheard_since(self, delta: CounterDelta, counters: Counters) -> float | None:
        """The moment from which on nobody listened to this process; None when somebody did."""
        if delta.restored:
            return self._listened_until
        started = counters.instance / 1e6
        return max(self._listened_until, started) if delta.first and started < self._began else None

    def _spread(self, proxy_id: str, amounts: Increments, since: float) -> None:
        now = self._wall()
        since = max(min(since, now), now - DAY)
        parts = max(1, min(PARTS_MAX, round((now - since) / RAW)))
        for number, part in enumerate(amounts.spread(parts)):
            if part:
                self._count(proxy_id, part, since + (now - since) * (number + 0.5) / parts)
