"""The operations of the API: one table that drives routes, permission checks and the description of the API.

Rows stand with their handlers in `api/resources`, those of kinds of objects follow from their declarations, and where a
table has handlers of several modules it is here. The order is that of the document.
"""

from __future__ import annotations

from itertools import chain

from api.engine.operation import ANY, BEARER, HOLDER, NONE, PERSON, V1, Operation
from api.engine.operations import operations
from api.objects import named_actions
from api.objects.kinds import OBJECT_KINDS
from api.objects.webhooks import actions as webhooks
from api.operations import (
    connections,
    credentials,
    records,
)
from api.resources import (
    access,
    account_batches,
    account_credentials,
    accounts,
    clients,
    dns,
    fleet_accounts,
    health,
    me,
    metrics,
    proxies,
    revisions,
    settings,
    transfer,
    usage,
    users,
)

__all__ = ["ANY", "BEARER", "HOLDER", "NONE", "PERSON", "TABLE", "V1", "Operation"]

_CREATES = {"webhooks": webhooks.create_webhook}
"""Handlers of creates whose responses have more than others."""
TABLE: tuple[Operation, ...] = (
    *health.ROWS,
    *metrics.ROWS,
    *usage.ROWS,
    *credentials.TABLE,
    *proxies.ROWS,
    *access.ROWS,
    *clients.ROWS,
    *connections.TABLE,
    *accounts.ROWS,
    *fleet_accounts.ROWS,
    *chain.from_iterable(operations(kind, _CREATES.get(name)) for name, kind in OBJECT_KINDS.items()),
    *named_actions.ROWS,
    *me.ROWS,
    *account_batches.ROWS,
    *account_credentials.ROWS,
    *users.ROWS,
    *records.TABLE,
    *revisions.ROWS,
    *settings.ROWS,
    *transfer.ROWS,
    *webhooks.ROWS,
    *dns.ROWS,
)
