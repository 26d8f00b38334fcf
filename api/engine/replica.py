"""The file of a node, as it takes what is committed: its own commits, and those of other nodes in the ledger.

What comes from the ledger has its numbers, revisions and entries of the audit trail already, and effects follow from it
as from a commit of this node. Those of this node are made in `api.engine.commit`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any
from uuid import UUID

from api.audit.trail import Row, Trail
from api.engine.effects import Effects
from api.engine.ledger import (
    Commit,
    Ledger,
    LedgerCommit,
    Stamped,
    UnsettledEntries,
    commits_of,
    forget_stamp,
    note_stamp,
    note_stamps,
    stamped,
)
from api.engine.loose import LooseObjects
from api.history.document_changes import DocumentChange
from api.history.recorder import RecordedRevision, Recorder
from api.store import Change, CommitRefused, Document, FleetStore, OutcomeUnknown, StoreError
from api.store.fleet_file import Confirm, last_number
from api.store.fleet_store import Key
from config.files.paths import DataDir
from config.files.secret_box import SecretBox

PART = 2**20
"""Bytes of commits of other nodes that are in memory at once."""
_LONG = ("accounts", "audit", "revisions", "revision_changes")
"""Tables that may have very many rows when everything is read for the first time."""


class ReplicaStore(FleetStore):
    """A `Store` that can follow a ledger. Without one it stands alone.

    `confirm` has a commit of this node's own appended to the ledger, within the transaction that writes it.
    """

    def __init__(self, data: DataDir, confirm: Confirm, seal: SecretBox | None, ledger: Ledger | None) -> None:
        """As `FleetStore`. Without a seal hashes of passwords and keys are not in the history."""
        super().__init__(data, confirm)
        self._ledger = ledger
        self._changing = threading.RLock()
        self._adopts = False
        self._outcomes: dict[int, bool] = {}
        self.history = Recorder(self.file, seal, lambda: None if self._ledger is None else self._ledger.node)
        try:
            self._unsettled = UnsettledEntries(data.unsettled)
            self.trail = Trail(self.file, unsettled=lambda: self._unsettled.entries)
            if self._unsettled.number <= self.file.last_number:
                self._unsettled.end()
            if ledger is None:
                self._forget_ledger()
        except BaseException:
            super().close()
            raise
        self.effects = Effects()
        self.loose = LooseObjects(self.file, self._write, self.revision_of, self.effects.settled)

    def changes(self, after: int) -> Iterator[Commit]:
        """The commits after this one, all of one moment, each read when it is asked for.

        Raises `HistoryPruned` when deletions since then are forgotten, and `StoreError`.
        """
        return commits_of(self.file.path, after)

    def adopt(self, *commits: Commit, stamp: UUID | None = None) -> None:
        """Take commits of other nodes: the same documents, history and audit trail, with their numbers.

        They are taken in one step, since a document that several have changed is in the last of them alone. `stamp` is
        that of the last one in the ledger. Raises `CommitRefused` unless they are those that follow the last of this
        file, and `StoreError`.
        """
        stamps = [None] * (len(commits) - 1) + [stamp]
        with self.effects.settled():
            self._adopt(zip(commits, stamps, strict=True) if commits else (), sum(each.size for each in commits), False)

    def catch_up(self, to: int | None = None) -> None:
        """Take what the ledger has more than this file. Nothing is asked for when it has the commit `to`.

        The ledger is waited for without a lock. All there is becomes one step, which is not in memory as a whole.
        """
        with self._changing:  # a commit that is under way
            ledger, (after, stamp) = self._ledger, self.stamped()
        if ledger is None or (to is not None and to <= after):
            return
        missing = iter(ledger.changes(after, stamp))
        first = next(missing, None)
        if first is None:
            return
        with self.effects.settled(), self._changing:
            if self._ledger is ledger:
                known = self.file.last_number
                self._adopt_from_ledger(each for each in chain([first], missing) if each.commit.number > known)

    @property
    def unsettled_number(self) -> int:
        """The number of this node's commit of which it is not known whether it was made; 0 for none."""
        return self._unsettled.number

    def read_anew(
        self, of: Stamped, to: Stamped, parts: Iterable[Commit], common: int | None, made: Collection[int] = ()
    ) -> None:
        """Take differences, in `parts`, that make this file what the ledger has at the commit `to`.

        `of` is where this file is, `common` the last commit that both have, if it is not that. What is the same isn't
        touched, and effects are made of differing bodies alone. Of the commits `made` it is known that this node
        has made them. Raises `CommitRefused` and `StoreError`.
        """
        with (
            self.effects.settled(),
            self._changing,
            self._adopting(),
            self.file.with_memory(),
            self.file.transaction() as database,
            self.file.filling(_LONG),
        ):
            if stamped(database) != of:
                raise CommitRefused("a commit was made while everything was read anew")
            unsettled = frozenset(self._unsettled.entries)
            settled: list[Row] = []
            if common is not None:
                self.history.forget_after(common)
            self.file.jump(to[0])
            relevant: list[DocumentChange] = []
            with self.anew(database, to[0]):
                for part in parts:
                    self._record(self.history.new_of(part.revisions), self.trail.new_of(part.audit, of_ledger=True))
                    settled += [each for each in part.audit if each in unsettled]
                    keys = [(each.collection, each.id) for each in part.documents]
                    before = {each: self.present(database, *each) for each in keys}
                    relevant += self._written(part.documents, before, differing=True)
            self._note_effects(relevant)
            if unsettled:
                self._settle(self._unsettled.number, [*unsettled] if self._unsettled.number in made else settled)
            forget_stamp(database)
            if to[1] is not None:
                note_stamp(database, to[0], to[1])

    def was_made(self, number: int) -> bool | None:
        """Whether a commit that ended with `OutcomeUnknown` was made; None while it is not known."""
        return self._outcomes.get(number)

    def settled_number(self) -> int:
        """The last commit, when its effects are made."""
        number = self.file.last_number
        self.effects.finish()
        return number

    def repeat_effects(self, change: DocumentChange) -> None:
        """Make what follows from a change once more, as the document is now. Raises what that raises."""
        with self.effects.settled(), self._changing:  # so that no later change is overtaken
            found = self.get(change.collection, change.id)
            self.effects.note([replace(change, after=None if found is None else found.body)])

    def follow_ledger(self, ledger: Ledger, stamp: UUID | None = None) -> None:
        """From now on this ledger has the last word. It has the last commit of this file, with this stamp.

        None is the stamp that is noted. Within `alone` no commit comes between. Raises `StoreError`.
        """
        with self._changing:
            if stamp is not None:
                with self.file.transaction() as database:
                    note_stamp(database, last_number(database), stamp)
            self._ledger = ledger

    def stand_alone(self, decided: Callable[[], object] = lambda: None) -> None:
        """From now on the transaction of the file is all there is to a commit. Raises `StoreError`.

        `decided` makes that lasting, between two commits. One of which it is not known whether it was made is none.
        """
        with self._changing:
            decided()
            self._ledger = None
            self.loose.stand_alone()
            self.trail.follow_clock(time.time)
            self._forget_ledger()

    def _forget_ledger(self) -> None:
        with self.file.reading() as database:
            if self._unsettled.number == 0 and stamped(database)[1] is None:
                return
        with self.file.transaction() as database:
            self._settle(self._unsettled.number, ())
            forget_stamp(database)

    def _adopt_from_ledger(self, commits: Iterable[LedgerCommit], size: int = 0) -> None:
        """What a power cut undoes is taken again: so the lock of the fleet is not held while a disk syncs."""
        self._adopt(((each.commit, each.stamp) for each in commits), size, of_ledger=True)

    def _adopt(self, commits: Iterable[tuple[Commit, UUID | None]], size: int, of_ledger: bool) -> None:
        """See `adopt`. Changes that no effect wants are not remembered until the end of the transaction."""
        with self._changing, self._adopting(), self.file.transaction(size, synced=not of_ledger) as database:
            for part in _parts(commits):
                changes: dict[Key, Change] = {}
                note_stamps(database, {each.number: stamp for each, stamp in part if stamp is not None})
                for each, _ in part:
                    following = self.file.next_number()
                    if each.number != following:
                        raise CommitRefused(f"the commit {each.number} does not follow the last one, {following - 1}")
                    self._record(self.history.new_of(each.revisions), self.trail.new_of(each.audit, of_ledger))
                    self._settle(each.number, each.audit)
                    for change in each.documents:
                        changes.pop((change.collection, change.id), None)
                        changes[change.collection, change.id] = change
                ended = [one for each in changes.values() for one in self.loose.ended_by(database, self, each)]
                changes = {(each.collection, each.id): each for each in ended} | changes
                self._write([*changes.values()], {each: self.present(database, *each) for each in changes})

    def _record(self, revisions: Sequence[RecordedRevision], audit: Sequence[Row]) -> None:
        """What is recorded of a commit, within its transaction."""
        if audit:
            self.trail.insert(audit)
        self.history.insert(revisions)

    def _write(self, changes: Sequence[Change], before: Mapping[Key, Document | None]) -> None:
        """Write it, within the transaction that has the numbers. `before` is what is there now."""
        self._note_effects(self._written(changes, before))

    def _written(
        self, changes: Sequence[Change], before: Mapping[Key, Document | None], differing: bool = False
    ) -> list[DocumentChange]:
        """The one way into the file; those of which there are effects.

        With `differing` there are none of a document that stays the same.
        """
        self.take(changes)
        known = [before[each.collection, each.id] for each in changes]
        changed = [
            DocumentChange(each.collection, each.id, None if was is None else was.body, each.body)
            for each, was in zip(changes, known, strict=True)
            if was is None or was.body != each.body or not differing
        ]
        return self.effects.relevant(changed)

    def _note_effects(self, changes: Sequence[DocumentChange]) -> None:
        """When all is there from which they follow."""
        if changes:
            self.file.after(lambda: self.effects.note(changes))

    def close(self) -> None:
        """See `Store.close`."""
        self.trail.close()
        super().close()

    def stamped(self) -> Stamped:
        """The last commit of this file, and its stamp if it is in a ledger."""
        with self.file.reading() as database:
            return stamped(database)

    @contextmanager
    def _adopting(self) -> Iterator[None]:
        self._adopts = True
        try:
            yield
        finally:
            self._adopts = False

    def _settle(self, number: int, audit: Sequence[Row]) -> None:
        """The commit with this number has these entries, within a transaction: now it is known whether it is ours."""
        if not self._unsettled.number or number != self._unsettled.number:
            return
        entries = self._unsettled.entries
        is_made = entries[-1][0] in {seq for seq, _, _ in audit}
        self.file.after(self._unsettled.end)
        self.file.after(lambda: self._outcomes.update({number: is_made}))
        if not is_made:
            self.trail.insert(self.trail.rows_of([_not_made(json.loads(content)) for _, content, _ in entries]))


def _parts(commits: Iterable[tuple[Commit, UUID | None]]) -> Iterator[list[tuple[Commit, UUID | None]]]:
    """As many at once as come to `PART` bytes."""
    part, size = [], 0
    for each in commits:
        part.append(each)
        size += each[0].size
        if size >= PART:
            yield part
            part, size = [], 0
    if part:
        yield part


def failed(error: StoreError, row: Mapping[str, Any]) -> dict[str, Any]:
    """What an entry of the audit trail says of a change that this error refused."""
    return {"outcome": "failed", "details": {**(row.get("details") or {}), "error": type(error).__name__}}


def _not_made(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What an entry says of the same change when it is known that it was not made."""
    same = {name: value for name, value in entry.items() if name not in ("seq", "timestamp", "before", "after")}
    return {**same, **failed(OutcomeUnknown(), entry)}
