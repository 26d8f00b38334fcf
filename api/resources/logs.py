"""Access records, asked of the log indexer: pages, a tail that waits for new ones, and all of them as lines."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from actors.bus.messages.common import LOGS, Failed
from actors.bus.messages.records import LogPage, LogTail, QueryLogs, TailLogs
from api.errors import Invalid, PeerUnavailable
from api.http.call import Call, Document, Reply
from api.http.errors import internal
from api.http.query import Query
from api.resources.log_cursors import PageCursor, checksum, tail_of, tail_text
from api.resources.proxy_scope import meant_proxies
from api.services.concurrency_limit import Slot
from config.text.access_fields import PROXY_NAME
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


def query_logs(call: Call) -> Reply:
    """Search access records.

    Returns the access records that match, newest first. Follow `next_cursor` for older ones; a search that exceeds its
    time limit returns what it found so far.
    """
    meant_proxies(call)
    call.query.refuse_others()
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
    meant_proxies(call)
    query = call.query
    query.refuse_others()
    cursor = query.text("cursor")
    after = None if cursor is None else tail_of(cursor)
    wait = query.integer("timeout", 20, 0, TAIL_MAX)
    question = _filters(call, 0.0, 0.0, query.integer("limit", 100, 1, 1000))
    with call.services.tails.take(call.caller.user.id):
        tail = _awaited(call, question, after, wait)
    return Reply({"logs": [_entry(call, row) for row in tail.rows], "next_cursor": tail_text(tail.last)})


def export_logs(call: Call) -> Reply:
    """Export access records.

    Streams all matching access records, newest first, as one JSON object per line. A response that cannot be completed
    breaks off without its last chunk.
    """
    meant_proxies(call)
    query = call.query
    query.refuse_others()
    now = time.time()
    start, end = query.moment("start_time", now - HOUR), query.moment("end_time", now)
    question = replace(_filters(call, start, end, EXPORT_PAGE), count=False)
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
    reason = f" ({row['reason']})" if row.get("reason") else ""
    message = f"{row.get('method', '')} {row.get('target_url', '')} {row.get('status_code', '')}{reason}"
    detail = row.get("detail", "")
    return {
        **row,
        "detail": detail if call.caller.may("proxy.write") else without_address(detail),
        PROXY_NAME: call.services.proxies.name_of(row["proxy_id"]),
        "timestamp": timestamp_text(row["timestamp"]),
        "response_time": round(row["response_time"]),
        "message": printable(row.get("message") or message.strip()),
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
    query, now = call.query, time.time()
    limit, offset = query.integer("limit", 100, 1, 1000), query.integer("offset", 0, 0, OFFSET_MAX)
    text = query.text("cursor")
    if text is None:
        start, end = query.moment("start_time", now - HOUR), query.moment("end_time", now)
        return replace(_filters(call, start, end, limit), offset=offset)
    cursor = PageCursor.of(text)
    for name, value in (("start_time", cursor.start), ("end_time", cursor.end)):
        if query.moment(name, value) != value:
            raise Invalid(name, "must be that of the first page, or be left out")
    if offset:
        raise Invalid("offset", "must be left out where a cursor is given")
    question = _filters(call, cursor.start, cursor.end, limit)
    if _checksum(question) != cursor.filters:
        raise Invalid("cursor", "is of a search with other filters")
    return replace(question, before=cursor.position, upto=cursor.upto)


def _filters(call: Call, start: float, end: float, limit: int) -> QueryLogs:
    query = call.query
    return QueryLogs(
        start=start,
        end=end,
        limit=limit,
        offset=0,
        level=query.one_of("level", LEVELS),
        min_level=query.one_of("min_level", LEVELS),
        client_ip=query.address("client_ip"),
        status_code=query.integer("status_code", 0, 100, 599) or None,
        status_class=_status_class(query),
        user=query.text("user"),
        method=query.text("method"),
        reason=query.text("reason"),
        target=query.text("target"),
        search=_words(query),
        proxy_ids=meant_proxies(call),
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


def _status_class(query: Query) -> int | None:
    chosen = query.one_of("status_class", STATUS_CLASSES)
    return None if chosen is None else int(chosen[0])


def _words(query: Query) -> str | None:
    search = query.text("search") or None
    if search is not None and (len(search) > SEARCH_MAX or len(search.split()) > WORDS_MAX):
        raise Invalid("search", f"must have at most {SEARCH_MAX} characters and {WORDS_MAX} words")
    return search
