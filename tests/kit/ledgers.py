"""What has the last word about the commits of a test: its own file, or the database of a fleet (`--ledger`).

Tests that don't say how an engine is opened open it here. In a fleet each data directory is that of its only node, in a
database of its own on the server of this worker. Databases are emptied and used again by later tests.

    embedded   the file
    shared     the database, but for tests that are marked `embedded`
    both       one after the other
    chosen     both for what store, accounts, history and imports promise (`CHOSEN`), the file for others
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from actors.cluster.database import Database
from api.cluster import shared_ledger
from api.cluster.shared_ledger import SharedLedger
from api.engine.commit import Engine
from api.history.recorder import newest_revision
from api.store import FleetStore
from api.store.fleet_store import require_store
from config.files.paths import DataDir
from config.files.secret_box import SecretBox
from tests.kit.fleet_database import create_fleet
from tests.kit.postgresql import migrated_database, needs_postgresql
from tests.kit.suite import is_in

LEDGERS = {"embedded": ["embedded"], "shared": ["shared"], "both": ["embedded", "shared"]}
CHOSEN = (
    "tests/unit/api/store",
    *(f"tests/unit/api/import_export/test_{each}.py" for each in ("history", "undo", "import_accounts")),
)
EACH = {name: pytest.param(name, marks=needs_postgresql if name == "shared" else ()) for name in LEDGERS["both"]}

_EMPTY = """SET LOCAL session_replication_role = replica; DO $$ BEGIN EXECUTE (
    SELECT string_agg(format('DELETE FROM %I.%I', schemaname, tablename), '; ')
    FROM pg_tables WHERE schemaname = 'proxyfleet' AND tablename NOT IN ('migrations', 'usage_clock')
); END $$"""
"""In any order, without triggers. Of tables with a few rows that costs a tenth of TRUNCATE."""

_free: list[Database] = []
_databases = ExitStack()


def ledgers_of(path: str, option: str) -> list[str]:
    """The ledgers of the tests in a file, by what `--ledger` says."""
    if option == "chosen":
        option = "both" if is_in(path, CHOSEN) else "embedded"
    return LEDGERS[option]


class Fleets:
    """The ledgers of the data directories of one test."""

    def __init__(self) -> None:
        self._ledgers: dict[Path, SharedLedger] = {}
        self._taken: list[Database] = []

    def engine(self, data: DataDir, seal: SecretBox | None) -> Engine:
        ledger = self._ledgers.get(data.path)
        engine = Engine(data, seal, ledger)
        if ledger is None:
            self._taken.append(_free.pop() if _free else _new_database())
            with engine.file.reading() as file:
                history = newest_revision(file)
            fleet = uuid4()
            stamp = create_fleet(self._taken[-1], fleet, "a", engine.file.last_number, history)
            ledger = self._ledgers[data.path] = SharedLedger(self._taken[-1], fleet, "a")
            engine.follow_ledger(ledger, stamp)
        return engine

    def close(self) -> None:
        for each in self._taken:
            with each.session() as session:
                session.transaction(_EMPTY, None)
            _free.append(each)


def _new_database() -> Database:
    return _databases.enter_context(closing(Database(_databases.enter_context(migrated_database()))))


_fleets: list[Fleets] = []


@contextmanager
def ledger_of_test(name: str) -> Iterator[None]:
    """Engines that are opened within the block have this one."""
    if name == "embedded":
        yield
        return
    with closing(Fleets()) as fleets, pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_ledger, "CHANGE", 60.0)  # a busy machine makes no worse a test
        _fleets.append(fleets)
        try:
            yield
        finally:
            _fleets.remove(fleets)


def opened_engine(data: DataDir, seal: SecretBox | None) -> Engine:
    """The engine of a data directory, with the ledger of this test."""
    return _fleets[-1].engine(data, seal) if _fleets else Engine(data, seal)


def opened_store(data: DataDir) -> FleetStore:
    """The store of a data directory; in a fleet that of an engine. Raises `StoreDamaged` as `open_store`."""
    require_store(data)
    return opened_engine(data, None) if _fleets else FleetStore(data)
