"""How much is done in one turn of the loop where there is much to do: counted, by a clock that is set by hand."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from functools import partial
from typing import cast

import pytest

from actors.bus.loop import TURN_MAX, Loop
from actors.bus.messages.forwarding import ConnectionFilter, ConnectionPage, QueryConnections
from actors.forwarding.connections.table import PAGE_MAX, RUN, SKIPPED, ConnectionTable, Row, TopRows
from actors.forwarding.limits.token_bucket import CHECKED_EACH, TICK, TokenBucket
from actors.forwarding.net.connection_pool import ConnectionPool, OriginConnection
from actors.forwarding.net.timer_wheel import TimerWheel
from actors.forwarding.open_connections import VISIT_BATCH, ConnectionInfo, OpenConnection, visit_in_batches
from tests.kit.clocks import Clock
from tests.kit.tables import table

ALL = ConnectionFilter()


@pytest.fixture
def clock() -> Clock:
    return Clock(100.0)


@pytest.fixture
def loop(clock: Clock) -> Iterator[Loop]:
    made = Loop(clock)
    yield made
    made.close()


class Counted:
    """A connection; `visits` are all that were made, of any."""

    visits = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def info(self) -> ConnectionInfo:
        Counted.visits += 1
        return ConnectionInfo("192.0.2.1", "", "a.example:443", "tunnel", 0, self.number * 7919 % 60_013)


def many(count: int) -> AbstractSet[OpenConnection]:
    return cast("AbstractSet[OpenConnection]", {Counted(number) for number in range(count)})


def most_per_turn(loop: Loop, count: Callable[[], int], done: Callable[[], object]) -> int:
    """The most that was added to `count` in one turn, until `done`."""
    most = 0
    for _ in range(10_000):
        if done():
            return most
        before = count()
        loop.turn(0)
        most = max(most, count() - before)
    raise AssertionError("it does not end")


def order(connection: OpenConnection, sort: str) -> tuple[int, int]:
    """By what connections are sorted."""
    return -connection.number if sort.endswith("age") else connection.info().bytes_out, connection.number


# --- connections ---


def test_connections_are_visited_in_batches_and_those_that_have_ended_are_not(loop: Loop) -> None:
    connections = set(many(10 * VISIT_BATCH))
    gone = set(random.Random(1).sample(sorted(connections, key=lambda each: each.number), VISIT_BATCH))
    visited: list[OpenConnection] = []
    ended: list[bool] = []
    waiting = dict.fromkeys(connections)
    visit_in_batches(loop, waiting, visited.append, lambda: ended.append(True))
    assert len(visited) == VISIT_BATCH
    gone -= set(visited)
    connections -= gone
    for each in gone:
        del waiting[each]
    assert most_per_turn(loop, lambda: len(visited), lambda: ended) <= VISIT_BATCH
    assert len(visited) == len(set(visited)) == 10 * VISIT_BATCH - len(gone)
    assert set(visited) == connections


def test_few_connections_are_visited_at_once(loop: Loop) -> None:
    ended: list[bool] = []
    visit_in_batches(loop, dict.fromkeys(many(VISIT_BATCH)), lambda _connection: None, lambda: ended.append(True))
    visit_in_batches(loop, {}, lambda _connection: None, lambda: ended.append(True))
    assert ended == [True, True]


@pytest.mark.parametrize(("offset", "sort"), [(0, "-bytes_out"), (0, "age"), (1_500, "bytes_out"), (19_000, "-age")])
def test_a_page_of_twenty_thousand_connections_is_found_without_sorting_all(
    loop: Loop, clock: Clock, offset: int, sort: str
) -> None:
    connections = many(20_000)
    table = ConnectionTable(loop, connections, clock, str)
    pages: list[ConnectionPage] = []
    table.query(QueryConnections(ALL, sort, PAGE_MAX, offset), pages.append)
    most = most_per_turn(loop, lambda: Counted.visits, lambda: pass_time(clock, bool(pages)))
    assert most <= 2 * VISIT_BATCH + PAGE_MAX
    rows = sorted(connections, key=lambda each: order(each, sort), reverse=sort.startswith("-"))
    assert [each.id for each in pages[0].connections] == [str(each.number) for each in rows[offset:][:PAGE_MAX]]
    assert pages[0].total == 20_000


@table("reverse", [False, True])
@table("kept", [1, 100, RUN // 2, RUN // 2 + 1, RUN, 3 * RUN + 7, 100_000])
def test_the_first_rows_are_those_of_a_sort_of_all(kept: int, reverse: bool) -> None:
    draw = random.Random(kept)
    rows: list[Row[None]] = [(draw.randrange(50), number, None) for number in range(5 * RUN + 11)]
    draw.shuffle(rows)
    top: TopRows[None] = TopRows(kept, reverse)
    for row in rows:
        top.add(row)
        assert len(top._new) < RUN
    assert list(top.first()) == sorted(rows, reverse=reverse)[:kept]
    assert top.total == len(rows)


def test_rows_before_a_page_are_passed_over_in_batches(loop: Loop, clock: Clock) -> None:
    table = ConnectionTable(loop, set(), clock, str)
    passed: list[Row[OpenConnection]] = []
    found: list[list[Row[OpenConnection]]] = []
    rows: list[Row[OpenConnection]] = [(number, number, cast("OpenConnection", None)) for number in range(20_000)]
    counted = (passed.append(row) or row for row in rows)  # type: ignore[func-returns-value]
    table._skip(counted, 15_000, 10, found.append)
    assert most_per_turn(loop, lambda: len(passed), lambda: found) <= SKIPPED + 10
    assert found == [rows[15_000:15_010]]


# --- connections to origins that are not to be used again ---


class Origins:
    """`count` connections in a pool."""

    def __init__(self, loop: Loop, count: int) -> None:
        self.loop = loop
        self.pool = ConnectionPool(loop, TimerWheel(loop), count, 60.0)
        self._peers: list[socket.socket] = []
        self.origins = [self.connect(f"{number % 7}.example") for number in range(count)]

    def connect(self, host: str) -> OriginConnection:
        """One more connection in the pool."""
        ours, peer = socket.socketpair()
        self._peers.append(peer)
        origin = OriginConnection(ours, (host, 80), self.pool.epoch)
        self.loop.watch(origin.fd, 0, origin.on_idle_event)
        self.pool.release(origin)
        return origin

    def close(self) -> None:
        for each in self._peers:
            each.close()

    @property
    def closed(self) -> int:
        return sum(origin.sock.fileno() < 0 for origin in self.origins)


def test_many_idle_connections_are_closed_in_batches_and_none_is_used_again(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.forwarding.net.connection_pool.FLUSHED_AT_ONCE", 20)
    world = Origins(loop, 105)
    pool, last = world.pool, world.origins[-1]
    pool.flush()
    assert (pool.count, pool.epoch, world.closed) == (0, 1, 20)
    assert all(pool.acquire((f"{number}.example", 80)) is None for number in range(7))
    fresh = world.connect("0.example")
    last.expire()
    assert last.sock.fileno() < 0, "one that waits for its batch may end by itself"
    assert most_per_turn(loop, lambda: world.closed, lambda: world.closed == 105) <= 20
    assert pool.acquire(("0.example", 80)) is fresh
    assert pool.count == 0
    pool.close(fresh)
    world.close()


def test_a_second_flush_is_closed_along_with_the_first(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.forwarding.net.connection_pool.FLUSHED_AT_ONCE", 5)
    world = Origins(loop, 12)
    world.pool.flush()
    late = world.connect("b.example")
    world.pool.flush()
    loop.turn(0)
    assert (world.closed, late.sock.fileno() < 0) == (10, False)
    loop.turn(0)
    assert (world.closed, late.sock.fileno() < 0) == (12, True)
    world.close()


# --- waiting for bandwidth ---


def wakes(clock: Clock, woken: list[int], number: int, cost: float) -> None:
    """Being woken takes time."""
    woken.append(number)
    clock.now += cost


def test_a_fast_bucket_wakes_as_many_as_there_is_time_for_and_the_others_later(loop: Loop, clock: Clock) -> None:
    bucket = TokenBucket(loop, 1_000_000_000)
    bucket.consume(100_000_000)
    woken: list[int] = []
    for number in range(2_000):
        bucket.wait(partial(wakes, clock, woken, number, TURN_MAX / 20))
    clock.now += 0.2
    assert most_per_turn(loop, lambda: len(woken), lambda: pass_time(clock, len(woken) == 2_000)) <= 2 * CHECKED_EACH
    assert woken == list(range(2_000))


def pass_time(clock: Clock, over: bool) -> bool:
    """A turn takes a while, too."""
    clock.now += 0.002
    return over


def test_those_that_another_limit_holds_up_share_one_timer_and_are_woken_in_batches(loop: Loop, clock: Clock) -> None:
    bucket = TokenBucket(loop, 0)
    woken: list[int] = []
    for number in range(1_000):
        bucket.wait(partial(wakes, clock, woken, number, TURN_MAX / 20))
    assert len(loop._timers) == 1
    loop.turn(0)
    assert woken == []
    clock.now += TICK
    assert most_per_turn(loop, lambda: len(woken), lambda: len(woken) == 1_000) <= 3 * CHECKED_EACH
    assert woken == list(range(1_000))


def test_one_that_waits_again_is_woken_a_tick_later(loop: Loop, clock: Clock) -> None:
    bucket = TokenBucket(loop, 0)
    woken: list[float] = []

    def wake() -> None:
        woken.append(clock.now)
        bucket.wait(wake)

    for _ in range(2):
        bucket.wait(wake)
    for _ in range(100):
        clock.now += 0.001
        loop.turn(0)
    assert len(woken) in (8, 10)
