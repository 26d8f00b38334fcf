"""Metrics over time, and current ones, and what the resolvers have cached. A key with a scope gets only those of its
proxies.
"""

from __future__ import annotations

import logging
import math
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, groupby, zip_longest
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from actors.bus.mailbox import NOT_ON_THE_BUS
from actors.bus.messages.common import METRICS, PROXY_RESOLVER, RESOLVER, Unreachable
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
from actors.bus.messages.metrics import MetricSeries, QueryMetricSeries, QueryRealtime, Realtime
from actors.metrics.catalogue import INTERVALS, NAMES
from api.bus_bridge import Bridge, ask_all_upstreams, checked, request
from api.call import Call, Document, Reply
from api.engine.operation import V1, delete, get, resource
from api.engine.responses import Moment, ResponseModel
from api.errors import Invalid, MissingPermission, NotFound, PeerUnavailable
from api.http.query import Query, choice, integer, moment, several, text
from api.objects.named.pool_kind import POOLS
from api.objects.proxies.proxy_responses import ListedProxy
from api.objects.proxies.proxy_views import listed
from api.queries.usage_report import TopAccount, top_accounts
from config.text.formatting import timestamp_text


class CachedName(ResponseModel):
    """A cached result. `servers` are those that were asked, none for those of the system; `ttl` is seconds from now."""

    name: str
    type: Literal["A", "AAAA"]
    status: Literal["found", "no_data", "no_name", "failed", "timed_out"]
    addresses: list[str]
    ttl: float
    servers: list[str]
    detail: str


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


class DroppedNames(ResponseModel):
    """The number of results that the resolver has dropped."""

    dropped: int


R = TypeVar("R")


def ask_resolvers(bridge: Bridge, message: object, kind: type[R], timeout: float = 5.0) -> list[R]:
    """Their replies. Raises `PeerUnavailable` when one that runs gives none."""
    replies = bridge.ask_all({RESOLVER: message, PROXY_RESOLVER: message}, timeout)
    second = replies[PROXY_RESOLVER]
    if isinstance(second, Unreachable) and second.reason == NOT_ON_THE_BUS:
        del replies[PROXY_RESOLVER]
    return [checked(name, reply, kind) for name, reply in replies.items()]


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


DNS_ROWS = resource(f"{V1}/dns/cache", read="settings.read", write="proxy.write")(
    get("", "listCachedNames", show_cache, CachedNames, query=CacheQuery),
    delete("", "dropCachedNames", flush_cache, DroppedNames, query=FlushQuery, audit="cache_dropped"),
)


if TYPE_CHECKING:
    from api.queries.prometheus import PoolSummary


class TimeRange(ResponseModel):
    """The time range of the query."""

    start: Moment
    end: Moment
    interval: Literal["1m", "5m", "1h", "1d"]


class Point(ResponseModel):
    """One bucket; `timestamp` is its beginning."""

    timestamp: Moment
    value: float


class Metrics(ResponseModel):
    """Series by name, oldest first."""

    time_range: TimeRange
    metrics: dict[str, list[Point]]


class Snapshot(ResponseModel):
    """Rates of the last 5 s, error rate (percent) and response times (ms) of the last 60 s; the rest is current."""

    requests_per_second: float
    active_connections: int
    response_time_avg: float
    response_time_p50: float
    response_time_p95: float
    response_time_p99: float
    error_rate: float
    cpu_usage: float
    memory_usage: float
    bandwidth_in: float
    bandwidth_out: float


class RealtimeMetrics(ResponseModel):
    """Current metrics; with `include=proxies` also the proxies."""

    timestamp: Moment
    metrics: Snapshot
    proxies: list[ListedProxy] | None = None


log = logging.getLogger(__name__)

HOUR = 3600.0
NAMES_TIMEOUT = 1.0
"""Seconds that the resolver has to reply; without its counters a scrape is complete in all else."""
TIMEOUT = 10.0
POINTS_MAX = 11_000
"""Buckets of a response: more than are kept of any interval."""


class QueryMetrics(Query):
    """The series and the time range."""

    start_time: float | None = moment("From the bucket of this time on; an hour before `end_time` by default")
    end_time: float | None = moment("Buckets that begin before this time; now by default")
    interval: str = choice("The width of the buckets", INTERVALS, "5m")
    metrics: tuple[str, ...] | None = several(
        "Names of metrics, separated by commas; all by default", NAMES, "metric", "requests_per_second,error_rate"
    )
    proxy_id: str | None = text("Only of this proxy", "prx_0123456789abcdef", 128)


class RealtimeQuery(Query):
    """The proxies, and additions to the metrics."""

    proxy_id: str | None = text("Only of this proxy", "prx_0123456789abcdef", 128)
    include: str | None = choice("Also return the proxies, as their list does; requires proxy.read", ("proxies",))


def query_metrics(call: Call) -> Reply:
    """Query metrics over time.

    Returns a series of points for each metric, aligned to `interval`. A rate is 0 where there was no traffic; an
    average has no point there.
    """
    query: QueryMetrics = call.query
    end = time.time() if query.end_time is None else query.end_time
    start = end - HOUR if query.start_time is None else query.start_time
    names, interval = query.metrics or NAMES, query.interval
    if start > end:
        raise Invalid("start_time", "must not be after end_time")
    if (end - start) / INTERVALS[interval] > POINTS_MAX:
        raise Invalid("interval", f"is too short for this time: the response would have more than {POINTS_MAX} points")
    _must_exist(call, query.proxy_id)
    until, single = min(end, time.time()), query.proxy_id is not None
    series = _series(call.services.bridge, names, start, until, interval, call.proxy_ids, single)
    time_range = {"start": timestamp_text(start), "end": timestamp_text(end), "interval": interval}
    return Reply({"time_range": time_range, "metrics": series})


def realtime(call: Call) -> Reply:
    """Show current metrics.

    Returns one number for each metric, not older than two seconds. Subscribe to the metrics socket instead of polling
    when you need a value each second.
    """
    query: RealtimeQuery = call.query
    proxy_ids = call.proxy_ids
    if query.include is not None and not call.caller.may("proxy.read"):
        raise MissingPermission("proxy.read", by_key=call.caller.key is not None)
    _must_exist(call, query.proxy_id)
    snapshot = request(
        call.services.bridge, METRICS, QueryRealtime(proxy_ids, query.proxy_id is not None), Realtime, timeout=TIMEOUT
    )
    metrics = {name: round(value, 3) for name, value in snapshot.metrics.items()}
    data: dict[str, Any] = {"timestamp": timestamp_text(snapshot.timestamp), "metrics": metrics}
    if query.include is not None:
        found = [each for each in call.services.proxies.all() if proxy_ids is None or each.record.id in proxy_ids]
        data["proxies"] = listed(call.services.runtime, found)
    return Reply(data)


def exposition(call: Call) -> Reply:
    """Prometheus metrics.

    Returns all counters and gauges in the text format of Prometheus. A scraper may send `metrics.prometheus_token` as
    bearer token instead of the credentials of a user.
    """
    from api.queries.prometheus import MEDIA_TYPE, Parts, Proxy, expose

    caller, services = call.identified, call.services  # no caller: it came with `metrics.prometheus_token`
    scope = None if caller is None else caller.scope
    records = [each.record for each in services.proxies.all() if scope is None or each.record.id in scope]
    ids = tuple(each.id for each in records)
    totals = services.runtime.totals(ids) if ids else {}
    if totals is None:
        raise PeerUnavailable(METRICS, "no reply")
    fleet = services.runtime.whole()
    system = services.runtime.system() if scope is None else None
    described = [Proxy(each.id, each.name, each.protocol, each.status == "active") for each in records]
    sender = services.webhooks.sender_state() if scope is None else None
    hooks = [] if sender is None else services.webhooks.with_statuses()
    names = _names(call) if scope is None else None
    parts = Parts(
        ask_all_upstreams(services.bridge, records),
        hooks,
        _top_accounts(call) if scope is None else (),
        names,
        _pools(call) if scope is None else (),
        services.node.figures() if scope is None else None,
    )
    text = expose(described, totals, {} if fleet is None else fleet.proxies, system, sender, parts)
    return Reply({}, document=Document(text, MEDIA_TYPE))


def _names(call: Call) -> DnsState | None:
    try:
        return added(ask_resolvers(call.services.bridge, QueryDns(), DnsState, NAMES_TIMEOUT))
    except PeerUnavailable:
        return None


def _pools(call: Call) -> list[PoolSummary]:
    from api.queries.prometheus import PoolSummary

    services = call.services
    objects, in_use = services.shared_objects, services.runtime.pools_in_use() or ()
    pools = (objects.complete(each).record for each in objects.all(POOLS))
    return [PoolSummary(each.id, each.name, services.pool_states.summary(each), each.name in in_use) for each in pools]


def _top_accounts(call: Call) -> Sequence[TopAccount]:
    """Those that `metrics.prometheus_accounts` asks for. A file that can't be read leaves them out of this scrape."""
    services = call.services
    count = services.settings.whole.get("metrics", {}).get("prometheus_accounts", 0)
    try:
        return top_accounts(services.data.usage, count)
    except sqlite3.Error as error:
        log.error("cannot read the usage of accounts: %s", error)
        return ()


def _must_exist(call: Call, proxy_id: str | None) -> None:
    if proxy_id is not None and call.services.store.get("proxies", proxy_id) is None:
        raise NotFound("The proxy")


def _series(
    bridge: Bridge,
    names: tuple[str, ...],
    start: float,
    end: float,
    interval: str,
    proxy_ids: tuple[str, ...] | None,
    of_one: bool,
) -> dict[str, list[dict[str, Any]]]:
    """By name, `{timestamp, value}` of the buckets from `start` to `end`, Unix seconds. Raises `PeerUnavailable`.

    `proxy_ids` None means everything, `of_one` that processors and memory are of the process of the proxy. A bucket
    without samples for a mean is left out.
    """
    step = INTERVALS[interval]
    first = int(start // step) * step
    query = QueryMetricSeries(names, first, max(math.ceil(end), first + 1), step, proxy_ids, of_one)
    reply = request(bridge, METRICS, query, MetricSeries, timeout=TIMEOUT)
    longest = max((len(values) for values in reply.values.values()), default=0)
    times = [timestamp_text(first + number * step) for number in range(longest)]
    return {name: _points(reply.values[name], times) for name in names}


def _points(values: tuple[float | None, ...], times: list[str]) -> list[dict[str, Any]]:
    return [
        {"timestamp": timestamp, "value": value}
        for timestamp, value in zip(times, values, strict=True)
        if value is not None
    ]


ROWS = resource("", read="metrics.read")(
    get(
        f"{V1}/metrics",
        "queryMetrics",
        query_metrics,
        Metrics,
        query=QueryMetrics,
        errors=(404,),
        scoped=True,
    ),
    get(
        f"{V1}/metrics/realtime",
        "getRealtimeMetrics",
        realtime,
        RealtimeMetrics,
        query=RealtimeQuery,
        errors=(404,),
        scoped=True,
    ),
    get(
        "/metrics",
        "getExposition",
        exposition,
        produces="text/plain",
        prometheus_token=True,
        scoped=True,
    ),
)
