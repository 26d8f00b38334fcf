"""The operations of the API: one table that drives routes, permission checks and the API's own description.

Each module holds the rows of one kind of resource; the order here is the order of the document.
"""

from __future__ import annotations

from api.operations import (
    accounts,
    clients,
    connections,
    credentials,
    document,
    health,
    metrics,
    proxies,
    records,
    settings,
    transfer,
    users,
    webhooks,
)
from api.operations.operation import ANY, BEARER, NONE, PERSON, V1, Operation

__all__ = ["ANY", "BEARER", "NONE", "OPERATIONS", "PERSON", "V1", "Operation"]

OPERATIONS: tuple[Operation, ...] = (
    *health.OPERATIONS,
    *metrics.OPERATIONS,
    *credentials.OPERATIONS,
    *proxies.OPERATIONS,
    *clients.OPERATIONS,
    *connections.OPERATIONS,
    *accounts.OPERATIONS,
    *users.OPERATIONS,
    *records.OPERATIONS,
    *document.OPERATIONS,
    *settings.OPERATIONS,
    *transfer.OPERATIONS,
    *webhooks.OPERATIONS,
)
