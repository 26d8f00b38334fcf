"""The fleet gets a new key: all opens with it and nothing with the old one, also after kills and an absence."""

from __future__ import annotations

import json
import sqlite3
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from actors.cluster.identity import NodeIdentity, identity_of
from api.audit.audit_context import on_behalf_of
from api.cluster.fleet_node import FleetNode, NodeHost
from api.cluster.following.heartbeat import Beat
from api.cluster.keys.fleet_key import AT_REST, PATH, SELDOM, RekeyRefused
from api.cluster.keys.rekeying import CONNECTED, Rekeying
from api.cluster.keys.resealing import Resealing
from api.cluster.links.certificates import own_certificate
from api.cluster.links.internal_api import NodeRefused, ask
from api.cluster.roles import NodeLogin
from api.engine.commit import Engine
from api.http.idempotency import Idempotency
from api.operator.fleet_state import state_of
from api.security.signing import SigningKeys
from api.store import StoreError, Write
from config.files.paths import open_data_dir
from config.files.secret_box import SealedFor, SecretBox, new_key, secret_box_of
from config.model.nodes import COLLECTION, NodeRecord
from config.model.nodes.tokens import place_of
from config.settings.groups import History
from tests.kit.fleet_database import begin_roles
from tests.kit.ports import free_port
from tests.kit.postgresql import needs_postgresql
from tests.kit.wait import wait_until
from tests.unit.api.cluster.nodes import Fleet, fleet, owner

pytestmark = needs_postgresql
PASSWORD = "$2b$10$the-hash-of-a-password"


def test_it_is_looked_at_when_a_heartbeat_says_that_it_is_another_one(tmp_path: Path) -> None:
    nowhere = "host=127.0.0.1 port=1"
    node = FleetNode(NodeIdentity(uuid4(), "nod_1", "a", "full", nowhere), seal=secret_box_of(open_data_dir(tmp_path)))
    with closing(node):
        key = node.key
        assert key is not None

        def is_looked_at(**reply: Any) -> bool:
            key._due.clear()
            key.on_heartbeat(Beat(0, True, 0.0, reply))
            return key._due.is_set()

        assert not is_looked_at(), "by a schema that says nothing of it"
        assert key._follow_key() == SELDOM
        first, next_ = ["1", [], False], ["2", ["1"], True]
        assert [is_looked_at(key=each) for each in (first, first, next_, next_)] == [True, False, True, False]
        assert key._follow_key() == AT_REST


class Killed(BaseException):
    """The process ends here."""


class Reply(dict[str, Any]):
    def plain(self) -> dict[str, Any]:
        return dict(self)


class Member:
    """A node, with a key file and files of its own; it may be killed, and started again."""

    def __init__(self, ours: Fleet, name: str, role: Any = "full", key: str = "") -> None:
        self.name, self.role, self.id = name, role, f"nod_{name}{'0' * (16 - len(name))}"
        self.data = open_data_dir(ours.folder / name)
        self.data.cluster.mkdir(exist_ok=True, mode=0o700)
        if key:
            self.data.keys.mkdir(mode=0o700)
            (self.data.keys / "secrets.key").write_text(key)
        self.seal.ensure()
        login = NodeLogin(self.id, role)
        self._begin(ours, login)
        self.identity = NodeIdentity(ours.id, self.id, name, role, login.dsn(ours.dsn))
        self.identity.save(self.data, self.seal)
        self.listen = f"127.0.0.1:{free_port()}"
        self.running = False

    def _begin(self, ours: Fleet, login: NodeLogin) -> None:
        ((has_roles,),) = ours.execute("SELECT has_roles FROM proxyfleet.fleet")
        if not has_roles:
            begin_roles(ours.database, login)
            return
        statement, values = login.statement
        with ours.database.session() as session:
            session.transaction(statement, values)

    @property
    def seal(self) -> SecretBox:
        return secret_box_of(self.data)

    @property
    def document(self) -> dict[str, Any]:
        own = own_certificate(self.data)
        return NodeRecord.model_validate(
            {
                "id": self.id, "name": self.name, "role": self.role, "created_at": 1.0,
                "addresses": {"internal": self.listen},
                "certificate": {"fingerprint": own.fingerprint, "pem": own.pem},
            }
        ).model_dump(mode="json")  # fmt: skip

    def start(self) -> None:
        found = identity_of(self.data, self.seal)
        assert found == self.identity
        self.node = FleetNode(self.identity, seal=self.seal)
        self.engine = Engine(self.data, self.seal, self.node.ledger)
        self.node.opened(self.engine)
        self.node.start(NodeHost(lambda *_event: None, History, self.listen))
        self.running = True

    def end(self) -> None:
        if self.running:
            self.running = False
            self.node.close()
            self.engine.close()

    def rekey(self) -> Any:
        with on_behalf_of("command_line", "cluster-rekey"):
            return self.node.rekey()

    def put(self, collection: str, body: dict[str, Any]) -> None:
        self.engine.commit([Write(collection, body["id"], body, self.engine.revision_of(collection, body["id"]))])

    def is_at(self, number: int) -> bool:
        return self.engine.file.last_number >= number


class Stage:
    """Nodes of one fleet that have secrets wherever there can be some."""

    def __init__(self, ours: Fleet, stack: ExitStack) -> None:
        self.fleet, self._stack = ours, stack
        self.members: dict[str, Member] = {}
        first = self.add("a")
        self.old = first.seal.fingerprint
        ours.execute(f"UPDATE proxyfleet.fleet SET key_fingerprint = '{self.old}'")
        seal, put = first.seal, first.put
        upstream = {"host": "192.0.2.1", "password": seal.seal("p", SealedFor.UPSTREAM)}
        backend = {"backend": {"secret_sealed": seal.seal("b", SealedFor.BACKEND)}}
        headers = {"X-Token": seal.seal("h", SealedFor.HEADER)}
        for value in range(2):  # so that the history has them before and after
            put("proxies", {"id": "prx_a", "name": f"shop{value}", "upstreams": [upstream], "auth": backend})
        put("pools", {"id": "pol_a", "name": "pool", "upstreams": [upstream], "source": {"headers": headers}})
        put("lists", {"id": "lst_a", "name": "list", "source": {"headers": headers}})
        put("fetched_upstreams", {"id": "pol_a", "upstreams": [upstream]})
        secret = seal.seal("s", SealedFor.WEBHOOK)
        put(
            "webhooks",
            {"id": "whk_a", "secret_sealed": secret, "headers": headers, "previous_secrets": [{"sealed": secret}]},
        )
        users = [
            Write("users", f"usr_{i}", {"id": f"usr_{i}", "username": f"u{i}", "password_hash": PASSWORD}, 0)
            for i in range(9)
        ]
        first.engine.commit(users)
        self.signing = SigningKeys(first.engine, seal).current.secret
        self.use_idempotency(first)
        ours.execute(f"INSERT INTO proxyfleet.moves VALUES ('{first.id}', '{seal.seal('w', SealedFor.MOVE)}')")
        lost = {"documents": [{"body": {"upstreams": [upstream]}}]}
        (first.data.cluster / "lost-2026.json").write_text(json.dumps(lost))

    def use_idempotency(self, member: Member) -> None:
        with closing(Idempotency(member.data, member.seal, node=lambda: member.node)) as idempotency:
            idempotency.once("user", f"key-{member.name}", {}, lambda: Reply(token="secret"))

    def add(self, name: str, role: str = "full") -> Member:
        """One that has joined, and has all of it."""
        first = next(iter(self.members.values()), None)
        member = Member(self.fleet, name, role, "" if first is None else first.seal.exported())
        self._stack.callback(member.end)
        self.members[name] = member
        if first is not None:
            first.put(COLLECTION, member.document)
        with closing(FleetNode(member.identity)) as node, closing(Engine(member.data, None, node.ledger)) as engine:
            engine.catch_up()
            if first is None:
                engine.put(COLLECTION, member.document, 0)
        member.start()
        wait_until(lambda: self._beats(member), f"{name} is there")
        if first is not None and role == "full":
            self.use_idempotency(member)
        return member

    def _beats(self, member: Member) -> bool:
        return bool(self.fleet.execute(f"SELECT 1 FROM proxyfleet.heartbeats WHERE node = '{member.id}'"))

    def age(self, member: Member) -> None:
        """It is silent for so long that it is away."""
        since = f"clock_timestamp() - interval '{CONNECTED + 1} s'"
        self.fleet.execute(f"UPDATE proxyfleet.heartbeats SET at = {since} WHERE node = '{member.id}'")

    # --- what is where ---

    def texts(self) -> Iterator[tuple[str, str]]:
        """Each value of each table of the database, each table of each replica, and each file; and where it is."""
        with psycopg.connect(self.fleet.dsn) as database:
            tables = database.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'proxyfleet'").fetchall()
            for (table,) in tables:
                for row in database.execute(f"SELECT * FROM proxyfleet.{table}".encode()):
                    yield from ((f"database {table}", plain(each)) for each in row)
        for member in self.members.values():
            for file in member.data.path.rglob("*"):
                if file.suffix == ".sqlite":
                    yield from of_file(file)
                elif file.is_file() and not file.name.endswith(("-wal", "-shm")):
                    yield str(file), file.read_bytes().decode("latin-1")

    def where(self, mark: str) -> set[str]:
        return {place for place, text in self.texts() if f"sealed:1:{mark}:" in text}

    def check(self, mark: str) -> None:
        """Nothing is sealed with the old key, no node has it, and all is there with the new one."""
        assert mark != self.old
        assert self.where(self.old) == set()
        assert {name: each.seal.marks for name, each in self.members.items()} == {key: [mark] for key in self.members}
        state = self.fleet.execute("SELECT key_fingerprint, retired_keys, is_rekeying FROM proxyfleet.fleet")
        assert [(mark, True, False)] == [(now, self.old in retired, goes_on) for now, retired, goes_on in state]
        for member in self.members.values():
            assert identity_of(member.data, member.seal) == member.identity
            seal = member.seal
            found = member.engine.every("proxies")
            assert [seal.open(each.body["upstreams"][0]["password"], SealedFor.UPSTREAM) for each in found] == ["p"]
            assert [seal.open(each.body["auth"]["backend"]["secret_sealed"], SealedFor.BACKEND) for each in found] == [
                "b"
            ]
            (pool,) = member.engine.every("pools")
            assert seal.open(pool.body["source"]["headers"]["X-Token"], SealedFor.HEADER) == "h"
            if member.role == "edge":
                continue
            (hook,) = member.engine.every("webhooks")
            assert seal.open(hook.body["secret_sealed"], SealedFor.WEBHOOK) == "s"
            assert seal.open(hook.body["previous_secrets"][0]["sealed"], SealedFor.WEBHOOK) == "s"
            assert SigningKeys(member.engine, seal).current.secret == self.signing
            assert self.hashes(member) == {PASSWORD}
        ((word,),) = self.fleet.execute("SELECT sealed FROM proxyfleet.moves")
        assert self.members["a"].seal.open(word, SealedFor.MOVE) == "w"
        lost = json.loads((self.members["a"].data.cluster / "lost-2026.json").read_bytes())
        password = lost["documents"][0]["body"]["upstreams"][0]["password"]
        assert self.members["a"].seal.open(password, SealedFor.UPSTREAM) == "p"

    @staticmethod
    def hashes(member: Member) -> set[str]:
        """Those of users, as the history of the node has them."""
        with member.engine.file.reading() as database:
            rows = database.execute("SELECT after FROM revision_changes WHERE collection = 'users'").fetchall()
        packing = member.engine.history._packing
        return {packing.unpack(after)["password_hash"] for (after,) in rows}  # type: ignore[index]


def plain(value: Any) -> str:
    if isinstance(value, bytes):
        return (value if value.startswith(b"{") else zlib.decompress(value)).decode()
    return json.dumps(value, default=str)


def of_file(file: Path) -> Iterator[tuple[str, str]]:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in database.execute(f"SELECT * FROM {table}"):
                yield from ((f"{file} {table}", plain(each)) for each in row)


@pytest.fixture
def stage() -> Iterator[Stage]:
    with ExitStack() as stack:
        dsn = stack.enter_context(owner())
        yield Stage(stack.enter_context(fleet(dsn)), stack)


def settled(stage: Stage) -> bool:
    return all(len(each.seal.marks) == 1 for each in stage.members.values())


def test_everything_opens_with_the_new_key_and_nothing_with_the_old_on_full_and_edge_nodes(stage: Stage) -> None:
    b, edge = stage.add("b"), stage.add("e", "edge")
    places = stage.where(stage.old)
    tables = {"documents", "revision_changes", "idempotency", "moves"}
    assert {each.split()[1] for each in places if each.startswith("database")} == tables
    done = b.rekey()
    assert (done.nodes, done.waiting) == (["b", "a", "e"], [])
    stage.check(done.mark)
    assert {each.split()[1] for each in stage.where(done.mark) if each.startswith("database")} == tables - {
        "idempotency"
    }
    assert edge.engine.every("webhooks") == []
    with b.engine.file.reading() as database:
        entries = [json.loads(text) for (text,) in database.execute("SELECT content FROM audit ORDER BY seq")]
    (entry,) = [each for each in entries if each["action"] == "fleet.rekeyed"]
    assert (entry["details"]["key"], entry["details"]["previous"]) == (done.mark, stage.old)
    again = stage.members["a"].rekey()
    stage.old = done.mark
    stage.check(again.mark)


def test_a_node_that_was_away_asks_for_the_key_and_makes_no_change_before(stage: Stage) -> None:
    a, b = stage.members["a"], stage.add("b")
    b.end()
    stage.age(b)
    done = a.rekey()
    assert (done.nodes, done.waiting) == (["a"], ["b"])
    a.put("proxies", {"id": "prx_b", "name": "later"})
    assert b.seal.marks == [stage.old]
    with closing(FleetNode(b.identity, seal=b.seal)) as node, closing(Engine(b.data, b.seal, node.ledger)) as engine:
        node.opened(engine)
        before = engine.file.last_number
        for change in (engine.catch_up, lambda: engine.put("plans", {"id": "pln_a", "name": "x"}, 0)):
            with pytest.raises(StoreError, match=f"the key {done.mark}, which this node lacks"):
                change()
        assert engine.file.last_number == before
        assert node.key is not None
        node.key.follow_once()  # it has not begun, and so can ask no other node
        (lacks,) = node.key.failed()
        assert lacks["error"] == (
            f"no node that can be reached has the fleet's key {done.mark}: add it to {b.seal.path}"
        )
        state = state_of(b.data, 5.0)
        assert state is not None
        assert state.problem is not None
        assert f"the fleet's key {done.mark} is missing in {b.seal.path}" in state.problem
    b.start()
    number = a.engine.file.last_number
    wait_until(lambda: b.is_at(number) and settled(stage), "it has the key, and what was sealed with it")
    a.engine.delete("proxies", "prx_b")
    wait_until(lambda: len(b.engine.every("proxies")) == 1, "it follows")
    assert b.node.key is not None
    assert b.node.key.failed() == []
    stage.check(done.mark)


def test_a_node_that_does_not_take_the_key_ends_it_with_nothing_changed(stage: Stage) -> None:
    a, b, c = stage.members["a"], stage.add("b"), stage.add("c")
    number = a.engine.file.last_number
    assert b.node.key is not None
    b.node.key.seal.is_given = True
    with pytest.raises(RekeyRefused, match=r"^b: .*given from outside.*Nothing was changed"):
        a.rekey()
    with pytest.raises(RekeyRefused, match="without the credential, and rekey"):
        b.rekey()
    b.node.key.seal.is_given = False
    b.end()
    with pytest.raises(RekeyRefused, match=r"^b: .*Nothing was changed"):
        a.rekey()
    assert a.engine.file.last_number == number
    assert [each.seal.marks for each in (a, b, c)] == [[stage.old]] * 3, "who took it has dropped it"
    stage.age(b)
    assert a.rekey().waiting == ["b"]


def test_a_secret_that_can_not_be_opened_ends_it_before_anything_is_changed(stage: Stage) -> None:
    a = stage.members["a"]
    body = a.engine.get("lists", "lst_a").body  # type: ignore[union-attr]
    sealed = body["source"]["headers"]["X-Token"]
    a.put("lists", {**body, "source": {"headers": {"X-Token": sealed[:-8] + "AAAAAAAA"}}})
    with pytest.raises(RekeyRefused, match="a secret of lists/lst_a can't be opened"):
        a.rekey()
    assert a.seal.marks == [stage.old]


def test_a_secret_that_was_sealed_before_is_not_committed_after(stage: Stage) -> None:
    a = stage.members["a"]
    late = {"id": "prx_l", "name": "late", "upstreams": [{"password": a.seal.seal("p", SealedFor.UPSTREAM)}]}
    a.rekey()
    with pytest.raises(StoreError, match="sealed with the former one: try again"):
        a.put("proxies", late)
    assert a.engine.get("proxies", "prx_l") is None


def test_what_looks_as_if_it_was_sealed_with_a_key_that_is_not_the_fleets_holds_up_no_node(stage: Stage) -> None:
    a, b = stage.members["a"], stage.add("b")
    a.put("lists", {"id": "lst_b", "name": "sealed:1:0badc0de:AAAA"})
    number = a.engine.file.last_number
    wait_until(lambda: b.is_at(number), "it has asked for that key, and goes on without")
    many = " ".join(f"sealed:1:{n:08x}:A" for n in range(40))
    a.put("lists", {"id": "lst_c", "name": many})
    number = a.engine.file.last_number
    wait_until(lambda: b.is_at(number), "it has asked for no other, and not for one a second", 5)
    b.engine.delete("lists", "lst_b")
    b.engine.delete("lists", "lst_c")
    assert a.seal.marks == b.seal.marks == [stage.old]


STEPS: Mapping[str, tuple[type, str]] = {
    "the key is kept": (SecretBox, "add"),
    "it is handed over": (Rekeying, "_hand_over"),
    "it is committed": (Rekeying, "_commit"),
    "it seals": (SecretBox, "use"),
    "the history is sealed": (Resealing, "history_of_fleet"),
    "the end is noted": (Resealing, "forget_responses_of_fleet"),
    "the replica is sealed": (Resealing, "history_of_replica"),
    "a file is sealed": (Resealing, "file"),
    "responses are forgotten": (Resealing, "forget_responses"),
    "the old key is forgotten": (SecretBox, "forget"),
}


@pytest.fixture(scope="module")
def pair() -> Iterator[Stage]:
    with ExitStack() as stack:
        dsn = stack.enter_context(owner())
        made = Stage(stack.enter_context(fleet(dsn)), stack)
        made.add("b")
        yield made


@pytest.mark.parametrize("step", STEPS)
def test_killed_before_any_step_it_is_whole_when_it_is_done_again_at_whatever_node(
    pair: Stage, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair.members["a"], pair.members["b"]
    place, name = STEPS[step]
    original = getattr(place, name)

    def die(self: Any, *values: Any) -> Any:
        changes = name not in ("use", "forget") or (values[0] not in (a.seal.fingerprint, []))
        if threading.current_thread() is not threading.main_thread() or not changes:
            return original(self, *values)
        raise Killed

    monkeypatch.setattr(place, name, die)
    with pytest.raises(Killed):
        a.rekey()
    monkeypatch.undo()
    a.end()
    a.start()
    again = (b if [*STEPS].index(step) % 2 else a).rekey()
    wait_until(lambda: settled(pair), "each node has the new key alone")
    pair.check(again.mark)
    pair.old = again.mark


def test_a_key_that_was_handed_over_for_nothing_is_not_the_next_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = stage.members["a"], stage.add("b")
    monkeypatch.setattr(Rekeying, "_commit", lambda *_: (_ for _ in ()).throw(StoreError("the database is away")))
    with pytest.raises(StoreError, match="away"):
        a.rekey()
    monkeypatch.undo()
    known = set(a.seal.marks)
    assert (known, a.seal.fingerprint) == (set(b.seal.marks), stage.old)
    done = b.rekey()
    assert done.mark not in known
    stage.check(done.mark)


def test_a_key_is_given_by_full_nodes_alone_and_asked_for_by_nodes_alone(stage: Stage) -> None:
    a, edge = stage.members["a"], stage.add("e", "edge")
    place, own = place_of(a.listen), own_certificate(a.data).fingerprint
    offered = {"key": new_key(), "previous": stage.old}
    for body in ({}, offered, {"settle": True}, {"drop": stage.old}):
        with pytest.raises(NodeRefused, match="certificate"):
            ask(place, own, PATH, body, 5.0)
    for body in (offered, {"drop": stage.old}):
        with pytest.raises(NodeRefused, match="a full node gives the key"):
            ask(place, own, PATH, body, 5.0, own_certificate(edge.data))
    assert ask(place, own, PATH, {}, 5.0, own_certificate(edge.data)) == {"keys": a.seal.exported()}
    for key in ("", "no key", "00"):
        with pytest.raises(NodeRefused, match="no key"):
            ask(
                place_of(edge.listen),
                own_certificate(edge.data).fingerprint,
                PATH,
                {**offered, "key": key},
                5.0,
                own_certificate(a.data),
            )
    with pytest.raises(RekeyRefused, match="at a full one"):
        edge.rekey()
    assert (a.seal.marks, edge.seal.marks) == ([stage.old], [stage.old])
