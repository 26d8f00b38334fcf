"""SQLite files: their format, and how often their commits are brought into the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.sqlite import CHECKPOINT_PAGES, FORMAT, FileTooNew, open_database, sync_each_commit, transaction

SCHEMA = "CREATE TABLE IF NOT EXISTS things (name TEXT);"


def test_a_new_file_has_the_format_and_a_newer_one_is_refused_and_not_touched(tmp_path: Path) -> None:
    file = tmp_path / "own" / "things.sqlite"
    database = open_database(file, SCHEMA)
    assert database.execute("PRAGMA user_version").fetchone() == (FORMAT,)
    database.execute(f"PRAGMA user_version = {FORMAT + 1}")
    database.close()
    before = file.read_bytes()
    with pytest.raises(FileTooNew, match=r"things\.sqlite: has format 2; this release reads format 1"):
        open_database(file, SCHEMA)
    assert file.read_bytes() == before


def test_synced_commits_bring_their_pages_into_the_file_together(tmp_path: Path) -> None:
    file = tmp_path / "own" / "things.sqlite"
    database = open_database(file, SCHEMA)
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
