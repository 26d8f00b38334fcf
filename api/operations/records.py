"""Access records and the audit trail."""

from __future__ import annotations

from api.engine.operation import V1, get, resource
from api.openapi.schemas.proxies import LogHistogram, Logs, LogTail, LogValues
from api.openapi.schemas.system import AuditTrail, AuditVerification
from api.resources import audit, log_counts, log_queries, logs
from api.security.permissions import ADMIN, AUDITOR

TABLE = resource(V1, read="metrics.read")(
    get("/logs", "queryLogs", logs.query_logs, Logs, query=log_queries.SearchLogs, scoped=True),
    get("/logs/tail", "tailLogs", logs.tail_logs, LogTail, query=log_queries.FollowLogs, scoped=True),
    get("/logs/histogram", "countLogs", log_counts.histogram, LogHistogram, query=log_counts.LogHistogram, scoped=True),
    get("/logs/values", "countLogValues", log_counts.values, LogValues, query=log_counts.LogValues, scoped=True),
    get(
        "/logs/export",
        "exportLogs",
        logs.export_logs,
        query=log_queries.ExportLogs,
        produces=logs.NDJSON,
        scoped=True,
        streams=True,
    ),
    get("/audit/verify", "verifyAudit", audit.verify_audit, AuditVerification, ADMIN, role=AUDITOR),
    get("/audit", "queryAudit", audit.query_audit, AuditTrail, ADMIN, role=AUDITOR, query=audit.QueryAudit),
)
