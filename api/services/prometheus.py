"""Totals in the text format of Prometheus. Nothing of clients or targets is in it.

Each total is the sum over all processes that a proxy ever had, so none of them falls when one is restarted. Only a
deleted proxy's series end. Labels: `proxy` (its id), `protocol`, `name` (a new name begins new series, which `sum by
(proxy)` puts together), `code` (the status of requests), `reason` (of refusals and problems), `upstream`, `webhook`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from actors.bus.messages.events import WebhookSenderState
from actors.bus.messages.fleet import Runtime
from actors.bus.messages.metrics import ProxyStats, SystemMetrics
from actors.bus.messages.upstreams import UpstreamState
from actors.bus.messages.webhooks import WebhookStatus
from actors.histogram import BOUNDS, PARTS, bucket_of, cumulative
from api.services.metrics import Proxy
from api.services.runtime_view import NO_STATS
from config import VERSION

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_LABELS = ("proxy", "protocol", "name")
_COUNTERS = (
    ("errors", "errors", "Requests that ended with a status from 500 on"),
    ("denied", "denied", "Requests and clients that were refused by guard, rules or limits"),
    ("auth_failures", "auth_failures", "Requests without the right credentials"),
    ("connections", "connections", "Connections of clients"),
    ("received_bytes", "bytes_in", "Bytes that clients sent"),
    ("sent_bytes", "bytes_out", "Bytes that clients received"),
    ("records_dropped", "records_dropped", "Access records that were lost"),
    ("internal_errors", "internal_errors", "Connections that an error of the product itself has ended"),
    ("proxy_cpu_seconds", "cpu_seconds", "Processor time of its processes"),
)
_BUCKETS = range(bucket_of(0.001), bucket_of(60.0), PARTS)
"""Every octave from 1 ms to half a minute; the fine ones are for percentiles of ours."""
_SYSTEM: tuple[tuple[str, str, Callable[[SystemMetrics], float]], ...] = (
    ("cpu_usage_ratio", "Processors in use, 0 to 1", lambda seen: seen.cpu_percent / 100),
    ("memory_usage_ratio", "The machine's memory in use, 0 to 1", lambda seen: seen.memory_percent / 100),
    ("resident_memory_bytes", "Resident memory of all processes of the product", lambda seen: seen.rss),
    ("disk_free_bytes", "Free where the data lie", lambda seen: seen.disk_free),
)


class Parts(NamedTuple):
    """What proxies and webhooks have of their own: upstreams by proxy id, and webhooks with how they are."""

    upstreams: Mapping[str, Sequence[UpstreamState]] = {}
    webhooks: Sequence[tuple[str, str, WebhookStatus]] = ()
    """Id, name, and how its deliveries go."""


def expose(
    proxies: Sequence[Proxy],
    totals: Mapping[str, ProxyStats],
    runtimes: Mapping[str, Runtime],
    system: SystemMetrics | None,
    sender: WebhookSenderState | None = None,
    parts: Parts = Parts(),  # noqa: B008 - it never changes
) -> bytes:
    """The exposition. Without `system` there are no figures of the machine in it, without `sender` none of webhooks."""
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
        yield self._counted_by("requests", "Requests that are over, by status", "code", "statuses")
        yield self._counted_by("refusals", "Refused by guard, rules or limits, by reason", "reason", "refusals")
        yield self._counted_by("reported", "What rules in report mode would have refused", "reason", "reported")
        for name, field, text in _COUNTERS:
            family = CounterMetricFamily(f"proxyfleet_{name}", text, labels=_LABELS)
            for labels, stats in self._stats:
                family.add_metric(labels, getattr(stats, field))
            yield family
        yield self._response_times()
        yield from self._states()
        yield from self._conditions()
        yield from self._upstreams()
        yield from self._machine()
        yield from self._webhooks()

    def _counted_by(self, name: str, text: str, label: str, field: str) -> Metric:
        family = CounterMetricFamily(f"proxyfleet_{name}", text, labels=(*_LABELS, label))
        for labels, stats in self._stats:
            counts: dict[str, int] = getattr(stats, field)
            for value, count in sorted(counts.items()):
                family.add_metric((*labels, value), count)
        return family

    def _response_times(self) -> Metric:
        text = "From the request to the head of the answer, or until the tunnel stood"
        family = HistogramMetricFamily("proxyfleet_response_time_seconds", text, labels=_LABELS)
        for labels, stats in self._stats:
            histogram = dict(stats.latency)
            counts = cumulative(histogram, _BUCKETS)
            buckets = [(_bound(number), float(count)) for number, count in zip(_BUCKETS, counts, strict=True)]
            buckets.append(("+Inf", float(sum(histogram.values()))))
            family.add_metric(labels, buckets, stats.response_seconds)
        return family

    def _states(self) -> Iterable[Metric]:
        active = GaugeMetricFamily("proxyfleet_active_connections", "Open connections", labels=_LABELS)
        memory = GaugeMetricFamily(
            "proxyfleet_proxy_resident_memory_bytes", "Resident memory of its process", labels=_LABELS
        )
        last = GaugeMetricFamily("proxyfleet_last_request_timestamp_seconds", "Of the last request", labels=_LABELS)
        for labels, stats in self._stats:
            active.add_metric(labels, stats.active_connections)
            memory.add_metric(labels, stats.resident)
            if stats.last_request:
                last.add_metric(labels, stats.last_request)
        up = GaugeMetricFamily("proxyfleet_proxy_up", "1 while it can serve clients", labels=_LABELS)
        restarts = CounterMetricFamily("proxyfleet_proxy_restarts", "Starts after a failure", labels=_LABELS)
        info = GaugeMetricFamily("proxyfleet_proxy_info", "The name of each proxy", labels=_LABELS)
        for proxy in self._proxies:
            labels, runtime = (proxy.id, proxy.protocol, proxy.name), self._runtimes.get(proxy.id)
            if proxy.active:  # one that was stopped isn't down
                up.add_metric(labels, int(runtime is not None and runtime.serves))
            restarts.add_metric(labels, runtime.restarts if runtime else 0)
            info.add_metric(labels, 1)
        return (active, memory, last, up, restarts, info)

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
            "proxyfleet_upstream_connect_seconds", "What connecting to it takes lately", labels=names
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
            for name, text, read in _SYSTEM:
                yield GaugeMetricFamily(f"proxyfleet_{name}", text, value=read(self._system))

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


def _bound(number: int) -> str:
    return f"{BOUNDS[number]:.10g}"
