"""Live connections: what is open, to look at and to end.

A connection keeps its number and its bytes; all else is computed when somebody asks. Going over them is done in
slices between turns of the loop, so that ten thousand tunnels don't hold up the traffic of anybody. Rates need two
looks: the first is remembered for a moment, and who asks again within it is answered at once; else the answer comes
after a second look, `LOOK_AGAIN` seconds later.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from actors.bus.messages.forwarding import (
    CloseConnections,
    Connection,
    ConnectionFilter,
    Connections,
    Ended,
    QueryConnections,
)
from actors.forwarding.net.timer_wheel import Expirable
from config.model.access import Network, read_network

if TYPE_CHECKING:
    from actors.forwarding.context import Serving
    from actors.forwarding.limits.meter import Meter
    from actors.forwarding.protocols.session_config import Policy

PAGE_MAX = 1000
SLICE = 250
"""Connections that are looked at in one turn of the loop; a millisecond or less."""
LOOK_AGAIN = 0.5
FRESH = 0.25
"""A look younger than this would make rates out of nothing."""
REMEMBERED = 3.0
ENDED_BY_OPERATOR = "ended_by_operator"
"""The reason in the records of what was ended here."""

SORTS = ("age", "bytes_in", "bytes_out", "rate_in", "rate_out", "client", "user", "target")


class Live(NamedTuple):
    """What a connection says of itself. `target` and `user` are empty as long as there is none."""

    client_ip: str
    user: str
    target: str
    state: str
    bytes_in: int
    bytes_out: int
    parent: str = ""


class Open(Expirable, Protocol):
    """A connection or a tunnel that can be looked at and ended from outside."""

    number: int
    """When it came, in microseconds of `Serving.clock`: its age, and its id within this process, in one."""
    client_ip: str
    meter: Meter | None
    """What it may move and has moved, where that is limited or counted."""

    def live(self) -> Live:
        """What it is doing now."""

    def measure(self, meter: Meter) -> None:
        """It has come to be limited: what it moves from now on goes by this meter."""

    def adopt(self, policy: Policy) -> None:
        """The configuration is another one from now on."""

    def end(self, reason: str) -> None:
        """End it now."""

    def drop(self) -> None:
        """Close what is still open of it: its end has failed."""


class Sample(NamedTuple):
    """Bytes in and out by number, as they were at `at`.

    Numbers in two dictionaries rather than pairs in one: ten thousand new tuples would make the collector go over all
    of the heap, and that takes longer than all the looking.
    """

    at: float
    bytes_in: dict[int, int]
    bytes_out: dict[int, int]


_Row = tuple[Any, int, Open]
"""What it is sorted by, its number (ties go by age, so that pages don't overlap), and the connection that matches."""

_Key = Callable[[int, Live], object]


class Book:
    """The open connections of one actor, as asked for over the bus."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._loop = serving.loop
        self._samples: deque[Sample] = deque(maxlen=2)

    def query(self, question: QueryConnections, done: Callable[[Connections], None]) -> None:
        """Call `done`, later, with a page."""
        if self._base() is not None or not self._serving.open:
            self._look(question, done)
            return

        def look_again(_rows: list[_Row]) -> None:
            self._loop.call_later(LOOK_AGAIN, lambda: self._look(question, done))

        self._gather(ConnectionFilter(), lambda _number, _live: 0, look_again)

    def end(self, order: CloseConnections, done: Callable[[Ended], None]) -> None:
        """End all that match; call `done`, later, with how many."""
        ended = 0
        matches = _matcher(order.only, self._serving.clock)

        def visit(connection: Open) -> None:
            nonlocal ended
            if (order.id is None or self.id_of(connection.number) == order.id) and matches(
                connection.number, connection.live()
            ):
                connection.end(ENDED_BY_OPERATOR)
                ended += 1

        self._each(visit, lambda: done(Ended(ended)))

    def id_of(self, number: int) -> str:
        """The id of a connection: its number, and what tells this process from all others."""
        return f"{number:x}{self._serving.id_prefix[:8]}"

    def _base(self) -> Sample | None:
        """What rates are told from: the newest sample that is neither too fresh nor forgotten."""
        now = self._loop.now
        return next((each for each in reversed(self._samples) if FRESH <= now - each.at <= REMEMBERED), None)

    def _look(self, question: QueryConnections, done: Callable[[Connections], None]) -> None:
        base = self._base() or Sample(self._loop.now - LOOK_AGAIN, {}, {})
        sort = question.sort

        def found(rows: list[_Row]) -> None:
            rows.sort(key=itemgetter(0, 1), reverse=sort.startswith("-"))
            page = rows[question.offset : question.offset + min(question.limit, PAGE_MAX)]
            span, clock, still = max(self._loop.now - base.at, FRESH), self._serving.clock(), self._serving.open
            made = tuple(
                _connection(each, self.id_of(each.number), base, span, clock)
                for _key, _number, each in page
                if each in still
            )
            done(Connections(made, len(rows)))

        self._gather(question.only, _key(sort.removeprefix("-"), base), found)

    def _gather(self, only: ConnectionFilter, key: _Key, found: Callable[[list[_Row]], None]) -> None:
        """The connections that match, and a sample of all of them."""
        bytes_in: dict[int, int] = {}
        bytes_out: dict[int, int] = {}
        rows: list[_Row] = []
        matches = _matcher(only, self._serving.clock)

        def visit(connection: Open) -> None:
            number, live = connection.number, connection.live()
            bytes_in[number], bytes_out[number] = live.bytes_in, live.bytes_out
            if matches(number, live):
                rows.append((key(number, live), number, connection))

        def complete() -> None:
            self._keep(Sample(self._loop.now, bytes_in, bytes_out))
            found(rows)

        self._each(visit, complete)

    def _keep(self, sample: Sample) -> None:
        """Unless the last one is as good; and not for long."""
        if not self._samples or sample.at - self._samples[-1].at >= FRESH:
            self._samples.append(sample)
            self._loop.call_later(REMEMBERED, self._forget)

    def _forget(self) -> None:
        while self._samples and self._loop.now - self._samples[0].at >= REMEMBERED:
            self._samples.popleft()

    def _each(self, visit: Callable[[Open], None], complete: Callable[[], None]) -> None:
        """Visit all that are open now and still are when their slice comes, a slice in each turn."""
        serving = self._serving
        waiting: Iterator[Open] = iter(tuple(serving.open))

        def turn() -> None:
            some = tuple(itertools.islice(waiting, SLICE))
            for connection in some:
                if connection in serving.open:
                    visit(connection)
            self._loop.call_soon(turn if some else complete)

        turn()


def _matcher(only: ConnectionFilter, clock: Callable[[], float]) -> Callable[[int, Live], bool]:
    network = read_network(only.client) if only.client is not None else None
    youngest = (clock() - only.min_age) * 1e6
    part = only.target.lower() if only.target is not None else ""

    def matches(number: int, live: Live) -> bool:
        return (
            number <= youngest
            and (only.user is None or live.user == only.user)
            and (not part or part in live.target.lower())
            and (network is None or _is_in(live.client_ip, network))
        )

    return matches


@lru_cache(maxsize=1024)
def _is_in(client_ip: str, network: Network) -> bool:
    address = ip_address(client_ip.partition("%")[0])
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    return address in network


def _key(sort: str, base: Sample) -> _Key:
    if sort == "age":
        return lambda number, _live: -number
    if sort == "rate_in":
        return lambda number, live: live.bytes_in - base.bytes_in.get(number, 0)
    if sort == "rate_out":
        return lambda number, live: live.bytes_out - base.bytes_out.get(number, 0)
    field = Live._fields.index("client_ip" if sort == "client" else sort)
    return lambda _number, live: live[field]


def _connection(connection: Open, connection_id: str, base: Sample, span: float, clock: float) -> Connection:
    number, live = connection.number, connection.live()
    started = number / 1e6
    age = max(0.0, clock - started)
    if number not in base.bytes_in:
        span = max(min(span, age), FRESH)  # it came after the first look
    return Connection(
        id=connection_id,
        client=live.client_ip,
        user=live.user,
        target=live.target,
        state=live.state,
        started_at=started,
        age=age,
        bytes_in=live.bytes_in,
        bytes_out=live.bytes_out,
        rate_in=(live.bytes_in - base.bytes_in.get(number, 0)) / span,
        rate_out=(live.bytes_out - base.bytes_out.get(number, 0)) / span,
        parent=live.parent,
    )
