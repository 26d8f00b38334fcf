"""All stored proxies, read once and updated with the store's changes, so that requests parse no documents.

A `StoredProxy` is made anew when its document has a new revision, so whatever is derived from one stays right.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from api.store import Document, HistoryPruned, Store
from config.model.proxies import ProxyRecord

COLLECTION = "proxies"
EVERYTHING = -1
"""A step before the first."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredProxy:
    """A record and its revision. Requests share it, so it must not be altered.

    `backend_secret` is that of `auth.backend` where a change has just set it.
    """

    record: ProxyRecord
    revision: int
    _made: dict[Callable[[StoredProxy], Any], Any] = field(default_factory=dict, compare=False, repr=False)
    backend_secret: str | None = field(default=None, compare=False, repr=False)

    def once(self, make: Callable[[StoredProxy], T]) -> T:
        """The result of the function `make`, computed at the first call and shared as the record is."""
        made: T = self._made.get(make) or self._made.setdefault(make, make(self))
        return made


def load(document: Document) -> StoredProxy:
    """The proxy in a document."""
    return StoredProxy(ProxyRecord.model_validate(document.body), document.revision)


class ProxyCache:
    """The proxies of a store. Thread-safe; a change is visible as soon as the store has it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._seen = EVERYTHING
        self._known: dict[str, StoredProxy] = {}
        self._ids: dict[str, str] = {}
        self._ordered: Sequence[StoredProxy] = ()
        self._youngest = (0.0, "")
        self._in_order = True

    def all(self) -> Sequence[StoredProxy]:
        """All proxies, oldest first."""
        self._update()
        return self._ordered

    def get(self, proxy_id: str) -> StoredProxy | None:
        """The proxy with this id."""
        self._update()
        return self._known.get(proxy_id)

    def named(self, name: str) -> str | None:
        """The id of the proxy with this name."""
        self._update()
        return self._ids.get(name)

    def _update(self) -> None:
        if self._store.revision == self._seen:
            return
        with self._lock:
            now = self._store.revision
            if now > self._seen:
                self._seen = max(now, self._apply_changes())

    def _apply_changes(self) -> int:
        """The last step that was applied, 0 when that is not known."""
        try:
            changes = self._store.changes(self._seen)
        except HistoryPruned:
            self._read_all()
            return 0
        mine = [change for change in changes if change.collection == COLLECTION]
        for change in mine:
            self._alter(change.id, change.body, change.revision)
        if mine:
            self._order()
        return changes[-1].revision if changes else 0

    def _read_all(self) -> None:
        self._known, self._ids = {}, {}
        for document in self._store.find(COLLECTION):
            self._alter(document.id, document.body, document.revision)
        self._order()

    def _alter(self, proxy_id: str, body: dict[str, Any] | None, revision: int) -> None:
        before = self._known.get(proxy_id)
        if before is not None and self._ids.get(before.record.name) == proxy_id:
            del self._ids[before.record.name]
        if body is None:
            self._known.pop(proxy_id, None)
            return
        self._known[proxy_id] = after = load(Document(proxy_id, revision, body))
        self._ids[after.record.name] = proxy_id
        if before is None:
            self._in_order = self._in_order and _age(after) >= self._youngest
            self._youngest = max(self._youngest, _age(after))

    def _order(self) -> None:
        """Sort if need be; as a rule a changed proxy keeps its place in the dict, and a new one is the youngest."""
        if not self._in_order:
            self._known = {proxy.record.id: proxy for proxy in sorted(self._known.values(), key=_age)}
            self._in_order = True
        self._ordered = list(self._known.values())


def _age(proxy: StoredProxy) -> tuple[float, str]:
    return proxy.record.created_at, proxy.record.id
