"""Access records in numbers: over time, and by the values of a field (`actors.logs.counting`)."""

from __future__ import annotations

from actors.bus.messages.records import CountLogs, LogCounts
from actors.logs.record_schema import HOST
from api.call import Call, Reply
from api.errors import Invalid
from api.http.query import choice, integer
from api.resources.log_queries import LogFilters, LogTimes
from api.resources.logs import whose_records
from config.text.formatting import timestamp_text

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


class LogHistogram(LogTimes, LogFilters):
    """Filters of records, and how fine the buckets are."""

    buckets: int = integer("The number of buckets at most; their width is rounded up", 1, BUCKETS_MAX, 60)


class LogValues(LogTimes, LogFilters):
    """Filters of records, and the field."""

    field: str = choice("The field whose values are counted", FIELDS, HOST)
    limit: int = integer("The number of values at most", 1, 100, 10)


def histogram(call: Call) -> Reply:
    """Count access records over time.

    Returns how many of the matching access records there are in each bucket of time, and how many of them have failed:
    with a status from 400 on, or refused when their tunnel was already announced with 200. What would take longer than
    half a second is estimated from an even sample.
    """
    query: LogHistogram = call.query
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
    query: LogValues = call.query
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
