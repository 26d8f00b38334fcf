"""From counters to values over time: the live rates, and the series on disk.

What a process has counted since its last report was counted in the second that has just passed, since it reports every
second. Only after a start of the collector it may be more: what was counted while no collector ran. That is spread over
this time, so that there is no spike, and is left out of the live rates, unless this time was a few seconds only.

Live metrics: rates of the last seconds, means and percentiles of the last minute, by proxy and in total.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping

from actors.bus.messages.metrics import Counters
from actors.histogram import percentile
from actors.metrics.increments import Increments, sum_of
from actors.metrics.recent import BUCKETS, LONG, RecentUses
from actors.metrics.series import DAY, RAW, TOTAL, Series
from actors.metrics.system import CPUS
from actors.metrics.totals import CounterDelta, CounterTotals

log = logging.getLogger(__name__)

RATE_TICKS = 5
"""Rates are means over so many ticks, which are a second apart."""
MINUTE_TICKS = 60
"""Error rate and response times are of so many ticks."""
SHORTEST = 1.0
"""Seconds that a rate is a mean over at least."""

Metrics = dict[str, float]


class _Window:
    """The last minute of one proxy, tick by tick, and its sum."""

    __slots__ = ("_ticks", "minute")

    def __init__(self) -> None:
        self._ticks: deque[tuple[int, Increments]] = deque()
        self.minute = Increments()

    def add(self, tick: int, increments: Increments) -> None:
        self._ticks.append((tick, increments))
        self.minute.add(increments)

    def forget_before(self, tick: int) -> bool:
        """Whether nothing is left."""
        while self._ticks and self._ticks[0][0] < tick:
            self.minute.add(self._ticks.popleft()[1], -1)
        return not self._ticks

    def since(self, tick: int) -> Increments:
        """The sum from this tick on."""
        recent = Increments()
        for number, increments in reversed(self._ticks):
            if number < tick:
                break
            recent.add(increments)
        return recent


class LiveRates:
    """The windows of all proxies that something was counted for. `clock` is monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tick = 0
        self._times: deque[float] = deque([clock()], maxlen=RATE_TICKS + 1)
        self._windows: dict[str, _Window] = {}

    def tick(self, grown: Mapping[str, Increments]) -> None:
        """A second has passed, in which this was counted, by proxy and in total."""
        self._tick += 1
        self._times.append(self._clock())
        for proxy_id, increments in grown.items():
            self._windows.setdefault(proxy_id, _Window()).add(self._tick, increments)
        past = self._tick - MINUTE_TICKS + 1
        for proxy_id in [each for each, window in self._windows.items() if window.forget_before(past)]:
            del self._windows[proxy_id]

    def forget(self, proxy_id: str) -> None:
        """The proxy was deleted."""
        self._windows.pop(proxy_id, None)

    def metrics(self, proxy_ids: Collection[str] | None = None, since_tick: Increments | None = None) -> Metrics:
        """Rates per second, response times in ms, the error rate in percent; of all proxies when none is named.

        `cpu_usage` is of the processes of these proxies alone, in percent of all processors of the machine.

        Where there was no request, a response time is 0. `since_tick` is what was counted for them since the last tick.
        """
        recent = Increments() if since_tick is None else Increments().add(since_tick)
        for window in self._windows_of(proxy_ids):
            recent.add(window.since(self._tick - RATE_TICKS + 1))
        return {**self._rates(recent), **_means(self.minute(proxy_ids, since_tick))}

    def minute(self, proxy_ids: Collection[str] | None = None, since_tick: Increments | None = None) -> Increments:
        """What was counted in the last 60 s; as `metrics`."""
        minute = Increments() if since_tick is None else Increments().add(since_tick)
        for window in self._windows_of(proxy_ids):
            minute.add(window.minute)
        return minute

    def _windows_of(self, proxy_ids: Iterable[str] | None) -> list[_Window]:
        names = (TOTAL,) if proxy_ids is None else proxy_ids
        return [self._windows[each] for each in names if each in self._windows]

    def _rates(self, recent: Increments) -> Metrics:
        per_second = 1 / max(SHORTEST, self._clock() - self._times[0])
        return {
            "requests_per_second": recent["requests"] * per_second,
            "bandwidth_in": recent["bytes_in"] * per_second,
            "bandwidth_out": recent["bytes_out"] * per_second,
            "cpu_usage": 100 * recent["cpu_seconds"] * per_second / CPUS,
        }


def _means(minute: Increments) -> Metrics:
    requests, responded = minute["requests"], minute["answered"]
    return {
        "error_rate": 100 * minute["errors"] / requests if requests > 0 else 0.0,
        "response_time_avg": 1000 * max(0.0, minute["response_seconds"]) / responded if responded > 0 else 0.0,
        **{f"response_time_p{each}": 1000 * (percentile(minute.latency, each) or 0.0) for each in (50, 95, 99)},
    }


PARTS_MAX = 360
"""Pieces at most into which the increments of a gap are spread."""
CLEAN_PERIOD = 600.0


class SeriesWriter:
    """The series beside `totals`, and the live rates. `clock` is monotonic, `wall` Unix seconds."""

    def __init__(
        self, totals: CounterTotals, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self._totals = totals
        self._clock = clock
        self._wall = wall
        self.series = Series(totals.database)
        self._live = LiveRates(clock)
        self._began = wall()
        self.recent = RecentUses(self._began)
        self.recent.remember(self.series.lately(LONG, self._began - BUCKETS * LONG))
        self._collected_until = min(self.series.last_filled() or self._began, self._began)
        self._ticked = self._stored = clock()
        self._cleaned = clock() - CLEAN_PERIOD
        self._since_tick: dict[str, Increments] = {}
        self._requested = False
        totals.participant = self

    def update(self, counters: Counters) -> None:
        """Take the report of a process."""
        delta = self._totals.update(counters)
        if counters.resident:
            self.series.add(counters.proxy_id, Increments.of_resident(counters.resident), self._wall())
        if not delta.increments:
            return
        since = self._gap_start(delta, counters)
        if since is None or self._wall() - since <= RATE_TICKS:  # live rates are of so many seconds anyway
            self._count(counters.proxy_id, delta.increments, self._wall())
            self._since_tick.setdefault(counters.proxy_id, Increments()).add(delta.increments)
        else:
            self._spread(counters.proxy_id, delta.increments, since)

    def tick(self, cpu: float, memory: float) -> None:
        """A second has passed; the machine's processors and memory are in use by so many percent."""
        now, at = self._clock(), self._wall()
        counted, self._since_tick = self._since_tick, {}
        self._count_active(at)
        self.series.add_machine(now - self._ticked, cpu, memory, at)
        if counted:
            counted[TOTAL] = sum_of(counted.values())
        self._live.tick(counted)
        self._ticked = now

    def live_metrics(self, proxy_ids: Collection[str] | None = None) -> Metrics:
        """The live rates, up to the last report; of all proxies when none is named."""
        return self._live.metrics(proxy_ids, self._grown(proxy_ids))

    def last_minute(self, proxy_ids: Collection[str] | None = None) -> Increments:
        """What was counted in the last 60 s; as `live_metrics`."""
        return self._live.minute(proxy_ids, self._grown(proxy_ids))

    def _grown(self, proxy_ids: Iterable[str] | None) -> Increments:
        names = self._since_tick if proxy_ids is None else [each for each in proxy_ids if each in self._since_tick]
        return sum_of(self._since_tick[each] for each in names)

    def request_store(self) -> None:
        """Write everything the next time that the totals are saved; to be called before reading."""
        self._requested = True

    def forget(self, proxy_id: str) -> None:
        """The proxy was deleted. Its series are deleted when they are old."""
        self._since_tick.pop(proxy_id, None)
        self._live.forget(proxy_id)
        self.recent.forget(proxy_id)

    # --- saved beside the totals ---

    def pending(self) -> bool:
        """True now and then even if nothing is counted, for the machine's samples."""
        return self._requested or self._clock() - self._stored >= RAW

    def store(self) -> None:
        """Within the transaction of the totals."""
        self.series.store()
        if self._clock() - self._cleaned >= CLEAN_PERIOD:
            self.series.forget_old(self._wall())

    def stored(self) -> None:
        """It was committed."""
        self._requested = False
        self._stored = self._clock()
        if self._stored - self._cleaned >= CLEAN_PERIOD:
            self._cleaned = self._stored
        self.series.stored(self._wall())

    def not_stored(self) -> None:
        """The disk can't be written to."""
        if lost := self.series.failed():
            log.error("lost %d buckets of metrics: the disk cannot be written to", lost)

    def _count(self, proxy_id: str, increments: Increments, at: float) -> None:
        self.series.add(proxy_id, increments, at)
        self.series.add(TOTAL, increments, at)
        moved = increments["bytes_in"] + increments["bytes_out"]
        self.recent.add(proxy_id, at, moved, increments["requests"], increments["errors"] + increments["denied"])

    def _count_active(self, at: float) -> None:
        open_now = {proxy_id: active for proxy_id, active in self._totals.active().items() if active}
        for proxy_id, active in open_now.items():
            self.series.add(proxy_id, Increments.of_active(active), at)
        if open_now:
            self.series.add(TOTAL, Increments.of_active(sum(open_now.values())), at)

    # --- gaps in the collection ---

    def _gap_start(self, delta: CounterDelta, counters: Counters) -> float | None:
        """Since when no report of this process was collected before this one; None without such a gap."""
        if delta.restored:
            return self._collected_until
        started = counters.instance / 1e6
        return max(self._collected_until, started) if delta.first and started < self._began else None

    def _spread(self, proxy_id: str, increments: Increments, since: float) -> None:
        now = self._wall()
        since = max(min(since, now), now - DAY)
        parts = max(1, min(PARTS_MAX, round((now - since) / RAW)))
        for number, part in enumerate(increments.spread(parts)):
            if part:
                self._count(proxy_id, part, since + (now - since) * (number + 0.5) / parts)
