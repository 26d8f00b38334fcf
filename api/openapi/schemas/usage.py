"""The view of what accounts have used."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from api.openapi.schemas.base import Moment, ResponseModel


class UsageFigures(ResponseModel):
    """Bytes are those between clients and proxies, `in` what clients send; refused requests are among the requests."""

    bytes_in: int
    bytes_out: int
    requests: int
    connection_seconds: float
    refusals: int


class UsageRow(UsageFigures):
    """One interval of one group; only what it is grouped by is there. `username` is the account's last one."""

    start: Moment = Field(alias="from")
    to: Moment
    account: str | None = None
    username: str | None = None
    proxy: str | None = None
    plan: str | None = None
    tag: str | None = None


class Usage(ResponseModel):
    """Rows, oldest first. `total` has each byte once, whatever the groups are."""

    interval: Literal["hour", "day", "month"]
    total: UsageFigures
    usage: list[UsageRow]
