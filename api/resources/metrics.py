"""Metrics over time, and those of this moment. A key with a scope sees those of the proxies in it alone."""

from __future__ import annotations

import time
from typing import Any

from actors.bus.messages.common import METRICS
from actors.metrics.catalogue import INTERVALS, NAMES
from api.errors import Invalid, MissingPermission, NotFound, PeerUnavailable
from api.http.call import Call, Document, Reply
from api.http.query import Query
from api.resources.proxy_scope import meant_proxies
from api.services.metrics import Proxy, read_realtime, read_series
from api.services.proxy_upstreams import ask_all_upstreams
from api.services.proxy_views import listed
from config.text.formatting import timestamp_text

HOUR = 3600.0
POINTS_MAX = 11_000
"""Buckets of an answer. More than is kept of any interval."""
DEFAULT_INTERVAL = "5m"
INCLUDED = ("proxies",)
"""What the snapshot can have beside its figures."""


def query_metrics(call: Call) -> Reply:
    """Query metrics over time.

    Returns a series of points for each metric, aligned to `interval`. A rate is 0 where there was no traffic; an
    average has no point there.
    """
    query = call.query
    wanted, proxy_ids = query.text("proxy_id"), meant_proxies(call)
    query.refuse_others()
    names = _names(query)
    interval = query.one_of("interval", INTERVALS) or DEFAULT_INTERVAL
    end = query.moment("end_time", time.time())
    start = query.moment("start_time", end - HOUR)
    if start > end:
        raise Invalid("start_time", "must not be after end_time")
    if (end - start) / INTERVALS[interval] > POINTS_MAX:
        raise Invalid("interval", f"is too short for this time: the answer would have more than {POINTS_MAX} points")
    _must_exist(call, wanted)
    until = min(end, time.time())
    series = read_series(call.services.bridge, names, start, until, interval, proxy_ids, wanted is not None)
    time_range = {"start": timestamp_text(start), "end": timestamp_text(end), "interval": interval}
    return Reply({"time_range": time_range, "metrics": series})


def realtime(call: Call) -> Reply:
    """Show current metrics.

    Returns one number for each metric, not older than two seconds. Subscribe to the metrics socket instead of polling
    when you need a value each second.
    """
    wanted, proxy_ids = call.query.text("proxy_id"), meant_proxies(call)
    call.query.refuse_others()
    included = call.query.one_of("include", INCLUDED)
    if included is not None and not call.caller.may("proxy.read"):
        raise MissingPermission("proxy.read", by_key=call.caller.key is not None)
    _must_exist(call, wanted)
    snapshot = read_realtime(call.services.bridge, proxy_ids, wanted is not None)
    metrics = {name: round(value, 3) for name, value in snapshot.metrics.items()}
    data: dict[str, Any] = {"timestamp": timestamp_text(snapshot.timestamp), "metrics": metrics}
    if included is not None:
        found = [each for each in call.services.proxies.all() if proxy_ids is None or each.record.id in proxy_ids]
        data["proxies"] = listed(call.services.fleet, found)
    return Reply(data)


def exposition(call: Call) -> Reply:
    """Prometheus metrics.

    Returns all counters and gauges in the text format of Prometheus. A scraper may send `metrics.prometheus_token` as
    bearer token instead of the credentials of a user.
    """
    from api.services.prometheus import MEDIA_TYPE, Parts, expose

    caller, services = call.identified, call.services  # no caller: it came with `metrics.prometheus_token`
    scope = None if caller is None else caller.scope
    records = [each.record for each in services.proxies.all() if scope is None or each.record.id in scope]
    ids = tuple(each.id for each in records)
    totals = services.fleet.totals(ids) if ids else {}
    if totals is None:
        raise PeerUnavailable(METRICS, "no answer")
    fleet = services.fleet.whole()
    system = services.fleet.system() if scope is None else None
    described = [Proxy(each.id, each.name, each.protocol, each.status == "active") for each in records]
    sender = services.webhooks.sender_state() if scope is None else None
    hooks = [] if sender is None else services.webhooks.with_statuses()
    parts = Parts(ask_all_upstreams(services.bridge, records), hooks)
    text = expose(described, totals, {} if fleet is None else fleet.proxies, system, sender, parts)
    return Reply({}, document=Document(text, MEDIA_TYPE))


def _names(query: Query) -> tuple[str, ...]:
    given = query.text("metrics")
    if given is None:
        return NAMES
    names = tuple(dict.fromkeys(each.strip() for each in given.split(",")))
    for name in names:
        if name not in NAMES:
            raise Invalid("metrics", f"unknown metric {name[:50]!r}; allowed: {', '.join(NAMES)}")
    return names


def _must_exist(call: Call, proxy_id: str | None) -> None:
    if proxy_id is not None and call.services.store.get("proxies", proxy_id) is None:
        raise NotFound("The proxy")
