"""Metrics of several nodes as one: sums, rates of sums, and percentiles of merged histograms.

An error rate has the weight of the node's requests, a mean response time that of its responses. Processors and memory
are the mean of the nodes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from actors.bus.messages.common import METRICS
from actors.bus.messages.metrics import MetricSeries, QueryMetricSeries, QueryRealtime, Realtime, RecentUse
from actors.histogram import Histogram, percentile
from actors.metrics.catalogue import RESPONSE_TIME
from api.bus_bridge import Bridge, request
from api.objects.nodes.asked_nodes import AskedNodes

REQUESTS, ERROR_RATE = "requests_total", "error_rate"
_MEANS = frozenset({"cpu_usage", "memory_usage"})
_PERCENTILES = {f"response_time_p{each}": each for each in (50, 95, 99)}
T = TypeVar("T")
TIMEOUT = 10.0
Values = Sequence[float | None]
"""One of each node; None of one that has nothing to take a mean of."""


def series_of(bridge: Bridge, nodes: AskedNodes, query: QueryMetricSeries, timeout: float = TIMEOUT) -> MetricSeries:
    """These series, of several nodes as one. Raises `PeerUnavailable` when the collector here does not reply."""
    if not nodes.are_several:
        return request(bridge, METRICS, query, MetricSeries, timeout=timeout)
    asked = replace(query, names=needed(query.names), to_merge=True)
    return merged_series(list(nodes.request(bridge, METRICS, asked, MetricSeries, timeout).values()), query.names)


def realtime_of(
    bridge: Bridge,
    nodes: AskedNodes,
    names: Iterable[str],
    proxy_ids: tuple[str, ...] | None,
    of_one: bool = False,
    timeout: float = TIMEOUT,
    recent: tuple[str, ...] = (),
) -> Realtime:
    """When, and the metrics by name, of several nodes as one; also the `recent` uses. Raises as `series_of`."""
    query = QueryRealtime(proxy_ids, of_one, nodes.are_several, recent)
    if not nodes.are_several:
        return request(bridge, METRICS, query, Realtime, timeout=timeout)
    found = list(nodes.request(bridge, METRICS, query, Realtime, timeout).values())
    uses = merged_recent([each.recent for each in found])
    unknown = max((each.unknown for each in found), default=0)
    return Realtime(time.time(), merged_realtime(found, names), recent=uses, unknown=unknown)


def merged_recent(several: Iterable[Mapping[str, RecentUse]]) -> dict[str, RecentUse]:
    """The uses of all nodes by id."""
    sums: dict[str, RecentUse] = {}
    for uses in several:
        for key, use in uses.items():
            known = sums.get(key)
            sums[key] = use if known is None else _sum(known, use)
    return sums


def _sum(one: RecentUse, other: RecentUse) -> RecentUse:
    return RecentUse(
        tuple(map(int.__add__, one.rates, other.rates)),
        tuple(map(int.__add__, one.requests, other.requests)),
        tuple(map(int.__add__, one.failed, other.failed)),
    )


def needed(names: Sequence[str]) -> tuple[str, ...]:
    """What each node is asked for, to merge these."""
    return (*names, REQUESTS) if ERROR_RATE in names and REQUESTS not in names else tuple(names)


def merged_series(replies: Sequence[MetricSeries], names: Sequence[str]) -> MetricSeries:
    """The series of all of them; each was asked for what is `needed`, to be merged."""
    requests = [each.values.get(REQUESTS, ()) for each in replies]
    latencies = [[dict(each) for each in reply.latency] for reply in replies]
    found = {}
    for name in names:
        series = [each.values.get(name, ()) for each in replies]
        count = max(map(len, series), default=0)
        found[name] = tuple(_merged(name, _at(n, series), _at(n, requests), _at(n, latencies)) for n in range(count))
    return MetricSeries(found)


def merged_realtime(replies: Sequence[Realtime], names: Iterable[str]) -> dict[str, float]:
    """The metrics of all of them by name, 0 where there is nothing to take a mean of."""
    requests, latencies = [each.requests for each in replies], [dict(each.latency) for each in replies]
    values = {name: [each.metrics.get(name) for each in replies] for name in names}
    return {name: _merged(name, each, requests, latencies) or 0 for name, each in values.items()}


def _at(number: int, of_nodes: Sequence[Sequence[T]]) -> list[T | None]:
    return [each[number] if number < len(each) else None for each in of_nodes]


def _merged(name: str, values: Values, requests: Values, latencies: Sequence[Histogram | None]) -> float | None:
    """Of one bucket."""
    if name in _PERCENTILES:
        value = percentile(sum((Counter(each or {}) for each in latencies), Counter()), _PERCENTILES[name])
        return None if value is None else round(1000 * value, 6)
    if name == ERROR_RATE:
        return _mean(values, requests) or 0.0
    if name == RESPONSE_TIME:
        return _mean(values, [sum((each or {}).values()) for each in latencies])
    given = [each for each in values if each is not None]
    if name in _MEANS or not given:
        return _mean(values, [1] * len(values))
    total = sum(given)
    return round(total, 6) if isinstance(total, float) else total


def _mean(values: Values, weights: Values) -> float | None:
    known = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None and weight]
    every = sum(weight for _value, weight in known)
    return round(sum(value * weight for value, weight in known) / every, 6) if every else None
