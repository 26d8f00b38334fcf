"""An installation as a node of its fleet: its database, its ledger, and what its API asks of it.

What runs beside the requests begins with `start` (`node_parts`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from actors.cluster.database import Database
from actors.cluster.identity import NodeIdentity
from api.audit.trail import FleetTrails
from api.bus_bridge import AskNodes, Bridge
from api.cluster.blobs import Blobs
from api.cluster.duties import Duties
from api.cluster.fleet_usage import UsageOfFleet, unreported
from api.cluster.following.audit_trails import AuditSending, AuditTrails
from api.cluster.following.presence import Presences
from api.cluster.following.rereading import Rereading, replaced
from api.cluster.keys.fleet_key import FleetKey
from api.cluster.keys.rekeying import Rekeyed, Rekeying
from api.cluster.links.certificates import own_certificate
from api.cluster.loose import POLL, Loose
from api.cluster.node_parts import NodeParts
from api.cluster.roles import end_role
from api.cluster.shared_ledger import SharedLedger, as_of_store
from api.cluster.shared_requests import SharedRequests
from api.engine.commit import Engine
from api.engine.levels import LEVELS, Levels
from api.fleet import NodeFigures, Presence, ThisNode
from config.files.paths import DataDir
from config.files.secret_box import SecretBox
from config.model.nodes import API_ADDRESS, COLLECTION, INTERNAL_ADDRESS
from config.settings.groups import History

POLL_AT_REST = 120.0
"""Seconds between two reads of what needs no order, while notifications come, and heartbeats say how much there is."""
CUT_OFF = 10.0
"""Seconds since the last exchange with the database after which a node is cut off from it."""
CLOSE = 1.0
"""Seconds that all parts have to end."""


@dataclass(frozen=True, slots=True)
class NodeHost:
    """What the process of a node has for it."""

    publish: Callable[[str, dict[str, Any]], None]
    """Gets events, by type and data."""
    history: Callable[[], History]
    """The settings of this moment."""
    listen: str = ""
    """Address and port at which other nodes ask this one; by default at the port that they know."""
    bridge: Bridge | None = None
    """To the bus that they may ask."""
    remove: Callable[[str], object] = lambda _node_id: None
    """Removes the node with this id, for an edge node that leaves."""
    api: tuple[str, int] = ("127.0.0.1", 0)
    """Where the API listens."""
    moved: Callable[[str], object] = lambda _sealed: None
    """Gets what leads to another database of the fleet."""


class FleetNode(ThisNode):
    """It opens with the store (`opened`), and nothing of it needs the database then."""

    engine: Engine
    loose: Loose
    audit: AuditSending

    def __init__(self, identity: NodeIdentity, levels: Levels = LEVELS, seal: SecretBox | None = None) -> None:
        """Without a `seal` it follows no new key. Raises `DatabaseUnusable` for a DSN that can't be read."""
        self.identity, self.levels = identity, levels
        self.node_id: str = identity.id
        self.is_full = identity.role == "full"
        """An edge node does nothing for others, and has no right to."""
        self.database = database = Database(identity.dsn, identity.fleet)
        self.ledger = SharedLedger(database, identity.fleet, identity.id, levels=levels)
        self.files, self.usage, self.presences = Blobs(database), UsageOfFleet(database), Presences(database)
        self.duties: Duties = Duties(database, identity.id, is_full=self.is_full)
        self.key = None if seal is None else FleetKey(identity, database, self.ledger, seal)
        self.reports: list[Callable[[], Mapping[str, Any]]] = [lambda: {"pending": self.pending()}]
        self._parts: NodeParts | None = None
        self._started = threading.Event()
        self._ends: list[Callable[[], object]] = []

    def opened(self, engine: Engine, all_of_them: bool = False) -> None:
        """The store is open. From now on its sign-ins and credentials go to the database, once what runs is started.

        With `all_of_them` also those that are there: they were of one machine.
        """
        self.engine = engine
        self.duties.opened(engine)
        if self.key is not None:
            self.key.opened(engine)
        self.loose = loose = Loose(self.database, self.node_id, engine.loose, self._poll_of_loose, not self.is_full)
        self.audit = AuditSending(self.database, self.node_id, engine.trail)
        self.ledger.subscribe_audit(self.audit.on_audited)
        self.trails: FleetTrails = AuditTrails(self.database, self.audit)
        engine.trail.follow_clock(self.clock)
        if self.is_full:
            self.requests = requests = SharedRequests(self.database, self.node_id, engine, self.ledger, loose.announced)
            loose.subscribe_locks(requests.on_locks)
            loose.add_work(requests.work)
        self._ends.append(loose.close)
        engine.loose.share(loose, all_of_them)

    def start(self, host: NodeHost) -> None:
        """Start all that runs beside the requests of this process. The store is open."""
        self._parts = parts = NodeParts(self, host)
        self.heartbeat, self._ends = parts.heartbeat, parts.ends
        for each in parts.all:
            each.start()
        self._started.set()

    def close(self) -> None:
        """End it. After a second nothing waits for the database any more."""
        ends = [threading.Thread(target=each, name="closing", daemon=True) for each in self._ends]
        for each in ends:
            each.start()
        for seconds in (CLOSE, CLOSE / 4):
            until = time.monotonic() + seconds
            for each in ends:
                each.join(max(0.0, until - time.monotonic()))
            self.database.close()

    def replace_replica(self, data: DataDir, seal: SecretBox) -> Engine:
        """The engine with a new replica, for one that is damaged or gone. Raises `StoreError`, with nothing changed."""

        def read(engine: Engine) -> None:
            Rereading(self.ledger, self.identity, engine, lambda *_: None)()

        return replaced(data, lambda: Engine(data, seal, self.ledger), read)

    def rekey(self) -> Rekeyed:
        """Replace the fleet's key. Raises as `Rekeying`."""
        assert self.key is not None
        return Rekeying(self.key, self.presences)()

    def send(self) -> None:
        """Send sign-ins and credentials that wait here, where no part runs that does. Raises as `Loose.exchange`."""
        if self._parts is None:
            self.loose.exchange()

    def asks(self) -> AskNodes | None:
        """What asks other nodes; None when this one can't, or may not."""
        return None if self._parts is None or self._parts.link is None else self._parts.link.ask_all

    @property
    def internal_address(self) -> str:
        """Where other nodes ask this one; empty when they can't."""
        document = self.engine.get(COLLECTION, self.node_id)
        return "" if document is None else str(document.body["addresses"].get(INTERNAL_ADDRESS, ""))

    @property
    def _is_notified(self) -> bool:
        return self._parts is not None and self._parts.follower.doorbell == "heard"

    def _poll_of_loose(self) -> float:
        return POLL_AT_REST if self._is_notified else POLL

    # --- what requests ask: see `ThisNode` ---

    def management_at(self) -> Sequence[str] | None:
        """See `ThisNode`."""
        if self.is_full:
            return None
        found = self.engine.find(COLLECTION, role="full")
        return sorted(filter(None, (each.body["addresses"].get(API_ADDRESS) for each in found)))

    def invitation(self) -> tuple[str, str]:
        """See `ThisNode`. Raises `NodeCertificateError`."""
        return own_certificate(self.engine.data).fingerprint, self.internal_address

    def clock(self) -> float:
        """See `ThisNode`."""
        return self.database.time()

    def cut_off_for(self) -> float | None:
        """See `ThisNode`."""
        silent = self.database.silent_for
        return silent if silent >= CUT_OFF or not self.database.is_available else None

    def wait_for(self, number: int, seconds: float) -> bool:
        """See `ThisNode`."""
        until = time.monotonic() + seconds
        if not self._started.wait(seconds) or self._parts is None:
            return False
        return self._parts.follower.wait_for(number, max(0.0, until - time.monotonic()))

    def pending(self) -> dict[str, int]:
        """See `ThisNode`."""
        usage = unreported(self.engine.data.usage)
        seconds = max(0, int(self.database.time() - usage.since)) if usage.bytes else 0
        of_usage = {"usage_bytes": usage.bytes, "usage_seconds": seconds}
        return {**self.loose.pending(), "audit": self.audit.waiting, **of_usage}

    def figures(self) -> NodeFigures:
        """See `ThisNode`."""
        own = self.presences.read().get(self.node_id)
        behind, took = None if own is None else own.behind, self.ledger.took
        usage, is_connected = self.pending()["usage_bytes"], self.cut_off_for() is None
        return NodeFigures(behind, is_connected, self._is_notified, usage, dict(took.histogram), took.seconds)

    def presence(self, fresh: bool = False) -> Mapping[str, Presence]:
        """See `ThisNode`."""
        return self.presences.read(fresh)

    def add_report(self, report: Callable[[], Mapping[str, Any]]) -> None:
        """See `ThisNode`."""
        self.reports.append(report)

    def have_certificates(self, proxies: Iterable[Mapping[str, Any]]) -> None:
        """See `ThisNode`."""
        if self._parts is not None and self._parts.pairs is not None:
            self._parts.pairs.have(proxies)

    def beat_soon(self) -> None:
        """See `ThisNode`."""
        if self._parts is not None:
            self._parts.heartbeat.soon()

    def remove(self, node_id: str) -> Mapping[str, Any]:
        """See `ThisNode`."""
        with as_of_store():
            return end_role(self.database, node_id)
