"""The first screen in one response."""

from __future__ import annotations

from typing import Literal

from api.call import Call, Document, Reply
from api.engine.responses import having
from api.http.query import Query, choice
from api.openapi.schemas.base import HealthState, Moment, Reason, ResponseModel
from api.services.overview import NOW, RANGES, Sight


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


class TopProxy(ResponseModel):
    """A proxy by its records. `name` is null of one that was deleted."""

    id: str
    name: str | None
    requests: int
    bytes_in: int
    bytes_out: int


class TopUser(ResponseModel):
    """An account by its user name in the records."""

    username: str
    requests: int
    bytes_in: int
    bytes_out: int


class TopTarget(ResponseModel):
    """A host that clients asked for."""

    host: str
    requests: int
    bytes_in: int
    bytes_out: int


class TopReason(ResponseModel):
    """The reason of refusals and failures."""

    reason: str
    requests: int
    bytes_in: int
    bytes_out: int


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


class AttentionEntry(ResponseModel):
    """Something to look after, once for each cause.

    `kind`, `id` and `name` are those of the resource to go to: of a certificate the proxy that serves it, and no id for
    the API's own. `error` is a sentence in English; `reason` with the fields below is what others are made of.
    """

    severity: Literal["error", "warning"]
    kind: Literal["proxy", "pool", "list", "account", "certificate", "actor", "webhook", "user", "disk", "memory"]
    id: str | None
    name: str | None
    reason: (
        Reason
        | Literal[
            "list_fetch_failed",
            "pool_fetch_failed",
            "quota_reached",
            "webhook_failing",
            "webhook_disabled",
            "deliveries_given_up",
            "certificate_ends",
            "disk_full",
            "memory_full",
            "first_password",
        ]
    )
    error: str
    since: Moment | None
    count: int
    """How many parts of the resource it is about, such as upstreams; 1 for the resource itself."""
    parts: list[str]
    """The names of at most five of these."""
    upstream: str | None
    """The upstream, if it is about one alone."""
    fix: Literal["restart", "test", "fetch", "enable", "change_password"] | None
    """What may mend it: an operation on the resource."""
    detail: str | None
    """What was found, in English: a part of `error`."""
    percent: int | None
    """Of a full disk or memory: how much is in use."""
    ends_at: Moment | None
    """Of a certificate."""
    fetched_at: Moment | None
    """Of a list: when its content was fetched; null without content, when rules that deny it deny everything."""


class AttentionList(ResponseModel):
    """What needs attention, errors first; `entries` are at most 100 of `total`."""

    total: int
    entries: list[AttentionEntry]


class Overview(ResponseModel):
    """The first screen. Parts are null that the caller has no permission for, or whose process does not reply."""

    range: Literal["5m", "1h", "1d"]
    health: OverviewHealth
    now: CurrentMetrics | None
    series: MetricsSeries | None
    proxies: ProxyStates | None
    pools: PoolTotals | None
    top: MostUsed | None
    attention: AttentionList


class OverviewRange(Query):
    """The time that lists and series look back on."""

    range: str = choice("What is used most in the last 5 minutes, hour or day, and the series", tuple(RANGES), "1h")


def overview(call: Call) -> Reply:
    """Show the state of everything at a glance.

    Returns health, current metrics with a short series, proxies by state, what is used most, and what needs attention.
    Parts that the caller has no permission for are null. Poll it with `If-None-Match`; it is made once a second for
    all.
    """
    caller = call.caller
    scope = None if caller.scope is None else tuple(sorted(caller.scope))
    sight = Sight(
        metrics=caller.may("metrics.read"),
        proxies=caller.may("proxy.read"),
        settings=caller.may("settings.read"),
        users=caller.may("users.read"),
        scope=scope,
    )
    return Reply({}, document=Document(call.services.overviews.get(sight, call.query.range), "application/json"))
