"""One process among those of its proxy: its own column and files, and the others', mapped when they are read first.

A file that can't be made or mapped costs the process nothing but what it shares: it counts for itself then, which
`on_failure` is called with.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from actors.mapped_file import FileKind, Words, make, open_existing, private
from actors.workers import columns, keys, rates, sessions, usage
from actors.workers.columns import ALIVE, ENDED, FILES, OPEN, OWNER, SEEN, Columns, OpenCount
from actors.workers.keys import KeyTable
from actors.workers.rates import Moved, RateTable
from actors.workers.sessions import SessionTable
from actors.workers.usage import NO_PLACE, UsageTable, Used

WINDOW_KEPT = round(1000 * keys.SLOT_SECONDS * keys.SLOTS)
"""Milliseconds after the end of a process in which its requests count."""
RETRY = 1.0
"""Seconds after which a file that could not be mapped is tried again."""

Table = TypeVar("Table")
OnFailure = Callable[[str], None]


class _SharedFiles(NamedTuple, Generic[Table]):
    """One kind of file: its bit in FILES, and how its numbers are read."""

    bit: int
    kind: FileKind
    table: Callable[[Words], Table]


KEYS = _SharedFiles(columns.KEYS, keys.KIND, KeyTable)
RATES = _SharedFiles(columns.RATES, rates.KIND, RateTable)
SESSIONS = _SharedFiles(columns.SESSIONS, sessions.KIND, SessionTable)
USAGE = _SharedFiles(columns.USAGE, usage.KIND, UsageTable)


class _View(NamedTuple, Generic[Table]):
    """The tables of the others, for as long as these words of the columns are the same, until a moment."""

    alive: list[int]
    files: list[int]
    until: float
    tables: list[Table]


class _Files(Generic[Table]):
    """The files of one kind, of all columns of a proxy."""

    def __init__(
        self, folder: Path, shared: Columns, column: int, file: _SharedFiles[Table], on_failure: OnFailure
    ) -> None:
        self._folder = folder
        self._columns = shared
        self._column = column
        self._file = file
        self._on_failure = on_failure
        self._own: Table | None = None
        self._mapped: dict[int, Table] = {}
        self._views: dict[int, _View[Table]] = {}
        """By the milliseconds for which those count that have ended."""

    @property
    def own(self) -> Table:
        """That of this process, made now if there is none."""
        if self._own is None:
            self._own = self._file.table(self._make())
        return self._own

    @property
    def present(self) -> Table | None:
        """That of this process, if it has one already."""
        return self._own

    def inherit(self) -> None:
        """Use what the former owner of the column has left.

        One that can't be used is left out for good: the others have it mapped, and would not see another in its place.
        """
        shared, column, bit = self._columns, self._column, self._file.bit
        files = shared.word(column, FILES)
        if not files & bit:
            return
        try:
            words = open_existing(self._path(column), self._file.kind, writes=True)
        except OSError as error:
            self._on_failure(str(error))
            words = None
        if words is None:
            shared.write(column, FILES, files & ~bit)
            words = private(self._file.kind)
        self._own = self._file.table(words)

    def others(self, kept: int, now: float) -> list[Table]:
        """Those of the other processes that live, and of those that ended in the last `kept` milliseconds."""
        shared, view = self._columns, self._views.get(kept)
        alive, files = shared.all_of(ALIVE), shared.all_of(FILES)
        if view is None or now >= view.until or alive != view.alive or files != view.files:
            view = self._views[kept] = self._view(alive, files, kept, now)
        return view.tables

    def _view(self, alive: list[int], files: list[int], kept: int, now: float) -> _View[Table]:
        tables, until = [], math.inf
        for column, (bits, lives) in enumerate(zip(files, alive, strict=False)):
            ends = math.inf if lives else (self._columns.word(column, ENDED) + kept) / 1000
            if not bits & self._file.bit or column == self._column or ends <= now or not (lives or kept):
                continue
            table = self._mapped.get(column) or self._map(column)
            until = min(until, now + RETRY if table is None else ends)
            if table is not None:
                tables.append(table)
        return _View(alive, files, until, tables)

    def _make(self) -> Words:
        try:
            words = make(self._path(self._column), self._file.kind)
        except OSError as error:
            self._on_failure(str(error))
            return private(self._file.kind)
        shared, column = self._columns, self._column
        shared.write(column, FILES, shared.word(column, FILES) | self._file.bit)
        return words

    def _map(self, column: int) -> Table | None:
        try:
            words = open_existing(self._path(column), self._file.kind, writes=False)
        except OSError as error:
            self._on_failure(str(error))
            words = None
        if words is None:
            return None
        table = self._mapped[column] = self._file.table(words)
        return table

    def _path(self, column: int) -> Path:
        return self._folder / f"{column}.{self._file.kind.name}"


class Worker:
    """What one process shares. `now` is the monotonic clock in seconds.

    The file of columns has a line for it already, which is clean once this is made.
    """

    def __init__(self, folder: Path, shared: Columns, column: int, on_failure: OnFailure) -> None:
        self.column = column
        self._columns = shared
        self.keys = _Files(folder, shared, column, KEYS, on_failure)
        self.rates = _Files(folder, shared, column, RATES, on_failure)
        self.sessions = _Files(folder, shared, column, SESSIONS, on_failure)
        self.usage = _Files(folder, shared, column, USAGE, on_failure)
        self._begin()

    def _begin(self) -> None:
        """Clean the column of what its former owner had open, moved and used, then say that it counts."""
        for files in (self.keys, self.rates, self.sessions, self.usage):
            files.inherit()
        if self.keys.present is not None:
            self.keys.present.clean()
        if self.rates.present is not None:
            self.rates.present.clean()
        if self.usage.present is not None:
            self.usage.present.clean()
        shared, column = self._columns, self.column
        shared.write(column, OPEN, 0)
        shared.write(column, SEEN, int(1000 * time.monotonic()))
        shared.write(column, ALIVE, 1)

    # --- connections of the proxy ---

    def set_open(self, count: int, now: float) -> None:
        """So many connections are open."""
        self._columns.write(self.column, OPEN, count)
        self._columns.write(self.column, SEEN, int(1000 * now))

    def open_connections(self) -> OpenCount:
        """Those of all processes that live, this one included."""
        return self._columns.open_connections()

    @property
    def processes(self) -> int:
        """Those that live, this one included."""
        return sum(self._columns.all_of(ALIVE))

    # --- keys ---

    def connections_elsewhere(self, digest: int, now: float) -> int:
        """Connections of a key in the other processes that live."""
        return sum(table.connections(digest) for table in self.keys.others(0, now))

    def set_connections(self, digest: int, count: int) -> None:
        """So many connections of a key are open here."""
        if (count or self.keys.present is not None) and not self.keys.own.set_connections(digest, count):
            self._count_full()

    def requests(self, digest: int, now: float) -> int:
        """Requests of a key in the last minute, of all processes."""
        slot = keys.slot_at(now)
        return sum(table.requests(digest, slot) for table in self._windows(now))

    def requests_by_age(self, digest: int, now: float) -> list[int]:
        """The same for each of the ten slots, the present one first."""
        slot = keys.slot_at(now)
        counts = [table.by_age(digest, slot) for table in self._windows(now)]
        return [sum(each) for each in zip([0] * keys.SLOTS, *counts, strict=True)]

    def own_requests_by_age(self, digest: int, now: float) -> list[int]:
        """Those that this process has counted."""
        table = self.keys.present
        return [0] * keys.SLOTS if table is None else table.by_age(digest, keys.slot_at(now))

    def add_requests(self, digest: int, now: float, count: int = 1) -> bool:
        """Count so many here. Returns False when the key has no place."""
        placed = self.keys.own.add_requests(digest, keys.slot_at(now), count)
        if not placed:
            self._count_full()
        return placed

    def _windows(self, now: float) -> Iterator[KeyTable]:
        if self.keys.present is not None:
            yield self.keys.present
        yield from self.keys.others(WINDOW_KEPT, now)

    def _count_full(self) -> None:
        shared, column = self._columns, self.column
        shared.write(column, columns.FULL, shared.word(column, columns.FULL) + 1)

    # --- rates ---

    def write_rates(self, digest: int, period: int, moved: Moved) -> bool:
        """This is what moved here in this period. Returns False when the key has no place."""
        placed = self.rates.own.write(digest, period, moved)
        if not placed:
            self._count_full()
        return placed

    def rates_elsewhere(self, digest: int, period: int, now: float) -> list[Moved]:
        """What moved at each of the other processes that live and are not silent."""
        found = (table.read(digest, period) for table in self.rates.others(0, now))
        return [each for each in found if each is not None]

    # --- sessions ---

    def session(self, session: tuple[int, int], now: float) -> sessions.Choice:
        """The choice of a session with the latest end, of all processes; that may be over."""
        present = self.sessions.present
        choice = sessions.NO_CHOICE if present is None else present.read(session)
        for table in self.sessions.others(_FOREVER, now):
            found = table.read(session)
            if found.end > choice.end:
                choice = found
        return choice

    def keep_session(self, session: tuple[int, int], value: int, end: int, now: float) -> None:
        """Keep a choice, which is the latest from now on."""
        before = self.session(session, now)
        if before.value != value:
            end = max(end, before.end + 1)
        self.sessions.own.write(session, sessions.Choice(value, end))

    # --- usage of accounts ---

    def begin_usage(self, digest: int, serial: int) -> int:
        """This process holds an account from now on. Returns its place, `NO_PLACE` without one."""
        instance = self._columns.word(self.column, OWNER)
        place = self.usage.own.begin(digest, Used(instance, serial, 0))
        if place == NO_PLACE:
            self._count_full()
        return place

    def count_usage(self, place: int, counted: int) -> None:
        """It has counted so many bytes of it."""
        self.usage.own.count(place, counted)

    def end_usage(self, place: int) -> None:
        """It holds it no more."""
        self.usage.own.end(place)

    def used_elsewhere(self, digest: int, now: float) -> list[Used]:
        """What the other processes have counted of an account, those that have ended included."""
        found = (table.read(digest) for table in self.usage.others(_FOREVER, now))
        return [each for each in found if each is not None]

    def is_living(self, instance: int) -> bool:
        """Whether the process with this number counts."""
        owners, alive = self._columns.all_of(OWNER), self._columns.all_of(ALIVE)
        return instance in owners and bool(alive[owners.index(instance)])


_FOREVER = 1 << 62
