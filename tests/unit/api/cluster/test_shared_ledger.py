"""The ledger of a fleet: nodes that change at once, and whatever is cut or killed between."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from itertools import count
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.cluster import database as connections
from api.cluster import shared_ledger as module
from api.cluster.commit_transfer import decoded, encoded
from api.cluster.shared_ledger import LedgerUnavailable, NoFleet, OtherFleet, Rewound, SharedLedger
from api.engine.commit import Engine
from api.engine.ledger import TooFarBehind
from api.store import CommitRefused, HistoryPruned, LedgerError, NotStored, OutcomeUnknown, StoreDamaged, Write
from api.store.rows import text_of
from config.files.paths import open_data_dir
from tests.kit.cutting_relay import CuttingRelay, Where
from tests.kit.postgresql import needs_pgbouncer, needs_postgresql, pooler, shared_server
from tests.kit.postgresql_server import Server
from tests.kit.tables import table
from tests.kit.wait import wait_until
from tests.unit.api.cluster.nodes import Fleet, Node, fleet, proxy
from tests.unit.api.store.replicas import CHANGES, answers, write_of

pytestmark = needs_postgresql
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.one_of(
            st.lists(CHANGES, min_size=1, max_size=4),
            st.sampled_from(["follows", "an entry alone", "is killed before its file has it", "is restarted"]),
        ),
    ),
    max_size=12,
)
"""Which of two nodes does what."""


@pytest.fixture
def ours() -> Iterator[Fleet]:
    with fleet() as found:
        yield found


class Killed(BaseException):
    """A node ends here."""


def kill() -> None:
    raise Killed


def change(node: Node, changes: list[tuple[str, int, int | None]]) -> None:
    """Those of them that are possible."""
    for attempt in (changes, [each for each in changes if each[2] is not None]):
        with suppress(NotStored):
            if attempt:
                node.change([write_of(each) for each in attempt])
            return


def whole(fleet: Fleet, nodes: list[Node]) -> None:
    """All nodes are alike, the ledger has what they have, each commit once, and each audit trail is whole."""
    for node in nodes:
        node.follow()
    wanted, *others = (answers(each.engine, fleet.seal) for each in nodes)
    for found in others:
        for name in wanted.keys() - {"audit"}:
            assert found[name] == wanted[name], name
    last = nodes[0].number
    assert fleet.execute("SELECT head FROM proxyfleet.fleet") == [(last,)]
    assert fleet.execute("SELECT number FROM proxyfleet.commits ORDER BY 1") == [(each,) for each in range(last + 1)]
    revisions = fleet.execute("SELECT number FROM proxyfleet.revisions ORDER BY 1")
    assert revisions == [(each,) for each in range(1, len(revisions) + 1)]
    for node in nodes:
        sent = fleet.execute(f"SELECT seq, hash FROM proxyfleet.audit WHERE node = '{node.name}' ORDER BY seq")
        (entries, _), _, verified = answers(node.engine, fleet.seal)["audit"]
        there = [(each.seq, each.hash) for each in reversed(entries)]
        assert sent == there[: len(sent)]
        assert verified == node.engine.trail.head


@settings(max_examples=8)
@given(STEPS)
def test_two_nodes_with_random_changes_are_alike_in_all_that_can_be_read(steps: list[tuple[str, Any]]) -> None:
    with fleet() as ours:
        nodes = {name: ours.node(name) for name in ("a", "b")}
        for name, step in (*steps, ("a", [("proxies", 0, 0)]), ("b", [("proxies", 0, 1)])):
            node = nodes[name]
            if step == "follows":
                node.follow()
            elif step == "an entry alone":
                node.engine.trail.append("user.signed_in")
            elif step == "is killed before its file has it":
                with pytest.raises(Killed):
                    node.change(proxy(1, 2), between=kill)
                node.restart()
            elif step == "is restarted":
                node.restart()
            else:
                change(node, step)
        whole(ours, [*nodes.values()])


def test_writers_at_once_make_numbers_without_gaps_and_lose_no_change(ours: Fleet) -> None:
    nodes = [ours.node(name) for name in ("a", "b", "c")]

    def write(which: int) -> None:
        for value in range(10):
            nodes[which].change([Write("proxies", f"prx_{which}_{value}", {"id": f"prx_{which}_{value}", "n": value})])

    threads = [threading.Thread(target=write, args=[each]) for each in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    whole(ours, nodes)
    assert len(nodes[0].engine.every("proxies")) == nodes[0].number == 30
    assert ours.execute("SELECT count(*) FROM proxyfleet.revisions") == [(30,)]


def test_engines_that_commit_by_it_are_alike_and_one_that_lacks_much_catches_up(
    ours: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 500)
    with ExitStack() as stack:
        engines = []
        for name in ("a", "b", "c"):
            ledger = SharedLedger(ours.database, ours.id, name)
            data = open_data_dir(ours.folder / name)
            engines.append(stack.enter_context(closing(Engine(data, ours.seal, ledger))))
        for value in range(3):
            for which, engine in enumerate(engines[:2]):
                engine.commit([write_of(("proxies", which, value)), write_of(("accounts", value, which))])
        for engine in engines:
            with engine.alone():
                pass
        wanted, *others = (answers(each, ours.seal) for each in engines)
        for found in others:
            assert [name for name in wanted if name != "audit" and found[name] != wanted[name]] == []
        assert wanted["numbers"][0] == 6
        ours.database.close()
        with pytest.raises(LedgerUnavailable, match="closed"):
            engines[0].commit(proxy())
        assert engines[0].file.last_number == 6


@table("at, where", [(at, where) for at in (1, 2, 3) for where in ("before", "behind")])
def test_a_connection_that_is_cut_at_any_statement_leaves_a_change_made_once_or_not_at_all(
    at: int, where: Where
) -> None:
    """The check of a new connection, the lock, the commit: before the server has got it, and before its reply."""
    with fleet() as ours, CuttingRelay(shared_server().port) as relay:
        dsn = ours.dsn.replace(f"port={shared_server().port}", f"port={relay.port}")
        node, other = ours.node("a", f"{dsn} sslmode=disable gssencmode=disable"), ours.node("b")
        other.change(proxy(0, 0))
        relay.cut(at, where)
        made = (at, where) == (3, "behind")
        with ExitStack() as stack:
            if not made:
                stack.enter_context(pytest.raises(LedgerUnavailable))
            node.change(proxy(1, 1))
        assert ours.execute("SELECT head FROM proxyfleet.fleet") == [(2 if made else 1,)]
        other.change(proxy(2, 2))
        node.restart()
        node.change(proxy(0, 1))
        whole(ours, [node, other])
        assert len(node.engine.every("proxies")) == (3 if made else 2)


def test_a_change_takes_two_round_trips_and_reading_one(ours: Fleet) -> None:
    with CuttingRelay(shared_server().port) as relay:
        dsn = ours.dsn.replace(f"port={shared_server().port}", f"port={relay.port}")
        node = ours.node("a", f"{dsn} sslmode=disable gssencmode=disable")
        node.change(proxy())
        before = relay.statements
        node.change(proxy(1))
        assert relay.statements == before + 2
        node.follow()
        assert relay.statements == before + 3


@needs_pgbouncer
def test_a_pooler_in_transaction_mode_is_as_good_and_one_in_statement_mode_is_refused(ours: Fleet) -> None:
    server = shared_server()
    for mode, works in (("transaction", True), ("statement", False)):
        with pooler(server, mode) as port:
            node = ours.node(mode, ours.dsn.replace(f"port={server.port}", f"port={port}"))
            if works:
                for value in range(3):
                    node.change(proxy(0, value))
                whole(ours, [node])
            else:
                with pytest.raises(LedgerUnavailable, match="not allowed in statement pooling mode"):
                    node.change(proxy())


def test_a_commit_whose_backend_is_stopped_has_no_known_outcome_until_it_goes_on(
    ours: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = ours.node("a")
    with node.ledger.begin(0) as lock:
        commit = node.prepared(proxy())
        ((pid,),) = ours.execute("SELECT pid FROM pg_stat_activity WHERE state = 'idle in transaction'")
        assert isinstance(pid, int)
        monkeypatch.setattr(module, "CHANGE", 1.0)
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(OutcomeUnknown):
                lock.append(commit)
        finally:
            os.kill(pid, signal.SIGCONT)
    monkeypatch.undo()
    node.change(proxy(0, 1))  # which gets the lock when that transaction has ended, and takes what it has made
    assert node.number in (1, 2)
    whole(ours, [node, ours.node("b")])


def test_commits_of_one_block_have_a_turn_each(ours: Fleet) -> None:
    node, other = ours.node("a"), ours.node("b")
    with node.engine.alone():
        node.engine.commit(proxy(0, 1))
        other.engine.commit(proxy(0, 2))
        node.engine.commit(proxy(1, 1))
    assert (node.number, node.engine.revision_of("proxies", "proxies_0")) == (3, 2)
    whole(ours, [node, other])


def test_a_server_that_is_killed_while_a_node_changes_loses_no_change_that_was_confirmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "PROBE", 0.1)
    with Server(durable=True) as server, server.database() as dsn, fleet(dsn) as ours:
        node, confirmed, values = ours.node("a"), [0], count()
        for turn in range(2):
            before = confirmed[-1]
            killed = threading.Thread(
                target=lambda before=before: [
                    wait_until(lambda: confirmed[-1] > before + 3, "changes are made"),
                    server.stop(signal.SIGKILL),
                    server.start(),
                ]
            )
            killed.start()
            while killed.is_alive():  # a change may outlive the kill: it was made, or is made again
                with suppress(LedgerUnavailable, OutcomeUnknown):
                    node.change([Write("proxies", "prx_1", {"id": "prx_1", "turn": turn, "value": next(values)})])
                    confirmed.append(node.number)
            wait_until(lambda: ours.database.is_available, "it is noticed", 30)
        node.change(proxy())
        there = [each.commit.number for each in node.ledger.changes(0)]
        assert set(confirmed) - {0} <= set(there) == set(range(1, node.number + 1))
        whole(ours, [node, ours.node("b")])


def test_a_node_that_hangs_with_the_lock_loses_it_and_makes_no_commit(
    ours: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, other = ours.node("a"), ours.node("b")
    monkeypatch.setattr(module, "CHANGE", 1.0)
    with slow.ledger.begin(0) as lock:
        monkeypatch.undo()
        commit = slow.prepared(proxy(0))
        other.change(proxy(1))
        with pytest.raises(LedgerUnavailable):
            lock.append(commit)
    whole(ours, [slow, other])
    assert [each.id for each in slow.engine.every("proxies")] == ["proxies_1"]


def test_a_lock_that_is_not_free_in_time_is_busy_and_changes_nothing(
    ours: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, other = ours.node("a"), ours.node("b")
    with node.ledger.begin(0):
        monkeypatch.setattr(module, "CHANGE", 0.5)
        with pytest.raises(LedgerUnavailable):
            other.change(proxy())
    monkeypatch.undo()
    assert ours.execute("SELECT head FROM proxyfleet.fleet") == [(0,)]
    other.change(proxy())


def test_a_change_that_is_refused_by_a_check_gives_the_lock_back_at_once(ours: Fleet) -> None:
    node, other = ours.node("a"), ours.node("b")
    with pytest.raises(NotStored):
        node.change([Write("proxies", "prx_none", None)])
    began = time.monotonic()
    other.change(proxy())
    assert time.monotonic() - began < module.CHANGE / 2


def test_a_commit_that_does_not_follow_is_refused_and_nothing_is_changed(ours: Fleet) -> None:
    node, other = ours.node("a"), ours.node("b")
    with node.ledger.begin(0) as lock:
        early = node.prepared(proxy())
        lock.append(early)
    with other.ledger.begin(1) as lock, pytest.raises(CommitRefused, match="1 does not follow the last one"):
        lock.append(early)
    with other.ledger.begin(1) as lock:
        lock.stamp = uuid4()  # type: ignore[misc]
        with pytest.raises(CommitRefused):
            lock.append(decoded(2, '{"documents": null, "revisions": null, "audit": null}'))
    assert ours.execute("SELECT head, (SELECT count(*) FROM proxyfleet.documents) FROM proxyfleet.fleet") == [(1, 1)]


def test_a_replica_that_lacks_much_reads_it_before_it_takes_the_lock(
    ours: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 500)
    node, other = ours.node("a"), ours.node("b")
    for which in range(3):
        for value in range(3):
            node.change([*proxy(which, value), write_of(("accounts", value, which))])
    with pytest.raises(TooFarBehind, match="9 commits behind"), other.ledger.begin(0):
        pass
    found = [*other.ledger.changes(0)]
    assert [each.commit.number for each in found] == [*range(1, 10)]
    assert {each.node for each in found} == {"a"}
    assert [*other.ledger.changes(8, found[7].stamp)] == found[8:]
    whole(ours, [node, other])


def test_a_large_commit_comes_as_rows_and_is_read_as_any_other(ours: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AS_JSON", 0)
    node, other = ours.node("a"), ours.node("b")
    writes = [*proxy(0), *proxy(1), *proxy(2), *(write_of(("accounts", each, each)) for each in range(3))]
    commits = [node.change(writes), node.change([*proxy(0, 1), Write("accounts", "accounts_2", None)])]
    found = [each.commit for each in node.ledger.changes(0)]
    assert found[1] == commits[1]
    assert [each.audit for each in found] == [each.audit for each in commits]
    assert [each.revisions for each in found] == [each.revisions for each in commits]
    objects = ours.execute("SELECT objects FROM proxyfleet.commits WHERE number > 0 ORDER BY number")
    assert objects == [(6,), (2,)]
    places = ours.execute("SELECT place FROM proxyfleet.documents WHERE revision = 1 ORDER BY place")
    assert places == [(0,), (1,), (4,), (5,)]
    whole(ours, [node, other])
    other.change(proxy(5))
    whole(ours, [node, other])
    for each in ("documents", "changes", "audit"):
        assert ours.execute(f"SELECT count(*) FROM proxyfleet.staged_{each}") == [(0,)]


def test_texts_stay_as_they_were_written(ours: Fleet) -> None:
    node, other = ours.node("a"), ours.node("b")
    body = {
        "id": "prx_1", "b": 1, "a": [1.0, 1e-7, 10**30, -0.0, None, True, {}],
        "text": "\x00\x1f\"\\'%s E'\\x' ä 😀 $$ \u2028 ;COMMIT--", "": {"id": ""},
    }  # fmt: skip
    node.change([Write("proxies", "prx_1", body)])
    assert ours.execute("SELECT body::text FROM proxyfleet.documents") == [(text_of(body),)]
    other.follow()
    found = other.engine.get("proxies", "prx_1")
    assert found is not None
    assert text_of(found.body) == text_of(body)


def test_configuration_alone_is_announced_by_its_number(ours: Fleet) -> None:
    node = ours.node("a")
    with psycopg.connect(ours.dsn, autocommit=True) as listening:
        listening.execute("LISTEN proxyfleet")
        node.change(proxy())
        node.change([write_of(("refresh_families", 0, 0)), write_of(("plans", 0, 0))])
        node.change([write_of(("refresh_families", 1, 0))])
        node.change([write_of(("credentials", 0, 0))])
        node.change(proxy(0, 1))
        assert [each.payload for each in listening.notifies(timeout=5, stop_after=3)] == ["1", "2", "5"]


def test_a_database_that_lost_the_last_commits_or_has_others_in_their_place_is_noticed(ours: Fleet) -> None:
    node = ours.node("a")
    node.change(proxy())
    (first,) = node.ledger.changes(0, ours.stamp)
    with pytest.raises(Rewound, match="the commit 2 of this node is not in the database: its last one is 1"):
        [*node.ledger.changes(2)]
    for stamp in (None, first.stamp):
        assert [*node.ledger.changes(1, stamp)] == []
    with pytest.raises(Rewound), node.ledger.begin(1, uuid4()):
        pass


def test_commits_that_are_forgotten_are_to_be_read_anew(ours: Fleet) -> None:
    node = ours.node("a")
    for value in range(3):
        node.change(proxy(0, value))
    ours.execute("UPDATE proxyfleet.fleet SET pruned_to = 2")
    ours.execute("DELETE FROM proxyfleet.commits WHERE number < 2")
    with pytest.raises(HistoryPruned) as caught:
        [*node.ledger.changes(1)]
    assert caught.value.horizon == 2
    assert [each.commit.number for each in node.ledger.changes(2)] == [3]


def test_a_change_of_a_node_that_has_to_read_everything_anew_is_refused_for_now(ours: Fleet) -> None:
    node, other = ours.node("a"), ours.node("b")
    node.change(proxy(0, 0))
    ours.execute("SELECT proxyfleet.rise_above(1, gen_random_uuid(), 'b')")
    with pytest.raises(LedgerError, match="read everything anew"):
        node.change(proxy(0, 1))
    assert (node.number, other.number) == (1, 0)


def test_another_fleet_none_and_rows_that_no_node_wrote_are_refused(ours: Fleet) -> None:
    node = ours.node("a")
    node.change(proxy())
    with pytest.raises(OtherFleet, match=f"holds the fleet {ours.id}"):
        [*SharedLedger(ours.database, uuid4(), "a").changes(0)]
    ours.execute("UPDATE proxyfleet.documents SET body = '[]'")
    with pytest.raises(StoreDamaged, match="proxies/proxies_0 is no document"):
        [*node.ledger.changes(0)]
    node.change(proxy(0, 1))
    ours.execute("DELETE FROM proxyfleet.commits WHERE number = 1")
    with pytest.raises(LedgerError, match="commits after 0 are missing"):
        [*node.ledger.changes(0)]
    ours.execute("DELETE FROM proxyfleet.fleet")
    with pytest.raises(NoFleet), node.ledger.begin(1):
        pass


def test_changes_fail_at_once_while_the_database_is_known_to_be_away(
    ours: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "PROBE", 60.0)
    node = ours.node("a", "host=127.0.0.1 port=1 user=x dbname=x")
    for _ in range(connections.FAILURES):
        with pytest.raises(LedgerUnavailable):
            node.change(proxy())
    took = []
    for _ in range(10):
        began = time.monotonic()
        with pytest.raises(LedgerUnavailable):
            node.change(proxy())
        took.append(time.monotonic() - began)
    assert min(took) < 0.1
    assert (node.number, node.engine.trail.head.seq) == (0, 0)


def test_a_commit_of_nothing_is_an_empty_object() -> None:
    assert encoded(decoded(1, '{"documents": null, "revisions": null, "audit": null}')) == "{}"
