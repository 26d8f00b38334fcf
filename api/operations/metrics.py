"""Metrics over time, of now, and for Prometheus."""

from __future__ import annotations

from api import queries
from api.operations.operation import V1, Operation
from api.resources import metrics

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        f"{V1}/metrics",
        "metrics.read",
        "queryMetrics",
        "Metrics over time",
        metrics.query_metrics,
        query=queries.QUERY_METRICS,
        names_resource=True,
    ),
    Operation(
        "GET",
        f"{V1}/metrics/realtime",
        "metrics.read",
        "getRealtimeMetrics",
        "Metrics of now",
        metrics.realtime,
        query=queries.REALTIME,
        names_resource=True,
    ),
    Operation(
        "GET",
        "/metrics",
        "metrics.read",
        "getExposition",
        "Totals for Prometheus",
        metrics.exposition,
        enveloped=False,
        produces="text/plain",
        by_token=True,
    ),
)
