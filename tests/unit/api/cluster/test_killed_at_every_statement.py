"""A change, a report, a join, a removal and a migration: before and behind each statement the connection is cut, the
node's process killed, or the database's backend ended. Each time it was done or not, whole, and can be done again.

Each is done by a process of its own, through a relay. (`tests/unit/api/cluster/test_founding.py` has `cluster init`.)
"""

from __future__ import annotations

import os
import select
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from itertools import count
from typing import Protocol

import pytest
from psycopg.conninfo import make_conninfo

from actors.cluster.database import Database
from actors.cluster.errors import DatabaseError
from actors.cluster.identity import NodeIdentity
from actors.cluster.usage_report import LedgerReport, LedgerRow, ReportedAccount, UsageTable
from api.audit.trail import verify
from api.cluster.following.rereading import Rereading
from api.cluster.joining import PATH, Admission, ask_to_join, finish_joining
from api.cluster.links.certificates import Certificates, own_certificate
from api.cluster.links.internal_api import InternalApi, Route
from api.cluster.migration_runner import Migration, migrate, migrations
from api.cluster.roles import NodeLogin, end_role
from api.cluster.shared_ledger import SharedLedger
from api.engine import commit
from api.store import StoreError, Write
from config import OperatorError
from config.files.paths import DataDir, open_data_dir
from config.model.nodes import NodeRecord
from config.model.nodes.tokens import TokenLine
from tests.kit.cutting_relay import CuttingRelay, Where
from tests.kit.postgresql import needs_postgresql, shared_server
from tests.unit.api.cluster.admitted import Asked
from tests.unit.api.cluster.nodes import Fleet, Node, fleet, owner, proxy
from tests.unit.api.store.account_documents import account

pytestmark = needs_postgresql
_numbers = count(1)
LONGEST = 20.0
"""Seconds for one deed, of which most is the machine's."""
NEVER = 1 << 40
"""Statements from now."""


class World:
    """A fleet with a full node, and a relay between its database and what is to be killed."""

    def __init__(self, stack: ExitStack) -> None:
        self.fleet = stack.enter_context(fleet(stack.enter_context(owner())))
        self.full = Asked(self.fleet, stack)
        self.relay = stack.enter_context(CuttingRelay(shared_server().port))
        self.migrations = [*migrations()]

    def through(self, dsn: str) -> str:
        return make_conninfo(dsn, port=self.relay.port, sslmode="disable", gssencmode="disable")

    def node(self, name: str, dsn: str) -> Node:
        """A full node with files of its own."""
        data = DataDir(self.fleet.folder / name)
        return Node(name, data, SharedLedger(Database(dsn), self.fleet.id, name), self.fleet.seal)


class Deed(Protocol):
    """What is done once, by another process in `act`."""

    def __init__(self, world: World, number: int) -> None: ...

    def act(self, ready: Callable[[], None]) -> None:
        """Do it. What it does after `ready` is what is disturbed."""

    def ask(self) -> None:
        """What this process does meanwhile."""

    def is_done(self) -> bool:
        """Whether it is; fails for anything between."""
        ...

    def again(self) -> None:
        """Do it again, undisturbed."""


class Change:
    def __init__(self, world: World, number: int) -> None:
        self.world, self.number, self.name = world, number, f"changes-{number}"
        open_data_dir(world.fleet.folder / self.name)

    def act(self, ready: Callable[[], None]) -> None:
        node = self.world.node(self.name, self.world.through(self.world.fleet.dsn))
        node.follow()
        ready()
        node.change(proxy(self.number, 1))

    def ask(self) -> None:
        """Nothing."""

    def is_done(self) -> bool:
        of = f"SELECT number FROM proxyfleet.commits WHERE node = '{self.name}'"
        commits = self.world.fleet.execute(of)
        documents = self.world.fleet.execute(
            f"SELECT revision FROM proxyfleet.documents WHERE id = 'proxies_{self.number}'"
        )
        revisions = self.world.fleet.execute(f"SELECT \"commit\" FROM proxyfleet.revisions WHERE node = '{self.name}'")
        assert commits == documents == revisions
        return bool(commits)

    def again(self) -> None:
        node = self.world.node(self.name, self.world.fleet.dsn)
        with closing(node.engine):
            node.follow()
            if not self.is_done():
                node.change(proxy(self.number, 1))
            assert node.engine.get("proxies", f"proxies_{self.number}") is not None
            assert verify(node.data) == node.engine.trail.head


class Import(Change):
    """Of accounts, as rows: what is left of it is read anew."""

    def act(self, ready: Callable[[], None]) -> None:
        commit.LARGEST = 0
        node = self.world.node(self.name, self.world.through(self.world.fleet.dsn))
        node.follow()
        ready()
        self._import(node)

    def _import(self, node: Node) -> None:
        with closing(node.engine.accounts.staging()) as staged:
            name = f"proxies_{self.number}"
            staged.add(1, Write("accounts", name, account(name, f"name-{self.number}"), 0))
            staged.finish()
            node.engine.stage_records(staged)
            node.engine.commit_staged(staged)

    def again(self) -> None:
        node, fleet = self.world.node(self.name, self.world.fleet.dsn), self.world.fleet
        reread = Rereading(
            node.ledger, NodeIdentity(fleet.id, node.name, node.name, "full", fleet.dsn), node.engine, lambda *_: None
        )
        with closing(node.engine):
            reread()
            if not self.is_done():
                self._import(node)
            assert node.engine.get("accounts", f"proxies_{self.number}") is not None
            assert verify(node.data) == node.engine.trail.head
            assert fleet.execute("SELECT count(*) FROM proxyfleet.staged_audit") == [(0,)]
        fleet.execute("UPDATE proxyfleet.commits SET size = 1")  # so that later ones read it as any other


class Report:
    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number

    def _report(self, dsn: str) -> None:
        account = f"acc_{self.number}"
        rows = [LedgerRow(1, 1, account, "prx", 70, 30, 1, 1, 0)]
        accounts = [ReportedAccount(account, 0, 1 << 30, "total", True, 1.0, "192.0.2.1", "ada")]
        with closing(Database(dsn)) as database:
            table = UsageTable(database, "reports")
            table.report(f"ledger-{self.number}", LedgerReport(0, 1, 0, rows, accounts), LONGEST)

    def act(self, ready: Callable[[], None]) -> None:
        ready()
        self._report(self.world.through(self.world.fleet.dsn))

    def ask(self) -> None:
        """Nothing."""

    def is_done(self) -> bool:
        found = [
            self.world.fleet.execute(
                f"SELECT coalesce(sum({columns}), 0)::bigint FROM proxyfleet.{table}"
                f" WHERE account = 'acc_{self.number}'"
            )
            for table, columns in (("usage_hours", "bytes_in + bytes_out"), ("usage_totals", "total_in + total_out"))
        ]
        assert found[0] == found[1]
        assert found[0] in ([(0,)], [(100,)])
        return found[0] == [(100,)]

    def again(self) -> None:
        self._report(self.world.fleet.dsn)


class Join:
    """The asked node is killed; the machine that joins asks again."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.name = world, f"joins-{number}"
        self.new = open_data_dir(world.fleet.folder / f"new-{number}")
        self.asked = open_data_dir(world.fleet.folder / f"asked-{number}")
        self.own = own_certificate(self.asked)
        self.token = world.full.token(name=self.name)
        self.address, self._says = os.pipe()

    def act(self, ready: Callable[[], None]) -> None:
        world = self.world
        dsn = world.through(world.fleet.dsn)
        node = world.node(self.asked.path.name, dsn)
        node.follow()
        identity = NodeIdentity(world.fleet.id, node.name, "asked", "full", world.fleet.dsn)
        certificates = Certificates(self.own, list)
        admission = Admission(
            node.engine, world.fleet.seal, identity, Database(dsn), certificates, lambda _event, _data: None
        )
        route = Route(admission.handle, for_strangers=True)
        api = InternalApi(("127.0.0.1", 0), certificates, lambda: {PATH: route})
        api.start()
        ready()
        os.write(self._says, "{}:{}\n".format(*api.address).encode())
        signal.pause()

    def ask(self) -> None:
        place = os.read(self.address, 100).decode().strip()
        with suppress(OperatorError):
            ask_to_join(self.new, TokenLine(self.own.fingerprint, self.token.id, self.token.secret, place).text)

    def is_done(self) -> bool:
        """With the reply; without it there is no role that the document lacks, and the token is good."""
        nodes = self.world.fleet.execute(
            "SELECT id FROM proxyfleet.documents WHERE collection = 'nodes' AND body IS NOT NULL"
            f" AND body ->> 'name' = '{self.name}'"
        )
        used = self.world.fleet.execute(
            f"SELECT body ->> 'used_by' FROM proxyfleet.documents WHERE id = '{self.token.id}'"
        )
        assert used == (nodes or [(None,)])
        if self.new.joining.exists():
            assert nodes
        return self.new.joining.exists()

    def again(self) -> None:
        if not self.is_done():
            self.world.full.node.follow()
            ask_to_join(self.new, self.token.text)
        assert finish_joining(self.new, lambda _identity, folder: folder.fleet.write_text("the fleet's"))


class Removal:
    def __init__(self, world: World, number: int) -> None:
        self.world, self.name = world, f"removes-{number}"
        self.id = f"nod_{number:016x}"
        open_data_dir(world.fleet.folder / self.name)
        login = NodeLogin(self.id, "full")
        statement, parameters = login.statement
        with world.fleet.database.session() as session:
            session.transaction(statement, parameters)
        record = NodeRecord(id=self.id, name=self.name, created_at=1.0)
        world.full.put("nodes", record.model_dump(mode="json"))

    def act(self, ready: Callable[[], None]) -> None:
        node = self.world.node(self.name, self.world.through(self.world.fleet.dsn))
        node.follow()
        ready()
        end_role(node.ledger.database, self.id)
        node.change([Write("nodes", self.id, None)])

    def ask(self) -> None:
        """Nothing."""

    def is_done(self) -> bool:
        """Its role ends first: one that can sign in is in the list of nodes, where it can be removed again."""
        (role,) = self.world.fleet.execute(
            f"SELECT count(*) > 0 FROM pg_roles WHERE rolname = 'pf_{self.id}' AND rolcanlogin"
        )
        (document,) = self.world.fleet.execute(
            f"SELECT count(*) > 0 FROM proxyfleet.documents WHERE id = '{self.id}' AND body IS NOT NULL"
        )
        assert document == (True,) or role == (False,)
        return document == (False,)

    def again(self) -> None:
        self.world.full.node.follow()
        if not self.is_done():
            end_role(self.world.fleet.database, self.id)
            self.world.full.put("nodes", None, self.id)


class Migrating:
    def __init__(self, world: World, number: int) -> None:
        self.world, self.table = world, f"made_{number}"
        world.migrations.append(Migration(10_000 + number, self.table, f"CREATE TABLE proxyfleet.{self.table} (a int)"))

    def _migrate(self, dsn: str) -> None:
        with closing(Database(dsn)) as database:
            migrate(database, "a", self.world.migrations)

    def act(self, ready: Callable[[], None]) -> None:
        ready()
        self._migrate(self.world.through(self.world.fleet.dsn))

    def ask(self) -> None:
        """Nothing."""

    def is_done(self) -> bool:
        ((table,),) = self.world.fleet.execute(f"SELECT to_regclass('proxyfleet.{self.table}') IS NOT NULL")
        rows = self.world.fleet.execute(f"SELECT count(*) FROM proxyfleet.migrations WHERE name = '{self.table}'")
        assert rows == [(int(table),)]
        return bool(table)

    def again(self) -> None:
        self._migrate(self.world.fleet.dsn)


HOW = ("connection cut", "node killed", "backend ended")


def end_backend(of: Fleet, port: int) -> None:
    of.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE client_port = {port}")


def disturbed(world: World, deed: Deed, at: int, where: Where, how: str) -> int:
    """Have another process do it, and disturb it at this statement; how many statements there were."""
    world.relay.cut(NEVER, where)
    begins, says = os.pipe()
    goes_on, may_go_on = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the other threads are the relay's, which it does not need
        child = os.fork()
    if child == 0:
        try:

            def ready() -> None:
                os.write(says, b"!")
                os.read(goes_on, 1)

            with suppress(StoreError, DatabaseError):
                deed.act(ready)
        finally:
            os._exit(0)
    try:
        assert select.select([begins], [], [], LONGEST)[0], "it does not begin"
        before = world.relay.statements
        ends = {
            "connection cut": lambda _port: None,
            "node killed": lambda _port: os.kill(child, signal.SIGKILL),
            "backend ended": lambda port: end_backend(world.fleet, port),
        }
        world.relay.cut(at, where, ends[how])
        os.write(may_go_on, b"!")
        deed.ask()
        if isinstance(deed, Join):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return world.relay.statements - before
    finally:
        for each in (begins, says, goes_on, may_go_on):
            os.close(each)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with ExitStack() as stack:
        yield World(stack)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("kind", [Change, Import, Report, Join, Removal, Migrating])
def test_whenever_it_is_disturbed_it_was_done_or_not_and_can_be_done_again(
    world: World, kind: type[Deed], how: str
) -> None:
    """Section 3: usage is exact, one writer per revision; section 15: a node killed at every statement."""
    for where in ("before", "behind"):
        at, done = 1, []
        while True:
            deed = kind(world, next(_numbers))
            statements = disturbed(world, deed, at, where, how)
            done.append(deed.is_done())
            deed.again()
            assert deed.is_done() or kind is Join, (at, where)
            if statements < at:
                break
            at += 1
        assert at > 2, "nothing was disturbed"
        assert done[0] is False
        assert done[-1] is True
