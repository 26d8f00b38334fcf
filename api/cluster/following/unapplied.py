"""What this node could not apply: it serves the previous state of these objects, and goes on with the rest.

Effects that have failed are made again, since what was in their way may be gone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from actors.cluster.identity import NodeIdentity
from api.cluster.following.heartbeat import Beat
from api.engine.commit import Engine
from api.history.document_changes import DocumentChange

log = logging.getLogger(__name__)

MOST = 100
"""Objects that are reported; of more than a few one cause is to be looked for."""
PROXIES = "proxies"

FIRST_PAUSE, LONGEST_PAUSE = 3.0, 60.0
"""Seconds until an effect that has failed is made again, at first and at most."""

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Retry:
    change: DocumentChange
    pause: float
    due: float


class UnappliedObjects:
    """Thread-safe. Each is an event `node.failed` when it appears, and goes when the object could be applied."""

    def __init__(
        self,
        identity: NodeIdentity,
        engine: Engine,
        publish: Callable[[str, dict[str, Any]], object],
        clock: Callable[[], float],
    ) -> None:
        self._identity = identity
        self._engine = engine
        self._publish = publish
        self._clock = clock
        self._lock = threading.Lock()
        self._of_effects: dict[Key, dict[str, Any]] = {}
        self._of_rows: dict[Key, dict[str, Any]] = {}
        self._of_proxies: dict[Key, dict[str, Any]] = {}
        self._unknown: dict[Key, dict[str, Any]] = {}
        self._retries: dict[Key, _Retry] = {}
        self._at_work = threading.Lock()

    def on_effects(self, changes: Sequence[DocumentChange], error: Exception | None) -> None:
        """What has followed from changes, or why it did not (`api.engine.effects.Effects.subscribe`)."""
        for each in changes:
            key = each.collection, each.id
            if error is None:
                self._forget(self._of_effects, [key])
                self._retries.pop(key, None)
            else:
                self._note(self._of_effects, key, str(error) or type(error).__name__)
                known = self._retries.get(key)
                pause = FIRST_PAUSE if known is None else min(2 * known.pause, LONGEST_PAUSE)
                self._retries[key] = _Retry(each, pause, time.monotonic() + pause)

    def on_heartbeat(self, beat: Beat) -> None:
        """What a heartbeat has learnt. With it effects that have failed are made again, in a thread of its own."""
        self._note_unknown(beat.reply.get("unknown") or ())
        if any(each.due <= time.monotonic() for each in [*self._retries.values()]) and self._at_work.acquire(False):
            threading.Thread(target=self._retry, name="retry", daemon=True).start()

    def _retry(self) -> None:
        try:
            for each in [*self._retries.values()][:MOST]:
                if each.due <= time.monotonic():
                    with suppress(Exception):  # `on_effects` gets it
                        self._engine.repeat_effects(each.change)
        finally:
            self._at_work.release()

    def on_document(self, collection: str, identifier: str, revision: int, error: str | None) -> None:
        """A document of the database was read, or can't be; then the replica keeps what it has."""
        if error is None:
            self._forget(self._of_rows, [(collection, identifier)])
        else:
            self._note(self._of_rows, (collection, identifier), error, revision)

    def _note_unknown(self, documents: Sequence[tuple[str, str, int, int]]) -> None:
        """All that a newer release has written and this one can't read: collection, id, revision and level."""
        known = {(collection, key) for collection, key, *_ in documents}
        self._forget(self._unknown, [each for each in [*self._unknown] if each not in known])
        for collection, key, revision, level in documents:
            error = f"a newer release has written it (level {level}), which this one can't read"
            self._note(self._unknown, (collection, key), error, revision)

    def report(self, proxies: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
        """All of them; of proxies by the states that they have here."""
        failed = {(PROXIES, name): each["error"] for name, each in proxies.items() if each["state"] == "failed"}
        self._forget(self._of_proxies, [each for each in [*self._of_proxies] if each not in failed])
        for key, error in failed.items():
            self._note(self._of_proxies, key, error or "it does not run")
        with self._lock:
            found = {**self._of_proxies, **self._of_effects, **self._of_rows, **self._unknown}
        return [*found.values()][:MOST]

    def _note(self, table: dict[Key, dict[str, Any]], key: Key, error: str, revision: int | None = None) -> None:
        collection, identifier = key
        found = self._engine.get(collection, identifier)
        body = {} if found is None else found.body
        number = revision if revision is not None else 0 if found is None else found.revision
        what = {
            "collection": collection, "id": identifier, "name": body.get("name") or body.get("username"),
            "revision": number, "error": error,
        }  # fmt: skip
        with self._lock:
            known = table.get(key)
            table[key] = {**what, "since": self._clock() if known is None else known["since"]}
        if known is not None and known["error"] == error:
            return
        log.error("this node can't apply %s %s: %s", collection, identifier, error)
        event = {"collection": collection, "object_id": identifier, "object": what["name"], "revision": number}
        self._publish(
            "node.failed",
            {"node_id": self._identity.id, "name": self._identity.name, **event, "error": error},
        )

    def _forget(self, table: dict[Key, dict[str, Any]], keys: Collection[Key]) -> None:
        with self._lock:
            for each in keys:
                table.pop(each, None)
