"""Totals in the text format of Prometheus. Nothing of clients or targets is in it.

Each total is the sum over all processes that a proxy ever had, so none of them falls when one is restarted. Only a
deleted proxy's series end. Labels: `proxy` (its id), `protocol`, `name` (a new name begins new series, which `sum by
(proxy)` puts together), `account` (its id), `code` (the status of requests), `reason` (of refusals and problems),
`upstream`, `webhook`, `kind` (of what a tunnel's TLS handshake named).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from actors.bus.messages.dns import DnsState
from actors.bus.messages.events import WebhookSenderState, WebhookStatus
from actors.bus.messages.metrics import ProxyStats, SystemMetrics
from actors.bus.messages.specs import UpstreamState
from actors.bus.messages.supervision import Runtime
from actors.counters import COUNTERS, LABELLED, OF_A_PROXY, OF_THE_MACHINE, LabelledCounter
from actors.histogram import BOUNDS, PARTS, bucket_of, cumulative
from api.services.metrics import Proxy
from api.services.prometheus_names import expose_names
from api.services.prometheus_pools import PoolSummary, expose_pools
from api.services.runtime_view import NO_STATS
from api.services.usage_report import TopAccount
from config import VERSION

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_LABELS = ("proxy", "protocol", "name")
_BUCKETS = range(bucket_of(0.001), bucket_of(60.0), PARTS)
"""Every octave from 1 ms to half a minute; the fine ones are for percentiles of ours."""


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
    pools: Sequence[PoolSummary] = ()


def expose(
    proxies: Sequence[Proxy],
    totals: Mapping[str, ProxyStats],
    runtimes: Mapping[str, Runtime],
    system: SystemMetrics | None,
    sender: WebhookSenderState | None = None,
    parts: Parts = Parts(),  # noqa: B008 - it never changes
) -> bytes:
    """The exposition. Without `system` it has no metrics of the machine, without `sender` none of webhooks."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Exposition(proxies, totals, runtimes, system, sender, parts))
    return generate_latest(registry)


class _Exposition(Collector):
    """All metrics of one scrape."""

    def __init__(
        self,
        proxies: Sequence[Proxy],
        totals: Mapping[str, ProxyStats],
        runtimes: Mapping[str, Runtime],
        system: SystemMetrics | None,
        sender: WebhookSenderState | None,
        parts: Parts,
    ) -> None:
        self._stats = [((each.id, each.protocol, each.name), totals.get(each.id, NO_STATS)) for each in proxies]
        self._proxies = proxies
        self._runtimes = runtimes
        self._system = system
        self._sender = sender
        self._parts = parts

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client.registry.Collector`."""
        yield from (self._by_label(row) for row in LABELLED)
        for row in COUNTERS:
            if row.prometheus:
                family = CounterMetricFamily(f"proxyfleet_{row.prometheus}", row.help, labels=_LABELS)
                for labels, stats in self._stats:
                    family.add_metric(labels, stats[row.name])
                yield family
        yield self._response_times()
        yield from self._states()
        yield from self._conditions()
        yield from self._upstreams()
        yield from self._machine()
        yield from self._webhooks()
        yield from self._accounts()
        if self._parts.names is not None:
            yield from expose_names(self._parts.names)
        if self._parts.pools:
            yield from expose_pools(self._parts.pools)

    def _by_label(self, row: LabelledCounter) -> Metric:
        family = CounterMetricFamily(f"proxyfleet_{row.name}", row.help, labels=(*_LABELS, row.label))
        for labels, stats in self._stats:
            counts: dict[str, int] = getattr(stats, row.field)
            for value, count in sorted(counts.items()):
                family.add_metric((*labels, value), count)
        return family

    def _response_times(self) -> Metric:
        text = "From the request to the head of the response, or until the tunnel stood"
        family = HistogramMetricFamily("proxyfleet_response_time_seconds", text, labels=_LABELS)
        for labels, stats in self._stats:
            histogram = dict(stats.latency)
            counts = cumulative(histogram, _BUCKETS)
            buckets = [(_bound(number), float(count)) for number, count in zip(_BUCKETS, counts, strict=True)]
            buckets.append(("+Inf", float(sum(histogram.values()))))
            family.add_metric(labels, buckets, stats["response_seconds"])
        return family

    def _states(self) -> Iterable[Metric]:
        gauges = [GaugeMetricFamily(f"proxyfleet_{row.prometheus}", row.help, labels=_LABELS) for row in OF_A_PROXY]
        last = GaugeMetricFamily("proxyfleet_last_request_timestamp_seconds", "Of the last request", labels=_LABELS)
        for labels, stats in self._stats:
            for row, family in zip(OF_A_PROXY, gauges, strict=True):
                family.add_metric(labels, row.read(stats))
            if stats.last_request:
                last.add_metric(labels, stats.last_request)
        up = GaugeMetricFamily("proxyfleet_proxy_up", "1 while it can serve clients", labels=_LABELS)
        restarts = CounterMetricFamily("proxyfleet_proxy_restarts", "Starts after a failure", labels=_LABELS)
        workers = GaugeMetricFamily("proxyfleet_proxy_workers", "Workers that serve it", labels=_LABELS)
        info = GaugeMetricFamily("proxyfleet_proxy_info", "The name of each proxy", labels=_LABELS)
        for proxy in self._proxies:
            labels, runtime = (proxy.id, proxy.protocol, proxy.name), self._runtimes.get(proxy.id)
            if proxy.active:  # one that was stopped isn't down
                up.add_metric(labels, int(runtime is not None and runtime.serves))
                workers.add_metric(labels, 0 if runtime is None else runtime.workers_running)
            restarts.add_metric(labels, runtime.restarts if runtime else 0)
            info.add_metric(labels, 1)
        return (*gauges, last, up, workers, restarts, info)

    def _conditions(self) -> Iterable[Metric]:
        degraded = GaugeMetricFamily("proxyfleet_proxy_degraded", "1 while it runs with problems", labels=_LABELS)
        problem = GaugeMetricFamily(
            "proxyfleet_proxy_problem", "1 while it lasts, by reason", labels=(*_LABELS, "reason")
        )
        ends = GaugeMetricFamily(
            "proxyfleet_certificate_end_timestamp_seconds", "When its certificate ends", labels=_LABELS
        )
        for proxy in self._proxies:
            runtime = self._runtimes.get(proxy.id)
            if runtime is None or not proxy.active:
                continue
            labels = (proxy.id, proxy.protocol, proxy.name)
            degraded.add_metric(labels, int(runtime.state == "degraded"))
            for reason in dict.fromkeys(each.reason for each in runtime.problems):
                problem.add_metric((*labels, reason), 1)
            if runtime.certificate_ends:
                ends.add_metric(labels, runtime.certificate_ends)
        return (degraded, problem, ends)

    def _upstreams(self) -> Iterable[Metric]:
        names = (*_LABELS, "upstream")
        up = GaugeMetricFamily("proxyfleet_upstream_up", "1 while it is up, 0 while it is down", labels=names)
        latency = GaugeMetricFamily(
            "proxyfleet_upstream_connect_seconds", "What clients wait for it lately", labels=names
        )
        for proxy in self._proxies:
            for state in self._parts.upstreams.get(proxy.id, ()):
                labels = (proxy.id, proxy.protocol, proxy.name, state.name)
                if state.state != "unknown":
                    up.add_metric(labels, int(state.state == "up"))
                if state.latency is not None:
                    latency.add_metric(labels, state.latency / 1000)
        return (up, latency)

    def _machine(self) -> Iterator[Metric]:
        build = GaugeMetricFamily("proxyfleet_build_info", "The version that runs", labels=("version",))
        build.add_metric((VERSION,), 1)
        yield build
        if self._system is not None:
            for row in OF_THE_MACHINE:
                yield GaugeMetricFamily(f"proxyfleet_{row.prometheus}", row.help, value=row.read(self._system))

    def _webhooks(self) -> Iterator[Metric]:
        if self._sender is not None:
            waiting, lost = "Events and deliveries that wait", "Events that can't be delivered any more"
            yield GaugeMetricFamily("proxyfleet_deliveries_waiting", waiting, value=self._sender.waiting)
            yield CounterMetricFamily("proxyfleet_events_lost", lost, value=self._sender.lost)
            yield from self._deliveries()

    def _deliveries(self) -> Iterable[Metric]:
        names = ("webhook", "name")
        waiting = GaugeMetricFamily("proxyfleet_webhook_waiting", "Deliveries that wait", labels=names)
        failed = CounterMetricFamily(
            "proxyfleet_webhook_failed_requests", "Requests that failed since the sender's start", labels=names
        )
        for webhook_id, name, status in self._parts.webhooks:
            waiting.add_metric((webhook_id, name), status.waiting)
            failed.add_metric((webhook_id, name), status.failed_requests)
        return (waiting, failed)

    def _accounts(self) -> Iterable[Metric]:
        if not self._parts.accounts:
            return ()
        names = ("account", "name")
        received = CounterMetricFamily("proxyfleet_account_received_bytes", "From clients of it", labels=names)
        sent = CounterMetricFamily("proxyfleet_account_sent_bytes", "To clients of it", labels=names)
        for account in self._parts.accounts:
            received.add_metric((account.id, account.username), account.bytes_in)
            sent.add_metric((account.id, account.username), account.bytes_out)
        return (received, sent)


def _bound(number: int) -> str:
    return f"{BOUNDS[number]:.10g}"
