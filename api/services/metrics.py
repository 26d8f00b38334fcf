"""Metrics from the collector: series over time and the present snapshot."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from actors.bus.messages.common import METRICS
from actors.bus.messages.metrics import MetricSeries, QueryMetricSeries, QueryRealtime, Realtime
from actors.metrics.catalogue import INTERVALS
from api.bus_bridge import Bridge, request
from config.text.formatting import timestamp_text

TIMEOUT = 10.0


class Proxy(NamedTuple):
    """What the exposition has of a proxy beside its metrics."""

    id: str
    name: str
    protocol: str
    active: bool


Series = dict[str, list[dict[str, Any]]]


def read_series(
    bridge: Bridge,
    names: tuple[str, ...],
    start: float,
    end: float,
    interval: str,
    proxy_ids: tuple[str, ...] | None,
    of_one: bool,
) -> Series:
    """By name, `{timestamp, value}` of the buckets from `start` to `end`, Unix seconds. Raises `PeerUnavailable`.

    `proxy_ids` None means everything, `of_one` that processors and memory are of the process of the proxy. A bucket
    without samples for a mean is left out.
    """
    step = INTERVALS[interval]
    first = int(start // step) * step
    query = QueryMetricSeries(names, first, max(math.ceil(end), first + 1), step, proxy_ids, of_one)
    reply = request(bridge, METRICS, query, MetricSeries, timeout=TIMEOUT)
    longest = max((len(values) for values in reply.values.values()), default=0)
    times = [timestamp_text(first + number * step) for number in range(longest)]
    return {name: _points(reply.values[name], times) for name in names}


def read_realtime(bridge: Bridge, proxy_ids: tuple[str, ...] | None, of_one: bool) -> Realtime:
    """The snapshot. Raises `PeerUnavailable`."""
    return request(bridge, METRICS, QueryRealtime(proxy_ids, of_one), Realtime, timeout=TIMEOUT)


def _points(values: tuple[float | None, ...], times: list[str]) -> list[dict[str, Any]]:
    return [
        {"timestamp": timestamp, "value": value}
        for timestamp, value in zip(times, values, strict=True)
        if value is not None
    ]
