"""Views of accounts of the fleet, and of the rules that plans have, too."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import create_model

from api.engine.responses import shows
from api.openapi.schemas.accounts import UsageView
from api.openapi.schemas.base import Moment, ResponseModel
from api.openapi.schemas.proxies import Warned
from config.model.fleet_accounts import AccountProxies, FleetAccount
from config.model.schedules import Day

_WINDOW: dict[str, Any] = {"days": (list[Day], ...), "from": (str, ...), "to": (str, ...)}
ScheduleWindowView: Any = create_model(
    "ScheduleWindowView", __base__=ResponseModel, __doc__="A window; it begins on each of the days.", **_WINDOW
)


class ScheduleView(ResponseModel):
    """When accounts may be used; without windows never."""

    timezone: str
    windows: list[ScheduleWindowView]


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
