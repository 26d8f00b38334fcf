"""Responses about accounts."""

from __future__ import annotations

from typing import Literal

from api.engine.responses import shows
from api.openapi.schemas.base import Moment, ResponseModel
from config.model.accounts import ProxyAccount
from config.model.quotas import Period


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
