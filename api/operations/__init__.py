"""The operations of the API: one table that drives routes, permission checks and the description of the API.

Rows stand with their handlers in `api/resources`, those of kinds of objects follow from their declarations. The order
is that of the document.
"""

from __future__ import annotations

from itertools import chain

from api.engine.operation import ANY, BEARER, HOLDER, NONE, PERSON, V1, Operation
from api.engine.operations import operations
from api.objects import named_actions
from api.objects.kinds import OBJECT_KINDS
from api.objects.webhooks import actions as webhooks
from api.resources import (
    access,
    account_batches,
    account_credentials,
    accounts,
    api_keys,
    audit,
    auth,
    clients,
    connections,
    dns,
    fleet_accounts,
    health,
    logs,
    me,
    metrics,
    oauth,
    proxies,
    revisions,
    sessions,
    settings,
    transfer,
    usage,
)

__all__ = ["ANY", "BEARER", "HOLDER", "NONE", "PERSON", "TABLE", "V1", "Operation"]

_CREATES = {"webhooks": webhooks.create_webhook}
"""Handlers of creates whose responses have more than others."""
TABLE: tuple[Operation, ...] = (
    *health.ROWS,
    *metrics.ROWS,
    *usage.ROWS,
    *sessions.ROWS,
    *auth.ROWS,
    *oauth.ROWS,
    *api_keys.ROWS,
    *proxies.ROWS,
    *access.ROWS,
    *clients.ROWS,
    *connections.ROWS,
    *accounts.ROWS,
    *fleet_accounts.ROWS,
    *chain.from_iterable(operations(kind, _CREATES.get(name)) for name, kind in OBJECT_KINDS.items()),
    *named_actions.ROWS,
    *me.ROWS,
    *account_batches.ROWS,
    *account_credentials.ROWS,
    *sessions.ROLE_ROWS,
    *logs.ROWS,
    *audit.ROWS,
    *revisions.ROWS,
    *settings.ROWS,
    *transfer.ROWS,
    *webhooks.ROWS,
    *dns.ROWS,
)
