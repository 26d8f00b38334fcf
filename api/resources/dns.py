"""What the resolver has cached."""

from __future__ import annotations

from actors.bus.messages.common import RESOLVER
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
from api.bus_bridge import request
from api.call import Call, Reply
from api.http.query import Query, integer, text

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
    counters since its start.
    """
    query: CacheQuery = call.query
    found = request(call.services.bridge, RESOLVER, QueryDnsCache(query.name or "", query.limit), DnsCache)
    state = request(call.services.bridge, RESOLVER, QueryDns(), DnsState)
    entries = [_view(each) for each in found.entries]
    return Reply({"entries": entries, "total": found.total, "resolver": _state(state)})


def flush_cache(call: Call) -> Reply:
    """Drop cached names.

    Drops what is cached of a name, or everything, in the resolver and in all forwarding actors. Connections that are
    open stay.
    """
    query: FlushQuery = call.query
    forgotten = request(call.services.bridge, RESOLVER, ForgetNames(query.name or ""), NamesForgotten)
    return Reply({"dropped": forgotten.count})


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
