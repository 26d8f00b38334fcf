"""Nodes of two releases in one fleet: no field is lost by a program that does not know it, and no node has to wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from api.cluster import migration_runner as module
from api.cluster.following.heartbeat import OutdatedProgram
from api.cluster.migration_runner import Migration, migrations
from api.cluster.shared_ledger import LedgerUnavailable
from api.engine.levels import LEVELS, LeveledField, Levels
from api.http.error_table import translated
from api.store import FleetLevel, Write
from tests.kit.postgresql import needs_postgresql
from tests.kit.tables import table
from tests.kit.wait import wait_until
from tests.unit.api.cluster.following import BusOfCollector, Following, nodes
from tests.unit.api.cluster.nodes import Fleet, fleet, proxy

pytestmark = needs_postgresql
NEXT = Levels(2, {("proxies", "nodes.zones"): LeveledField(2, [])})
REMOVAL = Migration(9_999, "less", "-- removes a table of the former release\nDROP TABLE proxyfleet.blobs")


@pytest.fixture
def ours() -> Iterator[Fleet]:
    with fleet() as found:
        yield found


def zoned(*zones: str, value: int = 0) -> list[Write]:
    """A proxy that uses the field of the next release, if there are any zones."""
    return [Write("proxies", "p1", {"id": "p1", "value": value, "nodes": {"all": True, "zones": [*zones]}})]


def value(node: Following) -> Any:
    found = node.engine.get("proxies", "p1")
    return None if found is None else found.body["value"]


def failed(node: Following) -> list[tuple[str, str]]:
    return [(each["id"], each["error"]) for each in node.node.heartbeat.problems()["failed"]]


def absent(fleet: Fleet, node: str) -> None:
    """It was not seen for a day."""
    fleet.execute(f"UPDATE proxyfleet.heartbeats SET at = at - interval '25 h' WHERE node = '{node}'")


@table(
    "body, level",
    [(None, 1), ({}, 1), ({"nodes": None}, 1), ({"nodes": {"zones": []}}, 1), ({"nodes": {"zones": ["a"]}}, 2)],
)
def test_a_document_has_the_lowest_level_that_knows_its_fields(body: Any, level: int) -> None:
    assert NEXT.of("proxies", body) == level
    assert NEXT.of("plans", body) == LEVELS.of("proxies", body) == 1


def test_a_field_that_a_node_does_not_know_is_refused_and_names_the_node(ours: Fleet) -> None:
    with nodes(ours, "new", levels=NEXT) as (new,), nodes(ours, "old") as (old,):
        for each in (new, old):
            each.node.heartbeat.beat_now()
        name = {"id": "old", "name": "fra2"}
        new.engine.commit([Write("nodes", "old", name)])
        number = new.engine.commit(zoned(value=1))
        assert old.node.wait_for(number, 5)
        entries = new.engine.trail.head
        with pytest.raises(FleetLevel) as refused:
            new.engine.commit(zoned("a", value=2))
        assert (value(new), new.engine.trail.head) == (1, entries)
        response = translated(refused.value, "")
        assert response is not None
        assert (response.status, response.code) == (409, "FLEET_LEVEL")
        assert response.details == {"level": 2, "nodes": ["fra2"], "fields": ["proxies.nodes.zones"]}
        number = old.engine.commit(zoned(value=3))
        assert new.node.wait_for(number, 5)
        assert value(new) == 3


def test_a_node_that_comes_back_to_newer_documents_keeps_what_it_had_and_changes_none_of_them(ours: Fleet) -> None:
    with nodes(ours, "new", levels=NEXT) as (new,), nodes(ours, "old") as (old,):
        old.node.heartbeat.beat_now()
        assert old.node.wait_for(new.engine.commit(zoned(value=1)), 5)
        absent(ours, "old")
        number = new.engine.commit([*zoned("a", value=2), *proxy(7)])
        assert ours.execute("SELECT id, level FROM proxyfleet.documents WHERE level <> 1") == [("p1", 2)]
        assert old.node.wait_for(number, 5)
        assert (value(old), old.engine.get("proxies", "proxies_7") is not None) == (1, True)
        old.node.heartbeat.beat_now()
        assert failed(old) == [("p1", "a newer release has written it (level 2), which this one can't read")]
        with pytest.raises(FleetLevel, match="proxies/p1 was written by a newer release"):
            old.engine.commit(zoned(value=3))
        assert old.engine.stamped()[0] == number
        assert new.node.wait_for(old.engine.commit(proxy(8)), 5)
        absent(ours, "old")
        assert old.node.wait_for(new.engine.commit(zoned(value=4)), 5)
        old.node.heartbeat.beat_now()
        assert (value(old), failed(old)) == (4, [])


def test_a_node_with_the_new_release_reads_what_the_former_one_could_not(ours: Fleet) -> None:
    with nodes(ours, "new", levels=NEXT) as (new,):
        with nodes(ours, "old") as (old,):
            old.node.heartbeat.beat_now()
            absent(ours, "old")
            number = new.engine.commit(zoned("a", value=2))
            assert old.node.wait_for(number, 5)
            assert value(old) is None
        with nodes(ours, "old", levels=NEXT) as (old,):
            wait_until(lambda: old.data.level.exists() and value(old) == 2, "it is read", 5)
            assert (old.data.level.read_text(), old.made[0][0].id) == ("2", "p1")
        with nodes(ours, "old", levels=NEXT) as (old,):
            assert old.node.wait_for(new.engine.commit(proxy(5)), 5)
            assert old.made == [] or [each.id for each in old.made[0]] == ["proxies_5"]


def test_a_large_commit_has_the_levels_of_its_documents_and_is_refused_as_any_other(
    ours: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.cluster.shared_ledger.AS_JSON", 0)
    with nodes(ours, "new", levels=NEXT) as (new,), nodes(ours, "old") as (old,):
        old.node.heartbeat.beat_now()
        with pytest.raises(
            FleetLevel, match=r"proxies\.nodes\.zones can be set when all nodes have this release: old has not"
        ):
            new.engine.commit(zoned("a"))
        absent(ours, "old")
        new.engine.commit([*zoned("a"), *proxy(7)])
        found = dict(ours.execute("SELECT id, level FROM proxyfleet.documents WHERE collection = 'proxies'"))
        assert found == {"p1": 2, "proxies_7": 1}
        with pytest.raises(FleetLevel, match="proxies/p1 was written by a newer release"):
            old.engine.commit(zoned(value=3))
        new.engine.commit(zoned())
        assert ours.execute("SELECT level FROM proxyfleet.documents WHERE id = 'p1'") == [(1,)]


# --- the schema ---


def test_the_first_node_of_a_release_brings_the_schema_forward_while_changes_wait(
    ours: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on, found = threading.Event(), threading.Event()
    more = Migration(9_999, "more", "CREATE TABLE proxyfleet.more (a text)")
    monkeypatch.setattr(module, "migrations", lambda: (*migrations(), more))
    migrate = module.migrate

    def slow(*given: Any, **more: Any) -> Any:
        found.set()
        assert may_go_on.wait(10)
        return migrate(*given, **more)

    monkeypatch.setattr(module, "migrate", slow)
    with nodes(ours, "a") as (node,):
        assert found.wait(10)
        made: list[int] = []
        change = threading.Thread(target=lambda: made.append(node.engine.commit(proxy())))
        change.start()
        change.join(0.1)
        assert (made, ours.execute("SELECT to_regclass('proxyfleet.more')")) == ([], [(None,)])
        may_go_on.set()
        change.join(10)
        assert (len(made), ours.execute("SELECT to_regclass('proxyfleet.more')::text")) == (1, [("proxyfleet.more",)])


def test_a_schema_that_cannot_be_brought_forward_refuses_changes_and_says_why(
    ours: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.cluster.shared_ledger.CHANGE", 0.05)
    altered = replace(migrations()[0], sql="SELECT 1")
    monkeypatch.setattr(module, "migrations", lambda: (altered, *migrations()[1:]))
    with nodes(ours, "a") as (node,):
        wait_until(lambda: node.node.ledger.awaited, "it is refused", 5)
        with pytest.raises(LedgerUnavailable, match=r"the migration 1_ledger of release .* is another than that"):
            node.engine.commit(proxy())


def test_what_removes_something_waits_until_no_node_of_the_former_release_was_seen_for_a_day(ours: Fleet) -> None:
    known = (*migrations(), REMOVAL)

    def run(by_itself: bool = True) -> list[Migration]:
        return module.migrate(ours.database, "a", known, by_itself)

    with nodes(ours, "old") as (old,):
        old.node.heartbeat.beat_now()
    gains = Migration(10_000, "later", "CREATE TABLE proxyfleet.later (a text)")
    assert module.migrate(ours.database, "a", (*known, gains), by_itself=True) == [gains]
    ours.execute("DROP TABLE proxyfleet.later; DELETE FROM proxyfleet.migrations WHERE number = 10000")
    assert run() == []
    absent(ours, "old")
    assert run() == [REMOVAL]
    assert ours.execute("SELECT number FROM proxyfleet.migrations WHERE removes") == [(9_999,)]


def test_by_the_command_it_runs_at_once_and_a_dry_run_takes_it_back(ours: Fleet) -> None:
    known = (*migrations(), REMOVAL)
    with nodes(ours, "old") as (old,):
        old.node.heartbeat.beat_now()
    tried = module.rehearse(ours.database, known)
    assert ([each.title for each in tried.missing], tried.seconds is not None) == (
        ["9999_less (removes something)"],
        True,
    )
    assert ours.execute("SELECT to_regclass('proxyfleet.blobs')::text") == [("proxyfleet.blobs",)]
    assert module.migrate(ours.database, "a", known) == [REMOVAL]


def test_a_dry_run_of_what_takes_long_says_so(ours: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REHEARSAL", 0.05)
    slow = Migration(9_999, "slow", "SELECT pg_sleep(30)")
    assert module.rehearse(ours.database, (*migrations(), slow)) == module.Rehearsal((slow,), None)


def test_a_program_from_before_a_removal_serves_what_it_has_writes_nothing_and_says_why(ours: Fleet) -> None:
    with nodes(ours, "old") as (old,):
        number = old.engine.commit(proxy())
        module.migrate(ours.database, "new", (*migrations(), REMOVAL))
        old.node.beat_soon()
        wait_until(lambda: not old.node.database.is_available, "it is outdated", 5)
        with pytest.raises(LedgerUnavailable, match=r"the release \S+ has removed .* upgrade this node"):
            old.engine.commit(proxy(1))
        before = ours.execute("SELECT at FROM proxyfleet.heartbeats")
        with pytest.raises(OutdatedProgram):
            old.node.heartbeat.beat_now()
        assert ours.execute("SELECT at FROM proxyfleet.heartbeats") == before
        assert (old.engine.stamped()[0], old.proxies()) == (number, 1)
        assert old.node.cut_off_for() is not None
        ours.execute("DELETE FROM proxyfleet.migrations WHERE removes")  # the database was restored
        wait_until(lambda: old.node.database.is_available, "it is used again", 10)
        old.engine.commit(proxy(1))


def test_the_collector_of_a_node_that_was_removed_or_is_outdated_reports_nothing_and_knows_why(ours: Fleet) -> None:
    bus = BusOfCollector()

    def knows() -> str:
        bus.asked.clear()
        node.node.heartbeat.soon()
        wait_until(lambda: bus.asked, "the collector is asked", 10)
        return str(bus.asked[-1].refused)

    with nodes(ours, "old", bridge=bus) as (node,):
        assert knows() == "this node was removed from the fleet"
        node.engine.commit([Write("nodes", "old", {"id": "old", "name": "old", "addresses": {}})])
        assert knows() == ""
        module.migrate(ours.database, "new", (*migrations(), REMOVAL))
        assert "upgrade this node" in knows()
        ours.execute("DELETE FROM proxyfleet.migrations WHERE removes")  # the database was restored
        assert knows() == ""


def test_a_node_of_the_former_release_goes_on_with_a_schema_that_has_gained(ours: Fleet) -> None:
    with nodes(ours, "old") as (old,):
        more = Migration(9_999, "more", "CREATE TABLE proxyfleet.more (a text)")
        assert module.migrate(ours.database, "new", (*migrations(), more), by_itself=True) == [more]
        old.node.heartbeat.beat_now()
        old.engine.commit(proxy())
        assert old.proxies() == 1


def test_a_program_works_with_the_schema_of_the_former_release_until_that_is_brought_forward() -> None:
    with fleet(known=[each for each in migrations() if each.number < 8]) as ours, nodes(ours, "a") as (node,):
        last = [(migrations()[-1].number,)]
        wait_until(lambda: ours.execute("SELECT max(number) FROM proxyfleet.migrations") == last, "it is forward", 10)
        assert all(each.removes for each in module.rehearse(ours.database).missing)
        node.engine.commit(proxy())
