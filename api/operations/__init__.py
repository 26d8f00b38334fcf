"""The operations of the API: one table that drives routes, permission checks and the description of the API.

Rows stand with their handlers (`…_operations` of `api/objects`, `api/queries` and `api/import_export`), those of kinds
of objects follow from their declarations. The order is that of the document.
"""

from __future__ import annotations

from itertools import chain

from api.engine.operation import ANY, BEARER, HOLDER, NONE, PERSON, V1, Operation
from api.engine.operations import operations
from api.import_export import lost_operations, revision_operations, transfer_operations
from api.import_export.proxy_batches import proxy_batch_operations
from api.objects import certificate_operations, setting_operations
from api.objects.accounts import account_operations, credential_operations, inline_account_operations
from api.objects.kinds import OBJECT_KINDS
from api.objects.named import named_operations
from api.objects.nodes import node_operations, token_operations
from api.objects.proxies import access_operations, client_operations, proxy_operations
from api.objects.users import api_key_operations, oauth_operations, session_operations, sign_in_operations
from api.objects.webhooks import webhook_operations
from api.queries import (
    audit_operations,
    connection_operations,
    me_operations,
    search_operations,
    usage_operations,
)
from api.queries.metrics import dns_operations, metric_operations
from api.queries.overall import flow, health_operations
from api.queries.records import log_operations

__all__ = ["ANY", "BEARER", "HOLDER", "NONE", "PERSON", "TABLE", "V1", "Operation"]

_CREATES = {"webhooks": webhook_operations.create_webhook}
"""Handlers of creates whose responses have more than others."""
_SHOWS = {"pools": named_operations.show_pool}
TABLE: tuple[Operation, ...] = (
    *health_operations.ROWS,
    *search_operations.ROWS,
    *flow.ROWS,
    *metric_operations.ROWS,
    *usage_operations.ROWS,
    *session_operations.ROWS,
    *sign_in_operations.ROWS,
    *oauth_operations.ROWS,
    *api_key_operations.ROWS,
    *proxy_operations.ROWS,
    *proxy_batch_operations.ROWS,
    *certificate_operations.ROWS,
    *access_operations.ROWS,
    *client_operations.ROWS,
    *connection_operations.ROWS,
    *inline_account_operations.ROWS,
    *account_operations.ROWS,
    *chain.from_iterable(operations(kind, _CREATES.get(name), _SHOWS.get(name)) for name, kind in OBJECT_KINDS.items()),
    *named_operations.ROWS,
    *node_operations.ROWS,
    *me_operations.ROWS,
    *account_operations.BATCH_ROWS,
    *credential_operations.ROWS,
    *session_operations.ROLE_ROWS,
    *log_operations.ROWS,
    *audit_operations.ROWS,
    *revision_operations.ROWS,
    *lost_operations.ROWS,
    *setting_operations.ROWS,
    *transfer_operations.ROWS,
    *webhook_operations.ROWS,
    *token_operations.ROWS,
    *dns_operations.ROWS,
)
