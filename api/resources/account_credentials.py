"""The operations on credentials of accounts."""

from __future__ import annotations

from typing import Any

from api.call import Call, Reply
from api.engine.operation import V1, create, delete, get, resource
from api.engine.records import view_of
from api.engine.responses import shows
from api.errors import Denied
from api.http.query import EXAMPLE, PATTERN, ListCursor, Query, checksum, cursor, integer
from api.openapi.schemas.base import Moment, ResponseModel, Revoked
from api.resources import refusals
from config.model.account_credentials import READ_ONLY_FIELDS, AccountCredential, CredentialCreate
from config.model.object_names import named_in


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
        refusals.list_refusals,
        Refusals,
        "metrics.read",
        query=refusals.CredentialRefusals,
        account_scoped=True,
    ),
    delete(_ONE, "revokeCredential", revoke_credential, Revoked, account_scoped=True),
)
