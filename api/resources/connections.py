"""The operations on live connections of a proxy, which its forwarding actor lists and closes."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from actors.bus.messages.common import forwarding_name
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
from api.bus_bridge import Bridge
from api.call import Call, Reply
from api.errors import Invalid, NotFound, PeerUnavailable
from api.http.query import Query, alpn, choice, integer, network, text
from api.services.fleet_connections import FleetConnections
from api.services.worker_requests import older_addresses, request_workers
from config.model.proxies import ProxyRecord
from config.text.formatting import timestamp_text

EVERYTHING = ConnectionFilter()


class ConnectionFilters(Query):
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

    sort: str = choice(
        "The field to sort by; `-` reverses the order", (*SORTS, *(f"-{name}" for name in SORTS)), "-age"
    )
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
    proxy = call.services.proxies.get(call.params["proxy_id"]).record
    page = _page(call.services.bridge, proxy, message, call.services.runtime.whole())
    visible = call.upstreams
    return Reply({"connections": [connection_view(each, visible) for each in page.connections], "total": page.total})


def _page(
    bridge: Bridge, proxy: ProxyRecord, message: QueryConnections, report: RuntimeReport | None
) -> ConnectionPage:
    """A page of the connections of all workers, and of those of an older program; without such, a proxy that is
    inactive or sleeps has none."""
    drains = bool(older_addresses(report, [proxy]))
    if proxy.status == "inactive" and not drains:
        return ConnectionPage((), 0)
    if proxy.workers == 1 and not drains:
        pages: list[ConnectionPage] = request_workers(bridge, proxy, message, ConnectionPage)
        return pages[0] if pages else ConnectionPage((), 0)
    fleet = FleetConnections(bridge, [proxy], report)
    rows, total = fleet.page(message)
    for reason in fleet.silent.values():
        raise PeerUnavailable(forwarding_name(proxy.id), reason)
    return ConnectionPage(tuple(row.connection for row in rows), total)


def end_connection(call: Call) -> Reply:
    """End a live connection.

    Ends one open connection at once. Its access record has the reason `ended_by_operator`.
    """
    connection_id = call.params["connection_id"]
    if not _end(call, CloseConnections(connection_id, EVERYTHING)):
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
    return Reply({"ended": _end(call, CloseConnections(None, only))})


def require_filter(query: Query, filtered: bool, everything: str | None) -> None:
    """Connections are ended by a filter, or all of them by that word, not by both. Raises `Invalid`."""
    if not filtered and everything != "true":
        filters = ", ".join(name for name in query.parameters if name != "all")
        raise Invalid("all", f"must be true to end all connections; or give one of {filters}")
    if filtered and everything == "true":
        raise Invalid("all", "must not be true when there is a filter")


def _end(call: Call, message: CloseConnections) -> int:
    """How many the processes of the proxy have closed; an inactive one has none but of an older program."""
    proxy, bridge = call.services.proxies.get(call.params["proxy_id"]).record, call.services.bridge
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
    return {
        **asdict(connection),
        "user": connection.user or None,
        "target": connection.target or None,
        "parent": (connection.parent or None) if visible else None,
        "credential": connection.credential or None,
        "source_address": connection.source_address or None,
        "source_rule": connection.source_rule or None,
        "parameters": connection.parameters or None,
        "pool": connection.pool or None,
        "tls_name": connection.tls_name or None,
        "alpn": connection.alpn or None,
        "tls_version": connection.tls_version or None,
        "started_at": timestamp_text(connection.started_at),
        "age": math.floor(connection.age * 1000) / 1000,
        "rate_in": round(connection.rate_in),
        "rate_out": round(connection.rate_out),
    }
