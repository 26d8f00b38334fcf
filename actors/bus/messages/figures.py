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
    what rules in report mode would have refused.
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


@message
class QueryStats:
    """API → metrics collector: the totals of these proxies, of all when empty. Answered by `Stats`."""

    proxy_ids: tuple[str, ...]


@message
class ProxyStats:
    """The totals of one proxy over all its processes. A value, not a message by itself.

    `refusals`, `reported` and `records_dropped` are those of `Counters`.
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


@message
class Stats:
    """Metrics collector → API: totals by proxy id; a proxy without traffic may be absent."""

    proxies: dict[str, ProxyStats]


@message
class QuerySystem:
    """API → metrics collector: the system's and all proxies' figures at this moment. Answered by `SystemFigures`."""


@message
class SystemFigures:
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
class ForgetProxy:
    """Supervisor → metrics collector: this proxy was deleted. Nothing answers."""

    proxy_id: str
