"""Responses about credentials of accounts."""

from __future__ import annotations

from api.engine.responses import shows
from api.openapi.schemas.base import Moment, ResponseModel
from config.model.account_credentials import AccountCredential


class CredentialQuotaView(ResponseModel):
    """Bytes in both directions together, in total over all proxies; 0 for none."""

    bytes: int


@shows(AccountCredential)
class CredentialView(ResponseModel):
    """A credential of an account without its secret; `prefix` is the beginning of it.

    `allow_destinations` null and `allow_clients` empty are as the account; `max_connections` holds on each proxy alone,
    and 0 is no limit of its own.
    """

    quota: CredentialQuotaView
    expires_at: Moment
    created_at: Moment


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
