"""Limits of accounts over nodes: processes of several machines, their collectors, and the fleet's database."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from actors.bus.messages.cluster import NoteFleet
from actors.bus.messages.specs import LimitsSpec
from actors.forwarding.limits.meter import Meter
from actors.metrics.usage.limits_reporter import CUT_OFF_AFTER, IDLE
from actors.state.other_nodes import HOLDS
from tests.kit.postgresql import migrated_database, needs_postgresql
from tests.kit.tables import table
from tests.unit.actors.forwarding.bandwidth_flows import RATE, STEP, Flow, Worker
from tests.unit.actors.forwarding.usage_world import ADA, Process
from tests.unit.actors.metrics.fleets import Fleet, Node

pytestmark = needs_postgresql

LATE = 2.0
"""Seconds after which all nodes know what one has admitted."""
TURN = 0.25


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with migrated_database() as dsn, ExitStack() as stack:
        yield Fleet(dsn, tmp_path, stack)


class Client:
    """Of a connection, as far as limits need it."""

    client_ip = "192.0.2.7"

    def measure(self, meter: Meter) -> None:
        pass

    def end(self, reason: str) -> None:
        raise AssertionError(reason)

    def destinations_changed(self) -> None:
        raise AssertionError


class Proxy(Process):
    """A process with one account, and its connections."""

    def __init__(self, node: Node, limits: LimitsSpec, proxy: str = "px1") -> None:
        super().__init__(node, proxy)
        self.node = node
        self.meters: list[Meter] = []
        self.account = replace(ADA, quota=0, limits=limits)
        self.configure(self.account)

    def connects(self) -> bool:
        meter = self.limits.meter()
        if meter.admit("ada", Client()) is not None:
            meter.close()
            return False
        self.meters.append(meter)
        return True

    def disconnects(self) -> None:
        self.meters.pop().close()

    def connects_often(self, times: int = 20) -> int:
        return sum(self.connects() for _ in range(times))


class History:
    """What was counted of a node at each moment."""

    def __init__(self) -> None:
        self._moments: list[float] = []

    def add(self, at: float) -> None:
        self._moments.append(at)

    def of_minute(self, at: float, seconds: float = 60.0) -> int:
        return sum(at - seconds < each <= at for each in self._moments)


def pass_time(fleet: Fleet, seconds: float) -> None:
    for _ in range(round(seconds / TURN)):
        for node in fleet.nodes:
            node.hand.time += TURN
        for node in fleet.nodes:
            node.turn()


@pytest.mark.parametrize("seed", range(2))
def test_connections_are_at_most_what_others_admit_in_two_seconds_and_never_refused_for_longer(
    fleet: Fleet, seed: int
) -> None:
    limit, chance = 12, random.Random(seed)
    proxies = [Proxy(fleet.node(), LimitsSpec(connections=limit), f"px{number % 2}") for number in range(3)]
    opened: list[list[int]] = [[0] * 8 for _ in proxies]  # at the end of each turn
    lately = round(LATE / TURN) + 1
    admitted = refused = 0
    for _ in range(40):
        for number, proxy in enumerate(proxies):
            if chance.random() < 0.5:
                continue
            others = [each[-lately:] for each in opened if each is not opened[number]]
            for _ in range(chance.randrange(1, 6)):
                if chance.random() < 0.4 and proxy.meters:
                    proxy.disconnects()
                    continue
                before = len(proxy.meters)
                if proxy.connects():
                    admitted += 1
                    assert before + sum(map(min, others)) < limit
                else:
                    refused += 1
                    assert before + sum(map(max, others)) >= limit
        for each, proxy in zip(opened, proxies, strict=True):
            each.append(len(proxy.meters))
        pass_time(fleet, TURN)
    assert min(admitted, refused) > 12


def test_requests_of_a_minute_are_at_most_what_others_admit_in_two_seconds(fleet: Fleet) -> None:
    limit, chance = 30, random.Random(7)
    proxies = [Proxy(fleet.node(), LimitsSpec(requests_per_minute=limit)) for _ in range(2)]
    histories = [History() for _ in proxies]
    refused = 0
    for _ in range(300):
        for proxy, own, other in zip(proxies, histories, reversed(histories), strict=True):
            if chance.random() < 0.6:
                continue
            now = proxy.node.loop.now
            lately = [now - late * TURN for late in range(round(LATE / TURN) + 1)]
            if proxy.connects():
                assert own.of_minute(now) + min(map(other.of_minute, lately)) < limit
                own.add(now)
                proxy.disconnects()
            else:
                refused += 1
                assert own.of_minute(now, 62) + max(other.of_minute(each, 62) for each in lately) >= limit
        pass_time(fleet, TURN)
    assert refused > 50


def move(fleet: Fleet, seconds: float) -> None:
    for _ in range(round(seconds / STEP)):
        for node in fleet.nodes:
            node.hand.time += STEP
            node.loop.turn(0)
            node.await_database()


@table(("flows", "shares"), [((1, 1), (0.5, 0.5)), ((1, 3), (0.25, 0.75)), ((0, 2), (0.0, 1.0))])
def test_a_bandwidth_is_divided_by_the_flows_of_all_nodes(
    tmp_path: Path, flows: tuple[int, ...], shares: tuple[float, ...]
) -> None:
    with migrated_database() as dsn, ExitStack() as stack:
        fleet = Fleet(dsn, tmp_path / f"{flows}", stack)
        nodes = [fleet.node() for _ in flows]
        workers = [Worker(node, node.machine.state(), RATE) for node in nodes]
        made = [[Flow(worker) for _ in range(count)] for worker, count in zip(workers, flows, strict=True)]
        move(fleet, 10)
        whole = [sum(each.moved for each in some) / (10 * RATE) for some in made]
        assert sum(whole) == pytest.approx(1, abs=0.2)
        before = [sum(each.moved for each in some) for some in made]
        move(fleet, 3)
        parts = [(sum(each.moved for each in some) - was) / (3 * RATE) for some, was in zip(made, before, strict=True)]
        assert parts == pytest.approx(shares, abs=0.1)


def test_the_first_use_at_a_node_finds_what_others_count(fleet: Fleet) -> None:
    busy = Proxy(fleet.node(), LimitsSpec(connections=10, requests_per_minute=14))
    idle = fleet.node()
    pass_time(fleet, IDLE)
    assert busy.connects_often(7) == 7
    pass_time(fleet, IDLE)
    other = Proxy(idle, busy.account.limits)
    assert other.connects_often() == 3
    for each in (busy, other):
        while each.meters:
            each.disconnects()
    pass_time(fleet, LATE)
    assert other.connects_often() == 4  # the 14th request


def test_a_node_that_is_cut_off_goes_on_by_the_last_division_and_has_its_part_at_least(fleet: Fleet) -> None:
    limits = LimitsSpec(connections=10)
    one, other = (Proxy(fleet.node(), limits) for _ in range(2))
    assert one.connects_often(7) == 7
    one.uses(1)  # so that the number of nodes is known
    other.uses(1)
    pass_time(fleet, IDLE + LATE)
    assert other.connects_often() == 3
    pass_time(fleet, LATE)
    fleet.cut()
    pass_time(fleet, LATE)
    assert other.connects_often() == 0
    pass_time(fleet, CUT_OFF_AFTER)
    assert other.connects_often() == 2  # 5 of 10
    one.disconnects()
    assert one.connects_often() == 1  # the last division was 7 to 3
    pass_time(fleet, 2 * HOLDS)
    other.disconnects()
    assert (one.connects_often(), other.connects_often()) == (0, 1)
    fleet.cut(False)
    pass_time(fleet, LATE)
    other.disconnects()
    assert other.connects_often() == 0


def test_the_next_collector_goes_on_with_what_others_count_and_one_that_is_gone_limits_nothing(fleet: Fleet) -> None:
    limits = LimitsSpec(connections=5)
    one, other = (Proxy(fleet.node(), limits) for _ in range(2))
    assert one.connects_often() == 5
    pass_time(fleet, IDLE + LATE)
    assert other.connects_often() == 0
    node = other.node
    service = node.collector.service
    assert service._limits is not None
    fleet.cut()
    service._limits.close()
    node.collector.restart()
    node.follow()
    node.database.is_cut = True
    pass_time(fleet, LATE)
    assert other.connects_often() == 0
    last = node.collector.service._limits
    assert last is not None
    last.close()
    node.collector.service._limits = None
    pass_time(fleet, HOLDS - LATE)
    assert other.connects_often() == 0
    pass_time(fleet, LATE + 1)
    assert other.connects_often() == 5


def test_a_node_that_is_silent_or_leaves_counts_no_more(fleet: Fleet) -> None:
    limits = LimitsSpec(connections=5)
    one, other = (Proxy(fleet.node(), limits) for _ in range(2))
    assert one.connects_often() == 5
    pass_time(fleet, LATE)
    one.node.database.is_cut = True
    fleet.execute("UPDATE proxyfleet.limits_in_use SET at = at - 11")
    pass_time(fleet, LATE)
    assert other.connects_often() == 5
    one.node.database.is_cut = False
    pass_time(fleet, LATE)
    one.disconnects()
    assert not one.connects()
    one.node.collector.service.leave()
    assert one.connects()


def test_without_such_accounts_nodes_say_little(fleet: Fleet) -> None:
    one = Proxy(fleet.node(), LimitsSpec())
    assert one.connects()
    pass_time(fleet, IDLE - 1)
    assert fleet.execute("SELECT count(*) FROM proxyfleet.limits_in_use") == [(0,)]
    pass_time(fleet, IDLE)
    assert fleet.execute("SELECT keys FROM proxyfleet.limits_in_use") == [([],)]


def test_no_node_looks_for_what_others_count_while_the_heartbeat_says_that_there_is_nothing(fleet: Fleet) -> None:
    one = fleet.node()
    for _ in range(4):
        one.collector.service.note_fleet(NoteFleet(0, limits=False))
        pass_time(fleet, IDLE)
    assert fleet.execute("SELECT count(*) FROM proxyfleet.limits_in_use") == [(0,)]
    one.collector.service.note_fleet(NoteFleet(0, limits=True))
    pass_time(fleet, 1)
    assert fleet.execute("SELECT count(*) FROM proxyfleet.limits_in_use") == [(1,)]
