"""Which nodes a request asks for what is on machines, and which of them have not responded.

An operation whose query is an `AllNodes` has one in its call. Without a fleet, and in one of a single node, responses
have nothing of this. In others each record has its `node`, and every response `meta.missing_nodes`: those of which
nothing is in it, each with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from actors.bus.mailbox import address_of
from actors.bus.messages.common import SUPERVISOR, forwarding_name
from actors.bus.messages.supervision import QueryWorkers, Workers
from api.bus_bridge import NODE_MARK, SUPERVISOR_TIMEOUT, Bridge, NodeMissing, checked, node_id_of, on_node, reason_of
from api.errors import Invalid, NotFound, PeerUnavailable
from api.http.query import ALL_NODES, THIS_NODE
from api.objects.nodes.fleet_nodes import FleetNodes
from config.model.nodes import NodeRecord
from config.model.proxies import ProxyRecord

R = TypeVar("R")


class AskedNodes:
    """The nodes that one request asks."""

    def __init__(self, nodes: FleetNodes, wanted: str | None = None) -> None:
        """`wanted` is the parameter `node`. Raises `Invalid`."""
        self._nodes = nodes
        this = nodes.this_id
        self.are_several = nodes.are_several
        others = [each.record for each in nodes.records.all() if each.record.id != this] if self.are_several else []
        self.here = True
        self.others: list[NodeRecord] = others if wanted in (None, ALL_NODES) else []
        if wanted not in (None, ALL_NODES, THIS_NODE):
            found = self._named(wanted or "")
            self.here = found.id == this
            self.others = [] if self.here else [found]
        own = None if this is None else nodes.records.get(this)
        self._names = {each.id: each.name for each in others}
        self.own_id = this or ""
        self._own_name = "" if own is None else own.record.name
        self.key = "" if wanted in (None, ALL_NODES) else self.own_id if self.here else self.others[0].id
        """The same for requests that ask the same nodes."""
        self.reasons: dict[str, str] = {}
        """By id, why nothing is known of a node."""

    def _named(self, wanted: str) -> NodeRecord:
        try:
            return self._nodes.named(wanted)
        except NotFound:
            raise Invalid("node", "there is no such node") from None

    @property
    def ids(self) -> frozenset[str]:
        """Of all that are asked."""
        return frozenset({each.id for each in self.others} | ({self.own_id} if self.here else set()))

    def runs_here(self, proxy: ProxyRecord) -> ProxyRecord | None:
        """A proxy as it runs on this node, if it does and this node is asked."""
        if not self.here or not self.are_several:
            return proxy if self.here else None
        served = self._nodes.proxy(proxy.id)
        return None if served is None else served.record

    def that_run(self, proxy: ProxyRecord) -> list[str]:
        """The ids of those that run a proxy which is active, this one first."""
        here = self.runs_here(proxy)
        own = [self.own_id] if here is not None and here.status == "active" else []
        others = self.others if proxy.status == "active" else ()
        return own + [each.id for each in others if proxy.nodes.selects(each) and not each.draining]

    def at(self, node_id: str, address: str) -> str:
        """The address of what has this one on the bus of a node."""
        return address if node_id == self.own_id else on_node(node_id, address)

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
            node_id = node_id_of(to)
            if not isinstance(reply, Workers):
                self.note(to, reply)
                found = {each: proxy for each, proxy in found.items() if not each.startswith(node_id + NODE_MARK)}
                continue
            for proxy in several[node_id]:
                name = on_node(node_id, forwarding_name(proxy.id))
                known = reply.instances.get(proxy.id)
                found.update({name: proxy} if known is None else {address_of(name, each): proxy for each in known})
        return found

    def ask(
        self, bridge: Bridge, requests: Mapping[str, Any], timeout: float, only: Iterable[str] | None = None
    ) -> dict[str, Any]:
        """By address, the replies of these actors on each of the nodes, or on those `only` with these ids.

        Nodes that can't be reached are noted. One that is missing already is not asked again for the same response.
        """
        ids = [*([self.own_id] if self.here else []), *(each.id for each in self.others)] if only is None else only
        every = {self.at(node, to): message for node in ids for to, message in requests.items()}
        asked = {to: message for to, message in every.items() if not self.is_missing(to)}
        replies = bridge.ask_all(asked, timeout) if asked else {}
        for to, reply in replies.items():
            if isinstance(reply, NodeMissing):
                self.note(to, reply)
        return replies

    def request(
        self,
        bridge: Bridge,
        to: str,
        message: Any,
        kind: type[R],
        timeout: float,
        only: Iterable[str] | None = None,
    ) -> dict[str, R]:
        """By address, the replies of this kind of an actor on each of the nodes; others are missing.

        Raises `PeerUnavailable` when the actor of this node gives none.
        """
        found: dict[str, R] = {}
        for address, reply in self.ask(bridge, {to: message}, timeout, only).items():
            if isinstance(reply, kind):
                found[address] = reply
            elif not self.note(address, reply):
                checked(address, reply, kind)
        return found

    def note(self, to: str, reply: Any) -> bool:
        """Take what this address has replied: whether its whole node is missing, which is said in `meta`."""
        node_id = node_id_of(to)
        if node_id:
            reason = reply.reason if isinstance(reply, NodeMissing) else reason_of(reply)
            self.reasons.setdefault(node_id, reason)
        return bool(node_id)

    def note_silent(self, node_id: str, reason: str) -> None:
        """Nothing more is known of a node than what is in the response."""
        self.reasons.setdefault(node_id, reason)

    def is_missing(self, to: str) -> bool:
        """Whether this address is on a node that is missing."""
        return node_id_of(to) in self.reasons

    def refuse_missing(self) -> None:
        """Raise `PeerUnavailable` when a node is missing, which may have what was not found."""
        for name, reason in self.missing.items():
            raise PeerUnavailable(name, reason)

    @property
    def missing(self) -> Mapping[str, str]:
        """By name, why nothing is known of a node."""
        return {self._names[each]: reason for each, reason in self.reasons.items()}

    def name_of(self, to: str) -> str:
        """The name of the node that has this address."""
        node_id = node_id_of(to)
        return self._names[node_id] if node_id else self._own_name

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
