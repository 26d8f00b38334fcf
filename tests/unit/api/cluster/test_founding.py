"""An installation becomes the first node of a fleet, whole or not at all, and goes on alone again."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from actors.bus.messages.cluster import FoundFleet
from actors.cluster.database import Database
from actors.cluster.errors import DatabaseError, DatabaseUnusable
from actors.cluster.identity import NodeIdentity, identity_of
from api.audit.trail import verify
from api.cluster import founding as module
from api.cluster.commit_transfer import AS_JSON
from api.cluster.fleet_node import FleetNode
from api.cluster.founding import FoundingRefused, found_fleet, leave_fleet
from api.cluster.migration_runner import migrate
from api.engine.commit import Engine
from api.engine.levels import LeveledField, Levels
from api.engine.loose import LOOSE
from api.operator.cluster import node_of
from api.store import LedgerError, StoreError, Write
from config import OperatorError
from config.files.paths import DataDir, open_data_dir
from config.files.secret_box import secret_box_of
from config.model.nodes import NodeRecord, NodesOfProxy
from config.model.proxies import blank_record
from tests.kit.cutting_relay import CuttingRelay
from tests.kit.folders import FOLDERS
from tests.kit.ports import free_port
from tests.kit.postgresql import database, needs_postgresql, shared_server
from tests.kit.tables import table
from tests.unit.api.cluster.nodes import fleet
from tests.unit.api.store.account_documents import account
from tests.unit.api.store.replicas import commit

pytestmark = needs_postgresql
CHANGES = [
    [("proxies", 0, 1), ("plans", 0, 0), ("accounts", 0, 1), ("credentials", 0, 0)],
    [("proxies", 0, 2), ("users", 1, 1), ("secrets", 1, 1)],
    [("proxies", 0, None), ("accounts", 1, 2), ("lists", 1, 1)],
]


class Killed(BaseException):
    pass


@dataclass
class Machine:
    """An installation, whose API may be killed and started again."""

    data: DataDir
    stack: ExitStack = field(default_factory=ExitStack)
    node: FleetNode | None = None

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.node = node_of(self.data)
        if self.node is not None:
            self.stack.callback(self.node.close)
        ledger = None if self.node is None else self.node.ledger
        self.engine = self.stack.enter_context(closing(Engine(self.data, secret_box_of(self.data), ledger)))
        if self.node is not None:
            self.node.opened(self.engine)

    def restart(self) -> None:
        self.stack.close()
        self.start()

    def found(self, dsn: str, listen: str = "", **more: str) -> None:
        node = found_fleet(self.engine, FoundFleet(dsn, **{"name": "first", **more}), listen)  # type: ignore[arg-type]
        self.stack.callback(node.close)
        self.node = node


@contextmanager
def machine() -> Iterator[Machine]:
    with tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS) as folder:
        made = Machine(open_data_dir(Path(folder) / "d"))
        with closing(made.stack):
            for each in CHANGES:
                commit(made.engine, each)
            made.engine.put("refresh_families", {"id": "family", "user_id": "users_1", "keep_until": 9e9})
            yield made


@pytest.fixture
def ours() -> Iterator[Machine]:
    with machine() as made:
        yield made


@pytest.fixture
def dsn() -> Iterator[str]:
    with database() as found:
        yield found


def rows(dsn: str, query: str) -> list[Any]:
    with closing(Database(dsn)) as found, found.session() as session:
        return session.transaction(query)


def require_same(dsn: str, engine: Engine) -> None:
    """The database has all that the file has: documents, history, audit trail and numbers."""
    with engine.file.reading() as file:
        found = file.execute("SELECT collection, id, revision, body FROM documents").fetchall()
        documents = {each[:3]: each[3] for each in found if each[0] not in LOOSE}
        for name in ("accounts", "plans"):
            query = f"SELECT '{name}', id, revision, body FROM {name}"
            documents |= {each[:3]: each[3] for each in file.execute(query)}
        history = file.execute("SELECT number, commit_number, author, kinds, size FROM revisions").fetchall()
        changes = file.execute("SELECT * FROM revision_changes ORDER BY number, place").fetchall()
        audit = file.execute("SELECT seq, commit_number, content, hash FROM audit ORDER BY seq").fetchall()
        (number,) = file.execute("SELECT revision FROM steps").fetchone()
    found = rows(dsn, "SELECT collection, id, revision, body::text FROM proxyfleet.documents WHERE body IS NOT NULL")
    assert {each[:3]: each[3] for each in found} == documents
    query = 'SELECT number, "commit", author, kinds, size FROM proxyfleet.revisions ORDER BY number'
    assert rows(dsn, query) == history
    assert rows(dsn, "SELECT * FROM proxyfleet.revision_changes ORDER BY number, place") == changes
    query = 'SELECT seq, "commit", content, hash FROM proxyfleet.audit ORDER BY seq'
    assert rows(dsn, query) == audit
    assert rows(dsn, "SELECT head, history FROM proxyfleet.fleet") == [(number, history[-1][0])]


def test_all_that_an_installation_has_is_the_fleets_with_its_numbers_and_it_goes_on_as_a_node(
    ours: Machine, dsn: str
) -> None:
    ours.engine.trail.append("user.signed_in")
    before = ours.engine.get("accounts", "accounts_1")
    ours.found(dsn, address="192.0.2.7", listen="0.0.0.0:8443")
    require_same(dsn, ours.engine)
    assert ours.engine.get("accounts", "accounts_1") == before
    assert ours.engine.loose.counts() == {"credentials": 1, "refresh_families": 1}
    assert ours.node is not None
    assert identity_of(ours.data, secret_box_of(ours.data)) == ours.node.identity
    (record,) = ours.engine.every("nodes")
    assert (record.id, record.body["name"]) == (ours.node.node_id, "first")
    assert record.body["addresses"] == {"internal": "192.0.2.7:8443"}
    ours.engine.trail.append("user.signed_out")
    ours.engine.put("lists", {"id": "l", "name": "later"})
    require_same(dsn, ours.engine)
    ours.restart()
    ours.engine.put("lists", {"id": "m", "name": "last"})
    require_same(dsn, ours.engine)
    assert verify(ours.data) == ours.engine.trail.head
    assert not ours.data.founding.exists()


def test_each_document_has_the_lowest_level_that_knows_its_fields_whenever_it_was_made(
    ours: Machine, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = module._copy
    zones = {("proxies", "zones"): LeveledField(2, []), ("accounts", "metadata.zone"): LeveledField(3)}
    for each in ("copied", "plain"):
        ours.engine.put("proxies", {"id": each, "name": each, "zones": ["a"] if each == "copied" else []})
    ours.engine.commit([Write("accounts", "acc_a", account("acc_a", "ada", metadata={"zone": "a"}))])

    def slow(*given: Any) -> int:
        number = copy(*given)
        ours.engine.put("proxies", {"id": "meanwhile", "name": "meanwhile", "zones": ["a"]})
        return number

    monkeypatch.setattr(module, "_copy", slow)
    node = found_fleet(ours.engine, FoundFleet(dsn, "first"), levels=Levels(3, zones))
    ours.stack.callback(node.close)
    found = dict(rows(dsn, "SELECT id, level FROM proxyfleet.documents"))
    above = {"copied": 2, "meanwhile": 2, "acc_a": 3}
    assert found == {**dict.fromkeys(found, 1), **above}
    assert {*above, "plain", node.node_id} <= {*found}


@pytest.mark.parametrize("as_json", [AS_JSON, 0])
def test_changes_go_on_while_the_state_is_copied_and_none_is_lost(
    ours: Machine, dsn: str, monkeypatch: pytest.MonkeyPatch, as_json: int
) -> None:
    monkeypatch.setattr("api.cluster.commit_transfer.AS_JSON", as_json)
    copy = module._copy

    def slow(*given: Any) -> int:
        number = copy(*given)
        ours.engine.put("lists", {"id": "l", "name": "made meanwhile"})
        ours.engine.delete("lists", "lists_1")
        ours.engine.trail.append("user.signed_in")
        return number

    monkeypatch.setattr(module, "_copy", slow)
    ours.found(dsn)
    ours.engine.put("lists", {"id": "m", "name": "behind"})
    require_same(dsn, ours.engine)


@table(
    "given, error",
    [
        ({"dsn": "port=abc"}, "port"),
        ({"dsn": f"host=127.0.0.1 port={free_port()}"}, "refused"),
        ({"name": "a b"}, "--name: must be"),
        ({"address": "a b"}, "--address: must be"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_changed(
    ours: Machine, dsn: str, given: dict[str, str], error: str
) -> None:
    with pytest.raises(OperatorError, match=error):
        ours.found(**{"dsn": dsn, **given})
    ours.engine.put("lists", {"id": "l", "name": "later"})
    assert not ours.data.node.exists()


def test_a_role_without_rights_is_refused(ours: Machine, dsn: str) -> None:
    rows(dsn, "DROP ROLE IF EXISTS weak; CREATE ROLE weak LOGIN PASSWORD 'sesame'")
    with pytest.raises(DatabaseUnusable, match="permission denied for database"):
        ours.found(dsn.replace("user=postgres", "user=weak"))


def test_a_fleet_of_others_is_never_replaced_and_a_node_founds_none(ours: Machine) -> None:
    with fleet() as other, pytest.raises(FoundingRefused, match=f"holds the fleet {other.id} since .*cluster join"):
        ours.found(other.dsn)
    with database() as dsn:
        ours.found(dsn)
        with pytest.raises(FoundingRefused, match="is a node of a fleet already"):
            ours.found(dsn)


@pytest.mark.parametrize("where", ["before the node's file", "behind it"])
def test_an_installation_that_is_killed_stands_alone_and_tries_again_or_is_a_node(
    ours: Machine, dsn: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = NodeIdentity.save

    def killed(*given: Any) -> None:
        if where == "behind it":
            save(*given)
        raise Killed

    monkeypatch.setattr(NodeIdentity, "save", killed)
    with suppress(Killed):
        ours.found(dsn)
    monkeypatch.undo()
    ours.restart()
    if where == "behind it":
        assert ours.node is not None
    else:
        assert ours.node is None
        assert ours.engine.every("nodes") == []
        ours.engine.put("lists", {"id": "l", "name": "alone"})
        ours.found(dsn)
    ours.engine.put("lists", {"id": "m", "name": "behind"})
    require_same(dsn, ours.engine)
    assert len(ours.engine.every("nodes")) == 1
    assert verify(ours.data) == ours.engine.trail.head


STATEMENTS = 20
"""Of `found_fleet` in a database that has the schema; the last one commits."""


@pytest.mark.parametrize("cut", [2, 7, *range(STATEMENTS - 5, STATEMENTS + 1), STATEMENTS + 9])
def test_a_connection_that_is_cut_behind_any_statement_leaves_one_machine_or_a_node(
    ours: Machine, dsn: str, cut: int
) -> None:
    with CuttingRelay(shared_server().port) as relay:
        with closing(Database(dsn)) as direct:
            migrate(direct, "")
        relay.cut(cut, "behind")
        with suppress(DatabaseError, StoreError):
            through = dsn.replace(f"port={shared_server().port}", f"port={relay.port}")
            ours.found(f"{through} sslmode=disable gssencmode=disable")
        assert (relay.statements == STATEMENTS) == (cut > STATEMENTS), relay.statements
        is_node = ours.data.node.exists()
        assert is_node == (cut >= STATEMENTS)
        ours.engine.put("lists", {"id": "l", "name": "after"})
        if not is_node:
            ours.found(dsn)
        require_same(dsn, ours.engine)
        assert verify(ours.data) == ours.engine.trail.head


def test_a_node_that_leaves_goes_on_alone_with_all_that_it_has(ours: Machine, dsn: str) -> None:
    ours.found(dsn)
    assert ours.node is not None
    ours.engine.put("nodes", {"id": "other", "name": "other"})
    ours.engine.put("lists", {"id": "l", "name": "later"})
    before = [ours.engine.get("lists", "l"), ours.engine.get("accounts", "accounts_1")]
    leave_fleet(ours.node, force=False)
    assert rows(dsn, "SELECT id FROM proxyfleet.documents WHERE collection = 'nodes' AND body IS NOT NULL") == [
        ("other",)
    ]
    head = rows(dsn, "SELECT head FROM proxyfleet.fleet")
    ours.engine.put("lists", {"id": "m", "name": "alone"})
    ours.restart()
    assert ours.node is None
    ours.engine.put("lists", {"id": "n", "name": "alone"})
    assert ours.engine.every("nodes") == []
    assert [ours.engine.get("lists", "l"), ours.engine.get("accounts", "accounts_1")] == before
    assert rows(dsn, "SELECT head FROM proxyfleet.fleet") == head
    assert verify(ours.data) == ours.engine.trail.head


def test_a_node_that_leaves_keeps_its_proxies_as_they_ran_there_and_its_settings(ours: Machine, dsn: str) -> None:
    ours.found(dsn)
    assert ours.node is not None
    record = NodeRecord.model_validate(ours.engine.every("nodes")[0].body)
    tagged = record.model_copy(update={"tags": ["eu"], "addresses": {"public": "192.0.2.1"}})
    ours.engine.put("nodes", tagged.model_dump(mode="json"))
    for name, host, names in (("a", "{address:public}", {"tags": ["eu"]}), ("b", "127.0.0.1", {"names": ["other"]})):
        proxy = blank_record(f"prx_{name}", name, host, 3128, "http", 0.0, 30)
        proxy = proxy.model_copy(update={"nodes": NodesOfProxy.model_validate(names)})
        ours.engine.put("proxies", proxy.model_dump(mode="json"))
    for each, values in (
        ("settings", {"auth": {"max_login_attempts": 3}}),
        (record.id, {"logging": {"level": "debug"}}),
    ):
        ours.engine.put("settings", {"id": each, **values})
    leave_fleet(ours.node, force=False)
    found = {each.id: each.body for each in ours.engine.every("proxies")}
    assert {name: (each["host"], each["status"]) for name, each in found.items() if each["nodes"]["all"]} == {
        "prx_a": ("192.0.2.1", "active"),
        "prx_b": ("127.0.0.1", "inactive"),
    }
    assert {each.id: each.body for each in ours.engine.every("settings")} == {
        "settings": {"id": "settings", "auth": {"max_login_attempts": 3}, "logging": {"level": "debug"}}
    }


def sign_in(ours: Machine, name: str) -> None:
    ours.engine.put("refresh_families", {"id": name, "user_id": "users_1", "keep_until": 9e9})


def test_a_node_that_leaves_sends_what_waits_before_and_stays_where_usage_can_not_be_sent(
    ours: Machine, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SEND", 0.2)
    ours.found(dsn)
    assert ours.node is not None
    sign_in(ours, "late")
    ours.engine.trail.append("user.signed_in")
    ours.data.usage.parent.mkdir(exist_ok=True)
    with closing(sqlite3.connect(ours.data.usage, isolation_level=None)) as file:
        file.execute("CREATE TABLE reporting (counted INTEGER, reported INTEGER, since REAL)")
        file.execute("INSERT INTO reporting VALUES (700, 400, 1.0)")
        with pytest.raises(LedgerError, match=r"300 bytes of usage could not be sent to the fleet within 0\.2 s"):
            leave_fleet(ours.node, force=False)
        assert ours.data.node.exists()
        file.execute("UPDATE reporting SET reported = 700")
    assert leave_fleet(ours.node, force=False) == {}
    assert rows(dsn, "SELECT id FROM proxyfleet.loose WHERE collection = 'refresh_families' ORDER BY 1") == [
        ("family",), ("late",),
    ]  # fmt: skip
    entries = rows(dsn, "SELECT content FROM proxyfleet.audit ORDER BY seq")
    assert sum("user.signed_in" in content for (content,) in entries) == 1


def test_a_node_that_is_cut_off_leaves_by_force_alone(ours: Machine, dsn: str) -> None:
    ours.found(dsn)
    assert ours.node is not None
    sign_in(ours, "late")
    ours.node.database.close()
    with pytest.raises(LedgerError):
        leave_fleet(ours.node, force=False)
    assert ours.data.node.exists()
    assert leave_fleet(ours.node, force=True) == {"sign_ins": 2, "credentials": 1}
    ours.engine.put("lists", {"id": "m", "name": "alone"})
    assert (ours.data.node.exists(), ours.engine.every("nodes")) == (False, [])
