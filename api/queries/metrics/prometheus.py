"""Totals in the text format of Prometheus. Nothing of clients or targets is in it.

Each total is the sum over all processes that a proxy ever had, so none of them falls when one is restarted. Only a
deleted proxy's series end. Labels: `proxy` (its id), `protocol`, `name` (a new name begins new series, which `sum by
(proxy)` puts together), `account` (its id), `code` (the status of requests), `reason` (of refusals and problems),
`upstream`, `webhook`, `kind` (of what a tunnel's TLS handshake named), `server` (that names are asked of) and `pool`,
which has few series, since it may have thousands of upstreams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from actors.bus.messages.dns import DnsState
from actors.bus.messages.events import WebhookSenderState, WebhookStatus
from actors.bus.messages.metrics import ProxyStats, SystemMetrics
from actors.bus.messages.specs import UpstreamState
from actors.bus.messages.supervision import Runtime
from actors.counters import COUNTERS, LABELLED, OF_A_PROXY, OF_THE_MACHINE
from actors.histogram import BOUNDS, PARTS, bucket_of, cumulative
from actors.pools.state import PoolCounts
from api.fleet import NodeFigures
from api.objects.proxies.runtime_view import NO_STATS
from api.queries.usage_report import TopAccount
from config import VERSION

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Proxy(NamedTuple):
    """What the exposition has of a proxy beside its metrics."""

    id: str
    name: str
    protocol: str
    active: bool


class PoolMetrics(NamedTuple):
    """A pool by its id and its name."""

    id: str
    name: str
    state: PoolCounts
    in_use: bool


class Parts(NamedTuple):
    """Parts of proxies, webhooks and accounts: upstreams by proxy id, webhooks with their status, and the accounts that
    have series of their own.
    """

    upstreams: Mapping[str, Sequence[UpstreamState]] = {}
    webhooks: Sequence[tuple[str, str, WebhookStatus]] = ()
    """Id, name, and status of deliveries."""
    accounts: Sequence[TopAccount] = ()
    names: DnsState | None = None
    """Counters of the resolver."""
    pools: Sequence[PoolMetrics] = ()
    node: NodeFigures | None = None
    """Of this node, if it is one of a fleet."""


def expose(
    proxies: Sequence[Proxy],
    totals: Mapping[str, ProxyStats],
    runtimes: Mapping[str, Runtime],
    system: SystemMetrics | None,
    sender: WebhookSenderState | None = None,
    parts: Parts = Parts(),  # noqa: B008 - it never changes
) -> bytes:
    """The exposition. Without `system` it has no metrics of the machine, without `sender` none of webhooks."""
    known = [_KnownTotals(each, totals.get(each.id, NO_STATS), runtimes.get(each.id)) for each in proxies]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Exposition(known, system, sender, parts))
    return generate_latest(registry)


def expose_names(state: DnsState) -> Iterator[Metric]:
    """The counters of the resolver, by name server where that makes sense."""
    yield from _families(_NAMES, (), [((), state)])
    servers = [((each.name,), each) for each in state.servers]
    yield from _families(_SERVERS, ("server",), servers)
    histograms = [(labels, dict(each.latency), each.seconds) for labels, each in servers]
    yield _histogram("dns_latency_seconds", "Until a response came", ("server",), 10.0, histograms)


# --- the tables ---------------------------------------------------------------------------------------------------

_GAUGE, _COUNTER = GaugeMetricFamily, CounterMetricFamily
_LABELS = ("proxy", "protocol", "name")
_LEFT_ALONE = {"cooldown": "cooling_down", "ban": "banned"}
"""The value of the label, and the field of the summary."""

_Labels = tuple[str, ...]
_Values = Mapping[str, float]


class _KnownTotals(NamedTuple):
    """A proxy with what it has done, and what runs of it."""

    proxy: Proxy
    stats: ProxyStats
    runtime: Runtime | None

    @property
    def labels(self) -> _Labels:
        return self.proxy.id, self.proxy.protocol, self.proxy.name

    @property
    def wanted(self) -> Runtime | None:
        """What runs of one that should: a proxy that was stopped is neither down nor degraded."""
        return self.runtime if self.proxy.active else None


class _Row(NamedTuple):
    """A metric of each thing of a kind: `value` is of one, None for none; with a `label`, by the values of that."""

    type: type[GaugeMetricFamily | CounterMetricFamily]
    name: str
    help: str
    value: Callable[[Any], float | _Values | None]
    label: str = ""


_PROXIES = (
    *(_Row(_COUNTER, row.name, row.help, attrgetter(f"stats.{row.field}"), row.label) for row in LABELLED),
    *(
        _Row(_COUNTER, row.prometheus, row.help, lambda known, name=row.name: known.stats[name])  # type: ignore[misc]
        for row in COUNTERS
        if row.prometheus
    ),
    *(
        _Row(_GAUGE, row.prometheus, row.help, lambda known, row=row: row.read(known.stats))  # type: ignore[misc]
        for row in OF_A_PROXY
    ),
    _Row(
        _GAUGE, "last_request_timestamp_seconds", "Of the last request", lambda known: known.stats.last_request or None
    ),
    _Row(
        _GAUGE,
        "proxy_up",
        "1 while it can serve clients",
        lambda known: bool(known.wanted and known.wanted.serves) if known.proxy.active else None,
    ),
    _Row(
        _COUNTER,
        "proxy_restarts",
        "Starts after a failure",
        lambda known: known.runtime.restarts if known.runtime else 0,
    ),
    _Row(
        _GAUGE,
        "proxy_workers",
        "Workers that serve it",
        lambda known: (known.wanted.workers_running if known.wanted else 0) if known.proxy.active else None,
    ),
    _Row(_GAUGE, "proxy_info", "The name of each proxy", lambda _known: 1),
    _Row(
        _GAUGE,
        "proxy_degraded",
        "1 while it runs with problems",
        lambda known: known.wanted and known.wanted.state == "degraded",
    ),
    _Row(
        _GAUGE,
        "proxy_problem",
        "1 while it lasts, by reason",
        lambda known: known.wanted and dict.fromkeys((each.reason for each in known.wanted.problems), 1),
        "reason",
    ),
    _Row(
        _GAUGE,
        "certificate_end_timestamp_seconds",
        "When its certificate ends",
        lambda known: (known.wanted and known.wanted.certificate_ends) or None,
    ),
)
_UPSTREAMS = (
    _Row(
        _GAUGE,
        "upstream_up",
        "1 while it is up, 0 while it is down",
        lambda state: None if state.state == "unknown" else state.state == "up",
    ),
    _Row(
        _GAUGE,
        "upstream_connect_seconds",
        "What clients wait for it lately",
        lambda state: None if state.latency is None else state.latency / 1000,
    ),
)
_SENDER = (
    _Row(_GAUGE, "deliveries_waiting", "Events and deliveries that wait", attrgetter("waiting")),
    _Row(_COUNTER, "events_lost", "Events that can't be delivered any more", attrgetter("lost")),
)
_WEBHOOKS = (
    _Row(_GAUGE, "webhook_waiting", "Deliveries that wait", attrgetter("waiting")),
    _Row(
        _COUNTER,
        "webhook_failed_requests",
        "Requests that failed since the sender's start",
        attrgetter("failed_requests"),
    ),
)
_ACCOUNTS = (
    _Row(_COUNTER, "account_received_bytes", "From clients of it", attrgetter("bytes_in")),
    _Row(_COUNTER, "account_sent_bytes", "To clients of it", attrgetter("bytes_out")),
)
_POOLS = (
    _Row(
        _GAUGE,
        "pool_upstreams",
        "Upstreams of a pool by state",
        lambda pool: {each: getattr(pool.state, each) for each in ("up", "down", "unknown")},
        "state",
    ),
    _Row(
        _GAUGE,
        "pool_upstreams_left_alone",
        "Those that are not used for a time",
        lambda pool: {by: getattr(pool.state, field) for by, field in _LEFT_ALONE.items()},
        "by",
    ),
    _Row(_GAUGE, "pool_usable_upstreams", "Those that are up and not left alone", attrgetter("state.usable")),
    _Row(_GAUGE, "pool_in_use", "1 if an active proxy can use the pool", attrgetter("in_use")),
    _Row(
        _GAUGE,
        "pool_connect_seconds",
        "What clients wait for its upstreams lately, on average",
        attrgetter("state.latency"),
    ),
    _Row(_COUNTER, "pool_checks", "Checks of its upstreams", attrgetter("state.checks")),
    _Row(_COUNTER, "pool_failed_checks", "Those that failed", attrgetter("state.checks_failed")),
    _Row(_COUNTER, "pool_bans", "Upstreams that were reported as bad", attrgetter("state.bans")),
)
_NODE = (
    _Row(_GAUGE, "node_behind_seconds", "The age of the oldest commit that it does not serve", attrgetter("behind")),
    _Row(_GAUGE, "node_database_connected", "0 while it is cut off from the database", attrgetter("is_connected")),
    _Row(_GAUGE, "node_doorbell", "0 while it gets no notifications", attrgetter("is_notified")),
    _Row(_GAUGE, "usage_unreported_bytes", "Used here, and not known to the database", attrgetter("unreported")),
)
_NAMES = (
    _Row(_COUNTER, "dns_requests", "Names that actors have requested", attrgetter("requests")),
    _Row(_COUNTER, "dns_hits", "Those that were cached", attrgetter("hits")),
    _Row(_COUNTER, "dns_failures", "Those that got no address after a lookup", attrgetter("failures")),
    _Row(_GAUGE, "dns_cache_entries", "Cached results", attrgetter("entries")),
    _Row(_GAUGE, "dns_waiting", "Lookups that wait for their turn", attrgetter("waiting")),
    _Row(
        _COUNTER, "dns_dropped_responses", "Messages that are no response to a query", attrgetter("dropped"), "reason"
    ),
)
_SERVERS = (
    _Row(_COUNTER, "dns_queries", "Queries to a name server", attrgetter("queries")),
    _Row(_COUNTER, "dns_query_failures", "Queries without a usable response", attrgetter("failures")),
    _Row(_GAUGE, "dns_server_up", "0 while it has not responded lately", lambda server: not server.silent),
)


# --- families of metrics ------------------------------------------------------------------------------------------


class _Exposition(Collector):
    """All metrics of one scrape."""

    def __init__(
        self,
        proxies: Sequence[_KnownTotals],
        system: SystemMetrics | None,
        sender: WebhookSenderState | None,
        parts: Parts,
    ) -> None:
        self._proxies = proxies
        self._system = system
        self._sender = sender
        self._parts = parts

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client.registry.Collector`."""
        proxies, parts = [(each.labels, each) for each in self._proxies], self._parts
        yield from _families(_PROXIES, _LABELS, proxies)
        times = [(labels, dict(each.stats.latency), each.stats["response_seconds"]) for labels, each in proxies]
        text = "From the request to the head of the response, or until the tunnel stood"
        yield _histogram("response_time_seconds", text, _LABELS, 60.0, times)
        upstreams = [
            ((*labels, state.name), state)
            for labels, each in proxies
            for state in parts.upstreams.get(each.proxy.id, ())
        ]
        yield from _families(_UPSTREAMS, (*_LABELS, "upstream"), upstreams)
        yield from _families([_Row(_GAUGE, "build_info", "The version that runs", lambda _: 1)], ("version",), _BUILD)
        if self._system is not None:
            rows = [_Row(_GAUGE, row.prometheus, row.help, row.read) for row in OF_THE_MACHINE]
            yield from _families(rows, (), [((), self._system)])
        if self._sender is not None:
            yield from _families(_SENDER, (), [((), self._sender)])
            webhooks = [((webhook_id, name), status) for webhook_id, name, status in parts.webhooks]
            yield from _families(_WEBHOOKS, ("webhook", "name"), webhooks)
        if parts.accounts:
            accounts = [((each.id, each.username), each) for each in parts.accounts]
            yield from _families(_ACCOUNTS, ("account", "name"), accounts)
        if parts.names is not None:
            yield from expose_names(parts.names)
        if parts.pools:
            yield from _families(_POOLS, ("pool", "name"), [((each.id, each.name), each) for each in parts.pools])
        if parts.node is not None:
            yield from _families(_NODE, (), [((), parts.node)])
            commits = [((), parts.node.commits, parts.node.commit_seconds)]
            yield _histogram("node_commit_seconds", "From asking for the lock until it was durable", (), 10.0, commits)


_BUILD = [((VERSION,), None)]


def _families(rows: Iterable[_Row], labels: _Labels, things: Sequence[tuple[_Labels, Any]]) -> Iterator[Metric]:
    """A family for each row, with the values of all things by their labels."""
    for row in rows:
        names = (*labels, row.label) if row.label else labels
        family: Any = row.type(f"proxyfleet_{row.name}", row.help, labels=names)
        for given, thing in things:
            value = row.value(thing)
            if isinstance(value, Mapping):
                for label, each in sorted(value.items()):
                    family.add_metric((*given, label), each)
            elif value is not None:
                family.add_metric(given, value)
        yield family


def _histogram(
    name: str, text: str, labels: _Labels, longest: float, things: Iterable[tuple[_Labels, Mapping[int, int], float]]
) -> Metric:
    """Every octave from 1 ms up to `longest` seconds; the fine ones are for percentiles of ours."""
    family = HistogramMetricFamily(f"proxyfleet_{name}", text, labels=labels)
    numbers = range(bucket_of(0.001), bucket_of(longest), PARTS)
    for given, histogram, seconds in things:
        counts = cumulative(histogram, numbers)
        buckets = [(f"{BOUNDS[each]:.10g}", float(count)) for each, count in zip(numbers, counts, strict=True)]
        family.add_metric(given, [*buckets, ("+Inf", float(sum(histogram.values())))], seconds)
    return family
