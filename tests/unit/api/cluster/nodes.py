"""Nodes of a fleet, which may be killed between the ledger and their files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg

from actors.cluster.database import Database
from api.cluster.duties import Duties
from api.cluster.following.heartbeat import Beat, Heartbeat
from api.cluster.migration_runner import Migration, migrate
from api.cluster.roles import verifier
from api.cluster.shared_ledger import FleetLock, SharedLedger
from api.engine.commit import Engine
from api.engine.ledger import Commit, LedgerCommit, RowsSent, commit_of
from api.store import Write
from config.files.paths import DataDir, open_data_dir
from config.files.secret_box import SecretBox, secret_box_of
from tests.kit.fleet_database import create_fleet
from tests.kit.folders import FOLDERS
from tests.kit.postgresql import database, migrated_database, shared_server
from tests.kit.postgresql_server import PASSWORD, Operator
from tests.unit.api.store.replicas import write_of


def proxy(which: int = 0, value: int = 0) -> list[Write]:
    """The change that makes a proxy, or alters it."""
    return [write_of(("proxies", which, value))]


class _Turn:
    def __init__(self, lock: FleetLock, between: Callable[[], object]) -> None:
        self.missing, self.audited = lock.missing, lock.audited
        self._lock, self._between = lock, between

    def append(self, commit: Commit) -> UUID:
        stamp = self._lock.append(commit)
        self._between()
        return stamp


class Node:
    """One, which may be killed between the ledger and its file."""

    def __init__(self, name: str, data: DataDir, ledger: SharedLedger, seal: SecretBox) -> None:
        self.name, self.data, self.ledger, self.seal = name, data, ledger, seal
        self._between: Callable[[], object] = lambda: None
        self.engine = Engine(data, seal, self)

    @property
    def node(self) -> str:
        """As the ledger."""
        return self.name

    @property
    def number(self) -> int:
        return self.engine.file.last_number

    @contextmanager
    def begin(self, after: int, stamp: UUID | None, size: int = 0, sent: RowsSent | None = None) -> Iterator[_Turn]:
        """As the ledger."""
        with self.ledger.begin(after, stamp, size, sent) as lock:
            yield _Turn(lock, self._between)

    def sending(self, size: int) -> AbstractContextManager[RowsSent]:
        """As the ledger."""
        return self.ledger.sending(size)

    def changes(self, after: int, stamp: UUID | None) -> Iterator[LedgerCommit]:
        """As the ledger."""
        return self.ledger.changes(after, stamp)

    def change(self, writes: Sequence[Write], between: Callable[[], object] = lambda: None) -> Commit:
        """Commit it in the fleet. `between` is called when the ledger has it, and the file has not."""
        self._between = between
        try:
            return next(self.engine.changes(self.engine.commit(writes) - 1))
        finally:
            self._between = lambda: None

    def prepared(self, writes: Sequence[Write]) -> Commit:
        """The commit that these changes are, which is not made."""
        with closing(Engine(self.data, self.seal)) as engine:
            return built(engine, writes)

    def follow(self) -> None:
        self.engine.catch_up()

    def end(self) -> None:
        self.engine.close()

    def restart(self) -> None:
        self.end()
        self.engine = Engine(self.data, self.seal, self)


class _TakenBack(Exception):
    pass


def built(engine: Engine, writes: Sequence[Write]) -> Commit:
    """The commit that these changes are, without making it."""
    try:
        with engine.exclusive() as database:
            number = engine.commit(writes)
            commit = commit_of(database, number)
            raise _TakenBack
    except _TakenBack:
        return commit


class Fleet:
    """The database of a fleet, and its nodes."""

    def __init__(self, dsn: str, folder: Path, stack: ExitStack, known: Sequence[Migration] | None = None) -> None:
        self.dsn, self.folder, self._stack = dsn, folder, stack
        self._operator = stack.enter_context(closing(Operator(dsn)))
        self.database = stack.enter_context(closing(Database(dsn)))
        self.id: UUID = uuid4()
        migrate(self.database, "a", known)
        self.stamp = create_fleet(self.database, self.id, "a")
        self.seal = secret_box_of(open_data_dir(folder / "key"))

    def node(self, name: str, dsn: str | None = None) -> Node:
        found = self.database if dsn is None else self._stack.enter_context(closing(Database(dsn)))
        data = open_data_dir(self.folder / name)
        node = Node(name, data, SharedLedger(found, self.id, name), self.seal)
        self._stack.callback(node.end)
        return node

    def execute(self, statement: str) -> list[Any]:
        """As an operator with `psql`."""
        return self._operator.execute(statement)


def beat(duties: Duties, database: Database, node: str) -> Beat:
    """One heartbeat of a node, by which it renews its duties."""
    heartbeat = Heartbeat(database, node, node, lambda: (0, None))
    heartbeat.fields += [lambda: {"down_after": 30}, duties.heartbeat_fields]
    heartbeat.subscribers.append(duties.on_heartbeat)
    return heartbeat.beat_now()


@contextmanager
def fleet(dsn: str | None = None, known: Sequence[Migration] | None = None) -> Iterator[Fleet]:
    """A new one without nodes, in this empty database, or in one on the server of this worker.

    Its schema is that of this release, or has the migrations that are `known`.
    """
    with (
        nullcontext(dsn) if dsn else database() if known else migrated_database() as found,
        tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS) as folder,
        ExitStack() as stack,
    ):
        yield Fleet(found, Path(folder), stack, known)


_numbers = count()


@contextmanager
def owner(may_make_roles: bool = True) -> Iterator[str]:
    """A database with an owner that is no superuser: the DSN."""
    server, name = shared_server(), f"owner_{next(_numbers)}"
    may = "CREATEROLE" if may_make_roles else ""
    server.operator.execute(f"CREATE ROLE {name} LOGIN {may} PASSWORD '{verifier(PASSWORD, 1)}'")
    with server.database() as dsn:
        database = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
        server.operator.execute(f"ALTER DATABASE {database} OWNER TO {name}")
        yield psycopg.conninfo.make_conninfo(dsn, user=name)
