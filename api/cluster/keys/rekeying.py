"""A full node replaces the fleet's key, or finishes what another one, or it, had begun (see the package)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from actors.cluster.database import CHANGE
from api.cluster.following.presence import Presences
from api.cluster.keys.fleet_key import MARKER, FleetKey, FleetKeys, RekeyRefused
from api.cluster.keys.resealing import Resealing
from api.cluster.links.certificates import NodeCertificateError
from api.cluster.links.internal_api import NodeRefused, NodeUnreachable
from api.cluster.shared_ledger import as_of_store
from api.engine.commit import Engine, size_of
from api.store import StoreError, Write
from config import OperatorError
from config.files.secret_box import SealedFor, SecretBoxError, mark_of, new_key

CONNECTED = 10.0
"""Seconds since its last heartbeat in which a node is connected, and has to confirm."""
PASSES = 3
"""How often the history is gone through at most until nothing in it is sealed with the old key."""

_RETIRE = """
UPDATE proxyfleet.fleet SET key_fingerprint = %s, retired_keys = retired_keys || %s::text, is_rekeying = true
"""
_END = "UPDATE proxyfleet.fleet SET is_rekeying = false WHERE key_fingerprint = %s"


@dataclass(frozen=True, slots=True)
class Rekeyed:
    """The mark of the new key; names of the nodes that have no other, and of those that have it not yet, or others."""

    mark: str
    nodes: Sequence[str]
    waiting: Sequence[str]


class Rekeying:
    """Of this node. Called, it does it. Thread-safe."""

    def __init__(self, key: FleetKey, presences: Presences) -> None:
        self._key, self._seal, self._presences = key, key.seal, presences

    def __call__(self) -> Rekeyed:
        """Replace the fleet's key, or finish what was begun.

        Raises `RekeyRefused`, with nothing changed; `StoreError`, `SecretBoxError`: then it may be that it is to be
        finished by calling it again.
        """
        if self._key.engine is None or self._key.identity.role != "full":
            raise RekeyRefused("an edge node can't replace the fleet's key: do it at a full one")
        if not self._key.replacing.acquire(blocking=False):
            raise RekeyRefused("the fleet's key is being replaced at this moment")
        try:
            self._key.settle()
            if not (state := self._key.state()).is_rekeying:
                self._replace(self._key.engine, self._seal.marks[0])
                state = self._key.state()
            return self._finish(state)
        finally:
            self._key.replacing.release()

    def _replace(self, engine: Engine, previous: str) -> None:
        key = new_key()
        self._refuse_unknown(engine, Resealing(self._seal, [previous], mark_of(key)))
        self._key.offer(key, previous)
        try:
            self._hand_over(key, previous)
            self._commit(engine, previous, mark_of(key))
        except RekeyRefused:
            self._seal.forget([mark_of(key)])
            [*self._ask_all(self._connected(), {"drop": mark_of(key)})]
            raise

    def _refuse_unknown(self, engine: Engine, anew: Resealing) -> None:
        """What a later release has written is not in this replica, or as it was before."""
        there = anew.documents_of_fleet(self._key.database)
        engine.catch_up()
        if unknown := there - {(each[0], each[1]) for each in anew.documents(engine)}:
            raise RekeyRefused(
                "{}/{} is of a later release than this node: do it at a node of that release".format(*min(unknown))
            )

    def _connected(self) -> list[Mapping[str, Any]]:
        seen = self._presences.read(fresh=True)
        return [each for each in self._key.others() if each["id"] in seen and seen[each["id"]].silent < CONNECTED]

    def _hand_over(self, key: str, previous: str) -> None:
        refused = [
            f"{name}: {reply}"
            for name, reply in self._ask_all(self._connected(), {"key": key, "previous": previous})
            if isinstance(reply, Exception) or mark_of(key) not in reply.get("marks", ())
        ]
        if refused:
            raise RekeyRefused(
                f"{'; '.join(sorted(refused))}. Nothing was changed: each node that is connected has to take the new"
                " key; `proxyfleet nodes remove` ends one that can't"
            )

    def _ask_all(
        self, nodes: Sequence[Mapping[str, Any]], body: Mapping[str, Any]
    ) -> Iterator[tuple[str, dict[str, Any] | OperatorError]]:
        """The reply of each by its name, or why there is none."""

        def of(node: Mapping[str, Any]) -> dict[str, Any] | OperatorError:
            try:
                return self._key.ask(node, body)
            except (NodeRefused, NodeUnreachable, NodeCertificateError) as error:
                return error

        with ThreadPoolExecutor(8, "rekeying") as threads:
            yield from zip([each["name"] for each in nodes], threads.map(of, nodes), strict=True)

    def _commit(self, engine: Engine, previous: str, mark: str) -> None:
        engine.catch_up()
        at, writes = engine.stamped()[0], self._writes(engine, previous, mark)
        resource = {"type": "fleet", "id": str(self._key.identity.fleet), "name": None}
        with engine.alone(size_of(writes)):
            if self._key.state().mark != previous:
                raise RekeyRefused("another node has replaced the fleet's key at this moment")
            if engine.stamped()[0] != at:
                writes = self._writes(engine, previous, mark)
            with (
                self._key.ledger.with_next(_RETIRE, [mark, previous]),
                engine.recorded(
                    "fleet.rekeyed", resource, {"key": mark, "previous": previous, "documents": len(writes)}
                ),
            ):
                engine.commit_unrecorded(writes)
            self._seal.use(mark)

    def _writes(self, engine: Engine, previous: str, mark: str) -> list[Write]:
        writes, anew = [], Resealing(self._seal, [previous], mark)
        for collection, identifier, revision, text in anew.documents(engine):
            try:
                body = anew.document(json.loads(text))
            except SecretBoxError as error:
                raise RekeyRefused(
                    f"a secret of {collection}/{identifier} can't be opened: give it anew, or delete it, first; {error}"
                ) from error
            if (collection, identifier) != MARKER:
                writes.append(Write(collection, identifier, body, revision))
        marker = {"id": MARKER[1], "key_sealed": self._seal.seal(mark, SealedFor.FLEET_KEY, mark=mark)}
        return [*writes, Write(*MARKER, marker, engine.revision_of(*MARKER))]

    def _finish(self, state: FleetKeys) -> Rekeyed:
        """Seal the history in the database anew, and have the old key out of all files."""
        mark, anew = state.mark, Resealing(self._seal, state.retired[-1:], state.mark)
        self._key.settle()
        [*self._ask_all(self._connected(), {"settle": True})]
        for _ in range(PASSES):
            if not anew.history_of_fleet(self._key.database):
                break
        anew.moves_of_fleet(self._key.database)
        anew.forget_responses_of_fleet(self._key.database)
        if left := anew.documents_of_fleet(self._key.database):
            raise StoreError("{}/{} is sealed with the old key, which stays".format(*min(left)))
        with as_of_store():
            self._key.database.transaction(_END, [mark], CHANGE)
        self._key.settle()
        replies = dict(self._ask_all(self._connected(), {"settle": True}))
        done = {name for name, each in replies.items() if isinstance(each, dict) and each.get("marks") == [mark]}
        names = {each["name"] for each in self._key.others()}
        return Rekeyed(mark, [self._key.identity.name, *sorted(done)], sorted(names - done))
