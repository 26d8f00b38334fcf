"""The log index: access records on disk, one file for each UTC day on which they arrived.

A batch and its number are committed in one transaction, so a batch that is sent again is known and left out: every
record is stored exactly once. Numbers of a sender must follow one another; one that skips is refused, and the sender
sends the missing ones again.

A record lies in the file of the day on which it was committed, which is its own day or, when the indexer was away or
the clock was set, another one. Its number is greater than all before, in whatever file they lie.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from actors.bus.messages.records import LogPage, LogTail, QueryLogs
from actors.bus.records import Batch
from actors.logs.blocks import day_files, day_of
from actors.logs.dayfile import BESIDE, BLOCK_ROWS, DayFile, Sender
from actors.logs.record_schema import Row, valid_rows
from actors.logs.search import Searcher

log = logging.getLogger(__name__)

POSITION_FILES = 3
"""How many of the newest files are read for the positions of the senders."""

Stored = Callable[[Sequence[Row], str], None]
"""Called with the records that were stored and the name of their proxy."""


SENDERS_MAX = 50_000
"""Senders whose last batch is known, so that what they send again is not stored twice."""


class LogIndex:
    """Owner of the folder of day files. `clock` is wall time, which decides the day."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time, stored: Stored | None = None) -> None:
        self._folder = folder
        self._clock = clock
        self._stored = stored
        self._searcher = Searcher(folder)
        self._pack_at = BLOCK_ROWS
        self._refused = 0
        self._positions: dict[Sender, int] = {}
        self.last = 0
        """The number of the record that was stored last."""
        self._take_stock()
        self._file = _opened(self._path()) or DayFile(self._path())

    @property
    def path(self) -> Path:
        """The file that is written."""
        return self._file.path

    def commit(self, batch: Batch) -> int:
        """Store a batch if it is the next of its sender; the last number that is stored. Raises `sqlite3.Error`."""
        sender = (batch.source, batch.instance)
        position = max(self._positions.get(sender, 0), batch.first - 1)
        if batch.number != position + 1:
            return position
        rows = self._sound_rows(batch)
        first = self.last + 1
        self._today().store(sender, batch.number, first, rows)
        self._note_position(sender, batch.number)
        self.last += len(rows)
        if self._stored is not None and rows:
            self._stored(rows, batch.proxy_name)
        self._pack_when_due()
        return batch.number

    def shrink(self, size: int) -> int:
        """Delete the oldest blocks of the file that is written until it takes `size` bytes; how many records went."""
        dropped = 0
        while self._file.size() > size and (count := self._file.drop_oldest()):
            dropped += count
        return dropped

    def find(self, query: QueryLogs) -> LogPage:
        """The records that `query` asks for, newest first. Raises what `Searcher.find` does."""
        return self._searcher.find(query)

    def tail(self, query: QueryLogs, after: int) -> LogTail:
        """What was stored after number `after`."""
        return self._searcher.tail(query, after)

    def close(self) -> None:
        """Close the file of today."""
        self._searcher.close()
        self._file.close()

    def _sound_rows(self, batch: Batch) -> list[Row]:
        rows = valid_rows(batch.rows)
        if len(rows) < len(batch.rows):
            self._refused += len(batch.rows) - len(rows)
            log.error("dropped %d malformed access records so far; last sender %s", self._refused, batch.source)
        return rows

    def _pack_when_due(self) -> None:
        """What can't be packed now is found all the same, and packed with the next ones."""
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

    def _note_position(self, sender: Sender, number: int) -> None:
        """Every start of an actor is a sender of its own; those that were silent for the longest are forgotten."""
        self._positions.pop(sender, None)
        self._positions[sender] = number
        if len(self._positions) > SENDERS_MAX:
            del self._positions[next(iter(self._positions))]

    def _take_stock(self) -> None:
        """What is there. Without any record numbers begin at the time, since somebody may remember older ones."""
        for age, path in enumerate(day_files(self._folder)):
            file = _opened(path)
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
            fresh = _opened(path) or DayFile(path)
            self._packed()
            self._file.close()
            self._file = fresh
        return self._file


def _opened(path: Path) -> DayFile | None:
    """None: it is no database any more and was set aside under another name; records can't wait for its repair."""
    try:
        return DayFile(path)
    except sqlite3.OperationalError:
        raise  # a full disk and the like, which passes
    except sqlite3.DatabaseError as error:
        aside = path.with_name(f"{path.name}.damaged-{time.time_ns()}")
        for end in BESIDE:
            if (part := path.with_name(path.name + end)).exists():
                part.rename(f"{aside}{end}")
        log.error("moved damaged %s aside as %s: %s", path.name, aside.name, error)
        return None
