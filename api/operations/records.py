"""What was done: access records and the audit trail."""

from __future__ import annotations

from api import queries
from api.operations.operation import V1, Operation
from api.resources import audit, logs
from api.security.permissions import ADMIN

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        f"{V1}/logs",
        "metrics.read",
        "queryLogs",
        "Search access records",
        logs.query_logs,
        query=queries.QUERY_LOGS,
    ),
    Operation(
        "GET",
        f"{V1}/logs/tail",
        "metrics.read",
        "tailLogs",
        "Wait for new access records",
        logs.tail_logs,
        query=queries.TAIL_LOGS,
    ),
    Operation(
        "GET",
        f"{V1}/logs/export",
        "metrics.read",
        "exportLogs",
        "All access records of a search, a line of JSON each",
        logs.export_logs,
        query=queries.EXPORT_LOGS,
        produces=logs.NDJSON,
        enveloped=False,
    ),
    Operation(
        "GET",
        f"{V1}/audit",
        ADMIN,
        "queryAudit",
        "Search the audit trail",
        audit.query_audit,
        role="auditor",
        query=queries.QUERY_AUDIT,
    ),
)
