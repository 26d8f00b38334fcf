"""Access records of the log indexer: pages, a tail that waits for new records, and an export of all that match."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

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
from config.text.access_fields import PROXY_NAME, message_of, without_address, without_tried
from config.text.formatting import printable, printable_json, timestamp_text

TAIL_SLICE = 1.0
"""Seconds after which a tail that waits checks whether the API is ending."""
EXPORT_PAGE = 2_000
"""Records that an export holds in memory at a time."""
SEARCH_TIMEOUT = 10.0

R = TypeVar("R", LogPage, LogTailPage, LogCounts)
View = Callable[[dict[str, Any]], dict[str, Any]]
"""A record as the API serializes it for one caller."""


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
        self._name_of = name_of

    def page(self, query: QueryLogs) -> LogPage:
        """One page of records, newest first."""
        return self._ask(query, LogPage, SEARCH_TIMEOUT)

    def count(self, message: CountLogs, user_id: str) -> LogCounts:
        """Records over time, or the most frequent values."""
        with self.counts.acquire(user_id):
            return self._ask(message, LogCounts, SEARCH_TIMEOUT)

    def tail(self, query: QueryLogs, after: int | None, wait: float, user_id: str) -> LogTailPage:
        """New records; none when none came within `wait` seconds, or when the API ends."""
        deadline = time.monotonic() + wait
        with self.tails.acquire(user_id):
            while True:
                left = deadline - time.monotonic()
                slice_ = max(0.0, min(left, TAIL_SLICE))
                tail = self._ask(TailLogs(query, after, slice_), LogTailPage, slice_ + SEARCH_TIMEOUT)
                if tail.rows or left <= TAIL_SLICE or self._ending.is_set():
                    return tail
                after = tail.last

    def export(self, query: QueryLogs, view: View, user_id: str) -> Export:
        """All records, newest first; the first of them are read before this returns."""
        slot = self.exports.acquire(user_id)
        try:
            return Export(self.page, replace(query, limit=EXPORT_PAGE, count=False), view, slot)
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
            PROXY_NAME: self._name_of(row["proxy_id"]),
            "timestamp": timestamp_text(row["timestamp"]),
            "response_time": round(row["response_time"]),
            "message": printable(message_of(row)),
        }

    def _ask(self, message: Any, kind: type[R], timeout: float) -> R:
        reply: Any = request(self._bridge, LOGS, message, kind, Failed, timeout=timeout)
        if isinstance(reply, kind):
            return reply
        if reply.field is not None:
            raise Invalid(reply.field, reply.error)
        raise OperationFailed("The log can't be read")


class Export:
    """The body of an export: one JSON object per line. Its slot is released at its end, and when it is dropped."""

    def __init__(
        self, read_page: Callable[[QueryLogs], LogPage], query: QueryLogs, view: View, slot: Reservation
    ) -> None:
        self._read_page, self._query, self._view, self._slot = read_page, query, view, slot
        self._first = read_page(query)

    def __iter__(self) -> Iterator[bytes]:
        page = self._first
        while True:
            yield b"".join([_line(self._view(row)) for row in page.rows])
            if page.next is None:
                break
            # A response that has begun has its status already: one that fails breaks off, without its last chunk.
            page = self._read_page(replace(self._query, before=page.next, upto=self._first.upto))
        self.close()

    def close(self) -> None:
        """The end, or the client has gone."""
        self._slot.release()

    def __del__(self) -> None:
        self.close()  # of a HEAD, whose body is never read


def _line(view: dict[str, Any]) -> bytes:
    return printable_json(json.dumps(view, ensure_ascii=False, separators=(",", ":"))).encode() + b"\n"
