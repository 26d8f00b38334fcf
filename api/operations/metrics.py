"""Metrics over time, current metrics, and metrics for Prometheus."""

from __future__ import annotations

from api.openapi.schemas.metrics import Metrics, RealtimeMetrics
from api.operations.operation import V1, get, resource
from api.resources import metrics

TABLE = resource("", read="metrics.read")(
    get(
        f"{V1}/metrics",
        "queryMetrics",
        metrics.query_metrics,
        Metrics,
        query=metrics.QueryMetrics,
        errors=(404,),
        scoped=True,
    ),
    get(
        f"{V1}/metrics/realtime",
        "getRealtimeMetrics",
        metrics.realtime,
        RealtimeMetrics,
        query=metrics.RealtimeQuery,
        errors=(404,),
        scoped=True,
    ),
    get(
        "/metrics",
        "getExposition",
        metrics.exposition,
        produces="text/plain",
        prometheus_token=True,
        scoped=True,
    ),
)
