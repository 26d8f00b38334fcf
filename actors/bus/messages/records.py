"""Queries of access records."""

from __future__ import annotations

from typing import Any

from actors.bus.codec import message


@message
class QueryLogs:
    """API or telemetry → log indexer: records, newest first. → `LogPage` or `Failed`.

    `search` is words that must all occur.

    `level` is exact, `min_level` at least; `status_class` is the first digit of the status; `target` and `tls_name` are
    parts of the field, whatever the case of A to Z; `alpn` is one of those that are offered; `outcome` is one of
    `config.model.choices.OUTCOMES`; the others are exact; None means all.
    `start` and `end` are Unix seconds; `proxy_ids` None means all. `before` and `upto` are `next` and `upto` of the
    page that this one follows. Without `count` the total is not counted; with `keyed` the page has the `keys`.
    """

    start: float
    end: float
    limit: int
    offset: int
    level: str | None
    search: str | None
    proxy_ids: tuple[str, ...] | None
    min_level: str | None = None
    client_ip: str | None = None
    status_code: int | None = None
    before: tuple[int, int] | None = None
    upto: int | None = None
    count: bool = True
    status_class: int | None = None
    user: str | None = None
    method: str | None = None
    reason: str | None = None
    target: str | None = None
    credential: str | None = None
    request_id: str | None = None
    listen_port: int | None = None
    tls_name: str | None = None
    alpn: str | None = None
    keyed: bool = False
    outcome: str | None = None


@message
class LogPage:
    """Log indexer → API: the rows as maps with the names of `records.ACCESS_FIELDS`, and how many there are in all.

    `at_least`: there are `total` and perhaps more; counting all would have taken too long. `next` (time in
    microseconds, number of a record) is where the next page begins, None after the last one. `upto` is the number of
    the last record that was stored when the search began. `keys` are where a page would begin that follows each of the
    rows.
    """

    rows: tuple[dict[str, Any], ...]
    total: int
    at_least: bool = False
    next: tuple[int, int] | None = None
    upto: int = 0
    keys: tuple[tuple[int, int], ...] = ()


@message
class TailLogs:
    """API or telemetry → log indexer: what was stored after record `after`. → `LogTailPage` or `Failed`.

    None is from now on.
    The reply is sent as soon as there is something that `query` finds (whose times and offset don't count), or after
    `wait` seconds, at most 30.
    """

    query: QueryLogs
    after: int | None
    wait: float


@message
class LogTailPage:
    """Log indexer → API: rows as in `LogPage`, in the order in which they were stored; `last` is the next `after`."""

    rows: tuple[dict[str, Any], ...]
    last: int


@message
class CountLogs:
    """API → log indexer: how many records `query` finds over time, and the most frequent values of `fields`.

    Buckets of `step` seconds begin at the multiple of `step` at or before the start. Of each field (a facet of
    `actors.logs.record_schema`, `HOST` for the host of the target, or `OUTCOME`) the `most` values with most records.
    The page of `query` does not count. → `LogCounts` or `Failed`.
    """

    query: QueryLogs
    step: int
    fields: tuple[str, ...] = ()
    most: int = 10


@message
class LogCounts:
    """Log indexer → API: records of each bucket, and of them the failed ones; the values of each field.

    Failed is a status from 400 on, and a refusal of a tunnel that was already announced with 200 (a warning).

    A value has its records, `bytes_in` and `bytes_out`; the empty one is left out. Where counting all would have taken
    too long, `exact` is False and the numbers are estimated from an even sample.
    """

    start: int
    records: tuple[int, ...]
    failed: tuple[int, ...]
    values: dict[str, tuple[tuple[str, int, int, int], ...]]
    exact: bool
