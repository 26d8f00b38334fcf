"""Nodes that follow as in a product."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any

from actors.bus.messages.common import METRICS, Done
from actors.cluster.identity import NodeIdentity
from api.bus_bridge import Bridge
from api.cluster.fleet_node import FleetNode, NodeHost
from api.engine.commit import Engine
from api.engine.effects import CommitEffect
from api.engine.levels import LEVELS, Levels
from api.history.document_changes import DocumentChange
from config.files.paths import open_data_dir
from config.settings.groups import History
from tests.unit.api.cluster.nodes import Fleet


class BusOfCollector:
    """A bus with nothing but a collector, which is asked these."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def ask(self, to: str, message: Any, timeout: float = 5.0) -> Any:
        assert to == METRICS
        self.asked.append(message)
        return Done()

    def ask_all(self, requests: Mapping[str, Any], timeout: float = 5.0) -> dict[str, Any]:
        return {to: self.ask(to, message, timeout) for to, message in requests.items()}

    def publish(self, topic: str, message: Any) -> None:
        raise AssertionError((topic, message))


class Following:
    """A node that follows as in a product, with what its effects have got."""

    def __init__(
        self,
        fleet: Fleet,
        name: str,
        dsn: str = "",
        listen_dsn: str = "",
        levels: Levels = LEVELS,
        bridge: Bridge | None = None,
    ) -> None:
        self.node = FleetNode(NodeIdentity(fleet.id, name, name, "full", dsn or fleet.dsn, listen_dsn), levels)
        self.data = open_data_dir(fleet.folder / name)
        self.data.cluster.mkdir(exist_ok=True)
        self.engine = Engine(self.data, fleet.seal, self.node.ledger)
        self.made: list[Sequence[DocumentChange]] = []
        self.engine.effects.follow(CommitEffect(["proxies"], self.made.append))
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.node.opened(self.engine)
        self.node.start(NodeHost(lambda *event: self.events.append(event), History, bridge=bridge))

    def follow_by(self, make: Callable[[Sequence[DocumentChange]], None]) -> None:
        """Its effects fail, or wait."""
        effect = CommitEffect(["proxies"], make)
        effect.subscribe(self.engine.effects._table[0]._on_outcome)
        self.engine.effects.follow(effect)

    def close(self) -> None:
        self.node.close()
        self.engine.close()

    def proxies(self) -> int:
        return len(self.engine.every("proxies"))

    @property
    def doorbell(self) -> str:
        return str(self.node.heartbeat.problems()["database"]["doorbell"])


@contextmanager
def nodes(fleet: Fleet, *names: str, **more: Any) -> Iterator[list[Following]]:
    with ExitStack() as stack:
        yield [stack.enter_context(closing(Following(fleet, name, **more))) for name in names]
