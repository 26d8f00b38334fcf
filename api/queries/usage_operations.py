"""What accounts have used, by hour, day or month, or altogether."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from actors.bus.messages.common import METRICS
from api.call import Call, RawBody, Reply
from api.engine.operation import V1, get, resource
from api.engine.responses import Moment, ResponseModel
from api.errors import Invalid, MissingPermission, PeerUnavailable
from api.http.query import Query, choice, integer, moment, several, text
from api.queries.usage_report import (
    GROUPS,
    INTERVALS,
    FleetUsageReport,
    Membership,
    UsageQuery,
    UsageReport,
    csv_pieces,
    file_name,
    json_pieces,
    largest,
)
from api.store.accounts import ACCOUNTS
from config.model.choices import Period


class UsageFigures(ResponseModel):
    """Bytes are those between clients and proxies, `in` what clients send; refused requests are among the requests."""

    bytes_in: int
    bytes_out: int
    requests: int
    connection_seconds: float
    refusals: int


class UsageRow(UsageFigures):
    """One interval of one group; only what it is grouped by is there. `username` is the account's last one.
    `proxy_name` is the id of a proxy that is gone.

    `quota` is in bytes: that of the account or of its plan, null without one. Instead, `others` is the number of groups
    that `top` leaves out, of which the row is.
    """

    start: Moment = Field(alias="from")
    to: Moment
    account: str | None = None
    username: str | None = None
    proxy: str | None = None
    proxy_name: str | None = None
    plan: str | None = None
    quota: int | None = None
    quota_period: Period | None = None
    tag: str | None = None
    node: str | None = None
    others: int | None = None


class Usage(ResponseModel):
    """Rows, oldest first. `total` has each byte once, whatever the groups are."""

    interval: Literal["hour", "day", "month", "total"]
    total: UsageFigures
    usage: list[UsageRow]


CSV = "text/csv"
DAY = 86_400.0
ACCOUNT_ID = "acc_"
HOURS_MAX = 32 * DAY
"""Seconds of a report by the hour."""


class QueryUsageReport(Query):
    """The time range, the intervals and the groups."""

    vars()["from"] = moment("From the interval of this time on; 31 days before `to` by default")  # a keyword
    to: float | None = moment("Up to the interval of this time; now by default")
    interval: str = choice("The width of the intervals; `total` is one of all days", INTERVALS, "day")
    group_by: tuple[str, ...] | None = several(
        "What rows are for, separated by commas; `account` by default", GROUPS, "group", "account,proxy"
    )
    account: str | None = text("Only of the account with this id or user name", "acc_0123456789abcdef", 255, 1)
    metadata: str | None = text(
        "Columns of CSV with this metadata of accounts, separated by commas; `*` for all", "customer", 2048, 1
    )
    top: int | None = integer(
        "Only so many groups of JSON, those that have used most bytes; the others are one row of each interval", 1, 1000
    )
    format: str | None = choice("The format, in place of `Accept`", ("json", "csv"))


def report(call: Call) -> Reply:
    """Report the usage of accounts.

    Returns a row for each interval and group in which something was used, oldest first, as JSON or CSV. The time range
    is extended to whole intervals; a closed hour never changes. An account with two tags is in the rows of both, but
    once in `total`. In a fleet usage is that of all nodes, as they have reported it, and of each node if it is grouped
    by `node`: by the hour for a week, by the day for 400 days. With `top` rows of an interval go from the group that
    has used most in the whole time to the one that has used least.
    """
    selection = _selection(call)
    made = _report(call, selection)
    try:
        total = made.total()
    except sqlite3.Error as error:
        raise PeerUnavailable(METRICS, f"the usage of accounts cannot be read: {error}") from error
    names = _metadata(call, selection)
    if _wants_csv(call):
        header = "; ".join(f"{name}={figure}" for name, figure in total.items())
        disposition = f'attachment; filename="{file_name(selection)}"'
        headers = {"X-Usage-Total": header, "Content-Disposition": disposition}
        found = csv_pieces(made.pieces(), selection.groups, names, lambda account_id: _metadata_of(call, account_id))
        return Reply({}, headers=headers, document=RawBody(found, CSV))
    pieces = made.pieces()
    if call.query.top is not None:
        whole = _report(call, replace(selection, interval="total"))
        pieces = largest(whole.pieces(), pieces, call.query.top)
    found = json_pieces(pieces, selection.groups, selection.interval, total)
    return Reply({}, document=RawBody(found, "application/json"))


def _report(call: Call, selection: UsageQuery) -> UsageReport:
    fleet, name_of = call.services.node.usage, call.services.proxies.name_of
    if fleet is None:
        return UsageReport(call.services.data.usage, selection, lambda: _memberships(call), name_of)
    return FleetUsageReport(fleet, selection, lambda: _memberships(call), name_of)


def _selection(call: Call) -> UsageQuery:
    query: Any = call.query
    end = time.time() if query.to is None else query.to
    start = vars(query)["from"]
    start = end - 31 * DAY if start is None else start
    if start > end:
        raise Invalid("from", "must not be after to")
    if query.interval == "hour" and end - start > HOURS_MAX:
        raise Invalid("interval", "hour is for at most 32 days")
    if query.top is not None and _wants_csv(call):
        raise Invalid("top", "must be left out where the response is CSV, which has all")
    scope = call.caller.scope
    groups = query.group_by or ("account",)
    return UsageQuery(start, end, query.interval, groups, None if scope is None else tuple(scope), _account_id(call))


def _account_id(call: Call) -> str | None:
    """That of the account with this id or user name. An id may be that of one which is gone. Raises `Invalid`."""
    named: str | None = call.query.account
    if named is None or named.startswith(ACCOUNT_ID):
        return named
    found = call.services.account_store.accounts_named(named)
    if not found:
        raise Invalid("account", "there is no such account")
    return found[0].id


def _wants_csv(call: Call) -> bool:
    accept = call.headers.get("accept", "")
    return bool(call.query.format == "csv" or (call.query.format is None and CSV in accept.lower()))


def _metadata(call: Call, selection: UsageQuery) -> Sequence[str]:
    """The names that the columns have; who reads them may read accounts, too."""
    given = call.query.metadata
    if given is None:
        return ()
    if not _wants_csv(call) or "account" not in selection.groups:
        raise Invalid("metadata", "must be left out where the response is no CSV, or is not by account")
    if not call.caller.may("proxy.read"):
        raise MissingPermission("proxy.read", call.caller.key is not None)
    if call.caller.scope is not None:
        raise Invalid("metadata", "must be left out by a key with a scope, which sees no accounts")
    if given == "*":
        documents = call.services.account_store.documents(ACCOUNTS)
        return sorted({name for document in documents for name in document.body.get("metadata", ())})
    return tuple(dict.fromkeys(filter(None, (each.strip() for each in given.split(",")))))


def _metadata_of(call: Call, account_id: str) -> Mapping[str, str]:
    found = call.services.account_store.get(ACCOUNTS, account_id)
    return {} if found is None else found.body.get("metadata", {})


def _memberships(call: Call) -> dict[str, Membership]:
    plans = {each.record.id: each.record for each in call.services.plans.all()}

    def membership(body: Mapping[str, Any]) -> Membership:
        plan = plans.get(body.get("plan") or "")
        quota = body.get("quota") or (plan and plan.quota and plan.quota.model_dump()) or {}
        holds = (quota["bytes"], quota["period"]) if quota.get("bytes") else (None, None)
        return Membership(None if plan is None else plan.name, tuple(body.get("tags", ())), holds)

    return {each.id: membership(each.body) for each in call.services.account_store.documents(ACCOUNTS)}


ROWS = resource("", read="metrics.read")(
    get(
        f"{V1}/usage",
        "reportUsage",
        report,
        Usage,
        query=QueryUsageReport,
        also_produces=CSV,
        scoped=True,
        streams=True,
    ),
)
