"""Metrics over time, of now, and for Prometheus."""

from __future__ import annotations

from api.operations import query_parameters
from api.operations.operation import V1, Operation
from api.resources import metrics

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        f"{V1}/metrics",
        "metrics.read",
        "queryMetrics",
        "Query metrics over time",
        metrics.query_metrics,
        description=(
            "Returns a series of points for each metric, aligned to `interval`. A rate is 0 where there was no "
            "traffic; an average has no point there."
        ),
        query=query_parameters.QUERY_METRICS,
        names_resource=True,
        scoped=True,
    ),
    Operation(
        "GET",
        f"{V1}/metrics/realtime",
        "metrics.read",
        "getRealtimeMetrics",
        "Show current metrics",
        metrics.realtime,
        description=(
            "Returns one number for each metric, not older than two seconds. Subscribe to the metrics socket "
            "instead of polling when you need a value each second."
        ),
        query=query_parameters.REALTIME,
        names_resource=True,
        scoped=True,
    ),
    Operation(
        "GET",
        "/metrics",
        "metrics.read",
        "getExposition",
        "Prometheus metrics",
        metrics.exposition,
        description=(
            "Returns all counters and gauges in the text format of Prometheus. A scraper may send "
            "`metrics.prometheus_token` as bearer token instead of the credentials of a user."
        ),
        enveloped=False,
        produces="text/plain",
        by_token=True,
        scoped=True,
    ),
)
