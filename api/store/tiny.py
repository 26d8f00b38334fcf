"""The documents of most collections: TinyDB on rows of the file (`api.store.rows`), one writer.

Writers go through TinyDB's storage within a transaction of the file; readers use a `View` of what is durable, and never
wait for a writer. The oldest deletions are forgotten when there are too many of them.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from api.store.fleet_file import FleetFile
from api.store.interface import (
    Change,
    Document,
    HistoryPruned,
    Predicate,
    StoreDamaged,
)
from api.store.rows import RowDatabase, RowStorage, shared_parts, text_of

Body = Mapping[str, Any]
TOMBSTONES_KEPT = 1_000
"""Deletions that are remembered at least."""


class TinyStore:
    """The `Store` of these collections."""

    def __init__(self, file: FleetFile) -> None:
        """Read all documents. Raises `StoreError`."""
        self.file = file
        self.database = RowDatabase(storage=lambda: RowStorage(file.database, file.transaction, file.number))
        with file.reading() as database:
            self._view = View(_everything(database), *_steps(database))

    @property
    def revision(self) -> int:
        """The number of the last commit that changed one of them."""
        return self._view.revision

    def get(self, collection: str, identifier: str) -> Document | None:
        """See `Store.get`."""
        found = self._view.get(collection, identifier)
        return None if found is None else Document(identifier, found[0], copied(found[1]))

    def revision_of(self, collection: str, identifier: str) -> int:
        """See `Store.revision_of`."""
        found = self._view.get(collection, identifier)
        return 0 if found is None else found[0]

    def find(self, collection: str, where: Predicate | None = None, **fields: Any) -> list[Document]:
        """See `Store.find`."""

        def matches(body: Body) -> bool:
            return all(body.get(name) == value for name, value in fields.items()) and (where is None or where(body))

        found = [each for each in self._view.all(collection) if matches(each[1][1])]
        documents = [Document(identifier, revision, copied(body)) for identifier, (revision, body) in found]
        return sorted(documents, key=lambda document: document.revision)

    def every(self, collection: str) -> list[Document]:
        """See `Store.every`."""
        found = self._view.all(collection)
        return [Document(identifier, revision, dict(body)) for identifier, (revision, body) in found]

    def take(self, changes: Sequence[Change]) -> None:
        """Make these changes, within the transaction with their numbers. Their bodies are the store's from now on."""
        storage = cast("RowStorage", self.database.storage)
        with self.file.transaction() as database:
            first = changes[0].revision == 1
            for each in changes:
                texts = [] if each.body is None else [(each.id, text_of(each.body))]
                storage.change(each.collection, texts, [] if texts else [each.id], each.revision)
            gone = _prune(database) if any(each.body is None for each in changes) else []
            (_, horizon) = _steps(database)
            self.file.after(lambda: self._show(changes, gone, horizon))
            if first:
                self.file.after(self.file.bring_in)  # without its log the file is no new one any more

    def leave_order(self) -> None:
        """Until `begin_anew` changes are no steps: followers know of none of them before all are there."""
        self._view.leave_order()

    def begin_anew(self, number: int) -> None:
        """The file is at this commit, which is durable, and its followers read everything."""
        self._view.begin_anew(number)

    def changed(self, since: int, collection: str | None = None) -> list[Change]:
        """See `Store.changed`."""
        return [replace(change, body=copied(change.body)) for change in self._view.changes(since, collection)]

    def _show(self, changes: Sequence[Change], gone: Sequence[tuple[str, str]], horizon: int) -> None:
        self._view.step(*changes)
        if gone:
            self._view.forget(gone, horizon)


class View:
    """The documents by collection as of the last durable step. One writer at a time; readers in any thread.

    Readers take no lock, so that only writers wait for the disk: they read dicts that change by one entry at a time,
    after that entry is durable. Followers take a short lock that is never held during I/O. Bodies are the store's own
    and are not altered by anybody.
    """

    def __init__(self, changes: Iterable[Change], revision: int, horizon: int) -> None:
        """`changes` are the last of each document, in any order; deletions up to `horizon` are not among them."""
        self.revision = revision
        self._live: defaultdict[str, dict[str, tuple[int, Body]]] = defaultdict(dict)
        self._last: dict[tuple[str, str], int] = {}
        self._horizon = horizon
        self._is_in_order = True
        self._stepping = threading.Lock()
        for change in sorted(changes, key=lambda each: each.revision):
            self._show(change)

    def get(self, collection: str, identifier: str) -> tuple[int, Body] | None:
        """Revision and body of a document."""
        return self._live[collection].get(identifier)

    def all(self, collection: str) -> list[tuple[str, tuple[int, Body]]]:
        """All documents of a collection, in no order."""
        return list(self._live[collection].items())  # in one go, whatever the writer does

    def changes(self, since: int, collection: str | None = None) -> list[Change]:
        """What changed after step `since`, of this collection or of all, in order, each document once.

        Raises `HistoryPruned`.
        """
        with self._stepping:
            if since < self._horizon:
                raise HistoryPruned(self._horizon)
            found = reversed(self._newest_first(since))
            return [self._change(*each) for each in found if collection in (None, each[0])]

    def step(self, *changes: Change) -> None:
        """These are durable: show them. Followers see all of them or none."""
        with self._stepping:
            for change in changes:
                self._show(change)
                if self._is_in_order:
                    self.revision = max(self.revision, change.revision)

    def leave_order(self) -> None:
        """The changes up to `begin_anew` lead to one state together, and have revisions of any order."""
        with self._stepping:
            self._is_in_order = False

    def begin_anew(self, number: int) -> None:
        """No step leads to what is there now, which has this number."""
        with self._stepping:
            self._last = {which: step for which, step in self._last.items() if which[1] in self._live[which[0]]}
            self._horizon = self.revision = number
            self._is_in_order = True

    def forget(self, deleted: Iterable[tuple[str, str]], horizon: int) -> None:
        """These deletions, all up to step `horizon`, are not known any more."""
        with self._stepping:
            self._horizon = max(self._horizon, horizon)
            for which in deleted:  # it may have been put back since, and deleted again
                if which[1] not in self._live[which[0]] and self._last.get(which, horizon + 1) <= horizon:
                    self._last.pop(which)

    def _show(self, change: Change) -> None:
        which = change.collection, change.id
        self._last.pop(which, None)
        if change.revision > 0:  # else it is in no order, and nothing follows it
            self._last[which] = change.revision  # at the end: the order is that of the steps
        live = self._live[change.collection]
        if change.body is None:
            live.pop(change.id, None)
        else:
            live[change.id] = (change.revision, change.body)

    def _newest_first(self, since: int) -> list[tuple[str, str, int]]:
        newest = []
        for (collection, identifier), revision in reversed(self._last.items()):
            if revision <= since:
                break
            newest.append((collection, identifier, revision))
        return newest

    def _change(self, collection: str, identifier: str, revision: int) -> Change:
        found = self._live[collection].get(identifier)
        return Change(collection, identifier, revision, dict(found[1]) if found else None)


def _everything(database: sqlite3.Connection) -> Iterator[Change]:
    hook = shared_parts()
    for collection, identifier, revision, body in database.execute(
        "SELECT collection, id, revision, body FROM documents UNION ALL"
        " SELECT collection, id, revision, NULL FROM deleted ORDER BY 3"
    ):
        yield Change(collection, identifier, revision, None if body is None else _read(identifier, body, hook))


def _read(identifier: str, text: str, hook: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """A body as it is stored. Raises `StoreDamaged` for what is no document, as in a file that others have made."""
    try:
        body = json.loads(text, object_hook=hook)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreDamaged(f"fleet.sqlite: {identifier!r} isn't JSON: {error}") from error
    if not isinstance(body, dict):
        raise StoreDamaged(f"fleet.sqlite: {identifier!r} is no document")
    return body


def _steps(database: sqlite3.Connection) -> tuple[int, int]:
    """The number of the last commit, and up to which one deletions are forgotten."""
    revision, horizon = database.execute("SELECT revision, horizon FROM steps").fetchone()
    return int(revision), int(horizon)


def _prune(database: sqlite3.Connection) -> list[tuple[str, str]]:
    """Forget the older half of the deletions, if there are too many; which they are."""
    (count,) = database.execute("SELECT count(*) FROM deleted").fetchone()
    if count < 2 * TOMBSTONES_KEPT:
        return []
    (horizon,) = database.execute(
        "SELECT revision FROM deleted ORDER BY revision LIMIT 1 OFFSET ?", [count - TOMBSTONES_KEPT - 1]
    ).fetchone()
    rows = database.execute("SELECT collection, id FROM deleted WHERE revision <= ?", [horizon]).fetchall()
    database.execute("DELETE FROM deleted WHERE revision <= ?", [horizon])
    database.execute("UPDATE steps SET horizon = ?", [horizon])
    return rows


_NESTING = (dict, list, tuple)


def copied(value: Any) -> Any:
    """A copy of a JSON-like value that shares nothing that can be altered."""
    if isinstance(value, dict):
        return {key: copied(item) if isinstance(item, _NESTING) else item for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, (list, tuple)) else value
