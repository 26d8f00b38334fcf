"""Totals as OTLP metrics: the same as in the exposition for Prometheus, by the names of OpenTelemetry's conventions.

Sums are cumulative since `Identity.since`, over all processes that a proxy ever had, so none of them falls when one is
restarted. Attributes: `proxy` (its id), `proxy.name`, `protocol`, `code` (the status of requests), `reason` (of
refusals); never a client's address or a URL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)

from actors.bus.messages.fleet import Runtime
from actors.bus.messages.metrics import ProxyStats, SystemMetrics
from actors.histogram import BOUNDS, PARTS, bucket_of, cumulative
from actors.telemetry.identity import Identity, attributes, resource_of
from config import VERSION

_NANO = 1_000_000_000
_BUCKETS = range(bucket_of(0.001), bucket_of(60.0), PARTS)
"""As in the exposition: every octave from 1 ms to half a minute."""


@dataclass(frozen=True, slots=True)
class Figures:
    """All that a push is made of, as it was `at` (Unix seconds)."""

    runtimes: Mapping[str, Runtime]
    stats: Mapping[str, ProxyStats]
    system: SystemMetrics | None
    at: float


_SUMS: tuple[tuple[str, str, str, Callable[[ProxyStats], float]], ...] = (
    ("proxyfleet.errors", "{request}", "Requests that ended with a status from 500 on", lambda stats: stats.errors),
    ("proxyfleet.denied", "{request}", "Refused by guard, rules or limits", lambda stats: stats.denied),
    ("proxyfleet.auth_failures", "{request}", "Without the right credentials", lambda stats: stats.auth_failures),
    ("proxyfleet.connections", "{connection}", "Connections of clients", lambda stats: stats.connections),
    ("proxyfleet.received", "By", "Bytes that clients sent", lambda stats: stats.bytes_in),
    ("proxyfleet.sent", "By", "Bytes that clients received", lambda stats: stats.bytes_out),
    ("proxyfleet.records_dropped", "{record}", "Access records that were lost", lambda stats: stats.records_dropped),
    (
        "proxyfleet.internal_errors",
        "{connection}",
        "Connections that an error of the product itself has ended",
        lambda stats: stats.internal_errors,
    ),
    ("proxyfleet.proxy.cpu_time", "s", "Processor time of its processes", lambda stats: stats.cpu_seconds),
)
_SUMS_BY: tuple[tuple[str, str, str, str, Callable[[ProxyStats], Mapping[str, int]]], ...] = (
    ("proxyfleet.requests", "{request}", "Requests that are over", "code", lambda stats: stats.statuses),
    ("proxyfleet.refusals", "{request}", "Refused, by reason", "reason", lambda stats: stats.refusals),
    ("proxyfleet.reported", "{request}", "What would have been refused", "reason", lambda stats: stats.reported),
)
_SYSTEM: tuple[tuple[str, str, str, Callable[[SystemMetrics], float]], ...] = (
    ("proxyfleet.system.cpu_usage", "1", "Processors in use, 0 to 1", lambda seen: seen.cpu_percent / 100),
    ("proxyfleet.system.memory_usage", "1", "Memory in use, 0 to 1", lambda seen: seen.memory_percent / 100),
    ("proxyfleet.memory", "By", "Resident memory of all processes of the product", lambda seen: seen.rss),
    ("proxyfleet.disk_free", "By", "Free where the data lie", lambda seen: seen.disk_free),
)


def export_of(identity: Identity, figures: Figures) -> Any:
    """The message to `/v1/metrics`: all proxies that the fleet knows, with what they have counted."""
    scope = ScopeMetrics(scope=InstrumentationScope(name="proxyfleet", version=VERSION))
    scope.metrics.extend(_Export(identity, figures).metrics())
    resource = resource_of(identity)
    return ExportMetricsServiceRequest(resource_metrics=[ResourceMetrics(resource=resource, scope_metrics=[scope])])


class _Export:
    """One push in the making."""

    def __init__(self, identity: Identity, figures: Figures) -> None:
        self._since, self._at = round(identity.since * _NANO), round(figures.at * _NANO)
        self._figures = figures
        self._proxies = [
            (
                {"proxy": proxy_id, "proxy.name": runtime.name, "protocol": runtime.protocol},
                runtime,
                figures.stats.get(proxy_id, _NOTHING),
            )
            for proxy_id, runtime in figures.runtimes.items()
        ]

    def metrics(self) -> Iterable[Any]:
        """All of them."""
        for name, unit, text, read in _SUMS:
            yield self._sum(name, unit, text, [(own, read(stats)) for own, _runtime, stats in self._proxies])
        for name, unit, text, word, read_by in _SUMS_BY:
            points = [
                ({**own, word: each}, count)
                for own, _runtime, stats in self._proxies
                for each, count in sorted(read_by(stats).items())
            ]
            yield self._sum(name, unit, text, points)
        yield self._response_times()
        yield from self._states()
        if self._figures.system is not None:
            for name, unit, text, read_system in _SYSTEM:
                yield self._gauge(name, unit, text, [({}, read_system(self._figures.system))])

    def _states(self) -> Iterable[Any]:
        every = self._proxies
        restarts = [(own, runtime.restarts) for own, runtime, _stats in every]
        yield self._sum("proxyfleet.proxy.restarts", "{restart}", "Starts after a failure", restarts)
        active = [(own, stats.active_connections) for own, _runtime, stats in every]
        yield self._gauge("proxyfleet.active_connections", "{connection}", "Open connections", active)
        memory = [(own, stats.resident) for own, _runtime, stats in every]
        yield self._gauge("proxyfleet.proxy.memory", "By", "Resident memory of its process", memory)
        up = [(own, int(runtime.serves)) for own, runtime, _stats in every if runtime.state != "stopped"]
        yield self._gauge("proxyfleet.proxy.up", "1", "1 while it can serve clients", up)

    def _response_times(self) -> Any:
        text = "From the request to the head of the answer, or until the tunnel stood"
        points = [self._histogram(own, stats) for own, _runtime, stats in self._proxies]
        data = Histogram(data_points=points, aggregation_temporality=_CUMULATIVE)
        return Metric(name="proxyfleet.response_time", unit="s", description=text, histogram=data)

    def _histogram(self, own: Mapping[str, Any], stats: ProxyStats) -> Any:
        latency = dict(stats.latency)
        below = cumulative(latency, _BUCKETS)
        total = sum(latency.values())
        counts = [after - before for before, after in zip([0, *below], [*below, total], strict=True)]
        return HistogramDataPoint(
            attributes=attributes(own),
            start_time_unix_nano=self._since,
            time_unix_nano=self._at,
            count=total,
            sum=stats.response_seconds,
            bucket_counts=counts,
            explicit_bounds=[BOUNDS[number] for number in _BUCKETS],
        )

    def _sum(self, name: str, unit: str, text: str, points: Iterable[tuple[Mapping[str, Any], float]]) -> Any:
        made = [self._point(own, value, self._since) for own, value in points]
        data = Sum(data_points=made, aggregation_temporality=_CUMULATIVE, is_monotonic=True)
        return Metric(name=name, unit=unit, description=text, sum=data)

    def _gauge(self, name: str, unit: str, text: str, points: Iterable[tuple[Mapping[str, Any], float]]) -> Any:
        data = Gauge(data_points=[self._point(own, value) for own, value in points])
        return Metric(name=name, unit=unit, description=text, gauge=data)

    def _point(self, own: Mapping[str, Any], value: float, since: int = 0) -> Any:
        number = {"as_int": value} if isinstance(value, int) else {"as_double": value}
        return NumberDataPoint(
            attributes=attributes(own), start_time_unix_nano=since, time_unix_nano=self._at, **number
        )


_CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
_NOTHING = ProxyStats(0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0)
