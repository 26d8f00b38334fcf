"""Threads that are shared fairly: no client, however much it asks for, keeps the others from their turn.

Work waits in the loop's thread, not behind a thread, so what isn't wanted any more is dropped before it runs. Each
piece of work has two labels, first whose it is and then what it is about. The next to run is taken from whose turn it
is among the first labels, and within one from whose turn it is among the second. No label may have more than its share
of the threads: the rest stay free for others, even while every job of that label hangs.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from actors.bus.loop import Loop
from actors.thread_pool import ThreadPool

WAITING_MAX = 1024
"""Jobs that may wait for one first label; what is submitted beyond that is dropped."""

DROPPED: Final = object()
"""The result of a job that did not run."""

Labels = tuple[str, str]
OnDone = Callable[[Any], None]


class _Job(NamedTuple):
    labels: Labels
    work: Callable[[], Any]
    done: OnDone
    starts: Callable[[], bool]


class FairThreadPool:
    """At most `threads` threads, started when they are needed; `shares` are the most for a first and a second label."""

    def __init__(self, loop: Loop, threads: int, shares: tuple[int, int]) -> None:
        self._loop = loop
        self._workers = ThreadPool(loop, threads)
        self._free = threads
        self._shares = shares
        self._running: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        self._waiting: OrderedDict[str, OrderedDict[str, deque[_Job]]] = OrderedDict()
        self._counts: Counter[str] = Counter()

    def submit(self, labels: Labels, work: Callable[[], Any], done: OnDone, starts: Callable[[], bool]) -> None:
        """Call `done` once, later, with the result of `work`, None when it raised, or `DROPPED`.

        `starts` is called in the loop's thread right before it would run: False drops it.
        """
        job = _Job(labels, work, done, starts)
        if self._counts[labels[0]] >= WAITING_MAX:
            self._drop(job)
            return
        self._counts[labels[0]] += 1
        self._waiting.setdefault(labels[0], OrderedDict()).setdefault(labels[1], deque()).append(job)
        self._run_next()

    @property
    def waiting(self) -> int:
        """How many jobs wait for their turn."""
        return self._counts.total()

    def _run_next(self) -> None:
        while self._free:
            job = self._take()
            if job is None:
                return
            if not job.starts():
                self._drop(job)
                continue
            self._free -= 1
            for running, label in zip(self._running, job.labels, strict=True):
                running[label] += 1
            self._workers.submit(job.work, partial(self._ended, job))

    def _drop(self, job: _Job) -> None:
        self._loop.call_soon(lambda: job.done(DROPPED))

    def _take(self) -> _Job | None:
        """The next job whose labels have a share left; both labels go to the end of their rows."""
        for first, row in self._waiting.items():
            if self._running[0][first] >= self._shares[0]:
                continue
            for second, jobs in row.items():
                if self._running[1][second] < self._shares[1]:
                    return self._take_from(first, second, jobs)
        return None

    def _take_from(self, first: str, second: str, jobs: deque[_Job]) -> _Job:
        job, row = jobs.popleft(), self._waiting[first]
        _back_or_out(row, second, jobs)
        _back_or_out(self._waiting, first, row)
        self._counts[first] -= 1
        if not self._counts[first]:
            del self._counts[first]
        return job

    def _ended(self, job: _Job, result: Any) -> None:
        self._free += 1
        for running, label in zip(self._running, job.labels, strict=True):
            running[label] -= 1
            if not running[label]:
                del running[label]
        try:
            job.done(result)
        finally:
            self._run_next()

    def __repr__(self) -> str:
        return f"<FairWorkers, {self._free} free, {self.waiting} waiting>"


def _back_or_out(row: OrderedDict[str, Any], label: str, rest: deque[_Job] | OrderedDict[str, Any]) -> None:
    """It has had its turn: to the end of the row, or out of it when nothing of it waits."""
    if rest:
        row.move_to_end(label)
    else:
        del row[label]
