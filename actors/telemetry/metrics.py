"""Totals as OTLP metrics: the same as in the exposition for Prometheus, by the names of OpenTelemetry's conventions.

Sums are cumulative since `ResourceIdentity.since`, over all processes that a proxy ever had, so none of them falls when
one is restarted. Attributes: `proxy` (its id), `proxy.name`, `protocol`, `code` (the status of requests), `reason` (of
refusals); never a client's address or a URL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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

from actors.bus.messages.metrics import ProxyStats, SystemMetrics
from actors.bus.messages.supervision import Runtime
from actors.counters import COUNTERS, LABELLED, OF_A_PROXY, OF_THE_MACHINE, LabelledCounter
from actors.counters import Gauge as GaugeRow
from actors.histogram import BOUNDS, PARTS, bucket_of, cumulative
from actors.telemetry.otlp_client import ResourceIdentity, attributes, resource_of
from config import VERSION

_NANO = 1_000_000_000
_BUCKETS = range(bucket_of(0.001), bucket_of(60.0), PARTS)
"""As in the exposition: every octave from 1 ms to half a minute."""


@dataclass(frozen=True, slots=True)
class PushedMetrics:
    """The content of a push, as it was `at` (Unix seconds)."""

    runtimes: Mapping[str, Runtime]
    stats: Mapping[str, ProxyStats]
    system: SystemMetrics | None
    at: float


def export_of(identity: ResourceIdentity, snapshot: PushedMetrics) -> Any:
    """The message to `/v1/metrics`: all proxies that the fleet knows, with what they have counted."""
    scope = ScopeMetrics(scope=InstrumentationScope(name="proxyfleet", version=VERSION))
    scope.metrics.extend(_Export(identity, snapshot).metrics())
    resource = resource_of(identity)
    return ExportMetricsServiceRequest(resource_metrics=[ResourceMetrics(resource=resource, scope_metrics=[scope])])


class _Export:
    """One push in the making."""

    def __init__(self, identity: ResourceIdentity, snapshot: PushedMetrics) -> None:
        self._since, self._at = round(identity.since * _NANO), round(snapshot.at * _NANO)
        self._snapshot = snapshot
        self._proxies = [
            (
                {"proxy": proxy_id, "proxy.name": runtime.name, "protocol": runtime.protocol},
                runtime,
                snapshot.stats.get(proxy_id, _NOTHING),
            )
            for proxy_id, runtime in snapshot.runtimes.items()
        ]

    def metrics(self) -> Iterable[Any]:
        """All of them."""
        for row in COUNTERS:
            if row.otlp:
                points = [(own, stats[row.name]) for own, _runtime, stats in self._proxies]
                yield self._sum(f"proxyfleet.{row.otlp}", row.unit, row.help, points)
        for labelled in LABELLED:
            yield self._sum(f"proxyfleet.{labelled.name}", labelled.unit, labelled.help, self._by_label(labelled))
        yield self._response_times()
        yield from self._states()
        if self._snapshot.system is not None:
            for gauge in OF_THE_MACHINE:
                yield self._gauge(gauge, [({}, gauge.read(self._snapshot.system))])

    def _by_label(self, row: LabelledCounter) -> list[tuple[Mapping[str, Any], float]]:
        return [
            ({**own, row.label: label}, count)
            for own, _runtime, stats in self._proxies
            for label, count in sorted(getattr(stats, row.field).items())
        ]

    def _states(self) -> Iterable[Any]:
        every = self._proxies
        restarts = [(own, runtime.restarts) for own, runtime, _stats in every]
        yield self._sum("proxyfleet.proxy.restarts", "{restart}", "Starts after a failure", restarts)
        for gauge in OF_A_PROXY:
            yield self._gauge(gauge, [(own, gauge.read(stats)) for own, _runtime, stats in every])
        up = [(own, int(runtime.serves)) for own, runtime, _stats in every if runtime.state != "stopped"]
        yield self._gauge(_UP, up)

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
            sum=stats["response_seconds"],
            bucket_counts=counts,
            explicit_bounds=[BOUNDS[number] for number in _BUCKETS],
        )

    def _sum(self, name: str, unit: str, text: str, points: Iterable[tuple[Mapping[str, Any], float]]) -> Any:
        made = [self._point(own, value, self._since) for own, value in points]
        data = Sum(data_points=made, aggregation_temporality=_CUMULATIVE, is_monotonic=True)
        return Metric(name=name, unit=unit, description=text, sum=data)

    def _gauge(self, row: GaugeRow, points: Iterable[tuple[Mapping[str, Any], float]]) -> Any:
        data = Gauge(data_points=[self._point(own, value) for own, value in points])
        return Metric(name=f"proxyfleet.{row.otlp}", unit=row.unit, description=row.help, gauge=data)

    def _point(self, own: Mapping[str, Any], value: float, since: int = 0) -> Any:
        number = {"as_int": value} if isinstance(value, int) else {"as_double": value}
        return NumberDataPoint(
            attributes=attributes(own), start_time_unix_nano=since, time_unix_nano=self._at, **number
        )


_CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
_NOTHING = ProxyStats()
_UP = GaugeRow("serves", "1", "1 while it can serve clients", "proxy_up", "proxy.up")
