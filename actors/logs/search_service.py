"""Searches off the loop: a slow one delays neither batches nor each other more than the interpreter must.

A tail waits here for records: when some were stored, the waiting tails are searched for, at most once every
`TAIL_PERIOD`; each gets its reply at the latest when its time is over.
"""

from __future__ import annotations

import logging
import sqlite3
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.bus.loop import Loop
from actors.bus.mailbox import Reply
from actors.bus.messages.common import Failed
from actors.bus.messages.records import CountLogs, LogTail, QueryLogs, TailLogs
from actors.logs.search import Searcher, TooSlow
from actors.thread_pool import ThreadPool

log = logging.getLogger(__name__)

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
        if isinstance(result, LogTail):
            tail.after = result.last
        if not isinstance(result, LogTail) or result.rows or self._loop.now >= tail.until:
            self._reply(tail, result)

    def _on_timeout(self, tail: _Tail) -> None:
        if not tail.searching:
            self._reply(tail, LogTail((), tail.after))

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
