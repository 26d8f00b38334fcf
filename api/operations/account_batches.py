"""Many accounts of the fleet in one change."""

from __future__ import annotations

from api.openapi.schemas.account_batches import BatchedAccounts
from api.operations.operation import V1, post, resource
from api.resources import account_batches as handlers
from config.model.account_batches import AccountBatch, AccountImport
from config.model.fleet_accounts import READ_ONLY_FIELDS

_BATCH = 4 * 1024 * 1024
_IMPORT = 16 * 1024 * 1024
"""Bytes of a body."""

TABLE = resource(f"{V1}/accounts", write="proxy.write")(
    post(
        "/batch",
        "batchAccounts",
        handlers.batch_accounts,
        BatchedAccounts,
        body=AccountBatch,
        read_only=READ_ONLY_FIELDS,
        errors=(412,),
        largest_body=_BATCH,
    ),
    post(
        "/import",
        "importAccounts",
        handlers.import_accounts,
        BatchedAccounts,
        body=AccountImport,
        read_only=READ_ONLY_FIELDS,
        errors=(412,),
        largest_body=_IMPORT,
        lines=True,
        query=handlers.ImportAccounts,
        audit=False,
    ),
)
