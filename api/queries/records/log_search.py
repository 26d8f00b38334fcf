"""Searches of access records: their parameters and cursors, and what the log indexer is asked for: pages, a tail that
waits for new records, and an export of all that match.

A cursor of a page contains the times of the search, its position, the last record that its first page could see, and a
checksum of the filters: all pages of a search are of the same records.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from actors.bus.messages.common import LOGS, Failed
from actors.bus.messages.records import CountLogs, LogCounts, LogPage, LogTailPage, QueryLogs, TailLogs
from api.bus_bridge import Bridge, request
from api.concurrency_limit import (
    COUNTS_EACH,
    COUNTS_MAX,
    EXPORTS_EACH,
    EXPORTS_MAX,
    TAILS_EACH,
    TAILS_MAX,
    ConcurrencyLimit,
    Reservation,
)
from api.errors import Invalid, OperationFailed
from api.http.query import (
    OfNodes,
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
from api.objects.nodes.asked_nodes import AskedNodes
from api.queries.records.logs_over_nodes import SEARCH_TIMEOUT, LogsOverNodes, NodesCursor, NodesPage, NodesTail
from api.queries.records.logs_over_nodes import tail_of as tail_of_nodes
from config.model.choices import LOG_LEVELS, OUTCOMES
from config.text.access_fields import PROXY_NAME, message_of, without_address, without_tried
from config.text.formatting import printable, printable_json, timestamp_text

TAIL_PERIOD = 1.0
"""Seconds after which a tail that waits checks whether the API is ending."""
EXPORT_PAGE = 2_000
"""Records that an export holds in memory at a time."""

EXPORT_PAGE_OF_NODES = 1_000
"""The same, of each node."""

R = TypeVar("R", LogPage, LogTailPage, LogCounts)
A = TypeVar("A")
T = TypeVar("T", LogTailPage, NodesTail)
View = Callable[[dict[str, Any]], dict[str, Any]]
"""A record as the API serializes it for one caller."""


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


def _page_cursor(text: str) -> PageCursor | NodesCursor:
    try:
        return PageCursor.of(text)
    except ValueError:
        return NodesCursor.of(text)


def _tail_cursor(text: str) -> int | dict[str, int]:
    try:
        return tail_of(text)
    except ValueError:
        return tail_of_nodes(text)


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
_CURSOR = "^[A-Za-z0-9_-]{1,6000}$"

_TRANSLATED = {"proxy_id", "status_class", "user", "account", "node"}
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


class LogFilters(OfNodes):
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
    outcome: str | None = choice(
        "Only those that passed, were refused by the proxy, failed at it or behind it, or had an error from the origin",
        OUTCOMES,
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
    cursor: PageCursor | NodesCursor | None = cursor(
        "The `next_cursor` of the previous page, with the same filters",
        "lwHLQdrSdIAAAADLQdrSeAQAAADPAAZlFyiYgAAFCc4AvGFO",
        _CURSOR,
        _page_cursor,
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
        return search if isinstance(page, NodesCursor) else replace(search, before=page.position, upto=page.upto)


class FollowLogs(LogFilters):
    """Filters of records, the record to continue after, and how long to wait."""

    limit: int = integer("The size of the page", 1, 1000, 100)
    timeout: int = integer("Seconds to wait for a record", 0, TAIL_MAX, 20)
    cursor: int | dict[str, int] | None = cursor(
        "The `next_cursor` of the previous response, or the `tail_cursor` of a page; without it, only new records",
        "kgIC",
        _CURSOR,
        _tail_cursor,
    )


class ExportLogs(LogTimes, LogFilters):
    """Filters of records."""


def next_cursor(search: QueryLogs, page: LogPage) -> str | None:
    """Of the page that follows; None after the last one."""
    if page.next is None:
        return None
    return PageCursor(search.start, search.end, page.next, page.upto, _checksum(search)).text()


def next_cursor_of_nodes(search: QueryLogs, page: NodesPage) -> str | None:
    """As `next_cursor`, over nodes."""
    if not page.has_more:
        return None
    return NodesCursor(search.start, search.end, _checksum(search), page.positions).text()


def _checksum(search: QueryLogs) -> int:
    first = [search.level, search.min_level, search.client_ip, search.status_code, search.search, search.proxy_ids]
    then = [search.status_class, search.user, search.method, search.reason, search.target]
    added = [] if search.credential is None else [search.credential]
    added += [] if search.request_id is None else ["request_id", search.request_id]
    added += [] if search.listen_port is None else ["listen_port", str(search.listen_port)]
    added += [] if search.tls_name is None else ["tls_name", search.tls_name]
    added += [] if search.alpn is None else ["alpn", search.alpn]
    added += [] if search.outcome is None else ["outcome", search.outcome]
    return checksum([*first, *then, *added])


class LogSearch:
    """Searches of one API process. Thread-safe.

    Methods raise `Invalid`, `OperationFailed` when the records can't be read, `PeerUnavailable` without the indexer,
    and `TooBusy` where one user or all together do too much at once.
    """

    def __init__(self, bridge: Bridge, ending: threading.Event, name_of: Callable[[str], str]) -> None:
        """`name_of` returns the name of a proxy by its id; `ending` is set when the API ends."""
        self.tails = ConcurrencyLimit(TAILS_MAX, TAILS_EACH, "tails of the log")
        self.exports = ConcurrencyLimit(EXPORTS_MAX, EXPORTS_EACH, "exports of the log")
        self.counts = ConcurrencyLimit(COUNTS_MAX, COUNTS_EACH, "counts of the log")
        self._bridge = bridge
        self._ending = ending
        self.name_of = name_of

    def page(self, query: QueryLogs) -> LogPage:
        """One page of records, newest first."""
        return self._ask(query, LogPage, SEARCH_TIMEOUT)

    def over(self, nodes: AskedNodes) -> LogsOverNodes:
        """The records of several nodes."""
        return LogsOverNodes(self._bridge, nodes)

    def count(self, message: CountLogs, user_id: str, nodes: AskedNodes | None = None) -> LogCounts:
        """Records over time, or the most frequent values; over nodes, where there are several."""
        with self.counts.acquire(user_id):
            if nodes is not None and nodes.are_several:
                return self.over(nodes).count(message)
            return self._ask(message, LogCounts, SEARCH_TIMEOUT)

    def tail(self, query: QueryLogs, after: int | None, wait: float, user_id: str) -> LogTailPage:
        """New records; none when none came within `wait` seconds, or when the API ends."""

        def tail(after: int | None, period: float) -> tuple[LogTailPage, int]:
            found = self._ask(TailLogs(query, after, period), LogTailPage, period + SEARCH_TIMEOUT)
            return found, found.last

        return self._wait_for_rows(tail, after, wait, user_id)

    def tail_of_nodes(
        self, query: QueryLogs, after: Mapping[str, int], wait: float, user_id: str, nodes: AskedNodes
    ) -> NodesTail:
        """As `tail`, over nodes."""
        over = self.over(nodes)

        def tail(after: Mapping[str, int], period: float) -> tuple[NodesTail, Mapping[str, int]]:
            found = over.tail(query, after, period)
            return found, found.after

        return self._wait_for_rows(tail, after, wait, user_id)

    def _wait_for_rows(self, tail: Callable[[A, float], tuple[T, A]], after: A, wait: float, user_id: str) -> T:
        """What `tail` finds behind `after`; it is called until there is something, or the time is over."""
        deadline = time.monotonic() + wait
        with self.tails.acquire(user_id):
            while True:
                left = deadline - time.monotonic()
                found, after = tail(after, max(0.0, min(left, TAIL_PERIOD)))
                if found.rows or left <= TAIL_PERIOD or self._ending.is_set():
                    return found

    def export(self, query: QueryLogs, view: View, user_id: str, nodes: AskedNodes | None = None) -> Export:
        """All records, newest first; the first of them are read before this returns."""
        slot = self.exports.acquire(user_id)
        try:
            if nodes is not None and nodes.are_several:
                return Export(self.over(nodes).pages(query, EXPORT_PAGE_OF_NODES), view, slot)
            return Export(self._pages(replace(query, limit=EXPORT_PAGE, count=False)), view, slot)
        except BaseException:
            slot.release()
            raise

    def view(self, row: dict[str, Any], with_addresses: bool, upstreams: frozenset[str] | None) -> dict[str, Any]:
        """A record as the API serializes it; without `with_addresses`, not where a name led to.

        `upstreams` are the names of those that it may show, None: all.
        """
        parent = row.get("parent", "")
        detail = row.get("detail", "") if upstreams is None else without_tried(row.get("detail", ""))
        return {
            **row,
            "detail": detail if with_addresses else without_address(detail),
            "parent": parent if upstreams is None or parent in upstreams else "",
            PROXY_NAME: self.name_of(row["proxy_id"]),
            "timestamp": timestamp_text(row["timestamp"]),
            "response_time": round(row["response_time"]),
            "message": printable(message_of(row)),
        }

    def _pages(self, query: QueryLogs) -> Iterator[Sequence[dict[str, Any]]]:
        page = first = self.page(query)
        yield page.rows
        while page.next is not None:
            page = self.page(replace(query, before=page.next, upto=first.upto))
            yield page.rows

    def _ask(self, message: Any, kind: type[R], timeout: float) -> R:
        reply: Any = request(self._bridge, LOGS, message, kind, Failed, timeout=timeout)
        if isinstance(reply, kind):
            return reply
        if reply.field is not None:
            raise Invalid(reply.field, reply.error)
        raise OperationFailed("The log can't be read")


class Export:
    """The body of an export: one JSON object per line. Its slot is released at its end, and when it is dropped."""

    def __init__(self, pages: Iterator[Sequence[dict[str, Any]]], view: View, slot: Reservation) -> None:
        self._pages, self._view, self._slot = pages, view, slot
        self._first = next(pages)

    def __iter__(self) -> Iterator[bytes]:
        # A response that has begun has its status already: one that fails breaks off, without its last chunk.
        for rows in chain([self._first], self._pages):
            yield b"".join([_line(self._view(row)) for row in rows])
        self.close()

    def close(self) -> None:
        """The end, or the client has gone."""
        self._slot.release()

    def __del__(self) -> None:
        self.close()  # of a HEAD, whose body is never read


def _line(view: dict[str, Any]) -> bytes:
    return printable_json(json.dumps(view, ensure_ascii=False, separators=(",", ":"))).encode() + b"\n"
