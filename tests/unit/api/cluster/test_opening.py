"""An installation that is a node opens without the database, and what is changed in it is a change of the fleet."""

from __future__ import annotations

import re
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from actors.cluster.identity import NodeIdentity
from api import process
from api.audit.trail import verify
from api.cluster.fleet_node import CLOSE, FleetNode, NodeHost
from api.engine.commit import Engine
from api.operator.fleet_state import NOT_INSTALLED
from api.operator.offline import reset_password
from api.operator.start import WouldNotStart, check_start
from api.process import REPLICA_RETRY, ApiStart, open_store
from api.security import users
from api.security.users import UserCreate, new_user
from api.store import LedgerError, StoreDamaged, StoreError
from config.files.paths import DataDir, open_data_dir
from config.files.secret_box import secret_box_of
from config.passwords import check_password
from config.settings.groups import History
from config.settings.settings import Settings
from tests.kit.gated_relay import ALL, REFUSE, GatedRelay
from tests.kit.ports import free_port
from tests.kit.postgresql import needs_postgresql
from tests.kit.tables import table
from tests.unit.api.cluster.nodes import Fleet, fleet

pytestmark = needs_postgresql


def test_a_node_ends_soon_while_its_database_hangs(tmp_path: Path) -> None:
    data = open_data_dir(tmp_path)
    data.cluster.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(10)
        dsn = f"postgresql://a@127.0.0.1:{silent.getsockname()[1]}/a"
        node = FleetNode(NodeIdentity(uuid4(), "nod_a", "a", "full", dsn))
        with closing(Engine(data, secret_box_of(data), node.ledger)) as engine:
            node.opened(engine)
            node.start(NodeHost(lambda _event, _data: None, History))
            waits = [silent.accept() for _ in range(3)]
            began = time.monotonic()
            node.close()
            assert time.monotonic() - began < 1.9 * CLOSE
            for each, _ in waits:
                each.close()


@dataclass
class Installed:
    """The data directory of a node, which is not open; and its fleet."""

    fleet: Fleet
    data: DataDir

    def identify(self, dsn: str) -> None:
        NodeIdentity(self.fleet.id, "a", "here", "full", dsn).save(self.data, secret_box_of(self.data))


@pytest.fixture
def installed() -> Iterator[Installed]:
    with fleet() as made:
        node = made.node("a")
        user = new_user(UserCreate(username="admin", password="correct horse", role="administrator"))
        node.engine.put(users.COLLECTION, user.model_dump(mode="json"))
        node.engine.close()
        found = Installed(made, node.data)
        found.identify(made.dsn)
        yield found


def unreachable() -> str:
    return f"host=127.0.0.1 port={free_port()} user=postgres dbname=postgres"


def test_the_api_of_a_node_opens_and_reads_without_the_database_and_changes_nothing(installed: Installed) -> None:
    installed.identify(unreachable())
    start = ApiStart()
    *_, is_first = start.read(str(installed.data.path))
    assert not is_first
    assert start._opened is not None
    engine, _, node = start._opened
    assert node is not None
    with closing(engine), closing(node):
        assert node.cut_off_for() is None
        for _ in range(2):
            with pytest.raises(LedgerError, match="refused"):
                engine.put("lists", {"id": "l", "name": "listed"})
        assert (engine.every("lists"), len(engine.every(users.COLLECTION))) == ([], 1)
        assert node.cut_off_for() is not None


def test_a_command_without_the_api_changes_the_fleet_or_nothing(installed: Installed) -> None:
    other = installed.fleet.node("b")
    other.engine.put("lists", {"id": "l", "name": "listed"})
    reset_password(installed.data, "admin", "battery staple")
    opened = open_store(installed.data)
    assert opened.node is not None
    with closing(opened.engine), closing(opened.node):
        assert len(opened.engine.every("lists")) == 1
    other.follow()
    changed = users.by_name(other.engine, "admin")
    assert changed is not None
    assert check_password("battery staple", changed.password_hash)
    installed.identify(unreachable())
    with pytest.raises(LedgerError, match="refused"):
        reset_password(installed.data, "admin", "correct horse")


def test_a_node_without_psycopg_or_with_a_broken_identity_does_not_start_and_says_why(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {**sys.modules}
    for name in [each for each in known if each.startswith(("actors.cluster", "api.cluster", "psycopg"))]:
        package, _, module = name.rpartition(".")
        if hasattr(known.get(package), module):  # an import binds it anew: the end gives back what was
            monkeypatch.setattr(known[package], module, known[name])
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError, match=re.escape(NOT_INSTALLED)):
        open_store(installed.data)
    with pytest.raises(WouldNotStart, match="psycopg"):
        check_start(Settings(), installed.data)
    monkeypatch.undo()
    installed.data.node.write_text("{}")
    with pytest.raises(StoreError, match=r"node\.json: can't be read"):
        open_store(installed.data)


def test_a_start_without_a_replica_waits_for_the_database(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that systemd does not give up on it meanwhile."""
    parts = conninfo_to_dict(installed.fleet.dsn)
    with closing(open_store(installed.data).engine) as engine:
        engine.put("lists", {"id": "l", "name": "listed"})
    installed.data.fleet.unlink()
    with GatedRelay(int(str(parts["port"]))) as relay:
        relay.gates[ALL] = REFUSE
        installed.identify(make_conninfo(**{**parts, "host": "127.0.0.1", "port": relay.port}))
        waits: list[float] = []

        def returns(seconds: float) -> None:
            if seconds == REPLICA_RETRY:  # others sleep, too
                waits.append(seconds)
                relay.gates.clear()

        monkeypatch.setattr(process.time, "sleep", returns)
        with closing(open_store(installed.data, 30).engine) as engine:
            assert [each.body["name"] for each in engine.every("lists")] == ["listed"]
        assert waits == [REPLICA_RETRY]


@table("damage", ["gone", "damaged"])
def test_a_replica_that_is_damaged_or_gone_is_read_anew_and_without_the_database_it_is_refused_and_stays(
    installed: Installed, damage: str
) -> None:
    with closing(open_store(installed.data).engine) as engine:
        engine.put("lists", {"id": "l", "name": "listed"})
        head, stamped = engine.trail.head, engine.stamped()
    if damage == "gone":
        installed.data.fleet.unlink()
    else:
        installed.data.fleet.write_bytes(b"x" * 8192)
    installed.identify(unreachable())
    for _ in range(2):
        with pytest.raises(StoreDamaged, match="and the fleet's database can't give it"):
            open_store(installed.data)
    installed.identify(installed.fleet.dsn)
    opened = open_store(installed.data)
    with closing(opened.engine) as engine:
        assert [each.body["name"] for each in engine.every("lists")] == ["listed"]
        assert len(engine.every(users.COLLECTION)) == 1
        assert (engine.trail.head, engine.stamped()) == (head, stamped)
        engine.put("lists", {"id": "l", "name": "other"})
        assert verify(installed.data) == engine.trail.head
