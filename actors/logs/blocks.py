"""The day files as searches read them: blocks on disk and fresh batches as blocks of one kind, in one snapshot.

A snapshot is a read transaction in every file, so it sees each record once, whether it was packed meanwhile or not, and
no writer waits for it. Files are opened the newest first: a record that is stored while they are opened has a greater
number than the last one of the snapshot.
"""

from __future__ import annotations

import calendar
import logging
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from actors.logs.columns import RecordColumns, conjunction, may_contain
from actors.logs.dayfile import BLOCK_ROWS, COUNTED, fresh_batches, runs
from actors.logs.query_filter import CompiledQuery, where
from actors.logs.record_schema import Row

log = logging.getLogger(__name__)

FILES_MAX = 100
"""Files that one search opens. If there are more, it goes on in the older ones by its cursor."""
SET_BACK_DAYS = 2
"""Days that a record may be newer than its file: as far as a clock may be set back without hiding anything."""
LATE_DAYS = 7
"""Days that a record may be older than its file and be found in an old range where there are too many files for all."""
_DAY = 86_400.0

FAR = 253_402_300_000.0
"""The last moment of the year 9999, nearly."""

Key = tuple[int, int]
"""When and which: the time of a record in microseconds, and its number. Pages are in this order, downwards."""


class Block:
    """Some records whose numbers follow one another: a block on disk, or some that are in none yet (`fresh`)."""

    def __init__(self, database: sqlite3.Connection, first: int, count: int, oldest: int, newest: int) -> None:
        self.first, self.count, self.oldest, self.newest = first, count, oldest, newest
        self.fresh = False
        self._database = database
        self._columns: RecordColumns | None = None
        self._mask: bytes | None = None
        self.evaluated = False
        """`mask` was called and is cached."""

    @classmethod
    def of_rows(cls, database: sqlite3.Connection, first: int, rows: list[Row]) -> Block:
        """Of records that are in no block on disk."""
        columns = RecordColumns.of_rows(rows)
        times = columns.times()
        made = cls(database, first, len(rows), min(times), max(times))
        made.fresh, made._columns = True, columns
        return made

    @property
    def last(self) -> int:
        """The number of its last record."""
        return self.first + self.count - 1

    @property
    def columns(self) -> RecordColumns:
        """Its records; see `release`."""
        if self._columns is None:
            self._columns = RecordColumns(self.count, self._load)
        return self._columns

    def release(self) -> None:
        """Drop the columns but keep the mask; the columns of thousands of blocks would not fit into memory."""
        if not self.fresh:
            self._columns = None

    def mask(self, query: CompiledQuery, ngrams: list[frozenset[int]]) -> bytes | None:
        """Which records match, whatever their times; None: none. The query is always the same."""
        if not self.evaluated:
            self.evaluated = True
            if self.fresh or not any(ngrams) or may_contain(self._load("filter"), ngrams):
                self._mask = query.mask(self.columns)
        return self._mask

    def mask_in_time(self, query: CompiledQuery, ngrams: list[frozenset[int]]) -> bytes | None:
        """Which records match and are of the times of the query; None: none."""
        mask = self.mask(query, ngrams)
        if mask is None:
            return None
        masks = [mask]
        if self.oldest < query.start:
            masks.append(where(self.columns.times(), query.start.__le__))
        if self.newest > query.end:
            masks.append(where(self.columns.times(), query.end.__ge__))
        return conjunction(masks)

    def _load(self, segment: str) -> bytes:
        found = self._database.execute(f"SELECT {segment} FROM contents WHERE first = ?", (self.first,)).fetchone()  # noqa: S608 - our own names
        return bytes(found[0])


@dataclass(slots=True)
class OpenFile:
    """A day file within a snapshot."""

    path: Path
    database: sqlite3.Connection
    _fresh: list[Block] | None = field(default=None)

    def fresh(self) -> list[Block]:
        """The records that are in no block on disk."""
        if self._fresh is None:
            self._fresh = [
                Block.of_rows(self.database, first + start, rows[start : start + BLOCK_ROWS])
                for first, rows in runs(list(fresh_batches(self.database)))
                for start in range(0, len(rows), BLOCK_ROWS)
            ]
        return self._fresh

    def between(self, start: int, end: int) -> list[Block]:
        """Blocks that may have records of these times."""
        sql = "SELECT first, rows, oldest, newest FROM blocks WHERE newest >= ? AND oldest <= ?"
        blocks = [Block(self.database, *row) for row in self.database.execute(sql, (start, end))]
        return blocks + [block for block in self.fresh() if block.newest >= start and block.oldest <= end]

    def after(self, number: int) -> list[Block]:
        """Blocks that have records of greater numbers."""
        sql = "SELECT first, rows, oldest, newest FROM blocks WHERE first + rows - 1 > ? AND first > ? ORDER BY first"
        blocks = [Block(self.database, *row) for row in self.database.execute(sql, (number, number - BLOCK_ROWS))]
        return blocks + [block for block in self.fresh() if block.last > number]

    def counts(self, wanted: dict[str, frozenset[str]]) -> dict[int, int]:
        """How many records with these values each block has; blocks without any are left out."""
        tests = [f"{name} IN ({', '.join('?' * len(wanted[name]))})" for name in COUNTED if name in wanted]
        values = [value for name in COUNTED if name in wanted for value in wanted[name]]
        sql = f"SELECT block, sum(rows) FROM tallies WHERE {' AND '.join(tests)} GROUP BY block"  # noqa: S608 - our own names
        return dict(self.database.execute(sql, values).fetchall())


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """Files, the newest first. `floor`: files were left out, with records of this time (microseconds) and before.

    `complete`: no file is left out, and none was unreadable.
    """

    files: list[OpenFile]
    floor: int | None
    complete: bool


class LogReader:
    """The day files, for reading. Belongs to one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[Path, sqlite3.Connection] = {}

    @contextmanager
    def snapshot(self, oldest: float = 0.0, newest: float = FAR) -> Iterator[LogSnapshot]:
        """The files with records from `oldest` to `newest` (Unix seconds) at one moment. Raises `sqlite3.Error`."""
        paths, left_out = self._select(oldest, newest)
        files: list[OpenFile] = []
        try:
            for path in paths:
                database = self._begin(path)
                if database is not None:
                    files.append(OpenFile(path, database))
            complete = left_out is None and len(files) == len(paths)
            yield LogSnapshot(files, None if left_out is None else _end_of(left_out), complete)
        finally:
            for file in files:
                if file.database.in_transaction:
                    file.database.execute("COMMIT")

    def _select(self, oldest: float, newest: float) -> tuple[list[Path], Path | None]:
        """The files to read, and the first one that is left out if there are too many."""
        every = day_files(self._folder)
        first = day_of(max(0.0, oldest - SET_BACK_DAYS * _DAY))
        paths = [path for path in every if path.stem >= first]
        if len(paths) > FILES_MAX:
            last = day_of(min(FAR, newest + LATE_DAYS * _DAY))
            paths = [path for path in paths if path.stem <= last]
        self._close_others(every if len(every) <= FILES_MAX else paths[:FILES_MAX])
        return paths[:FILES_MAX], paths[FILES_MAX] if len(paths) > FILES_MAX else None

    def close(self) -> None:
        """Close all files."""
        self._close_others([])

    def _begin(self, path: Path) -> sqlite3.Connection | None:
        """A connection in a read transaction; None: the file is gone or unreadable, and the others are read."""
        try:
            database = self._open.get(path) or self._connect(path)
            database.execute("BEGIN")
            database.execute("SELECT first FROM blocks LIMIT 1").fetchone()
        except sqlite3.Error as error:
            if path.exists():
                log.error("cannot read %s: %s", path.name, error)
            broken = self._open.pop(path, None)
            if broken is not None:
                broken.close()
            return None
        return database

    def _connect(self, path: Path) -> sqlite3.Connection:
        database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True, isolation_level=None)
        database.execute("PRAGMA query_only=1")
        self._open[path] = database
        return database

    def _close_others(self, paths: list[Path]) -> None:
        for path in set(self._open) - set(paths):
            self._open.pop(path).close()


def day_of(epoch_seconds: float) -> str:
    """`2026-01-31`, in UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime(epoch_seconds))


def _end_of(path: Path) -> int:
    """When the day of a file ends, in microseconds."""
    return (calendar.timegm(time.strptime(path.stem, "%Y-%m-%d")) + 86_400) * 1_000_000


def day_files(folder: Path) -> list[Path]:
    """The newest first."""
    return sorted(folder.glob("????-??-??.sqlite"), reverse=True)
