"""The operations on credentials of accounts; and what proxies refused to one, for those who may do no more than make
such.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from actors.bus.messages.accounts import CREDENTIAL
from actors.bus.messages.records import CountLogs, QueryLogs
from actors.forwarding.protocols.failures import TLS_NAME_DENIED
from actors.forwarding.stats import DENIALS
from actors.logs.counting import host_of, port_of
from api.call import Call, Reply
from api.engine.operation import V1, create, delete, get, resource
from api.engine.records import view_of
from api.engine.responses import Moment, ResponseModel, Revoked, shows
from api.errors import Denied, NotFound
from api.http.query import EXAMPLE, PATTERN, ListCursor, Query, checksum, cursor, integer, moment
from config.model.account_credentials import READ_ONLY_FIELDS, AccountCredential, CredentialCreate
from config.model.object_fields import named_in

HOUR = 3600.0
RECORDS_READ = 1000
"""Records of one reason that are read, the newest."""
REFUSALS_MAX = 500
"""Entries of one response."""
_REASONS_COUNTED = 100

Found = dict[tuple[str, int | None, str, str, str, str], dict[str, Any]]
"""Entries by host, port, reason, rule, proxy, and what was wrong with the name in the TLS handshake (`_kind`)."""


class CredentialRefusals(Query):
    """The time range."""

    start_time: float | None = moment("Not before; an hour ago by default")


def list_refusals(call: Call) -> Reply:
    """List what was refused to a credential.

    Returns the requests with this credential that proxies have refused, by target, reason and rule, those with most
    records first. It can still be asked when the credential is revoked. `complete` is false when there were more than
    could be read. For a key that only makes credentials `rule` and `detail` are empty where the plan of the account
    doesn't disclose them to clients.
    """
    query: CredentialRefusals = call.query
    account = call.services.fleet_accounts.get(call.params["account_id"]).record
    if not call.params["credential_id"].startswith(CREDENTIAL):  # an empty one would find the requests by password
        raise NotFound("The credential")
    now = time.time()
    start = now - HOUR if query.start_time is None else query.start_time
    search = QueryLogs(
        start,
        max(start, now),
        RECORDS_READ,
        0,
        level=None,
        search=None,
        proxy_ids=None,
        user=account.username,
        credential=call.params["credential_id"],
        count=False,
    )
    plan = call.services.plans.known(account.plan)
    disclosed = call.caller.account_scope is None or plan is None or plan.disclose
    reasons, complete = _reasons(call, search)
    found: Found = {}
    for reason in reasons:
        page = call.services.log_search.page(replace(search, reason=reason))
        complete = complete and page.next is None
        for row in page.rows if disclosed else map(_undisclosed, page.rows):
            _count(found, call, row)
    most = sorted(found.values(), key=lambda each: (-each["records"], each["host"], each["reason"]))
    return Reply({"refusals": most[:REFUSALS_MAX], "complete": complete and len(most) <= REFUSALS_MAX})


def _reasons(call: Call, search: QueryLogs) -> tuple[list[str], bool]:
    """The reasons of refusals that there are, and whether these are all."""
    counts = call.services.log_search.count(
        CountLogs(search, max(1, int(search.end - search.start) + 1), ("reason",), _REASONS_COUNTED),
        call.caller.user.id,
    )
    return [reason for reason, *_ in counts.values.get("reason", ()) if reason in DENIALS], counts.exact


def _undisclosed(row: dict[str, Any]) -> dict[str, Any]:
    """The record without what a plan keeps from clients: the output of a job is where they could read it."""
    return {**row, "rule": "", "detail": ""}


def _count(found: Found, call: Call, row: dict[str, Any]) -> None:
    """Add a record; rows come newest first."""
    host, port = host_of(row["target_url"]), port_of(row["target_url"])
    key = host, port, row["reason"], row["rule"], row["proxy_id"], _kind(row)
    entry = found.get(key)
    if entry is not None:
        entry["records"] += 1
        return
    view = call.services.log_search.view(row, with_addresses=False, upstreams=frozenset())
    taken = {name: view[name] for name in ("reason", "rule", "detail", "proxy_name")}
    new = {"host": host, "port": port, "records": 1, "last_at": view["timestamp"], **taken}
    found[key] = new


def _kind(row: dict[str, Any]) -> str:
    """`mismatch`, `not_tls`…, which is in front of a detail about the name; empty for other reasons."""
    return str(row["detail"]).partition(":")[0] if row["reason"] == TLS_NAME_DENIED else ""


class CredentialQuotaView(ResponseModel):
    """Bytes in both directions together, in total over all proxies; 0 for none."""

    bytes: int


@shows(AccountCredential)
class CredentialView(ResponseModel):
    """A credential of an account without its secret; `prefix` is the beginning of it.

    `allow_destinations` null and `allow_clients` empty are as the account; `max_connections` holds over all proxies,
    and 0 is no limit of its own.
    """

    quota: CredentialQuotaView


class Credentials(ResponseModel):
    """A page of the credentials of an account."""

    credentials: list[CredentialView]
    next_cursor: str | None


class OneCredential(ResponseModel):
    """A credential."""

    credential: CredentialView


class NewCredential(ResponseModel):
    """A new credential. `secret` is in this response only."""

    credential: CredentialView
    secret: str


class Refusal(ResponseModel):
    """Requests that a proxy has refused: how many `records`, and of the newest of them `detail` and `last_at`.

    `port` is null where the request named none. `rule` is the configuration that refused it, as in access records.
    """

    host: str
    port: int | None
    reason: str
    rule: str
    detail: str
    proxy_name: str
    records: int
    last_at: Moment


class Refusals(ResponseModel):
    """What was refused to a credential, by target, reason and rule; not `complete` where there was more."""

    refusals: list[Refusal]
    complete: bool


class ListCredentials(Query):
    """The page."""

    limit: int = integer("The size of the page", 1, 1000, 100)
    cursor: ListCursor | None = cursor("The `next_cursor` of the previous page", EXAMPLE, PATTERN, ListCursor.of)


def list_credentials(call: Call) -> Reply:
    """List the credentials of an account.

    Returns credentials of the account, oldest first, without their secrets. One that has lapsed is listed for another
    hour.
    """
    account_id, query = call.params["account_id"], call.query
    filters = checksum([account_id])
    after = None if query.cursor is None else query.cursor.position_in(filters)
    page, following = call.services.credentials.page(account_id, after, query.limit)
    return Reply(
        {
            "credentials": [_view(each) for each in page],
            "next_cursor": None if following is None else ListCursor(following, filters).text(),
        }
    )


def create_credential(call: Call) -> Reply:
    """Make a credential of an account.

    Makes a secret that clients send as the password of the account, until its time is over. It only narrows what the
    account may do, and it is in this response only; it cannot be retrieved again.
    """
    for each in named_in(call.body.allow_destinations, "allow_destinations"):
        if not call.caller.reaches(each.collection, each.name):
            raise Denied(f"{each.field}: the {each.kind} {each.name!r} is not in the key's scope (scope.lists)")
    credential, secret = call.services.credentials.mint(call.params["account_id"], call.body)
    data = {"credential": _view(credential), "secret": secret}
    return Reply(data, 201, headers={"Cache-Control": "no-store"})


def get_credential(call: Call) -> Reply:
    """Show a credential of an account.

    Returns what the credential may do and when it expires. The secret is never returned.
    """
    found = call.services.credentials.get(call.params["account_id"], call.params["credential_id"])
    return Reply({"credential": _view(found)})


def revoke_credential(call: Call) -> Reply:
    """Revoke a credential of an account.

    Removes the credential: clients that send it are refused from now on, on every proxy. Its connections end within a
    second.
    """
    credential_id = call.params["credential_id"]
    call.services.credentials.revoke(call.params["account_id"], credential_id)
    return Reply({"id": credential_id, "revoked": True})


def _view(credential: AccountCredential) -> dict[str, Any]:
    return {**view_of(credential), "quota": {"bytes": credential.quota}}


_ONE = "/{credential_id}"

ROWS = resource(f"{V1}/accounts/{{account_id}}/credentials", read="proxy.read", write="proxy.write")(
    get(
        "",
        "listCredentials",
        list_credentials,
        Credentials,
        query=ListCredentials,
        account_scoped=True,
    ),
    create(
        "",
        "createCredential",
        create_credential,
        NewCredential,
        body=CredentialCreate,
        read_only=READ_ONLY_FIELDS,
        account_scoped=True,
    ),
    get(_ONE, "getCredential", get_credential, OneCredential, account_scoped=True),
    get(
        f"{_ONE}/refusals",
        "listRefusals",
        list_refusals,
        Refusals,
        "metrics.read",
        query=CredentialRefusals,
        account_scoped=True,
    ),
    delete(_ONE, "revokeCredential", revoke_credential, Revoked, account_scoped=True),
)
