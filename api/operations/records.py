"""What was done: access records and the audit trail."""

from __future__ import annotations

from api.operations import query_parameters
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
        description=(
            "Returns the access records that match, newest first. Follow `next_cursor` for older ones; a search "
            "that exceeds its time limit returns what it found so far."
        ),
        query=query_parameters.QUERY_LOGS,
        scoped=True,
    ),
    Operation(
        "GET",
        f"{V1}/logs/tail",
        "metrics.read",
        "tailLogs",
        "Wait for new access records",
        logs.tail_logs,
        description=(
            "Waits until records arrive that match, or until `timeout` seconds have passed. Pass `next_cursor` "
            "of the response as `cursor` of the next request, so that no record is missed."
        ),
        query=query_parameters.TAIL_LOGS,
        scoped=True,
    ),
    Operation(
        "GET",
        f"{V1}/logs/export",
        "metrics.read",
        "exportLogs",
        "Export access records",
        logs.export_logs,
        description=(
            "Streams all matching access records, newest first, as one JSON object per line. A response that "
            "cannot be completed breaks off without its last chunk."
        ),
        query=query_parameters.EXPORT_LOGS,
        produces=logs.NDJSON,
        enveloped=False,
        scoped=True,
    ),
    Operation(
        "GET",
        f"{V1}/audit",
        ADMIN,
        "queryAudit",
        "Search the audit trail",
        audit.query_audit,
        description=(
            "Returns who changed what, when and from which address, newest first. Secrets are masked in the changes."
        ),
        role="auditor",
        query=query_parameters.QUERY_AUDIT,
    ),
)
