"""Sign-ins and credentials over nodes: in any order, through outages, whatever is cut or killed between."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.cluster.errors import DatabaseError
from api.cluster import loose as module
from api.cluster.following.heartbeat import Beat
from api.cluster.loose import CHANNEL, Loose
from api.engine.commit import CREDENTIALS
from api.engine.loose import SIGN_INS, LooseObject
from api.store import NotStored, RevisionConflict, Write
from tests.kit.cutting_relay import CuttingRelay, Where
from tests.kit.postgresql import needs_postgresql, shared_server
from tests.kit.postgresql_server import Server
from tests.kit.tables import table
from tests.kit.wait import wait_until
from tests.unit.api.cluster.nodes import Fleet, Node, fleet
from tests.unit.api.store.account_documents import account, credential

pytestmark = needs_postgresql

FAMILY = "f" * 24
USER = {"id": "usr_1", "username": "eve", "status": "active", "password_hash": "one"}


@pytest.fixture
def ours() -> Iterator[Fleet]:
    with fleet() as found:
        yield found


class Sharing:
    """A node that shares its loose objects; its thread runs from `start`."""

    def __init__(self, ours: Fleet, name: str, dsn: str | None = None) -> None:
        self.node: Node = ours.node(name, dsn)
        self.database = self.node.ledger.database
        self.join()

    def join(self) -> None:
        self.loose = Loose(self.database, self.node.name, self.node.engine.loose)
        self.node.engine.loose.share(self.loose)

    def start(self) -> None:
        self.loose.start()

    def restart(self) -> None:
        """As after a kill: nothing is done at the end."""
        self.loose.close()
        self.node.restart()
        self.join()

    def put(self, body: dict[str, Any], collection: str = SIGN_INS, expect: int | None = None) -> None:
        self.node.engine.put(collection, body, expect)

    def delete(self, identifier: str = FAMILY, collection: str = SIGN_INS) -> None:
        self.node.engine.delete(collection, identifier)

    def body(self, identifier: str = FAMILY, collection: str = SIGN_INS) -> dict[str, Any] | None:
        found = self.node.engine.get(collection, identifier)
        return None if found is None else found.body

    def exchange(self) -> None:
        self.loose.exchange(reads=True)


@contextmanager
def two(
    ours: Fleet, dsn: str | None = None, start: bool = True, names: tuple[str, str] = ("a", "b")
) -> Iterator[tuple[Sharing, Sharing]]:
    """The second one through this DSN."""
    with ExitStack() as stack:
        nodes = Sharing(ours, names[0]), Sharing(ours, names[1], dsn)
        for each in nodes:
            stack.callback(lambda each=each: each.loose.close())
            if start:
                each.start()
        yield nodes


def family(value: int = 0, identifier: str = FAMILY, **more: Any) -> dict[str, Any]:
    return {"id": identifier, "user_id": "usr_1", "secret_hash": f"{value} ü", "keep_until": 9e9, **more}


def test_what_one_node_makes_is_at_the_other_and_its_end_too_and_no_commit_has_it(ours: Fleet) -> None:
    with two(ours) as (one, other):
        one.put(family())
        one.put(credential("crd_1", "acc_1"), CREDENTIALS, expect=0)
        wait_until(lambda: other.body() == family(), "the sign-in is there", 2)
        wait_until(lambda: other.body("crd_1", CREDENTIALS) is not None, "the credential is there", 2)
        other.delete()
        other.delete("crd_1", CREDENTIALS)
        began = time.monotonic()
        assert (other.body(), other.body("crd_1", CREDENTIALS)) == (None, None)
        wait_until(lambda: one.body() is None and not one.body("crd_1", CREDENTIALS), "both have ended", 2)
        assert time.monotonic() - began < 1.2
        assert ours.execute("SELECT head FROM proxyfleet.fleet") == [(0,)]
        assert one.node.number == other.node.number == one.node.engine.accounts.revision == 0
        one.node.change([Write("proxies", "prx_1", {"id": "prx_1", "name": "p"})])
        other.node.follow()
        assert other.node.engine.get("proxies", "prx_1") is not None


def test_sign_ins_announce_themselves_a_few_times_a_second_together(ours: Fleet) -> None:
    with two(ours) as (one, other), psycopg.connect(ours.dsn, autocommit=True) as listening:
        for each in (CHANNEL, "proxyfleet"):
            listening.execute(f"LISTEN {each}")
        began = time.monotonic()
        for number in range(100):
            one.put(family(identifier=f"{number:024d}"))
            one.node.engine.loose.settle()
        wait_until(lambda: other.body(f"{99:024d}") is not None, "the last one is there", 2)
        time_taken = time.monotonic() - began
        found = [each.channel for each in listening.notifies(timeout=0.3)]
        assert set(found) == {CHANNEL}
        assert len(found) <= time_taken / module.QUIET + 2


def test_in_an_outage_they_are_made_at_once_survive_a_restart_and_are_everywhere_soon_after_it() -> None:
    with Server() as server, server.database() as dsn, fleet(dsn) as ours, two(ours) as (one, other):
        one.put(family(identifier="e" * 24))
        one.node.engine.loose.settle()
        server.stop()
        wait_until(lambda: not one.database.is_available, "the outage is known", 5)
        began = time.monotonic()
        one.put(family())
        one.put(credential("crd_1", "acc_1"), CREDENTIALS)
        one.delete("e" * 24)
        one.node.engine.loose.settle()
        assert time.monotonic() - began < 0.5
        assert one.loose.pending() == {"sign_ins": 2, "credentials": 1}
        assert one.node.engine.trail.waiting == 1, "that of the credential"
        one.restart()
        assert one.body() == family()
        one.start()
        server.start()
        wait_until(lambda: one.database.is_available, "it is back", 5)
        wait_until(lambda: other.body() and other.body("crd_1", CREDENTIALS) and not other.body("e" * 24), "all", 2)
        assert one.loose.pending() == {"sign_ins": 0, "credentials": 0}


@table("where", ["before", "behind"])
def test_each_statement_may_be_cut(ours: Fleet, where: Where) -> None:
    with CuttingRelay(shared_server().port) as relay:
        dsn = ours.dsn.replace(f"port={shared_server().port}", f"port={relay.port}")
        with two(ours, f"{dsn} sslmode=disable gssencmode=disable", start=False) as (one, other):
            for cut_at in range(1, 4):
                identifier = f"{where}{cut_at:018d}"
                for change in (family(1, identifier), family(2, identifier), None):
                    relay.cut(cut_at, where)
                    if change is None:
                        other.delete(identifier)
                    else:
                        other.put(change)
                    for _ in range(20):
                        with suppress(DatabaseError):
                            other.exchange()
                            break
                        wait_until(lambda: other.database.is_available, "it is back", 5)
                    one.exchange()
                    assert one.body(identifier) == other.body(identifier) == change
            assert other.loose.pending() == {"sign_ins": 0, "credentials": 0}


IDS = [f"{each:024d}" for each in range(2)]
STEPS = st.lists(
    st.tuples(st.sampled_from([0, 1]), st.sampled_from(["put", "delete", "exchange", "restart"]), st.sampled_from(IDS)),
    max_size=16,
)


_numbers = count()


@pytest.fixture(scope="module")
def reused() -> Iterator[Fleet]:
    with fleet() as found:
        yield found


@settings(max_examples=25, deadline=None)
@given(steps=STEPS)
def test_in_every_order_a_deletion_holds_for_good_and_nodes_come_to_the_same(
    reused: Fleet, steps: list[tuple[int, str, str]]
) -> None:
    reused.execute("TRUNCATE proxyfleet.loose, proxyfleet.loose_heads")
    with two(reused, start=False, names=(f"a{next(_numbers)}", f"b{next(_numbers)}")) as nodes:
        made: set[str] = set()
        deleted: set[str] = set()
        for number, (which, what, identifier) in enumerate(steps):
            node = nodes[which]
            if what == "put" and (node.body(identifier) is not None or identifier not in made):
                made.add(identifier)
                node.put(family(number, identifier))
            elif what == "delete" and node.body(identifier) is not None:
                deleted.add(identifier)
                node.delete(identifier)
            elif what == "exchange":
                node.exchange()
            elif what == "restart":
                node.restart()
        for each in (*nodes, *nodes):
            each.exchange()
        found = [{identifier: each.body(identifier) for identifier in IDS} for each in nodes]
        assert found[0] == found[1]
        assert {identifier for identifier, body in found[0].items() if body} == made - deleted
        assert [each.loose.pending()["sign_ins"] for each in nodes] == [0, 0]
        nodes[0].restart()
        assert {each: nodes[0].body(each) for each in IDS} == found[0]


def test_of_two_nodes_that_replace_one_state_one_is_refused(ours: Fleet) -> None:
    with two(ours) as (one, other):
        one.put(family())
        wait_until(lambda: other.body() is not None, "the sign-in is there", 2)
        outcomes: list[str] = []
        ready = threading.Barrier(2)

        def replace(node: Sharing, value: int) -> None:
            ready.wait()
            node.put(family(value))
            try:
                node.node.engine.loose.settle()
            except RevisionConflict:
                outcomes.append("refused")
            else:
                outcomes.append("done")

        threads = [threading.Thread(target=replace, args=each) for each in ((one, 1), (other, 2))]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert sorted(outcomes) == ["done", "refused"]
        wait_until(lambda: one.body() == other.body(), "both have the same", 2)


def test_a_request_that_fails_leaves_nothing_to_the_next_one_of_its_thread(ours: Fleet) -> None:
    with two(ours, start=False) as (one, other):

        def fail() -> None:
            with one.node.engine.loose.settled():
                one.put(family())
                raise RuntimeError

        with pytest.raises(RuntimeError):
            fail()
        one.exchange()
        other.exchange()
        other.delete()
        other.exchange()
        one.exchange()
        with one.node.engine.loose.settled():
            assert one.body() is None


def test_a_change_elsewhere_ends_what_was_made_here_by_what_it_ends(ours: Fleet) -> None:
    with two(ours, start=False) as (one, other):
        one.node.change([Write("users", "usr_1", USER), Write("accounts", "acc_1", account("acc_1"))])
        other.node.follow()
        other.put(family(node="b"))
        other.put(family(identifier="e" * 24, node="a"))
        other.put(credential("crd_1", "acc_1"), CREDENTIALS)
        one.node.change([Write("users", "usr_1", {**USER, "password_hash": "two"}), Write("accounts", "acc_1", None)])
        other.node.follow()
        assert (other.body(), other.body("crd_1", CREDENTIALS)) == (None, None)
        assert other.body("e" * 24) is not None, "the node that has made it knows by which password"
        other.exchange()
        one.exchange()
        assert (one.body(), one.body("crd_1", CREDENTIALS)) == (None, None)
        one.put(credential("crd_2", "acc_1", "pfc_y"), CREDENTIALS)
        one.exchange()
        assert one.body("crd_2", CREDENTIALS) is None, "the account is gone"


def test_to_a_database_that_was_restored_each_node_sends_what_it_has(ours: Fleet) -> None:
    with two(ours, start=False) as (one, other):
        one.put(family(identifier="e" * 24))
        one.exchange()
        other.exchange()
        dump = ours.execute("SELECT collection, id, node, seq, until, body::text FROM proxyfleet.loose")
        other.delete("e" * 24)
        other.put(family())
        other.exchange()
        one.exchange()
        ours.execute("DELETE FROM proxyfleet.loose; DELETE FROM proxyfleet.loose_heads WHERE node = 'b'")
        assert len(dump) == 1
        ours.execute(
            f"INSERT INTO proxyfleet.loose VALUES ('{SIGN_INS}', '{'e' * 24}', 'a', 1, to_timestamp(9e9), "
            f"'{dump[0][5]}')"
        )
        for each in (one, other, one):
            each.exchange()
        for each in (one, other):
            assert (each.body(), each.body("e" * 24)) == (family(), None)


def test_objects_that_no_node_has_written_are_passed_over(ours: Fleet) -> None:
    with two(ours, start=False) as (one, other):
        one.put(family())
        one.exchange()
        ours.execute(
            "UPDATE proxyfleet.loose_heads SET seq = 3; INSERT INTO proxyfleet.loose VALUES"
            " ('credentials', 'crd_x', 'a', 2, now() + interval '1 day', '{\"id\": \"crd_x\"}'),"
            " ('refresh_families', 'x', 'a', 3, now() + interval '1 day', '[]')"
        )
        other.exchange()
        assert (other.body(), other.body("crd_x", CREDENTIALS), other.body("x")) == (family(), None, None)


def test_more_than_go_at_once_come_through(ours: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 3)
    with two(ours, start=False) as (one, other):
        for node in (one, other):
            for number in range(7):
                node.put(family(identifier=f"{node.node.name}{number:023d}"))
        for each in (one, other, one):
            each.exchange()
        assert len(one.node.engine.find(SIGN_INS)) == len(other.node.engine.find(SIGN_INS)) == 14


def test_what_is_over_goes_by_itself_and_needs_no_database(ours: Fleet) -> None:
    with two(ours, start=False) as (one, _other):
        one.put({**family(), "keep_until": time.time() - 1})
        one.exchange()
        one.delete()
        assert one.loose.pending()["sign_ins"] == 0
        with pytest.raises(NotStored):
            one.delete()


def test_what_is_revoked_at_a_node_whose_clock_is_ahead_is_so_everywhere(ours: Fleet) -> None:
    with two(ours, start=False) as (one, other):
        one.node.engine.loose._clock = lambda: time.time() + 3600
        one.put({**credential("crd_1", "acc_1"), "expires_at": time.time() + 600}, CREDENTIALS, expect=0)
        one.exchange()
        other.exchange()
        assert other.body("crd_1", CREDENTIALS) is not None
        one.delete("crd_1", CREDENTIALS)
        one.exchange()
        other.exchange()
        assert other.body("crd_1", CREDENTIALS) is None


def test_a_database_that_hangs_delays_one_request_by_a_second(ours: Fleet) -> None:
    with two(ours) as (one, other):
        one.put(family())
        wait_until(lambda: other.body() is not None, "both are connected", 2)
        stopped = shared_server().backends()
        for each in stopped:
            os.kill(each, signal.SIGSTOP)
        took = []
        for value in range(1, 4):
            began = time.monotonic()
            one.put(family(value))
            one.node.engine.loose.settle()
            took.append(time.monotonic() - began)
        assert max(took) < 1.5
        assert sorted(took)[1] < 0.3
        for each in stopped:
            os.kill(each, signal.SIGCONT)
        wait_until(lambda: other.body() == family(3), "it is there", 6)


def test_what_one_machine_had_is_sent_when_it_becomes_a_node(ours: Fleet) -> None:
    node = ours.node("a")
    over = {**family(identifier="e" * 24), "keep_until": 1.0}
    minted = credential("crd_1", "acc_1")
    node.change(
        [Write(SIGN_INS, FAMILY, family()), Write(SIGN_INS, over["id"], over), Write(CREDENTIALS, "crd_1", minted)]
    )
    loose = Loose(ours.database, "a", node.engine.loose)
    for _ in range(2):
        node.engine.loose.share(loose)
        assert loose.pending() == {"sign_ins": 1, "credentials": 1}
    loose.exchange()
    node.engine.loose.share(loose)
    assert loose.pending() == {"sign_ins": 0, "credentials": 0}
    other = Sharing(ours, "b")
    other.exchange()
    assert (other.body(), other.body(over["id"])) == (family(), None)
    node.engine.loose.share(loose, all_of_them=True)
    assert loose.pending() == {"sign_ins": 1, "credentials": 1}, "of another fleet"


def test_an_edge_node_reads_and_sends_nothing(ours: Fleet) -> None:
    edge = ours.node("a")
    loose = Loose(ours.database, "a", edge.engine.loose, only_reads=True)
    edge.engine.loose.share(loose)
    edge.engine.put(CREDENTIALS, credential("crd_1", "acc_1"))
    loose.exchange()
    assert loose.pending() == {"sign_ins": 0, "credentials": 0}
    assert ours.execute("SELECT count(*) FROM proxyfleet.loose") == [(0,)]


def test_what_was_read_before_a_change_that_was_sent_meanwhile_does_not_take_its_place(ours: Fleet) -> None:
    with two(ours, start=False) as (one, other):
        one.put(family())
        one.exchange()
        loose = one.node.engine.loose
        heads, since = loose.heads(), loose.last_step()
        read = LooseObject(SIGN_INS, FAMILY, 9e9, family())
        one.put(family(1))
        one.exchange()
        loose.read([read], heads, since)
        assert one.body() == family(1)
        other.exchange()
        assert other.body() == family(1)


def test_an_end_elsewhere_holds_that_comes_after_a_change_here_and_is_read_at_that_moment(
    ours: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change is one that a request sends while the thread reads."""
    with two(ours, start=False) as (one, other):
        one.put(family())
        one.exchange()
        other.exchange()
        usual, requests = one.database.transaction, [threading.Thread(target=one.loose._send)]

        def transaction(statement: str, *more: Any) -> list[Any]:
            if statement == module._READ and requests[0].ident is None:
                one.put(family(1))
                requests[0].start()
                requests[0].join(0.3)
                other.delete()
                other.loose._send()
            return usual(statement, *more)

        monkeypatch.setattr(one.database, "transaction", transaction)
        one.exchange()
        requests[0].join()
        one.exchange()
        assert (one.body(), other.body()) == (None, None)


def test_a_heartbeat_says_when_there_is_more(ours: Fleet) -> None:
    with two(ours, start=False) as (one, other):
        other.loose._poll = lambda: 60.0
        other.exchange()
        one.put(family())
        one.exchange()
        other.loose.on_heartbeat(Beat(0, True, 0.0, {"loose": 0}))
        other.loose.exchange()
        assert other.body() is None, "it is not time yet, and nothing is new"
        (((_, beat),),) = [
            ours.execute(
                'SELECT 1, proxyfleet.heartbeat(\'b\', \'{"up_for": 0, "boot": "b", "version": "1",'
                ' "level": 1, "commit": 0, "clock_offset": 0, "problems": {}, "settings": {}}\')'
            )
        ]
        other.loose.on_heartbeat(Beat(0, True, 0.0, beat))

        def has_it() -> bool:
            other.loose.exchange()
            return other.body() == family()

        wait_until(has_it, "it is read", 2)
