"""Nodes of a fleet as the engine will have them: a replica, and changes that go to the ledger first."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg

from actors.cluster.database import Database
from api.cluster.migration_runner import migrate
from api.cluster.shared_ledger import LedgerCommit, SharedLedger, create_fleet
from api.engine.commit import Engine
from api.engine.ledger import Commit, commit_of
from api.store import Write
from config.files.paths import DataDir, open_data_dir
from config.files.secret_box import SecretBox, secret_box_of
from tests.kit.folders import FOLDERS
from tests.kit.postgresql import database


class Node:
    """One, which may be killed between the ledger and its file."""

    def __init__(self, name: str, data: DataDir, ledger: SharedLedger, seal: SecretBox) -> None:
        self.name, self.data, self.ledger, self.seal = name, data, ledger, seal
        self.engine = Engine(data, seal)

    @property
    def number(self) -> int:
        return self.engine.file.last_number

    def change(self, writes: Sequence[Write], between: Callable[[], object] = lambda: None) -> Commit:
        """Commit it in the fleet. `between` is called when the ledger has it, and the file has not."""
        with self.ledger.begin(self.number) as lock:
            self.adopt(lock.missing)
            commit = self.prepared(writes, lock.audited)
            lock.append(commit)
        between()
        self.engine.adopt(commit)
        return commit

    def prepared(self, writes: Sequence[Write], audited: int) -> Commit:
        """The commit that these changes are, with all entries that the ledger lacks, which are synced."""
        commit = built(self.engine, writes)
        with self.engine.file.transaction() as database:
            self.engine.trail.insert(self.engine.trail.new_of(commit.audit))
            rows = database.execute("SELECT seq, content, hash FROM audit WHERE seq > ? ORDER BY seq", [audited])
            return replace(commit, audit=tuple(rows))

    def follow(self) -> None:
        self.adopt(self.ledger.changes(self.number))

    def adopt(self, commits: Iterable[LedgerCommit]) -> None:
        for each in commits:
            self.engine.adopt(each.commit)

    def end(self) -> None:
        self.engine.close()

    def restart(self) -> None:
        self.end()
        self.engine = Engine(self.data, self.seal)


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

    def __init__(self, dsn: str, folder: Path, stack: ExitStack) -> None:
        self.dsn, self.folder, self._stack = dsn, folder, stack
        self.database = stack.enter_context(closing(Database(dsn)))
        self.id: UUID = uuid4()
        migrate(self.database, "a")
        self.stamp = create_fleet(self.database, self.id, "a", 0, 0, "")
        self.seal = secret_box_of(open_data_dir(folder / "key"))

    def node(self, name: str, dsn: str | None = None) -> Node:
        found = self.database if dsn is None else self._stack.enter_context(closing(Database(dsn)))
        data = open_data_dir(self.folder / name)
        node = Node(name, data, SharedLedger(found, self.id, name), self.seal)
        self._stack.callback(node.end)
        return node

    def execute(self, statement: str) -> list[Any]:
        """As an operator with `psql`."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


@contextmanager
def fleet(dsn: str | None = None) -> Iterator[Fleet]:
    """A new one without nodes, in this empty database, or in one on the server of this worker."""
    with (
        nullcontext(dsn) if dsn else database() as found,
        tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS) as folder,
        ExitStack() as stack,
    ):
        yield Fleet(found, Path(folder), stack)
