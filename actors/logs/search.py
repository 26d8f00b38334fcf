"""Searches: pages by time downwards, and what is new since a number upwards.

A page is the records with the greatest keys (time, number) below a position. Parts (`actors.logs.blocks`) are read in
the order of their newest record until none that is left can hold a key above the last of the page. The answer names the
position to go on at and the greatest number that the first page could see; a search that goes on leaves out what was
stored later, so pages of one search neither shift nor overlap.

Reading has its time. A search that needs longer ends where it is: the page is shorter, and its position is the time of
the part that was not read. Counting has its own, shorter time; what wasn't counted then makes the total a lower bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

from actors.bus.messages.records import LogPage, LogTail, QueryLogs
from actors.logs.blocks import Block, Key, LogReader, OpenFile, Snapshot
from actors.logs.columns import conjunction
from actors.logs.query_filter import MICRO, CompiledQuery, where

READ_MAX = 2.0
"""Seconds that a search may read for its page."""
COUNT_MAX = 0.1
"""Seconds that it may take beyond that for the total."""
KEPT = 128
"""Parts that stay unpacked between finding records in them and showing these: some 100 KB each."""
EVER = 2**63 - 1
"""Above all times and numbers."""


class TooSlow(Exception):
    """A search with an offset has not come to its page in time."""


@dataclass(slots=True)
class _Found:
    """Keys of a page with their parts, greatest first; `stopped` is the time of the first part that wasn't read."""

    keys: list[tuple[int, int, Block]]
    stopped: int | None = None


class Searcher:
    """Searches in a folder of day files. Belongs to one thread."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._shelf = LogReader(folder)
        self._clock = clock

    def find(self, query: QueryLogs) -> LogPage:
        """A page. Raises `sqlite3.Error` and `TooSlow`."""
        newest = query.end if query.before is None else min(query.end, query.before[0] / MICRO)
        with self._shelf.snapshot(query.start, newest) as snapshot:
            return _Search(snapshot, query, self._clock).page()

    def tail(self, query: QueryLogs, after: int) -> LogTail:
        """What was stored after number `after`, in the order of storing. Raises `sqlite3.Error`."""
        with self._shelf.snapshot() as snapshot:
            return _tail(snapshot.files, query, after, self._clock() + READ_MAX, self._clock)

    def close(self) -> None:
        """Close its files."""
        self._shelf.close()


class _Search:
    """One page of one search."""

    def __init__(self, snapshot: Snapshot, query: QueryLogs, clock: Callable[[], float]) -> None:
        self._snapshot = snapshot
        self._query = query
        self._clock = clock
        self._selection = selection = CompiledQuery.of(query)
        self._grams = selection.grams()
        newest = max((_last(file) for file in snapshot.files), default=0)
        self._upto = newest if query.upto is None else min(query.upto, newest)
        self._before: Key = query.before or (EVER, EVER)
        self._tallies: dict[int, int] | None = None
        if selection.tallied:
            self._tallies = {}
        parts: list[Block] = []
        for file in snapshot.files:
            those = file.between(selection.start, selection.end)
            if self._tallies is not None and any(not part.fresh for part in those):
                self._tallies |= file.tallies(selection.tallied)
            parts += those
        self._parts = [part for part in sorted(parts, key=_newest, reverse=True) if part.first <= self._upto]

    def page(self) -> LogPage:
        """The answer."""
        query = self._query
        found = self._find(query.offset + query.limit + 1)
        if found.stopped is not None and query.offset:
            raise TooSlow
        shown = found.keys[query.offset : query.offset + query.limit]
        position = found.stopped if found.stopped is None else (found.stopped, EVER)
        if len(found.keys) > query.offset + query.limit:
            position = shown[-1][:2]
        rows = _records(shown)
        total, exact = self._count() if query.count else (0, False)
        return LogPage(rows, total, not (exact and self._snapshot.whole), position, self._upto)

    def _find(self, wanted: int) -> _Found:
        """The `wanted` greatest keys below the position."""
        deadline = self._clock() + READ_MAX
        best: list[tuple[int, int, Block]] = []
        kept = 0
        for part in self._parts:
            if part.oldest > self._before[0] or not self._promising(part):
                continue
            if len(best) == wanted and best[-1][0] > part.newest:
                break
            if self._clock() > deadline:
                return _above(part.newest, best)
            keys = self._keys(part)
            if keys:
                best = sorted((*best, *((*key, part) for key in keys)), key=_key, reverse=True)[:wanted]
            if keys and kept < KEPT:
                kept += 1  # its records will probably be on the page
            else:
                part.forget()
        floor = self._snapshot.floor
        if floor is None or floor < self._selection.start:
            return _Found(best)
        above = _above(floor, best)
        return _Found(best) if len(above.keys) == wanted else above

    def _promising(self, part: Block) -> bool:
        return part.fresh or self._tallies is None or part.first in self._tallies

    def _keys(self, part: Block) -> list[Key]:
        mask = self._mask(part)
        if mask is None:
            return []
        keys: Iterable[Key] = zip(part.columns.times(), range(part.first, part.last + 1), strict=True)
        found = list(compress(keys, mask))
        if part.newest >= self._before[0]:
            found = [key for key in found if key < self._before]
        return found

    def _mask(self, part: Block) -> bytes | None:
        """Of the records that the search finds, and that were there at its begin."""
        mask = part.mask(self._selection, self._grams)
        if mask is None:
            return None
        masks = [mask]
        if part.oldest < self._selection.start:
            masks.append(where(part.columns.times(), self._selection.start.__le__))
        if part.newest > self._selection.end:
            masks.append(where(part.columns.times(), self._selection.end.__ge__))
        if part.last > self._upto:
            known = self._upto - part.first + 1
            masks.append(b"\x01" * known + b"\x00" * (part.count - known))
        return conjunction(masks)

    def _count(self) -> tuple[int, bool]:
        """How many records there are on all pages, and whether that is exact: else it is a lower bound."""
        deadline = self._clock() + COUNT_MAX
        total, exact = 0, True
        for part in self._parts:
            known = self._known_count(part)
            if known is not None:
                total += known
            elif part.fresh or part.judged or self._clock() <= deadline:
                mask = self._mask(part)
                total += 0 if mask is None else mask.count(1)
                part.forget()
            else:
                exact = False
        return total, exact

    def _known_count(self, part: Block) -> int | None:
        """What is known of a part without reading it."""
        if not self._promising(part):
            return 0
        selection = self._selection
        if part.oldest < selection.start or part.newest > selection.end or part.last > self._upto:
            return None
        if part.fresh or not selection.only_tallied:
            return None
        return part.count if self._tallies is None else self._tallies[part.first]


def _tail(files: list[OpenFile], query: QueryLogs, after: int, deadline: float, clock: Callable[[], float]) -> LogTail:
    selection = CompiledQuery.of(query)
    grams = selection.grams()
    parts = sorted((part for file in files for part in file.after(after)), key=lambda part: part.first)
    rows: list[dict[str, Any]] = []
    for part in parts:
        if clock() > deadline:
            return LogTail(tuple(rows), part.first - 1)
        mask = part.mask(selection, grams)
        for at in compress(range(part.count), mask or ()):
            if part.first + at > after:
                rows.append(part.columns.record(at))
                if len(rows) == query.limit:
                    return LogTail(tuple(rows), part.first + at)
        part.forget()
    newest = max((_last(file) for file in files), default=0)
    return LogTail(tuple(rows), max(after, newest))


def _records(keys: list[tuple[int, int, Block]]) -> tuple[dict[str, Any], ...]:
    """The records with these keys, in their order; each part is read once."""
    by_part: dict[int, list[tuple[int, int, Block]]] = {}
    for key in keys:
        by_part.setdefault(key[2].first, []).append(key)
    records: dict[int, dict[str, Any]] = {}
    for those in by_part.values():
        part = those[0][2]
        records |= {number: part.columns.record(number - part.first) for _time, number, _part in those}
        part.forget()
    return tuple(records[number] for _time, number, _part in keys)


def _above(time: int, keys: list[tuple[int, int, Block]]) -> _Found:
    """What was found when all above `time` was read, and perhaps not all below."""
    return _Found([key for key in keys if key[0] > time], time)


def _last(file: OpenFile) -> int:
    found = file.database.execute("SELECT first + rows - 1 FROM blocks ORDER BY first DESC LIMIT 1").fetchone()
    return max([found[0] if found else 0, *(part.last for part in file.fresh())])


def _newest(part: Block) -> int:
    return part.newest


def _key(found: tuple[int, int, Block]) -> Key:
    return found[:2]
