"""One day of the log: an SQLite file that stores batches of records and packs them into blocks.

A batch is stored as it arrived, as one row of `batches`. When there are enough of them they are packed: their
records become compressed columns (`actors.logs.columns`) with a filter of what may be found in them
(`actors.logs.columns`), the span of their times, and their counts by proxy, status and level. One transaction puts
the block in and takes the batches out, so a reader finds each record once.

Records are numbered in the order in which they were stored, over all files. `positions` has the number of the last
stored batch of each sender; it changes in the transaction that stores the batch.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgpack

from actors.logs.columns import SEGMENTS, RecordColumns, build_filter
from actors.logs.record_schema import SEARCHED, Row
from actors.sqlite import open_database, transaction
from config.text.access_fields import ACCESS_FIELDS

BLOCK_ROWS = 1024
"""Records of a block: more make smaller files, fewer make what is read for one record smaller."""
VALUES_MAX = 150
"""Rows that one statement inserts: with several threads each statement may have to wait for the interpreter."""
DATABASE_SUFFIXES = ("", "-wal", "-shm")
"""Of the database, and of the files that SQLite makes beside it."""
CHECKPOINT_PAGES = 4000
COUNTED = ("proxy_id", "status_code", "level")

SCHEMA = f"""
CREATE TABLE IF NOT EXISTS batches (first INTEGER PRIMARY KEY, rows INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS blocks (
    first INTEGER PRIMARY KEY, rows INTEGER NOT NULL, oldest INTEGER NOT NULL, newest INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS blocks_by_time ON blocks (newest, oldest);
CREATE TABLE IF NOT EXISTS contents (
    first INTEGER PRIMARY KEY, filter BLOB NOT NULL, {", ".join(f"{name} BLOB NOT NULL" for name in SEGMENTS)}
);
CREATE TABLE IF NOT EXISTS tallies (
    {", ".join(COUNTED)}, block INTEGER, rows INTEGER NOT NULL, PRIMARY KEY ({", ".join(COUNTED)}, block)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS tallies_by_block ON tallies (block);
CREATE TABLE IF NOT EXISTS positions (
    source TEXT, instance INTEGER, number INTEGER NOT NULL, PRIMARY KEY (source, instance)
) WITHOUT ROWID;
"""
_UPSERT = "INSERT INTO positions VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET number = excluded.number"
_count_key_of = itemgetter(*map(ACCESS_FIELDS.index, COUNTED))

Sender = tuple[str, int]
"""Source and instance."""


class DayFile:
    """A day file that is written. All methods raise `sqlite3.Error`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database = open_database(path, SCHEMA)
        self._database.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
        self._fresh = list(fresh_batches(self._database))

    @property
    def fresh_rows(self) -> int:
        """Records that are in no block yet."""
        return sum(len(rows) for _first, rows in self._fresh)

    @property
    def last(self) -> int:
        """The number of the last record; 0 when there is none."""
        return last_number(self._database)

    def positions(self) -> dict[Sender, int]:
        """The number of the last stored batch of each sender."""
        found = self._database.execute("SELECT source, instance, number FROM positions")
        return {(source, instance): number for source, instance, number in found}

    def store(self, sender: Sender, number: int, first: int, rows: list[Row]) -> None:
        """Store batch `number` of `sender`; its records, which may be none, get the numbers from `first` on."""
        with transaction(self._database) as database:
            if rows:
                database.execute("INSERT INTO batches VALUES (?, ?, ?)", (first, len(rows), msgpack.packb(rows)))
            database.execute(_UPSERT, (*sender, number))
        if rows:
            self._fresh.append((first, rows))

    def pack(self) -> None:
        """Put all records that are in no block into blocks."""
        try:
            for first, rows in runs(self._fresh):
                for start in range(0, len(rows), BLOCK_ROWS):
                    block = rows[start : start + BLOCK_ROWS]
                    self._put_block(first + start, block)
        finally:
            self._fresh = list(fresh_batches(self._database))  # none, or those that a full disk left

    def size(self) -> int:
        """Bytes that it takes; free pages, which are used again, are not counted."""
        (pages,), (free,), (size,) = (
            self._database.execute(f"PRAGMA {name}").fetchone()
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def drop_oldest(self) -> int:
        """Delete the oldest block; the number of its records, 0 when there is none."""
        found = self._database.execute("SELECT first, rows FROM blocks ORDER BY first LIMIT 1").fetchone()
        if found is None:
            return 0
        with transaction(self._database) as database:
            for table, key in (("blocks", "first"), ("contents", "first"), ("tallies", "block")):
                database.execute(f"DELETE FROM {table} WHERE {key} = ?", (found[0],))  # noqa: S608 - our own names
        return int(found[1])

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _put_block(self, first: int, rows: list[Row]) -> None:
        """Move records from the batches to a block, in one transaction."""
        columns = RecordColumns.of_rows(rows)
        times = columns.times()
        segments = columns.segments()
        content = (first, build_filter(columns.searched(SEARCHED)), *(segments[name] for name in SEGMENTS))
        with transaction(self._database) as database:
            database.execute("INSERT INTO blocks VALUES (?, ?, ?, ?)", (first, len(rows), min(times), max(times)))
            database.execute("INSERT INTO contents VALUES (?, ?, ?, ?, ?)", content)
            _insert_counts(database, _counts(first, rows))
            _remove_from_batches(database, first, first + len(rows))


def fresh_batches(database: sqlite3.Connection) -> Iterator[tuple[int, list[Row]]]:
    """Batches that are in no block yet, in order: the number of the first record, and the records."""
    for first, body in database.execute("SELECT first, body FROM batches ORDER BY first"):
        yield first, msgpack.unpackb(body)


def last_number(database: sqlite3.Connection) -> int:
    """The number of the last record of a file; 0 when there is none."""
    last = 0
    for table in ("batches", "blocks"):
        found = database.execute(f"SELECT first + rows - 1 FROM {table} ORDER BY first DESC LIMIT 1").fetchone()  # noqa: S608
        last = max(last, found[0] if found else 0)
    return last


def runs(batches: Sequence[tuple[int, list[Row]]]) -> Iterator[tuple[int, list[Row]]]:
    """Batches whose numbers follow one another, joined."""
    start = 0
    for at in range(1, len(batches) + 1):
        if at == len(batches) or batches[at][0] != batches[at - 1][0] + len(batches[at - 1][1]):
            run = batches[start:at]
            yield run[0][0], list(chain.from_iterable(rows for _first, rows in run))
            start = at


def _remove_from_batches(database: sqlite3.Connection, start: int, end: int) -> None:
    """Remove the records from `start` to before `end`; the rest of the last batch stays."""
    cut = "SELECT first, rows, body FROM batches WHERE first < ? AND first + rows > ?"
    for first, count, body in database.execute(cut, (end, end)).fetchall():
        rest = msgpack.packb(msgpack.unpackb(body)[end - first :])
        database.execute("INSERT INTO batches VALUES (?, ?, ?)", (end, first + count - end, rest))
    database.execute("DELETE FROM batches WHERE first >= ? AND first < ?", (start, end))


def _counts(block: int, rows: list[Row]) -> list[tuple[Any, ...]]:
    """How many records there are by proxy, status and level; statuses are texts, as in the columns."""
    counts: Counter[tuple[Any, ...]] = Counter()
    for (proxy_id, status_code, level), count in Counter(map(_count_key_of, rows)).items():
        counts[proxy_id, str(int(status_code)), level] += count
    return [(*key, block, count) for key, count in counts.items()]


def _insert_counts(database: sqlite3.Connection, counts: list[tuple[Any, ...]]) -> None:
    for start in range(0, len(counts), VALUES_MAX):
        part = counts[start : start + VALUES_MAX]
        values = ", ".join(["(?, ?, ?, ?, ?)"] * len(part))
        database.execute(f"INSERT INTO tallies VALUES {values}", list(chain.from_iterable(part)))  # noqa: S608 - question marks
