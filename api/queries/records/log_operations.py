"""The operations on access records: pages, a tail and an export (`log_search`), and in numbers: over time, and by the
values of a field (`actors.logs.counting`)."""

from __future__ import annotations

from functools import partial
from typing import Any

from actors.bus.messages.records import CountLogs, LogCounts, QueryLogs
from actors.logs.record_schema import CODES, HOST, NUMBERS, OUTCOME
from api.call import Call, RawBody, Reply
from api.engine.operation import V1, get, resource
from api.engine.responses import Moment, NodesMeta, ResponseModel, having
from api.errors import Invalid, NotFound
from api.http.query import choice, integer
from api.objects.accounts.account_names import may_use
from api.objects.nodes.asked_nodes import AskedNodes
from api.queries.records.log_search import (
    ExportLogs,
    FollowLogs,
    LogFilters,
    LogTimes,
    PageCursor,
    SearchLogs,
    View,
    Whose,
    next_cursor,
    next_cursor_of_nodes,
    tail_text,
)
from api.queries.records.logs_over_nodes import NodesCursor
from api.queries.records.logs_over_nodes import tail_text as tail_text_of_nodes
from config.model.choices import LogLevel
from config.text.access_fields import ACCESS_FIELDS
from config.text.formatting import timestamp_text

OTHER_NODES = "is of a search over other nodes: begin again"
NDJSON = "application/x-ndjson"
STEPS = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10_800, 21_600, 43_200, 86_400, 604_800)
"""Seconds that a bucket may be wide."""
BUCKETS_MAX = 500
FIELDS = (
    HOST,
    "proxy_id",
    "client_ip",
    "user",
    "credential",
    "method",
    "status_code",
    "level",
    "reason",
    OUTCOME,
    "rule",
    "parent",
    "tls_name",
    "tls_version",
)
"""The fields whose values are counted; `target_host` is the host of the target."""
FACETS = (OUTCOME, "status_code", "reason", "proxy_id", "user", HOST)
"""Those that are counted together."""


@having({name: int if name in (*NUMBERS, *CODES) else str for name in ACCESS_FIELDS})
class LogEntry(ResponseModel):
    """One access record; `response_time` and `duration` in milliseconds. `node` has it, in a fleet of several."""

    timestamp: Moment
    level: LogLevel
    message: str
    proxy_name: str
    node: str | None = None


class Logs(ResponseModel):
    """Records, newest first. `total` counts all pages; `next_cursor` is null on the last one.

    If counting takes too long, `total` is a lower bound. `tail_cursor` is the cursor of a tail that follows.
    """

    logs: list[LogEntry]
    total: int
    total_is_lower_bound: bool
    has_more: bool
    next_cursor: str | None
    tail_cursor: str
    meta: NodesMeta | None = None


class LogTail(ResponseModel):
    """Records in the order in which they were stored; `next_cursor` is that of the next request."""

    logs: list[LogEntry]
    next_cursor: str
    meta: NodesMeta | None = None


class LogHistogram(ResponseModel):
    """Records, and of them the failed ones, of each `step` seconds from `start` on.

    Failed is a status from 400 on, and a refusal of a tunnel that was already announced with 200. Not `exact` are
    estimates from an even sample.
    """

    start: Moment
    step: int
    records: list[int]
    failed: list[int]
    total: int
    exact: bool
    meta: NodesMeta | None = None


class CountedValue(ResponseModel):
    """A value of the field, with its records."""

    value: str
    records: int
    bytes_in: int
    bytes_out: int


class LogValues(ResponseModel):
    """The most frequent values, of `total` records. Not `exact` are estimates from an even sample."""

    field: str
    values: list[CountedValue]
    total: int
    exact: bool
    meta: NodesMeta | None = None


class NamedValue(CountedValue):
    """A value of the field, with its records. `name` is that of a proxy, else the value."""

    name: str


class LogFacet(ResponseModel):
    """The most frequent values of a field."""

    field: str
    values: list[NamedValue]


class LogFacets(ResponseModel):
    """The most frequent values of some fields, of `total` records. Not `exact` are estimates from an even sample."""

    facets: list[LogFacet]
    total: int
    exact: bool
    meta: NodesMeta | None = None


def query_logs(call: Call) -> Reply:
    """Search access records.

    Returns the access records that match, newest first. Follow `next_cursor` for older ones; a search that exceeds its
    time limit returns what it found so far.
    """
    query: SearchLogs = call.query
    nodes = call.nodes
    search = query.page(whose_records(call))
    if nodes.are_several:
        return _page_of_nodes(call, search, nodes)
    if isinstance(query.cursor, NodesCursor):
        raise Invalid("cursor", OTHER_NODES)
    page = call.services.log_search.page(search)
    return Reply(_page_view(call, page, next_cursor(search, page), tail_text(page.upto)))


def _page_of_nodes(call: Call, search: QueryLogs, nodes: AskedNodes) -> Reply:
    position = call.query.cursor
    if isinstance(position, PageCursor):
        raise Invalid("cursor", OTHER_NODES)
    page = call.services.log_search.over(nodes).page(search, {} if position is None else position.positions)
    following = next_cursor_of_nodes(search, page)
    return Reply(_page_view(call, page, following, tail_text_of_nodes(page.upto)))


def _page_view(call: Call, page: Any, following: str | None, tail: str | None) -> dict[str, Any]:
    """A page of access records, of this node or of several."""
    return {
        "logs": list(map(_view(call), page.rows)),
        "total": page.total,
        "total_is_lower_bound": page.at_least,
        "has_more": following is not None,
        "next_cursor": following,
        "tail_cursor": tail,
    }


def tail_logs(call: Call) -> Reply:
    """Wait for new access records.

    Waits until records arrive that match, or until `timeout` seconds have passed. Pass `next_cursor` of the response
    as `cursor` of the next request, so that no record is missed.
    """
    query: FollowLogs = call.query
    search, nodes, after = query.filtered(whose_records(call), limit=query.limit), call.nodes, query.cursor
    if isinstance(after, int if nodes.are_several else dict):
        raise Invalid("cursor", OTHER_NODES)
    if not isinstance(after, int) and nodes.are_several:
        found = call.services.log_search.tail_of_nodes(search, after or {}, query.timeout, call.caller.user.id, nodes)
        views = list(map(_view(call), found.rows))
        return Reply({"logs": views, "next_cursor": tail_text_of_nodes(found.after)})
    assert not isinstance(after, dict)
    tail = call.services.log_search.tail(search, after, query.timeout, call.caller.user.id)
    return Reply({"logs": list(map(_view(call), tail.rows)), "next_cursor": tail_text(tail.last)})


def export_logs(call: Call) -> Reply:
    """Export access records.

    Streams all matching access records, newest first, as one JSON object per line. A response that cannot be completed
    breaks off without its last chunk.
    """
    query: ExportLogs = call.query
    search = query.filtered(whose_records(call), *query.times())
    nodes = call.nodes
    lines = call.services.log_search.export(search, _view(call), call.caller.user.id, nodes)
    headers = {"Content-Disposition": 'attachment; filename="access.ndjson"'}
    return Reply({}, headers=headers, document=RawBody(lines, NDJSON))


def whose_records(call: Call) -> Whose:
    """Whose records the query asks for. Raises `Invalid`."""
    query: LogFilters = call.query
    if query.account is None:
        return Whose(call.proxy_ids, query.user)
    if query.user is not None:
        raise Invalid("user", "must be left out where an account is given")
    try:
        account = call.services.fleet_accounts.get(query.account).record
    except NotFound as error:
        raise Invalid("account", "there is no such account") from error
    if account.proxies.all:
        return Whose(call.proxy_ids, account.username)
    used = (each.record for each in call.services.proxies.all() if may_use(account.proxies, each.record))
    found = (each.id for each in used if call.proxy_ids is None or each.id in call.proxy_ids)
    return Whose(tuple(found), account.username)


def _view(call: Call) -> View:
    addresses = call.caller.may("proxy.write")
    return partial(call.services.log_search.view, with_addresses=addresses, upstreams=call.upstreams)


class HistogramQuery(LogTimes, LogFilters):
    """Filters of records, and how fine the buckets are."""

    buckets: int = integer("The number of buckets at most; their width is rounded up", 1, BUCKETS_MAX, 60)


class ValuesQuery(LogTimes, LogFilters):
    """Filters of records, and the field."""

    field: str = choice("The field whose values are counted", FIELDS, HOST)
    limit: int = integer("The number of values at most", 1, 100, 10)


class FacetsQuery(LogTimes, LogFilters):
    """Filters of records, and how many values."""

    limit: int = integer("The number of values of each field at most", 1, 100, 10)


def histogram(call: Call) -> Reply:
    """Count access records over time.

    Returns how many of the matching access records there are in each bucket of time, and how many of them have failed:
    with a status from 400 on, or refused when their tunnel was already announced with 200. What would take longer than
    half a second is estimated from an even sample.
    """
    query: HistogramQuery = call.query
    start, end = _times(query)
    step = _step(end - start, query.buckets)
    nodes = call.nodes
    counts = _counted(call, CountLogs(query.filtered(whose_records(call), start, end), step), nodes)
    data = {
        "start": timestamp_text(counts.start),
        "step": step,
        "records": list(counts.records),
        "failed": list(counts.failed),
        "total": sum(counts.records),
        "exact": counts.exact,
    }
    return Reply(data)


def values(call: Call) -> Reply:
    """Count access records by the values of a field.

    Returns the values with most of the matching access records, such as the hosts that clients ask for. What would take
    longer than half a second is estimated from an even sample.
    """
    query: ValuesQuery = call.query
    counts = _values_of(call, (query.field,))
    visible = call.upstreams if query.field == "parent" else None
    found = _values(counts, query.field)
    if visible is not None:
        found = [each for each in found if each["value"] in visible]
    data = {"field": query.field, "values": found, "total": sum(counts.records), "exact": counts.exact}
    return Reply(data)


def facets(call: Call) -> Reply:
    """Count access records by the values of the usual fields.

    Returns what `/logs/values` does for each of some fields at once: what became of the request, status, reason, proxy,
    user and host of the target. What would take longer than half a second is estimated from an even sample.
    """
    counts = _values_of(call, FACETS)
    name_of = {"proxy_id": call.services.log_search.name_of}

    def named(field: str) -> list[dict[str, Any]]:
        return [{**each, "name": name_of.get(field, str)(each["value"])} for each in _values(counts, field)]

    found = [{"field": field, "values": named(field)} for field in FACETS]
    return Reply({"facets": found, "total": sum(counts.records), "exact": counts.exact})


def _values_of(call: Call, fields: tuple[str, ...]) -> LogCounts:
    query: ValuesQuery | FacetsQuery = call.query
    start, end = _times(query)
    whole = max(1, int(end - start) + 1)
    search = query.filtered(whose_records(call), start, end)
    return _counted(call, CountLogs(search, whole, fields, query.limit), call.nodes)


def _values(counts: LogCounts, field: str) -> list[dict[str, Any]]:
    names = ("value", "records", "bytes_in", "bytes_out")
    return [dict(zip(names, each, strict=True)) for each in counts.values.get(field, ())]


def _counted(call: Call, message: CountLogs, nodes: AskedNodes) -> LogCounts:
    return call.services.log_search.count(message, call.caller.user.id, nodes)


def _times(query: LogTimes) -> tuple[float, float]:
    start, end = query.times()
    if start > end:
        raise Invalid("start_time", "must not be after end_time")
    if (end - start) / STEPS[-1] > BUCKETS_MAX:
        raise Invalid("start_time", f"must not be more than {BUCKETS_MAX} weeks before end_time")
    return start, end


def _step(seconds: float, buckets: int) -> int:
    """The narrowest of `STEPS` with which there are at most so many buckets, one that is cut at each end included."""
    return next((step for step in STEPS if seconds / step + 1 <= buckets), _weeks(seconds, buckets))


def _weeks(seconds: float, buckets: int) -> int:
    week = STEPS[-1]
    return week * max(1, -int(-seconds // (week * max(1, buckets - 1))))


ROWS = resource(V1, read="metrics.read")(
    get("/logs", "queryLogs", query_logs, Logs, query=SearchLogs, scoped=True),
    get("/logs/tail", "tailLogs", tail_logs, LogTail, query=FollowLogs, scoped=True),
    get("/logs/histogram", "countLogs", histogram, LogHistogram, query=HistogramQuery, scoped=True),
    get("/logs/values", "countLogValues", values, LogValues, query=ValuesQuery, scoped=True),
    get("/logs/facets", "countLogFacets", facets, LogFacets, query=FacetsQuery, scoped=True),
    get(
        "/logs/export",
        "exportLogs",
        export_logs,
        query=ExportLogs,
        produces=NDJSON,
        scoped=True,
        streams=True,
    ),
)
