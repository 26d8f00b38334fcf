"""What the resolver has cached."""

from __future__ import annotations

from itertools import chain, zip_longest

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
from api.call import Call, Reply
from api.engine.operation import V1, delete, get, resource
from api.http.query import Query, integer, text
from api.openapi.schemas.dns import CachedNames, DroppedNames
from api.services.resolvers import added, ask_resolvers

ENTRIES_MAX = 1_000


def _name(value: str) -> str:
    return value.lower().rstrip(".")


class CacheQuery(Query):
    """The name, and how many entries."""

    name: str | None = text("Only of this name", "www.example.com", 254, 1, read=_name)
    limit: int = integer("Entries at most", 1, ENTRIES_MAX, 100)


class FlushQuery(Query):
    """The name."""

    name: str | None = text("Only of this name; everything by default", "www.example.com", 254, 1, read=_name)


def show_cache(call: Call) -> Reply:
    """Show cached names.

    Returns what the resolver has cached, used last first, with the rest of its time to live in seconds. A name that
    does not exist is cached, too (`no_name`), and so is one without addresses of a kind (`no_data`). `resolver` has
    counters since its start. Entries of name servers that proxies name alternate with the others.
    """
    query: CacheQuery = call.query
    found = ask_resolvers(call.services.bridge, QueryDnsCache(query.name or "", query.limit), DnsCache)
    state = added(ask_resolvers(call.services.bridge, QueryDns(), DnsState))
    alternating = chain.from_iterable(zip_longest(*(each.entries for each in found)))
    entries = [_view(each) for each in alternating if each is not None]
    return Reply(
        {"entries": entries[: query.limit], "total": sum(each.total for each in found), "resolver": _state(state)}
    )


def flush_cache(call: Call) -> Reply:
    """Drop cached names.

    Drops what is cached of a name, or everything, in the resolver and in all forwarding actors. Connections that are
    open stay.
    """
    query: FlushQuery = call.query
    forgotten = ask_resolvers(call.services.bridge, ForgetNames(query.name or ""), NamesForgotten)
    return Reply({"dropped": sum(each.count for each in forgotten)})


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
