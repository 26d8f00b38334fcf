"""The operations on accounts of the fleet, one and many at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import astuple, replace
from typing import Any

from actors.bus.messages.common import METRICS
from api.bus_bridge import Bridge
from api.call import Call, Reply
from api.engine.operation import V1, create, delete, get, post, resource, update
from api.engine.records import Stored
from api.engine.responses import Deleted, ResponseModel, mirrors
from api.errors import Invalid, MissingPermission, PeerUnavailable
from api.http.body import Lines
from api.http.query import EXAMPLE, PATTERN, ListCursor, Query, checksum, choice, cursor, integer, order, text
from api.objects.accounts.account_batches import BatchResult, ImportCount
from api.objects.accounts.account_responses import FleetAccountPage, OneFleetAccount
from api.objects.accounts.inline_accounts import Kinds
from api.objects.proxies.runtime_view import ACCOUNT_IDS, connections_of, rates_of
from api.store.accounts import SORTS, AccountSelection, Position
from config.model.fleet_accounts import (
    BATCH_MAX,
    READ_ONLY_FIELDS,
    AccountBatch,
    AccountImport,
    FleetAccount,
    FleetAccountCreate,
    FleetAccountUpdate,
)

SCANS = 10
"""Batches of accounts that one request goes through for those over their quota."""
LEAST_SCANNED = 100
_OF_NOW: dict[str, Callable[[Bridge, str], dict[str, int]]] = {"rate": rates_of, "connections": connections_of}
"""Orders by what the collector knows alone."""
_KINDS: dict[str | None, Kinds] = {None: "all", "false": "fleet", "true": "inline"}


class ListFleetAccounts(Query):
    """Filters of accounts, their order and the page."""

    q: str | None = text("Only with this in the user name or in a value of the metadata", "alice", 200, lowest=1)
    proxy: str | None = text("Only accounts that may use this proxy; its id", "prx_0123456789abcdef", 128, lowest=1)
    plan: str | None = text("Only of the plan with this name", "basic", 100, lowest=1)
    tag: str | None = text("Only with this tag", "office", 64, lowest=1)
    status: str | None = choice("Only accounts of this status", ("active", "disabled", "expired", "quota_reached"))
    inline: str | None = choice("Only accounts of one proxy alone, or none of them", ("false", "true"))
    sort: str = order(SORTS, "username", "The field to sort by; `-` reverses the order. Accounts never used count as 0")
    limit: int = integer("The size of the page", 1, 1000, 100)
    cursor: ListCursor | None = cursor(
        "The `next_cursor` of the previous page, with the same filters", EXAMPLE, PATTERN, ListCursor.of
    )


def list_accounts(call: Call) -> Reply:
    """List accounts of the fleet.

    Returns one page of the accounts that match all filters, `inline` ones of single proxies among them. Follow
    `next_cursor` for the next page; a page of the status `active` or `quota_reached` may have fewer accounts than
    `limit`, or none.
    """
    query: ListFleetAccounts = call.query
    selection = _selection(call, query)
    inline = [] if query.inline is None else [query.inline]
    filters = checksum([*astuple(selection)[:-1], query.status, *inline])  # without figures, which are none
    after = None if query.cursor is None else query.cursor.position_in(filters)
    if selection.sort in _OF_NOW:
        selection = replace(selection, figures=_OF_NOW[selection.sort](call.services.bridge, ACCOUNT_IDS))
    views, following = _page(call, selection, after, query)
    return Reply(
        {
            "accounts": views,
            "has_more": following is not None,
            "next_cursor": None if following is None else ListCursor(following, filters).text(),
        }
    )


def _page(
    call: Call, selection: AccountSelection, after: Position | None, query: ListFleetAccounts
) -> tuple[list[dict[str, Any]], Position | None]:
    """The views of a page. Whether a quota is reached the collector knows, so accounts are filtered by their views."""
    views: list[dict[str, Any]] = []
    scans, size = (SCANS, max(query.limit, LEAST_SCANNED)) if query.status == "quota_reached" else (1, query.limit)
    for _ in range(scans):
        found, following = call.services.every_account.page(selection, after, size, _KINDS[query.inline])
        views_found = call.services.account_activity.views([account for account, _ in found])
        for (account, place), view in zip(found, views_found, strict=True):
            if query.status == "quota_reached" and view["usage"] is None:
                raise PeerUnavailable(METRICS, "the usage of accounts is not known")
            if query.status in (None, view["status"]):
                views.append(view)
            after = place
            if len(views) == query.limit:
                return views, after if following is not None or account is not found[-1][0] else None
        if following is None:
            return views, None
    return views, after


def create_account(call: Call) -> Reply:
    """Create an account of the fleet.

    Stores an account that all proxies know which `proxies` names, now and later. `warnings` name those of them that ask
    for no credentials.
    """
    account = call.services.fleet_accounts.create(call.body)
    return _one(call, account, 201, {"Location": f"/api/v1/accounts/{account.record.id}"})


def get_account(call: Call) -> Reply:
    """Show an account of the fleet.

    Returns what the account says itself; null is what it inherits from its plan. The password is never returned.
    """
    return _one(call, call.services.every_account.get(call.params["account_id"]))


def update_account(call: Call) -> Reply:
    """Update an account of the fleet.

    Changes the given fields and keeps all others; null inherits from the plan again. The change holds at once, on open
    connections, too.
    """
    service = call.services.fleet_accounts
    call.services.every_account.refuse_inline(call.params["account_id"])
    return _one(call, service.update(call.params["account_id"], call.body, call.if_match))


def delete_account(call: Call) -> Reply:
    """Delete an account of the fleet.

    Removes the account with its credentials and ends its open connections. Its usage stays in closed hours.
    """
    account_id = call.params["account_id"]
    call.services.every_account.refuse_inline(account_id)
    call.services.fleet_accounts.delete(account_id, call.if_match)
    return Reply({"id": account_id, "deleted": True})


def reset_usage(call: Call) -> Reply:
    """Reset the usage of an account of the fleet to zero.

    Sets what the account has used to zero, in every period. An account over its quota can be used again at once; closed
    hours of the usage stay.
    """
    account = call.services.every_account.get(call.params["account_id"])
    call.services.account_activity.reset(account.record.id)
    return _one(call, account)


def _selection(call: Call, query: ListFleetAccounts) -> AccountSelection:
    proxy = None if query.proxy is None else call.services.proxies.get(query.proxy).record
    return AccountSelection(
        q=query.q,
        proxy=None if proxy is None else (proxy.id, tuple(proxy.tags)),
        plan=None if query.plan is None else call.services.plans.id_of(query.plan),
        tag=query.tag,
        status="active" if query.status == "quota_reached" else query.status,  # type: ignore[arg-type]  # a choice
        sort=query.sort.removeprefix("-"),  # type: ignore[arg-type]  # as above
        descending=query.sort.startswith("-"),
    )


def _one(call: Call, account: Stored[FleetAccount], status: int = 200, headers: dict[str, str] | None = None) -> Reply:
    warnings = [each._asdict() for each in call.services.fleet_accounts.warnings(account)]
    (view,) = call.services.account_activity.views([account])
    return Reply({"account": view, "warnings": warnings}, status, account.revision, headers or {})


_ONE = "/{account_id}"

ROWS = resource(f"{V1}/accounts", read="proxy.read", write="proxy.write", delete="proxy.delete")(
    get(
        "",
        "listFleetAccounts",
        list_accounts,
        FleetAccountPage,
        query=ListFleetAccounts,
        errors=(404,),
    ),
    create(
        "",
        "createFleetAccount",
        create_account,
        OneFleetAccount,
        body=FleetAccountCreate,
        read_only=READ_ONLY_FIELDS,
    ),
    get(_ONE, "getFleetAccount", get_account, OneFleetAccount, if_match=True),
    *update(
        _ONE,
        ("replaceFleetAccount", "updateFleetAccount"),
        update_account,
        OneFleetAccount,
        body=FleetAccountUpdate,
        read_only=READ_ONLY_FIELDS,
        if_match=True,
    ),
    post(
        f"{_ONE}/reset-usage",
        "resetFleetAccountUsage",
        reset_usage,
        OneFleetAccount,
        audit="account.usage_reset",
    ),
    delete(_ONE, "deleteFleetAccount", delete_account, Deleted, if_match=True),
)


class NamedAccount(ResponseModel):
    """An account that was created or changed."""

    id: str
    username: str


@mirrors(ImportCount)
class BatchCount(ResponseModel):
    """The number of accounts; `updated` without those that were so before."""


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

BATCH_ROWS = resource(f"{V1}/accounts", write="proxy.write")(
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
