"""The operations of the API: one table that drives routes, permission checks and the description of the API.

Each module holds the rows of one kind of resource; the order here is the order of the document.
"""

from __future__ import annotations

from api.operations import (
    account_batches,
    account_credentials,
    accounts,
    clients,
    connections,
    credentials,
    dns,
    fleet_accounts,
    health,
    me,
    metrics,
    plans,
    proxies,
    records,
    revisions,
    settings,
    shared_objects,
    transfer,
    usage,
    users,
    webhooks,
)
from api.operations.operation import ANY, BEARER, HOLDER, NONE, PERSON, V1, Operation

__all__ = ["ANY", "BEARER", "HOLDER", "NONE", "PERSON", "TABLE", "V1", "Operation"]

TABLE: tuple[Operation, ...] = (
    *health.TABLE,
    *metrics.TABLE,
    *usage.TABLE,
    *credentials.TABLE,
    *proxies.TABLE,
    *clients.TABLE,
    *connections.TABLE,
    *accounts.TABLE,
    *fleet_accounts.TABLE,
    *plans.TABLE,
    *shared_objects.TABLE,
    *me.TABLE,
    *account_batches.TABLE,
    *account_credentials.TABLE,
    *users.TABLE,
    *records.TABLE,
    *revisions.TABLE,
    *settings.TABLE,
    *transfer.TABLE,
    *webhooks.TABLE,
    *dns.TABLE,
)
