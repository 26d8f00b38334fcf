"""Limits by client address, by a clock set by hand: what says that one is in use, and its requests per minute."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.bus.loop import Loop
from actors.bus.messages.specs import AccountSpec, LimitsSpec
from actors.forwarding.limits import client_limits
from actors.forwarding.limits.client_limits import FORGOTTEN_AT_ONCE, PERIOD, ClientWindows
from actors.forwarding.limits.limits import LimitsOfProxy
from actors.forwarding.limits.meter import Meter
from actors.state.counts import COUNTED
from actors.state.live_state import LiveState
from tests.kit.clocks import Clock
from tests.kit.forwarding_rig import spec

ONE, TWO, THREE = "192.0.2.1", "192.0.2.2", "192.0.2.3"
WINDOW = 600


class Connection:
    """A client's, as far as limits need it."""

    def __init__(self, client_ip: str) -> None:
        self.client_ip = client_ip
        self.meter: Meter | None = None
        self.ended = ""

    def measure(self, meter: Meter) -> None:
        self.meter = meter

    def end(self, reason: str) -> None:
        self.ended = reason

    def destinations_changed(self) -> None:
        raise AssertionError


class World:
    """Two proxies of one machine that know the account `ada`."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock(1000.0)
        self.loop = Loop(self.clock)
        self.failures: list[str] = []
        self.proxies = [self._proxy(folder) for _ in range(2)]

    def _proxy(self, folder: Path) -> LimitsOfProxy:
        made = LimitsOfProxy(self.loop)
        made.client_addresses.path = folder / "clients"
        made.client_addresses.on_failure = self.failures.append
        return made

    def give(self, **limits: int) -> None:
        ada = AccountSpec("acc_ada", "ada", None, limits=LimitsSpec(**limits))
        for each in self.proxies:
            each.configure(spec(1, accounts=(ada,), auth_required=True))

    def later(self, seconds: float) -> None:
        self.clock.now = self.loop.now = self.loop.now + seconds

    def request(self, proxy: int, connection: Connection) -> str:
        """Why one more request on this connection is refused; empty: it isn't."""
        limits = self.proxies[proxy]
        if connection.meter is None:
            connection.meter = limits.meter()
        connection.meter.exchange_over()
        failure = connection.meter.admit("ada", connection)
        return "" if failure is None else failure.reason

    def come(self, proxy: int, client: str) -> str:
        return self.request(proxy, Connection(client))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    assert made.failures == []
    made.loop.close()


def move(connection: Connection, inward: bool = True) -> None:
    assert connection.meter is not None
    (connection.meter.inward if inward else connection.meter.outward).consume(100)


REFUSED = "account_client_limit"


def test_each_request_of_a_kept_connection_is_a_use(world: World) -> None:
    world.give(clients=1, clients_window=WINDOW)
    kept = Connection(ONE)
    for _ in range(5):
        assert (world.request(0, kept), world.come(1, TWO)) == ("", REFUSED)
        world.later(WINDOW - 1)
    world.later(1)
    assert (world.come(1, TWO), world.request(0, kept)) == ("", REFUSED)


@pytest.mark.parametrize("inward", [True, False])
def test_a_connection_that_moves_bytes_is_not_silent(world: World, inward: bool) -> None:
    world.give(clients=1, clients_window=WINDOW)
    tunnel = Connection(ONE)
    world.request(0, tunnel)
    for _ in range(50):
        world.later(WINDOW / 9)
        move(tunnel, inward)
        assert world.come(1, TWO) == REFUSED
    world.later(WINDOW)
    assert world.come(1, TWO) == ""


def test_one_whose_place_another_address_has_ends_when_it_moves_bytes(world: World) -> None:
    world.give(clients=1, clients_window=WINDOW)
    tunnel = Connection(ONE)
    world.request(0, tunnel)
    world.later(WINDOW)
    assert world.come(1, TWO) == ""
    move(tunnel)
    world.loop.turn(0)
    assert tunnel.ended == REFUSED


def test_one_that_comes_back_while_there_is_room_goes_on(world: World) -> None:
    world.give(clients=1, clients_window=WINDOW)
    tunnel = Connection(ONE)
    world.request(0, tunnel)
    world.later(2 * WINDOW)
    move(tunnel)
    assert (world.come(1, TWO), tunnel.ended) == (REFUSED, "")


def test_a_new_limit_counts_open_connections_and_a_new_window_holds_for_them(world: World) -> None:
    world.give()
    tunnels = [Connection(ONE), Connection(TWO)]
    assert [world.request(0, each) for each in tunnels] == ["", ""]
    world.give(clients=1, clients_window=WINDOW)
    assert [world.come(1, each) for each in (THREE, ONE, TWO)] == [REFUSED, "", ""]
    world.give(clients=1, clients_window=10)
    for _ in range(30):
        world.later(1.5)
        move(tunnels[0])
    assert [world.come(1, each) for each in (TWO, ONE)] == [REFUSED, ""]
    world.give()
    assert world.come(1, THREE) == ""
    assert not any(each.meter is None or each.meter.followed for each in tunnels)


def test_what_another_limit_refuses_is_no_use_and_what_is_refused_here_is_no_request(world: World) -> None:
    world.give(clients=1, clients_window=WINDOW, requests_per_minute=2)
    assert [world.come(0, each) for each in (ONE, TWO, TWO, ONE, ONE)] == [
        "",
        REFUSED,
        REFUSED,
        "",
        "account_request_limit",
    ]
    world.later(WINDOW - 1)
    assert world.come(0, ONE) == ""


def test_where_nothing_is_limited_nothing_is_opened_or_followed(world: World, tmp_path: Path) -> None:
    world.give()
    connection = Connection(ONE)
    assert world.request(0, connection) == ""
    assert connection.meter is not None
    assert not connection.meter.followed
    assert list(tmp_path.iterdir()) == []


# --- requests per minute ---

LIMIT = 3


@pytest.fixture
def clock() -> Clock:
    return Clock(100.0)


@pytest.fixture
def loop(clock: Clock) -> Iterator[Loop]:
    made = Loop(clock)
    yield made
    made.close()


@pytest.fixture
def windows(loop: Loop) -> ClientWindows:
    return ClientWindows(loop, LiveState(lambda: loop.now))


def request(windows: ClientWindows, number: int, loop: Loop) -> int:
    return windows.window(f"10.0.{number // 250}.{number % 250}").try_acquire(LIMIT)


def test_a_client_is_counted_for_a_minute(windows: ClientWindows, loop: Loop, clock: Clock) -> None:
    assert [request(windows, 1, loop) for _ in range(LIMIT + 1)] == [0] * LIMIT + [COUNTED]
    clock.now += COUNTED
    loop.turn(0)
    assert request(windows, 1, loop) == 0


def test_clients_of_one_slash_64_are_one(windows: ClientWindows) -> None:
    assert windows.window("2001:db8::1") is windows.window("2001:db8::2")
    assert windows.window("2001:db8::1") is not windows.window("2001:db8:0:1::1")


def test_each_new_client_replaces_idle_ones(windows: ClientWindows, loop: Loop, clock: Clock) -> None:
    for number in range(1000):
        request(windows, number, loop)
    clock.now += COUNTED + 1
    loop.now = clock.now
    lengths = [len(windows)]
    for number in range(1000, 2000):
        request(windows, number, loop)
        lengths.append(len(windows))
    assert all(before - after <= 1 for before, after in itertools.pairwise(lengths))
    assert len(windows) == 1000


def test_clients_that_go_on_are_kept_and_others_are_not(windows: ClientWindows, loop: Loop, clock: Clock) -> None:
    for number in range(10):
        request(windows, number, loop)
    clock.now += 30
    loop.turn(0)
    assert request(windows, 0, loop) == 0  # it is the oldest by its first request
    clock.now += 32
    loop.turn(0)
    for number in range(10, 20):
        request(windows, number, loop)
    assert len(windows) == 11
    assert [request(windows, 0, loop) for _ in range(3)] == [0, 0, 29]


def test_the_timer_forgets_all_when_no_client_comes_any_more_some_in_each_turn(
    windows: ClientWindows, loop: Loop, clock: Clock
) -> None:
    for number in range(3 * FORGOTTEN_AT_ONCE):
        request(windows, number, loop)
    end, before = clock.now + COUNTED + 2 * PERIOD, len(windows)
    while clock.now < end:
        clock.now += 0.25
        loop.turn(0)
        assert before - len(windows) <= FORGOTTEN_AT_ONCE
        before = len(windows)
    assert len(windows) == 0
    assert loop._timers == []


def test_a_flood_of_clients_is_bounded(windows: ClientWindows, loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_limits, "CLIENTS_MAX", 100)
    for number in range(300):
        request(windows, number, loop)
    assert len(windows) == 100
