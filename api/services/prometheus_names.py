"""The counters of the resolver in the text format of Prometheus, by name server where that makes sense."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from actors.bus.messages.dns import DnsState
from actors.histogram import BOUNDS, PARTS, bucket_of, cumulative

_BUCKETS = range(bucket_of(0.001), bucket_of(10.0), PARTS)


def expose_names(state: DnsState) -> Iterator[Metric]:
    """All of them."""
    yield CounterMetricFamily("proxyfleet_dns_requests", "Names that actors have requested", value=state.requests)
    yield CounterMetricFamily("proxyfleet_dns_hits", "Those that were cached", value=state.hits)
    yield CounterMetricFamily(
        "proxyfleet_dns_failures", "Those that got no address after a lookup", value=state.failures
    )
    yield GaugeMetricFamily("proxyfleet_dns_cache_entries", "Cached results", value=state.entries)
    yield GaugeMetricFamily("proxyfleet_dns_waiting", "Lookups that wait for their turn", value=state.waiting)
    dropped = CounterMetricFamily(
        "proxyfleet_dns_dropped_responses", "Messages that are no response to a query", labels=("reason",)
    )
    for reason, count in sorted(state.dropped.items()):
        dropped.add_metric((reason,), count)
    yield dropped
    yield from _by_server(state)


def _by_server(state: DnsState) -> Iterator[Metric]:
    queries = CounterMetricFamily("proxyfleet_dns_queries", "Queries to a name server", labels=("server",))
    failures = CounterMetricFamily(
        "proxyfleet_dns_query_failures", "Queries without a usable response", labels=("server",)
    )
    up = GaugeMetricFamily("proxyfleet_dns_server_up", "0 while it has not responded lately", labels=("server",))
    latency = HistogramMetricFamily("proxyfleet_dns_latency_seconds", "Until a response came", labels=("server",))
    for server in state.servers:
        labels = (server.name,)
        queries.add_metric(labels, server.queries)
        failures.add_metric(labels, server.failures)
        up.add_metric(labels, int(not server.silent))
        histogram = dict(server.latency)
        counts = cumulative(histogram, _BUCKETS)
        buckets = [(f"{BOUNDS[each]:.10g}", float(count)) for each, count in zip(_BUCKETS, counts, strict=True)]
        latency.add_metric(labels, [*buckets, ("+Inf", float(sum(histogram.values())))], server.seconds)
    yield from (queries, failures, up, latency)
