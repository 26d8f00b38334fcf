"""Responses about accounts.

Views of accounts of the fleet, and of the rules that plans have, too.
"""

from __future__ import annotations

from typing import Literal

from api.engine.responses import Moment, ResponseModel, ScheduleView, Warned, shows
from config.model.accounts import ProxyAccount
from config.model.choices import Period
from config.model.fleet_accounts import AccountProxies, FleetAccount


@shows(ProxyAccount)
class AccountView(ResponseModel):
    """The configuration of an account, without its password."""


class UsageView(ResponseModel):
    """The usage of an account in the current period.

    `quota` has the bytes of its own or of its plan; without one, it and `remaining` are null.
    """

    period: Period
    period_start: Moment | None
    period_end: Moment | None
    bytes: int
    bytes_in: int
    bytes_out: int
    quota: int | None
    remaining: int | None
    active_connections: int


class UsedAccount(AccountView):
    """An account with its usage."""

    usage: UsageView


class Accounts(ResponseModel):
    """All accounts of a proxy."""

    accounts: list[UsedAccount]
    total: int


class OneAccount(ResponseModel):
    """An account."""

    account: UsedAccount


class DeletedAccount(ResponseModel):
    """A deleted account."""

    username: str
    deleted: Literal[True]


@shows(AccountProxies, sparse=True)
class AccountProxiesView(ResponseModel):
    """The proxies that an account may use: all, or each that an id or a tag names."""


@shows(FleetAccount)
class FleetAccountView(ResponseModel):
    """An account without its password. `plan` is the name of its plan.

    An `inline` one belongs to the proxy in `proxies` alone, and is changed there (`/proxies/{proxy_id}/accounts`).
    `usage` and what follows it is null while it is not known.
    """

    proxies: AccountProxiesView
    schedule: ScheduleView | None
    inline: bool
    plan: str | None
    status: Literal["active", "disabled", "expired", "quota_reached"]
    usage: UsageView | None
    last_seen_at: Moment | None
    last_client_ip: str | None
    active_connections: int | None


class OneFleetAccount(ResponseModel):
    """An account. `warnings` name proxies that it may use and that ask for no credentials."""

    account: FleetAccountView
    warnings: list[Warned]


class FleetAccountPage(ResponseModel):
    """A page of accounts. `next_cursor` leads to the next one; it is null on the last."""

    accounts: list[FleetAccountView]
    has_more: bool
    next_cursor: str | None
