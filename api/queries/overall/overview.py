"""What the first screen needs, in one response: the state of now, what is used most, and what needs attention.

Many tabs ask every other second, so a response is made at most once a second for all callers who may see the same
(`Visibility`), and is ready as bytes. While one thread makes it, others get the one before. What is used most
costs the log indexer more, and is asked for less often.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pydantic_core import to_json

from actors.bus.messages.common import LAB
from actors.bus.messages.metrics import QueryMetricSeries
from actors.bus.messages.records import CountLogs, LogCounts, QueryLogs
from actors.bus.messages.supervision import Runtime
from actors.logs.record_schema import HOST
from api.bus_bridge import Bridge
from api.engine.responses import HealthState, Moment, NodesMeta, ResponseModel, having
from api.errors import DomainError, PeerUnavailable
from api.objects.nodes.asked_nodes import AskedNodes
from api.objects.nodes.proxies_over_nodes import ProxiesOverNodes
from api.objects.proxies.condition import Flaw
from api.objects.proxies.proxy_cache import StoredProxy
from api.objects.proxies.proxy_service import ProxyService
from api.objects.proxies.runtime_view import RuntimeQueries
from api.queries.metrics.metrics_over_nodes import realtime_of, series_of
from api.queries.overall.attention import Attention, AttentionList, is_of_pool
from api.queries.overall.health import HealthService
from api.queries.overall.shared_values import SharedValues
from api.queries.records.logs_over_nodes import LogsOverNodes
from config import VERSION
from config.text.formatting import timestamp_text

FRESH = 1.0
"""Seconds for which a response serves all."""
TIMEOUT = 5.0
MOST = 10
"""Entries of each list of what is used most."""
NOW = (
    "requests_per_second",
    "bandwidth_in",
    "bandwidth_out",
    "error_rate",
    "response_time_p95",
    "active_connections",
)
LISTS = {
    "proxies": ("proxy_id", "id"),
    "accounts": ("user", "username"),
    "targets": (HOST, "host"),
    "refusals": ("reason", "reason"),
}
"""The lists of what is used most: the field of records that is counted, and its name in the response."""
COUNTED = tuple(counted for counted, _ in LISTS.values())
HOSTS_MAX = 1_000
HOSTS_FRESH, HOSTS_STALE = 30.0, 600.0
"""Seconds after which the hosts of the last hour are counted again, and for which the ones before serve meanwhile."""

View = dict[str, Any]


class Range(NamedTuple):
    """Seconds that are looked back on, the step of the series, and for how long what is used most is cached."""

    seconds: int
    step: int
    max_age: float


RANGES = {"5m": Range(300, 10, 15.0), "1h": Range(3600, 60, 60.0), "1d": Range(86_400, 3600, 60.0)}


class OverviewHealth(ResponseModel):
    """The overall health, and since when the service runs. In a `lab` the egress guard is open for loopback."""

    status: HealthState
    lab: bool
    version: str
    started_at: Moment


@having(dict.fromkeys(NOW, float))
class CurrentMetrics(ResponseModel):
    """Rates of the last 5 s; error rate (percent) and response time (ms) of the last 60 s; open connections."""


@having(dict.fromkeys(NOW, list[float | None]))
class MetricsSeries(ResponseModel):
    """One value for each `step` seconds from `start` on, the last one of the bucket that ended last.

    An average is null where there was no traffic.
    """

    start: Moment
    step: int


class ProxyStates(ResponseModel):
    """How many proxies there are, and by state of `runtime`; one that is inactive is `stopped`."""

    total: int
    by_state: dict[str, int]


class PoolTotals(ResponseModel):
    """How many pools there are, and by `state` of their `status`; of all their upstreams, how many are usable."""

    total: int
    by_state: dict[str, int]
    upstreams: int
    usable: int


_COUNTS = dict.fromkeys(("requests", "bytes_in", "bytes_out"), int)


@having(_COUNTS)
class TopProxy(ResponseModel):
    """A proxy by its records. `name` is null of one that was deleted."""

    id: str
    name: str | None


@having(_COUNTS)
class TopUser(ResponseModel):
    """An account by its user name in the records."""

    username: str


@having(_COUNTS)
class TopTarget(ResponseModel):
    """A host that clients asked for."""

    host: str


@having(_COUNTS)
class TopReason(ResponseModel):
    """The reason of refusals and failures."""

    reason: str


class MostUsed(ResponseModel):
    """What occurs in most access records, as of the last minute.

    Not `exact` are estimates from an even sample. `records` is `logging.access`: which requests have a record.
    """

    proxies: list[TopProxy]
    accounts: list[TopUser]
    targets: list[TopTarget]
    refusals: list[TopReason]
    exact: bool
    records: Literal["all", "errors", "off"]


class Overview(ResponseModel):
    """The first screen. Parts are null that the caller has no permission for, or whose process does not reply.

    In a fleet health, pools and what needs attention are those of the asked node, the others those of all nodes.
    """

    range: Literal["5m", "1h", "1d"]
    health: OverviewHealth
    now: CurrentMetrics | None
    series: MetricsSeries | None
    proxies: ProxyStates | None
    pools: PoolTotals | None
    top: MostUsed | None
    attention: AttentionList
    meta: NodesMeta | None = None


@dataclass(frozen=True, slots=True)
class Visibility:
    """What a caller may see: metrics and records, proxies, webhooks, users; of which proxies (None: of all)."""

    metrics: bool
    proxies: bool
    settings: bool
    users: bool
    scope: tuple[str, ...] | None = None

    @property
    def of_all(self) -> bool:
        """Whether it is no key with a scope of proxies, which sees nothing of the machine."""
        return self.scope is None


class Overviews:
    """The overviews of one API process. Thread-safe."""

    def __init__(
        self,
        bridge: Bridge,
        runtime: RuntimeQueries,
        proxies: ProxyService,
        health: HealthService,
        attention: Attention,
        access: Callable[[], str],
        pools: Callable[[], View],
        nodes: ProxiesOverNodes,
    ) -> None:
        """`access` returns the setting `logging.access`, `pools` the view of all pools."""
        self._pools = pools
        self._nodes = nodes
        self.fresh = FRESH
        self._bridge = bridge
        self._runtime = runtime
        self._proxies = proxies
        self._health = health
        self._attention = attention
        self._access = access
        self._responses = SharedValues()
        self._tops = SharedValues()

    def get(self, seen: Visibility, name: str, nodes: AskedNodes) -> bytes:
        """The body for callers who may see this; `name` is one of `RANGES`."""

        def make() -> bytes:
            return to_json({"success": True, "data": self._view(seen, name, nodes)})

        body: bytes = self._responses.get((seen, name, nodes.key), self.fresh, make)
        return body

    def hosts(self, scope: tuple[str, ...] | None, nodes: AskedNodes) -> Mapping[str, int]:
        """The hosts that clients asked these proxies for (None: all) in the last hour or so, with the records of each.

        They are the most frequent ones, none while the log indexer gives no reply.
        """
        key, hour = (scope, HOST, nodes.key), RANGES["1h"]
        counts, missing = self._tops.at_once(
            key, HOSTS_FRESH, HOSTS_STALE, lambda: self._count(scope, hour, nodes, (HOST,), HOSTS_MAX)
        )
        nodes.reasons.update({**missing, **nodes.reasons})
        return {} if counts is None else {host: records for host, records, *_ in counts.values.get(HOST, ())}

    def _view(self, seen: Visibility, name: str, nodes: AskedNodes) -> View:
        fleet = self._runtime.whole()
        status, flaws, started_at = self._health.summary(None if seen.scope is None else frozenset(seen.scope))
        found = [each for each in self._proxies.all() if seen.scope is None or each.record.id in seen.scope]
        visible = [each for each in flaws if _may_see(seen, each)]
        return {
            "range": name,
            "health": {
                "status": status,
                "lab": fleet is not None and LAB in fleet.actors,
                "version": VERSION,
                "started_at": timestamp_text(started_at),
            },
            "now": self._now(seen.scope, nodes) if seen.metrics else None,
            "series": self._series(seen.scope, RANGES[name], nodes) if seen.metrics else None,
            "proxies": self._by_state(found, {} if fleet is None else fleet.proxies, nodes) if seen.proxies else None,
            "pools": self._pools() if seen.proxies and seen.of_all else None,
            "top": self._top(seen, name, nodes) if seen.metrics else None,
            "attention": self._attention.entries(
                visible,
                seen.settings,
                seen.users,
                seen.proxies,
                seen.of_all,
                fleet,
                found if seen.proxies else (),
            ),
            **nodes.meta(),
        }

    def _now(self, scope: tuple[str, ...] | None, nodes: AskedNodes) -> View | None:
        try:
            found = realtime_of(self._bridge, nodes, NOW, scope, timeout=TIMEOUT).metrics
        except PeerUnavailable:
            return None
        return {name: round(found[name], 3) for name in NOW}

    def _series(self, scope: tuple[str, ...] | None, given: Range, nodes: AskedNodes) -> View | None:
        """Up to the last bucket that is over, so that it does not change between two buckets."""
        end = int(time.time()) // given.step * given.step
        start = end - max(given.seconds, 30 * given.step)
        try:
            found = series_of(self._bridge, nodes, QueryMetricSeries(NOW, start, end, given.step, scope), TIMEOUT)
        except PeerUnavailable:
            return None
        return {"start": timestamp_text(start), "step": given.step, **found.values}

    def _by_state(self, found: list[StoredProxy], runtimes: Mapping[str, Runtime], nodes: AskedNodes) -> View:
        if nodes.are_several:
            states = self._nodes.states(found, runtimes, nodes.ids)
        else:
            states = [runtimes[each.record.id].state if each.record.id in runtimes else "stopped" for each in found]
        return {"total": len(states), "by_state": dict(sorted(Counter(states).items()))}

    def _top(self, seen: Visibility, name: str, nodes: AskedNodes) -> View | None:
        key, max_age = (seen.scope, name, nodes.key), RANGES[name].max_age
        counts, missing = self._tops.get(key, max_age, lambda: self._count(seen.scope, RANGES[name], nodes))
        nodes.reasons.update({**missing, **nodes.reasons})
        if counts is None:
            return None
        lists = {title: _entries(counts.values.get(counted, ()), name) for title, (counted, name) in LISTS.items()}
        for entry in lists["proxies"]:
            entry["name"] = self._proxies.find_name(entry["id"])
        return {**lists, "exact": counts.exact, "records": self._access()}

    def _count(
        self,
        scope: tuple[str, ...] | None,
        given: Range,
        nodes: AskedNodes,
        counted: tuple[str, ...] = COUNTED,
        most: int = MOST,
    ) -> tuple[LogCounts | None, Mapping[str, str]]:
        """With the nodes that are missing in it, and why."""
        now = time.time()
        query = QueryLogs(now - given.seconds, now, 0, 0, None, None, scope)
        try:
            counts = LogsOverNodes(self._bridge, nodes).count(CountLogs(query, given.seconds, counted, most), TIMEOUT)
        except DomainError:
            return None, {}
        return counts, dict(nodes.reasons)


def _may_see(seen: Visibility, flaw: Flaw) -> bool:
    if flaw.resource == "proxy":
        return seen.proxies
    needed = seen.settings if flaw.resource == "webhook" else seen.proxies if is_of_pool(flaw) else seen.metrics
    return needed and seen.of_all


def _entries(values: tuple[tuple[str, int, int, int], ...], name: str) -> list[View]:
    names = (name, "requests", "bytes_in", "bytes_out")
    return [dict(zip(names, each, strict=True)) for each in values]
