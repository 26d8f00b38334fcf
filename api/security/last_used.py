"""When API keys were used last, and when users signed in last: that is no change of them, so no revision moves."""

from __future__ import annotations

import threading
from contextlib import suppress

from api.store import FleetStore, StoreWriteError


class LastUsed:
    """When documents of a collection were used last, stored at most once in `step` seconds for each. Thread-safe."""

    def __init__(self, store: FleetStore, collection: str, step: float = 0.0) -> None:
        self._store = store
        self._collection = collection
        self._step = step
        self._lock = threading.Lock()
        self._known = store.last_used(collection)
        store.follow_uses(collection, self._used_elsewhere)

    def touch(self, identifier: str, now: float) -> None:
        """It was used now (Unix seconds). A full disk costs only the update of this."""
        with self._lock:
            if now - self._known.get(identifier, 0.0) < self._step:
                return
            if identifier not in self._known:
                self._known = {each: at for each, at in self._known.items() if self._is_there(each)}
            self._known[identifier] = now
        with suppress(StoreWriteError):  # the request itself needs no write
            self._store.note_use(self._collection, identifier, now)

    def of(self, identifier: str) -> float | None:
        """When it was used last; None if it never was."""
        return self._known.get(identifier)

    def _used_elsewhere(self, identifier: str, at: float) -> None:
        with self._lock:
            self._known[identifier] = at

    def _is_there(self, identifier: str) -> bool:
        return bool(self._store.revision_of(self._collection, identifier))
