"""Live connections of a real actor: seen as they are, filtered, sorted, ended."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import ExitStack

import psutil
import pytest

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
from actors.forwarding.connections.table import PAGE_MAX, SORTS, ConnectionTable
from actors.forwarding.open_connections import VISIT_BATCH, ConnectionInfo
from tests.actor.forwarding.connection_pages import ALL, is_cut, page
from tests.actor.forwarding.http_client import BIG, connect, get, read_response, tunnel
from tests.kit.forwarding_rig import Rig, until
from tests.kit.scripted_origins import Origin, counted, echoes, read_all, responds


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Rig() as own:
        yield own


def the_one(rig: Rig) -> ConnectionReport:
    """The only connection, as soon as the proxy has accepted it."""
    [connection] = until(lambda: page(rig).connections, "a connection is accepted")
    return connection


def end(rig: Rig, identifier: str | None = None, only: ConnectionFilter = ALL) -> int:
    response = rig.ask(CloseConnections(identifier, only))
    assert isinstance(response, ConnectionsEnded)
    return response.count


def echo(sock: socket.socket, data: bytes) -> None:
    sock.sendall(data)
    while data:
        data = data[len(sock.recv(1 << 16)) :]


def test_nothing_is_open_at_first(rig: Rig) -> None:
    assert page(rig) == ConnectionPage((), 0)


def test_an_idle_connection_then_a_request_then_idle_again(rig: Rig) -> None:
    with Origin(responds(*[counted(b"x" * 1000)] * 2)) as origin, connect(rig) as client:
        first = until(lambda: page(rig).connections, "the client is there")[0]
        assert (first.client, first.state, first.target, first.bytes_in) == ("127.0.0.1", "idle", "", 0)
        for count in (1, 2):
            client.sendall(get(origin))
            read_response(client)
            now = the_one(rig)
            assert (now.id, now.state, now.target) == (first.id, "idle", origin.authority)
            assert now.bytes_in == count * len(get(origin))
            assert now.bytes_out > count * 1000
        assert 0 < first.age < now.age < 60
        assert now.started_at == first.started_at
        assert abs(time.time() - now.age - now.started_at) < 5


def test_the_bytes_of_a_running_tunnel_are_those_that_have_passed(rig: Rig) -> None:
    with Origin(echoes) as origin, tunnel(rig, origin) as client:
        before = the_one(rig)
        assert (before.state, before.target) == ("tunnel", origin.authority)
        echo(client, b"x" * 50_000)
        now = the_one(rig)
        assert now.id == before.id
        assert (now.bytes_in - before.bytes_in, now.bytes_out - before.bytes_out) == (50_000, 50_000)
        assert now.rate_in > 0
        assert now.rate_out > 0


def test_the_bytes_of_a_long_answer_count_while_it_flows(rig: Rig) -> None:
    body = b"x" * BIG
    with Origin(responds(counted(body))) as origin, connect(rig) as client:
        client.sendall(get(origin))
        until(lambda: 0 < the_one(rig).bytes_out < BIG, "a part has passed, and the client reads no more")
        assert the_one(rig).state == "active"
        assert read_response(client)[1] == body
        assert the_one(rig).bytes_out > BIG


def test_a_client_whose_target_hangs_is_connecting_or_active(rig: Rig) -> None:
    with Origin(lambda sock: read_all(sock) and None) as origin, connect(rig) as client:
        client.sendall(get(origin))
        until(lambda: the_one(rig).state == "active", "the request is with the origin")
        assert the_one(rig).target == origin.authority


def test_connections_are_filtered_sorted_and_paged(rig: Rig) -> None:
    with ExitStack() as stack:
        origin = stack.enter_context(Origin(echoes))
        other = stack.enter_context(Origin(echoes))
        clients = [stack.enter_context(tunnel(rig, origin)) for _ in range(4)]
        clients.append(stack.enter_context(tunnel(rig, other)))
        for number, client in enumerate(clients):
            echo(client, b"x" * (number + 1) * 1000)
        oldest_first = [each.id for each in page(rig).connections]
        assert len(set(oldest_first)) == 5
        assert [each.id for each in page(rig, sort="age").connections] == oldest_first[::-1]
        assert [each.id for each in page(rig, sort="bytes_in").connections] == oldest_first
        assert [each.id for each in page(rig, sort="-bytes_out", limit=2, offset=1).connections] == [
            oldest_first[3],
            oldest_first[2],
        ]
        for sort in SORTS:
            assert page(rig, sort=sort).total == 5
        assert page(rig, ConnectionFilter(target=other.authority)).connections[0].id == oldest_first[4]
        assert page(rig, ConnectionFilter(target=f":{origin.port}"), limit=1).total == 4
        assert page(rig, ConnectionFilter(client="127.0.0.0/8")).total == 5
        assert page(rig, ConnectionFilter(client="127.0.0.2")).total == 0
        assert page(rig, ConnectionFilter(user="ada")).total == 0
        assert page(rig, ConnectionFilter(min_age=1000.0)).total == 0
        assert page(rig, offset=9) == ConnectionPage((), 5)


def test_connections_are_counted_by_client_user_or_target(rig: Rig) -> None:
    with (
        Origin(echoes) as origin,
        Origin(echoes) as other,
        tunnel(rig, origin) as one,
        tunnel(rig, origin) as two,
        tunnel(rig, other) as three,
    ):
        for client, size in ((one, 1000), (two, 2000), (three, 4000)):
            echo(client, b"x" * size)
        sums: dict[str, tuple[int, int, int]] = {}
        for each in page(rig).connections:
            for key in ("", each.target):
                count, bytes_in, bytes_out = sums.get(key, (0, 0, 0))
                sums[key] = (count + 1, bytes_in + each.bytes_in, bytes_out + each.bytes_out)
        assert sums[""][0] == 3
        assert sums[""][1] >= 7000
        whole = sums.pop("")
        assert rig.ask(GroupConnections(ALL, "target", 9)) == ConnectionGroups(sums, 2)
        assert rig.ask(GroupConnections(ALL, "target", 1)) == ConnectionGroups(
            {origin.authority: sums[origin.authority]}, 2
        )
        assert rig.ask(GroupConnections(ALL, "target", 1, 1)) == ConnectionGroups(
            {other.authority: sums[other.authority]}, 2
        )
        assert rig.ask(GroupConnections(ALL, "client", 9)) == ConnectionGroups({"127.0.0.1": whole}, 1)
        assert rig.ask(GroupConnections(ALL, "user", 9)) == ConnectionGroups({"": whole}, 1)
        only = ConnectionFilter(target=other.authority)
        assert rig.ask(GroupConnections(only, None, 1)) == ConnectionGroups({"": sums[other.authority]}, 1)
        assert rig.ask(GroupConnections(ConnectionFilter(user="ada"), None, 1)) == ConnectionGroups({}, 0)
        named = GroupConnections(ALL, "target", 9, values=(other.authority, "absent.example:1"))
        assert rig.ask(named) == ConnectionGroups({other.authority: sums[other.authority]}, 1)


def test_one_connection_is_ended_and_the_others_go_on(rig: Rig) -> None:
    with Origin(echoes) as origin, tunnel(rig, origin) as first, tunnel(rig, origin) as second:
        identifier = page(rig).connections[0].id
        assert end(rig, identifier) == 1
        assert is_cut(first)
        assert end(rig, identifier) == 0
        echo(second, b"still here")
        assert page(rig).total == 1
    assert rig.record(reason="ended_by_operator")["method"] == "CONNECT"


def test_idle_and_busy_clients_are_ended_with_all_that_match(rig: Rig) -> None:
    with Origin(lambda sock: read_all(sock) and None) as origin, connect(rig) as idle, connect(rig) as busy:
        busy.sendall(get(origin))
        until(lambda: {each.state for each in page(rig).connections} == {"idle", "active"}, "both are there")
        assert end(rig, only=ConnectionFilter(client="192.0.2.1")) == 0
        assert end(rig, only=ConnectionFilter(client="127.0.0.1")) == 2
        assert is_cut(idle)
        assert is_cut(busy)
    assert page(rig).total == 0
    assert rig.record(reason="ended_by_operator")["method"] == "GET"


# --- many of them, without sockets ---


class Silent:
    """A connection in which nothing happens; `samples` counts how often it was sampled."""

    deadline = float("inf")
    listen_port = 0
    samples = 0

    def __init__(self, number: int) -> None:
        self.number = number
        self.scheduled_for = 0

    def info(self) -> ConnectionInfo:
        Silent.samples += 1
        return ConnectionInfo("192.0.2.1", "", "a.example:443", "tunnel", 1, 2)

    def expire(self) -> None:
        raise AssertionError("its deadline is not read here")

    def end(self, reason: str) -> None:
        raise AssertionError("it is not ended")


class Named(Silent):
    """A tunnel whose handshake named `named`, and offered `offered`."""

    def __init__(self, number: int, named: str, offered: str) -> None:
        super().__init__(number)
        self._said = {"tls_name": named, "alpn": offered, "tls_version": "1.3"}

    def info(self) -> ConnectionInfo:
        return super().info()._replace(**self._said)


class Stepped:
    """A table of connections, and a loop whose time goes on with its turns alone."""

    def __init__(self, connections: AbstractSet[Silent] = frozenset()) -> None:
        self.time = 100.0
        self.loop = Loop(self.now)
        self.table = ConnectionTable(self.loop, connections, self.now, str)

    def now(self) -> float:
        return self.time

    def turns(self) -> Iterator[int]:
        """Each turn of ten milliseconds, for up to a hundred seconds."""
        for number in range(10_000):
            self.loop.turn(0.0)
            yield number
            self.time += 0.01
        raise AssertionError("nothing has come")


@pytest.mark.parametrize(
    ("only", "found"),
    [
        (ConnectionFilter(tls_name="A.Example"), ["a.example"]),
        (ConnectionFilter(tls_name="example"), ["a.example", "b.example"]),
        (ConnectionFilter(alpn="h2"), ["a.example"]),
        (ConnectionFilter(alpn="h2c"), ["b.example"]),
        (ConnectionFilter(alpn="http/1.1", tls_name="b."), []),
    ],
)
def test_tunnels_are_found_by_the_name_and_the_protocols_of_their_handshake(
    only: ConnectionFilter, found: list[str]
) -> None:
    stepped = Stepped({Named(1, "a.example", "h2,http/1.1"), Named(2, "b.example", "h2c"), Silent(3)})
    pages: list[ConnectionPage] = []
    stepped.table.query(QueryConnections(only, "-age", 10, 0), pages.append)
    for _turn in stepped.turns():
        if pages:
            break
    assert [(each.tls_name, each.tls_version) for each in pages[0].connections] == [(name, "1.3") for name in found]
    stepped.loop.close()


def test_ten_thousand_connections_are_looked_at_in_batches_and_pages_do_not_overlap() -> None:
    stepped = Stepped({Silent(number) for number in range(10_000)})
    pages: list[ConnectionPage] = []
    for offset in (0, 1000, 9500):
        stepped.table.query(QueryConnections(ALL, "client", 5000, offset), pages.append)
    before = Silent.samples
    for _turn in stepped.turns():
        assert Silent.samples - before <= 3 * (VISIT_BATCH + PAGE_MAX)
        before = Silent.samples
        if len(pages) == 3:
            break
    assert [len(each.connections) for each in pages] == [PAGE_MAX, PAGE_MAX, 500]
    assert {each.total for each in pages} == {10_000}
    assert len({connection.id for each in pages for connection in each.connections}) == 2500
    stepped.loop.close()


class OfClient(Silent):
    """One of a client of its own."""

    def info(self) -> ConnectionInfo:
        return super().info()._replace(client=f"192.0.2.{self.number}")


def test_of_ten_thousand_groups_no_more_are_sent_than_a_page_has_and_each_turn_is_short() -> None:
    stepped = Stepped({OfClient(number) for number in range(10_000)})
    pages: list[ConnectionGroups] = []
    for limit, offset in ((50, 0), (50_000, 0), (50_000, 9500)):
        stepped.table.group(GroupConnections(ALL, "client", limit, offset), pages.append)
    before = Silent.samples
    for _turn in stepped.turns():
        assert Silent.samples - before <= 3 * VISIT_BATCH
        before = Silent.samples
        if len(pages) == 3:
            break
    assert [(len(each.groups), each.total) for each in pages] == [(50, 10_000), (PAGE_MAX, 10_000), (500, 10_000)]
    assert list(pages[0].groups) == list(pages[1].groups)[:50]
    assert not pages[1].groups.keys() & pages[2].groups.keys()
    stepped.loop.close()


class Steady(Silent):
    """Gets a thousand bytes a second."""

    def __init__(self, number: int, clock: Callable[[], float]) -> None:
        super().__init__(number)
        self._clock = clock

    def info(self) -> ConnectionInfo:
        return ConnectionInfo("192.0.2.1", "", "a.example:443", "tunnel", 0, round(self._clock() * 1000))


@pytest.mark.parametrize("pause", [0.01, 0.1, 0.24, 0.3, 1.0, 4.0])
def test_the_rate_is_right_for_any_reader_at_any_time(pause: float) -> None:
    steady: set[Silent] = set()
    stepped = Stepped(steady)
    steady.add(Steady(100_000_000, stepped.now))
    pages: list[ConnectionPage] = []
    queries = 0
    for turn in stepped.turns():
        if queries < 6 and turn >= queries * pause * 100:
            queries += 1
            stepped.table.query(QueryConnections(ALL, "-rate_out", 10, 0), pages.append)
        if len(pages) == 6:
            break
    stepped.loop.close()
    assert [round(each.connections[0].rate_out / 1000, 1) for each in pages] == [1.0] * 6


def test_a_connection_has_an_id_that_no_connection_of_another_proxy_has(rig: Rig) -> None:
    with Rig() as other, connect(rig), connect(other):
        until(lambda: page(rig).total == page(other).total == 1, "both are there")
        one, two = the_one(rig).id, the_one(other).id
        assert one[-8:] != two[-8:], "they would differ if both had come in the same microsecond"
        assert (end(other, one), end(rig, one)) == (0, 1)


def test_lists_of_processes_show_the_proxy_by_its_name_and_a_new_name_at_once(rig: Rig) -> None:
    def title() -> str:
        return " ".join(psutil.Process(rig.process.pid).cmdline()).rstrip("\0 ")

    short = psutil.Process(rig.process.pid).name()
    assert title() == f"proxyfleet: p ({rig.port})"
    rig.configure(name="office")
    assert title() == f"proxyfleet: office ({rig.port})"
    assert psutil.Process(rig.process.pid).name() == short
    assert short.startswith("fwd-")
