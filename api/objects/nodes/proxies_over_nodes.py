"""How proxies are on the nodes of a fleet: what a node reports of its own, the sum, and which nodes refused a change.

A node's heartbeat names the proxies that do not just run there. After a change of where a proxy listens it comes at
once, and again while the proxy starts, so that the node that made the change can say what became of it elsewhere.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from actors.bus.messages.supervision import Runtime
from api.fleet import Presence, ThisNode
from api.history.document_changes import Body, DocumentChange
from api.objects.nodes.fleet_nodes import FleetNodes
from api.objects.proxies.proxy_cache import StoredProxy
from api.objects.proxies.runtime_view import RuntimeQueries
from config.model.nodes import NodeRecord
from config.model.proxies import ProxyRecord
from config.model.proxy_parts import FieldWarning
from config.text.formatting import timestamp_text

REPORTED_MOST = 500
"""Proxies of one heartbeat."""
SILENT = 30.0
"""Seconds without a heartbeat after which nothing is known of a node's proxies."""
CONNECTED = 10.0
"""Seconds after which a node is not waited for."""
WAIT = 2.0
"""Seconds that a change waits for what other nodes say of it."""
PAUSE = 0.1
AGAIN = 0.3
"""Seconds until the next heartbeat while a proxy starts."""

_UNREMARKABLE = frozenset({"running", "sleeping", "stopped"})
_WORKS = frozenset({"running", "sleeping"})
_BY_WEIGHT = ("failed", "unknown", "starting", "draining", "stopped")
_STATES = _WORKS | {*_BY_WEIGHT, "degraded"}
_LISTENING = ("host", "port", "last_port", "protocol", "status", "tls", "nodes", "workers")
"""Fields of a document that decide whether a node can run a proxy."""


class StateOnNode(NamedTuple):
    """The state of a proxy on one node; `unknown` where nothing is known."""

    node: str
    state: str
    error: str | None


class ProxiesOverNodes:
    """Those of a fleet. Thread-safe."""

    def __init__(
        self,
        nodes: FleetNodes,
        runtime: RuntimeQueries,
        this: Callable[[], ThisNode],
        settings: Callable[[], Mapping[str, str]],
    ) -> None:
        """`settings` gives digests of what must be the same on all nodes, by key."""
        self._nodes = nodes
        self._settings = settings
        self._runtime = runtime
        self._this = this
        self._reports_until = 0.0

    # --- what this node says of its own ---

    def report(self) -> Mapping[str, Any]:
        """For the heartbeat: the state of each proxy here that does not just run, and digests of settings."""
        runtimes = self._runtime.runtimes() or {}
        found = {
            proxy_id: {"state": each.state, "error": each.error}
            for proxy_id, each in runtimes.items()
            if each.state not in _UNREMARKABLE
        }
        starts = any(each["state"] == "starting" for each in found.values())
        if starts and time.monotonic() < self._reports_until:
            again = threading.Timer(AGAIN, lambda: self._this().beat_soon())
            again.daemon = True
            again.start()
        return {"proxies": dict(list(found.items())[:REPORTED_MOST]), "settings": dict(self._settings())}

    def concerns(self, change: DocumentChange) -> bool:
        """Whether other nodes are to know soon what a change has done here."""
        return self._nodes.this_id is not None and listens_otherwise(change.before, change.after)

    def changed(self, _changes: Sequence[DocumentChange]) -> None:
        """Such changes were applied."""
        self._reports_until = time.monotonic() + WAIT
        self._this().beat_soon()

    # --- all nodes ---

    def with_nodes(self, views: Sequence[dict[str, Any]], proxies: Sequence[StoredProxy]) -> list[dict[str, Any]]:
        """Views of proxies whose `runtime` is the sum of their nodes, as it is without a fleet."""
        if self._nodes.this_id is None:
            return list(views)
        known = self._this().presence()
        return [self._summed(view, proxy, known) for view, proxy in zip(views, proxies, strict=True)]

    def states(
        self, proxies: Sequence[StoredProxy], runtimes: Mapping[str, Runtime], asked: Collection[str]
    ) -> list[str]:
        """The state of each of these over the nodes with these ids, if one of them runs it.

        `runtimes` are those of this machine, by proxy.
        """
        known, found = self._this().presence(), []
        for each in proxies:
            nodes = [node for node in self._nodes.of(each.record) if node.id in asked]
            if nodes:
                runtime = runtimes.get(each.record.id)
                absent = "starting" if each.record.status == "active" else "stopped"
                here = {"state": runtime.state if runtime else absent, "error": runtime.error if runtime else None}
                found.append(sum_of([state.state for state in self._on_each(nodes, each, here, known)]))
        return found

    def refusals(self, proxy: StoredProxy) -> list[FieldWarning]:
        """What nodes say within two seconds that can't run a proxy as it was just stored."""
        this, this_id = self._this(), self._nodes.this_id
        others = [] if this_id is None else [each for each in self._nodes.of(proxy.record) if each.id != this_id]
        others = [each for each in others if not each.draining]
        if not others or proxy.record.status != "active":
            return []
        deadline = time.monotonic() + WAIT
        while True:
            known = this.presence(fresh=True)
            if all(_has_settled(known.get(each.id), proxy) for each in others) or time.monotonic() >= deadline:
                break
            time.sleep(PAUSE)
        states = ((each, self._on_other(proxy.record, each, known.get(each.id))) for each in others)
        return [
            FieldWarning("nodes", f"the node {node.name!r} can't run it: {found.error or found.state}")
            for node, found in states
            if found.state in ("failed", "degraded") and known[node.id].revision >= proxy.revision
        ]

    def _summed(self, view: dict[str, Any], proxy: StoredProxy, known: Mapping[str, Presence]) -> dict[str, Any]:
        here = view["runtime"]
        found = self._on_each(self._nodes.of(proxy.record), proxy, here, known)
        nowhere: dict[str, Any] = {
            "pid": None,
            "since": timestamp_text(proxy.record.updated_at),
            "restarts": 0,
            "problems": [],
        }
        runs_here = here is not None and any(each.id == self._nodes.this_id for each in self._nodes.of(proxy.record))
        errors = [f"{each.node}: {each.error}" for each in found if each.error]
        states = [each._asdict() for each in found]
        return {
            **view,
            "runtime": {
                **(here if runs_here else nowhere),
                "state": sum_of([each.state for each in found]),
                "error": "; ".join(errors) or None,
                "nodes": states,
                "host": self._nodes.for_clients(proxy.record).host,
            },
        }

    def _on_each(
        self,
        nodes: Iterable[NodeRecord],
        proxy: StoredProxy,
        here: Mapping[str, Any] | None,
        known: Mapping[str, Presence],
    ) -> list[StateOnNode]:
        return [
            self._here(each, proxy.record, here)
            if each.id == self._nodes.this_id
            else self._on_other(proxy.record, each, known.get(each.id))
            for each in nodes
        ]

    def _here(self, node: NodeRecord, record: ProxyRecord, runtime: Mapping[str, Any] | None) -> StateOnNode:
        if runtime is None:
            return StateOnNode(node.name, "unknown", None)
        if runtime["state"] == "starting" and self._nodes.drains:
            return StateOnNode(node.name, "stopped", None)
        if runtime["state"] == "starting" and self._nodes.proxy(record.id) is None:
            return StateOnNode(node.name, "failed", "it names an address that the node does not have")
        return StateOnNode(node.name, runtime["state"], runtime["error"])

    def _on_other(self, record: ProxyRecord, node: NodeRecord, known: Presence | None) -> StateOnNode:
        if known is None or known.silent >= SILENT:
            return StateOnNode(node.name, "unknown", None)
        found = known.problems.get("proxies", {}).get(record.id)
        if found is not None:
            return StateOnNode(node.name, found["state"] if found["state"] in _STATES else "unknown", found["error"])
        return StateOnNode(node.name, "running" if record.status == "active" and not node.draining else "stopped", None)


def listens_otherwise(before: Body | None, after: Body | None) -> bool:
    """Whether a node may refuse the proxy with the document `after` that has run it with `before`."""
    if after is None:
        return False
    return before is None or any(before.get(name) != after.get(name) for name in _LISTENING)


def sum_of(states: Sequence[str]) -> str:
    """The state of a proxy that has these on its nodes."""
    kinds = set(states)
    if not kinds:
        return "stopped"
    if len(kinds) == 1 and kinds != {"unknown"}:
        return states[0]
    if kinds <= _WORKS:
        return "running"
    if kinds & (_WORKS | {"degraded"}):
        return "degraded"
    worst = next(each for each in _BY_WEIGHT if each in kinds)
    return "failed" if worst == "unknown" else worst


def _has_settled(known: Presence | None, proxy: StoredProxy) -> bool:
    """Whether a node has said what became of a proxy, or is not waited for."""
    if known is None or known.silent >= CONNECTED:
        return True
    state = known.problems.get("proxies", {}).get(proxy.record.id, {}).get("state")
    return known.revision >= proxy.revision and state != "starting"
