"""The format of a SQLite file: brought forward when it is opened, refused when it is newer."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from actors.sqlite import CHECKPOINT_PAGES, FileTooNew, Step, open_database, sync_each_commit, transaction

FIRST = "CREATE TABLE IF NOT EXISTS things (name TEXT);"
SECOND = "CREATE TABLE IF NOT EXISTS things (name TEXT, size INTEGER NOT NULL DEFAULT 0);"
THIRD = f"{SECOND} CREATE INDEX IF NOT EXISTS by_size ON things (size);"


def _measure(database: sqlite3.Connection) -> None:
    database.execute("ALTER TABLE things ADD COLUMN size INTEGER NOT NULL DEFAULT 0")
    database.execute("UPDATE things SET size = length(name)")


def _round(database: sqlite3.Connection) -> None:
    database.execute("UPDATE things SET size = size * 10")


STEPS: tuple[Step, ...] = (_measure, _round)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Of format 1, with one thing."""
    database = open_database(tmp_path / "own" / "things.sqlite", FIRST)
    database.execute("INSERT INTO things VALUES ('four')")
    database.close()
    return tmp_path / "own" / "things.sqlite"


def written(file: Path) -> tuple[int, list[tuple[object, ...]]]:
    with sqlite3.connect(file) as database:
        found = (
            database.execute("PRAGMA user_version").fetchone()[0],
            database.execute("SELECT * FROM things").fetchall(),
        )
    database.close()
    return found


def test_a_new_file_has_the_newest_format(tmp_path: Path) -> None:
    open_database(tmp_path / "own" / "new.sqlite", THIRD, steps=STEPS).close()
    assert written(tmp_path / "own" / "new.sqlite") == (3, [])


def test_an_older_file_goes_through_the_steps_it_lacks(file: Path) -> None:
    open_database(file, SECOND, steps=STEPS[:1]).close()
    assert written(file) == (2, [("four", 4)])
    open_database(file, THIRD, steps=STEPS).close()
    assert written(file) == (3, [("four", 40)])
    open_database(file, THIRD, steps=STEPS).close()
    assert written(file) == (3, [("four", 40)])


def test_a_file_of_before_there_was_a_format_counts_as_the_first(file: Path) -> None:
    with sqlite3.connect(file) as database:
        database.execute("PRAGMA user_version = 0")
    database.close()
    open_database(file, THIRD, steps=STEPS).close()
    assert written(file) == (3, [("four", 40)])


def test_a_file_that_was_made_and_never_given_a_table_is_new(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    for version, name in ((0, "empty.sqlite"), (1, "stamped.sqlite")):
        with sqlite3.connect(tmp_path / "own" / name) as database:
            database.execute(f"PRAGMA user_version = {version}")
        database.close()
        open_database(tmp_path / "own" / name, THIRD, steps=STEPS).close()
        assert written(tmp_path / "own" / name) == (3, [])


def test_a_step_that_fails_leaves_the_one_before(file: Path) -> None:
    def fail(database: sqlite3.Connection) -> None:
        database.execute("DELETE FROM things")
        raise sqlite3.OperationalError("disk I/O error")

    with pytest.raises(sqlite3.OperationalError, match="disk"):
        open_database(file, THIRD, steps=(_measure, fail))
    assert written(file) == (2, [("four", 4)])


def test_a_newer_file_is_refused_and_not_touched(file: Path) -> None:
    open_database(file, THIRD, steps=STEPS).close()
    before = file.read_bytes()
    with pytest.raises(FileTooNew, match=r"things\.sqlite: has format 3; this release knows up to 2"):
        open_database(file, SECOND, steps=STEPS[:1])
    assert file.read_bytes() == before


def test_synced_commits_bring_their_pages_into_the_file_together(tmp_path: Path) -> None:
    file = tmp_path / "own" / "things.sqlite"
    database = open_database(file, FIRST)
    sync_each_commit(database)
    assert database.execute("PRAGMA synchronous").fetchone() == (2,)
    before = file.stat().st_size
    page = [("x" * 3000,)]
    with transaction(database):
        database.executemany("INSERT INTO things VALUES (?)", page * (CHECKPOINT_PAGES // 2))
    assert file.stat().st_size == before, "they are in the -wal alone"
    with transaction(database):
        database.executemany("INSERT INTO things VALUES (?)", page * CHECKPOINT_PAGES)
    assert file.stat().st_size > before
    database.close()
