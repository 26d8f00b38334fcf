"""The documents as of the last durable step, for readers.

Readers take no lock, so that only writers wait for the disk: they read dicts that change by one entry at a time, after
that entry is durable. Followers take a short lock that is never held during I/O.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from api.store.interface import Change, HistoryPruned

Body = Mapping[str, Any]


class View:
    """The documents by collection. One writer at a time; readers and followers in any thread.

    Bodies are the store's own and are not altered by anybody.
    """

    def __init__(self, changes: Iterable[Change], revision: int, horizon: int) -> None:
        """`changes` are the last of each document, in any order; deletions up to `horizon` are not among them."""
        self.revision = revision
        self._live: defaultdict[str, dict[str, tuple[int, Body]]] = defaultdict(dict)
        self._last: dict[tuple[str, str], int] = {}
        self._horizon = horizon
        self._stepped = threading.Condition()
        for change in sorted(changes, key=lambda each: each.revision):
            self._show(change)

    # --- readers ---

    def get(self, collection: str, identifier: str) -> tuple[int, Body] | None:
        """Revision and body of a document."""
        return self._live[collection].get(identifier)

    def all(self, collection: str) -> list[tuple[str, tuple[int, Body]]]:
        """All documents of a collection, in no order."""
        return list(self._live[collection].items())  # in one go, whatever the writer does

    # --- followers ---

    def changes(self, since: int) -> list[Change]:
        """What changed after step `since`, in order, each document once. Raises `HistoryPruned`."""
        with self._stepped:
            if since < self._horizon:
                raise HistoryPruned(self._horizon)
            return [self._change(*each) for each in reversed(self._newest_first(since))]

    def wait(self, since: int, timeout: float) -> int:
        """Wait for a step after `since`; the number of the last step."""
        deadline = time.monotonic() + timeout
        with self._stepped:
            while self.revision <= since and (left := deadline - time.monotonic()) > 0:
                self._stepped.wait(left)
            return self.revision

    # --- the writer ---

    def step(self, *changes: Change) -> None:
        """These are durable: show them. Followers see all of them or none."""
        with self._stepped:
            for change in changes:
                self._show(change)
                self.revision = change.revision
            self._stepped.notify_all()

    def forget(self, deleted: Iterable[tuple[str, str]], horizon: int) -> None:
        """These deletions, all up to step `horizon`, are not known any more."""
        with self._stepped:
            self._horizon = max(self._horizon, horizon)
            for which in deleted:  # it may have been put back since, and deleted again
                if which[1] not in self._live[which[0]] and self._last.get(which, horizon + 1) <= horizon:
                    self._last.pop(which)

    def _show(self, change: Change) -> None:
        which = change.collection, change.id
        self._last.pop(which, None)
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
