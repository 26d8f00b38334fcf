"""Writing revisions: each in the transaction of the audit entries that precede its changes.

The caller opens a revision (`Recorder.revision`), which holds up all other changes; writes into it what is about to
be changed; and says afterwards whether it was (`made`, `refused`). What is changed within it in the other store, too,
is part of it."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol, TypeVar

from api.history import tables
from api.history.documents import DocumentChange, Packing
from api.store import Store
from config.files.secret_box import SecretBox

log = logging.getLogger(__name__)

T = TypeVar("T")
Action = Callable[[sqlite3.Connection], T]
"""Something within a transaction."""


class Ledger(Protocol):
    """The owner of the file: the audit trail."""

    def transact(self, action: Action[T]) -> T:
        """What `action` returns, durably; nothing of it happened if it raises. Raises `StoreError`."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """What is kept: days, revisions, and bytes of bodies."""

    days: int = 90
    revisions: int = 10_000
    size: int = 2**30


@dataclass(slots=True)
class _Draft:
    """A revision that is under way: how many changes are `written`, and how many of them are `made`."""

    number: int
    key: int
    purpose: tables.Purpose
    written: int = 0
    made: int = 0
    undecided: bool = False


@dataclass(slots=True)
class StagedChanges:
    """Changes that are written before their revision is there, since they are too many for one transaction."""

    key: int
    count: int = 0
    first: DocumentChange | None = None


class Recorder:
    """Writes revisions. Thread-safe. `visible` is the number of the last one whose changes are made."""

    def __init__(self, ledger: Ledger, seal: SecretBox | None) -> None:
        """Without a seal hashes of passwords and keys are not recorded. Raises `StoreError`."""
        self._ledger = ledger
        self._packing = Packing(seal)
        self._lock = threading.RLock()
        self._draft: _Draft | None = None
        self._corrections: list[Action[None]] = []
        """What is still to be done about earlier revisions; part of the next transaction."""
        ledger.transact(tables.bring_forward)
        self._last = self.visible = ledger.transact(tables.last_number)
        self._lowest = ledger.transact(tables.lowest_key)
        self._staged: set[int] = set()

    @contextmanager
    def revision(self, purpose: tables.Purpose = tables.NO_PURPOSE) -> Iterator[None]:
        """Changes within the block are one revision."""
        with self._lock:
            if self._draft is not None:
                yield
                return
            self._draft = _Draft(self._last + 1, self._last + 1, purpose)
            try:
                yield
            finally:
                self._close()

    def write(
        self, probe: tables.Probe, changes: Sequence[DocumentChange], origin: Callable[[], Mapping[str, Any]]
    ) -> Action[None]:
        """What writes these changes into the open revision; with `corrected` after the transaction.

        `origin` gives what `tables.insert` takes. Raises `StoreWriteError`.
        """
        draft = self._of_block()
        rows = tables.rows_of(draft.key, draft.written, changes, self._packing)
        draft.written += len(changes)

        def action(database: sqlite3.Connection) -> None:
            self.correct(database)
            tables.insert(database, draft.number, draft.purpose, origin())
            tables.add_changes(database, rows)
            tables.sum_up(database, draft.key, probe)

        return action

    @contextmanager
    def staging(self) -> Iterator[StagedChanges]:
        """For changes that are staged within the block; those that no revision has adopted are deleted later."""
        with self._lock:
            self._lowest -= 1
            staged = StagedChanges(self._lowest)
            self._staged.add(staged.key)
        try:
            yield staged
        finally:
            self._staged.discard(staged.key)

    def stage(self, staged: StagedChanges, changes: Sequence[DocumentChange]) -> Action[None]:
        """What writes more staged changes, within a transaction. Raises `StoreWriteError`."""
        rows = tables.rows_of(staged.key, staged.count, changes, self._packing)
        staged.count += len(changes)
        staged.first = staged.first or next(iter(changes), None)
        return partial(tables.add_changes, rows=rows)

    def adopt(self, staged: StagedChanges, probe: tables.Probe, origin: Mapping[str, Any]) -> None:
        """Make staged changes those of the open revision, in a transaction. Raises `StoreError`."""
        draft = self._of_block()

        def action(database: sqlite3.Connection) -> None:
            self.correct(database)
            tables.insert(database, draft.number, draft.purpose, origin, staged.key)
            tables.sum_up(database, staged.key, probe)

        self._ledger.transact(action)
        self.corrected()
        draft.key, draft.written = staged.key, staged.count

    def made(self) -> None:
        """What was written into the open revision is made."""
        draft = self._of_block()
        draft.made = draft.written

    def refused(self, known: bool) -> None:
        """The last changes that were written are not made; unless this is `known`, a restart will show it."""
        draft = self._of_block()
        if known:
            self._corrections.append(partial(tables.take_back, key=draft.key, first=draft.made))
            draft.written = draft.made
        else:
            self._corrections.append(partial(tables.mark_undecided, key=draft.key))
            draft.undecided = True

    def correct(self, database: sqlite3.Connection) -> None:
        """Do what is to be done about refused changes, within a transaction; with `corrected` after it."""
        for each in self._corrections:
            each(database)

    def corrected(self) -> None:
        """The transaction is over."""
        self._corrections.clear()

    def _of_block(self) -> _Draft:
        if self._draft is None:
            raise RuntimeError("no revision is open")
        return self._draft

    def _close(self) -> None:
        """A revision that has come to nothing leaves its number to the next one."""
        draft, self._draft = self._of_block(), None
        if draft.undecided:
            self._last = draft.number
        elif draft.made:
            self._last = self.visible = draft.number

    # --- at the start and now and then ----------------------------------------------------------------------------

    def settle(self, stores: Mapping[str, Store]) -> None:
        """Remove the last revisions, if their changes were not made. Raises `StoreError`."""
        removed = self._ledger.transact(partial(tables.settle, stores=stores))
        if removed:
            log.warning("recorded revisions of the configuration that were not made are removed: %d", removed)
        self._last = self.visible = self._ledger.transact(tables.last_number)

    def add_empty(self, origin: Mapping[str, Any], above: int = 0) -> None:
        """Add a revision without changes, with a number above `above`: the history begins, or continues elsewhere."""
        number = max(self._last, above) + 1
        self._ledger.transact(partial(tables.insert, number=number, purpose=tables.NO_PURPOSE, origin=origin))
        self._last = self.visible = number

    def prune(self, limits: Limits, now: float) -> int:
        """Delete revisions beyond the limits, oldest first, but never the last; how many. Raises `StoreError`."""
        oldest = datetime.fromtimestamp(now, UTC) - timedelta(days=limits.days)
        removed = 0
        while key := self._ledger.transact(
            partial(tables.beyond, oldest=oldest, most=limits.revisions, size=limits.size, last=self.visible)
        ):
            self._delete(key)
            removed += 1
        while key := self._ledger.transact(partial(tables.orphan, staged=self._staged)):
            self._delete(key)
        return removed

    def _delete(self, key: int) -> None:
        while self._ledger.transact(partial(tables.delete_some, key=key)):
            pass
