"""What accounts have used."""

from __future__ import annotations

from api.openapi.schemas.usage import Usage
from api.operations.operation import V1, get, resource
from api.resources import usage

TABLE = resource("", read="metrics.read")(
    get(
        f"{V1}/usage",
        "reportUsage",
        usage.report,
        Usage,
        query=usage.QueryUsageReport,
        also_produces=usage.CSV,
        scoped=True,
        streams=True,
    ),
)
