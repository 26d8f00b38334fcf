"""APIs of nodes that share a ledger in memory, with their documents."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from typing import Any

from actors.bus.messages.specs import ProxySpec
from api.audit.trail import Broken, Entry, FoundEntries, Head, Selection
from api.fleet import Presence, ThisNode
from api.store import StoreError
from config.model.nodes import NodeRecord
from tests.unit.api.cluster.node_api import NodeApi
from tests.unit.api.store.replicas import MemoryLedger


def presence(silent: float = 1.0, **changed: Any) -> Presence:
    known: dict[str, Any] = {
        "seen_at": 1_000_000.0, "silent": silent, "started_at": 999_000.0, "version": "1.2", "level": 1, "revision": 8,
        "behind": 0.0, "clock_offset": 0.25,
    }  # fmt: skip
    return Presence(**{**known, **changed})


class StagedNode(ThisNode):
    """What an API asks of its node."""

    def __init__(self, node_id: str) -> None:
        self.node_id = node_id
        self.present: dict[str, Presence] = {}
        self.asked: Callable[[], Mapping[str, Presence]] = lambda: self.present
        self.beats = 0
        self.cut_off: float | None = None
        self.removed: list[str] = []

    def presence(self, fresh: bool = False) -> Mapping[str, Presence]:
        return self.asked()

    def cut_off_for(self) -> float | None:
        return self.cut_off

    def beat_soon(self) -> None:
        self.beats += 1

    def remove(self, node_id: str) -> Mapping[str, Any]:
        self.removed.append(node_id)
        return {"pending": {"usage_bytes": 7, "usage_seconds": 10}, "last_seen_at": 1_000_000.0}


class StagedTrails:
    """The database's audit trails: these entries, by the id of their node, or it can't be read."""

    def __init__(self, *found: tuple[str, Entry], error: str = "") -> None:
        self._found, self._error = found, error

    def find(self, selection: Selection, nodes: Collection[str] | None, limit: int, offset: int) -> FoundEntries:
        if self._error:
            raise StoreError(self._error)
        rows = [((each.content["timestamp"], node, each.seq), each) for node, each in self._found]
        return FoundEntries(rows, len(rows))

    def heads(self, nodes: Collection[str]) -> dict[str, Head]:
        return {node: Head(each.seq, each.hash) for node, each in self._found if node in nodes}

    def verify(self) -> dict[str, Head | Broken]:
        return {}


class FleetApi(NodeApi):
    """That of the node `nod_NAME`, whose document it makes."""

    def __init__(self, ledger: MemoryLedger, name: str, other: NodeApi | None = None, **fields: Any) -> None:
        self.id = f"nod_{name}"
        self.node: StagedNode = StagedNode(self.id)
        super().__init__(ledger, name, other)
        record = NodeRecord(id=self.id, name=name, created_at=float(len(self.engine.every("nodes"))), **fields)
        self.engine.put("nodes", record.model_dump(mode="json"), 0)

    def follow(self) -> None:
        self.engine.catch_up()

    @property
    def specs(self) -> dict[str, ProxySpec]:
        """What its supervisor has, by name."""
        self.follow()
        return {each.name: each for each in self.fleet.desired.values()}


FRA = {"tags": ["eu"], "addresses": {"internal": "10.0.0.1:7443", "public": "192.0.2.1"}}
NYC = {"tags": ["us"], "addresses": {"internal": "10.0.0.2", "public": "192.0.2.2"}}


@contextmanager
def two_nodes() -> Iterator[tuple[FleetApi, FleetApi]]:
    """`fra`, with the tag eu, and `nyc`, with us."""
    ledger = MemoryLedger()
    with ExitStack() as stack:
        fra = stack.enter_context(closing(FleetApi(ledger, "fra", **FRA)))
        nyc = stack.enter_context(closing(FleetApi(ledger, "nyc", fra, **NYC)))
        fra.follow()
        yield fra, nyc
