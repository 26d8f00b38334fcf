"""What the resolvers have cached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain, groupby, zip_longest
from typing import Literal, TypeVar

from actors.bus.mailbox import NOT_ON_THE_BUS
from actors.bus.messages.common import PROXY_RESOLVER, RESOLVER, Unreachable
from actors.bus.messages.dns import (
    DnsCache,
    DnsEntry,
    DnsServerState,
    DnsState,
    ForgetNames,
    NamesForgotten,
    QueryDns,
    QueryDnsCache,
)
from api.bus_bridge import Bridge, checked
from api.call import Call, Reply
from api.engine.operation import V1, delete, get, resource
from api.engine.responses import NodesMeta, ResponseModel
from api.http.query import OfNodes, integer, text
from api.objects.nodes.asked_nodes import AskedNodes


class CachedName(ResponseModel):
    """A cached result. `servers` are those that were asked, none for those of the system; `ttl` is seconds from now.

    `node` has it, in a fleet of several.
    """

    name: str
    type: Literal["A", "AAAA"]
    status: Literal["found", "no_data", "no_name", "failed", "timed_out"]
    addresses: list[str]
    ttl: float
    servers: list[str]
    detail: str
    node: str | None = None


class NameServerState(ResponseModel):
    """A name server since the resolver's start: `failures` are queries without a usable response.

    `up` is false while it has not responded lately; `latency` is the mean time of a response, milliseconds.
    """

    name: str
    up: bool
    queries: int
    failures: int
    latency: float | None


class ResolverState(ResponseModel):
    """Counters of the resolver since its start.

    `requests` for names, `hits` of them from the cache, `failures` without an address; lookups that wait now.
    """

    requests: int
    hits: int
    failures: int
    waiting: int
    servers: list[NameServerState]


class CachedNames(ResponseModel):
    """Cached results; `total` counts those of all names."""

    entries: list[CachedName]
    total: int
    resolver: ResolverState
    meta: NodesMeta | None = None


class DroppedNames(ResponseModel):
    """The number of results that the resolver has dropped."""

    dropped: int
    meta: NodesMeta | None = None


R = TypeVar("R")


def ask_resolvers(
    bridge: Bridge, message: object, kind: type[R], nodes: AskedNodes | None = None, timeout: float = 5.0
) -> dict[str, R]:
    """Their replies by address, of this machine or of these nodes. Raises `PeerUnavailable` when one here gives none.

    A node on which one that runs gives none is missing.
    """
    asked = {RESOLVER: message, PROXY_RESOLVER: message}
    replies = bridge.ask_all(asked, timeout) if nodes is None else nodes.ask(bridge, asked, timeout)
    found = {}
    for to, reply in replies.items():
        if isinstance(reply, kind):
            found[to] = reply
        elif to.endswith(PROXY_RESOLVER) and isinstance(reply, Unreachable) and reply.reason == NOT_ON_THE_BUS:
            continue  # no proxy names name servers
        elif nodes is None or not nodes.note(to, reply):
            checked(to, reply, kind)
    return found


def added(states: Iterable[DnsState]) -> DnsState:
    """Their counters together, those of a name server that both have asked as well."""
    every = list(states)
    servers = sorted((each for state in every for each in state.servers), key=lambda each: each.name)
    return DnsState(
        sum(each.requests for each in every),
        sum(each.hits for each in every),
        sum(each.failures for each in every),
        sum(each.entries for each in every),
        sum(each.waiting for each in every),
        dict(sum((Counter(each.dropped) for each in every), Counter())),
        tuple(_added(name, list(group)) for name, group in groupby(servers, key=lambda each: each.name)),
    )


def _added(name: str, servers: list[DnsServerState]) -> DnsServerState:
    latency: Counter[int] = Counter()
    for each in servers:
        latency.update(dict(each.latency))
    return DnsServerState(
        name,
        sum(each.queries for each in servers),
        sum(each.failures for each in servers),
        sum(each.seconds for each in servers),
        tuple(sorted(latency.items())),
        any(each.silent for each in servers),
    )


ENTRIES_MAX = 1_000


def _name(value: str) -> str:
    return value.lower().rstrip(".")


class CacheQuery(OfNodes):
    """The name, and how many entries."""

    name: str | None = text("Only of this name", "www.example.com", 254, 1, read=_name)
    limit: int = integer("Entries at most", 1, ENTRIES_MAX, 100)


class FlushQuery(OfNodes):
    """The name."""

    name: str | None = text("Only of this name; everything by default", "www.example.com", 254, 1, read=_name)


def show_cache(call: Call) -> Reply:
    """Show cached names.

    Returns what the resolver has cached, used last first, with the rest of its time to live in seconds. A name that
    does not exist is cached, too (`no_name`), and so is one without addresses of a kind (`no_data`). `resolver` has
    counters since its start. Entries of name servers that proxies name alternate with the others.
    """
    query: CacheQuery = call.query
    bridge, nodes = call.services.bridge, call.nodes
    found = ask_resolvers(bridge, QueryDnsCache(query.name or "", query.limit), DnsCache, nodes)
    state = added(ask_resolvers(bridge, QueryDns(), DnsState, nodes).values())
    each_with_node = ([(each, nodes.of_record(to)) for each in cache.entries] for to, cache in found.items())
    alternating = [each for each in chain.from_iterable(zip_longest(*each_with_node)) if each is not None]
    entries = [{**_view(each), **node} for each, node in alternating[: query.limit]]
    total = sum(each.total for each in found.values())
    return Reply({"entries": entries, "total": total, "resolver": _state(state)})


def flush_cache(call: Call) -> Reply:
    """Drop cached names.

    Drops what is cached of a name, or everything, in the resolver and in all forwarding actors. Connections that are
    open stay.
    """
    query: FlushQuery = call.query
    forgotten = ask_resolvers(call.services.bridge, ForgetNames(query.name or ""), NamesForgotten, call.nodes)
    return Reply({"dropped": sum(each.count for each in forgotten.values())})


def _state(state: DnsState) -> dict[str, object]:
    return {
        "requests": state.requests,
        "hits": state.hits,
        "failures": state.failures,
        "waiting": state.waiting,
        "servers": [_server(each) for each in state.servers],
    }


def _server(server: DnsServerState) -> dict[str, object]:
    responses = sum(count for _bucket, count in server.latency)
    return {
        "name": server.name,
        "up": not server.silent,
        "queries": server.queries,
        "failures": server.failures,
        "latency": round(server.seconds / responses * 1000, 3) if responses else None,
    }


def _view(entry: DnsEntry) -> dict[str, object]:
    return {
        "name": entry.name,
        "type": entry.kind,
        "status": entry.status,
        "addresses": list(entry.addresses),
        "ttl": round(entry.ttl, 3),
        "servers": list(entry.servers),
        "detail": entry.detail,
    }


ROWS = resource(f"{V1}/dns/cache", read="settings.read", write="proxy.write")(
    get("", "listCachedNames", show_cache, CachedNames, query=CacheQuery),
    delete("", "dropCachedNames", flush_cache, DroppedNames, query=FlushQuery, audit="cache_dropped"),
)
