"""The log index: access records in SQLite, one file for each UTC day on which they arrived.

A batch and its number are committed in one transaction, so a batch that is sent again is known and left out: every
record is stored exactly once. Numbers of a sender must follow one another; one that skips is refused, and the sender
sends the missing ones again.

A record lies in the file of the day on which it was committed, which is its own day or, when the indexer was away, a
later one. So a search from a time on looks into the files of that day and all later ones.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from actors.bus.messages import LogPage, QueryLogs
from actors.bus.records import ACCESS_FIELDS, Batch
from actors.log_lines import LEVELS, levels_from
from actors.sqlite import open_database

POSITION_FILES = 3
"""How many of the newest files are read for the positions of the senders."""
SEARCHED = ("target_url", "client_ip", "proxy_id", "method", "user", "reason")
_LEVEL, _TIMESTAMP = ACCESS_FIELDS.index("level"), ACCESS_FIELDS.index("timestamp")

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS records (number INTEGER PRIMARY KEY, {", ".join(ACCESS_FIELDS)});
CREATE INDEX IF NOT EXISTS records_by_time ON records (timestamp);
CREATE TABLE IF NOT EXISTS positions (
    source TEXT, instance INTEGER, number INTEGER NOT NULL, PRIMARY KEY (source, instance)
) WITHOUT ROWID;
"""
_INSERT = f"INSERT INTO records ({', '.join(ACCESS_FIELDS)}) VALUES ({', '.join('?' * len(ACCESS_FIELDS))})"  # noqa: S608 - our own column names
_UPSERT = "INSERT INTO positions VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET number = excluded.number"


class LogIndex:
    """Owner of the folder of day files. `clock` is wall time, which decides the day."""

    def __init__(self, folder: Path, level: str, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock
        self._database: sqlite3.Connection | None = None
        self._day = ""
        self.set_level(level)
        self._today()
        self._positions = self._read_positions()

    def set_level(self, level: str) -> None:
        """Records below this level are not kept from now on."""
        self._kept = levels_from(level)

    def commit(self, batch: Batch) -> int:
        """Store a batch if it is the next of its sender; the last number that is stored. Raises `sqlite3.Error`."""
        sender = (batch.source, batch.instance)
        position = max(self._positions.get(sender, 0), batch.first - 1)
        if batch.number != position + 1:
            return position
        rows = [row for row in batch.rows if row[_LEVEL] in self._kept and len(row) == len(ACCESS_FIELDS)]
        with _transaction(self._today()) as database:
            database.executemany(_INSERT, rows)
            database.execute(_UPSERT, (*sender, batch.number))
        self._positions[sender] = batch.number
        return batch.number

    def find(self, query: QueryLogs) -> LogPage:
        """The records that `query` asks for, newest first, and how many there are."""
        where, values = _condition(query)
        total = 0
        rows: list[dict[str, Any]] = []
        for database in self._files_from(query.start):
            (count,) = database.execute(f"SELECT count(*) FROM records WHERE {where}", values).fetchone()  # noqa: S608
            skip = max(0, query.offset - total)
            wanted = query.limit - len(rows)
            total += count
            if wanted > 0 and skip < count:
                rows += self._page(database, where, [*values, wanted, skip])
        return LogPage(tuple(rows), total)

    def close(self) -> None:
        """Close the file of today."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _page(self, database: sqlite3.Connection, where: str, values: list[Any]) -> list[dict[str, Any]]:
        order = "ORDER BY timestamp DESC, number DESC LIMIT ? OFFSET ?"
        found = database.execute(f"SELECT {', '.join(ACCESS_FIELDS)} FROM records WHERE {where} {order}", values)  # noqa: S608 - the condition is ours, values are bound
        return [dict(zip(ACCESS_FIELDS, row, strict=True)) for row in found]

    def _today(self) -> sqlite3.Connection:
        day = _day_of(self._clock())
        if self._database is None or day != self._day:
            fresh = _open(self._folder / f"{day}.sqlite")
            self.close()
            self._database, self._day = fresh, day
        return self._database

    def _files_from(self, start: float) -> Iterator[sqlite3.Connection]:
        first = _day_of(max(0.0, start))
        for file in self._files():
            if file.stem < first:
                return
            if file.stem == self._day:
                yield self._today()
                continue
            with _closing(_open(file)) as database:
                yield database

    def _files(self) -> list[Path]:
        """Day files, the newest first."""
        return sorted(self._folder.glob("????-??-??.sqlite"), reverse=True)

    def _read_positions(self) -> dict[tuple[str, int], int]:
        positions: dict[tuple[str, int], int] = {}
        for file in self._files()[:POSITION_FILES]:
            with _closing(_open(file)) as database:
                for source, instance, number in database.execute("SELECT source, instance, number FROM positions"):
                    positions[source, instance] = max(number, positions.get((source, instance), 0))
        return positions


def _open(file: Path) -> sqlite3.Connection:
    """A day file, with the columns that came later added to one that is older."""
    database = open_database(file, _SCHEMA)
    there = {column[1] for column in database.execute("PRAGMA table_info(records)")}
    for name in ACCESS_FIELDS:
        if name not in there:
            database.execute(f"ALTER TABLE records ADD COLUMN {name} DEFAULT ''")
    return database


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield database
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


@contextmanager
def _closing(database: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    try:
        yield database
    finally:
        database.close()


def _condition(query: QueryLogs) -> tuple[str, list[Any]]:
    """A WHERE clause and its values."""
    parts, values = ["timestamp >= ? AND timestamp <= ?"], [query.start, query.end]
    bound: list[Any] = list(values)
    exact = {"level": query.level, "client_ip": query.client_ip, "status_code": query.status_code}
    for column, value in exact.items():
        if value is not None:
            parts.append(f"{column} = ?")
            bound.append(value)
    if query.min_level is not None:
        at_least = LEVELS[LEVELS.index(query.min_level) :]
        parts.append(f"level IN ({', '.join('?' * len(at_least))})")
        bound += at_least
    if query.proxy_ids is not None:
        parts.append(f"proxy_id IN ({', '.join('?' * len(query.proxy_ids))})")
        bound += query.proxy_ids
    for word in (query.search or "").split():
        parts.append("(" + " OR ".join(f"{field} LIKE ? ESCAPE '\\'" for field in SEARCHED) + ")")
        bound += [f"%{_literal(word)}%"] * len(SEARCHED)
    return " AND ".join(parts), bound


def _literal(word: str) -> str:
    """A word for LIKE without its wildcards."""
    return word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _day_of(epoch_seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(epoch_seconds))
