"""Threads that are shared fairly: no client, however much work it submits, keeps the others from their turn.

Jobs wait in the loop's thread, not in the queue of a thread, so that one that isn't wanted any more is dropped before
it runs. Each job has two labels, first its owner and then its subject. First labels take turns, and so do the second
ones within each of them. No label may have more than its share of the threads: the rest stay free for others, even
while every job of that label hangs.
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

ORDINARY_TURN = 4

DROPPED: Final = object()
"""The result of a job that did not run."""

Labels = tuple[str, str]
OnDone = Callable[[Any], None]


class _Job(NamedTuple):
    labels: Labels
    work: Callable[[], Any]
    done: OnDone
    starts: Callable[[], bool]


class _Shares:
    """The threads of each label, and their limits: `most` for a first and a second label."""

    def __init__(self, most: tuple[int, int]) -> None:
        self._most = most
        self._running: tuple[Counter[str], Counter[str]] = (Counter(), Counter())

    def used_up(self, level: int, labels: Labels) -> bool:
        """True if the first (0) or second (1) of these labels is at its limit."""
        return self._running[level][labels[level]] >= self._most[level]

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
    """Jobs that wait, by the two labels that take turns; in most cases those of the job."""

    def __init__(self, shares: _Shares) -> None:
        self._shares = shares
        self._waiting: OrderedDict[str, OrderedDict[str, deque[_Job]]] = OrderedDict()
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._counts.total()

    def add(self, job: _Job, turn: Labels) -> bool:
        """Append a job; False when too many wait for the first label of its turn."""
        first, second = turn
        if self._counts[first] >= WAITING_MAX:
            return False
        self._counts[first] += 1
        self._waiting.setdefault(first, OrderedDict()).setdefault(second, deque()).append(job)
        return True

    def pop(self) -> _Job | None:
        """The next job whose labels have a share left; both labels of the turn go to the end of their rows."""
        for first, row in self._waiting.items():
            for second, jobs in row.items():
                labels = jobs[0].labels
                if self._shares.used_up(0, labels):
                    if labels[0] == first:
                        break  # as of all in this row
                elif not self._shares.used_up(1, labels):
                    return self._pop_from(first, second, jobs)
        return None

    def _pop_from(self, first: str, second: str, jobs: deque[_Job]) -> _Job:
        job, row = jobs.popleft(), self._waiting[first]
        _back_or_out(row, second, jobs)
        _back_or_out(self._waiting, first, row)
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
        job = _Job(labels, work, done, starts)
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
                continue
            self._free -= 1
            self._shares.started(job.labels)
            self._threads.submit(job.work, partial(self._ended, job))

    def _drop(self, job: _Job) -> None:
        self._loop.call_soon(lambda: job.done(DROPPED))

    def _next(self) -> _Job | None:
        self._turns += 1
        if self._turns % ORDINARY_TURN:
            return self._preferred.pop() or self._ordinary.pop()
        return self._ordinary.pop() or self._preferred.pop()

    def _ended(self, job: _Job, result: Any) -> None:
        self._free += 1
        self._shares.ended(job.labels)
        try:
            job.done(result)
        finally:
            self._run_next()

    def __repr__(self) -> str:
        return f"<FairThreadPool, {self._free} free, {self.waiting} waiting>"


def _back_or_out(row: OrderedDict[str, Any], label: str, rest: deque[_Job] | OrderedDict[str, Any]) -> None:
    """After its turn a label goes to the end of the row, or out of it when no job of it waits."""
    if rest:
        row.move_to_end(label)
    else:
        del row[label]
