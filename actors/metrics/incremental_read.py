"""A long series is read slice by slice, with turns of the loop between them.

Most queries are one slice. But hundreds of proxies over months, whose buckets are packed no more, are a million rows
and some seconds, in which the collector must go on receiving counters and meet its liveness deadlines.
"""

from __future__ import annotations

from collections.abc import Generator

from actors.bus.messages.metrics import MetricSeries, QueryMetrics
from actors.metrics.catalogue import values, wants_latency
from actors.metrics.series import Series

ROWS = 20_000
"""Rows of a slice at most: about a tenth of a second."""

Reading = Generator[None, None, MetricSeries]
"""Reads a slice at each `next`, and returns the reply."""


def read_in_slices(series: Series, query: QueryMetrics, now: float) -> Reading:
    """The reply to `query` at `now`, Unix seconds. Raises `sqlite3.Error`."""
    found: dict[str, list[float | None]] = {name: [] for name in query.names}
    latency, step = wants_latency(query.names), query.step
    wide = step * max(1, ROWS // max(1, len(query.proxy_ids or ())))
    for start in range(query.start, query.end, wide):
        if start > query.start:
            yield
        end = min(start + wide, query.end)
        buckets = series.read(step, start, end, query.proxy_ids, latency)
        for name in query.names:
            found[name] += values(name, buckets, step, now, query.of_one)
    return MetricSeries({name: tuple(each) for name, each in found.items()})
