"""Searches off the loop: a slow one delays neither batches nor each other more than the interpreter must.

A tail waits here for records: whenever some were stored, those who wait are searched for, not more often than every
`LOOK_PERIOD`; each hears at the latest when its time is over.
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
from actors.bus.mailbox import Answer
from actors.bus.messages.common import Failed
from actors.bus.messages.records import LogTail, QueryLogs, TailLogs
from actors.logs.search import Searcher, TooSlow
from actors.thread_pool import ThreadPool

log = logging.getLogger(__name__)

THREADS = 2
WAITING_MAX = 64
"""Searches under way and waiting for a thread, and tails that wait."""
WAIT_MAX = 30.0
LOOK_PERIOD = 0.2


@dataclass(slots=True)
class _Waiter:
    """A tail that has found nothing yet after record `after`."""

    query: QueryLogs
    after: int
    until: float
    answer: Answer
    searching: bool = False
    answered: bool = False


def share_fairly() -> None:
    """Hand the interpreter over after a millisecond, not five.

    The thread that stores gives it back at every statement for the database, and waits while a search computes.
    """
    sys.setswitchinterval(0.001)


class Searches:
    """Answers questions. `last` gives the number of the record that was stored last."""

    def __init__(self, loop: Loop, folder: Path, last: Callable[[], int]) -> None:
        share_fairly()
        self._loop = loop
        self._folder = folder
        self._last = last
        self._workers = ThreadPool(loop, THREADS)
        self._own = threading.local()
        self._pending = 0
        self._waiters: list[_Waiter] = []
        self._timed = False

    def find(self, query: QueryLogs, answer: Answer) -> None:
        """Answer with a page."""
        if not self._refused(answer):
            self._submit(lambda searcher: searcher.find(query), answer)

    def tail(self, message: TailLogs, answer: Answer) -> None:
        """Answer with what is new, as soon as there is something."""
        if self._refused(answer):
            return
        after = self._last() if message.after is None else message.after
        wait = max(0.0, min(WAIT_MAX, message.wait))
        waiter = _Waiter(message.query, after, self._loop.now + wait, answer)
        self._waiters.append(waiter)
        self._look_for(waiter)
        self._loop.call_later(wait, lambda: self._time_is_over(waiter))

    def stored(self) -> None:
        """There are new records."""
        if self._waiters and not self._timed:
            self._timed = True
            self._loop.call_later(LOOK_PERIOD, self._look)

    def _refused(self, answer: Answer) -> bool:
        if self._pending + len(self._waiters) < WAITING_MAX:
            return False
        answer(Failed("too many searches are under way"))
        return True

    def _look(self) -> None:
        self._timed = False
        for waiter in tuple(self._waiters):
            if waiter.searching:
                self.stored()  # what it doesn't see any more is looked for in the next round
            else:
                self._look_for(waiter)

    def _look_for(self, waiter: _Waiter) -> None:
        if waiter.after >= self._last():
            return
        waiter.searching = True
        self._submit(
            lambda searcher: searcher.tail(waiter.query, waiter.after), lambda result: self._looked(waiter, result)
        )

    def _looked(self, waiter: _Waiter, result: Any) -> None:
        waiter.searching = False
        if isinstance(result, LogTail):
            waiter.after = result.last
        if not isinstance(result, LogTail) or result.rows or self._loop.now >= waiter.until:
            self._answer(waiter, result)

    def _time_is_over(self, waiter: _Waiter) -> None:
        if not waiter.searching:
            self._answer(waiter, LogTail((), waiter.after))

    def _answer(self, waiter: _Waiter, result: Any) -> None:
        if not waiter.answered:
            waiter.answered = True
            self._waiters.remove(waiter)
            waiter.answer(result)

    def _submit(self, search: Callable[[Searcher], Any], done: Callable[[Any], None]) -> None:
        self._pending += 1

        def finish(result: Any) -> None:
            self._pending -= 1
            done(Failed("the search failed") if result is None else result)

        self._workers.submit(lambda: self._result(search), finish)

    def _result(self, search: Callable[[Searcher], Any]) -> Any:
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
        if not hasattr(self._own, "searcher"):
            self._own.searcher = Searcher(self._folder)
        searcher: Searcher = self._own.searcher
        return searcher
