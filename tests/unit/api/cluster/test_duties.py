"""What one node does for all: who has a duty, through deaths and outages; and events that one node announces."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from actors.cluster.database import Database
from api.cluster import duties as module
from api.cluster.duties import Duties
from api.cluster.following import heartbeat
from api.cluster.following.heartbeat import Heartbeat, SecondInstallation
from api.cluster.shared_ledger import LedgerUnavailable
from tests.kit.postgresql import needs_postgresql
from tests.kit.postgresql_server import Server
from tests.kit.wait import wait_until
from tests.unit.api.cluster.nodes import Fleet, beat, fleet

pytestmark = needs_postgresql
NAME = "lists"


@pytest.fixture
def ours() -> Iterator[Fleet]:
    with fleet() as found:
        yield found


@pytest.fixture
def two(ours: Fleet) -> tuple[Duties, Duties]:
    """Those of two nodes, both of which want the duty."""
    found = Duties(ours.database, "a"), Duties(ours.database, "b")
    assert [each.has(NAME) for each in found] == [False, False]
    return found


def renew(ours: Fleet, *nodes: tuple[str, Duties]) -> None:
    for name, duties in nodes:
        beat(duties, ours.database, name)


def has(*duties: Duties) -> list[bool]:
    return [each.has(NAME) for each in duties]


def end_lease(ours: Fleet) -> None:
    """As if `LEASE` had passed on the database's clock."""
    ours.execute("UPDATE proxyfleet.duties SET until = clock_timestamp() - interval '1 ms'")


def test_one_node_has_a_duty_while_it_renews_it(ours: Fleet, two: tuple[Duties, Duties]) -> None:
    one, other = two
    for _ in range(2):
        renew(ours, ("a", one), ("b", other))
        assert has(one, other) == [True, False]
    one.close()
    renew(ours, ("b", other))
    assert has(one, other) == [False, True]
    assert ours.execute("SELECT node, until > clock_timestamp() + interval '14 s' FROM proxyfleet.duties") == [
        ("b", True)
    ]


def test_a_node_that_was_stopped_loses_its_duty_for_good(ours: Fleet, two: tuple[Duties, Duties]) -> None:
    one, other = two
    renew(ours, ("a", one))
    end_lease(ours)  # one is stopped meanwhile
    renew(ours, ("b", other), ("a", one))
    assert has(one, other) == [False, True]


def test_of_many_at_once_one_gets_it(ours: Fleet) -> None:
    found = {f"n{number}": Duties(ours.database, f"n{number}") for number in range(3)}
    assert not any(has(*found.values()))
    with ThreadPoolExecutor(len(found)) as pool:
        list(pool.map(lambda each: renew(ours, each), found.items()))
    assert sorted(has(*found.values())) == [False, False, True]


def test_a_node_without_the_database_has_no_duty_before_another_may(ours: Fleet) -> None:
    now = 1000.0
    one = Duties(ours.database, "a", lambda: now)
    one.has(NAME)
    renew(ours, ("a", one))
    now += 9.9
    assert has(one) == [True]
    now += 0.2
    assert has(one) == [False]
    assert module.TRUSTED < module.LEASE


def test_a_clock_of_the_node_that_jumps_changes_nothing(
    ours: Fleet, two: tuple[Duties, Duties], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = two
    renew(ours, ("a", one))
    for jump in (-3600.0, 3600.0):
        wall = time.time() + jump
        monkeypatch.setattr(time, "time", lambda wall=wall: wall)
        assert has(one) == [True]


def test_a_database_that_stops_ends_duties_and_one_that_returns_gives_them_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "TRUSTED", 0.5)
    monkeypatch.setattr(heartbeat, "PERIOD", 0.1)
    with Server() as server, server.database() as dsn, fleet(dsn) as ours:
        duties = Duties(ours.database, "a")
        duties.has(NAME)
        beats = Heartbeat(ours.database, "a", "a", lambda: (0, None))
        beats.fields.append(duties.heartbeat_fields)
        beats.subscribers.append(duties.on_heartbeat)
        beats.start()
        wait_until(lambda: has(duties) == [True], "the node has the duty")
        server.stop()
        wait_until(lambda: has(duties) == [False], "it has none without the database")
        server.start()
        wait_until(lambda: has(duties) == [True], "it has the duty again")
        beats.close()
        duties.close()


def test_a_copy_of_a_node_gets_no_duty(ours: Fleet) -> None:
    node, copy = Duties(ours.database, "a"), Duties(ours.database, "a")
    copy.has(NAME)
    renew(ours, ("a", node))
    beats = Heartbeat(ours.database, "a", "another", lambda: (0, None))
    beats.fields.append(copy.heartbeat_fields)
    with pytest.raises(SecondInstallation):
        beats.beat_now()
    assert ours.execute("SELECT * FROM proxyfleet.duties") == []


def claimed(of: Duties, *keys: str) -> tuple[list[str], list[str]]:
    found = of.claim(keys)
    return sorted(found.ours), sorted(found.done)


def test_an_event_is_announced_by_the_first_node_that_claims_it(two: tuple[Duties, Duties]) -> None:
    one, other = two
    assert claimed(one, "1", "2") == (["1", "2"], [])
    assert claimed(other, "1", "3") == (["3"], [])
    one.announced(["1"])
    assert claimed(other, "1", "2", "3") == (["3"], ["1"])
    assert claimed(one, "1", "2") == (["2"], ["1"]), "as after a restart before it was announced"
    assert claimed(one) == ([], [])


def test_an_event_of_a_node_that_died_before_it_is_another_ones(ours: Fleet, two: tuple[Duties, Duties]) -> None:
    one, other = two
    one.claim(["1", "2"])
    one.announced(["2"])
    ours.execute("UPDATE proxyfleet.claims SET until = clock_timestamp() - interval '1 ms'")
    assert claimed(other, "1", "2") == (["1"], ["2"])
    assert claimed(one, "1") == ([], [])


def test_many_that_claim_at_once_share_the_events(ours: Fleet) -> None:
    keys = [str(number) for number in range(50)]
    found: list[Any] = []

    def claim(node: str, order: int) -> None:
        found.extend(Duties(ours.database, node).claim(keys[::order]).ours)

    threads = [threading.Thread(target=claim, args=each) for each in (("a", 1), ("b", -1), ("c", 1))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(found) == sorted(keys)


def test_a_claim_without_the_database_is_an_error_soon(ours: Fleet) -> None:
    nowhere = Database(ours.dsn.replace("host=127.0.0.1", "host=127.0.0.2"))
    with closing(nowhere) as database, pytest.raises(LedgerUnavailable):
        Duties(database, "a").claim(["1"])
