"""What is known of the upstreams of pools, from files that all processes map, and the verdicts of clients' programs.

The API reads the files, and of their words it writes the bans: these hold for all processes at once, with no message.
In a fleet a verdict is a document with the end of its ban, and each node applies it to its own files.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from actors.pools.slot import Health, UpstreamSlot, spans_of
from actors.pools.state import PoolCounts, SharedPoolState, known_state, summary_of, unknown
from api.engine.commit import Engine
from api.engine.records import Stored
from api.errors import NotFound
from api.fleet import ThisNode
from api.history.document_changes import DocumentChange
from api.objects.named.pool_kind import POOLS
from api.objects.named.shared_objects import SharedObjects
from api.store import StoreError, StoreWriteError
from config.model.shared_objects.pools import BAN_DEFAULT, VERDICTS, Pool, PoolUpstream, UpstreamReport
from config.text.formatting import timestamp_text

log = logging.getLogger(__name__)

_UNKNOWN = Health("unknown", 0.0, 0, "", 0.0, 0.0, None, "", 0.0, None, 0, 0, 0)


class Verdict(BaseModel):
    """A document of the collection. Times are Unix seconds; an upstream that is good has an `until` that is past."""

    id: str
    created_at: float
    pool_id: str
    upstream: str
    until: float

    @classmethod
    def of(cls, pool_id: str, upstream: str, now: float, until: float) -> Verdict:
        """The one of an upstream, which is the same document for all of its verdicts."""
        digest = hashlib.sha256(f"{pool_id} {upstream}".encode()).hexdigest()
        return cls(id=f"vdt_{digest[:24]}", created_at=now, pool_id=pool_id, upstream=upstream, until=until)


class PoolStates:
    """Thread-safe. `folder` is where the files are (`RunDir.pools`).

    `in_use` returns the names of the pools that a proxy which is active may use, None while that is not known.
    """

    def __init__(
        self,
        folder: Path,
        objects: SharedObjects,
        publish: Callable[[str, dict[str, Any]], None],
        in_use: Callable[[], Collection[str] | None],
        store: Engine,
        node: Callable[[], ThisNode] = ThisNode,
    ) -> None:
        self._in_use = in_use
        self._store = store
        self._node = node
        self._folder = folder
        self._objects = objects
        self._publish = publish
        self._lock = threading.Lock()

    def summary(self, pool: Pool) -> PoolCounts:
        """The whole pool in numbers. A file that can't be read is as none."""
        try:
            return summary_of(self._folder / pool.id, len(pool.upstreams), time.monotonic())
        except OSError as error:
            log.warning("the state of the pool %s can't be read: %s", pool.name, error)
            return unknown(len(pool.upstreams))

    def status(self, pool: Pool) -> dict[str, Any]:
        """The view of the summary."""
        known, in_use = self.summary(pool), self._in_use()
        used = None if in_use is None else pool.name in in_use
        return {
            "state": _state(known),
            **{name: value for name, value in known._asdict().items() if name in _COUNTED},
            "used": used,
            "checked": used if pool.check.enabled else False,
        }

    def totals(self) -> dict[str, Any]:
        """The view of all pools together."""
        pools = [self._objects.complete(each).record for each in self._objects.all(POOLS)]
        known = [self.summary(each) for each in pools]
        return {
            "total": len(pools),
            "by_state": dict(sorted(Counter(map(_state, known)).items())),
            "upstreams": sum(len(each.upstreams) for each in pools),
            "usable": sum(each.usable for each in known),
        }

    def upstreams(self, pool: Pool) -> list[dict[str, Any]]:
        """The view of each upstream's state, in the order of the pool."""
        slots, now = self._slots(pool), time.monotonic()
        return [_view(each, slots.get(each.identity), now) for each in pool.upstreams]

    def report(self, key: str, name: str, body: UpstreamReport) -> tuple[Pool, dict[str, Any]]:
        """Apply a verdict; the pool, and the view of the upstream. Raises `NotFound`, `StoreWriteError`."""
        stored = self._objects.complete(self._objects.get(POOLS, key))
        index, upstream = _named(stored.record, name)
        seconds = BAN_DEFAULT if body.seconds is None else body.seconds
        left = seconds if body.verdict == "bad" else 0
        if self._node().node_id is None:
            slot = self._judge(stored, index, left)
        else:
            now = self._node().clock()
            verdict = Verdict.of(stored.record.id, name, now, now + left)
            self._store.put(VERDICTS, verdict.model_dump(mode="json"))  # what follows from it applies it, here too
            slot = self._state(stored).slots[index]
        about = {"pool_id": stored.record.id, "pool": stored.record.name, "upstream": name}
        if body.verdict == "bad":
            self._publish("upstream.banned", {**about, "seconds": seconds})
        else:
            self._publish("upstream.unbanned", about)
        return stored.record, _view(upstream, slot, time.monotonic())

    def apply(self, changes: Sequence[DocumentChange]) -> None:
        """Verdicts that were given at some node. A ban whose document is gone ends; others have ended already."""
        for each in changes:
            if each.after is not None:
                self._apply(each.after)
            elif each.before is not None and each.before["until"] > self._node().clock():
                self._apply({**each.before, "until": 0.0})

    def apply_stored(self) -> None:
        """At the start: those that came while this node was down. A machine that has left its fleet has none any more.

        Raises `StoreError`.
        """
        for document in self._store.find(VERDICTS):
            if self._node().node_id is None:
                self._store.delete(VERDICTS, document.id, document.revision)
            else:
                self._apply(document.body, again=True)

    def _apply(self, body: Mapping[str, Any], again: bool = False) -> None:
        """`again`: it may have been applied before, and what has happened since then holds."""
        try:
            verdict = Verdict.model_validate(body)
            left = verdict.until - self._node().clock()
            stored = self._objects.complete(self._objects.get(POOLS, verdict.pool_id))
            index, upstream = _named(stored.record, verdict.upstream)
            slot = self._slots(stored.record).get(upstream.identity)
            is_banned = slot is not None and slot.health(time.monotonic()).banned_until > time.monotonic()
            if not again or is_banned != (left > 0):
                self._judge(stored, index, left)
        except NotFound:
            pass  # it was deleted, or has another name now
        except (ValidationError, StoreError, OSError) as error:
            log.error("the report %s of an upstream can't be applied: %s", body.get("id"), error)

    def _judge(self, stored: Stored[Any], index: int, left: float) -> UpstreamSlot:
        """Leave an upstream alone for so many seconds, or end that. Raises `StoreWriteError`."""
        with self._lock:
            state = self._state(stored)
            slot, now = state.slots[index], time.monotonic()
            if left > 0:
                state.ban(slot, now + left)
            else:
                slot.lift(now)
            return slot

    def forget_deleted(self) -> None:
        """Delete the files of pools that are gone."""
        found = list(
            self._folder.glob("pool_*")
        )  # first: that of a pool which is made at this moment is not among them
        kept = {each.record.id for each in self._objects.all(POOLS)}
        for path in found:
            try:
                if path.name not in kept:
                    path.unlink(missing_ok=True)
            except OSError as error:
                log.warning("the state of a deleted pool can't be removed: %s", error)

    def _slots(self, pool: Pool) -> Mapping[Any, UpstreamSlot]:
        try:
            return known_state(self._folder, pool.id, [each.identity for each in pool.upstreams])
        except OSError as error:
            log.warning("the state of the pool %s can't be read: %s", pool.name, error)
            return {}

    def _state(self, stored: Stored[Any]) -> SharedPoolState:
        """Its file is made if there is none: a verdict may come before the first use."""
        pool: Pool = stored.record
        spans = spans_of({kind: (first, longest) for kind, (first, longest) in pool.cooldown.model_dump().items()})
        identities = [each.identity for each in pool.upstreams]
        state = SharedPoolState(self._folder / pool.id, stored.revision, identities, spans)
        if not state.is_shared:
            raise StoreWriteError(f"{self._folder}: the state of pools can't be written")
        return state


_COUNTED = ("up", "down", "unknown", "cooling_down", "banned", "usable")


def _state(known: PoolCounts) -> str:
    """The whole pool in a word."""
    if known.usable:
        return "degraded" if known.down or known.usable < known.up else "up"
    return "unknown" if known.unknown else "down"


def _named(pool: Pool, name: str) -> tuple[int, PoolUpstream]:
    for index, each in enumerate(pool.upstreams):
        if each.name == name:
            return index, each
    raise NotFound("The upstream")


def _view(upstream: PoolUpstream, slot: UpstreamSlot | None, now: float) -> dict[str, Any]:
    health = _UNKNOWN if slot is None else slot.health(now)
    wall = time.time() - now

    def moment(monotonic: float) -> str | None:
        return timestamp_text(monotonic + wall) if monotonic else None

    return {
        "name": upstream.name,
        "state": health.state,
        "since": moment(health.since),
        "latency": None if health.latency is None else round(health.latency * 1000, 3),
        "failures": health.failures,
        "cooldown": health.cooldown or None,
        "cooldown_until": moment(health.cooldown_until),
        "banned_until": moment(health.banned_until),
        "last_error": health.last_error,
        "last_error_at": moment(health.error_at),
        "checks": health.checks,
        "checks_failed": health.checks_failed,
    }
