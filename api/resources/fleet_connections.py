"""The operations on live connections of all proxies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from actors.bus.messages.forwarding import ConnectionFilter, QueryConnections
from actors.forwarding.connections.table import SORTS
from api.call import Call, Reply
from api.errors import Denied, Invalid, NotFound
from api.http.query import choice, integer, text
from api.resources.connections import EVERYTHING, ConnectionFilters, connection_view, require_filter
from api.services.account_names import may_use
from api.services.connection_groups import Group
from api.services.fleet_connections import FleetConnections, Row
from config.model.fleet_accounts import FleetAccount
from config.model.proxies import ProxyRecord

GROUP_BY = {"client": "client", "account": "user", "target": "target", "proxy": None}
"""What connections may be grouped by → the field that the forwarding actors count."""
OFFSET_MAX = 10_000
"""Connections that are merged for one page at most, beside those on it."""
DEFAULT_SORT = "-age"


class FleetFilters(ConnectionFilters):
    """Filters of connections of all proxies."""

    proxy: str | None = text("Only of the proxy with this name or id", "office", 128, 1)
    account: str | None = text("Only of the account with this id or user name", "alice", 255, 1)

    def of_account(self, account: FleetAccount | None) -> ConnectionFilter:
        """As the message to the forwarding actors has it; `account` is the one with the id. Raises `Invalid`."""
        named = self.account if account is None else account.username
        if named is not None and self.user not in (None, named):
            raise Invalid("account", "must be the same as user, or be left out")
        return replace(self.filter(), user=named or self.user)


class ListFleetConnections(FleetFilters):
    """Filters of connections, their order or groups, and the page."""

    group_by: str | None = choice("Count connections by this, the largest groups first", tuple(GROUP_BY))
    sort: str | None = choice(
        f"The field to sort by, `{DEFAULT_SORT}` by default; `-` reverses the order. Not with `group_by`",
        (*SORTS, *(f"-{name}" for name in SORTS)),
    )
    limit: int = integer("The size of the page", 1, 1000, 100)
    offset: int = integer("How many to skip", 0, OFFSET_MAX, 0)


class EndFleetConnections(FleetFilters):
    """Filters of connections, or all of them."""

    all: str | None = choice("End all connections; required without a filter", ("true", "false"))


def list_connections(call: Call) -> Reply:
    """List live connections of all proxies.

    Returns the open connections of all active proxies, or with `group_by` their number and bytes by client, account,
    target or proxy. The response comes within a few seconds; `unavailable` names the proxies whose processes did not
    reply, and `total` leaves them out. Each of several processes sends its largest groups, 1,000 or as many as the page
    reaches: where one has more, `total` is the least number that there are.
    """
    query: ListFleetConnections = call.query
    account = _account(call, query.account)
    only = query.of_account(account)
    if query.group_by is not None and query.sort is not None:
        raise Invalid("sort", "must be left out where group_by is given: the largest groups come first")
    fleet = FleetConnections(call.services.bridge, _proxies(call, query.proxy, account), call.services.runtime.whole())
    if query.group_by is not None:
        groups, total = _groups(call, fleet, only, query)
        return Reply({"groups": groups, "total": total, "unavailable": _unavailable(call, fleet)})
    visible = call.upstreams
    rows, total = fleet.page(QueryConnections(only, query.sort or DEFAULT_SORT, query.limit, query.offset))
    return Reply(
        {
            "connections": [_view(each, visible) for each in rows],
            "total": total,
            "unavailable": _unavailable(call, fleet),
        }
    )


def end_connections(call: Call) -> Reply:
    """End live connections of all proxies.

    Ends all open connections that match the filters, and returns how many there were; without a filter, `all=true` is
    required. `unavailable` names the proxies whose processes did not reply: their connections may be open.
    """
    query: EndFleetConnections = call.query
    account = _account(call, query.account)
    only = query.of_account(account)
    require_filter(query, only != EVERYTHING or query.proxy is not None, query.all)
    proxies = _proxies(call, query.proxy, account)
    fleet = FleetConnections(call.services.bridge, proxies, call.services.runtime.whole())
    ended = fleet.end(only)
    named = {"proxy_id": proxies[0].id} if query.proxy is not None and proxies else {}
    given = {name: value for name in query.parameters if (value := getattr(query, name)) not in (None, 0)}
    details = {"filters": given, "ended": ended, "unavailable": sorted(fleet.silent)}
    call.services.audit.append("proxy.connections_ended", call.services.store.resource_named(named), details=details)
    return Reply({"ended": ended, "unavailable": _unavailable(call, fleet)})


def _account(call: Call, named: str | None) -> FleetAccount | None:
    """The account with this id; None for any other text, which is a user name."""
    try:
        return None if named is None else call.services.fleet_accounts.get(named).record
    except NotFound:
        return None


def _proxies(call: Call, named: str | None, account: FleetAccount | None) -> list[ProxyRecord]:
    """Those that the caller may see and the account may use, if there is one; see `_named`."""
    found = _named(call, named)
    return found if account is None else [each for each in found if may_use(account.proxies, each)]


def _named(call: Call, named: str | None) -> list[ProxyRecord]:
    """Those that the caller may see, or the one of this id or else this name. Raises `Denied`, `NotFound`."""
    scope = call.caller.scope
    proxies = [each.record for each in call.services.proxies.all() if scope is None or each.record.id in scope]
    if named is None:
        return proxies
    found = [each for each in proxies if each.id == named] or [each for each in proxies if each.name == named]
    if not found and scope is not None:
        raise Denied("the proxy is not in the key's scope")
    if not found:
        raise NotFound("The proxy")
    return found


def _groups(
    call: Call, fleet: FleetConnections, only: ConnectionFilter, query: ListFleetConnections
) -> tuple[list[dict[str, Any]], int]:
    """The page of groups, and how many there are in all."""
    by = query.group_by or ""
    field = GROUP_BY[by]
    if field is None:
        found = fleet.groups_by_proxy(only)
        page = found[query.offset : query.offset + query.limit]
        return [{**_proxy(call, each.value), **_counts(each)} for each in page], len(found)
    page, total = fleet.groups(only, field, query.limit, query.offset)
    return [{by: each.value or None, **_counts(each)} for each in page], total


def _counts(group: Group) -> dict[str, int]:
    return {"count": group.count, "bytes_in": group.bytes_in, "bytes_out": group.bytes_out}


def _view(row: Row, upstreams: frozenset[str] | None) -> dict[str, Any]:
    return {"proxy_id": row.proxy.id, "proxy": row.proxy.name, **connection_view(row.connection, upstreams)}


def _unavailable(call: Call, fleet: FleetConnections) -> list[dict[str, str]]:
    return [{**_proxy(call, proxy_id), "error": error} for proxy_id, error in sorted(fleet.silent.items())]


def _proxy(call: Call, proxy_id: str) -> dict[str, str]:
    return {"proxy_id": proxy_id, "proxy": call.services.proxies.name_of(proxy_id)}
