"""Responses to holders of accounts about their own account."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from api.engine.responses import group_view
from api.openapi.schemas.accounts import UsageView
from api.openapi.schemas.base import Moment, ResponseModel
from api.openapi.schemas.fleet_accounts import ScheduleView
from api.resources.connections import Connection
from api.resources.usage import UsageFigures
from config.model.account_rules import RuleQuota
from config.model.choices import ProxyProtocol
from config.model.plans import SelfService

RuleQuotaView: Any = group_view(RuleQuota)
SelfServiceView: Any = group_view(SelfService)


class HolderToken(ResponseModel):
    """The token of a holder; `expires_in` in seconds."""

    access_token: str
    expires_in: int
    token_type: Literal["Bearer"]


class HolderSession(HolderToken):
    """The token of a sign-in that goes on, and the name of its account."""

    username: str


class OwnProxy(ResponseModel):
    """A proxy that the account may use."""

    name: str
    protocol: ProxyProtocol
    port: int


class OwnLimits(ResponseModel):
    """The limits that hold, 0 for none."""

    bandwidth_in: int
    bandwidth_out: int
    connections: int
    requests_per_minute: int


class OwnAccount(ResponseModel):
    """The account, with what it has of its plan: an empty `allow_destinations` permits all, `schedule` null always."""

    username: str
    status: Literal["active", "disabled", "expired", "quota_reached"]
    plan: str | None
    proxies: list[OwnProxy]
    limits: OwnLimits
    quota: RuleQuotaView
    allow_destinations: list[str]
    deny_destinations: list[str]
    schedule: ScheduleView | None
    allow_clients: list[str]
    expires_at: Moment | None
    created_at: Moment
    self_service: SelfServiceView


class Me(ResponseModel):
    """The holder's own account."""

    account: OwnAccount


class OwnUsageDay(UsageFigures):
    """What the account has used on a day."""

    start: Moment = Field(alias="from")
    to: Moment


class OwnUsage(ResponseModel):
    """What the account has used over all proxies, and when; `days` without usage are left out."""

    usage: UsageView
    last_seen_at: Moment | None
    last_client_ip: str | None
    days: list[OwnUsageDay]


class OwnConnection(Connection):
    """A live connection of the account; `proxy` is the name of its proxy.

    What is the operator's own is always null: `parent`, `pool`, `source_address` and `source_rule`.
    """

    proxy: str


class SilentProxy(ResponseModel):
    """A proxy whose process did not reply."""

    proxy: str
    error: str


class OwnConnections(ResponseModel):
    """A page of live connections of the account."""

    connections: list[OwnConnection]
    total: int
    unavailable: list[SilentProxy]
