"""A fleet gets another database: of the same server or of another one, with all that was committed, and whole."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from actors.bus.messages.cluster import MoveFleet
from actors.cluster.database import Database, login_of
from actors.cluster.errors import DatabaseError
from actors.cluster.identity import NodeIdentity, identity_of
from api.cluster import moving as module
from api.cluster.following.heartbeat import Heartbeat
from api.cluster.loose import Loose
from api.cluster.moving import MoveRefused, move_fleet, take_move
from api.cluster.roles import NodeLogin
from api.cluster.shared_ledger import LedgerUnavailable, Rewound, SharedLedger
from api.engine.commit import Engine
from api.engine.loose import SIGN_INS
from api.operator.cluster import move_offline
from config import OperatorError
from config.files.paths import DataDir
from config.files.secret_box import SealedFor
from config.model.nodes import NodeRecord
from tests.kit.cutting_relay import CuttingRelay
from tests.kit.fleet_database import begin_roles
from tests.kit.postgresql import needs_postgresql, shared_server
from tests.kit.postgresql_server import Server
from tests.kit.tables import table
from tests.unit.api.cluster.nodes import Fleet, Node, fleet, owner, proxy

pytestmark = needs_postgresql
FIRST, SECOND = "nod_aaaaaaaaaaaaaaaa", "nod_bbbbbbbbbbbbbbbb"


@dataclass
class Moving:
    """A fleet of a full node and an edge node, with roles of their own."""

    fleet: Fleet
    node: Node
    identities: dict[str, NodeIdentity]

    @property
    def data(self) -> DataDir:
        return self.node.data

    def move(self, dsn: str, force: bool = False) -> str:
        return move_fleet(self.node.engine, self.fleet.seal, self.identities[FIRST], MoveFleet(dsn, "", force))

    def now(self) -> NodeIdentity:
        """What the first node is from its next start on."""
        found = identity_of(self.data, self.fleet.seal)
        assert found is not None
        return found

    def word(self, node: str) -> Any:
        """What the heartbeat of a node in the former database says of the move."""
        with closing(Database(self.identities[node].dsn)) as database:
            return Heartbeat(database, node, node, lambda: (0, None)).beat_now().reply["moved"]


@pytest.fixture
def moving() -> Iterator[Moving]:
    with ExitStack() as stack:
        dsn = stack.enter_context(owner())
        ours = stack.enter_context(fleet(dsn))
        logins = {FIRST: NodeLogin(FIRST, "full"), SECOND: NodeLogin(SECOND, "edge")}
        begin_roles(ours.database, logins[FIRST])
        with ours.database.session() as session:
            session.transaction(*logins[SECOND].statement)
        identities = {
            each: NodeIdentity(ours.id, each, each[-1], login.role, login.dsn(dsn))  # type: ignore[arg-type]
            for each, login in logins.items()
        }
        node = ours.node(FIRST, identities[FIRST].dsn)
        for each in identities.values():
            record = NodeRecord(id=each.id, name=each.name, role=each.role, created_at=0.0)
            node.engine.put("nodes", record.model_dump(mode="json"))
        identities[FIRST].save(node.data, ours.seal)
        yield Moving(ours, node, identities)


def dump(source: str, target: str) -> None:
    """As `docs/how-to/move-to-postgresql.md` says."""
    text = subprocess.run(
        ["pg_dump", "--schema=proxyfleet", "--no-owner", "--no-privileges", "--dbname", source],
        capture_output=True, check=True,
    ).stdout  # fmt: skip
    subprocess.run(["psql", "-q", "--dbname", target], input=text, capture_output=True, check=True)


def rows(dsn: str, query: str) -> list[Any]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(query.encode()).fetchall()


def state(dsn: str) -> list[Any]:
    queries = (
        "SELECT head, history, moved_at FROM proxyfleet.fleet",
        "SELECT number, stamp FROM proxyfleet.commits ORDER BY 1",
        "SELECT collection, id, revision, body::text FROM proxyfleet.documents ORDER BY 1, 2",
        "SELECT number, place, after FROM proxyfleet.revision_changes ORDER BY 1, 2",
        "SELECT node, seq, hash FROM proxyfleet.audit ORDER BY 1, 2",
    )
    return [rows(dsn, each) for each in queries]


@pytest.fixture(params=["of the same server", "of another one"])
def other(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database that is empty, whose owner may make roles."""
    if request.param == "of the same server":
        with owner() as dsn:
            yield dsn
        return
    with Server() as server:
        server.execute("CREATE ROLE mover LOGIN CREATEROLE PASSWORD 'sesame'")
        server.execute("CREATE DATABASE moved OWNER mover")
        yield server.dsn("moved").replace("user=postgres", "user=mover")


def test_the_other_database_has_all_and_each_node_finds_its_way_and_the_former_one_takes_no_commit(
    moving: Moving, other: str
) -> None:
    moving.node.change(proxy(1))
    dump(moving.fleet.dsn, other)
    moving.node.change(proxy(1, 1))
    moving.node.change(proxy(2))
    before = state(moving.fleet.dsn)
    assert moving.word(SECOND) is None
    moving.move(other)
    assert state(other) == before
    with pytest.raises(LedgerUnavailable, match="the fleet has another database now"):
        moving.node.change(proxy(3))
    follower = DataDir(moving.fleet.folder / "second")
    moving.identities[SECOND].save(follower, moving.fleet.seal)
    word = json.loads(moving.fleet.seal.open(moving.word(SECOND), SealedFor.MOVE))
    assert login_of(word["dsn"]) == ("", ""), "an edge opens it, and gets no password of the owner"
    take_move(follower, moving.fleet.seal, moving.identities[SECOND], moving.word(SECOND))
    edge = identity_of(follower, moving.fleet.seal)
    assert edge is not None
    assert rows(edge.dsn, "SELECT proxyfleet.this_node(), proxyfleet.is_edge()") == [(SECOND, True)]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        rows(edge.dsn, "SELECT 1 FROM proxyfleet.moves")
    assert rows(moving.now().dsn, "SELECT proxyfleet.this_node(), proxyfleet.is_edge()") == [(FIRST, False)]
    assert login_of(moving.now().dsn)[0] == f"pf_{FIRST}"
    there = moving.fleet.node(FIRST + "x", moving.now().dsn)
    there.follow()
    assert there.number == moving.node.number
    assert moving.move(other), "given again it does no harm"
    assert state(other) == before


@pytest.mark.parametrize("cut", [*range(2, 30, 7)])
def test_a_move_that_is_cut_behind_any_statement_is_given_again(moving: Moving, cut: int) -> None:
    with owner() as other, CuttingRelay(shared_server().port) as relay:
        dump(moving.fleet.dsn, other)
        moving.node.change(proxy(1))
        before = state(moving.fleet.dsn)
        relay.cut(cut, "behind")
        through = psycopg.conninfo.make_conninfo(other, port=relay.port, sslmode="disable", gssencmode="disable")
        with suppress(OperatorError):
            moving.move(through)
        moving.move(other)
        assert state(other) == before
        assert rows(moving.now().dsn, "SELECT proxyfleet.this_node()") == [(FIRST,)]


@table(
    "statement, why",
    [
        ("", "holds no fleet: restore a dump"),
        ("UPDATE proxyfleet.fleet SET id = gen_random_uuid()", "holds the fleet .*, and this node is of"),
        ("DELETE FROM proxyfleet.fleet", "was all of the dump restored"),
        ("DELETE FROM proxyfleet.migrations WHERE number = 10", "lacks 0010_moves: .* make a new dump"),
        ("UPDATE proxyfleet.commits SET stamp = gen_random_uuid()", "no copy of it, or too old"),
    ],
)
def test_a_database_that_is_no_copy_is_refused_and_the_fleet_goes_on(moving: Moving, statement: str, why: str) -> None:
    with owner() as other:
        if statement:
            dump(moving.fleet.dsn, other)
            with psycopg.connect(other, autocommit=True) as connection:
                connection.execute(statement.encode())
        with pytest.raises(MoveRefused, match=why):
            moving.move(other)
    assert moving.now().dsn == moving.identities[FIRST].dsn
    moving.node.change(proxy(1))


def test_a_move_is_ended_by_the_role_that_has_begun_it_last(moving: Moving) -> None:
    third = NodeLogin("nod_cccccccccccccccc", "full")
    with moving.fleet.database.session() as session:
        session.transaction(*third.statement)
    record = NodeRecord(id=third.node, name="c", role="full", created_at=0.0)
    moving.node.engine.put("nodes", record.model_dump(mode="json"))
    identity = NodeIdentity(moving.fleet.id, third.node, "c", "full", third.dsn(moving.fleet.dsn))
    words = "SELECT node, sealed, by_role FROM proxyfleet.moves ORDER BY 1"

    def moves_to(dsn: str) -> str:
        return move_fleet(moving.node.engine, moving.fleet.seal, identity, MoveFleet(dsn))

    with owner() as one, owner() as two:
        for each in (one, two):
            dump(moving.fleet.dsn, each)
        moving.node.change(proxy(1))
        with pytest.MonkeyPatch.context() as killed:
            killed.setattr(module, "_bring_forward", lambda *_: None)
            moving.move(one)
        assert {each[2] for each in rows(moving.fleet.dsn, words)} == {f"pf_{FIRST}"}
        with pytest.raises(psycopg.DatabaseError, match="another node moves the fleet"):
            rows(identity.dsn, "UPDATE proxyfleet.fleet SET moved_at = now()")
        moves_to(two)  # it is begun anew, and ended
        left = rows(moving.fleet.dsn, words)
        assert {each[2] for each in left} == {f"pf_{third.node}"}
        with pytest.raises(MoveRefused, match=r"another node has moved the fleet .*this node follows by itself"):
            moving.move(one)
        for statement in ("fleet SET moved_at = NULL", "moves SET sealed = ''"):
            with pytest.raises(psycopg.DatabaseError, match="another node"):
                rows(moving.identities[FIRST].dsn, f"UPDATE proxyfleet.{statement}")
        assert rows(moving.fleet.dsn, words) == left


def test_what_was_brought_elsewhere_meanwhile_is_not_where_nodes_go(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring = module._bring_forward

    def meanwhile(here: Database, there: Database) -> None:
        with moving.fleet.database.session() as session:  # as another role, that of the owner
            session.transaction("UPDATE proxyfleet.moves SET sealed = 'of another'")
        bring(here, there)

    with owner() as other:
        dump(moving.fleet.dsn, other)
        monkeypatch.setattr(module, "_bring_forward", meanwhile)
        with pytest.raises(MoveRefused, match="another node moves the fleet"):
            moving.move(other)
        moving.node.change(proxy(1))


def test_its_own_database_and_one_whose_owner_it_is_not_are_refused(moving: Moving) -> None:
    with pytest.raises(MoveRefused, match="is the database that the fleet has"):
        moving.move(moving.fleet.dsn)
    with pytest.raises(MoveRefused, match="does not own the schema"):
        moving.move(moving.identities[FIRST].dsn)
    moving.node.change(proxy(1))


def test_by_force_a_stopped_node_loses_nothing_that_waits_and_what_the_copy_lacks_is_undone_and_named(
    moving: Moving, tmp_path: Path
) -> None:
    node, seal = moving.node, moving.fleet.seal
    shutil.copytree(moving.fleet.folder / "key" / "keys", moving.data.keys, dirs_exist_ok=True)
    loose = Loose(moving.fleet.database, FIRST, node.engine.loose)
    node.engine.loose.share(loose)
    sign_in = {"id": "f" * 24, "user_id": "usr_1", "secret_hash": "", "keep_until": 9e9}
    node.engine.put(SIGN_INS, sign_in)
    loose.exchange()
    with owner() as other:
        dump(moving.fleet.dsn, other)
        node.change(proxy(1))
        with psycopg.connect(other, autocommit=True) as connection:  # as another node that went on there
            connection.execute(
                "INSERT INTO proxyfleet.commits SELECT number + 1, gen_random_uuid(), 'x', now(), 0, 0"
                " FROM proxyfleet.commits ORDER BY number DESC LIMIT 1"
            )
            connection.execute("UPDATE proxyfleet.fleet SET head = head + 1")
        node.engine.delete(SIGN_INS, sign_in["id"])
        node.engine.loose.stand_alone()
        node.end()
        replace(moving.identities[FIRST], dsn=f"host={tmp_path} user=x dbname=x").save(moving.data, seal)
        with pytest.raises(OperatorError, match=r"can't be reached: .*--force"):
            move_offline(moving.data, MoveFleet(other, "", False))
        move_offline(moving.data, MoveFleet(other, "", True))
        with closing(Database(moving.now().dsn)) as there:
            ledger = SharedLedger(there, moving.fleet.id, FIRST)
            with closing(Engine(moving.data, seal, ledger)) as engine:
                assert engine.loose.counts() == {SIGN_INS: 1}, "its end is still to be sent"
                with pytest.raises(Rewound):
                    engine.catch_up()


def test_without_the_present_database_it_takes_force_and_moves_this_node_alone(moving: Moving, tmp_path: Path) -> None:
    with owner() as other:
        dump(moving.fleet.dsn, other)
        gone = NodeIdentity(moving.fleet.id, FIRST, "a", "full", f"host={tmp_path} user=x dbname=x")
        moving.identities[FIRST] = gone
        with pytest.raises(MoveRefused, match=r"can't be reached: .*--force"):
            moving.move(other)
        moving.move(other, force=True)
        assert rows(moving.now().dsn, "SELECT proxyfleet.this_node()") == [(FIRST,)]
    with pytest.raises((MoveRefused, DatabaseError)):
        moving.move("host=127.0.0.1 port=1 user=x", force=True)
