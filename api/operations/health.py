"""Is it well: for machines that watch, and for people."""

from __future__ import annotations

from api.operations.operation import ANY, NONE, V1, Operation
from api.resources import health

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        "/health",
        NONE,
        "health",
        "Health check",
        health.small,
        description=(
            "Answers 200 while the service is healthy or degraded, 503 while it is unhealthy. It needs no "
            "credentials and has no rate limit, so a load balancer can poll it."
        ),
        exempt=True,
        may_be_unwell=True,
    ),
    Operation(
        "GET",
        "/livez",
        NONE,
        "livez",
        "Liveness check",
        health.live,
        description=(
            "Answers 200 as long as the API process can answer at all. Use it to decide whether to restart the service."
        ),
        exempt=True,
    ),
    Operation(
        "GET",
        "/readyz",
        NONE,
        "readyz",
        "Readiness check",
        health.small,
        description=(
            "Answers 200 when the service can do its work, 503 otherwise. Use it to decide whether to send "
            "traffic to the service."
        ),
        exempt=True,
        may_be_unwell=True,
    ),
    Operation(
        "GET",
        f"{V1}/health",
        ANY,
        "getHealth",
        "Show the health report",
        health.report,
        description=(
            "Reports the state of the configuration store, the proxies, the memory and the disk, each with its "
            "own status. The overall `status` is `healthy`, `degraded` or `unhealthy`."
        ),
        may_be_unwell=True,
        scoped=True,
    ),
    Operation(
        "GET",
        f"{V1}/status",
        "metrics.read",
        "getStatus",
        "Show the system status",
        health.system_status,
        description=(
            "Reports the uptime, memory and CPU use of the service, and the traffic of all proxies together. It "
            "also counts what was lost, such as events or records."
        ),
    ),
)
