"""Metrics over time, and current ones. A key with a scope gets only those of its proxies."""

from __future__ import annotations

import logging
import math
import sqlite3
import time
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from actors.bus.messages.common import METRICS
from actors.bus.messages.dns import DnsState, QueryDns
from actors.bus.messages.metrics import QueryMetricSeries, Realtime, RecentUse
from actors.metrics.catalogue import INTERVALS, NAMES
from actors.metrics.recent import BUCKETS, upstream_key
from actors.pools.state import number_of, own_numbers
from api.bus_bridge import ask_all_upstreams
from api.call import Call, RawBody, Reply
from api.engine.operation import V1, get, resource
from api.engine.responses import Moment, NodesMeta, ResponseModel, model_of
from api.errors import Invalid, MissingPermission, NotFound, PeerUnavailable
from api.http.query import OfNodes, choice, moment, several, text, texts
from api.objects.named.pool_kind import POOLS
from api.objects.proxies.proxy_responses import ListedProxy
from api.objects.proxies.proxy_views import listed
from api.objects.proxies.runtime_view import PROXY_IDS
from api.queries.metrics.dns_operations import added, ask_resolvers
from api.queries.metrics.metrics_over_nodes import merged_recent, realtime_of, series_of
from api.queries.usage_report import TopAccount, top_accounts
from config.model.choices import WORKERS_MAX
from config.model.proxies import ProxyRecord
from config.model.shared_objects.pools import Pool
from config.text.formatting import timestamp_text

if TYPE_CHECKING:
    from api.queries.metrics.prometheus import PoolMetrics


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
    meta: NodesMeta | None = None


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


class RecentActivity(ResponseModel):
    """What one proxy, account, pool or upstream did lately, the oldest first; of all nodes in a fleet.

    `rates` are bytes per second in both directions, of each 5 s of the last minute; 0 of pools and upstreams.
    `requests` are those of each 5 minutes of the last hour, the last of which is not over, of pools and upstreams uses
    and checks, and `failed` the refusals and errors; null where it is not known: of all but proxies before the last
    start of the metrics collector.
    """

    rates: list[int]
    requests: list[int | None]
    failed: list[int | None]


class RealtimeMetrics(ResponseModel):
    """Current metrics; with `include=proxies` also the proxies, with `recent` what these did lately."""

    timestamp: Moment
    metrics: Snapshot
    proxies: list[ListedProxy] | None = None
    recent: dict[str, RecentActivity] | None = None
    meta: NodesMeta | None = None


log = logging.getLogger(__name__)

UNUSED = RecentUse((0,) * BUCKETS, (0,) * BUCKETS, (0,) * BUCKETS)
HOUR = 3600.0
NAMES_TIMEOUT = 1.0
"""Seconds that the resolver has to reply; without its counters a scrape is complete in all else."""
RECENT_MAX = 200
"""Of one response: more rows than any screen has."""
POINTS_MAX = 11_000
"""Buckets of a response: more than are kept of any interval."""


class QueryMetrics(OfNodes):
    """The series and the time range."""

    start_time: float | None = moment("From the bucket of this time on; an hour before `end_time` by default")
    end_time: float | None = moment("Buckets that begin before this time; now by default")
    interval: str = choice("The width of the buckets", INTERVALS, "5m")
    metrics: tuple[str, ...] | None = several(
        "Names of metrics, separated by commas; all by default", NAMES, "metric", "requests_per_second,error_rate"
    )
    proxy_id: str | None = text("Only of this proxy", "prx_0123456789abcdef", 128)


class RealtimeQuery(OfNodes):
    """The proxies, and additions to the metrics."""

    proxy_id: str | None = text("Only of this proxy", "prx_0123456789abcdef", 128)
    include: str | None = choice("Also return the proxies, as their list does; requires proxy.read", ("proxies",))
    recent: tuple[str, ...] = texts(
        "Also return what this proxy, account, pool (its id) or upstream (`POOL/NAME`, `PROXY_ID/NAME`) did in the "
        "last minute and hour",
        "prx_0123456789abcdef",
        200,
        RECENT_MAX,
    )


def query_metrics(call: Call) -> Reply:
    """Query metrics over time.

    Returns a series of points for each metric, aligned to `interval`. A rate is 0 where there was no traffic; an
    average has no point there. In a fleet they are of all nodes together; processors and memory are the mean of them.
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
    series = _series(call, names, start, until, interval, single)
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
    keys = _keys(call, query.recent)
    recent, of_one = tuple(chain.from_iterable(keys.values())), query.proxy_id is not None
    known = realtime_of(
        call.services.bridge, call.nodes, model_of(Snapshot).model_fields, proxy_ids, of_one, recent=recent
    )
    metrics = {name: round(value, 3) for name, value in known.metrics.items()}
    data: dict[str, Any] = {"timestamp": timestamp_text(known.timestamp), "metrics": metrics}
    if query.recent:
        data["recent"] = {each: _recent(each, of_each, known) for each, of_each in keys.items()}
    if query.include is not None:
        found = [each for each in call.services.proxies.all() if proxy_ids is None or each.record.id in proxy_ids]
        data["proxies"] = listed(call.services.runtime, found)
    return Reply(data)


def _keys(call: Call, wanted: Sequence[str]) -> dict[str, list[str]]:
    """What the collector knows these by, as far as the caller may see them: a key with a scope sees its proxies."""
    scope = call.caller.scope
    visible = dict.fromkeys(each for each in wanted if scope is None or each.partition("/")[0] in scope)
    return {each: _upstream_keys(call, *each.split("/", 1)) if "/" in each else [each] for each in visible}


def _upstream_keys(call: Call, owner: str, name: str) -> list[str]:
    """Of an upstream of a pool, or of a proxy, whose workers count by themselves; none of one that is not there."""
    services, objects = call.services, call.services.shared_objects
    record: Pool | ProxyRecord
    try:
        if owner.startswith(PROXY_IDS):
            record = services.proxies.get(owner).record
        else:
            record = objects.complete(objects.get(POOLS, owner)).record
    except NotFound:
        return []
    named = (each.identity for each in record.upstreams if each.name == name)
    if isinstance(record, ProxyRecord):
        workers = WORKERS_MAX if record.workers == "auto" else record.workers
        return [upstream_key(record.id, number) for each in named for number in own_numbers(each, workers)]
    return [upstream_key(record.id, number_of(each)) for each in named]


def _recent(wanted: str, keys: Sequence[str], known: Realtime) -> dict[str, Any]:
    use = merged_recent({wanted: known.recent[key]} for key in keys if key in known.recent).get(wanted, UNUSED)
    unknown = 0 if wanted.startswith(PROXY_IDS) and "/" not in wanted else known.unknown
    before: list[int | None] = [None] * unknown
    return {
        "rates": use.rates,
        "requests": [*before, *use.requests[unknown:]],
        "failed": [*before, *use.failed[unknown:]],
    }


def exposition(call: Call) -> Reply:
    """Prometheus metrics.

    Returns all counters and gauges in the text format of Prometheus. A scraper may send `metrics.prometheus_token` as
    bearer token instead of the credentials of a user.
    """
    from api.queries.metrics.prometheus import MEDIA_TYPE, Parts, Proxy, expose

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
    return Reply({}, document=RawBody(text, MEDIA_TYPE))


def _names(call: Call) -> DnsState | None:
    try:
        return added(ask_resolvers(call.services.bridge, QueryDns(), DnsState, timeout=NAMES_TIMEOUT).values())
    except PeerUnavailable:
        return None


def _pools(call: Call) -> list[PoolMetrics]:
    from api.queries.metrics.prometheus import PoolMetrics

    services = call.services
    objects, in_use = services.shared_objects, services.runtime.pools_in_use() or ()
    pools = (objects.complete(each).record for each in objects.all(POOLS))
    return [PoolMetrics(each.id, each.name, services.pool_states.summary(each), each.name in in_use) for each in pools]


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
    call: Call, names: tuple[str, ...], start: float, end: float, interval: str, of_one: bool
) -> dict[str, list[dict[str, Any]]]:
    """By name, `{timestamp, value}` of the buckets from `start` to `end`, Unix seconds. Raises `PeerUnavailable`.

    `of_one` means that processors and memory are of the process of the proxy. A bucket without samples for a mean is
    left out.
    """
    step = INTERVALS[interval]
    first = int(start // step) * step
    query = QueryMetricSeries(names, first, max(math.ceil(end), first + 1), step, call.proxy_ids, of_one)
    reply = series_of(call.services.bridge, call.nodes, query)
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
    get(f"{V1}/metrics", "queryMetrics", query_metrics, Metrics, query=QueryMetrics, errors=(404,), scoped=True),
    get(
        f"{V1}/metrics/realtime",
        "getRealtimeMetrics",
        realtime,
        RealtimeMetrics,
        query=RealtimeQuery,
        errors=(404,),
        scoped=True,
    ),
    get("/metrics", "getExposition", exposition, produces="text/plain", prometheus_token=True, scoped=True),
)
