"""Which node runs which proxy, and what a proxy is on it.

Without a fleet there is no node: this installation runs all proxies, as they are. In one a proxy runs on the nodes that
it selects, with what they have in place of `{node}` and `{address}`; on one that drains it is stopped. Addresses at
which proxies listen are unique on each node, whichever node is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any

from api.engine.objects import Hooks, Proposal, Proposals, Records, load
from api.engine.record_cache import RecordCache
from api.engine.records import Stored
from api.errors import Invalid, NotAFleet, NotFound
from api.objects.nodes.node_kind import NODES
from api.objects.proxies.proxy_cache import ProxyCache, StoredProxy
from api.security.caller import Caller
from api.store import FleetStore, Store, Write
from config.model.fields import InvalidProxy
from config.model.nodes import NodeRecord, changed_node, on_node, placeholders_of
from config.model.proxies import ProxyRecord

EVERY_ADDRESS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - nothing is bound here
"""Hosts that leave no other one free."""
NO_NODE = "this installation is no node of a fleet"


class FleetNodes:
    """The nodes of the fleet, and their proxies. Thread-safe; nothing here waits for anything."""

    def __init__(self, records: Records[NodeRecord], this_id: Callable[[], str | None], proxies: ProxyCache) -> None:
        """`this_id` gives the id of this node, None without a fleet; `proxies` are all that there are."""
        self.records = records
        self._this_id = this_id
        self._proxies = proxies
        self._last: Stored[NodeRecord] | None = None
        self._served: dict[str, tuple[StoredProxy, Stored[NodeRecord] | None, StoredProxy | None]] = {}
        """By id a proxy and this node, as they were last, and the proxy as it runs on it."""

    @property
    def this_id(self) -> str | None:
        """The id of this node; None without a fleet."""
        return self._this_id()

    def all(self) -> Sequence[Stored[NodeRecord]]:
        """All nodes, oldest first. Raises `NotAFleet`."""
        if self.this_id is None:
            raise NotAFleet
        return self.records.all()

    def _own(self, this: str) -> Stored[NodeRecord] | None:
        """The document of this node; as it was last, when it is gone: a node that is removed or leaves runs on."""
        found = self.records.get(this)
        if found is not None:
            self._last = found
        elif self._last is not None and self._last.record.id == this:
            return self._last
        return found

    @property
    def are_several(self) -> bool:
        """Whether there is a fleet of more than one node."""
        return self.this_id is not None and len(self.records.all()) > 1

    def named(self, key: str) -> NodeRecord:
        """The node with this id or name. Raises `NotAFleet`, `NotFound`."""
        self.all()
        found = self.records.get(key) or self.records.get(self.records.named(key) or "")
        if found is None:
            raise NotFound("The node")
        return found.record

    def of(self, record: ProxyRecord) -> list[NodeRecord]:
        """The nodes that run a proxy; none without a fleet."""
        if self.this_id is None:
            return []
        return [each.record for each in self.records.all() if record.nodes.selects(each.record)]

    # --- what runs here ---

    def here(self) -> Sequence[StoredProxy]:
        """The proxies of this machine, oldest first, as they run on it."""
        if self.this_id is None:
            return self._proxies.all()
        proxies = self._proxies.all()
        if len(self._served) > 2 * len(proxies):  # of deleted ones
            self._served.clear()
        return [found for each in proxies if (found := self.served(each)) is not None]

    def proxy(self, proxy_id: str) -> StoredProxy | None:
        """As `served`, of the one with this id."""
        stored = self._proxies.get(proxy_id)
        return None if stored is None else self.served(stored)

    def served(self, proxy: StoredProxy) -> StoredProxy | None:
        """A proxy as it runs on this machine; None if it does not.

        Its revision is that of what was changed last, of the proxy and of the node. A proxy that names what the node
        lacks does not run.
        """
        this = self.this_id
        if this is None:
            return proxy
        node = self._own(this)
        known = self._served.get(proxy.record.id)
        if known is not None and known[0] is proxy and known[1] is node:
            return known[2]
        found = self._as_served(proxy, node)
        self._served[proxy.record.id] = proxy, node, found
        return found

    @staticmethod
    def _as_served(proxy: StoredProxy, node: Stored[NodeRecord] | None) -> StoredProxy | None:
        record = proxy.record
        if node is None:  # not known yet, or removed
            return proxy if record.nodes.all and next(placeholders_of(record), None) is None else None
        if not record.nodes.selects(node.record):
            return None
        try:
            found = on_node(record, node.record)
        except InvalidProxy:
            return None
        if node.record.draining and found.status == "active":
            found = found.model_copy(update={"status": "inactive"})
        if found is record and node.revision <= proxy.revision:
            return proxy
        return StoredProxy(found, max(proxy.revision, node.revision))

    def as_here(self, record: ProxyRecord) -> ProxyRecord | None:
        """A proxy that may not be stored yet, as it would run on this machine. Raises `InvalidProxy`."""
        this = self.this_id
        if this is None:
            return record
        node = self._own(this)
        return None if node is None or not record.nodes.selects(node.record) else on_node(record, node.record)

    def for_clients(self, record: ProxyRecord) -> ProxyRecord:
        """A proxy as it runs here, or else on the first of its nodes."""
        nodes = sorted(self.of(record), key=lambda node: node.id != self.this_id)
        return next(chain.from_iterable(_on(node, [record]) for node in nodes), record)

    @property
    def drains(self) -> bool:
        """Whether proxies of this node accept no more."""
        this = self.this_id
        node = None if this is None else self._own(this)
        return node is not None and node.record.draining

    # --- what is refused ---

    def refuse_unfit(self, record: ProxyRecord, before: ProxyRecord | None = None) -> None:
        """Raise `Invalid` or `InvalidProxy` when a proxy can't run where it is to run; `before` is what it was."""
        if self.this_id is None:
            self._refuse_without_fleet(record)
            return
        known = () if before is None else before.nodes.names
        for index, name in enumerate(record.nodes.names):
            if name not in known and self.records.named(name) is None:
                raise Invalid(f"nodes.names[{index}]", f"there is no node {name!r}")
        for node in self.of(record):
            on_node(record, node)

    def refuse_taken(self, record: ProxyRecord, name_of: Callable[[ProxyRecord], str]) -> None:
        """Raise `Invalid` when another active proxy has its address on a node that both run on.

        `name_of` says how the error names that one.
        """
        others = [each.record for each in self._proxies.all() if each.record.id != record.id]
        others = [each for each in others if each.status == "active" and each.ports.overlaps(record.ports)]
        if self.this_id is None:
            self._refuse_clash(record, others, "", name_of)
        for node in self.of(record) if others else ():
            where = "" if node.id == self.this_id else f" on the node {node.name!r}"
            self._refuse_clash(on_node(record, node), list(_on(node, others)), where, name_of)

    def most_on_a_node(self, records: Iterable[ProxyRecord], count: Callable[[Iterable[ProxyRecord]], int]) -> int:
        """The greatest `count` of the proxies of a node; of all of them without a fleet."""
        records = list(records)
        if self.this_id is None:
            return count(records)
        nodes = [each.record for each in self.records.all()]
        return max((count(each for each in records if each.nodes.selects(node)) for node in nodes), default=0)

    def refuse_node(self, node: NodeRecord, field: str) -> None:
        """Raise `Invalid` for `field` when the proxies of a node that is like this would not fit to it."""
        self._refuse_misfits(node, field, [each.record for each in self._proxies.all()], {})

    def refuse_together(self, field: str, records: Sequence[ProxyRecord], paths: Mapping[str, str]) -> None:
        """Raise `Invalid` when proxies, if these were all, would not fit to a node or to each other.

        `paths` has by their ids what errors call the proxies that change; an error about others is one of `field`.
        """
        for node in () if self.this_id is None else self.records.all():
            self._refuse_misfits(node.record, field, records, paths)

    def _refuse_misfits(
        self, node: NodeRecord, field: str, records: Iterable[ProxyRecord], paths: Mapping[str, str]
    ) -> None:
        active: list[ProxyRecord] = []
        for each in records:
            if each.nodes.selects(node):
                try:
                    active.append(on_node(each, node))
                except InvalidProxy as error:
                    place = f"{paths[each.id]}.{error.field}" if each.id in paths else field
                    raise Invalid(
                        place, f"the proxy {each.name!r} can't run on the node {node.name!r}: {error}"
                    ) from error
        active = [each for each in active if each.status == "active"]
        below: list[ProxyRecord] = []
        for record in sorted(active, key=lambda each: each.port):
            below = [each for each in below if each.listens_at[2] >= record.port]
            taken = _clash(record, below)
            if taken is not None:
                both = f"the proxies {taken.name!r} and {record.name!r} would both listen at port {record.ports}"
                place = next((f"{paths[each.id]}.port" for each in (record, taken) if each.id in paths), field)
                raise Invalid(place, f"{both} of the node {node.name!r}")
            below.append(record)

    def _refuse_clash(
        self, record: ProxyRecord, others: Sequence[ProxyRecord], where: str, name_of: Callable[[ProxyRecord], str]
    ) -> None:
        taken = _clash(record, others)
        if taken is not None:
            raise Invalid("port", f"port {record.ports} is already in use{where}{name_of(taken)}")

    def _refuse_without_fleet(self, record: ProxyRecord) -> None:
        if not record.nodes.all:
            raise Invalid("nodes", f'{NO_NODE}: it can only be {{"all": true}}')
        for field, text in placeholders_of(record):
            raise Invalid(field, f"{text}: {{node}} and {{address}} stand for a node of a fleet, and {NO_NODE}")


def hooks_of_nodes(nodes: FleetNodes, lock: Any, store: FleetStore) -> Hooks[NodeRecord]:
    """`lock` holds up changes of proxies."""

    def make(_caller: Caller | None, before: NodeRecord | None, body: Any, _path: str) -> NodeRecord:
        assert before is not None  # only a node that joins makes one
        return changed_node(before, body)

    def check(proposals: Proposals[NodeRecord]) -> None:
        for each in proposals:
            if each.after is not None and (field := _changed(each)):
                nodes.refuse_node(each.after, field)

    def commit(proposals: Proposals[NodeRecord], writes: Sequence[Write]) -> int:
        """Settings of a node go with it."""
        gone = [each.id for each in proposals if each.after is None and store.get("settings", each.id) is not None]
        return store.commit([*writes, *(Write("settings", each, None) for each in gone)])

    return Hooks(lock=lambda _proposals: lock(), make=make, check=check, commit=commit)


def _changed(proposal: Proposal[NodeRecord]) -> str:
    """The first field that decides what runs there; empty if it stays as it is."""
    before, after = proposal.before and proposal.before.record, proposal.after
    names = ("tags", "addresses")
    return next((name for name in names if before is None or getattr(before, name) != getattr(after, name)), "")


def _on(node: NodeRecord, records: Iterable[ProxyRecord]) -> Iterator[ProxyRecord]:
    for each in records:
        if each.nodes.selects(node):
            with suppress(InvalidProxy):  # it does not run there
                yield on_node(each, node)


def _clash(record: ProxyRecord, others: Iterable[ProxyRecord]) -> ProxyRecord | None:
    """The first of these that listens where this one does."""
    for each in others:
        if each.ports.overlaps(record.ports) and (each.host == record.host or {each.host, record.host} & EVERY_ADDRESS):
            return each
    return None


def fleet_nodes(store: Store, this_id: Callable[[], str | None], proxies: ProxyCache) -> FleetNodes:
    """Those in a store."""
    return FleetNodes(RecordCache(store, NODES.collection, partial(load, NODES)), this_id, proxies)
