"""Searches: pages by time downwards, and what is new since a number upwards.

A page is the records with the greatest keys (time, number) below a position. Blocks (`actors.logs.blocks`) are read in
the order of their newest record until none that is left can have a key above the last of the page. The page has the
position of the next one and the greatest number that the first page could see; a search that goes on leaves out what
was stored later, so pages of one search neither shift nor overlap.

The time to read is limited. A search that needs longer ends where it is: the page is shorter, and its position is the
time of the block that was not read. The time to count is limited, too; after that the total is a lower bound.

Searches off the loop: a slow one delays neither batches nor each other more than the interpreter must. A tail waits
here for records: when some were stored, the waiting tails are searched for, at most once every `TAIL_PERIOD`; each gets
its reply at the latest when its time is over.
"""

from __future__ import annotations

import logging
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import compress
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from actors.bus.loop import Loop
from actors.bus.mailbox import Reply
from actors.bus.messages.common import Failed
from actors.bus.messages.records import CountLogs, LogCounts, LogPage, LogTailPage, QueryLogs, TailLogs
from actors.logs.blocks import Block, Key, LogReader, LogSnapshot, OpenFile
from actors.logs.columns import conjunction
from actors.logs.counting import count_records
from actors.logs.query_filter import MICRO, CompiledQuery
from actors.thread_pool import ThreadPool

log = logging.getLogger(__name__)

READ_MAX = 2.0
"""Seconds that a search may read for its page."""
COUNT_MAX = 0.1
"""Seconds that it may take beyond that for the total."""
UNPACKED_MAX = 128
"""Blocks that stay unpacked between finding records in them and returning these: some 100 KB each."""
EVER = 2**63 - 1
"""Above all times and numbers."""


class TooSlow(Exception):
    """A search with an offset has not come to its page in time."""


@dataclass(slots=True)
class _Found:
    """Keys of a page with their blocks, greatest first; `stopped` is the time of the first block that wasn't read."""

    keys: list[tuple[int, int, Block]]
    stopped: int | None = None


class Searcher:
    """Searches in a folder of day files. Belongs to one thread."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._reader = LogReader(folder)
        self._clock = clock

    def find(self, query: QueryLogs) -> LogPage:
        """A page. Raises `sqlite3.Error` and `TooSlow`."""
        newest = query.end if query.before is None else min(query.end, query.before[0] / MICRO)
        with self._reader.snapshot(query.start, newest) as snapshot:
            return _PageSearch(snapshot, query, self._clock).page()

    def count(self, message: CountLogs) -> LogCounts:
        """Records over time, and the most frequent values. Raises `sqlite3.Error`."""
        with self._reader.snapshot(message.query.start, message.query.end) as snapshot:
            return count_records(snapshot, message, self._clock)

    def tail(self, query: QueryLogs, after: int) -> LogTailPage:
        """What was stored after number `after`, in the order of storing. Raises `sqlite3.Error`."""
        with self._reader.snapshot() as snapshot:
            return _tail(snapshot.files, query, after, self._clock() + READ_MAX, self._clock)

    def close(self) -> None:
        """Close its files."""
        self._reader.close()


class _PageSearch:
    """One page of one search."""

    def __init__(self, snapshot: LogSnapshot, query: QueryLogs, clock: Callable[[], float]) -> None:
        self._snapshot = snapshot
        self._query = query
        self._clock = clock
        self._compiled = compiled = CompiledQuery.of(query)
        self._ngrams = compiled.ngrams()
        newest = max((_last(file) for file in snapshot.files), default=0)
        self._upto = newest if query.upto is None else min(query.upto, newest)
        self._before: Key = query.before or (EVER, EVER)
        self._counts: dict[int, int] | None = None
        if compiled.counted:
            self._counts = {}
        blocks: list[Block] = []
        for file in snapshot.files:
            those = file.between(compiled.start, compiled.end)
            if self._counts is not None and any(not block.fresh for block in those):
                self._counts |= file.counts(compiled.counted)
            blocks += those
        self._blocks = [
            block for block in sorted(blocks, key=attrgetter("newest"), reverse=True) if block.first <= self._upto
        ]

    def page(self) -> LogPage:
        """The page. Raises `TooSlow`."""
        query = self._query
        found = self._find(query.offset + query.limit + 1)
        if found.stopped is not None and query.offset:
            raise TooSlow
        selected = found.keys[query.offset : query.offset + query.limit]
        position = found.stopped if found.stopped is None else (found.stopped, EVER)
        if len(found.keys) > query.offset + query.limit:
            position = selected[-1][:2]
        rows = _records(selected)
        total, exact = self._count() if query.count else (0, False)
        keys = tuple(key[:2] for key in selected) if query.keyed else ()
        return LogPage(rows, total, not (exact and self._snapshot.complete), position, self._upto, keys)

    def _find(self, wanted: int) -> _Found:
        """The `wanted` greatest keys below the position."""
        deadline = self._clock() + READ_MAX
        best: list[tuple[int, int, Block]] = []
        unpacked = 0
        for block in self._blocks:
            if block.oldest > self._before[0] or not self._may_match(block):
                continue
            if len(best) == wanted and best[-1][0] > block.newest:
                break
            if self._clock() > deadline:
                return _above(block.newest, best)
            keys = self._keys(block)
            if keys:
                best = sorted((*best, *((*key, block) for key in keys)), key=itemgetter(0, 1), reverse=True)[:wanted]
            if keys and unpacked < UNPACKED_MAX:
                unpacked += 1  # its records will probably be on the page
            else:
                block.release()
        floor = self._snapshot.floor
        if floor is None or floor < self._compiled.start:
            return _Found(best)
        above = _above(floor, best)
        return _Found(best) if len(above.keys) == wanted else above

    def _may_match(self, block: Block) -> bool:
        return block.fresh or self._counts is None or block.first in self._counts

    def _keys(self, block: Block) -> list[Key]:
        mask = self._mask(block)
        if mask is None:
            return []
        keys: Iterable[Key] = zip(block.columns.times(), range(block.first, block.last + 1), strict=True)
        found = list(compress(keys, mask))
        if block.newest >= self._before[0]:
            found = [key for key in found if key < self._before]
        return found

    def _mask(self, block: Block) -> bytes | None:
        """Of the records that match and were stored before the search began."""
        mask = block.mask_in_time(self._compiled, self._ngrams)
        if mask is None or block.last <= self._upto:
            return mask
        known = self._upto - block.first + 1
        return conjunction([mask, b"\x01" * known + b"\x00" * (block.count - known)])

    def _count(self) -> tuple[int, bool]:
        """How many records there are on all pages, and whether that is exact: else it is a lower bound."""
        deadline = self._clock() + COUNT_MAX
        total, exact = 0, True
        for block in self._blocks:
            known = self._count_unread(block)
            if known is not None:
                total += known
            elif block.fresh or block.evaluated or self._clock() <= deadline:
                mask = self._mask(block)
                total += 0 if mask is None else mask.count(1)
                block.release()
            else:
                exact = False
        return total, exact

    def _count_unread(self, block: Block) -> int | None:
        """How many records of a block match, as far as that is known without reading it."""
        if not self._may_match(block):
            return 0
        compiled = self._compiled
        if block.oldest < compiled.start or block.newest > compiled.end or block.last > self._upto:
            return None
        if block.fresh or not compiled.counts_suffice:
            return None
        return block.count if self._counts is None else self._counts[block.first]


def _tail(
    files: list[OpenFile], query: QueryLogs, after: int, deadline: float, clock: Callable[[], float]
) -> LogTailPage:
    compiled = CompiledQuery.of(query)
    ngrams = compiled.ngrams()
    blocks = sorted((block for file in files for block in file.after(after)), key=attrgetter("first"))
    rows: list[dict[str, Any]] = []
    for block in blocks:
        if clock() > deadline:
            return LogTailPage(tuple(rows), block.first - 1)
        mask = block.mask(compiled, ngrams)
        for at in compress(range(block.count), mask or ()):
            if block.first + at > after:
                rows.append(block.columns.record(at))
                if len(rows) == query.limit:
                    return LogTailPage(tuple(rows), block.first + at)
        block.release()
    newest = max((_last(file) for file in files), default=0)
    return LogTailPage(tuple(rows), max(after, newest))


def _records(keys: list[tuple[int, int, Block]]) -> tuple[dict[str, Any], ...]:
    """The records with these keys, in their order; each block is read once."""
    by_block: dict[int, list[tuple[int, int, Block]]] = {}
    for key in keys:
        by_block.setdefault(key[2].first, []).append(key)
    records: dict[int, dict[str, Any]] = {}
    for those in by_block.values():
        block = those[0][2]
        records |= {number: block.columns.record(number - block.first) for _time, number, _block in those}
        block.release()
    return tuple(records[number] for _time, number, _block in keys)


def _above(time: int, keys: list[tuple[int, int, Block]]) -> _Found:
    """What was found when all above `time` was read, and perhaps not all below."""
    return _Found([key for key in keys if key[0] > time], time)


def _last(file: OpenFile) -> int:
    found = file.database.execute("SELECT first + rows - 1 FROM blocks ORDER BY first DESC LIMIT 1").fetchone()
    return max([found[0] if found else 0, *(block.last for block in file.fresh())])


THREADS = 2
WAITING_MAX = 64
"""Searches under way and waiting for a thread, and tails that wait."""
WAIT_MAX = 30.0
TAIL_PERIOD = 0.2


@dataclass(slots=True)
class _Tail:
    """A tail that has found nothing yet after record `after`."""

    query: QueryLogs
    after: int
    until: float
    reply: Reply
    searching: bool = False
    replied: bool = False


def share_fairly() -> None:
    """Let threads switch after a millisecond, not five.

    The storing thread releases the interpreter at every SQL statement, and waits while a search computes.
    """
    sys.setswitchinterval(0.001)


class Searches:
    """Searches in the day files of `folder`. `last` returns the number of the record that was stored last."""

    def __init__(self, loop: Loop, folder: Path, last: Callable[[], int]) -> None:
        share_fairly()
        self._loop = loop
        self._folder = folder
        self._last = last
        self._threads = ThreadPool(loop, THREADS)
        self._thread_local = threading.local()
        self._pending = 0
        self._tails: list[_Tail] = []
        self._search_scheduled = False

    def find(self, query: QueryLogs, reply: Reply) -> None:
        """Reply with a page."""
        if not self._reject_excess(reply):
            self._submit(lambda searcher: searcher.find(query), reply)

    def count(self, message: CountLogs, reply: Reply) -> None:
        """Reply with counts."""
        if not self._reject_excess(reply):
            self._submit(lambda searcher: searcher.count(message), reply)

    def tail(self, message: TailLogs, reply: Reply) -> None:
        """Reply with the new records, as soon as there are some."""
        if self._reject_excess(reply):
            return
        after = self._last() if message.after is None else message.after
        wait = max(0.0, min(WAIT_MAX, message.wait))
        tail = _Tail(message.query, after, self._loop.now + wait, reply)
        self._tails.append(tail)
        self._search_for(tail)
        self._loop.call_later(wait, lambda: self._on_timeout(tail))

    def stored(self) -> None:
        """There are new records."""
        if self._tails and not self._search_scheduled:
            self._search_scheduled = True
            self._loop.call_later(TAIL_PERIOD, self._search_for_all)

    def _reject_excess(self, reply: Reply) -> bool:
        if self._pending + len(self._tails) < WAITING_MAX:
            return False
        reply(Failed("too many searches are under way"))
        return True

    def _search_for_all(self) -> None:
        self._search_scheduled = False
        for tail in tuple(self._tails):
            if tail.searching:
                self.stored()  # it may miss the newest records: search for them in the next round
            else:
                self._search_for(tail)

    def _search_for(self, tail: _Tail) -> None:
        if tail.after >= self._last():
            return
        tail.searching = True
        self._submit(
            lambda searcher: searcher.tail(tail.query, tail.after), lambda result: self._on_result(tail, result)
        )

    def _on_result(self, tail: _Tail, result: Any) -> None:
        tail.searching = False
        if isinstance(result, LogTailPage):
            tail.after = result.last
        if not isinstance(result, LogTailPage) or result.rows or self._loop.now >= tail.until:
            self._reply(tail, result)

    def _on_timeout(self, tail: _Tail) -> None:
        if not tail.searching:
            self._reply(tail, LogTailPage((), tail.after))

    def _reply(self, tail: _Tail, result: Any) -> None:
        if not tail.replied:
            tail.replied = True
            self._tails.remove(tail)
            tail.reply(result)

    def _submit(self, search: Callable[[Searcher], Any], done: Callable[[Any], None]) -> None:
        self._pending += 1

        def finish(result: Any) -> None:
            self._pending -= 1
            done(Failed("the search failed") if result is None else result)

        self._threads.submit(lambda: self._run(search), finish)

    def _run(self, search: Callable[[Searcher], Any]) -> Any:
        """In a thread."""
        try:
            return search(self._searcher())
        except TooSlow:
            return Failed("the page lies too deep for one search; go on by cursor, or search in less time", "offset")
        except sqlite3.Error as error:
            log.error("access log search failed: %s", error)
            return Failed(f"the log can't be read: {error}")

    def _searcher(self) -> Searcher:
        """Of this thread."""
        if not hasattr(self._thread_local, "searcher"):
            self._thread_local.searcher = Searcher(self._folder)
        searcher: Searcher = self._thread_local.searcher
        return searcher
