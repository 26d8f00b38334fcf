"""The metrics by name, each with the function that reads it from a bucket.

A long series is read batch by batch, with turns of the loop between them. Most queries are one batch. But hundreds of
proxies over months are a million rows and some seconds, in which the collector must go on receiving counters and meet
its liveness deadlines.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable

from actors.bus.messages.metrics import MetricSeries, QueryMetricSeries
from actors.counters import COUNTERS
from actors.histogram import percentile
from actors.metrics.increments import RESIDENT_SAMPLES
from actors.metrics.series import Bucket, Series
from actors.metrics.system import CPUS, MEMORY

INTERVALS = {"1m": 60, "5m": 300, "1h": 3600, "1d": 86400}
"""Seconds of the intervals that can be asked for."""

RESPONSE_TIME = "response_time_avg"
_Value = float | None
_Read = Callable[[Bucket, float], _Value]
"""From a bucket and the seconds that it stands for."""


def _rate(name: str) -> _Read:
    return lambda bucket, seconds: _counted(bucket, name) / seconds


def _count(name: str) -> _Read:
    return lambda bucket, _seconds: _counted(bucket, name)


def _counted(bucket: Bucket, name: str) -> float:
    return 0 if bucket.increments is None else bucket.increments[name]


def _percentile(percent: int) -> _Read:
    def read(bucket: Bucket, _seconds: float) -> _Value:
        value = None if bucket.increments is None else percentile(bucket.increments.latency, percent)
        return None if value is None else 1000 * value

    return read


def _response_time(bucket: Bucket, _seconds: float) -> _Value:
    responded = _counted(bucket, "answered")
    return 1000 * _counted(bucket, "response_seconds") / responded if responded else None


def _error_rate(bucket: Bucket, _seconds: float) -> _Value:
    requests = _counted(bucket, "requests")
    return 100 * _counted(bucket, "errors") / requests if requests else 0.0


def _active(bucket: Bucket, _seconds: float) -> _Value:
    samples = bucket.machine.samples
    return _counted(bucket, "active") / samples if samples else None


def _cpu(bucket: Bucket, _seconds: float) -> _Value:
    return bucket.machine.cpu / bucket.machine.samples if bucket.machine.samples else None


def _memory(bucket: Bucket, _seconds: float) -> _Value:
    return bucket.machine.memory / bucket.machine.samples if bucket.machine.samples else None


_PERCENTILES: dict[str, _Read] = {f"response_time_p{each}": _percentile(each) for each in (50, 95, 99)}
_METRICS: dict[str, _Read] = {
    "requests_per_second": _rate("requests"),
    "active_connections": _active,
    RESPONSE_TIME: _response_time,
    **_PERCENTILES,
    "error_rate": _error_rate,
    "cpu_usage": _cpu,
    "memory_usage": _memory,
    "bandwidth_in": _rate("bytes_in"),
    "bandwidth_out": _rate("bytes_out"),
    **{row.series: _count(row.name) for row in COUNTERS if row.series},
}
NAMES = tuple(_METRICS)


_OF_ONE: dict[str, _Read] = {
    "cpu_usage": lambda bucket, seconds: (
        100 * _counted(bucket, "cpu_seconds") / seconds / CPUS if _ran(bucket) else None
    ),
    "memory_usage": lambda bucket, _seconds: _resident(bucket),
}
"""Read from the process of one proxy instead of the machine."""


def _ran(bucket: Bucket) -> bool:
    return bucket.machine.samples > 0


def _resident(bucket: Bucket) -> _Value:
    samples = _counted(bucket, RESIDENT_SAMPLES)
    return 100 * _counted(bucket, "resident") / samples / MEMORY if samples else None


def wants_latency(names: Iterable[str]) -> bool:
    """True if any of these metrics is read from histograms."""
    return any(name in _PERCENTILES for name in names)


def wants_weights(names: Iterable[str]) -> bool:
    """True if any of these is merged by histograms: a mean response time has the weight of its responses."""
    return RESPONSE_TIME in names or wants_latency(names)


def values(name: str, buckets: Iterable[Bucket], step: int, now: float, of_one: bool = False) -> tuple[_Value, ...]:
    """The metric in each bucket. With `of_one` the buckets are of one proxy, and so are processors and memory.

    A rate is per second of its bucket: of the part that is over, where `now` lies in it, and of all the seconds that it
    was really filled, where the clock was set back.
    """
    read = _OF_ONE.get(name, _METRICS[name]) if of_one else _METRICS[name]
    return tuple(_rounded(read(each, _seconds(each, step, now))) for each in buckets)


def _seconds(bucket: Bucket, step: int, now: float) -> float:
    return max(1.0, min(step, now - bucket.start), bucket.machine.seconds if bucket.machine.seconds > step else 0)


def _rounded(value: _Value) -> _Value:
    return round(value, 6) if isinstance(value, float) else value


ROWS = 20_000
"""Rows of a batch at most: about a tenth of a second."""

Reading = Generator[None, None, MetricSeries]
"""Reads a batch at each `next`, and returns the reply."""


def read_in_batches(series: Series, query: QueryMetricSeries, now: float) -> Reading:
    """The reply to `query` at `now`, Unix seconds. Raises `sqlite3.Error`."""
    found: dict[str, list[float | None]] = {name: [] for name in query.names}
    latency, step = (wants_weights if query.to_merge else wants_latency)(query.names), query.step
    wide = step * max(1, ROWS // max(1, len(query.proxy_ids or ())))
    latencies: list[tuple[tuple[int, int], ...]] = []
    for start in range(query.start, query.end, wide):
        if start > query.start:
            yield
        end = min(start + wide, query.end)
        buckets = series.read(step, start, end, query.proxy_ids, latency)
        for name in query.names:
            found[name] += values(name, buckets, step, now, query.of_one)
        if latency and query.to_merge:
            latencies += map(_latency, buckets)
    return MetricSeries({name: tuple(each) for name, each in found.items()}, tuple(latencies))


def _latency(bucket: Bucket) -> tuple[tuple[int, int], ...]:
    return () if bucket.increments is None else tuple(sorted(bucket.increments.latency.items()))
