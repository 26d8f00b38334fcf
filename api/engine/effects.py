"""What follows from commits: messages to other processes, and what belongs to documents without being in the store.

Each `CommitEffect` has its collections. It gets what commits change in them, in the order of commits, and made by a
request, a round, an import, an undo, or `Engine.adopt`. The thread that commits makes its effects itself, so a
request waits for those of its own; but never within a transaction, nor under a lock that is within `settled`. What a
killed process has left undone is made good by the next start, which gives everybody the whole state.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import Any

from api.history.document_changes import DocumentChange

log = logging.getLogger(__name__)

OnOutcome = Callable[[Sequence[DocumentChange], Exception | None], object]
"""Called with changes whose effects were made, or with why they were not."""


class CommitEffect:
    """`make` gets the changes in `collections` for which `condition` holds, those of several commits if they wait.

    It is called by one thread at a time. What it raises is raised for the one whose commit this is: changes of several
    that fail together are given once more, those of each commit alone.
    """

    def __init__(
        self,
        collections: Collection[str],
        make: Callable[[Sequence[DocumentChange]], Any],
        condition: Callable[[DocumentChange], object] = lambda _change: True,
    ) -> None:
        self._collections = frozenset(collections)
        self._make = make
        self._condition = condition
        self._on_outcome: OnOutcome = lambda _changes, _error: None
        self._lock = threading.Lock()
        self._waiting: deque[tuple[list[DocumentChange], Future[None]]] = deque()

    def subscribe(self, on_outcome: OnOutcome) -> None:
        """See `Effects.subscribe`."""
        self._on_outcome = on_outcome

    def concerns(self, change: DocumentChange) -> bool:
        """Whether it follows from this change."""
        return change.collection in self._collections and bool(self._condition(change))

    def note(self, changes: Sequence[DocumentChange]) -> Future[None] | None:
        """A commit has made these changes, and no later one is made yet; None when they are nothing to this effect."""
        wanted = [each for each in changes if self.concerns(each)]
        if not wanted:
            return None
        done = Future[None]()
        self._waiting.append((wanted, done))
        return done

    def settle(self, done: Future[None]) -> None:
        """Return when it is made, with all before it. Raises what `make` has raised."""
        with self._lock:
            if not done.done():
                self._make_of([self._waiting.popleft() for _ in range(len(self._waiting))])
        done.result()

    def finish(self) -> None:
        """Return when all that was noted is made, whatever becomes of it."""
        with self._lock:
            self._make_of([self._waiting.popleft() for _ in range(len(self._waiting))])

    def _make_of(self, commits: Sequence[tuple[list[DocumentChange], Future[None]]]) -> None:
        """Those of several commits at once; one after the other if that fails, so that each has its own outcome."""
        if not commits:
            return
        try:
            self._make([change for changes, _ in commits for change in changes])
        except Exception as error:  # noqa: BLE001 - it belongs to whose change it is
            if len(commits) > 1:
                for each in commits:
                    self._make_of([each])
            else:
                commits[0][1].set_exception(error)
                self._report(commits[0][0], error)
        else:
            for _, done in commits:
                done.set_result(None)
            for changes, _ in commits:
                self._report(changes, None)

    def _report(self, changes: Sequence[DocumentChange], error: Exception | None) -> None:
        """Whatever becomes of that: who waits for the effect would wait for ever."""
        try:
            self._on_outcome(changes, error)
        except Exception:
            log.exception("what became of a change can't be reported")


class _OfThread(threading.local):
    """What is to be settled at the end of the block that a thread is in; None in no block."""

    due: list[tuple[CommitEffect, Future[None]]] | None = None


class Effects:
    """The effects of one engine. Thread-safe."""

    def __init__(self) -> None:
        self._table: tuple[CommitEffect, ...] = ()
        self._thread = _OfThread()

    def follow(self, *effects: CommitEffect) -> None:
        """From now on these follow from commits, one after the other."""
        self._table = effects

    def subscribe(self, on_outcome: OnOutcome) -> None:
        """From now on this gets to know what becomes of the effects."""
        for each in self._table:
            each.subscribe(on_outcome)

    def relevant(self, changes: Sequence[DocumentChange]) -> list[DocumentChange]:
        """Those from which anything follows."""
        return [each for each in changes if any(effect.concerns(each) for effect in self._table)]

    def note(self, changes: Sequence[DocumentChange]) -> None:
        """A commit has made these changes, and no later one is made yet."""
        due = [(effect, done) for effect in self._table if (done := effect.note(changes)) is not None]
        if self._thread.due is not None:
            self._thread.due.extend(due)

    def finish(self) -> None:
        """Return when the effects of all commits are made, whatever becomes of them."""
        for each in self._table:
            each.finish()

    @contextmanager
    def settled(self) -> Iterator[None]:
        """At the end of the block, or of the outermost one of this thread, the effects of commits in it are made."""
        if self._thread.due is not None:
            yield
            return
        due = self._thread.due = []
        try:
            yield
        finally:
            self._thread.due = None
            with ExitStack() as stack:
                for effect, done in reversed(due):
                    stack.callback(effect.settle, done)
