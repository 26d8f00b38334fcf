"""What accounts have used, by hour, day or month."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from actors.bus.messages.common import METRICS
from api.call import Call, RawBody, Reply
from api.engine.operation import V1, get, resource
from api.engine.responses import Moment, ResponseModel
from api.errors import Invalid, MissingPermission, PeerUnavailable
from api.http.query import Query, choice, moment, several, text
from api.queries.usage_report import (
    GROUPS,
    INTERVALS,
    FleetUsageReport,
    Membership,
    UsageQuery,
    UsageReport,
    csv_pieces,
    json_pieces,
)
from api.store.accounts import ACCOUNTS


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
    node: str | None = None


class Usage(ResponseModel):
    """Rows, oldest first. `total` has each byte once, whatever the groups are."""

    interval: Literal["hour", "day", "month"]
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
    interval: str = choice("The width of the intervals", INTERVALS, "day")
    group_by: tuple[str, ...] | None = several(
        "What rows are for, separated by commas; `account` by default", GROUPS, "group", "account,proxy"
    )
    account: str | None = text("Only of the account with this id or user name", "acc_0123456789abcdef", 255, 1)
    metadata: str | None = text(
        "Columns of CSV with this metadata of accounts, separated by commas; `*` for all", "customer", 2048, 1
    )
    format: str | None = choice("The format, in place of `Accept`", ("json", "csv"))


def report(call: Call) -> Reply:
    """Report the usage of accounts.

    Returns a row for each interval and group in which something was used, oldest first, as JSON or CSV. The time range
    is extended to whole intervals; a closed hour never changes. An account with two tags is in the rows of both, but
    once in `total`. In a fleet usage is that of all nodes, as they have reported it, and of each node if it is grouped
    by `node`: by the hour for a week, by the day for 400 days.
    """
    selection = _selection(call)
    fleet = call.services.node.usage
    made = (
        UsageReport(call.services.data.usage, selection, lambda: _memberships(call))
        if fleet is None
        else FleetUsageReport(fleet, selection, lambda: _memberships(call))
    )
    try:
        total = made.total()
    except sqlite3.Error as error:
        raise PeerUnavailable(METRICS, f"the usage of accounts cannot be read: {error}") from error
    names = _metadata(call, selection)
    if _wants_csv(call):
        header = "; ".join(f"{name}={figure}" for name, figure in total.items())
        disposition = 'attachment; filename="usage.csv"'
        headers = {"X-Usage-Total": header, "Content-Disposition": disposition}
        found = csv_pieces(made.pieces(), selection.groups, names, lambda account_id: _metadata_of(call, account_id))
        return Reply({}, headers=headers, document=RawBody(found, CSV))
    pieces = json_pieces(made.pieces(), selection.groups, selection.interval, total)
    return Reply({}, document=RawBody(pieces, "application/json"))


def _selection(call: Call) -> UsageQuery:
    query: Any = call.query
    end = time.time() if query.to is None else query.to
    start = vars(query)["from"]
    start = end - 31 * DAY if start is None else start
    if start > end:
        raise Invalid("from", "must not be after to")
    if query.interval == "hour" and end - start > HOURS_MAX:
        raise Invalid("interval", "hour is for at most 32 days")
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
    plans = {each.record.id: each.record.name for each in call.services.plans.all()}
    return {
        document.id: Membership(plans.get(document.body.get("plan") or ""), tuple(document.body.get("tags", ())))
        for document in call.services.account_store.documents(ACCOUNTS)
    }


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
