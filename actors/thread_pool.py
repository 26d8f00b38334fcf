"""A few threads for work that would block the loop, such as name resolution and password checks.

They are started when first needed, so that an actor without such work has none.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from actors.bus.loop import THREADED_WAIT, Loop

log = logging.getLogger(__name__)

THREADS = 4

_Job = tuple[Callable[[], Any], Callable[[Any], None]]


class ThreadPool:
    """`submit(work, done)`: `work()` runs in a thread, then `done(result)` in the loop's."""

    def __init__(self, loop: Loop, threads: int = THREADS) -> None:
        self._loop = loop
        self._limit = threads
        self._started = 0
        self._waiting = 0
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()  # None ends one thread
        self._results: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._closed = False
        self._close_lock = threading.Lock()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)  # now, since later there may be no descriptor left
        loop.watch(self._wake, select.EPOLLIN, self._collect)

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Expected failures of `work` should be results; if it raises all the same, the result is None."""
        self._waiting += 1
        if self._started < min(self._limit, self._waiting):
            self._started += 1
            self._loop.longest_wait = min(self._loop.longest_wait, THREADED_WAIT)
            threading.Thread(target=self._run, name=f"worker-{self._started}", daemon=True).start()
        self._jobs.put((work, done))

    def resize(self, threads: int) -> None:
        """Allow so many threads from now on; those above the limit end when they are idle."""
        self._limit = threads
        for _ in range(self._started - threads):
            self._jobs.put(None)
        self._started = min(self._started, threads)

    def close(self) -> None:
        """End the threads; work under way gets no result. To be called in the loop's thread, once."""
        self.resize(0)
        self._loop.unwatch(self._wake)
        with self._close_lock:
            self._closed = True
            os.close(self._wake)

    def _run(self) -> None:
        while self._run_next():
            continue

    def _run_next(self) -> bool:
        """Run one job; False at the end of the thread. A function of its own: an idle thread references no job."""
        job = self._jobs.get()
        if job is None:
            return False
        work, done = job
        try:
            result = work()
        except Exception:  # any job may fail in any way; the thread serves the jobs of others, too
            log.exception("work off the loop failed")
            result = None
        self._results.append((done, result))
        with self._close_lock:
            if not self._closed:
                os.eventfd_write(self._wake, 1)
        return True

    def _collect(self, _mask: int) -> None:
        os.eventfd_read(self._wake)
        while self._results:
            done, result = self._results.popleft()
            self._waiting -= 1
            done(result)
