"""An installation as a node of its fleet: its database, its ledger, and what runs beside the requests.

The parts are made with the API's services and end with them. Each has `start` and `close`; `close` waits for no
database.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from actors.bus.messages.cluster import NoteFleet
from actors.bus.messages.common import METRICS
from actors.cluster.database import Database
from actors.cluster.doorbell import Doorbell
from actors.cluster.identity import NodeIdentity
from api.bus_bridge import AskNodes, Bridge
from api.cluster.blobs import Blobs
from api.cluster.duties import Duties
from api.cluster.fleet_chores import KEPT_DAYS, ApiAddress, FleetPruning, NodeEvents
from api.cluster.fleet_usage import UsageOfFleet, unreported
from api.cluster.following.audit_sending import AuditSending
from api.cluster.following.follower import CHANNEL, Follower, ReplicaLevel, own_channel
from api.cluster.following.heartbeat import Beat, Heartbeat, installation, merged
from api.cluster.following.presence import Presences
from api.cluster.following.rereading import Rereading, replaced
from api.cluster.following.unapplied import UnappliedObjects
from api.cluster.joining import PATH, Admission
from api.cluster.keys.fleet_key import PATH as KEY
from api.cluster.keys.fleet_key import FleetKey
from api.cluster.keys.rekeying import Rekeyed, Rekeying
from api.cluster.links.certificates import Certificates, KnownNode, NodeCertificateError, own_certificate
from api.cluster.links.internal_api import InternalApi, Route
from api.cluster.links.leaving import PATH as LEAVE
from api.cluster.links.leaving import removal
from api.cluster.links.link import PATH as BUS
from api.cluster.links.link import NodeLink, route_to
from api.cluster.loose import CHANNEL as LOOSE_CHANNEL
from api.cluster.loose import POLL, Loose
from api.cluster.migration_runner import SchemaUpkeep
from api.cluster.roles import end_role
from api.cluster.shared_ledger import SharedLedger, as_of_store
from api.cluster.shared_requests import SharedRequests
from api.engine.commit import Engine
from api.engine.levels import LEVELS, Levels
from api.fleet import (
    NOTHING_CLAIMED,
    NOTHING_PENDING,
    Claimed,
    FleetUsage,
    NodeFigures,
    OwnRequests,
    Presence,
    SharedFiles,
)
from config.files.paths import DataDir
from config.files.secret_box import SecretBox, secret_box_of
from config.model.nodes import API_ADDRESS, COLLECTION, INTERNAL_ADDRESS
from config.model.nodes.tokens import place_of
from config.settings.groups import History

log = logging.getLogger(__name__)

COLLECTOR_TIMEOUT = 1.0
"""Seconds that the collector has to take what a heartbeat has learnt."""
POLL_AT_REST = 120.0
"""Seconds between two reads of what needs no order, while notifications come, and heartbeats say how much there is."""
CUT_OFF = 10.0
"""Seconds since the last exchange with the database after which a node is cut off from it."""


CLOSE = 1.0
"""Seconds that all parts have to end."""


class Part(Protocol):
    """What runs beside the requests of a node."""

    def start(self) -> None:
        """Begin."""
        ...

    def close(self) -> None:
        """End soon."""
        ...


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


class FleetNode:
    """The `api.fleet.ThisNode` of a node. It opens with the store, and nothing of it needs the database then."""

    def __init__(self, identity: NodeIdentity, levels: Levels = LEVELS, seal: SecretBox | None = None) -> None:
        """Without a `seal` it follows no new key. Raises `DatabaseUnusable` for a DSN that can't be read."""
        self.identity = identity
        self._levels = levels
        self.database = Database(identity.dsn, identity.fleet)
        self.ledger = SharedLedger(self.database, identity.fleet, identity.id, levels=levels)
        self._blobs = Blobs(self.database)
        self.usage: FleetUsage = UsageOfFleet(self.database)
        self.duties = Duties(self.database, identity.id)
        self._follower: Follower | None = None
        self._started = threading.Event()
        self._link: NodeLink | None = None
        self.presences = Presences(self.database)
        self.key = None if seal is None else FleetKey(identity, self.database, self.ledger, seal)
        self._reports: list[Callable[[], Mapping[str, Any]]] = [lambda: {"pending": self.pending()}]
        self._beat_soon: Callable[[], object] = lambda: None
        self._parts: list[Part] = []
        self._engine: Engine | None = None
        self._loose: Loose | None = None
        self.requests = OwnRequests()
        self._audit: AuditSending | None = None

    def opened(self, engine: Engine, all_of_them: bool = False) -> None:
        """The store is open. From now on its sign-ins and credentials go to the database, once what runs is started.

        With `all_of_them` also those that are there: they were of one machine.
        """
        self._engine = engine
        if self.key is not None:
            self.key.opened(engine)
        identity = self.identity
        self._loose = loose = Loose(self.database, identity.id, engine.loose, self._poll_of_loose, not self._is_full)
        self._audit = AuditSending(self.database, identity.id, engine.trail)
        self.ledger.watch_audit(self._audit.brought)
        if self._is_full:
            self.requests = requests = SharedRequests(self.database, identity.id, engine, loose.announced)
            loose.follow_locks(requests.take_locks)
            loose.also(requests.work)
        self._parts.append(loose)
        engine.loose.share(loose, all_of_them)

    @property
    def node_id(self) -> str:
        """See `ThisNode`."""
        return self.identity.id

    def management_at(self) -> Sequence[str] | None:
        """See `ThisNode`."""
        if self._is_full:
            return None
        found = self._engine.find(COLLECTION, role="full") if self._engine is not None else []
        return sorted(filter(None, (each.body["addresses"].get(API_ADDRESS) for each in found)))

    def invitation(self) -> tuple[str, str]:
        """See `ThisNode`. Raises `NodeCertificateError`."""
        assert self._engine is not None
        return own_certificate(self._engine.data).fingerprint, self._internal_address(self._engine)

    @property
    def files(self) -> SharedFiles:
        """See `ThisNode`."""
        return self._blobs

    @property
    def _is_full(self) -> bool:
        """An edge node does nothing for others, and has no right to."""
        return self.identity.role == "full"

    def clock(self) -> float:
        """See `ThisNode`."""
        return self.database.time()

    def asks(self) -> AskNodes | None:
        """What asks other nodes; None when this one can't, or may not."""
        return None if self._link is None else self._link.ask_all

    def cut_off_for(self) -> float | None:
        """See `ThisNode`."""
        silent = self.database.silent_for
        return silent if silent >= CUT_OFF or not self.database.is_available else None

    def wait_for(self, number: int, seconds: float) -> bool:
        """See `ThisNode`."""
        until = time.monotonic() + seconds
        if not self._started.wait(seconds) or self._follower is None:
            return False
        return self._follower.wait_for(number, max(0.0, until - time.monotonic()))

    def pending(self) -> dict[str, int]:
        """See `ThisNode`."""
        if self._loose is None or self._engine is None or self._audit is None:
            return {**NOTHING_PENDING}
        usage = unreported(self._engine.data.usage)
        seconds = max(0, int(self.database.time() - usage.since)) if usage.bytes else 0
        of_usage = {"usage_bytes": usage.bytes, "usage_seconds": seconds}
        return {**self._loose.pending(), "audit": self._audit.waiting, **of_usage}

    def send(self) -> None:
        """Send sign-ins and credentials that wait here, where no part runs that does. Raises as `Loose.exchange`."""
        if self._loose is not None and self._follower is None:
            self._loose.exchange()

    def figures(self) -> NodeFigures:
        """See `ThisNode`."""
        own = self.presences.read().get(self.node_id)
        is_notified = self._follower is not None and self._follower.doorbell == "heard"
        took = self.ledger.took
        unreported_bytes = self.pending()["usage_bytes"]
        behind = None if own is None else own.behind
        return NodeFigures(
            behind, self.cut_off_for() is None, is_notified, unreported_bytes, dict(took.histogram), took.seconds
        )

    def has_duty(self, name: str) -> bool:
        """See `ThisNode`."""
        return self._is_full and self.duties.has(name)

    def announces_from(self) -> float:
        """See `ThisNode`.

        Claims are forgotten after some time. And a node that has joined has in its new file all that was ever due, but
        not what was announced of it.
        """
        nodes = [] if self._engine is None else self._engine.find(COLLECTION)
        joined = {each.id: float(each.body["created_at"]) for each in nodes}
        own = joined.get(self.node_id, 0.0)
        is_oldest = own <= min(joined.values(), default=own)
        return max(self.clock() - KEPT_DAYS * 86_400, 0.0 if is_oldest else own)

    def claim(self, keys: Iterable[str]) -> Claimed:
        """See `ThisNode`."""
        if not self._is_full:
            return NOTHING_CLAIMED
        with as_of_store():
            return self.duties.claim(keys)

    def announced(self, keys: Iterable[str]) -> None:
        """See `ThisNode`."""
        with as_of_store():
            self.duties.announced(keys)

    def presence(self, fresh: bool = False) -> Mapping[str, Presence]:
        """See `ThisNode`."""
        return self.presences.read(fresh)

    def add_report(self, report: Callable[[], Mapping[str, Any]]) -> None:
        """See `ThisNode`."""
        self._reports.append(report)

    def beat_soon(self) -> None:
        """See `ThisNode`."""
        self._beat_soon()

    def remove(self, node_id: str) -> Mapping[str, Any]:
        """See `ThisNode`."""
        with as_of_store():
            return end_role(self.database, node_id)

    def replace_replica(self, data: DataDir, seal: SecretBox) -> Engine:
        """The engine with a new replica, for one that is damaged or gone. Raises `StoreError`, with nothing changed."""

        def read(engine: Engine) -> None:
            level = self._levels.level
            Rereading(self.database, self.identity, engine, lambda *_: None, level=level, check=self._check)()

        return replaced(data, lambda: Engine(data, seal, self.ledger), read)

    def start(self, host: NodeHost) -> None:
        """Start all that runs beside the requests of this process. The store is open."""
        assert self._engine is not None
        assert self._loose is not None
        assert self._audit is not None
        engine, publish, here = self._engine, host.publish, self._engine.data
        boot, level = installation(here), self._levels.level
        self.heartbeat = beats = Heartbeat(self.database, self.identity.id, boot, engine.stamped, level)
        own = own_channel(self.identity.id)
        rung = {LOOSE_CHANNEL: self._loose.announced}
        dsn = self.identity.listen_dsn or self.identity.dsn
        doorbell = Doorbell(dsn, self.database.place, [CHANNEL, own, *rung])
        unapplied = UnappliedObjects(self.identity, engine, publish, self.database.time)
        engine.effects.watch(unapplied.made)
        self.ledger.watch(unapplied.read)
        rereading = Rereading(self.database, self.identity, engine, publish, unapplied.read, level, self._check)
        of_replica = ReplicaLevel(here.level, level)
        self._follower = follower = Follower(engine, doorbell, own, beats.soon, rereading, of_replica, rung)
        events = NodeEvents(self, self.node_id, engine, publish)
        schema = SchemaUpkeep(self.database, self.identity.id, self.ledger.wait)
        beats.gives += [follower.expect, events.wants, self.duties.wants, schema.wants]
        beats.followers += [follower.noted, events.noted, self.duties.noted, unapplied.noted, self._loose.noted]
        beats.followers.append(self._audit.noted)
        if self._is_full:
            beats.followers.append(ApiAddress(engine, self.identity.id, here, host.api).noted)
        beats.followers.append(partial(_inform, host))
        beats.refused.append(self.ledger.refuse)
        reports = [self._state_of_database, *self._reports]

        def with_failed() -> Mapping[str, Any]:
            found = merged(reports)
            return {**found, "failed": unapplied.report(found.get("proxies", {}))}

        beats.reports.append(with_failed)
        self._beat_soon = beats.soon
        self._parts += [follower, beats, events, *self._internal_api(engine, host)]
        if self._is_full:
            beats.followers.append(schema.noted)
            self._parts += [schema, self.duties, FleetPruning(engine, self.database, self.has_duty, host.history)]
        for each in self._parts:
            each.start()
        self._started.set()

    def rekey(self) -> Rekeyed:
        """Replace the fleet's key. Raises as `Rekeying`."""
        assert self.key is not None
        return Rekeying(self.key, self.presences)()

    def _check(self, text: str) -> None:
        if self.key is not None:
            self.key.check(text)

    def _poll_of_loose(self) -> float:
        return POLL_AT_REST if self._follower is not None and self._follower.doorbell == "heard" else POLL

    def _internal_api(self, engine: Engine, host: NodeHost) -> list[Part]:
        """Where other nodes ask this one."""
        address = self._internal_address(engine)
        if not address:
            return []
        try:
            own = own_certificate(engine.data)
        except NodeCertificateError as error:
            log.error("other nodes can't reach this one: %s", error)
            return []

        def nodes() -> list[KnownNode]:
            return [KnownNode.of(each.body) for each in engine.find(COLLECTION)]

        def document(node_id: str) -> Mapping[str, Any] | None:
            found = engine.get(COLLECTION, node_id)
            return None if found is None else found.body

        certificates, routes = Certificates(own, nodes), {}
        parts: list[Part] = []
        if self.key is not None and self._follower is not None:
            self.key.reach(own, self._follower.ring)
            routes[KEY] = Route(self.key.handle, for_edges=True)
            parts.append(self.key)
        if host.bridge is not None:
            routes[BUS] = route_to(host.bridge)
        if self._is_full:
            seal = secret_box_of(engine.data)
            admission = Admission(engine, seal, self.identity, self.database, certificates, host.publish)
            self._link = NodeLink(own, document)
            routes[PATH] = Route(admission.handle, for_strangers=True)
            routes[LEAVE] = Route(removal(host.remove), for_edges=True)
        place = place_of(host.listen) if host.listen else ("", place_of(address)[1])
        link = [] if self._link is None else [self._link]
        return [*parts, *link, InternalApi(place, certificates, lambda: routes)]

    def _internal_address(self, engine: Engine) -> str:
        document = engine.get(COLLECTION, self.node_id)
        return "" if document is None else str(document.body["addresses"].get(INTERNAL_ADDRESS, ""))

    def _state_of_database(self) -> dict[str, object]:
        trip = self.database.round_trip
        assert self._follower is not None
        found = {"doorbell": self._follower.doorbell, "round_trip_ms": None if trip is None else round(trip * 1000, 1)}
        return {"database": found}

    def close(self) -> None:
        """End it. After a second nothing waits for the database any more."""
        ends = [threading.Thread(target=each.close, name="closing", daemon=True) for each in self._parts]
        for each in ends:
            each.start()
        for seconds in (CLOSE, CLOSE / 4):
            until = time.monotonic() + seconds
            for each in ends:
                each.join(max(0.0, until - time.monotonic()))
            self.database.close()


def _inform(host: NodeHost, beat: Beat) -> None:
    """Of a move of the database, and the collector of usage, which asks the database itself without it."""
    moved, news = beat.whole.get("moved"), beat.whole.get("usage")
    if moved:
        host.moved(moved)
    if news is not None and host.bridge is not None:
        host.bridge.ask(METRICS, NoteFleet(news["slot"], news["limits"]), COLLECTOR_TIMEOUT)
