"""The states of pools in the text format of Prometheus, by pool: one of thousands of upstreams has a few series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from actors.pools.state import PoolCounts

_STATES = ("up", "down", "unknown")
_LEFT_ALONE = (("cooldown", "cooling_down"), ("ban", "banned"))
"""The value of the label, and the field of the summary."""


class PoolSummary(NamedTuple):
    """A pool by its id and its name."""

    id: str
    name: str
    state: PoolCounts
    in_use: bool


def expose_pools(pools: Sequence[PoolSummary]) -> Iterator[Metric]:
    """All of them."""
    names = ("pool", "name")
    states = GaugeMetricFamily("proxyfleet_pool_upstreams", "Upstreams of a pool by state", labels=(*names, "state"))
    left = GaugeMetricFamily(
        "proxyfleet_pool_upstreams_left_alone", "Those that are not used for a time", labels=(*names, "by")
    )
    usable = GaugeMetricFamily("proxyfleet_pool_usable_upstreams", "Those that are up and not left alone", labels=names)
    in_use = GaugeMetricFamily("proxyfleet_pool_in_use", "1 if an active proxy can use the pool", labels=names)
    latency = GaugeMetricFamily(
        "proxyfleet_pool_connect_seconds", "What clients wait for its upstreams lately, on average", labels=names
    )
    checks = CounterMetricFamily("proxyfleet_pool_checks", "Checks of its upstreams", labels=names)
    failed = CounterMetricFamily("proxyfleet_pool_failed_checks", "Those that failed", labels=names)
    bans = CounterMetricFamily("proxyfleet_pool_bans", "Upstreams that were reported as bad", labels=names)
    for pool_id, name, state, is_in_use in pools:
        labels = (pool_id, name)
        usable.add_metric(labels, state.usable)
        in_use.add_metric(labels, is_in_use)
        for each in _STATES:
            states.add_metric((*labels, each), getattr(state, each))
        for by, each in _LEFT_ALONE:
            left.add_metric((*labels, by), getattr(state, each))
        if state.latency is not None:
            latency.add_metric(labels, state.latency)
        checks.add_metric(labels, state.checks)
        failed.add_metric(labels, state.checks_failed)
        bans.add_metric(labels, state.bans)
    yield from (states, left, usable, in_use, latency, checks, failed, bans)
