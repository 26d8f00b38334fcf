"""Is it well: for machines that watch, and for people."""

from __future__ import annotations

from api.operations.operation import ANY, NONE, V1, Operation
from api.resources import health

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET", "/health", NONE, "health", "Is it well, in one word", health.small, exempt=True, may_be_unwell=True
    ),
    Operation("GET", "/livez", NONE, "livez", "Does the process answer", health.live, exempt=True),
    Operation("GET", "/readyz", NONE, "readyz", "Can it do its work", health.small, exempt=True, may_be_unwell=True),
    Operation("GET", f"{V1}/health", ANY, "getHealth", "The health report", health.report, may_be_unwell=True),
    Operation("GET", f"{V1}/status", "metrics.read", "getStatus", "The system status", health.system_status),
)
