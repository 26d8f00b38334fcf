"""An installation as a node of its fleet: its database, its ledger, and what runs beside the requests.

The parts are made with the API's services and end with them. Each has `start` and `close`; `close` waits for no
database.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from actors.cluster.database import Database
from actors.cluster.identity import NodeIdentity
from api.cluster.duties import Duties
from api.cluster.shared_ledger import SharedLedger, as_of_store
from api.engine.commit import Engine
from api.fleet import Claimed


class Part(Protocol):
    """What runs beside the requests of a node."""

    def start(self) -> None:
        """Begin."""
        ...

    def close(self) -> None:
        """End soon."""
        ...


class FleetNode:
    """The `api.fleet.ThisNode` of a node. It opens with the store, and nothing of it needs the database then."""

    def __init__(self, identity: NodeIdentity) -> None:
        """Raises `DatabaseUnusable` for a DSN that can't be read."""
        self.identity = identity
        self.database = Database(identity.dsn)
        self.ledger = SharedLedger(self.database, identity.fleet, identity.id)
        self.duties = Duties(self.database, identity.id)
        self._parts: list[Part] = [self.duties]

    @property
    def node_id(self) -> str:
        """See `ThisNode`."""
        return self.identity.id

    def clock(self) -> float:
        """See `ThisNode`."""
        return self.database.time()

    def cut_off_for(self) -> float | None:
        """See `ThisNode`."""
        return None if self.database.is_available else self.database.silent_for

    def wait_for(self, number: int, seconds: float) -> bool:  # noqa: ARG002 - nothing follows yet
        """See `ThisNode`."""
        return True

    def has_duty(self, name: str) -> bool:
        """See `ThisNode`."""
        return self.duties.has(name)

    def claim(self, keys: Iterable[str]) -> Claimed:
        """See `ThisNode`."""
        with as_of_store():
            return self.duties.claim(keys)

    def announced(self, keys: Iterable[str]) -> None:
        """See `ThisNode`."""
        with as_of_store():
            self.duties.announced(keys)

    def start(self, engine: Engine) -> None:  # noqa: ARG002 - for what is to run
        """Start all that runs beside the requests."""
        for each in self._parts:
            each.start()

    def close(self) -> None:
        """End it."""
        for each in reversed(self._parts):
            each.close()
        self.database.close()
