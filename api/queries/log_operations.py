"""Access records: pages, a tail and an export (`api.queries.log_search`), and in numbers: over time, and by the
values of a field (`actors.logs.counting`).

Queries become searches for the log indexer. A cursor of a page contains the times of the search, its position,
the last record that its first page could see, and a checksum of the filters: all pages of a search are of the
same records.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from actors.bus.messages.records import CountLogs, LogCounts, LogPage, QueryLogs
from actors.logs.record_schema import CODES, HOST, NUMBERS
from api.call import Call, Document, Reply
from api.engine.operation import V1, get, resource
from api.engine.responses import Moment, ResponseModel, having
from api.errors import Invalid, NotFound
from api.http.query import (
    Query,
    address,
    alpn,
    checksum,
    choice,
    cursor,
    cursor_content,
    cursor_text,
    foreign_cursor,
    integer,
    moment,
    text,
)
from api.objects.accounts.account_names import may_use
from api.queries.log_search import View
from config.model.choices import LOG_LEVELS, LogLevel
from config.text.access_fields import ACCESS_FIELDS
from config.text.formatting import timestamp_text

_PAGE, _TAIL = 1, 2
_MOST = 2**63 - 1
_LATEST = 1e12


@dataclass(frozen=True, slots=True)
class PageCursor:
    """`position` is (microseconds, number); see `actors.bus.messages.records.LogPage`."""

    start: float
    end: float
    position: tuple[int, int]
    upto: int
    filters: int

    def text(self) -> str:
        """As `next_cursor`."""
        return cursor_text([_PAGE, self.start, self.end, *self.position, self.upto, self.filters])

    @classmethod
    def of(cls, text: str) -> PageCursor:
        """Raises `ValueError`."""
        content = cursor_content(text, _PAGE, 6)
        start, end, *numbers = content
        if not (_is_time(start) and _is_time(end) and all(map(_is_number, numbers))):
            raise foreign_cursor()
        time, number, upto, filters = numbers
        return cls(float(start), float(end), (time, number), upto, filters)


def tail_text(after: int) -> str:
    """The cursor of a tail that continues after this record."""
    return cursor_text([_TAIL, after])


def tail_of(text: str) -> int:
    """The inverse of `tail_text`. Raises `ValueError`."""
    (after,) = cursor_content(text, _TAIL, 1)
    if not _is_number(after):
        raise foreign_cursor()
    return int(after)


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and 0 <= value < _LATEST


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MOST


STATUS_CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")
HOUR = 3600.0
SEARCH_MAX = 500
WORDS_MAX = 20
OFFSET_MAX = 100_000
TAIL_MAX = 30
"""Seconds that a tail waits at most."""
_CURSOR = "^[A-Za-z0-9_-]{1,200}$"

_TRANSLATED = {"proxy_id", "status_class", "user", "account"}
"""Parameters that are none of the search."""


class Whose(NamedTuple):
    """The proxies and the user of the records; None for all."""

    proxy_ids: tuple[str, ...] | None
    user: str | None


def _read_words(value: str) -> str | None:
    if len(value.split()) > WORDS_MAX:
        raise ValueError(f"must have at most {SEARCH_MAX} characters and {WORDS_MAX} words")
    return value or None


class LogTimes(Query):
    """The time range; the last hour by default."""

    start_time: float | None = moment("Not before; an hour ago by default")
    end_time: float | None = moment("Not after; now by default")

    def times(self) -> tuple[float, float]:
        """Start and end, Unix seconds."""
        now = time.time()
        start, end = self.start_time, self.end_time
        return now - HOUR if start is None else start, now if end is None else end


class LogFilters(Query):
    """Filters of records."""

    level: str | None = choice("Only of this level", LOG_LEVELS)
    min_level: str | None = choice("Only of this level or above", LOG_LEVELS)
    client_ip: str | None = address("Only of this client")
    status_code: int | None = integer("Only with this status", 100, 599)
    status_class: str | None = choice("Only with a status of this class", STATUS_CLASSES)
    user: str | None = text("Only of this client user", "alice", 255, 1)
    account: str | None = text(
        "Only of this account of the fleet; its id. By its present user name, at proxies that it may use",
        "acc_0123456789abcdef",
        128,
        1,
    )
    credential: str | None = text("Only with this credential; its id", "crd_0123456789abcdef", 128, 1)
    request_id: str | None = text("Only of the request with this id", "4f1d2c3b0000002a", 128, 1)
    listen_port: int | None = integer("Only of clients that came to this port of the proxy", 1, 65535)
    tls_name: str | None = text(
        "Only with this text in the name of the TLS handshake; case-insensitive for A to Z", "example.com", 255, 1
    )
    alpn: str | None = alpn("Only of clients that offered this protocol in their TLS handshake")
    method: str | None = text("Only with this method; `CONNECT` of tunnels", "GET", 64, 1)
    target: str | None = text(
        "Only with this text in the target; case-insensitive for A to Z", "example.com", SEARCH_MAX, 1
    )
    reason: str | None = text(
        "Only with this reason; `reported` is all of rules in report mode (`reported:…`)", "dns_error", 128, 1
    )
    search: str | None = text(
        "Words that must all occur, each as a part of a field", "example.com", SEARCH_MAX, read=_read_words
    )
    proxy_id: str | None = text("Only of this proxy", "prx_0123456789abcdef", 128)

    def filtered(self, whose: Whose, start: float = 0.0, end: float = 0.0, limit: int = 0) -> QueryLogs:
        """The search with these filters."""
        filters = {name: getattr(self, name) for name in LogFilters.parameters.keys() - _TRANSLATED}
        hundreds = None if self.status_class is None else int(self.status_class[0])
        return QueryLogs(start, end, limit, 0, status_class=hundreds, **whose._asdict(), **filters)


class SearchLogs(LogTimes, LogFilters):
    """Filters of records, and the page."""

    limit: int = integer("The size of the page", 1, 1000, 100)
    offset: int = integer("How many records to skip", 0, OFFSET_MAX, 0)
    cursor: PageCursor | None = cursor(
        "The `next_cursor` of the previous page, with the same filters",
        "lwHLQdrSdIAAAADLQdrSeAQAAADPAAZlFyiYgAAFCc4AvGFO",
        _CURSOR,
        PageCursor.of,
    )

    def page(self, whose: Whose) -> QueryLogs:
        """The search for the page. Raises `Invalid` for a cursor of another search."""
        page = self.cursor
        if page is None:
            return replace(self.filtered(whose, *self.times(), self.limit), offset=self.offset)
        for name, given, value in (("start_time", self.start_time, page.start), ("end_time", self.end_time, page.end)):
            if given not in (None, value):
                raise Invalid(name, "must be that of the first page, or be left out")
        if self.offset:
            raise Invalid("offset", "must be left out where a cursor is given")
        search = self.filtered(whose, page.start, page.end, self.limit)
        if _checksum(search) != page.filters:
            raise Invalid("cursor", "is of a search with other filters")
        return replace(search, before=page.position, upto=page.upto)


class FollowLogs(LogFilters):
    """Filters of records, the record to continue after, and how long to wait."""

    limit: int = integer("The size of the page", 1, 1000, 100)
    timeout: int = integer("Seconds to wait for a record", 0, TAIL_MAX, 20)
    cursor: int | None = cursor(
        "The `next_cursor` of the previous response, or the `tail_cursor` of a page; without it, only new records",
        "kgIC",
        _CURSOR,
        tail_of,
    )


class ExportLogs(LogTimes, LogFilters):
    """Filters of records."""


def next_cursor(search: QueryLogs, page: LogPage) -> str | None:
    """Of the page that follows; None after the last one."""
    if page.next is None:
        return None
    return PageCursor(search.start, search.end, page.next, page.upto, _checksum(search)).text()


def _checksum(search: QueryLogs) -> int:
    first = [search.level, search.min_level, search.client_ip, search.status_code, search.search, search.proxy_ids]
    then = [search.status_class, search.user, search.method, search.reason, search.target]
    added = [] if search.credential is None else [search.credential]
    added += [] if search.request_id is None else ["request_id", search.request_id]
    added += [] if search.listen_port is None else ["listen_port", str(search.listen_port)]
    added += [] if search.tls_name is None else ["tls_name", search.tls_name]
    added += [] if search.alpn is None else ["alpn", search.alpn]
    return checksum([*first, *then, *added])


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
    "rule",
    "parent",
    "tls_name",
    "tls_version",
)
"""The fields whose values are counted; `target_host` is the host of the target."""


@having({name: int if name in (*NUMBERS, *CODES) else str for name in ACCESS_FIELDS})
class LogEntry(ResponseModel):
    """One access record; `response_time` and `duration` in milliseconds."""

    timestamp: Moment
    level: LogLevel
    message: str
    proxy_name: str


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


class LogTail(ResponseModel):
    """Records in the order in which they were stored; `next_cursor` is that of the next request."""

    logs: list[LogEntry]
    next_cursor: str


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


def query_logs(call: Call) -> Reply:
    """Search access records.

    Returns the access records that match, newest first. Follow `next_cursor` for older ones; a search that exceeds its
    time limit returns what it found so far.
    """
    query: SearchLogs = call.query
    search = query.page(whose_records(call))
    page = call.services.log_search.page(search)
    following = next_cursor(search, page)
    data = {
        "logs": list(map(_view(call), page.rows)),
        "total": page.total,
        "total_is_lower_bound": page.at_least,
        "has_more": following is not None,
        "next_cursor": following,
        "tail_cursor": tail_text(page.upto),
    }
    return Reply(data)


def tail_logs(call: Call) -> Reply:
    """Wait for new access records.

    Waits until records arrive that match, or until `timeout` seconds have passed. Pass `next_cursor` of the response
    as `cursor` of the next request, so that no record is missed.
    """
    query: FollowLogs = call.query
    search = query.filtered(whose_records(call), limit=query.limit)
    tail = call.services.log_search.tail(search, query.cursor, query.timeout, call.caller.user.id)
    return Reply({"logs": list(map(_view(call), tail.rows)), "next_cursor": tail_text(tail.last)})


def export_logs(call: Call) -> Reply:
    """Export access records.

    Streams all matching access records, newest first, as one JSON object per line. A response that cannot be completed
    breaks off without its last chunk.
    """
    query: ExportLogs = call.query
    search = query.filtered(whose_records(call), *query.times())
    lines = call.services.log_search.export(search, _view(call), call.caller.user.id)
    headers = {"Content-Disposition": 'attachment; filename="access.ndjson"'}
    return Reply({}, headers=headers, document=Document(lines, NDJSON))


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


def histogram(call: Call) -> Reply:
    """Count access records over time.

    Returns how many of the matching access records there are in each bucket of time, and how many of them have failed:
    with a status from 400 on, or refused when their tunnel was already announced with 200. What would take longer than
    half a second is estimated from an even sample.
    """
    query: HistogramQuery = call.query
    start, end = _times(query)
    step = _step(end - start, query.buckets)
    counts = _counted(call, CountLogs(query.filtered(whose_records(call), start, end), step))
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
    start, end = _times(query)
    whole = max(1, int(end - start) + 1)
    search = query.filtered(whose_records(call), start, end)
    counts = _counted(call, CountLogs(search, whole, (query.field,), query.limit))
    visible = call.upstreams if query.field == "parent" else None
    names = ("value", "records", "bytes_in", "bytes_out")
    found = [dict(zip(names, each, strict=True)) for each in counts.values.get(query.field, ())]
    if visible is not None:
        found = [each for each in found if each["value"] in visible]
    return Reply({"field": query.field, "values": found, "total": sum(counts.records), "exact": counts.exact})


def _counted(call: Call, message: CountLogs) -> LogCounts:
    return call.services.log_search.count(message, call.caller.user.id)


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
