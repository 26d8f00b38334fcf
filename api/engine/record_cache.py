"""All documents of a collection, parsed once for each revision and updated with the store's changes.

A record is made anew when its document has a new revision, so whatever is derived from one stays right.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

from api.store import Document, HistoryPruned, Store

EVERYTHING = -1
"""A step before the first."""


class Record(Protocol):
    """What the cache needs of a record."""

    @property
    def record(self) -> Any:
        """The model, with `id`, `created_at` and the field that has its name."""
        ...


S = TypeVar("S", bound=Record)


class RecordCache(Generic[S]):
    """The records of a collection, as `load` makes them. Thread-safe; the next read has a change of the store."""

    def __init__(self, store: Store, collection: str, load: Callable[[Document], S], identity: str = "name") -> None:
        """`identity` is the field that has the name."""
        self._store = store
        self._collection = collection
        self._load = load
        self._name_of: Callable[[Any], str] = attrgetter(identity)
        self._lock = threading.Lock()
        self._seen = EVERYTHING
        self._known: dict[str, S] = {}
        self._ids: dict[str, str] = {}
        self._ordered: Sequence[S] = ()
        self._youngest = (0.0, "")
        self._in_order = True

    def all(self) -> Sequence[S]:
        """All of them, oldest first."""
        self._update()
        return self._ordered

    def get(self, identifier: str) -> S | None:
        """The one with this id."""
        self._update()
        return self._known.get(identifier)

    def named(self, name: str) -> str | None:
        """The id of the one with this name."""
        self._update()
        return self._ids.get(name)

    def _update(self) -> None:
        if self._store.revision == self._seen:
            return
        with self._lock:
            now = self._store.revision
            if now > self._seen:
                self._apply_changes()
                self._seen = now

    def _apply_changes(self) -> None:
        try:
            changes = self._store.changed(self._seen, self._collection)
        except HistoryPruned:
            self._read_all()
            return
        for change in changes:
            self._alter(change.id, change.body, change.revision)
        if changes:
            self._order()

    def _read_all(self) -> None:
        self._known, self._ids = {}, {}
        for document in self._store.every(self._collection):
            self._alter(document.id, document.body, document.revision)
        self._order()

    def _alter(self, identifier: str, body: dict[str, Any] | None, revision: int) -> None:
        before = self._known.get(identifier)
        if before is not None and self._ids.get(self._name_of(before.record)) == identifier:
            del self._ids[self._name_of(before.record)]
        if body is None:
            self._known.pop(identifier, None)
            return
        self._known[identifier] = after = self._load(Document(identifier, revision, body))
        self._ids[self._name_of(after.record)] = identifier
        if before is None:
            self._in_order = self._in_order and _age(after) >= self._youngest
            self._youngest = max(self._youngest, _age(after))

    def _order(self) -> None:
        """Sort if need be; as a rule a changed record keeps its place in the dict, and a new one is the youngest."""
        if not self._in_order:
            self._known = {each.record.id: each for each in sorted(self._known.values(), key=_age)}
            self._in_order = True
        self._ordered = list(self._known.values())


def _age(stored: Record) -> tuple[float, str]:
    return stored.record.created_at, stored.record.id
