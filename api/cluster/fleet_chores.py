"""What the node with the duty does in the database: it prunes what is past its end, and says which nodes are down.

And what each node says of itself: that it is cut off, and a full one where its API is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import Any

from actors.cluster.database import Database, DatabaseSession
from actors.cluster.errors import DatabaseUnavailable
from api.audit.audit_context import on_behalf_of
from api.cluster.following.heartbeat import Beat
from api.cluster.shared_ledger import LedgerUnavailable
from api.engine.commit import Engine
from api.engine.ledger import Stamped
from api.fleet import OwnDuties, ThisNode
from api.history.recorder import Limits
from api.periodic_work import PeriodicWork
from api.store import Document, NotStored, RevisionConflict, StoreError, Write
from config.files.durable import replace_file
from config.files.paths import DataDir
from config.model.nodes import API_ADDRESS, COLLECTION, INTERNAL_ADDRESS, host_of
from config.model.shared_objects.pools import VERDICTS
from config.net.addresses import is_plain_address
from config.net.names import is_loopback
from config.settings.groups import History
from config.text.formatting import timestamp_text

log = logging.getLogger(__name__)

KEPT_DAYS = 30.0
"""Of commits, deletions and claims. A replica that is further behind is read anew."""
COMMITS_AT_ONCE = 5_000
"""Commits that one transaction forgets: it holds the lock of the fleet."""
PRUNING, WATCHING = 60.0, 2.0
"""Seconds between two runs."""
AT_REST = 3600.0
"""Seconds until it is pruned though nothing was committed."""
AT_END = 0.0
"""Seconds that the end waits for a run, which may wait for the database: nothing is lost with it."""
PRUNING_MAX = 30.0
"""Seconds of one statement."""
DOWN_AFTER = 30.0
"""Seconds without a response of a node, or of the database, until that is an event."""

WATCH = "node-events"
"""The duty of those who say it."""

Publish = Callable[[str, dict[str, Any]], None]


class ApiAddress:
    """Has the address of a full node's API in its document: edge nodes name it to those who ask them for more."""

    def __init__(self, engine: Engine, node: str, data: DataDir, listens: tuple[str, int]) -> None:
        """`listens` is `server.host` and `server.port`. Nothing is done before the first heartbeat."""
        self._engine = engine
        self._node = node
        self._file = data.cluster / "api-address"
        self._listens = listens
        self._is_done = False

    def on_heartbeat(self, _beat: Beat) -> None:
        """Once after a start: commit it if it is another one than before, and was not set by hand."""
        try:
            document = None if self._is_done else self._engine.get(COLLECTION, self._node)
            if document is not None:
                self._note(document, reached_at(*self._listens, document.body["addresses"].get(INTERNAL_ADDRESS, "")))
                self._is_done = True
        except (StoreError, OSError) as error:
            log.debug("the address of the API is not known to edge nodes yet: %s", error)

    def _note(self, document: Document, address: str) -> None:
        known = self._file.read_text().split(" ") if self._file.exists() else []
        was = known[1] if known[:1] == [self._node] else ""
        addresses = dict(document.body["addresses"])
        if address != was and addresses.pop(API_ADDRESS, "") == was:
            addresses |= {API_ADDRESS: address} if address else {}
            with on_behalf_of("system", "start"):
                self._engine.put(COLLECTION, {**document.body, "addresses": addresses}, document.revision)
        if known != [self._node, address]:
            replace_file(self._file, f"{self._node} {address}".encode())


def reached_at(host: str, port: int, internal: str) -> str:
    """Where others reach what listens there; empty when only its machine does.

    What listens at all addresses is reached at the host of the address `internal`.
    """
    if is_plain_address(host) and ip_address(host).is_unspecified:
        host = host_of(internal)
    if not host or is_loopback(host):
        return ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class FleetPruning(PeriodicWork):
    """Prunes the database, by the settings of the moment."""

    def __init__(self, engine: Engine, database: Database, duties: OwnDuties, settings: Callable[[], History]) -> None:
        name = "fleet-pruning"
        super().__init__(name, "prune the fleet's database", PRUNING, PRUNING, lambda: duties.has(name), AT_END)
        self._engine = engine
        self._database = database
        self._settings = settings
        self._pruned: tuple[Stamped, History, float] | None = None
        """Up to which commit it was pruned, by which settings, and when."""

    def act(self) -> None:
        """See `PeriodicWork`. Raises `DatabaseError`, and `LedgerUnavailable` in an outage."""
        self._remove_verdicts()
        last, settings, now = self._engine.stamped(), self._settings(), time.monotonic()
        if self._pruned is not None and self._pruned[:2] == (last, settings) and now < self._pruned[2] + AT_REST:
            return
        try:
            with self._database.session() as session:
                self._prune_all(session, settings)
        except DatabaseUnavailable as error:
            raise LedgerUnavailable(str(error)) from error
        self._pruned = last, settings, now

    def _prune_all(self, session: DatabaseSession, settings: History) -> None:
        while self._prune(session) >= COMMITS_AT_ONCE:
            log.debug("there are more old commits")
        limits = Limits(settings.retention_days, settings.max_revisions)
        session.transaction("SELECT proxyfleet.tend_usage()", (), PRUNING_MAX)
        while session.transaction("SELECT proxyfleet.add_up_usage()", (), PRUNING_MAX) == [(True,)]:
            log.debug("added up the hours of a node's usage that are older than a week")
        session.transaction(
            "SELECT proxyfleet.prune_history(%s, %s, %s)", [limits.days, limits.revisions, limits.size], PRUNING_MAX
        )

    def _remove_verdicts(self) -> None:
        """Those that have ended. Raises `StoreError`."""
        now = self._database.time()
        ended = [each for each in self._engine.find(VERDICTS) if each.body["until"] < now]
        if ended:
            with suppress(RevisionConflict, NotStored):  # there is another one, or another node has removed it
                self._engine.commit_unrecorded([Write(VERDICTS, each.id, None, each.revision) for each in ended])

    def _prune(self, session: DatabaseSession) -> int:
        (found,) = session.transaction(
            "SELECT * FROM proxyfleet.prune(%s, %s)", [KEPT_DAYS, COMMITS_AT_ONCE], PRUNING_MAX
        )
        commits, *_ = found
        if any(found):
            log.info(
                "removed %d old commits, %d deletions, %d claims, %d marks of requests and %d MiB of files"
                " from the database",
                *found,
            )
        return int(commits)


class NodeEvents(PeriodicWork):
    """Publishes which nodes are down or up again, and that this one is cut off from the database."""

    def __init__(self, node: ThisNode, node_id: str, engine: Engine, publish: Publish) -> None:
        super().__init__(WATCH, "say which nodes are down", WATCHING, WATCHING, within=AT_END)
        self._node = node
        self._node_id = node_id
        self._engine = engine
        self._publish = publish
        self._is_cut_off = False
        self._found: Sequence[Mapping[str, Any]] = ()

    def heartbeat_fields(self) -> Mapping[str, Any]:
        """What heartbeats are to ask for: the node with the duty gets what `noted` takes."""
        self._node.duties.has(WATCH)
        return {"down_after": DOWN_AFTER}

    def on_heartbeat(self, beat: Beat) -> None:
        """The reply to one."""
        self._found = beat.reply.get("nodes", ())

    def act(self) -> None:
        """See `PeriodicWork`. Raises `StoreError`."""
        seconds = self._node.cut_off_for() or 0.0
        if seconds >= DOWN_AFTER and not self._is_cut_off:
            since = timestamp_text(self._node.clock() - seconds)
            self._publish("node.cut_off", {**self._about(self._node_id), "since": since})
        self._is_cut_off = seconds >= DOWN_AFTER
        found, self._found = self._found, ()
        if found:
            self._announce(found)

    def _announce(self, found: Sequence[Mapping[str, Any]]) -> None:
        ours = self._node.duties.claim(each["key"] for each in found).ours
        for each in found:
            if each["key"] in ours:
                self._publish(each["event"], {**self._about(each["node"]), "since": timestamp_text(each["since"])})
        self._node.duties.announced(ours)

    def _about(self, node: str) -> dict[str, Any]:
        """A node that was removed has its id for its name."""
        found = self._engine.get("nodes", node)
        return {"node_id": node, "name": node if found is None else found.body["name"]}
