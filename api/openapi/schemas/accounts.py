"""The forms of limits and accounts."""

from __future__ import annotations

from typing import Literal

from api.openapi.schemas.resources import Form, Moment

Period = Literal["day", "week", "month", "total"]


class LimitsForm(Form):
    """Limits of a proxy, 0 for none; bandwidth in bytes per second, connections and requests for each client."""

    bandwidth_in: int
    bandwidth_out: int
    connections_per_client: int
    requests_per_minute: int


class AccountLimitsForm(Form):
    """Limits of an account, 0 for none."""

    bandwidth_in: int
    bandwidth_out: int
    connections: int
    requests_per_minute: int


class QuotaForm(Form):
    """Bytes in both directions in each period, 0 for no limit."""

    bytes: int
    period: Period


class AccountForm(Form):
    """An account's configuration. There is no password in it."""

    username: str
    enabled: bool
    limits: AccountLimitsForm
    quota: QuotaForm
    expires_at: Moment | None
    allow_clients: list[str]
    created_at: Moment


class UsageForm(Form):
    """What an account has used in the period that is now; `remaining` is null without a quota."""

    period: Period
    period_start: Moment | None
    period_end: Moment | None
    bytes: int
    bytes_in: int
    bytes_out: int
    remaining: int | None
    active_connections: int


class UsedAccount(AccountForm):
    """An account with what it has used."""

    usage: UsageForm


class Accounts(Form):
    """All accounts of a proxy."""

    accounts: list[UsedAccount]
    total: int


class OneAccount(Form):
    """An account."""

    account: UsedAccount


class DeletedAccount(Form):
    """An account that was removed."""

    username: str
    deleted: Literal[True]
