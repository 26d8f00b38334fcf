"""Counters, and the statistics that the metrics collector makes of them."""

from __future__ import annotations

from dataclasses import field

from actors.bus.codec import message


@message
class Counters:
    """Forwarding actor → events plane, topic `counters.<proxy id>`: cumulative since its start.

    Every second while they change, else every five seconds.

    `bytes_in` is what clients sent, `bytes_out` what they received. `response_seconds` is the sum over `requests`.
    `last_request` is 0 when there was none. `refusals` counts by reason what guard and access rules refused, `reported`
    what rules in report mode would have refused. `statuses` counts requests by the status of their record. `latency`
    has number and count of the buckets of `actors.histogram` that `response_seconds` fell into: one entry for each
    request that was answered. `cpu_seconds` is the processor time of the process, `resident` its memory in bytes now;
    they change by themselves, so that alone is nothing to be told. `internal_errors` counts the unforeseen exceptions
    that ended a connection.
    """

    proxy_id: str
    instance: int
    requests: int
    errors: int
    denied: int
    auth_failures: int
    connections: int
    active_connections: int
    bytes_in: int
    bytes_out: int
    response_seconds: float
    last_request: float
    records_dropped: int
    refusals: dict[str, int] = field(default_factory=dict)
    reported: dict[str, int] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)
    latency: tuple[tuple[int, int], ...] = ()
    cpu_seconds: float = field(default=0.0, compare=False)
    resident: int = field(default=0, compare=False)
    internal_errors: int = 0


@message
class QueryStats:
    """API or telemetry → metrics collector: the totals of these proxies, of all when empty. Answered by `Stats`.

    Only `detailed` ones have `statuses` and `latency`. With `since`, the `as_of` of an earlier answer, those may be
    left out that have not changed.
    """

    proxy_ids: tuple[str, ...]
    detailed: bool = False
    since: float = 0.0


@message
class ProxyStats:
    """The totals of one proxy over all its processes. A value, not a message by itself.

    The fields are those of `Counters`; `statuses` and `latency` are empty unless they were asked for.
    """

    requests: int
    errors: int
    denied: int
    auth_failures: int
    active_connections: int
    connections: int
    bytes_in: int
    bytes_out: int
    response_seconds: float
    last_request: float
    refusals: dict[str, int] = field(default_factory=dict)
    reported: dict[str, int] = field(default_factory=dict)
    records_dropped: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    latency: tuple[tuple[int, int], ...] = ()
    cpu_seconds: float = 0.0
    resident: int = 0
    internal_errors: int = 0


@message
class Stats:
    """Metrics collector → API: totals by proxy id; a proxy without traffic may be absent.

    `as_of` is when: seconds of the machine's monotonic clock.
    """

    proxies: dict[str, ProxyStats]
    as_of: float = 0.0


@message
class QuerySystem:
    """API or telemetry → metrics collector: the system's and all proxies' figures now. Answered by `SystemMetrics`."""


@message
class SystemMetrics:
    """Metrics collector → API. Percentages are 0 to 100; rates are per second over the last complete seconds.

    `rss` and `vms` are of all processes of the product together.
    """

    cpu_percent: float
    load_average: tuple[float, float, float]
    memory_percent: float
    memory_total: int
    memory_used: int
    disk_percent: float
    disk_free: int
    rss: int
    uss: int
    vms: int
    requests_per_second: float
    bandwidth_in: float
    bandwidth_out: float
    total: ProxyStats


@message
class QueryMetrics:
    """API → metrics collector: these metrics (names of `actors.metrics.catalogue`) in a row of buckets.

    The first bucket begins at `start` (Unix seconds, a multiple of `step`), the last one before `end`. They are of
    these proxies together; of everything when `proxy_ids` is None. With `of_one`, processors and memory are of the
    process of the proxy instead of the machine. Answered by `MetricSeries`, or `Failed` when the disk can't be read.
    """

    names: tuple[str, ...]
    start: int
    end: int
    step: int
    proxy_ids: tuple[str, ...] | None = None
    of_one: bool = False


@message
class MetricSeries:
    """Metrics collector → API: by name, one value for each bucket; None where there is nothing to take a mean of."""

    values: dict[str, tuple[float | None, ...]]


@message
class QueryRealtime:
    """API → metrics collector: what goes on in these proxies together, or in all (None)? Answered by `Realtime`.

    `of_one` as in `QueryMetrics`.
    """

    proxy_ids: tuple[str, ...] | None = None
    of_one: bool = False


@message
class Realtime:
    """Metrics collector → API: metrics by name (`actors.metrics.catalogue`), as they were at `timestamp`."""

    timestamp: float
    metrics: dict[str, float]


@message
class DropProxyMetrics:
    """Supervisor → metrics collector: this proxy was deleted. Nothing answers."""

    proxy_id: str
