"""The open connections of one actor, to list and to end over the bus.

A connection keeps its number and its bytes; all else is computed for each query. Going over the table is done
in batches between turns of the loop, so that ten thousand tunnels don't hold up the traffic. A rate is the difference
of two samples: the last sample is cached for `REMEMBERED` seconds; without one, the reply waits `SECOND_SAMPLE`
seconds for a second.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import islice
from operator import itemgetter
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from actors.bus.loop import Loop
from actors.bus.messages.forwarding import (
    CloseConnections,
    ConnectionFilter,
    ConnectionGroups,
    ConnectionPage,
    ConnectionReport,
    ConnectionsEnded,
    GroupConnections,
    QueryConnections,
)
from actors.forwarding.open_connections import ConnectionInfo, OpenConnection, visit_in_batches
from config.net.addresses import plain
from config.net.entries import Network, read_network

T = TypeVar("T")

Row: TypeAlias = tuple[Any, int, T]
"""What it is sorted by, a number (ties go by it, so that pages don't overlap), and what is ranked."""

RUN: Final = 2_000
"""Rows that are sorted at once; a millisecond or two."""


_ORDER = itemgetter(0, 1)


class TopRows(Generic[T]):
    """Takes rows in any order, and has the first `size` of them in that of `Row`, or its reverse."""

    def __init__(self, size: int, reverse: bool) -> None:
        self._size = size
        self._reverse = reverse
        self._runs: list[list[Row[T]]] = []
        self._new: list[Row[T]] = []
        self.total = 0
        """How many rows were added."""

    def add(self, row: Row[T]) -> None:
        """Take one more."""
        self.total += 1
        self._new.append(row)
        if len(self._new) == RUN:
            self._sort()

    def _sort(self) -> None:
        """Sort the new ones, and drop those that can't be among the first."""
        self._new.sort(key=_ORDER, reverse=self._reverse)
        del self._new[self._size :]
        if len(self._new) > RUN // 2:
            self._runs.append(self._new)
            self._new = []

    def first(self) -> Iterator[Row[T]]:
        """The first `size` in order, found one by one."""
        self._sort()
        merged = heapq.merge(*self._runs, self._new, key=_ORDER, reverse=self._reverse)
        return islice(merged, self._size)

    def __repr__(self) -> str:
        return f"<TopRows of the first {self._size} of {self.total}>"


PAGE_MAX = 1000
SKIPPED = 2_500
"""Rows before a page that are passed over in one turn of the loop."""
SECOND_SAMPLE = 0.5
FRESH = 0.25
"""A sample younger than this would make rates out of nothing."""
REMEMBERED = 3.0
ENDED_BY_OPERATOR = "ended_by_operator"
"""The reason in the records of connections that are ended here."""

SORTS = ("age", "bytes_in", "bytes_out", "rate_in", "rate_out", "client", "user", "target")
GROUPS = ("client", "user", "target")


class Sample(NamedTuple):
    """Bytes in and out by number, as they were at `at`.

    Numbers in two dictionaries rather than pairs in one: ten thousand new tuples would make the collector go over all
    of the heap, and that takes longer than the sampling itself.
    """

    at: float
    bytes_in: dict[int, int]
    bytes_out: dict[int, int]


_Key = Callable[[int, ConnectionInfo], object]
_Ranked = TypeVar("_Ranked")
_Counts = tuple[int, int, int]


class ConnectionTable:
    """`connections` are those that are open, size by others; `clock` is the one of their numbers, in Unix seconds."""

    def __init__(
        self,
        loop: Loop,
        connections: AbstractSet[OpenConnection],
        clock: Callable[[], float],
        connection_id: Callable[[int], str],
    ) -> None:
        self._loop = loop
        self._connections = connections
        self._clock = clock
        self._connection_id = connection_id
        self._samples: deque[Sample] = deque(maxlen=2)

    def query(self, query: QueryConnections, done: Callable[[ConnectionPage], None]) -> None:
        """Call `done`, later, with a page."""
        if self._base() is not None or not self._connections:
            self._list(query, done)
            return

        def list_later() -> None:
            self._loop.call_later(SECOND_SAMPLE, lambda: self._list(query, done))

        self._sample(lambda _connection, _info: None, list_later)

    def group(self, query: GroupConnections, done: Callable[[ConnectionGroups], None]) -> None:
        """Call `done`, later, with a page of the counts."""
        groups: dict[str, _Counts] = {}
        matches = _matcher(query.only, self._clock)
        field = None if query.by is None else ConnectionInfo._fields.index(query.by)
        values = frozenset(query.values)

        def visit(connection: OpenConnection) -> None:
            info = connection.info()
            value = "" if field is None else str(info[field])
            if (not values or value in values) and matches(connection.number, info):
                count, bytes_in, bytes_out = groups.get(value, (0, 0, 0))
                groups[value] = (count + 1, bytes_in + info.bytes_in, bytes_out + info.bytes_out)

        self._each(visit, lambda: self._list_groups(groups, query, done))

    def end(self, order: CloseConnections, done: Callable[[ConnectionsEnded], None]) -> None:
        """End all that match; call `done`, later, with how many."""
        ended = 0
        matches = _matcher(order.only, self._clock)

        def visit(connection: OpenConnection) -> None:
            nonlocal ended
            number = connection.number
            if order.id in (None, self._connection_id(number)) and matches(number, connection.info()):
                connection.end(ENDED_BY_OPERATOR)
                ended += 1

        self._each(visit, lambda: done(ConnectionsEnded(ended)))

    def _base(self) -> Sample | None:
        """The sample that rates start from: the newest that is neither too fresh nor too old."""
        now = self._loop.now
        return next((each for each in reversed(self._samples) if FRESH <= now - each.at <= REMEMBERED), None)

    def _list_groups(
        self, groups: dict[str, _Counts], query: GroupConnections, done: Callable[[ConnectionGroups], None]
    ) -> None:
        """Call `done`, later, with the page of the groups, the largest first."""
        limit = min(query.limit, PAGE_MAX)
        top: TopRows[str] = TopRows(query.offset + limit, reverse=False)

        def rank(value: str) -> None:
            count, bytes_in, bytes_out = groups[value]
            top.add(((-count, -bytes_in - bytes_out, value), 0, value))

        def report(page: list[Row[str]]) -> None:
            done(ConnectionGroups({value: groups[value] for _key, _number, value in page}, top.total))

        def skip() -> None:
            self._skip(top.first(), query.offset, limit, report)

        visit_in_batches(self._loop, dict.fromkeys(groups), rank, skip)

    def _list(self, query: QueryConnections, done: Callable[[ConnectionPage], None]) -> None:
        base = self._base() or Sample(self._loop.now - SECOND_SAMPLE, {}, {})
        limit = min(query.limit, PAGE_MAX)
        top: TopRows[OpenConnection] = TopRows(query.offset + limit, query.sort.startswith("-"))
        matches, key = _matcher(query.only, self._clock), _key(query.sort.removeprefix("-"), base)

        def visit(connection: OpenConnection, info: ConnectionInfo) -> None:
            if matches(connection.number, info):
                top.add((key(connection.number, info), connection.number, connection))

        def report(page: list[Row[OpenConnection]]) -> None:
            span, now = max(self._loop.now - base.at, FRESH), self._clock()
            made = tuple(
                _report(connection, self._connection_id(number), base, span, now)
                for _key, number, connection in page
                if connection in self._connections
            )
            done(ConnectionPage(made, top.total))

        self._sample(visit, lambda: self._skip(top.first(), query.offset, limit, report))

    def _skip(self, rows: Iterator[_Ranked], offset: int, limit: int, found: Callable[[list[_Ranked]], None]) -> None:
        """Call `found` with the rows of a page; those before it are passed over `SKIPPED` in a turn."""
        count = min(offset, SKIPPED)
        deque(itertools.islice(rows, count), maxlen=0)
        if count < offset:
            self._loop.call_soon(lambda: self._skip(rows, offset - count, limit, found))
        else:
            found(list(itertools.islice(rows, limit)))

    def _sample(self, visit: Callable[[OpenConnection, ConnectionInfo], None], complete: Callable[[], None]) -> None:
        """Visit all, and cache a sample of them."""
        bytes_in: dict[int, int] = {}
        bytes_out: dict[int, int] = {}

        def sample(connection: OpenConnection) -> None:
            number, info = connection.number, connection.info()
            bytes_in[number], bytes_out[number] = info.bytes_in, info.bytes_out
            visit(connection, info)

        def sampled() -> None:
            self._keep(Sample(self._loop.now, bytes_in, bytes_out))
            complete()

        self._each(sample, sampled)

    def _each(self, visit: Callable[[OpenConnection], None], complete: Callable[[], None]) -> None:
        """Visit those that are open now and still are when their batch comes."""

        def if_open(connection: OpenConnection) -> None:
            if connection in self._connections:
                visit(connection)

        visit_in_batches(self._loop, dict.fromkeys(self._connections), if_open, complete)

    def _keep(self, sample: Sample) -> None:
        """Cache it for a while, unless the last one is as good."""
        if not self._samples or sample.at - self._samples[-1].at >= FRESH:
            self._samples.append(sample)
            self._loop.call_later(REMEMBERED, self._drop_old)

    def _drop_old(self) -> None:
        while self._samples and self._loop.now - self._samples[0].at >= REMEMBERED:
            self._samples.popleft()


def _matcher(only: ConnectionFilter, clock: Callable[[], float]) -> Callable[[int, ConnectionInfo], bool]:
    network = read_network(only.client) if only.client is not None else None
    youngest = (clock() - only.min_age) * 1e6
    part = only.target.lower() if only.target is not None else ""
    name = only.tls_name.lower() if only.tls_name is not None else ""

    def matches(number: int, info: ConnectionInfo) -> bool:
        return (
            number <= youngest
            and (only.user is None or info.user == only.user)
            and (not part or part in info.target.lower())
            and (network is None or _is_in(info.client, network))
            and only.listen_port in (None, info.listen_port)
            and (not name or name in info.tls_name)
            and (only.alpn is None or only.alpn in info.alpn.split(","))
        )

    return matches


@lru_cache(maxsize=1024)
def _is_in(client_ip: str, network: Network) -> bool:
    return plain(client_ip) in network


def _key(sort: str, base: Sample) -> _Key:
    if sort == "age":
        return lambda number, _live: -number
    if sort == "rate_in":
        return lambda number, info: info.bytes_in - base.bytes_in.get(number, 0)
    if sort == "rate_out":
        return lambda number, info: info.bytes_out - base.bytes_out.get(number, 0)
    field = ConnectionInfo._fields.index(sort)
    return lambda _number, info: info[field]


def _report(connection: OpenConnection, connection_id: str, base: Sample, span: float, now: float) -> ConnectionReport:
    number, info = connection.number, connection.info()
    started = number / 1e6
    age = max(0.0, now - started)
    if number not in base.bytes_in:
        span = max(min(span, age), FRESH)  # it came after the first sample
    return ConnectionReport(
        id=connection_id,
        started_at=started,
        age=age,
        rate_in=(info.bytes_in - base.bytes_in.get(number, 0)) / span,
        rate_out=(info.bytes_out - base.bytes_out.get(number, 0)) / span,
        **info._asdict(),
    )
