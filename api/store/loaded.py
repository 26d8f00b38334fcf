"""Documents as objects: made once for each revision, since most requests need the same few users and keys; compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from pydantic import BaseModel

from api.store.interface import Document, Store

T = TypeVar("T")

_BOOKKEEPING = {"updated_at"}

REMEMBERED = 1_000
"""Objects of a store, also deleted ones, each up to 2 KB; with more of them all are forgotten, which costs no more than
a moment's work."""


class Loaded(Generic[T]):
    """The documents of one collection, as `load` makes them. Thread-safe.

    Many requests get the same object, which must not be altered. The store is asked for the revision each time, so the
    next request sees a change or a deletion.
    """

    def __init__(self, collection: str, load: Callable[[Document], T]) -> None:
        self._collection = collection
        self._load = load
        self._known: WeakKeyDictionary[Store, dict[str, tuple[int, T]]] = WeakKeyDictionary()

    def get(self, store: Store, identifier: str) -> T | None:
        """The object of this document, or None."""
        known = self._known.setdefault(store, {})
        found = known.get(identifier)
        if found is not None and found[0] == store.revision_of(self._collection, identifier):
            return found[1]
        document = store.get(self._collection, identifier)
        if document is None:
            known.pop(identifier, None)
            return None
        if len(known) >= REMEMBERED:
            known.clear()
        loaded = self._load(document)
        known[identifier] = (document.revision, loaded)
        return loaded


def is_same(before: BaseModel, after: BaseModel) -> bool:
    """Whether two records of one document differ in nothing but the time of the change.

    Such a change is none: the document keeps its revision (its ETag) and `updated_at`, and no event is published.
    """
    return before.model_dump(mode="json", exclude=_BOOKKEEPING) == after.model_dump(mode="json", exclude=_BOOKKEEPING)
