"""The schema of a fleet's database is brought forward whole, once, and by files that never change."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from actors.cluster import database as connections
from actors.cluster.database import Database
from actors.cluster.errors import DatabaseBusy, DatabaseError, DatabaseUnusable
from api.cluster import migration_runner as module
from api.cluster.following.heartbeat import Beat
from api.cluster.migration_runner import (
    Migration,
    SchemaRefused,
    SchemaUpkeep,
    functions,
    migrate,
    migrations,
    rehearse,
)
from config import VERSION
from tests.kit.postgresql import database, needs_postgresql, shared_server

pytestmark = needs_postgresql
NEXT = Migration(9_999, "next", "CREATE TABLE proxyfleet.next (percent text DEFAULT '100%'); SELECT 1")


@pytest.fixture
def dsn() -> Iterator[str]:
    with database() as found:
        yield found


@pytest.fixture
def ours(dsn: str) -> Iterator[Database]:
    with closing(Database(dsn)) as found:
        yield found


def tables(database: Database) -> set[str]:
    with database.session() as session:
        rows = session.transaction("SELECT tablename FROM pg_tables WHERE schemaname = 'proxyfleet'")
    return {name for (name,) in rows}


RELEASED = {
    "0001_ledger": "5d32887d92f467c3",
    "0002_presence": "8d8ee08248932512",
    "0003_loose": "da8f09536b94840a",
    "0004_duties": "98f544b07248896a",
    "0005_usage": "4de4c84322ef4538",
    "0006_nodes": "874d274966abcc57",
    "0007_limits": "b8771752e1194133",
    "0008_edges": "52473ab9e97a9af0",
    "0009_rekeying": "b85e5965b48668f9",
    "0010_moves": "1d24f8c15bc7d007",
    "0011_levels": "a48f0c0fe2a1f598",
    "0012_usage_at_once": "d14f49969c90b56a",
    "0013_figures_of_edges": "9c4a37b2c1b8c11e",
    "0014_news_of_usage": "9f2aa48f7c83740f",
    "0015_what_edges_may_fill": "a897d72b0dcc8bef",
    "0016_reads_by_place": "9f1e4cc725823a1e",
    "0017_foreign_revisions": "02a64ffbb16eeb75",
    "0018_bounds_of_roles": "77c64b684b100abb",
    "0019_audit_of_all": "7577831b2b360d25",
    "0020_leases_by_use": "633be22400c677d7",
    "0021_news_of_heartbeats": "037af48d1bbd33d5",
    "0022_stolen_edges": "bd526eb284036562",
    "0023_large_commits": "a3bfaf27809eccf8",
}
"""Databases have run these: what is to be different is a file of its own."""
FUNCTIONS = (25, "012ca02109bb59df")
"""The last number, and the digest of the functions that came with it."""


def test_what_databases_have_run_is_never_altered() -> None:
    assert {f"{each.number:04}_{each.name}": each.digest[:16] for each in migrations()[: len(RELEASED)]} == RELEASED


def test_functions_that_are_altered_come_with_another_number() -> None:
    """Else databases that have all numbers would not get them."""
    digest = hashlib.sha256(functions().encode()).hexdigest()[:16]
    assert (migrations()[-1].number, digest) == FUNCTIONS
    statements = [line for line in functions().splitlines() if line.startswith(("CREATE", "ALTER", "DROP"))]
    assert [each for each in statements if not each.startswith("CREATE OR REPLACE FUNCTION proxyfleet.")] == []


def test_functions_are_those_of_the_program_that_brings_the_schema_forward(ours: Database) -> None:
    def do(statement: str) -> list[Any]:
        with ours.session() as session:
            return session.transaction(statement)

    def source() -> Any:
        return do("SELECT prosrc FROM pg_proc WHERE oid = to_regproc('proxyfleet.move_audit')")

    migrate(ours, "a", migrations()[:-1])
    assert rehearse(ours).missing == migrations()[-1:]
    assert source() == []
    migrate(ours, "a")
    ((renewed,),) = source()
    assert "staged_audit" in renewed
    parameters = "of_node text, of_commit bigint"
    do(f"CREATE OR REPLACE FUNCTION proxyfleet.move_audit({parameters}) RETURNS void LANGUAGE sql AS 'SELECT 1'")
    migrate(ours, "a", [*migrations(), NEXT])
    assert source() == [(renewed,)]


def test_each_file_has_a_number_of_its_own() -> None:
    numbers = [each.number for each in migrations()]
    assert numbers == sorted({*numbers})
    assert migrations()[0].name == "ledger"


def test_what_is_missing_runs_once_with_its_digest_and_whose_it_was(ours: Database) -> None:
    assert [*rehearse(ours).missing] == [*migrations()] == migrate(ours, "a")
    assert (rehearse(ours).missing, migrate(ours, "b")) == ((), [])
    assert migrate(ours, "b", [*migrations(), NEXT]) == [NEXT]
    with ours.session() as session:
        rows = session.transaction("SELECT number, name, sha256, version, node FROM proxyfleet.migrations ORDER BY 1")
    assert rows == [
        *((each.number, each.name, each.digest, VERSION, "a") for each in migrations()),
        (9_999, "next", NEXT.digest, VERSION, "b"),
    ]
    assert {"fleet", "commits", "documents", "next"} < tables(ours)


def test_one_that_fails_takes_all_of_them_back(ours: Database) -> None:
    wrong = replace(NEXT, sql=f"{NEXT.sql}; SELECT 1 / 0")
    with pytest.raises(DatabaseError, match="division by zero"):
        migrate(ours, "a", [*migrations(), wrong])
    assert tables(ours) == set()
    assert rehearse(ours).missing == migrations()


def test_nodes_that_migrate_at_once_do_it_once(dsn: str) -> None:
    done: list[list[Migration]] = []

    def run() -> None:
        with closing(Database(dsn)) as ours:
            done.append(migrate(ours, "a"))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(map(len, done)) == [0, 0, 0, len(migrations())]


def test_a_schema_of_another_release_an_altered_file_and_strange_tables_are_refused(ours: Database) -> None:
    migrate(ours, "a", [*migrations(), NEXT])
    with pytest.raises(SchemaRefused, match=f"brought forward to 9999_next by release {VERSION}, not this one"):
        migrate(ours, "a")
    with pytest.raises(SchemaRefused, match=r"the migration 9999_next of release .* is another"):
        migrate(ours, "a", [*migrations(), replace(NEXT, sql="SELECT 1")])
    with ours.session() as session:
        session.transaction("DROP TABLE proxyfleet.migrations")
    with pytest.raises(SchemaRefused, match="has a schema proxyfleet that is not Proxyfleet's"):
        migrate(ours, "a")


def test_without_the_right_to_make_a_schema_nothing_is_made(dsn: str) -> None:
    server = shared_server()
    server.execute("CREATE ROLE narrow LOGIN PASSWORD 'sesame'")
    try:
        with closing(Database(dsn.replace("user=postgres", "user=narrow"))) as ours:
            with pytest.raises(DatabaseUnusable, match="permission denied for database"):
                migrate(ours, "a")
            assert ours.is_available
    finally:
        server.execute("DROP ROLE narrow")


def test_a_lock_that_another_has_ends_the_wait(ours: Database, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOCK_TIMEOUT", "100ms")
    with closing(Database(dsn)) as other, other.session() as session:
        session.begin(f"SELECT pg_advisory_xact_lock({module.LOCK})", within=connections.CHANGE)
        with pytest.raises(DatabaseBusy):
            migrate(ours, "a")
    assert migrate(ours, "a") == [*migrations()]


def test_a_schema_that_lacks_nothing_is_checked_once_an_hour_also_when_the_check_fails(
    ours: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = list[str]()

    def refuse(_database: Database, node: str, *_: object, **_by_itself: object) -> list[Migration]:
        tried.append(node)
        raise DatabaseUnusable("permission denied")

    monkeypatch.setattr(module, "migrate", refuse)
    reasons = list[str]()
    upkeep = SchemaUpkeep(ours, "a", reasons.append)

    def beat(there: int) -> None:
        upkeep.on_heartbeat(Beat(1, True, 1.0, {"schema": there}))
        for each in threading.enumerate():
            if each.name == "schema":
                each.join()

    for _ in range(3):
        beat(upkeep.last)
    assert (tried, reasons) == (["a"], [])
    for _ in range(2):
        beat(upkeep.last - 1)
    assert (tried, len(reasons)) == (["a"] * 3, 2)
