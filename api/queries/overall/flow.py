"""Where traffic flows: from accounts to proxies, from there to pools, upstreams or directly, and to targets.

Rates are those of the connections that are open. Requests and refusals are the records of the last minute: what is
short is seldom open when it is looked for, and what was refused never is. Of each column there are the largest, and
one node with all others.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from actors.bus.messages.forwarding import QueryConnections
from actors.bus.messages.records import CountLogs, QueryLogs
from actors.forwarding.connections.table import PAGE_MAX
from actors.logs.counting import host_of
from actors.logs.record_schema import SEPARATOR, WAY
from api.call import Call, Reply
from api.engine.operation import V1, get, resource
from api.engine.responses import NodesMeta, ResponseModel
from api.errors import DomainError
from api.http.query import OfNodes, choice, integer, text
from api.queries.connection_operations import EVERYTHING
from api.queries.fleet_connections import MergedConnections
from api.queries.records.logs_over_nodes import LogsOverNodes

WINDOW = 60
"""Seconds whose records count."""
FRESH = 2.0
"""Seconds for which a response serves all."""
TIMEOUT = 5.0
DIRECT = "direct"
COLUMNS = ("account", "proxy", "exit", "target")
OTHERS = "others:"
"""Begins the key of a node that stands for all others of its column; keys of others begin with a kind."""


class FlowFigures(ResponseModel):
    """Open connections and their rates in bytes per second; records of the last minute, and how many have a reason.

    These were refused, failed or were ended. What the caller may not see, or what does not reply, is 0.
    """

    connections: int
    rate_in: int
    rate_out: int
    requests: int
    refused: int


class FlowNode(FlowFigures):
    """One account, proxy, exit or target.

    `key` is what links and the filters name it by. `name` is null of requests without an account or target, and of what
    the caller may not see. `kind` of an exit is `pool`, `upstream` or `direct`, and `exit` of all others. `others` is
    how many it stands for that are not in the column themselves, 0 of one that is.
    """

    key: str
    id: str | None
    name: str | None
    kind: Literal["account", "proxy", "exit", "pool", "upstream", "direct", "target"]
    others: int


class FlowLink(FlowFigures):
    """What flows from a node to one of the next column, by their keys."""

    source: str
    target: str


class TrafficFlow(ResponseModel):
    """The nodes of each column, the largest first, and the links between neighbours.

    Not `exact` is what was estimated from an even sample of the records, or what only the busiest connections make up.
    """

    window: int
    accounts: list[FlowNode]
    proxies: list[FlowNode]
    exits: list[FlowNode]
    targets: list[FlowNode]
    links: list[FlowLink]
    exact: bool
    meta: NodesMeta | None = None


class FlowQuery(OfNodes):
    """What flows through one node of a column, or through several of different columns."""

    account: str | None = text("Only of the account with this user name; empty: without one", "alice", 255)
    proxy_id: str | None = text("Only through this proxy", "prx_0123456789abcdef", 64, 1)
    exit: str | None = text("Only through this exit, by its `key`", "pool:europe", 300, 1)
    host: str | None = text("Only to this host", "example.com", 255, 1)
    most: int = integer("How many nodes a column has beside the others", 1, 50, 8)
    members: str | None = choice("Have the upstreams of pools as exits: `upstream:POOL/NAME`", ("true",))


@dataclass(slots=True)
class Sums:
    """The figures of a node or link."""

    connections: int = 0
    rate_in: float = 0.0
    rate_out: float = 0.0
    requests: int = 0
    refused: int = 0
    members: set[str] = field(default_factory=set)
    """Keys of what it stands for."""

    def add(self, other: Way, key: str) -> None:
        """A part of it."""
        self.connections += other.connections
        self.rate_in += other.rate_in
        self.rate_out += other.rate_out
        self.requests += other.requests
        self.refused += other.refused
        self.members.add(key)

    @property
    def size(self) -> tuple[float, int, int]:
        """By what they are ordered."""
        return self.rate_in + self.rate_out, self.requests, self.connections

    def view(self) -> dict[str, int]:
        """As `FlowFigures`."""
        return {
            "connections": self.connections,
            "rate_in": round(self.rate_in),
            "rate_out": round(self.rate_out),
            "requests": self.requests,
            "refused": self.refused,
        }


class Way(NamedTuple):
    """Some connections or requests with the same way: the keys of their nodes, and figures."""

    keys: tuple[str, str, str, str]
    connections: int = 0
    rate_in: float = 0.0
    rate_out: float = 0.0
    requests: int = 0
    refused: int = 0


def way_of(user: str, proxy_id: str, exit_key: str, host: str, **figures: Any) -> Way:
    """With the keys of its nodes."""
    return Way((f"account:{user}", f"proxy:{proxy_id}", exit_key, f"target:{host}"), **figures)


def exit_of(pool: str, parent: str, visible: frozenset[str] | None, members: bool = False) -> str:
    """The key of an exit; that of an upstream which the caller may not see has no name.

    With `members` an upstream of a pool is an exit by itself.
    """
    if not parent and not pool:
        return DIRECT
    if visible is not None and parent not in visible:
        return "upstream:"
    if pool and parent and members:
        return f"upstream:{pool}/{parent}"
    return f"pool:{pool}" if pool else f"upstream:{parent}"


def of_columns(ways: Iterable[Way], most: int, name_of: Callable[[str], str | None]) -> dict[str, Any]:
    """The columns with their nodes and the links, as `TrafficFlow`; `name_of` has the name of a proxy by its id."""
    found = list(ways)
    largest = [_largest(found, column, most) for column in range(len(COLUMNS))]
    nodes: list[dict[str, Sums]] = [defaultdict(Sums) for _ in COLUMNS]
    links: dict[tuple[str, str], Sums] = defaultdict(Sums)
    for way in found:
        keys = [key if key in largest[column] else OTHERS + COLUMNS[column] for column, key in enumerate(way.keys)]
        for column, key in enumerate(keys):
            nodes[column][key].add(way, way.keys[column])
        for pair in pairwise(keys):
            links[pair].add(way, "")
    accounts, proxies, exits, targets = (
        [_node(key, sums, column, name_of) for key, sums in _ordered(each)] for column, each in enumerate(nodes)
    )
    listed = [{"source": pair[0], "target": pair[1], **sums.view()} for pair, sums in _ordered(links)]
    return {"accounts": accounts, "proxies": proxies, "exits": exits, "targets": targets, "links": listed}


def _largest(ways: Sequence[Way], column: int, most: int) -> frozenset[str]:
    sums: dict[str, Sums] = defaultdict(Sums)
    for way in ways:
        sums[way.keys[column]].add(way, "")
    return frozenset(key for key, _ in list(_ordered(sums))[:most])


def _ordered(sums: Mapping[Any, Sums]) -> list[tuple[Any, Sums]]:
    """The largest first, and the others behind them."""
    return sorted(sums.items(), key=lambda each: (_is_rest(each[0]), *(-part for part in each[1].size), each[0]))


def _is_rest(key: str | tuple[str, str]) -> bool:
    return any(each.startswith(OTHERS) for each in ((key,) if isinstance(key, str) else key))


def _node(key: str, sums: Sums, column: int, name_of: Callable[[str], str | None]) -> dict[str, Any]:
    kind, _, value = key.partition(":")
    rest = _is_rest(key)
    return {
        "key": key,
        "id": value if kind == "proxy" else None,
        "name": None if rest else name_of(value) if kind == "proxy" else value or None,
        "kind": COLUMNS[column] if rest else kind,
        "others": len(sums.members) if rest else 0,
        **sums.view(),
    }


def flow(call: Call) -> Reply:
    """Show where traffic flows.

    Returns accounts, proxies, exits and targets with the rates of their open connections and the requests and refusals
    of the last minute, and how much flows between them: the largest of each, and all others as one. The parameters
    restrict it to what flows through a node. Poll it; it is made every two seconds for all callers. Requests and
    refusals need metrics.read.
    """
    query: FlowQuery = call.query
    visible, scope, nodes = call.upstreams, call.caller.scope, call.nodes
    seen = None if visible is None else tuple(sorted(visible))
    whose = None if scope is None else tuple(sorted(scope))
    wanted = (query.account, query.proxy_id, query.exit, query.host, query.most, query.members)
    key = (whose, seen, call.caller.may("metrics.read"), nodes.key, wanted)
    return Reply(call.services.flows.get(key, FRESH, lambda: _made(call, query, visible)))


def _made(call: Call, query: FlowQuery, visible: frozenset[str] | None) -> dict[str, Any]:
    scope = call.caller.scope
    proxies = [each.record for each in call.services.proxies.all() if scope is None or each.record.id in scope]
    if query.proxy_id is not None:
        proxies = [each for each in proxies if each.id == query.proxy_id]
    fleet = MergedConnections(call.services.bridge, proxies, call.services.runtime.whole(), call.nodes)
    rows, total = fleet.page(QueryConnections(EVERYTHING, "-rate_out", PAGE_MAX, 0))
    ways = [
        way_of(
            each.connection.user,
            each.proxy.id,
            exit_of(each.connection.pool, each.connection.parent, visible, query.members is not None),
            host_of(each.connection.target),
            connections=1,
            rate_in=each.connection.rate_in,
            rate_out=each.connection.rate_out,
        )
        for each in rows
    ]
    exact = total <= len(rows)
    if call.caller.may("metrics.read"):
        counted, was_exact = _requests(call, proxies, visible, query.members is not None)
        ways += counted
        exact = exact and was_exact
    found = of_columns(_through(ways, query), query.most, call.services.proxies.find_name)
    return {"window": WINDOW, **found, "exact": exact, **call.nodes.meta()}


def _requests(
    call: Call, proxies: Sequence[Any], visible: frozenset[str] | None, members: bool
) -> tuple[list[Way], bool]:
    """Those of the records of the last minute, and whether these are all."""
    now = time.time()
    query = QueryLogs(now - WINDOW, now, 0, 0, None, None, tuple(each.id for each in proxies))
    try:
        counts = LogsOverNodes(call.services.bridge, call.nodes).count(
            CountLogs(query, WINDOW, (WAY,), PAGE_MAX), TIMEOUT
        )
    except DomainError:
        return [], False
    found = counts.values.get(WAY, ())
    return list(_ways(found, visible, members)), counts.exact and len(found) < PAGE_MAX


def _ways(counted: Iterable[tuple[str, int, int, int]], visible: frozenset[str] | None, members: bool) -> Iterator[Way]:
    for value, records, _bytes_in, _bytes_out in counted:
        user, proxy_id, pool, parent, host, reason = value.split(SEPARATOR)
        refused = records if reason else 0
        yield way_of(user, proxy_id, exit_of(pool, parent, visible, members), host, requests=records, refused=refused)


def _through(ways: Iterable[Way], query: FlowQuery) -> Iterator[Way]:
    """Those through the nodes that are asked for."""
    prefixed = (("account", query.account), ("proxy", query.proxy_id), ("target", query.host))
    wanted = {f"{kind}:{value}" for kind, value in prefixed if value is not None}
    wanted |= {query.exit} if query.exit is not None else set()
    return (each for each in ways if wanted <= set(each.keys))


ROWS = (*resource(V1)(get("/flow", "getFlow", flow, TrafficFlow, "proxy.read", query=FlowQuery, scoped=True)),)
