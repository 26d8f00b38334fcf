"""Which nodes a request asks for what is on machines, and which of them have not responded.

Without a fleet, and in one of a single node, responses have nothing of this. In others each record has its `node`, and
`meta.missing_nodes` are those of which nothing is in the response.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from actors.bus.mailbox import address_of
from actors.bus.messages.common import SUPERVISOR, forwarding_name
from actors.bus.messages.supervision import QueryWorkers, Workers
from api.bus_bridge import NODE_MARK, SUPERVISOR_TIMEOUT, Bridge, NodeMissing, on_node, reason_of
from api.engine.responses import ResponseModel
from api.errors import Invalid, NotFound
from api.http.query import Query, text
from api.objects.nodes.fleet_nodes import FleetNodes
from config.model.nodes import NodeRecord
from config.model.proxies import ProxyRecord

ALL, SELF = "all", "self"


class OfNodes(Query):
    """Which nodes are asked."""

    node: str | None = text(
        "Only of this node of the fleet, by its name or id; `self` is the one that is asked, `all` is the default",
        SELF,
        128,
        1,
    )


class MissingNode(ResponseModel):
    """A node that did not respond in time."""

    node: str
    reason: str


class NodesMeta(ResponseModel):
    """Of a fleet of several nodes: those of which nothing is in the response."""

    missing_nodes: list[MissingNode]


class AskedNodes:
    """The nodes that one request asks."""

    def __init__(self, nodes: FleetNodes, wanted: str | None = None) -> None:
        """`wanted` is the parameter `node`. Raises `Invalid`."""
        self._nodes = nodes
        this = nodes.this_id
        self.are_several = nodes.are_several
        others = [each.record for each in nodes.records.all() if each.record.id != this] if self.are_several else []
        self.here = True
        self.others: list[NodeRecord] = others if wanted in (None, ALL) else []
        if wanted not in (None, ALL, SELF):
            found = self._named(wanted or "")
            self.here = found.id == this
            self.others = [] if self.here else [found]
        own = None if this is None else nodes.records.get(this)
        self._names = {each.id: each.name for each in others}
        self.own_id = this or ""
        self._own_name = "" if own is None else own.record.name
        self._missing: dict[str, str] = {}

    def _named(self, wanted: str) -> NodeRecord:
        try:
            return self._nodes.named(wanted)
        except NotFound:
            raise Invalid("node", "there is no such node") from None

    def runs_here(self, proxy: ProxyRecord) -> ProxyRecord | None:
        """A proxy as it runs on this node, if it does and this node is asked."""
        if not self.here or not self.are_several:
            return proxy if self.here else None
        served = self._nodes.proxy(proxy.id)
        return None if served is None else served.record

    def addresses(self, bridge: Bridge, proxies: Iterable[ProxyRecord]) -> dict[str, ProxyRecord]:
        """By address on the bus, the proxy of each process of other nodes that serves one of these."""
        found: dict[str, ProxyRecord] = {}
        several: dict[str, list[ProxyRecord]] = {}
        every = [each for each in proxies if each.status == "active"]
        for node in self.others:
            for proxy in every if not node.draining else ():
                if proxy.nodes.selects(node):
                    if proxy.workers == 1:
                        found[on_node(node.id, forwarding_name(proxy.id))] = proxy
                    else:
                        several.setdefault(node.id, []).append(proxy)
        requests = {on_node(node, SUPERVISOR): _workers(those) for node, those in several.items()}
        replies = bridge.ask_all(requests, SUPERVISOR_TIMEOUT) if requests else {}
        for to, reply in replies.items():
            node_id = to.partition(NODE_MARK)[0]
            if not isinstance(reply, Workers):
                self.note(to, reply)
                found = {each: proxy for each, proxy in found.items() if not each.startswith(node_id + NODE_MARK)}
                continue
            for proxy in several[node_id]:
                name = on_node(node_id, forwarding_name(proxy.id))
                known = reply.instances.get(proxy.id)
                found.update({name: proxy} if known is None else {address_of(name, each): proxy for each in known})
        return found

    def note(self, to: str, reply: Any) -> bool:
        """Take what this address has replied: whether its whole node is missing, which is said in `meta`."""
        if NODE_MARK in to:
            reason = reply.reason if isinstance(reply, NodeMissing) else reason_of(reply)
            self._missing.setdefault(to.partition(NODE_MARK)[0], reason)
        return NODE_MARK in to

    @property
    def missing(self) -> Mapping[str, str]:
        """By name, why nothing is known of a node."""
        return {self._names[each]: reason for each, reason in self._missing.items()}

    def name_of(self, to: str) -> str:
        """The name of the node that has this address."""
        return self._names[to.partition(NODE_MARK)[0]] if NODE_MARK in to else self._own_name

    def of_record(self, to: str) -> dict[str, str]:
        """What a record from this address has in a fleet of several nodes."""
        return {"node": self.name_of(to)} if self.are_several else {}

    def meta(self) -> dict[str, Any]:
        """What the response has in a fleet of several nodes."""
        if not self.are_several:
            return {}
        missing = [{"node": name, "reason": reason} for name, reason in sorted(self.missing.items())]
        return {"meta": {"missing_nodes": missing}}


def _workers(proxies: Sequence[ProxyRecord]) -> QueryWorkers:
    return QueryWorkers(tuple(each.id for each in proxies))
