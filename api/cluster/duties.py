"""What one node does for all, and what one node announces.

A duty is a row with an end, `LEASE` seconds ahead by the database's clock, which the heartbeat of the node that has it
moves on. A node that dies loses its duties to the next one that asks, one that ends gives them back, one that is cut
off has none.

**Two nodes may do it at once**: one that hangs within a run goes on when it has lost the duty. So what stands behind a
duty is safe then: documents are deleted by their revision, files are named by their content, events are claimed.

**A claim** is of one event of the fleet: who has it publishes the event, and says that it is done. Before that it ends
after a while, so that an event is not lost with the node that was about to publish it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from actors.cluster.database import SIGN_IN, Database
from actors.cluster.errors import DatabaseError
from api.cluster.fleet_chores import KEPT_DAYS
from api.cluster.following.heartbeat import Beat
from api.cluster.shared_ledger import as_of_store
from api.engine.commit import Engine
from api.fleet import NOTHING_CLAIMED, Claimed, OwnDuties
from config.model.nodes import COLLECTION

LEASE = 15.0
"""Seconds after which another node may have a duty that was not renewed."""
TRUSTED = 10.0
"""Seconds for which a node relies on a renewal: less than `LEASE`, and no more than until it is cut off."""
CLAIM = 60.0
"""Seconds after which an event that was claimed and not announced may be claimed by another node."""


class Duties(OwnDuties):
    """Those of this node. Thread-safe."""

    def __init__(
        self, database: Database, node: str, monotonic: Callable[[], float] = time.monotonic, is_full: bool = True
    ) -> None:
        """An edge node, which is not `is_full`, has none, and announces nothing."""
        self._database, self._node, self._is_full = database, node, is_full
        self._monotonic = monotonic
        self._engine: Engine | None = None
        self._wanted: frozenset[str] = frozenset()
        self._asked = 0.0
        self._known: tuple[frozenset[str], float] = frozenset(), 0.0
        """Those it had at the last heartbeat, and until when that is good by the monotonic clock."""

    def opened(self, engine: Engine) -> None:
        """The replica is open: it says which nodes there are, and since when."""
        self._engine = engine

    def has(self, name: str) -> bool:
        """Whether this node has the duty now. One that is asked for first is wanted from then on."""
        if self._is_full and name not in self._wanted:
            self._wanted |= {name}
        had, until = self._known
        return name in had and self._monotonic() < until

    def heartbeat_fields(self) -> Mapping[str, Any]:
        """What the next heartbeat is to ask for."""
        self._asked = self._monotonic()  # the lease begins later
        return {"duties": sorted(self._wanted), "lease": LEASE}

    def on_heartbeat(self, beat: Beat) -> None:
        """The reply to it; a schema that isn't migrated yet has no duties."""
        self._known = frozenset(beat.reply.get("duties", ())), self._asked + TRUSTED

    def close(self) -> None:
        """End, and give the duties back if the database responds."""
        had, _ = self._known
        self._known = frozenset(), 0.0
        if had:
            with suppress(DatabaseError):
                self._database.transaction("SELECT proxyfleet.give_back_duties(%s)", [self._node], SIGN_IN)

    def announces_from(self) -> float:
        """See `OwnDuties`.

        Claims are forgotten after some time. And a node that has joined has in its new file all that was ever due, but
        not what was announced of it.
        """
        nodes = [] if self._engine is None else self._engine.find(COLLECTION)
        joined = {each.id: float(each.body["created_at"]) for each in nodes}
        own = joined.get(self._node, 0.0)
        is_oldest = own <= min(joined.values(), default=own)
        return max(self._database.time() - KEPT_DAYS * 86_400, 0.0 if is_oldest else own)

    def claim(self, keys: Iterable[str]) -> Claimed:
        """See `OwnDuties`."""
        if not self._is_full:
            return NOTHING_CLAIMED
        statement = "SELECT * FROM proxyfleet.claim(%s, %s, %s)"
        with as_of_store():
            rows = self._database.transaction(statement, [self._node, [*keys], CLAIM], SIGN_IN)
        return Claimed(frozenset(key for key, ours, _ in rows if ours), frozenset(key for key, _, done in rows if done))

    def announced(self, keys: Iterable[str]) -> None:
        """See `OwnDuties`."""
        with as_of_store():
            self._database.transaction("SELECT proxyfleet.claims_done(%s)", [[*keys]], SIGN_IN)
