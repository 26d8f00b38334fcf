"""Reports of clients' programs about upstreams of a pool: given at one node, they hold on all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from api.fleet import ThisNode
from api.store import Write
from config.model.shared_objects.pools import VERDICTS
from tests.unit.api.cluster.node_api import NodeApi, two

POOL = {
    "name": "paris",
    "upstreams": [
        {"protocol": "http", "host": f"up{number}.example", "port": 3128, "name": f"up{number}"} for number in range(2)
    ],
}


class Clocked(ThisNode):
    """A node, and the time of the fleet."""

    def __init__(self, now: list[float]) -> None:
        self.node_id = "nod_1"
        self._now = now

    def clock(self) -> float:
        return self._now[0]


@pytest.fixture
def now() -> list[float]:
    """Of the fleet; clocks of its machines are far from that."""
    return [5000.0]


@pytest.fixture
def nodes(now: list[float]) -> Iterator[tuple[NodeApi, NodeApi]]:
    with two() as (one, other):
        for each in (one, other):
            each.services.node = Clocked(now)
        assert one.ask("POST", "/pools", POOL)[0] == 201
        other.engine.catch_up()
        yield one, other


def report(at: NodeApi, **body: Any) -> None:
    status, found = at.ask("POST", "/pools/paris/upstreams/up0/report", body)
    assert status == 200, found


def banned(at: NodeApi) -> list[str]:
    at.engine.catch_up()
    _, found = at.ask("GET", "/pools/paris")
    return [each["name"] for each in found["pool"]["status"]["upstreams"] if each["banned_until"]]


def test_a_report_holds_on_all_nodes_until_it_is_taken_back_at_any(nodes: tuple[NodeApi, NodeApi]) -> None:
    one, other = nodes
    report(one, verdict="bad", seconds=600)
    assert (banned(one), banned(other)) == (["up0"], ["up0"])
    report(other, verdict="good")
    assert (banned(one), banned(other)) == ([], [])
    assert len(one.engine.find(VERDICTS)) == 1, "an upstream has one"
    assert [each.fleet.published("upstream.banned") != [] for each in nodes] == [True, False]


def test_its_end_is_by_the_clock_of_the_fleet(nodes: tuple[NodeApi, NodeApi], now: list[float]) -> None:
    one, other = nodes
    report(one, verdict="bad", seconds=600)
    now[0] += 601  # before the other follows
    assert (banned(one), banned(other)) == (["up0"], [])


def test_a_node_that_was_away_learns_what_ended_meanwhile(nodes: tuple[NodeApi, NodeApi]) -> None:
    one, other = nodes
    report(one, verdict="bad", seconds=600)
    assert banned(other) == ["up0"]
    report(one, verdict="good")
    (document,) = one.engine.find(VERDICTS)
    one.engine.commit_unrecorded([Write(VERDICTS, document.id, None, document.revision)])
    assert banned(other) == []


def test_a_node_has_them_after_its_machine_has_started_again(nodes: tuple[NodeApi, NodeApi], now: list[float]) -> None:
    one, _ = nodes
    report(one, verdict="bad", seconds=600)
    shutil.rmtree(one.run.pools)
    one.start()
    one.services.node = Clocked(now)
    assert banned(one) == []
    one.services.pool_states.apply_stored()
    assert banned(one) == ["up0"]
    one.services.node = ThisNode()  # it has left the fleet
    one.services.pool_states.apply_stored()
    assert one.engine.find(VERDICTS) == []
