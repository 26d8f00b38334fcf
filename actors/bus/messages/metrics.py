"""Counters, and the statistics that the metrics collector makes of them."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any

from actors.bus.codec import message
from actors.counters import PASSIVE, PLACES, ZEROS


@message
class Counters:
    """Forwarding actor → events plane, topic `counters.<proxy id>`: cumulative since its start.

    Every second while they change, else every five seconds. The last ones of a process go to the metrics collector by
    the mailbox as well, → `Done`: what is published may get lost while one program follows another.

    `values` are those of `actors.counters` by name: an actor of another release, which drains during an upgrade, may
    know fewer or more. `last_request` is 0 when there was none. `refusals` counts by reason what guard and access rules
    refused, `reported` what rules in report mode would have refused. `statuses` counts requests by the status of their
    record. `latency` has number and count of the buckets of `actors.histogram` that `response_seconds` fell into: one
    entry for each request that got a response. `resident` is the memory of the process in bytes now. `decisions` counts
    by policy and rule (`POLICY/RULE`) the requests that rules of policies have matched, behind `reported:` those that
    they would have; a `partial` message has only the counts that have changed since the one before. `loop_busy` is the
    share of time that the process had a processor, 0 to 1, and `loop_turn_max_ms` its longest turn, both over the last
    half to whole minute. `tls_names` counts checked tunnels by kind (`ConnectionStats.tls_name_checked`).
    """

    proxy_id: str
    instance: int
    values: dict[str, float]
    active_connections: int = 0
    last_request: float = 0.0
    refusals: dict[str, int] = field(default_factory=dict)
    reported: dict[str, int] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)
    latency: tuple[tuple[int, int], ...] = ()
    resident: int = field(default=0, compare=False)
    decisions: dict[str, int] = field(default_factory=dict)
    loop_busy: float = field(default=0.0, compare=False)
    loop_turn_max_ms: float = field(default=0.0, compare=False)
    tls_names: dict[str, int] = field(default_factory=dict)
    partial: bool = field(default=False, compare=False)

    def changed_since(self, last: Counters | None) -> bool:
        """Whether anything of a partial message differs that does not change by itself."""
        return last is None or bool(self.decisions) or self._compared() != last._compared()

    def _compared(self) -> Counters:
        values = {name: value for name, value in self.values.items() if name not in PASSIVE}
        return replace(self, values=values, decisions={})


@message
class QueryStats:
    """API or telemetry → metrics collector: the totals of these proxies, of all when empty. → `Stats`.

    Only `detailed` ones have `statuses` and `latency`. With `since`, the `as_of` of an earlier reply, those may be
    left out that have not changed.
    """

    proxy_ids: tuple[str, ...]
    detailed: bool = False
    since: float = 0.0


@message
class ProxyStats:
    """The totals of one proxy over all its processes. A value, not a message by itself.

    `values` are in the order of `actors.counters`, and read by name: `stats["requests"]`. The other fields are those of
    `Counters`; `statuses` and `latency` are empty unless they were requested.
    """

    values: tuple[float, ...] = ZEROS
    active_connections: int = 0
    last_request: float = 0.0
    refusals: dict[str, int] = field(default_factory=dict)
    reported: dict[str, int] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)
    latency: tuple[tuple[int, int], ...] = ()
    resident: int = 0
    decisions: dict[str, int] = field(default_factory=dict)
    loop_busy: float = 0.0
    loop_turn_max_ms: float = 0.0
    tls_names: dict[str, int] = field(default_factory=dict)

    def __getitem__(self, counter: str) -> Any:
        """An integer, or a float for a counter of seconds."""
        return self.values[PLACES[counter]]


@message
class Stats:
    """Metrics collector → API: totals by proxy id; a proxy without traffic may be absent.

    `as_of` is when: seconds of the machine's monotonic clock.
    """

    proxies: dict[str, ProxyStats]
    as_of: float = 0.0


@message
class QuerySystem:
    """API or telemetry → metrics collector: the metrics of the system and of all proxies. → `SystemMetrics`."""


@message
class SystemMetrics:
    """Metrics collector → API. Percentages are 0 to 100; rates are per second over the last complete seconds.

    `memory` is of all processes of the product together, and `memory_measure` how it is summed up, "pss" or "rss"
    (`actors.metrics.system.Memory`); so are `rss`, `uss` and `vms`.
    """

    cpu_percent: float
    load_average: tuple[float, float, float]
    memory_percent: float
    memory_total: int
    memory_used: int
    disk_percent: float
    disk_free: int
    memory: int
    memory_measure: str
    rss: int
    uss: int
    vms: int
    requests_per_second: float
    bandwidth_in: float
    bandwidth_out: float
    total: ProxyStats


@message
class QueryMetricSeries:
    """API → metrics collector: these metrics (names of `actors.metrics.catalogue`) in a row of buckets.

    The first bucket begins at `start` (Unix seconds, a multiple of `step`), the last one before `end`. They are of
    these proxies together; of everything when `proxy_ids` is None. With `of_one`, processors and memory are of the
    process of the proxy instead of the machine. `to_merge` is for several nodes. → `MetricSeries`, or `Failed` when the
    disk can't be read.
    """

    names: tuple[str, ...]
    start: int
    end: int
    step: int
    proxy_ids: tuple[str, ...] | None = None
    of_one: bool = False
    to_merge: bool = False


@message
class MetricSeries:
    """Metrics collector → API: by name, one value for each bucket; None where there is nothing to take a mean of.

    If it is `to_merge`, `latency` has of each bucket the latencies as in `Counters`, if a metric is read from these.
    """

    values: dict[str, tuple[float | None, ...]]
    latency: tuple[tuple[tuple[int, int], ...], ...] = ()


@message
class QueryRealtime:
    """API → metrics collector: the present metrics of these proxies together, or of all (None). → `Realtime`.

    `of_one` and `to_merge` as in `QueryMetricSeries`. `recent` is what the latest uses are to be in the reply of: ids
    of proxies, accounts and pools, and keys of upstreams (`actors.metrics.recent`); with `busy` also all whose ids
    begin so and that have a rate now.
    """

    proxy_ids: tuple[str, ...] | None = None
    of_one: bool = False
    to_merge: bool = False
    recent: tuple[str, ...] = ()
    busy: str = ""


@message
class RecentUse:
    """What one proxy, account, pool or upstream did lately, the oldest first. A value, not a message by itself.

    `rates` are bytes per second in both directions, of each 5 s of the last minute; `requests`, and `failed`, the
    refusals and errors, of each 5 minutes of the last hour, the last of which is not over.
    """

    rates: tuple[int, ...]
    requests: tuple[int, ...]
    failed: tuple[int, ...]


@message
class Realtime:
    """Metrics collector → API: metrics by name (`actors.metrics.catalogue`), as they were at `timestamp`.

    If it is `to_merge`, also the `requests` and their `latency`, as in `Counters`, of the last 60 s. `recent` has of
    what was asked for those that were used. Of all but proxies the first `unknown` buckets of requests are not known:
    they are older than the collector's process.
    """

    timestamp: float
    metrics: dict[str, float]
    requests: float = 0
    latency: tuple[tuple[int, int], ...] = ()
    recent: dict[str, RecentUse] = field(default_factory=dict)
    unknown: int = 0


@message
class DropProxyMetrics:
    """Supervisor → metrics collector: this proxy was deleted. Nothing replies."""

    proxy_id: str
