"""Threads for work that would block the loop, such as name resolution and password checks.

They are started when first needed, so that an actor without such work has none.

They are shared fairly where clients cause the work: no client, however much it submits, keeps the others from their
turn. Jobs wait in the loop's thread, not in the queue of a thread, so that one that isn't wanted any more is dropped
before it runs. Each job has two labels, first its owner and then its subject. First labels take turns, and so do the
second ones within each of them. No label may have more than its share of the threads: the rest stay free for others,
even while every job of that label hangs.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, NamedTuple

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


WAITING_MAX = 1024
"""Jobs that may wait for one first label; what is submitted beyond that is dropped."""
WAITING_IN_ALL = 16_384

ORDINARY_TURN = 4

DROPPED: Final = object()
"""The result of a job that did not run."""

Labels = tuple[str, str]
OnDone = Callable[[Any], None]
_Limit = tuple[int, str]
"""A first (0) or second (1) label, which has a limit."""


class _FairJob(NamedTuple):
    labels: Labels
    work: Callable[[], Any]
    done: OnDone
    starts: Callable[[], bool]


class _Shares:
    """The threads of each label, and their limits: `most` for a first and a second label."""

    def __init__(self, most: tuple[int, int]) -> None:
        self._most = most
        self._running: tuple[Counter[str], Counter[str]] = (Counter(), Counter())

    def used_up(self, level: int, label: str) -> bool:
        """True if this label, a first (0) or second (1) one, is at its limit."""
        return self._running[level][label] >= self._most[level]

    def started(self, labels: Labels) -> None:
        """A job with these labels runs."""
        for running, label in zip(self._running, labels, strict=True):
            running[label] += 1

    def ended(self, labels: Labels) -> None:
        """It has ended."""
        for running, label in zip(self._running, labels, strict=True):
            running[label] -= 1
            if not running[label]:
                del running[label]


class _Queue:
    """Jobs that wait, by the two labels that take turns; in most cases those of the job.

    Those that meet a label at its limit leave their rows until it has a share again, so that ten thousand clients that
    wait for one zone are not gone over for each job.
    """

    def __init__(self, shares: _Shares) -> None:
        self._shares = shares
        self._rows: OrderedDict[str, OrderedDict[str, deque[_FairJob]]] = OrderedDict()
        self._paused: dict[_Limit, OrderedDict[Labels, None]] = {}
        """The turns that wait for a share of a label, in their order."""
        self._jobs: dict[Labels, deque[_FairJob]] = {}
        """By the labels of the turn, in a row or paused."""
        self._counts: Counter[str] = Counter()
        self._total = 0

    def __len__(self) -> int:
        return self._total

    def add(self, job: _FairJob, turn: Labels) -> bool:
        """Append a job; False when too many wait for the first label of its turn."""
        first, second = turn
        if self._counts[first] >= WAITING_MAX:
            return False
        self._counts[first] += 1
        self._total += 1
        jobs = self._jobs.get(turn)
        if jobs is None:
            jobs = self._jobs[turn] = deque()
            self._rows.setdefault(first, OrderedDict())[second] = jobs
        jobs.append(job)
        return True

    def pop(self) -> _FairJob | None:
        """The next job whose labels have a share left; both labels of the turn go to the end of their rows."""
        while self._rows:
            first, row = next(iter(self._rows.items()))
            second, jobs = next(iter(row.items()))
            labels = jobs[0].labels
            limit = self._limit_of(labels)
            if limit is None:
                return self._pop_from(first, second, jobs)
            self._paused.setdefault(limit, OrderedDict())[first, second] = None
            del row[second]
            if not row:
                del self._rows[first]
            self.share_is_free(labels)  # of the other label, which it doesn't use
        return None

    def _limit_of(self, labels: Labels) -> _Limit | None:
        """The label that has no share left; None: both have."""
        return next((each for each in enumerate(labels) if self._shares.used_up(*each)), None)

    def share_is_free(self, labels: Labels) -> None:
        """Perhaps of each label: the turn that has waited longest for one comes back to where it was, in front."""
        for limit in enumerate(labels):
            paused = self._paused.get(limit)
            if paused is None or self._shares.used_up(*limit):
                continue
            (first, second), _none = paused.popitem(last=False)
            if not paused:
                del self._paused[limit]
            if first not in self._rows:
                self._rows[first] = OrderedDict()
                self._rows.move_to_end(first, last=False)
            self._rows[first][second] = self._jobs[first, second]
            self._rows[first].move_to_end(second, last=False)

    def _pop_from(self, first: str, second: str, jobs: deque[_FairJob]) -> _FairJob:
        job, row = jobs.popleft(), self._rows[first]
        if not jobs:
            del self._jobs[first, second]
        _back_or_out(row, second, jobs)
        _back_or_out(self._rows, first, row)
        self._total -= 1
        self._counts[first] -= 1
        if not self._counts[first]:
            del self._counts[first]
        return job


class FairThreadPool:
    """At most `threads` threads, started when they are needed; `shares` are the most for a first and a second label."""

    def __init__(self, loop: Loop, threads: int, shares: tuple[int, int]) -> None:
        self._loop = loop
        self._threads = ThreadPool(loop, threads)
        self._free = threads
        self._shares = _Shares(shares)
        self._ordinary, self._preferred = _Queue(self._shares), _Queue(self._shares)
        self._turns = 0

    def submit(
        self,
        labels: Labels,
        work: Callable[[], Any],
        done: OnDone,
        starts: Callable[[], bool],
        preferred: Labels | None = None,
    ) -> None:
        """Call `done` once, later, with the result of `work`, None when it raised, or `DROPPED`.

        `starts` is called in the loop's thread right before it would run: False drops it. Jobs with labels as
        `preferred` come before all others, but for every `ORDINARY_TURN`th turn, and those labels take turns.
        """
        job = _FairJob(labels, work, done, starts)
        if self.waiting >= WAITING_IN_ALL:
            waits = False
        else:
            waits = self._preferred.add(job, preferred) if preferred else self._ordinary.add(job, labels)
        if waits:
            self._run_next()
        else:
            self._drop(job)

    @property
    def waiting(self) -> int:
        """The number of jobs that wait for their turn."""
        return len(self._ordinary) + len(self._preferred)

    def _run_next(self) -> None:
        while self._free:
            job = self._next()
            if job is None:
                return
            if not job.starts():
                self._drop(job)
                self._share_is_free(job.labels)
                continue
            self._free -= 1
            self._shares.started(job.labels)
            self._threads.submit(job.work, partial(self._ended, job))

    def _share_is_free(self, labels: Labels) -> None:
        self._ordinary.share_is_free(labels)
        self._preferred.share_is_free(labels)

    def _drop(self, job: _FairJob) -> None:
        self._loop.call_soon(lambda: job.done(DROPPED))

    def _next(self) -> _FairJob | None:
        self._turns += 1
        if self._turns % ORDINARY_TURN:
            return self._preferred.pop() or self._ordinary.pop()
        return self._ordinary.pop() or self._preferred.pop()

    def _ended(self, job: _FairJob, result: Any) -> None:
        self._free += 1
        self._shares.ended(job.labels)
        self._share_is_free(job.labels)
        try:
            job.done(result)
        finally:
            self._run_next()

    def __repr__(self) -> str:
        return f"<FairThreadPool, {self._free} free, {self.waiting} waiting>"


def _back_or_out(row: OrderedDict[str, Any], label: str, rest: deque[_FairJob] | OrderedDict[str, Any]) -> None:
    """After its turn a label goes to the end of the row, or out of it when no job of it waits."""
    if rest:
        row.move_to_end(label)
    else:
        del row[label]
