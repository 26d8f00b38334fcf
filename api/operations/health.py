"""Health: for monitoring, and for people."""

from __future__ import annotations

from api.openapi.schemas.health import Alive, HealthReport, SmallHealth, SystemStatus, Version
from api.openapi.schemas.overview import Overview
from api.operations.operation import ANY, NONE, V1, get, resource
from api.resources import health, overview

TABLE = (
    *resource("", read=NONE)(
        get("/health", "health", health.check, SmallHealth, may_be_503=True, unlimited=True),
        get("/livez", "livez", health.live, Alive, unlimited=True),
        get("/readyz", "readyz", health.ready, SmallHealth, may_be_503=True, unlimited=True),
    ),
    *resource(V1)(
        get("/overview", "getOverview", overview.overview, Overview, ANY, query=overview.OverviewRange, scoped=True),
        get("/health", "getHealth", health.report, HealthReport, ANY, may_be_503=True, scoped=True),
        get("/status", "getStatus", health.system_status, SystemStatus, "metrics.read"),
        get("/version", "getVersion", health.version, Version, ANY, scoped=True),
    ),
)
