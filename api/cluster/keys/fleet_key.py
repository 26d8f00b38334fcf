"""The key of the fleet in the key file of a node: it follows the fleet's, and is given to nodes that ask."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from actors.cluster.database import Database
from actors.cluster.identity import NodeIdentity
from api.cluster.following.heartbeat import Beat
from api.cluster.keys.resealing import Resealing
from api.cluster.links.certificates import KnownNode, NodeCertificateError, OwnCertificate
from api.cluster.links.internal_api import NodeRefused, NodeUnreachable, ask, place_of_node
from api.cluster.shared_ledger import LedgerUnavailable, SharedLedger, as_of_store
from api.engine.commit import Engine
from api.periodic_work import LoopThread
from api.store import StoreError
from config import OperatorError
from config.files.secret_box import SecretBox, SecretBoxError, marks_in, sealing_as
from config.model.nodes import COLLECTION, FLEET_KEY

log = logging.getLogger(__name__)

PATH = "/key"
WITHIN = 5.0
"""Seconds that another node has to respond."""
CLOSE = 1.0
"""Seconds that the end waits for a look."""
SOON, OFTEN, SELDOM, AT_REST = 1.0, 4.0, 60.0, 3600.0
"""Seconds between two looks at what the fleet's key is: while one is missing, while there are several, and else; and
while heartbeats say that it is the same."""
MARKER = FLEET_KEY
"""It is sealed with the fleet's key in any case: from it each replica knows which one that is."""

_STATE = "SELECT key_fingerprint, retired_keys, is_rekeying FROM proxyfleet.fleet"
_GIVEN = (
    "the key is given from outside ({path}), and stays as it is: have it in keys/secrets.key on each node, without the"
    " credential, and rekey; then the new key can be given"
)


class RekeyRefused(OperatorError):
    """The fleet's key was not replaced; the text says why, and nothing was changed."""


@dataclass(frozen=True, slots=True)
class FleetKeys:
    """What the database says: the mark of the key, of those that were, and whether the last of them is still needed."""

    mark: str
    retired: Sequence[str]
    is_rekeying: bool


class FleetKey(LoopThread):
    """That of this node. Thread-safe. From `start` until `close` it follows the fleet's."""

    def __init__(
        self,
        identity: NodeIdentity,
        database: Database,
        ledger: SharedLedger,
        seal: SecretBox,
    ) -> None:
        super().__init__("fleet key", self._follow_key, CLOSE)
        self.identity, self.database, self.ledger, self.seal = identity, database, ledger, seal
        self.engine: Engine | None = None
        self._own: OwnCertificate | None = None
        self._follow: Callable[[], object] = lambda: None
        self._wanted, self._foreign = set[str](), set[str]()
        """Marks of keys that documents need and this node lacks; and of those that are no key of the fleet."""
        self._settling, self.replacing = threading.RLock(), threading.Lock()
        self._problem, self._since = "", 0.0
        self._latest: object = None
        """What the last heartbeat has learnt of it."""
        ledger.check_by(self.check)

    def opened(self, engine: Engine) -> None:
        """The replica is open: it may have a newer key than the file, when the process was killed between the two."""
        self.engine = engine
        marker = engine.get(*MARKER)
        try:
            marks = marks_in(json.dumps(marker.body)) if marker is not None and self.seal.is_made else set()
            self._want_or_use(marks)
        except SecretBoxError as error:
            log.error("the fleet's key can't be used: %s", error)

    def reach(self, own: OwnCertificate, follow: Callable[[], object]) -> None:
        """Before `start`: other nodes can be asked with this certificate; `follow` has commits read again."""
        self._own, self._follow = own, follow

    def check(self, text: str) -> None:
        """What comes from the ledger can be opened, and the newest key seals. Raises `LedgerUnavailable`."""
        marks = marks_in(text)
        if not marks or not self.seal.is_made:
            return
        with sealing_as(LedgerUnavailable):
            missing = self._want_or_use(marks)
        if missing:
            raise LedgerUnavailable(
                f"the fleet's secrets are sealed with the key {missing}, which this node lacks: it asks full nodes for"
                f" it; where none can be reached, add that key to {self.seal.path}"
            )

    def _want_or_use(self, marks: Collection[str]) -> str:
        """Seal with the key of what is read; the mark of one that is missing, if there is one."""
        known = {*self.seal.marks}
        for each in sorted({*marks} & known):
            self.seal.use(each)
        missing = {*marks} - known - self._foreign
        if missing:
            self._wanted |= missing
            self.soon()
        return min(missing, default="")

    # --- following ---

    def settle(self) -> None:
        """Have the fleet's key, and no other for longer than it is needed. Raises `OperatorError`."""
        with self._settling:
            state = self.state()
            if not state.mark or not self.seal.is_made:
                return
            needed = {state.mark, *state.retired[-1:]} if state.is_rekeying else {state.mark}
            strange = self._wanted - {state.mark, *state.retired}
            self._foreign |= strange
            self._wanted -= strange
            if not ({*needed} | self._wanted) <= {*self.seal.marks}:
                self._ask_for(needed | self._wanted)
            known = self.seal.marks
            self._foreign |= self._wanted - {*known} - needed
            if state.mark not in known:
                raise StoreError(
                    f"no node that can be reached has the fleet's key {state.mark}: add it to {self.seal.path}"
                )
            self.seal.use(state.mark)
            if strange or self._wanted:
                self._wanted.clear()
                self._follow()
            previous = [each for each in known if each in state.retired and each != state.mark]
            if previous and not state.is_rekeying and self.engine is not None:
                self._end(self.engine, previous, state.mark)

    def _end(self, engine: Engine, previous: Sequence[str], mark: str) -> None:
        """Seal anew what is here alone, and forget the keys that were. In the database nothing needs them."""
        engine.catch_up()
        anew, data = Resealing(self.seal, previous, mark), engine.data
        anew.history_of_replica(engine)
        for each in (data.node, *data.cluster.glob("lost-*.json")):
            anew.file(each)
        anew.forget_responses(data)
        if self.identity.role == "full":
            anew.forget_responses_of_fleet(self.database)
        if found := anew.documents(engine):
            raise StoreError("{}/{} is sealed with a key that was replaced, which stays".format(*found[0]))
        self.seal.forget(previous)
        log.info("secrets are sealed with the fleet's key %s alone", mark)

    def state(self) -> FleetKeys:
        """What the database says now. Raises `StoreError`."""
        with as_of_store():
            rows = self.database.transaction(_STATE)
        if not rows:
            raise StoreError("the database holds no fleet")
        return FleetKeys(*rows[0])

    def _ask_for(self, marks: Collection[str]) -> None:
        """Take the keys that full nodes have, until these are among them."""
        for node in self.others():
            if node["role"] != "full":
                continue
            try:
                self.seal.add(str(self.ask(node, {}).get("keys")))
            except (NodeRefused, NodeUnreachable, NodeCertificateError) as error:
                log.debug("%s does not give the fleet's key: %s", node["name"], error)
            if {*marks} <= {*self.seal.marks}:
                return

    def others(self) -> list[Mapping[str, Any]]:
        """The documents of the other nodes."""
        found = [] if self.engine is None else self.engine.find(COLLECTION)
        return [each.body for each in found if each.id != self.identity.id]

    def ask(self, node: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
        """Ask one of them. Raises `NodeRefused`, `NodeUnreachable`, `NodeCertificateError`."""
        if self._own is None:
            raise NodeUnreachable("this node has no certificate")
        return ask(*place_of_node(node), PATH, body, WITHIN, self._own)

    def follow_once(self) -> None:
        """As `settle`; what fails is logged once, and reported until it is mended."""
        try:
            self.settle()
            self._note("")
        except OperatorError as error:
            self._note("" if isinstance(error, LedgerUnavailable) else str(error))
        except Exception:  # the next look may do better
            log.exception("the fleet's key can't be followed")

    def on_heartbeat(self, beat: Beat) -> None:
        """Look at it when it is another one. The schema of a release before says nothing of it."""
        latest = beat.reply.get("key")
        if latest != self._latest:
            self._latest = latest
            self.soon()

    def _follow_key(self) -> float:
        several = False
        self.follow_once()
        if self._wanted:
            self.pause(SOON)
        with suppress(SecretBoxError):
            several = self.seal.is_made and len(self.seal.marks) > 1
        if self._wanted or several:
            return SOON if self._wanted else OFTEN
        return SELDOM if self._latest is None else AT_REST

    def _note(self, problem: str) -> None:
        """Log it once."""
        if problem and problem != self._problem:
            self._since = self.database.time()
            log.error("the fleet's key: %s", problem)
        self._problem = problem

    def failed(self) -> list[dict[str, Any]]:
        """Why this node has not the fleet's key, among what it could not apply (`api.objects.nodes.node_kind`)."""
        if not self._problem:
            return []
        collection, identifier = MARKER
        about = {"collection": collection, "id": identifier, "name": None, "revision": 0}
        return [{**about, "error": self._problem, "since": self._since}]

    # --- what other nodes ask ---

    def handle(self, node: KnownNode | None, body: Mapping[str, Any]) -> dict[str, Any]:
        """Respond to `POST /key` of a node. Raises `NodeRefused`.

        {"key": …, "previous": …} is a new key, to be stored behind the one of the mark `previous`; {"drop": …} is the
        mark of such a key that will not be the fleet's; {"settle": true} means that the fleet's may be another one; {}
        asks for the keys.
        """
        try:
            if ("key" in body or "drop" in body) and (node is None or node.role != "full"):
                raise NodeRefused("a full node gives the key")
            if "key" in body:
                self._accept(str(body["key"]), str(body.get("previous")))
            elif "drop" in body:
                if body["drop"] != self.state().mark:
                    self.seal.forget([body["drop"]])
            elif body.get("settle"):
                self.settle()
            else:
                return {"keys": self.seal.exported()}
            return {"marks": self.seal.marks}
        except (StoreError, SecretBoxError, RekeyRefused) as error:
            raise NodeRefused(str(error), 503) from error

    def _accept(self, key: str, previous: str) -> None:
        if not self.replacing.acquire(blocking=False):
            raise NodeRefused("this node replaces the fleet's key itself", 409)
        try:
            self.offer(key, previous)
        finally:
            self.replacing.release()

    def offer(self, key: str, previous: str) -> None:
        """Keep a new key behind the one that seals, in place of another one that never did.

        Raises `RekeyRefused`, `StoreError`, `SecretBoxError`.
        """
        with self._settling:
            if self.seal.is_given:
                raise RekeyRefused(_GIVEN.format(path=self.seal.path))
            self.settle()
            first, *others = self.seal.marks
            if first != previous:
                raise RekeyRefused(f"this node seals with the key {first}, and not with {previous}")
            retired = self.state().retired
            self.seal.forget([each for each in others if each not in retired])
            self.seal.add(key)
