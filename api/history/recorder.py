"""Writing revisions, each within the transaction of its changes."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from api.history.document_changes import DocumentChange, Packing, kind_of
from api.store import CommitRefused
from api.store.accounts.staging import ChangeRow
from api.store.fleet_file import FleetFile
from config.files.secret_box import SecretBox

log = logging.getLogger(__name__)

PRUNED_AT_ONCE = 500
"""Changes that one transaction deletes, so that no change of the configuration waits for long."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What is kept: days, revisions, and bytes of bodies."""

    days: int = 90
    revisions: int = 10_000
    size: int = 2**30


STORED = "number, timestamp, author, restored, undone, created, updated, deleted, kinds, size"
"""The columns of a revision, without those that are computed."""


class RecordedRevision(NamedTuple):
    """A revision as it is stored: its row, with the columns of `STORED`, and its changes in their order.

    Changes that are too many for memory are read each time that they are iterated over.
    """

    row: tuple[Any, ...]
    changes: Iterable[ChangeRow]


class Purpose(NamedTuple):
    """What a revision is for, if it takes back others: whose state it restores, or which one it undoes."""

    restored: int | None = None
    undone: int | None = None


NO_PURPOSE = Purpose()


class Recorder:
    """Writes revisions. Thread-safe. Raises `StoreError`."""

    def __init__(self, file: FleetFile, seal: SecretBox | None, node: Callable[[], str | None] = lambda: None) -> None:
        """Without a seal hashes of passwords and keys are not recorded. `node` is the id of this one in a fleet."""
        self._file = file
        self._node = node
        self._packing = Packing(seal)

    def rows_of(self, changes: Iterable[DocumentChange]) -> list[ChangeRow]:
        """Changes as they are stored."""
        return [
            (
                *(each.collection, each.id, each.name, json.dumps(each.fields)),
                *(self._packing.pack(each.before), self._packing.pack(each.after)),
            )
            for each in changes
        ]

    def revision_of(
        self, changes: Iterable[DocumentChange], purpose: Purpose, origin: Mapping[str, Any]
    ) -> RecordedRevision:
        """These changes as the next revision, for `insert` in the same transaction.

        `origin` has `timestamp`, and what is known of the author.
        """
        return self.revision_with(tuple(self.rows_of(changes)), purpose, origin)

    def revision_with(
        self, rows: Iterable[ChangeRow], purpose: Purpose, origin: Mapping[str, Any], above: int = 0
    ) -> RecordedRevision:
        """As `revision_of`, with these changes as they are stored; its number is above `above`."""
        created = updated = deleted = size = 0
        collections: dict[str, None] = {}
        for collection, *_, before, after in rows:
            created += before is None
            deleted += after is None
            updated += before is not None and after is not None
            size += len(before or b"") + len(after or b"")
            collections[collection] = None
        with self._file.reading() as database:
            number = max(newest_revision(database), above) + 1
        by_whom = origin["timestamp"], self._author(origin), purpose.restored, purpose.undone or 0
        return RecordedRevision((number, *by_whom, created, updated, deleted, _kinds(collections), size), rows)

    def next_of(self, revision: RecordedRevision) -> RecordedRevision:
        """The same as the next revision, since others have come before it."""
        with self._file.reading() as database:
            return revision._replace(row=(newest_revision(database) + 1, *revision.row[1:]))

    def insert(self, revisions: Sequence[RecordedRevision]) -> None:
        """Add revisions, within the transaction of their commit."""
        if not revisions:
            return
        with self._file.transaction() as database:
            for row, changes in revisions:
                sql = f"INSERT INTO revisions ({STORED}, commit_number) VALUES (?{', ?' * len(row)})"  # noqa: S608 - names of ours
                database.execute(sql, [*row, self._file.upcoming()])
                database.executemany(
                    "INSERT INTO revision_changes VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    ((row[0], place, *change) for place, change in enumerate(changes)),
                )

    def add_empty(self, origin: Mapping[str, Any], above: int = 0) -> None:
        """Add a revision without changes, with a number above `above`: the history begins, or continues elsewhere."""
        with self._file.transaction():
            self.insert([self.revision_with((), NO_PURPOSE, origin, above)])

    def prune(self, limits: Limits, now: float) -> int:
        """Delete revisions beyond the limits, oldest first, but never the last; how many."""
        oldest = datetime.fromtimestamp(now, UTC) - timedelta(days=limits.days)
        removed = 0
        self._delete(0)  # what a kill has left
        while number := self._beyond(oldest, limits):
            self._delete(number)
            removed += 1
        return removed

    def new_of(self, revisions: Sequence[RecordedRevision]) -> tuple[RecordedRevision, ...]:
        """The revisions of another file that are to be inserted here, within a transaction. Raises `CommitRefused`.

        Those that are there already, since one file is a copy of the other, are left alone.
        """
        fresh = []
        with self._file.reading() as database:
            newest = newest_revision(database)
            for each in revisions:
                number = each.row[0]
                known = database.execute(f"SELECT {STORED} FROM revisions WHERE number = ?", [number])  # noqa: S608 - as above
                if known.fetchone() == each.row:
                    continue
                if number <= newest:
                    raise CommitRefused(f"the revision {number} is there already: the last one is {newest}")
                if newest and number > newest + 1:
                    log.warning(
                        "the revisions between %d and %d are missing: deleted, or removed by hand", newest, number
                    )
                newest = number
                fresh.append(each)
        return tuple(fresh)

    def forget_after(self, commit: int) -> None:
        """Delete the revisions of later commits, which were not made, within a transaction."""
        with self._file.transaction() as database:
            where = "number IN (SELECT number FROM revisions WHERE commit_number > ?)"
            database.execute(f"DELETE FROM revision_changes WHERE {where}", [commit])  # noqa: S608 - ours
            database.execute("DELETE FROM revisions WHERE commit_number > ?", [commit])

    def sealed(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A body as people may keep it: its hashes are sealed, other secrets are already."""
        return self._packing.sealed(body)

    def _author(self, origin: Mapping[str, Any]) -> str:
        node = self._node()
        of_fleet = {} if node is None else {"node": node}
        return json.dumps({**{name: value for name, value in origin.items() if name != "timestamp"}, **of_fleet})

    def _beyond(self, oldest: datetime, limits: Limits) -> int | None:
        """The first revision, if it is too old, or there are too many, or too many bytes, and it is not the last."""
        with self._file.reading() as database:
            row = database.execute("SELECT number, timestamp FROM revisions ORDER BY number LIMIT 1").fetchone()
            if row is None or row[0] >= newest_revision(database):
                return None
            count, total = database.execute("SELECT count(*), total(size) FROM revisions").fetchone()
        old = datetime.fromisoformat(row[1]) < oldest
        return int(row[0]) if old or count > limits.revisions or total > limits.size else None

    def _delete(self, number: int) -> None:
        """Delete a revision, then the changes of those that were deleted: so none is undone in part."""
        deleted = PRUNED_AT_ONCE
        while deleted == PRUNED_AT_ONCE:
            with self._file.transaction() as database:
                database.execute("DELETE FROM revisions WHERE number = ?", [number])
                deleted = database.execute(
                    "DELETE FROM revision_changes WHERE (number, place) IN"
                    " (SELECT number, place FROM revision_changes"
                    " WHERE number < (SELECT min(number) FROM revisions) LIMIT ?)",
                    [PRUNED_AT_ONCE],
                ).rowcount


def newest_revision(database: sqlite3.Connection) -> int:
    """The number of the last revision, 0 for none; also of a damaged file, as far as it can be read."""
    with suppress(ValueError):
        return int(database.execute("SELECT max(number) FROM revisions").fetchone()[0] or 0)
    return 0


def _kinds(collections: Iterable[str]) -> str:
    return f",{''.join(f'{kind_of(each)},' for each in collections)}"
