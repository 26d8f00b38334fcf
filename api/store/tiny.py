"""The documents of most collections: TinyDB on rows of the file (`api.store.rows`), one writer.

Writers go through TinyDB's tables within a transaction of the file; readers use a `View` of what is durable, and never
wait for a writer. The oldest deletions are forgotten when there are too many of them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from api.store.fleet_file import FleetFile
from api.store.interface import (
    Change,
    Document,
    NotStored,
    Predicate,
    RevisionConflict,
    StoreDamaged,
    Write,
)
from api.store.rows import RowDatabase, RowStorage, RowTable, shared_parts, text_of
from api.store.view import Body, View

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
        return None if found is None else Document(identifier, found[0], _copy(found[1]))

    def revision_of(self, collection: str, identifier: str) -> int:
        """See `Store.revision_of`."""
        found = self._view.get(collection, identifier)
        return 0 if found is None else found[0]

    def find(self, collection: str, where: Predicate | None = None, **fields: Any) -> list[Document]:
        """See `Store.find`."""

        def matches(body: Body) -> bool:
            return all(body.get(name) == value for name, value in fields.items()) and (where is None or where(body))

        found = [each for each in self._view.all(collection) if matches(each[1][1])]
        documents = [Document(identifier, revision, _copy(body)) for identifier, (revision, body) in found]
        return sorted(documents, key=lambda document: document.revision)

    def every(self, collection: str) -> list[Document]:
        """See `Store.every`."""
        found = self._view.all(collection)
        return [Document(identifier, revision, dict(body)) for identifier, (revision, body) in found]

    def put(self, collection: str, document: Mapping[str, Any], expect: int | None = None) -> Document:
        """See `Store.put`."""
        body = _copy(dict(document))
        revision = self.commit([Write(collection, body["id"], body, expect)])
        return Document(body["id"], revision, body)

    def delete(self, collection: str, identifier: str, expect: int | None = None) -> int:
        """See `Store.delete`."""
        return self.commit([Write(collection, identifier, None, expect)])

    def commit(self, writes: Sequence[Write]) -> int:
        """See `Store.commit`."""
        copies = [None if each.body is None else _copy(dict(each.body)) for each in writes]
        size = sum(len(text_of(each)) for each in copies if each is not None)
        with self.file.transaction(size) as database:
            first = not _steps(database)[0]
            self._refuse(database, writes)
            number = self.file.number()
            for each in zip(writes, copies, strict=True):
                self._write(*each)
            changes = [
                Change(each.collection, each.id, number, cast("Any", body))
                for each, body in zip(writes, copies, strict=True)
            ]
            gone = _prune(database) if None in copies else []
            (_, horizon) = _steps(database)
            self.file.after(lambda: self._show(changes, gone, horizon))
            if first:
                self.file.after(self.file.bring_in)  # without its log the file is no new one any more
        return number

    @staticmethod
    def _refuse(database: sqlite3.Connection, writes: Sequence[Write]) -> None:
        """Raise what stands against these writes, one after the other."""
        there: dict[tuple[str, str], bool] = {}
        for each in writes:
            key = each.collection, each.id
            row = database.execute("SELECT revision FROM documents WHERE collection = ? AND id = ?", key).fetchone()
            known = row[0] if row else 0
            if each.expect is not None and known != each.expect:
                raise RevisionConflict(*key, each.expect, known)
            if each.body is None and not there.get(key, bool(known)):
                raise NotStored(*key)
            there[key] = each.body is not None

    def changes(self, since: int) -> list[Change]:
        """See `Store.changes`."""
        return [replace(change, body=_copy(change.body)) for change in self._view.changes(since)]

    def wait(self, since: int, timeout: float) -> int:
        """See `Store.wait`."""
        return self._view.wait(since, timeout)

    def _write(self, write: Write, body: Body | None) -> None:
        table = cast("RowTable", self.database.table(write.collection))
        if body is None:
            table.remove(doc_ids=[write.id])  # type: ignore[list-item]  # ids are texts here
        else:
            table.put(write.id, body)

    def _show(self, changes: Sequence[Change], gone: Sequence[tuple[str, str]], horizon: int) -> None:
        self._view.step(*changes)
        if gone:
            self._view.forget(gone, horizon)


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


def _copy(value: Any) -> Any:
    """A copy of a JSON-like value that shares nothing that can be altered."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copy(item) for item in value]
    return value
