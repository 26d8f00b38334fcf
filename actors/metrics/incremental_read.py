"""A long series is read slice by slice, with turns of the loop between them.

Most questions are one slice. But hundreds of proxies over months, where there are no sheets any more, are a million
rows and some seconds, in which the collector must go on hearing counters and keep its pulse.
"""

from __future__ import annotations

from collections.abc import Generator

from actors.bus.messages.metrics import MetricSeries, QueryMetrics
from actors.metrics.catalogue import values, wants_latency
from actors.metrics.series import Series

ROWS = 20_000
"""Rows of a slice at most: about a tenth of a second."""

Reading = Generator[None, None, MetricSeries]
"""Goes on at each `next`, and returns the answer."""


def read_in_slices(series: Series, question: QueryMetrics, now: float) -> Reading:
    """The answer to `question` at `now`, Unix seconds. Raises `sqlite3.Error`."""
    found: dict[str, list[float | None]] = {name: [] for name in question.names}
    latency, step = wants_latency(question.names), question.step
    wide = step * max(1, ROWS // max(1, len(question.proxy_ids or ())))
    for start in range(question.start, question.end, wide):
        if start > question.start:
            yield
        end = min(start + wide, question.end)
        buckets = series.read(step, start, end, question.proxy_ids, latency)
        for name in question.names:
            found[name] += values(name, buckets, step, now, question.of_one)
    return MetricSeries({name: tuple(each) for name, each in found.items()})
