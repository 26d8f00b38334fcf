"""Access records, asked of the log indexer: pages, a tail that waits for new ones, and all of them as lines."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from actors.bus.messages.common import LOGS, Failed
from actors.bus.messages.records import LogPage, LogTail, QueryLogs, TailLogs
from api.call import Call, Document, Reply
from api.concurrency_limit import Slot
from api.errors import Invalid, PeerUnavailable
from api.http.errors import internal
from api.http.query import Query, address, choice, cursor, integer, moment, text
from api.resources.log_cursors import PageCursor, checksum, tail_of, tail_text
from config.text.access_fields import PROXY_NAME, message_of
from config.text.escaping import printable, printable_json
from config.text.formatting import timestamp_text
from config.text.name_addresses import without_address

LEVELS = ("debug", "info", "warning", "error", "critical")
STATUS_CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")
HOUR = 3600.0
SEARCH_MAX = 500
WORDS_MAX = 20
OFFSET_MAX = 100_000
TAIL_MAX = 30
"""Seconds that a tail waits at most."""
TAIL_SLICE = 1.0
"""Seconds after which a tail that waits looks whether the API is ending."""
EXPORT_PAGE = 2_000
"""Records that an export holds in memory at a time."""
SEARCH_TIMEOUT = 10.0
NDJSON = "application/x-ndjson"
_CURSOR = "^[A-Za-z0-9_-]{1,200}$"


def _read_words(value: str) -> str | None:
    if len(value.split()) > WORDS_MAX:
        raise ValueError(f"must have at most {SEARCH_MAX} characters and {WORDS_MAX} words")
    return value or None


class LogTimes(Query):
    """Records of when."""

    start_time: float | None = moment("Not before; an hour ago by default")
    end_time: float | None = moment("Not after; now by default")

    def times(self) -> tuple[float, float]:
        """Start and end, Unix seconds."""
        now = time.time()
        start, end = self.start_time, self.end_time
        return now - HOUR if start is None else start, now if end is None else end


class LogFilters(Query):
    """Which records."""

    level: str | None = choice("Exactly this level", LEVELS)
    min_level: str | None = choice("At least this level", LEVELS)
    client_ip: str | None = address("Only of this client")
    status_code: int | None = integer("Only with this status", 100, 599)
    status_class: str | None = choice("Only with a status of this hundred", STATUS_CLASSES)
    user: str | None = text("Only of this user of the proxy", "alice", 255, 1)
    method: str | None = text("Only with this method; `CONNECT` of tunnels", "GET", 64, 1)
    target: str | None = text("Only with this in the target, whatever the case of A to Z", "example.com", SEARCH_MAX, 1)
    reason: str | None = text("Only with this reason", "dns_error", 128, 1)
    search: str | None = text(
        "Words that must all occur, each as a part of a text", "example.com", SEARCH_MAX, read=_read_words
    )
    proxy_id: str | None = text("Only of this proxy", "prx_0123456789abcdef", 128)


class SearchLogs(LogTimes, LogFilters):
    """Which records, and which page of them."""

    limit: int = integer("At most so many", 1, 1000, 100)
    offset: int = integer("After so many", 0, OFFSET_MAX, 0)
    cursor: PageCursor | None = cursor(
        "The `next_cursor` of the page before, with the same filters",
        "lwHLQdrSdIAAAADLQdrSeAQAAADPAAZlFyiYgAAFCc4AvGFO",
        _CURSOR,
        PageCursor.of,
    )


class FollowLogs(LogFilters):
    """Which records, after which one, and how long to wait for them."""

    limit: int = integer("At most so many", 1, 1000, 100)
    timeout: int = integer("Seconds to wait when there is nothing yet", 0, TAIL_MAX, 20)
    cursor: int | None = cursor(
        "The `next_cursor` of the answer before, or a page's `tail_cursor`; else from now on",
        "kgIC",
        _CURSOR,
        tail_of,
    )


class ExportLogs(LogTimes, LogFilters):
    """Which records."""


def query_logs(call: Call) -> Reply:
    """Search access records.

    Returns the access records that match, newest first. Follow `next_cursor` for older ones; a search that exceeds its
    time limit returns what it found so far.
    """
    question = _page_question(call)
    page = _page(call, question)
    after = None if page.next is None else _cursor(question, page).text()
    data = {
        "logs": [_entry(call, row) for row in page.rows],
        "total": page.total,
        "total_is_lower_bound": page.at_least,
        "has_more": after is not None,
        "next_cursor": after,
        "tail_cursor": tail_text(page.upto),
    }
    return Reply(data)


def tail_logs(call: Call) -> Reply:
    """Wait for new access records.

    Waits until records arrive that match, or until `timeout` seconds have passed. Pass `next_cursor` of the response
    as `cursor` of the next request, so that no record is missed.
    """
    query: FollowLogs = call.query
    question = _filters(call, 0.0, 0.0, query.limit)
    with call.services.tails.take(call.caller.user.id):
        tail = _awaited(call, question, query.cursor, query.timeout)
    return Reply({"logs": [_entry(call, row) for row in tail.rows], "next_cursor": tail_text(tail.last)})


def export_logs(call: Call) -> Reply:
    """Export access records.

    Streams all matching access records, newest first, as one JSON object per line. A response that cannot be completed
    breaks off without its last chunk.
    """
    query: ExportLogs = call.query
    question = replace(_filters(call, *query.times(), EXPORT_PAGE), count=False)
    slot = call.services.exports.take(call.caller.user.id)
    try:
        first = _page(call, question)
    except BaseException:
        slot.release()
        raise
    headers = {"Content-Disposition": 'attachment; filename="access.ndjson"'}
    return Reply({}, headers=headers, document=Document(Lines(call, question, first, slot), NDJSON))


class Lines:
    """The body of an export. It gives its place back at its end, however that comes about."""

    def __init__(self, call: Call, question: QueryLogs, first: LogPage, slot: Slot) -> None:
        self._call, self._question, self._first, self._slot = call, question, first, slot

    def __iter__(self) -> Iterator[bytes]:
        page = self._first
        while True:
            yield b"".join([_line(self._call, row) for row in page.rows])
            if page.next is None:
                break
            # An answer that has begun has no other status any more: one that fails breaks off, without its last chunk.
            page = _page(self._call, replace(self._question, before=page.next, upto=self._first.upto))
        self.close()

    def close(self) -> None:
        """The end, or the client has gone."""
        self._slot.release()

    def __del__(self) -> None:
        self.close()  # of a HEAD, whose body nobody asks for


def _entry(call: Call, row: dict[str, Any]) -> dict[str, Any]:
    """A record as the API shows it."""
    detail = row.get("detail", "")
    return {
        **row,
        "detail": detail if call.caller.may("proxy.write") else without_address(detail),
        PROXY_NAME: call.services.proxies.name_of(row["proxy_id"]),
        "timestamp": timestamp_text(row["timestamp"]),
        "response_time": round(row["response_time"]),
        "message": printable(message_of(row)),
    }


def _line(call: Call, row: dict[str, Any]) -> bytes:
    """A record as a line of JSON."""
    return printable_json(json.dumps(_entry(call, row), ensure_ascii=False, separators=(",", ":"))).encode() + b"\n"


def _awaited(call: Call, question: QueryLogs, after: int | None, wait: float) -> LogTail:
    """New records, or none in time, or none at the end of the API, which need not wait for those who wait."""
    deadline = time.monotonic() + wait
    while True:
        left = deadline - time.monotonic()
        slice_ = max(0.0, min(left, TAIL_SLICE))
        tail = call.services.bridge.ask(LOGS, TailLogs(question, after, slice_), slice_ + SEARCH_TIMEOUT)
        if not isinstance(tail, LogTail):
            raise _refusal(call, tail)
        if tail.rows or left <= TAIL_SLICE or call.services.ending.is_set():
            return tail
        after = tail.last


def _page_question(call: Call) -> QueryLogs:
    query: SearchLogs = call.query
    page = query.cursor
    if page is None:
        return replace(_filters(call, *query.times(), query.limit), offset=query.offset)
    for name, given, value in (("start_time", query.start_time, page.start), ("end_time", query.end_time, page.end)):
        if given not in (None, value):
            raise Invalid(name, "must be that of the first page, or be left out")
    if query.offset:
        raise Invalid("offset", "must be left out where a cursor is given")
    question = _filters(call, page.start, page.end, query.limit)
    if _checksum(question) != page.filters:
        raise Invalid("cursor", "is of a search with other filters")
    return replace(question, before=page.position, upto=page.upto)


def _filters(call: Call, start: float, end: float, limit: int) -> QueryLogs:
    query: LogFilters = call.query
    return QueryLogs(
        start=start,
        end=end,
        limit=limit,
        offset=0,
        level=query.level,
        min_level=query.min_level,
        client_ip=query.client_ip,
        status_code=query.status_code,
        status_class=None if query.status_class is None else int(query.status_class[0]),
        user=query.user,
        method=query.method,
        reason=query.reason,
        target=query.target,
        search=query.search,
        proxy_ids=call.proxy_ids,
    )


def _cursor(question: QueryLogs, page: LogPage) -> PageCursor:
    assert page.next is not None  # its caller looked
    return PageCursor(question.start, question.end, page.next, page.upto, _checksum(question))


def _checksum(question: QueryLogs) -> int:
    asked = question
    first = [asked.level, asked.min_level, asked.client_ip, asked.status_code, asked.search, asked.proxy_ids]
    return checksum([*first, asked.status_class, asked.user, asked.method, asked.reason, asked.target])


def _page(call: Call, question: QueryLogs) -> LogPage:
    page = call.services.bridge.ask(LOGS, question, SEARCH_TIMEOUT)
    if not isinstance(page, LogPage):
        raise _refusal(call, page)
    return page


def _refusal(call: Call, answer: Any) -> Exception:
    if isinstance(answer, Failed) and answer.field is not None:
        return Invalid(answer.field, answer.error)
    if isinstance(answer, Failed):
        return internal(call.request_id, "The log can't be read")
    return PeerUnavailable(LOGS, answer)
