"""What runs beside the requests of a node. The parts are made with the API's services and end with them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from actors.bus.messages.cluster import NoteFleet
from actors.bus.messages.common import METRICS
from actors.cluster.doorbell import Doorbell
from api.cluster.fleet_chores import ApiAddress, FleetPruning, NodeEvents
from api.cluster.following.follower import CHANNEL, Follower, ReplicaLevel, own_channel
from api.cluster.following.heartbeat import Beat, Heartbeat, installation, merged
from api.cluster.following.rereading import Rereading
from api.cluster.following.unapplied import UnappliedObjects
from api.cluster.joining import PATH, Admission
from api.cluster.keys.fleet_key import PATH as KEY
from api.cluster.links.certificates import Certificates, KnownNode, NodeCertificateError, own_certificate
from api.cluster.links.internal_api import InternalApi, Route
from api.cluster.links.leaving import PATH as LEAVE
from api.cluster.links.leaving import removal
from api.cluster.links.link import PATH as BUS
from api.cluster.links.link import NodeLink, route_to
from api.cluster.links.pairs import PATH as PAIR
from api.cluster.links.pairs import Pairs, pairs_for_nodes
from api.cluster.loose import CHANNEL as LOOSE_CHANNEL
from api.cluster.migration_runner import SchemaUpkeep
from api.cluster.shared_requests import SharedRequests
from config.files.secret_box import secret_box_of
from config.model.nodes import COLLECTION
from config.model.nodes.tokens import place_of

if TYPE_CHECKING:
    from api.cluster.fleet_node import FleetNode, NodeHost

log = logging.getLogger(__name__)

COLLECTOR_TIMEOUT = 1.0
"""Seconds that the collector has to take what a heartbeat has learnt."""


class Part(Protocol):
    """What runs beside the requests of a node."""

    def start(self) -> None:
        """Begin."""
        ...

    def close(self) -> None:
        """End soon, also when the database hangs."""
        ...


class NodeParts:
    """Those of a node whose store is open. `link` asks other nodes; an edge node has none."""

    def __init__(self, node: FleetNode, host: NodeHost) -> None:
        self._node, self._host = node, host
        identity, database, level = node.identity, node.database, node.levels.level
        engine, publish, here = node.engine, host.publish, node.engine.data
        self.heartbeat = beats = Heartbeat(database, identity.id, installation(here), engine.stamped, level)
        own, rung = own_channel(identity.id), {LOOSE_CHANNEL: node.loose.announced}
        doorbell = Doorbell(identity.listen_dsn or identity.dsn, database.place, [CHANNEL, own, *rung])
        self._unapplied = unapplied = UnappliedObjects(identity, engine, publish, database.time)
        engine.effects.subscribe(unapplied.on_effects)
        node.ledger.subscribe_documents(unapplied.on_document)
        rereading = Rereading(node.ledger, identity, engine, publish, unapplied.on_document)
        of_replica = ReplicaLevel(here.level, level)
        self.follower = follower = Follower(engine, doorbell, own, beats.soon, rereading, of_replica, rung)
        events = NodeEvents(node, identity.id, engine, publish)
        schema = SchemaUpkeep(database, identity.id, node.ledger.wait)
        beats.fields += [follower.heartbeat_fields, events.heartbeat_fields]
        beats.fields += [node.duties.heartbeat_fields, schema.heartbeat_fields]
        beats.subscribers += [follower.on_heartbeat, events.on_heartbeat, node.duties.on_heartbeat]
        beats.subscribers += [unapplied.on_heartbeat, node.loose.on_heartbeat, node.audit.on_heartbeat, self._inform]
        beats.unusable.append(self._inform_collector)
        beats.refused.append(node.ledger.refuse)
        beats.reports.append(self._report)
        self.link: NodeLink | None = None
        self.pairs: Pairs | None = None
        self.ends: list[Callable[[], object]] = []
        self.all: list[Part] = [node.loose, follower, beats, events, *self._internal_api()]
        if node.is_full:
            beats.subscribers += [ApiAddress(engine, identity.id, here, host.api).on_heartbeat, schema.on_heartbeat]
            self.all.append(FleetPruning(engine, database, node.duties, host.history))
            self.ends += [schema.close, node.duties.close]
        if isinstance(node.requests, SharedRequests):
            beats.fields.append(node.requests.heartbeat_fields)
            beats.subscribers.append(node.requests.on_heartbeat)
        self.ends += [each.close for each in self.all]

    def _internal_api(self) -> list[Part]:
        """Where other nodes ask this one, and what it asks them."""
        node, engine = self._node, self._node.engine
        address = node.internal_address
        if not address:
            return []
        try:
            own = own_certificate(engine.data)
        except NodeCertificateError as error:
            log.error("other nodes can't reach this one: %s", error)
            return []

        def document(node_id: str) -> Mapping[str, Any] | None:
            found = engine.get(COLLECTION, node_id)
            return None if found is None else found.body

        certificates = Certificates(own, lambda: [KnownNode.of(each.body) for each in engine.find(COLLECTION)])
        routes: dict[str, Route] = {}
        parts: list[Part] = []
        if node.key is not None:
            node.key.reach(own, self.follower.ring)
            self.heartbeat.subscribers.append(node.key.on_heartbeat)
            routes[KEY] = Route(node.key.handle, for_edges=True)
            parts.append(node.key)
        self.pairs = Pairs(engine, node.node_id, own)
        parts.append(self.pairs)
        routes[PAIR] = Route(pairs_for_nodes(engine), for_edges=True)
        if self._host.bridge is not None:
            routes[BUS] = route_to(self._host.bridge)
        if node.is_full:
            seal = secret_box_of(engine.data)
            admission = Admission(engine, seal, node.identity, node.database, certificates, self._host.publish)
            self.link = NodeLink(own, document)
            self.ends.append(self.link.close)
            routes[PATH] = Route(admission.handle, for_strangers=True)
            routes[LEAVE] = Route(removal(self._host.remove), for_edges=True)
        place = place_of(self._host.listen) if self._host.listen else ("", place_of(address)[1])
        return [*parts, InternalApi(place, certificates, lambda: routes)]

    def _report(self) -> Mapping[str, Any]:
        """What others see of this node."""
        trip = self._node.database.round_trip
        of_database = {"doorbell": self.follower.doorbell, "round_trip_ms": trip and round(trip * 1000, 1)}
        found = {"database": of_database, **merged(self._node.reports)}
        of_key = [] if self._node.key is None else self._node.key.failed()
        return {**found, "failed": [*of_key, *self._unapplied.report(found.get("proxies", {}))]}

    def _inform(self, beat: Beat) -> None:
        """Of a move of the database, and the collector of usage, which asks the database itself without it."""
        moved, news = beat.reply.get("moved"), beat.reply.get("usage")
        if moved:
            self._host.moved(moved)
        if self._node.engine.get(COLLECTION, self._node.node_id) is None:  # where all have one role it may sign in
            self._inform_collector("this node was removed from the fleet")
        elif news is not None:
            self._inform_collector("", news["slot"], news["limits"])

    def _inform_collector(self, refused: str, slot: int = 0, limits: bool = False) -> None:
        if self._host.bridge is not None:
            self._host.bridge.ask(METRICS, NoteFleet(slot, limits, refused), COLLECTOR_TIMEOUT)
