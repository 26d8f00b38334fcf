"""The operations on many accounts of the fleet at once."""

from __future__ import annotations

from collections.abc import Iterable

from api.call import Call, Reply
from api.engine.operation import V1, post, resource
from api.errors import Invalid, MissingPermission
from api.http.body import Lines
from api.http.query import Query, choice
from api.openapi.schemas.base import ResponseModel
from api.services.account_batches import BatchResult
from config.model.fleet_accounts import BATCH_MAX, READ_ONLY_FIELDS, AccountBatch, AccountImport, FleetAccount


class NamedAccount(ResponseModel):
    """An account that was created or changed."""

    id: str
    username: str


class BatchCount(ResponseModel):
    """The number of accounts; `updated` without those that were so before."""

    created: int
    updated: int
    deleted: int


class BatchedAccounts(ResponseModel):
    """The accounts in the order of the request; `deleted` are ids.

    Of a dry run `created` is empty, of lines all lists.
    """

    created: list[NamedAccount]
    updated: list[NamedAccount]
    deleted: list[str]
    count: BatchCount
    dry_run: bool


TO_DELETE = "proxy.delete"
"""The permission that a batch with deletions needs besides."""


class ImportAccounts(Query):
    """How to import."""

    dry_run: str = choice("Check everything, and change nothing", ("false", "true"), "false")


def batch_accounts(call: Call) -> Reply:
    """Change many accounts.

    Creates, changes and deletes accounts, all of them or none. Errors name the entry, such as `create[3].username`.
    """
    return _applied(call, dry_run=False)


def import_accounts(call: Call) -> Reply:
    """Import accounts.

    As a batch, for up to 10,000 accounts in one change, of which 1,000 may have a password and the others have a hash.
    With `dry_run=true` it only checks. Up to 200,000 accounts are sent as `application/x-ndjson`, also with
    `Content-Encoding: gzip`: each line is an account to create, or with an `id` a change; passwords only as hashes.
    Errors name lines, such as `lines[3].username`, and the response has `count` alone.
    """
    dry_run = call.query.dry_run == "true"
    if isinstance(call.body, Lines):
        return _reply(call.services.account_imports.apply(call.body, dry_run), dry_run)
    if call.body.passwords > BATCH_MAX:
        raise Invalid(None, f"at most {BATCH_MAX} passwords can be set in one request; give password_hash instead")
    return _applied(call, dry_run)


def _applied(call: Call, dry_run: bool) -> Reply:
    if call.body.delete and not call.caller.may(TO_DELETE):
        raise MissingPermission(TO_DELETE, by_key=call.caller.key is not None)
    return _reply(call.services.account_batches.apply(call.body, dry_run), dry_run)


def _reply(result: BatchResult, dry_run: bool) -> Reply:
    return Reply(
        {
            "created": [] if dry_run else _named(result.created),
            "updated": _named(result.updated),
            "deleted": list(result.deleted),
            "count": result.count._asdict(),
            "dry_run": dry_run,
        }
    )


def _named(accounts: Iterable[FleetAccount]) -> list[dict[str, str]]:
    return [{"id": each.id, "username": each.username} for each in accounts]


_BATCH = 4 * 1024 * 1024
_IMPORT = 16 * 1024 * 1024
"""Bytes of a body."""

ROWS = resource(f"{V1}/accounts", write="proxy.write")(
    post(
        "/batch",
        "batchAccounts",
        batch_accounts,
        BatchedAccounts,
        body=AccountBatch,
        read_only=READ_ONLY_FIELDS,
        errors=(412,),
        largest_body=_BATCH,
    ),
    post(
        "/import",
        "importAccounts",
        import_accounts,
        BatchedAccounts,
        body=AccountImport,
        read_only=READ_ONLY_FIELDS,
        errors=(412,),
        largest_body=_IMPORT,
        lines=True,
        query=ImportAccounts,
        audit=False,
    ),
)
