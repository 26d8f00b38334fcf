"""Between the API and the resolver: what it has cached, and how it does. Actors ask for names by another way
(`actors.net.resolver_protocol`)."""

from __future__ import annotations

from dataclasses import field

from actors.bus.codec import message


@message
class QueryDnsCache:
    """API → resolver: what is cached of a name, or of all names if it is empty, at most `limit` entries.

    → `DnsCache`.
    """

    name: str
    limit: int


@message
class DnsEntry:
    """One cached result. A value, not a message by itself.

    `kind` is `A` or `AAAA`; `status` is `found`, `no_data` (no address of this kind), `no_name`, `failed` or
    `timed_out`, with a `detail` for the last two. `servers` are those that were asked, empty for the system's. `ttl`
    is the seconds that it holds from now.
    """

    name: str
    kind: str
    status: str
    addresses: tuple[str, ...]
    ttl: float
    servers: tuple[str, ...] = ()
    detail: str = ""


@message
class DnsCache:
    """Resolver → API: entries, those used last first, and how many there are of all names."""

    entries: tuple[DnsEntry, ...]
    total: int


@message
class ForgetNames:
    """API → resolver: drop what is cached of a name, or of all if it is empty, in the forwarding actors, too.

    → `NamesForgotten`.
    """

    name: str


@message
class NamesForgotten:
    """Resolver → API: how many entries of its cache are dropped."""

    count: int


@message
class QueryDns:
    """API → resolver: its counters. → `DnsState`."""


@message
class DnsServerState:
    """Counters of one name server since the resolver's start. A value, not a message by itself.

    `failures` are queries without a usable response. `latency` has number and count of the buckets of
    `actors.histogram`; `seconds` is their sum. `silent`: it has not responded lately.
    """

    name: str
    queries: int
    failures: int
    seconds: float
    latency: tuple[tuple[int, int], ...]
    silent: bool = False


@message
class DnsState:
    """Resolver → API: counters since its start.

    `requests` of actors, `hits` of them from the cache, `failures` without an address. `dropped` counts messages that
    are no response to a query by what is wrong with them. `entries` are cached, `waiting` lookups wait for their turn.
    """

    requests: int
    hits: int
    failures: int
    entries: int
    waiting: int
    dropped: dict[str, int] = field(default_factory=dict)
    servers: tuple[DnsServerState, ...] = ()
