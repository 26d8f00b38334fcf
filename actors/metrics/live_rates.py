"""Live metrics: rates of the last seconds, means and percentiles of the last minute, by proxy and in total."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from actors.histogram import percentile
from actors.metrics.increments import Increments
from actors.metrics.series import TOTAL
from actors.metrics.system import CPUS

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

    def metrics(self, proxy_ids: Iterable[str] | None = None, since_tick: Increments | None = None) -> Metrics:
        """Rates per second, response times in ms, the error rate in percent; of all proxies when none is named.

        `cpu_usage` is of the processes of these proxies alone, in percent of all processors of the machine.

        Where there was no request, a response time is 0. `since_tick` is what was counted for them since the last tick.
        """
        names = (TOTAL,) if proxy_ids is None else proxy_ids
        recent, minute = Increments(), Increments()
        for window in (self._windows[each] for each in names if each in self._windows):
            recent.add(window.since(self._tick - RATE_TICKS + 1))
            minute.add(window.minute)
        if since_tick is not None:
            recent.add(since_tick)
            minute.add(since_tick)
        return {**self._rates(recent), **_means(minute)}

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
