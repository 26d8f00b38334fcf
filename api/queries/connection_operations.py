"""The operations on live connections of a proxy, and of all: their forwarding actors list and close them."""

from __future__ import annotations

import math
from dataclasses import asdict, fields, replace
from typing import Any, Literal

from actors.bus.messages.common import Failed, forwarding_name
from actors.bus.messages.forwarding import (
    CloseConnections,
    ConnectionFilter,
    ConnectionPage,
    ConnectionReport,
    ConnectionsEnded,
    QueryConnections,
)
from actors.bus.messages.supervision import RuntimeReport
from actors.forwarding.connections.table import SORTS
from api.bus_bridge import Bridge, older_addresses, request_workers
from api.call import Call, Reply
from api.engine.operation import PROXY, V1, delete, get, resource
from api.engine.responses import Moment, NodesMeta, ResponseModel, mirrors
from api.errors import Denied, Invalid, NotFound, PeerUnavailable
from api.http.query import NodesAlone, OfNodes, Query, alpn, choice, integer, network, order, text
from api.objects.accounts.account_names import may_use
from api.objects.nodes.asked_nodes import AskedNodes
from api.queries.fleet_connections import MergedConnections, MergedGroup, Row
from config.model.fleet_accounts import FleetAccount
from config.model.proxies import ProxyRecord
from config.text.formatting import timestamp_text

_OR_NULL = frozenset({"user", "target", *(each.name for each in fields(ConnectionReport) if each.default == "")})
"""Fields that are null where a connection has none."""


@mirrors(ConnectionReport, _OR_NULL)
class Connection(ResponseModel):
    """A live connection; `age` in seconds, rates in bytes per second.

    `parameters` are those of the user name, `pool` is that of the upstream `parent`. `tls_name`, `alpn` and
    `tls_version` are what the client's TLS handshake in a tunnel says. `node` is the name of the node that has it, in a
    fleet of several.
    """

    state: Literal["announcing", "idle", "authorizing", "connecting", "active", "closing", "tunnel", "datagrams"]
    started_at: Moment
    rate_in: int
    rate_out: int
    node: str | None = None


class Connections(ResponseModel):
    """A page of live connections."""

    connections: list[Connection]
    total: int
    meta: NodesMeta | None = None


class Ended(ResponseModel):
    """An ended connection."""

    id: str
    ended: Literal[True]
    meta: NodesMeta | None = None


class EndedMany(ResponseModel):
    """The number of ended connections."""

    ended: int
    meta: NodesMeta | None = None


class FleetConnection(Connection):
    """A live connection with its proxy; `proxy` is its name."""

    proxy_id: str
    proxy: str


class ConnectionGroup(ResponseModel):
    """The connections with the same value of what they are grouped by; null are those that have none."""

    client: str | None = None
    account: str | None = None
    target: str | None = None
    proxy_id: str | None = None
    proxy: str | None = None
    count: int
    bytes_in: int
    bytes_out: int


class UnavailableProxy(ResponseModel):
    """A proxy whose process did not reply."""

    proxy_id: str
    proxy: str
    error: str


class FleetConnections(ResponseModel):
    """A page of `connections`, or with `group_by` of `groups`; `total` counts all pages."""

    connections: list[FleetConnection] | None = None
    groups: list[ConnectionGroup] | None = None
    total: int
    unavailable: list[UnavailableProxy]
    meta: NodesMeta | None = None


class EndedFleet(EndedMany):
    """The number of ended connections, and the proxies whose connections may be open."""

    unavailable: list[UnavailableProxy]


EVERYTHING = ConnectionFilter()


class ConnectionFilters(OfNodes):
    """Filters of connections."""

    client: str | None = network("Only of this client or network")
    user: str | None = text("Only of this user", "alice", lowest=1)
    target: str | None = text("Only to targets with this in their name", "example.com", lowest=1)
    min_age: int = integer("Only older than so many seconds", 0, 1_000_000_000, 0)
    listen_port: int | None = integer("Only of clients that came to this port of the proxy", 1, 65535)
    tls_name: str | None = text("Only with this in the name of the TLS handshake", "example.com", 255, 1)
    alpn: str | None = alpn("Only of clients that offered this protocol in their TLS handshake")

    def filter(self) -> ConnectionFilter:
        """As the message to the forwarding actor has it."""
        return ConnectionFilter(
            self.client, self.user, self.target, float(self.min_age), self.listen_port, self.tls_name, self.alpn
        )


class ListConnections(ConnectionFilters):
    """Filters of connections, their order and the page."""

    sort: str = order(SORTS, "-age")
    limit: int = integer("The size of the page", 1, 1000, 100)
    offset: int = integer("How many to skip", 0, 1_000_000, 0)


class EndConnections(ConnectionFilters):
    """Filters of connections, or all of them."""

    all: str | None = choice("End all connections; required without a filter", ("true", "false"))


def list_connections(call: Call) -> Reply:
    """List live connections.

    Returns the open connections of a proxy with client, account, target, age and bytes moved. Filters and order are
    given in the query.
    """
    query: ListConnections = call.query
    message = QueryConnections(query.filter(), query.sort, query.limit, query.offset)
    proxy, nodes = call.services.proxies.get(call.params["proxy_id"]).record, call.nodes
    visible = call.upstreams
    if nodes.are_several:
        fleet = MergedConnections(call.services.bridge, [proxy], call.services.runtime.whole(), nodes)
        rows, total = fleet.page(message)
        _refuse_silent(fleet, proxy)
        views = [{**connection_view(each.connection, visible), **nodes.of_record(each.to)} for each in rows]
        return Reply({"connections": views, "total": total})
    page = _page(call.services.bridge, proxy, message, call.services.runtime.whole(), nodes)
    return Reply({"connections": [connection_view(each, visible) for each in page.connections], "total": page.total})


def _refuse_silent(fleet: MergedConnections, proxy: ProxyRecord) -> None:
    """Raise `PeerUnavailable` when a process here does not reply; a node on which one doesn't is a missing one."""
    for to, reason in fleet.silent_at.items():
        if not fleet.nodes.note(to, Failed(reason)):
            raise PeerUnavailable(forwarding_name(proxy.id), reason)


def _page(
    bridge: Bridge, proxy: ProxyRecord, message: QueryConnections, report: RuntimeReport | None, nodes: AskedNodes
) -> ConnectionPage:
    """A page of the connections of all workers, and of those of an older program; without such, a proxy that is
    inactive or sleeps has none."""
    drains = bool(older_addresses(report, [proxy]))
    if proxy.status == "inactive" and not drains:
        return ConnectionPage((), 0)
    if proxy.workers == 1 and not drains:
        pages: list[ConnectionPage] = request_workers(bridge, proxy, message, ConnectionPage)
        return pages[0] if pages else ConnectionPage((), 0)
    fleet = MergedConnections(bridge, [proxy], report, nodes)
    rows, total = fleet.page(message)
    _refuse_silent(fleet, proxy)
    return ConnectionPage(tuple(row.connection for row in rows), total)


def end_connection(call: Call) -> Reply:
    """End a live connection.

    Ends one open connection at once. Its access record has the reason `ended_by_operator`.
    """
    connection_id, nodes = call.params["connection_id"], call.nodes
    if not _end(call, CloseConnections(connection_id, EVERYTHING), nodes):
        nodes.refuse_missing()
        raise NotFound("The connection")
    return Reply({"id": connection_id, "ended": True})


def end_connections(call: Call) -> Reply:
    """End live connections by filter.

    Ends all open connections that match the filters, and returns how many there were. Without a filter, `all=true` is
    required.
    """
    query: EndConnections = call.query
    only = query.filter()
    require_filter(query, only != EVERYTHING, query.all)
    nodes = call.nodes
    return Reply({"ended": _end(call, CloseConnections(None, only), nodes)})


def require_filter(query: Query, filtered: bool, everything: str | None) -> None:
    """Connections are ended by a filter, or all of them by that word, not by both. Raises `Invalid`."""
    if not filtered and everything != "true":
        filters = ", ".join(name for name in query.parameters if name not in ("all", "node"))
        raise Invalid("all", f"must be true to end all connections; or give one of {filters}")
    if filtered and everything == "true":
        raise Invalid("all", "must not be true when there is a filter")


def _end(call: Call, message: CloseConnections, nodes: AskedNodes) -> int:
    """How many the processes of the proxy have closed; an inactive one has none but of an older program."""
    proxy, bridge = call.services.proxies.get(call.params["proxy_id"]).record, call.services.bridge
    if nodes.are_several:
        fleet = MergedConnections(bridge, [proxy], call.services.runtime.whole(), nodes)
        closed = fleet.close(message)
        _refuse_silent(fleet, proxy)
        return closed
    older = older_addresses(call.services.runtime.whole(), [proxy])
    replies = bridge.ask_all(dict.fromkeys(older, message)).values() if older else ()
    ended = sum(each.count for each in replies if isinstance(each, ConnectionsEnded))  # one that has gone has none left
    if proxy.status == "inactive":
        return ended
    found: list[ConnectionsEnded] = request_workers(bridge, proxy, message, ConnectionsEnded)
    return ended + sum(each.count for each in found)


def connection_view(connection: ConnectionReport, upstreams: frozenset[str] | None) -> dict[str, Any]:
    """A connection in the API; `upstreams` are the names of those that it may show, None: all."""
    visible = upstreams is None or connection.parent in upstreams
    view = {name: value or None if name in _OR_NULL else value for name, value in asdict(connection).items()}
    return {
        **view,
        "parent": view["parent"] if visible else None,
        "started_at": timestamp_text(connection.started_at),
        "age": math.floor(connection.age * 1000) / 1000,
        "rate_in": round(connection.rate_in),
        "rate_out": round(connection.rate_out),
    }


# --- of all proxies -----------------------------------------------------------------------------------------------

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
    sort: str | None = order(
        SORTS,
        description=f"The field to sort by, `{DEFAULT_SORT}` by default; `-` reverses the order. Not with `group_by`",
    )
    limit: int = integer("The size of the page", 1, 1000, 100)
    offset: int = integer("How many to skip", 0, OFFSET_MAX, 0)


class EndFleetConnections(FleetFilters):
    """Filters of connections, or all of them."""

    all: str | None = choice("End all connections; required without a filter", ("true", "false"))


def list_fleet_connections(call: Call) -> Reply:
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
    nodes = call.nodes
    proxies = _proxies(call, query.proxy, account)
    fleet = MergedConnections(call.services.bridge, proxies, call.services.runtime.whole(), nodes)
    if query.group_by is not None:
        groups, total = _groups(call, fleet, only, query)
        return Reply({"groups": groups, "total": total, "unavailable": _unavailable(call, fleet)})
    visible = call.upstreams
    rows, total = fleet.page(QueryConnections(only, query.sort or DEFAULT_SORT, query.limit, query.offset))
    return Reply(
        {
            "connections": [{**_view(each, visible), **nodes.of_record(each.to)} for each in rows],
            "total": total,
            "unavailable": _unavailable(call, fleet),
        }
    )


def end_fleet_connections(call: Call) -> Reply:
    """End live connections of all proxies.

    Ends all open connections that match the filters, and returns how many there were; without a filter, `all=true` is
    required. `unavailable` names the proxies whose processes did not reply: their connections may be open.
    """
    query: EndFleetConnections = call.query
    account = _account(call, query.account)
    only = query.of_account(account)
    require_filter(query, only != EVERYTHING or query.proxy is not None, query.all)
    proxies = _proxies(call, query.proxy, account)
    nodes = call.nodes
    fleet = MergedConnections(call.services.bridge, proxies, call.services.runtime.whole(), nodes)
    ended = fleet.end(only)
    named = {"proxy_id": proxies[0].id} if query.proxy is not None and proxies else {}
    given = {name: value for name in query.parameters if (value := getattr(query, name)) not in (None, 0)}
    details = {"filters": given, "ended": ended, "unavailable": sorted(fleet.silent)}
    if nodes.missing:
        details["missing_nodes"] = sorted(nodes.missing)
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
    call: Call, fleet: MergedConnections, only: ConnectionFilter, query: ListFleetConnections
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


def _counts(group: MergedGroup) -> dict[str, int]:
    return {"count": group.count, "bytes_in": group.bytes_in, "bytes_out": group.bytes_out}


def _view(row: Row, upstreams: frozenset[str] | None) -> dict[str, Any]:
    return {"proxy_id": row.proxy.id, "proxy": row.proxy.name, **connection_view(row.connection, upstreams)}


def _unavailable(call: Call, fleet: MergedConnections) -> list[dict[str, str]]:
    return [{**_proxy(call, proxy_id), "error": error} for proxy_id, error in sorted(fleet.silent.items())]


def _proxy(call: Call, proxy_id: str) -> dict[str, str]:
    return {"proxy_id": proxy_id, "proxy": call.services.proxies.name_of(proxy_id)}


_OF_ALL = resource(f"{V1}/connections", read="proxy.read", write="proxy.write")(
    get(
        "",
        "listFleetConnections",
        list_fleet_connections,
        FleetConnections,
        query=ListFleetConnections,
        errors=(404,),
        scoped=True,
    ),
    delete(
        "",
        "endFleetConnections",
        end_fleet_connections,
        EndedFleet,
        query=EndFleetConnections,
        errors=(404,),
        scoped=True,
        audit="proxy.connections_ended",
    ),
)

_OF_ONE = resource(f"{PROXY}/connections", read="proxy.read", write="proxy.write")(
    get("", "listConnections", list_connections, Connections, query=ListConnections),
    delete(
        "",
        "endConnections",
        end_connections,
        EndedMany,
        query=EndConnections,
        audit="proxy.connections_ended",
    ),
    delete(
        "/{connection_id}", "endConnection", end_connection, Ended, query=NodesAlone, audit="proxy.connection_ended"
    ),
)

ROWS = (*_OF_ALL, *_OF_ONE)
