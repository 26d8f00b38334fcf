"""What requests at several nodes share beside sign-ins: marks of `Idempotency-Key`, failed sign-ins, last uses.

All of it is rows of the database with an end, judged by its time. What waits for it has a second, and goes on alone
after that.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from actors.cluster.database import SIGN_IN, Database
from actors.cluster.errors import DatabaseError
from api.cluster.following.heartbeat import Beat
from api.cluster.shared_ledger import SharedLedger
from api.engine.commit import Engine
from api.fleet import ClaimedRequest, OwnRequests
from api.store import StoreError

log = logging.getLogger(__name__)

LEASE, KEPT = "5 minutes", "1 day"
"""How long a request may take until another node takes it over, and how long its response is there."""
WINDOW, LOCK = "5 minutes", "15 minutes"
"""In which failures count, and which a lock lasts."""
USES = 30.0
"""Seconds between two exchanges of last uses."""
OVERLAP = 300.0
"""Seconds by which the clocks of nodes may differ for those."""
FORGOTTEN_MAX = 20_000

_CLAIM = "SELECT * FROM proxyfleet.claim_mark(%s, %s, %s)"
_SETTLE = "SELECT proxyfleet.settle_mark(%s, %s, %s, %s)"
_GIVE_BACK = "DELETE FROM proxyfleet.idempotency WHERE mark = %s AND node = %s"
_COUNT = "SELECT * FROM proxyfleet.count_failure(%s, %s, %s, %s, %s)"
_FORGET = "SELECT proxyfleet.forget_failures(%s, %s)"


class SharedRequests(OwnRequests):
    """Those of one node. Thread-safe."""

    are_shared = True

    def __init__(
        self, database: Database, node: str, store: Engine, ledger: SharedLedger, ring: Callable[[], object]
    ) -> None:
        """`ring` has `work` called soon."""
        self._database = database
        self._node = node
        self._store = store
        self._ledger = ledger
        self._ring = ring
        self._lock = threading.Lock()
        self._locks: dict[str, float] = {}
        self._forgotten: tuple[set[str], set[str]] = (set(), set())
        self._used_at, self._uses_until, self._uses_asked = -USES, 0.0, 0.0

    # --- marks ---

    def claim(self, mark: str) -> ClaimedRequest | None:
        """See `OwnRequests`."""
        rows = self._tried(_CLAIM, [mark, self._node, LEASE])
        return ClaimedRequest(*rows[0]) if rows else None

    def settle(self, mark: str, sealed: str | None) -> None:
        """See `OwnRequests`."""
        if sealed is None:
            self._tried(_GIVE_BACK, [mark, self._node])
        else:
            self._tried(_SETTLE, [mark, self._node, sealed, KEPT])

    @contextmanager
    def making(self, mark: str, sealed: str, note: Callable[[], object]) -> Iterator[None]:
        """See `OwnRequests`."""
        values = [mark, self._node, sealed, KEPT]
        with self._ledger.with_next(_SETTLE, values), self._store.loose.noting(note):
            yield

    # --- failures ---

    def count_failure(self, pair: str, name: str, limit: int) -> bool | None:
        """See `OwnRequests`."""
        rows = self._tried(_COUNT, [pair, name, limit, WINDOW, LOCK])
        if not rows:
            return None
        ((seconds, has_locked),) = rows
        if seconds > 0:
            with self._lock:
                self._locks = {**self._locks, pair: time.monotonic() + seconds}
        return bool(has_locked)

    def locked_for(self, pair: str) -> float:
        """See `OwnRequests`."""
        return max(0.0, self._locks.get(pair, 0.0) - time.monotonic())

    def on_locks(self, locks: Mapping[str, float]) -> None:
        """These are all there are: seconds by pair."""
        now = time.monotonic()
        with self._lock:
            self._locks = {pair: now + seconds for pair, seconds in locks.items()}

    def forget_failures(self, pairs: Collection[str] = (), names: Collection[str] = ()) -> None:
        """See `OwnRequests`."""
        with self._lock:
            if names:
                self._locks = {}  # those of other names are known again with the next read
            for known, more in zip(self._forgotten, (pairs, names), strict=True):
                if len(known) < FORGOTTEN_MAX:
                    known.update(more)
        self._ring()

    # --- with the exchange of loose objects ---

    def work(self) -> None:
        """Bring to the database what waits for no one. Raises `DatabaseError`."""
        with self._lock:
            pairs, names = forgotten = self._forgotten
            self._forgotten = (set(), set())
        if pairs or names:
            try:
                self._database.transaction(_FORGET, [[*pairs], [*names]], SIGN_IN)
            except DatabaseError:
                with self._lock:
                    for known, more in zip(self._forgotten, forgotten, strict=True):
                        known.update(more)
                raise

    # --- with the heartbeat ---

    def heartbeat_fields(self) -> Mapping[str, Any]:
        """The last uses that are new here, from time to time."""
        if time.monotonic() < self._used_at + USES:
            return {}
        since, self._uses_asked = self._uses_until - OVERLAP, self._database.time()
        try:
            ours = sorted([*key, at] for key, at in self._uses().items() if at > since)
        except StoreError as error:
            log.debug("last uses are not exchanged: %s", error)
            return {}
        return {"uses": ours, "uses_after": since}

    def on_heartbeat(self, beat: Beat) -> None:
        """Take the uses that other nodes have noted: the latest use of each key and user wins."""
        theirs = beat.reply.get("uses")
        if theirs is None:
            return
        try:
            known = self._uses()
            for kind, identifier, at in theirs:
                if at > known.get((kind, identifier), 0.0):
                    self._store.note_use(kind, identifier, at, at_other_node=True)
        except StoreError as error:
            log.debug("last uses are not noted: %s", error)
        else:
            self._uses_until, self._used_at = self._uses_asked, time.monotonic()

    def _uses(self) -> dict[tuple[str, str], float]:
        return {(kind, each): at for kind in self._store.USED for each, at in self._store.last_used(kind).items()}

    def _tried(self, statement: str, parameters: list[Any]) -> list[Any]:
        """Nothing when the database can't be used now."""
        try:
            return self._database.transaction(statement, parameters, SIGN_IN)
        except DatabaseError as error:
            log.debug("this node is for itself: %s", error)
            return []
