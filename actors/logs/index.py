"""The log index: access records on disk, one file for each UTC day on which they arrived.

A batch and its number are committed in one transaction, so a batch that is sent again is recognized and left out: every
record is stored exactly once. Numbers of a sender must follow one another; a batch that skips one is rejected, and the
sender sends the missing ones again.

A record is in the file of the day on which it was committed, which is its own day or, when the indexer was away or
the clock was set, another one. Its number is greater than all before, in any file.

How long records are kept: whole days are deleted, the oldest first, when they are too old or take too much room. The
file that is written is never deleted. When it alone takes too much, its oldest blocks go; their room in the file is
used again.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from actors.bounded import keep
from actors.bus.records import RecordBatch
from actors.logs.blocks import day_files, day_of
from actors.logs.dayfile import BLOCK_ROWS, DATABASE_SUFFIXES, DayFile, Sender
from actors.logs.record_schema import Row, valid_rows

log = logging.getLogger(__name__)

POSITION_FILES = 3
"""How many of the newest files are read for the positions of the senders."""

Stored = Callable[[Sequence[Row], str], None]
"""Called with the records that were stored and the name of their proxy."""


SENDERS_MAX = 50_000
"""Senders whose last batch is remembered, so that what they send again is not stored twice. Every start of an actor is
a sender of its own."""


class LogIndex:
    """Owner of the folder of day files. `clock` is wall time, which decides the day."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time, stored: Stored | None = None) -> None:
        self._folder = folder
        self._clock = clock
        self._stored = stored
        self._pack_at = BLOCK_ROWS
        self._malformed = 0
        self._positions: dict[Sender, int] = {}
        self.last = 0
        """The number of the record that was stored last."""
        self._read_positions()
        self._file = _open_day(self._path()) or DayFile(self._path())

    @property
    def path(self) -> Path:
        """The file that is written."""
        return self._file.path

    def commit(self, batch: RecordBatch) -> int:
        """Store a batch if it is the next of its sender; returns the last stored number. Raises `sqlite3.Error`."""
        sender = (batch.source, batch.instance)
        position = max(self._positions.get(sender, 0), batch.first - 1)
        if batch.number != position + 1:
            return position
        rows = self._valid_rows(batch)
        first = self.last + 1
        self._today().store(sender, batch.number, first, rows)
        keep(self._positions, sender, batch.number, SENDERS_MAX)
        self.last += len(rows)
        if self._stored is not None and rows:
            self._stored(rows, batch.proxy_name)
        self._pack_when_due()
        return batch.number

    def shrink(self, size: int) -> int:
        """Delete the oldest blocks of the written file until it takes `size` bytes; returns the number of records."""
        dropped = 0
        while self._file.size() > size and (count := self._file.drop_oldest()):
            dropped += count
        return dropped

    def close(self) -> None:
        """Close the file of today."""
        self._file.close()

    def _valid_rows(self, batch: RecordBatch) -> list[Row]:
        rows = valid_rows(batch.rows)
        if len(rows) < len(batch.rows):
            self._malformed += len(batch.rows) - len(rows)
            log.error("dropped %d malformed access records so far; last sender %s", self._malformed, batch.source)
        return rows

    def _pack_when_due(self) -> None:
        """Records that can't be packed now are found all the same, and packed with the next ones."""
        if self._file.fresh_rows < self._pack_at:
            return
        self._pack_at = BLOCK_ROWS + (0 if self._packed() else self._file.fresh_rows)

    def _packed(self) -> bool:
        try:
            self._file.pack()
        except sqlite3.Error as error:
            log.error("cannot pack access records: %s", error)
            return False
        return True

    def _read_positions(self) -> None:
        """From the files. Without records, numbers begin at the time, since clients may have older cursors."""
        for age, path in enumerate(day_files(self._folder)):
            file = _open_day(path)
            if file is None:
                continue
            self.last = max(self.last, file.last)
            for sender, number in file.positions().items() if age < POSITION_FILES else ():
                self._positions[sender] = max(number, self._positions.get(sender, 0))
            file.close()
        if not self.last:
            self.last = int(self._clock() * 1_000_000)

    def _path(self) -> Path:
        return self._folder / f"{day_of(self._clock())}.sqlite"

    def _today(self) -> DayFile:
        path = self._path()
        if path != self._file.path:
            fresh = _open_day(path) or DayFile(path)
            self._packed()
            self._file.close()
            self._file = fresh
        return self._file


def _open_day(path: Path) -> DayFile | None:
    """None: the file is damaged and was moved aside, since records can't wait for its repair."""
    try:
        return DayFile(path)
    except sqlite3.OperationalError:
        raise  # a full disk and the like, which passes
    except sqlite3.DatabaseError as error:
        aside = path.with_name(f"{path.name}.damaged-{time.time_ns()}")
        for end in DATABASE_SUFFIXES:
            if (part := path.with_name(path.name + end)).exists():
                part.rename(f"{aside}{end}")
        log.error("moved damaged %s aside as %s: %s", path.name, aside.name, error)
        return None


DAY = 86_400.0
PERIOD = 60.0
"""Seconds between two checks."""


def retain(index: LogIndex, days: int, size: int, clock: Callable[[], float] = time.time) -> None:
    """Keep the records of `days` days before today, and at most `size` bytes of them; 0: any number.

    Raises `OSError` and `sqlite3.Error`.
    """
    first = day_of(max(0.0, clock() - days * DAY))
    for path in _deletable(index):
        if path.name[:10] < first:
            _delete(path, f"older than {days} days")
    if size > 0:
        _fit(index, size)


def _fit(index: LogIndex, size: int) -> None:
    taken = sum(_size(path) for path in (*_deletable(index), index.path))
    for path in _deletable(index):
        if taken <= size:
            return
        taken -= _size(path)
        _delete(path, f"more than {size} bytes")
    dropped = index.shrink(size)
    if dropped:
        log.warning("deleted the %d oldest access records of today: more than %d bytes", dropped, size)


def _deletable(index: LogIndex) -> list[Path]:
    """The oldest first."""
    folder = index.path.parent
    found = [*folder.glob("????-??-??.sqlite"), *folder.glob("????-??-??.jsonl"), *folder.glob("????-??-??.log")]
    today = index.path.stem
    return sorted(path for path in found if path.stem != today)


def _size(path: Path) -> int:
    """With what SQLite has not yet written into it."""
    return _length(path) + _length(path.with_name(f"{path.name}-wal"))


def _length(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _delete(path: Path, why: str) -> None:
    for end in DATABASE_SUFFIXES:
        path.with_name(path.name + end).unlink(missing_ok=True)
    log.info("deleted the access records in %s: %s", path.name, why)
