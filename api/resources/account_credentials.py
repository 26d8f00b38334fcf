"""The operations on credentials of accounts."""

from __future__ import annotations

import base64
import json
from typing import Any

from api.call import Call, Reply
from api.http.query import Query, cursor, integer
from api.store.accounts import Position
from config.model.account_credentials import AccountCredential
from config.text.formatting import timestamp_text

_CURSOR = "^[A-Za-z0-9_-]{1,200}$"
_NOT_OURS = "must be the next_cursor of an earlier response of this operation"


def _read_cursor(text: str) -> Position:
    try:
        created_at, identifier = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, TypeError) as error:
        raise ValueError(_NOT_OURS) from error
    if type(created_at) is not float or type(identifier) is not str:
        raise ValueError(_NOT_OURS)
    return created_at, identifier


def _cursor_text(position: Position) -> str:
    created_at, identifier = position
    return base64.urlsafe_b64encode(json.dumps([float(created_at), identifier]).encode()).decode().rstrip("=")


class ListCredentials(Query):
    """The page."""

    limit: int = integer("The size of the page", 1, 1000, 100)
    cursor: Position | None = cursor(
        "The `next_cursor` of the previous page",
        _cursor_text((1767225600.5, "crd_0123456789abcdef")),
        _CURSOR,
        _read_cursor,
    )


def list_credentials(call: Call) -> Reply:
    """List the credentials of an account.

    Returns credentials of the account, oldest first, without their secrets. One that has lapsed is listed for another
    hour.
    """
    page, after = call.services.credentials.page(call.params["account_id"], call.query.cursor, call.query.limit)
    return Reply(
        {
            "credentials": [_view(each) for each in page],
            "next_cursor": None if after is None else _cursor_text(after),
        }
    )


def create_credential(call: Call) -> Reply:
    """Make a credential of an account.

    Makes a secret that clients send as the password of the account, until its time is over. It only narrows what the
    account may do, and it is in this response only; it cannot be retrieved again.
    """
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
    return {
        **credential.model_dump(mode="json", exclude={"secret_hash"}),
        "quota": {"bytes": credential.quota},
        "expires_at": timestamp_text(credential.expires_at),
        "created_at": timestamp_text(credential.created_at),
    }
