"""Views of metrics."""

from __future__ import annotations

from typing import Literal

from api.openapi.schemas.base import Moment, ResponseModel
from api.openapi.schemas.proxies import ListedProxy


class TimeRange(ResponseModel):
    """The time range of the query."""

    start: Moment
    end: Moment
    interval: Literal["1m", "5m", "1h", "1d"]


class Point(ResponseModel):
    """One bucket; `timestamp` is its beginning."""

    timestamp: Moment
    value: float


class Metrics(ResponseModel):
    """Series by name, oldest first."""

    time_range: TimeRange
    metrics: dict[str, list[Point]]


class Snapshot(ResponseModel):
    """Rates of the last 5 s, error rate (percent) and response times (ms) of the last 60 s; the rest is current."""

    requests_per_second: float
    active_connections: int
    response_time_avg: float
    response_time_p50: float
    response_time_p95: float
    response_time_p99: float
    error_rate: float
    cpu_usage: float
    memory_usage: float
    bandwidth_in: float
    bandwidth_out: float


class RealtimeMetrics(ResponseModel):
    """Current metrics; with `include=proxies` also the proxies."""

    timestamp: Moment
    metrics: Snapshot
    proxies: list[ListedProxy] | None = None
