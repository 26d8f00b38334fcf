"""A replica whose commits the database has lost or forgotten becomes what that has, and names what was lost."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import pytest
from psycopg.conninfo import make_conninfo

from api.audit.trail import Selection
from api.cluster.following import rereading
from api.cluster.following.rereading import AwaitsFullNode
from api.cluster.roles import NodeLogin
from api.cluster.shared_ledger import LARGEST, NoFleet, OtherFleet, Rewound
from api.engine.commit import Engine
from api.engine.ledger import TooFarBehind
from api.history.recorder import STORED
from api.store import HistoryPruned, LedgerError, Write
from tests.kit.fleet_database import begin_roles
from tests.kit.gated_relay import GatedRelay
from tests.kit.postgresql import needs_postgresql
from tests.kit.postgresql_server import Server
from tests.kit.wait import wait_until
from tests.unit.api.cluster.nodes import Fleet, fleet, owner, proxy
from tests.unit.api.cluster.replica_nodes import ORDERED, Replica, alike
from tests.unit.api.store.replicas import answers, write_of

pytestmark = needs_postgresql
TABLES = ("fleet", "commits", "documents", "revisions", "revision_changes", "audit")


@pytest.fixture
def ours() -> Iterator[Fleet]:
    with fleet() as found:
        yield found


@pytest.fixture
def two(ours: Fleet) -> Iterator[tuple[Replica, Replica]]:
    with ExitStack() as stack:
        yield Replica(ours, "a", stack), Replica(ours, "b", stack)


def dump(fleet: Fleet) -> None:
    fleet.execute(
        "CREATE SCHEMA dump;" + ";".join(f"CREATE TABLE dump.{each} AS TABLE proxyfleet.{each}" for each in TABLES)
    )


def restore(fleet: Fleet) -> None:
    fleet.execute(
        ";".join(
            f"TRUNCATE proxyfleet.{each}; INSERT INTO proxyfleet.{each} SELECT * FROM dump.{each}" for each in TABLES
        )
    )


def test_what_a_commit_made_that_someone_has_removed_is_read_anew(ours: Fleet, two: tuple[Replica, Replica]) -> None:
    one, other = two
    one.engine.commit([*proxy(0, 0)])
    other.follow()
    for value in (1, 2):
        one.engine.commit([*proxy(value, value)])
    ours.execute("DELETE FROM proxyfleet.commits WHERE number = 2")
    with pytest.raises(Rewound, match="commits after 1 are missing"):
        other.engine.catch_up()
    other.follow()
    alike(ours, one, other)
    assert [*other.data.cluster.glob("lost-*.json")] == []


def test_after_an_older_dump_all_nodes_follow_it_and_name_what_was_undone(
    ours: Fleet, two: tuple[Replica, Replica]
) -> None:
    one, other = two
    cache = ProxyCacheOf(one.engine)
    one.engine.commit([*proxy(0, 0), *proxy(1, 0), write_of(("accounts", 0, 0)), write_of(("users", 0, 0))])
    other.follow()
    dump(ours)
    one.engine.commit([*proxy(0, 1), write_of(("accounts", 1, 1))])
    one.engine.commit([Write("proxies", "proxies_1", None)])
    one.engine.commit([write_of(("plans", 0, 0))])
    other.follow()
    assert cache.bodies() == {"proxies_0": "name-1"}
    numbers = one.engine.stamped()[0]
    restore(ours)
    for each in two:
        each.made.clear()
        each.follow()
    alike(ours, *two)
    assert one.engine.stamped()[0] == numbers + 1000
    assert cache.bodies() == {"proxies_0": "name-0", "proxies_1": "name-0"}
    for each in two:
        touched = {(change.collection, change.id) for change in each.made}
        assert touched == {
            ("proxies", "proxies_0"), ("proxies", "proxies_1"),
            ("accounts", "accounts_1"), ("plans", "plans_0"),
        }  # fmt: skip
        assert {(row["collection"], row["id"], row["revision"]) for row in each.lost()["documents"]} == {
            ("proxies", "proxies_0", 2), ("proxies", "proxies_1", None), ("accounts", "accounts_1", 2),
            ("plans", "plans_0", 4),
        }  # fmt: skip
        assert (each.lost()["revision"], each.lost()["commits"]) == (1, [2, 3, 4])
        assert [(row["commit"], row["node"]) for row in each.lost()["revisions"]] == [(2, "a"), (3, "a"), (4, "a")]
        assert "hash-1" not in json.dumps(each.lost())
        ((kind, data),) = each.events
        assert kind == "fleet.rewound"
        assert (data["name"], data["revision"], data["commits"]) == (f"name-{each.name}", 1, 3)
        assert (each.data.path / data["file"]).exists()
    number = other.engine.commit(proxy(2, 2))
    one.follow()
    alike(ours, *two)
    assert number == numbers + 1001
    assert ours.execute("SELECT number FROM proxyfleet.revisions ORDER BY 1") == [(1,), (2,)]


def test_after_a_failover_to_a_standby_that_lacks_the_last_commits_all_follow_that() -> None:
    """Section 15: noticed by stamps, named, followed."""
    with Server() as first, GatedRelay(first.port) as relay, ExitStack() as stack:
        first.execute("CREATE DATABASE fleet")
        dsn = make_conninfo(first.dsn("fleet"), port=relay.port, sslmode="disable", gssencmode="disable")
        ours = stack.enter_context(fleet(dsn))
        one, other = Replica(ours, "a", stack), Replica(ours, "b", stack)
        one.engine.commit([*proxy(0, 0), *proxy(1, 0)])
        standby = stack.enter_context(Server(standby_of=first))
        standby.part()
        one.engine.commit(proxy(0, 1))
        one.engine.commit(proxy(2, 2))
        other.follow()
        first.stop(signal.SIGKILL)
        standby.promote()
        relay.target = standby.port
        relay.cut()
        for each in (one, other):
            wait_until(lambda node=each: node.database.is_available or node.database.check(), "it is back", 10)  # type: ignore[misc]
            each.follow()
        alike(ours, one, other)
        for each in (one, other):
            assert (each.lost()["revision"], each.lost()["commits"]) == (1, [2, 3])
            assert {row["id"] for row in each.lost()["documents"]} == {"proxies_0", "proxies_2"}
        other.engine.commit(proxy(3, 3))
        one.follow()
        alike(ours, one, other)
        first.start()


class ProxyCacheOf:
    """What a cache of records has of the proxies."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._seen = -1
        self._known: dict[str, str] = {}

    def bodies(self) -> dict[str, str]:
        try:
            changes: Sequence[Any] = self._engine.changed(self._seen)
        except HistoryPruned:
            self._known = {each.id: each.body["name"] for each in self._engine.every("proxies")}
        else:
            for each in changes:
                if each.collection == "proxies":
                    self._known.pop(each.id, None)
                    if each.body is not None:
                        self._known[each.id] = each.body["name"]
        self._seen = self._engine.revision
        return self._known


def test_changes_that_others_made_since_the_restore_are_taken_and_not_called_undone(
    ours: Fleet, two: tuple[Replica, Replica]
) -> None:
    one, other = two
    one.engine.commit([*proxy(0, 0), *proxy(1, 0)])
    other.follow()
    dump(ours)
    one.engine.commit(proxy(0, 1))
    restore(ours)
    for value in range(3):
        other.engine.commit(proxy(1, value))
    one.follow()
    other.follow()
    alike(ours, *two)
    assert [(row["id"], row["body"]["name"]) for row in one.lost()["documents"]] == [("proxies_0", "name-1")]
    assert one.lost()["commits"] == [2]
    assert other.events == []
    assert one.engine.stamped()[0] == 4  # the head was above already


def test_an_edge_waits_until_a_full_node_has_raised_the_head_and_names_what_was_undone() -> None:
    with ExitStack() as stack:
        ours = stack.enter_context(fleet(stack.enter_context(owner())))
        logins = NodeLogin("nod_rereadsfull", "full"), NodeLogin("nod_rereadsedge", "edge")
        begin_roles(ours.database, logins[0])
        with ours.database.session() as session:
            session.transaction(*logins[1].statement)
        one, edge = (Replica(ours, each.node, stack, login=each) for each in logins)
        name = {"id": edge.name, "name": "edge", "role": "edge", "tags": []}
        one.engine.commit([Write("nodes", edge.name, name), *proxy(0, 0), *proxy(1, 0), write_of(("users", 0, 0))])
        edge.follow()
        dump(ours)
        one.engine.commit([*proxy(0, 1), write_of(("accounts", 1, 1)), write_of(("users", 1, 0))])
        edge.follow()
        one.engine.commit([Write("proxies", "proxies_1", None)])
        edge.follow()
        edge.engine.trail.append("system.tried")
        restore(ours)
        for _ in range(2):
            with pytest.raises(AwaitsFullNode, match="has lost the commit 3 of this node"):
                edge.follow()
        assert edge.events == []
        one.follow()
        edge.follow()
        assert edge.engine.stamped() == one.engine.stamped()
        assert [each.body["name"] for each in edge.engine.every("proxies")] == ["name-0", "name-0"]
        assert {(row["collection"], row["id"], row["revision"]) for row in edge.lost()["documents"]} == {
            ("proxies", "proxies_0", 2), ("proxies", "proxies_1", None), ("accounts", "accounts_1", 2),
        }  # fmt: skip
        assert (edge.lost()["revision"], edge.lost()["commits"]) == (1, [2, 3])
        assert [kind for kind, _ in edge.events] == ["fleet.rewound"]
        sent = ours.execute(f"SELECT seq, hash FROM proxyfleet.audit WHERE node = '{edge.name}'")
        assert sent == [(1, edge.engine.trail.head.hash)]
        one.engine.commit(proxy(1, 2))
        edge.follow()
        assert edge.engine.stamped() == one.engine.stamped()


def test_a_replica_behind_what_is_kept_takes_the_differences_alone(ours: Fleet, two: tuple[Replica, Replica]) -> None:
    one, other = two
    one.engine.commit([*proxy(0, 0), *proxy(1, 0), write_of(("accounts", 0, 0))])
    other.follow()
    other.engine.trail.append("user.signed_in")
    one.engine.commit([Write("proxies", "proxies_1", None), *proxy(2, 0)])
    one.engine.commit(proxy(0, 2))
    ours.execute("UPDATE proxyfleet.fleet SET pruned_to = 3; DELETE FROM proxyfleet.commits WHERE number < 3")
    ours.execute("DELETE FROM proxyfleet.documents WHERE body IS NULL")
    other.made.clear()
    other.follow()
    alike(ours, *two)
    assert [each.id for each in other.made] == ["proxies_1", "proxies_2", "proxies_0"]
    assert (other.events, [*other.data.cluster.glob("lost-*")]) == ([], [])
    one.follow()
    one.engine.commit(proxy(0, 1))
    other.follow()
    alike(ours, *two)


def test_a_replica_that_was_lost_is_read_whole_with_its_audit_trail(ours: Fleet, two: tuple[Replica, Replica]) -> None:
    one, other = two
    for value in range(3):
        one.engine.commit([write_of((name, value, value)) for name in ORDERED])
        other.follow()
    other.engine.commit([Write("proxies", "proxies_1", None)])
    one.follow()
    with ExitStack() as stack:
        again = Replica(ours, "a", stack, "again")
        again.reread()
        alike(ours, one, other, again)
        assert again.events == []
        assert again.engine.trail.head == one.engine.trail.head
        again.engine.commit(proxy(2, 1))
        other.follow()
        alike(ours, other, again)


def history(engine: Engine) -> tuple[list[Any], list[Any]]:
    with engine.file.reading() as database:
        revisions = database.execute(f"SELECT {STORED} FROM revisions ORDER BY number")
        return [*revisions], [*database.execute("SELECT * FROM revision_changes ORDER BY number, place")]


def read_whole(fleet: Fleet, folder: str, stack: ExitStack) -> Replica:
    """The replica of the node `a`, which was lost."""
    again = Replica(fleet, "a", stack, folder)
    again.reread()
    return again


def test_revisions_are_read_in_pages_wherever_these_end(
    ours: Fleet, two: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is larger than a page, by rows or by bytes."""
    one, _ = two
    for count in (1, 3, 2, 6):
        one.engine.commit([write_of(("accounts", which, count)) for which in range(count)])
    (_, changes), bodies = history(one.engine), len(history(one.engine)[1][0][-1])
    assert [row[0] for row in changes] == [1, 2, 2, 2, 3, 3, *[4] * 6]
    for rows, size in ((1, 2**20), (2, 2**20), (3, 2**20), (4, 2**20), (12, 1), (12, bodies + 1), (12, 3 * bodies)):
        monkeypatch.setattr(rereading, "PAGE", rows)
        monkeypatch.setattr(rereading, "PART", size)
        monkeypatch.setattr(rereading, "BODIES", rows)
        with ExitStack() as stack:
            again = read_whole(ours, f"pages-{rows}-{size}", stack)
            assert history(again.engine) == history(one.engine), (rows, size)
            alike(ours, one, again)


def test_a_commit_that_is_too_large_for_one_text_is_read_in_pages_and_what_is_behind_it_too(
    ours: Fleet, two: tuple[Replica, Replica]
) -> None:
    one, other = two
    one.engine.commit([write_of(("accounts", 90, 1))])
    other.follow()
    one.engine.commit([write_of(("accounts", which, 2)) for which in range(40)])
    one.engine.commit([write_of(("accounts", 91, 3))])
    ours.execute(f"UPDATE proxyfleet.commits SET size = {LARGEST + 1} WHERE number = 2")
    with pytest.raises(TooFarBehind, match="the commit 2 is too large"):
        other.engine.catch_up()
    with pytest.raises(LedgerError, match="has to read everything anew before it changes anything"):
        other.engine.commit([write_of(("accounts", 92, 4))])
    other.follow()
    alike(ours, one, other)
    other.engine.commit([write_of(("accounts", 92, 4))])
    one.follow()
    alike(ours, one, other)
    assert (one.events, other.events) == ([], [])


def test_of_revisions_that_were_pruned_nothing_is_read_and_of_their_changes_what_there_is(
    ours: Fleet, two: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rereading, "PAGE", 2)
    one, _ = two
    for value in range(4):
        one.engine.commit([*proxy(0, value), *proxy(1, value)])
    revisions, changes = history(one.engine)
    ours.execute(
        "DELETE FROM proxyfleet.revisions WHERE number = 1; DELETE FROM proxyfleet.revision_changes WHERE number = 3"
    )
    with ExitStack() as stack:
        again = read_whole(ours, "pruned", stack)
        found = history(again.engine)
        again.engine.commit(proxy(0, 5))
        alike(ours, again)
    assert found == (revisions[1:], [row for row in changes if row[0] in (2, 4)])


def test_an_empty_database_and_that_of_another_fleet_are_refused_and_nothing_is_changed(
    ours: Fleet, two: tuple[Replica, Replica]
) -> None:
    one, _ = two
    one.engine.commit(proxy())
    before = answers(one.engine, ours.seal)
    ours.execute(f"UPDATE proxyfleet.fleet SET id = '{uuid4()}'")
    for follow in (one.follow, one.reread):
        with pytest.raises(OtherFleet, match=f"and this node is of {ours.id}"):
            follow()
    ours.execute("TRUNCATE proxyfleet.fleet")
    for follow in (one.follow, one.reread):
        with pytest.raises(NoFleet, match="the database holds no fleet"):
            follow()
    ours.execute("DROP SCHEMA proxyfleet CASCADE")
    with pytest.raises(LedgerError, match="proxyfleet"):
        one.follow()
    assert answers(one.engine, ours.seal) == before


def test_a_replica_whose_last_commit_has_an_unknown_outcome_settles_it(
    ours: Fleet, two: tuple[Replica, Replica]
) -> None:
    one, other = two
    one.engine.commit(proxy())
    one.engine._unsettled.begin(2, one.engine.trail.rows_of([{"action": "proxy.updated"}]))
    other.follow()
    other.engine.commit(proxy(0, 1))
    ours.execute("UPDATE proxyfleet.fleet SET pruned_to = 2; DELETE FROM proxyfleet.commits WHERE number < 2")
    one.follow()
    alike(ours, *two)
    assert one.engine._unsettled.number == 0
    (entry, *_), _ = one.engine.trail.find(Selection({}), 1, 0)
    assert entry.content["outcome"] == "failed"
