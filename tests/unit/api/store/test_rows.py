"""TinyDB on rows: its own tests of tables and queries hold, and nothing is read or written that needn't be."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tinydb import Query

from api.store.rows import SCHEMA, RowDatabase, RowStorage, open_rows
from config.files.paths import DataDir
from tests.kit.folders import ROOT
from tests.kit.ledgers import opened_store

TINYDB = ROOT / ".cache" / "tinydb"
"""Where `.ci/run` puts TinyDB's sources."""
PLUGIN = ROOT / "tests" / "unit" / "api" / "store" / "tinydb_on_rows.py"
OF_JSON_FILES = (
    "test_custom_mapping_type_with_json",
    "test_empty_write",
    "test_unique_ids",
    "test_lastid_after_open",
    "test_doc_ids_json",
    "test_insert_string",
    "test_insert_invalid_dict",
    "test_gc",
    "test_repr",
    "test_delete",
    "test_insert_on_existing_db",
    "test_access_storage",
    "test_storage_access",
    "test_table_repr",
)
"""Tests of TinyDB that make its own storages."""
NO_EMPTY_TABLES = ("test_persist_table",)
"""A table is there while it has a document."""


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as made:
        made.executescript(SCHEMA)
        yield made


@pytest.fixture
def database(connection: sqlite3.Connection) -> RowDatabase:
    made = RowDatabase(storage=lambda: RowStorage(connection))
    for name in ("a", "b", "c"):
        made.table("proxies").put(name, {"name": name, "port": 1})
    return made


def statements(connection: sqlite3.Connection) -> list[str]:
    """Those that read or write documents from now on."""
    found: list[str] = []
    connection.set_trace_callback(lambda each: found.append(each) if "documents" in each else None)
    return found


@pytest.mark.embedded
@pytest.mark.skipif(not TINYDB.exists(), reason="TinyDB's sources are not there (.ci/run fetches them)")
def test_tinydbs_own_tests_hold() -> None:
    left_out = " and ".join(f"not {name}" for name in (*OF_JSON_FILES, *NO_EMPTY_TABLES))
    files = [f"tests/test_{name}.py" for name in ("tables", "tinydb", "queries", "operations")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest", "-p", PLUGIN.stem]
    done = subprocess.run(
        [*command, "-k", left_out, *files],
        cwd=TINYDB,
        env={"PYTHONPATH": f"{ROOT}:{PLUGIN.parent}", "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert int(done.stdout.rpartition(" passed")[0].rpartition("\n")[2].split()[-1]) > 90, done.stdout


def test_a_document_is_read_alone_and_an_update_writes_what_it_alters(
    connection: sqlite3.Connection, database: RowDatabase
) -> None:
    table = database.table("proxies")
    seen = statements(connection)
    assert table.get(doc_id="b") == {"name": "b", "port": 1}  # type: ignore[call-overload]  # ids are texts here
    assert len(seen) == 1
    seen.clear()
    table.update({"port": 2}, Query().name == "b")
    assert [each for each in seen if "INSERT" in each] != []
    assert sum("INSERT" in each for each in seen) == 1
    seen.clear()
    table.update({"port": 1}, Query().name == "a")
    assert not any("INSERT" in each for each in seen), "nothing is different"


def test_each_change_has_a_number_and_deletions_are_known(
    connection: sqlite3.Connection, database: RowDatabase
) -> None:
    database.table("proxies").remove(Query().name == "b")
    database.table("users").put("u", {"name": "u"})
    assert connection.execute("SELECT revision FROM steps").fetchone() == (5,)
    assert connection.execute("SELECT revision, collection, id FROM deleted").fetchall() == [(4, "proxies", "b")]
    rows = connection.execute("SELECT collection, id, revision FROM documents ORDER BY place").fetchall()
    assert rows == [("proxies", "a", 1), ("proxies", "c", 3), ("users", "u", 5)]


def test_a_person_can_look_at_the_store_with_tinydb_while_it_is_in_use(tmp_path: Path) -> None:
    with closing(opened_store(DataDir(tmp_path))) as store:
        store.put("proxies", {"id": "a", "status": "stopped"})
        store.put("proxies", {"id": "b", "status": "active"})
        with open_rows(tmp_path / "fleet.sqlite") as looked_at:
            found = looked_at.table("proxies").search(Query().status == "stopped")
            assert [each["id"] for each in found] == ["a"]
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                looked_at.table("proxies").remove(Query().status == "stopped")
