"""The live connections of several proxies: all their processes are asked at once, and the replies merged.

All requests for one response share one deadline. An actor that doesn't reply in time is in `silent`, and nothing of its
connections is in the result. Of counts each sends its largest groups, and those of one value are added.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

from actors.bus.mailbox import NOT_ON_THE_BUS
from actors.bus.messages.common import Unreachable
from actors.bus.messages.forwarding import (
    CloseConnections,
    ConnectionFilter,
    ConnectionGroups,
    ConnectionPage,
    ConnectionReport,
    ConnectionsEnded,
    GroupConnections,
    QueryConnections,
)
from actors.bus.messages.supervision import RuntimeReport
from actors.forwarding.connections.table import PAGE_MAX
from api.bus_bridge import NODE_MARK, Bridge, NodeMissing, addresses_of, is_asleep, older_addresses, reason_of
from api.objects.nodes.asked_nodes import AskedNodes
from config.model.proxies import ProxyRecord

Counts = tuple[int, int, int]
"""Connections, bytes in, bytes out."""


@dataclass(frozen=True, slots=True)
class MergedGroup:
    """The connections with one value: how many, and their bytes."""

    value: str
    count: int
    bytes_in: int
    bytes_out: int


V = TypeVar("V")


class _Results(Generic[V]):
    """The first of each process in one order, as far as they were fetched, by what identifies one."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, V]] = {}
        self._totals: dict[str, int] = {}

    def count(self, actor: str) -> int:
        """How many were fetched of this process."""
        return len(self._known.get(actor, ()))

    def add(self, pages: Mapping[str, Any]) -> None:
        """Further pages. One without anything new is the last of its process: what was beyond it has gone."""
        for actor, page in pages.items():
            known = self._known.setdefault(actor, {})
            before = len(known)
            known.update(self._items(page))
            self._totals[actor] = page.total if len(known) > before else before

    def drop(self, actor: str) -> None:
        """Forget a process."""
        self._known.pop(actor, None)
        self._totals.pop(actor, None)

    def unfinished(self, end: int) -> set[str]:
        """The processes of which another one may be among the first `end`."""
        raise NotImplementedError

    def _items(self, page: Any) -> Mapping[str, V]:
        raise NotImplementedError

    def _partial(self) -> dict[str, dict[str, V]]:
        """Those of processes that have more."""
        return {actor: known for actor, known in self._known.items() if len(known) < self._totals[actor]}


class FetchedGroups(_Results[Counts]):
    """The largest groups of each process."""

    def complete(self, pages: Mapping[str, ConnectionGroups]) -> None:
        """The counts of values that were `missing`."""
        for actor, page in pages.items():
            self._known[actor].update(page.groups)

    def unfinished(self, end: int) -> set[str]:
        """The processes with more groups, of which fewer than `end` were fetched."""
        return {actor for actor, known in self._partial().items() if len(known) < end}

    def missing(self, values: Collection[str]) -> dict[str, tuple[str, ...]]:
        """By process with more groups than were fetched, those of these values that are not among them."""
        found = {actor: tuple(each for each in values if each not in known) for actor, known in self._partial().items()}
        return {actor: absent for actor, absent in found.items() if absent}

    def total(self) -> int:
        """How many groups there are at least; so many where all were fetched."""
        values = set().union(*self._known.values())
        return max(len(values), *self._totals.values(), 0)

    def merged(self) -> list[MergedGroup]:
        """All that were fetched, the largest first."""
        return merged(each for known in self._known.values() for each in known.items())

    def _items(self, page: ConnectionGroups) -> Mapping[str, Counts]:
        return page.groups


def merged(groups: Iterable[tuple[str, Counts]]) -> list[MergedGroup]:
    """Those with the same value added, the largest first."""
    sums: dict[str, Counts] = {}
    for value, counts in groups:
        count, bytes_in, bytes_out = sums.get(value, (0, 0, 0))
        sums[value] = (count + counts[0], bytes_in + counts[1], bytes_out + counts[2])
    found = (MergedGroup(value, *counts) for value, counts in sums.items())
    return sorted(found, key=lambda each: (-each.count, -each.bytes_in - each.bytes_out, each.value))


WAIT = 3.0
"""Seconds that all replies together may take; the first rates of an actor take half a second."""
SHORTEST = 0.05
"""Seconds that a request has at the end of that time."""
FIRST_SHARE = 20
"""Connections that each actor is asked for at least."""

R = TypeVar("R")
F = TypeVar("F", bound=_Results[Any])
_Key = Callable[[ConnectionReport], tuple[Any, float]]


class Row(NamedTuple):
    """A connection, its proxy, and the address of the process that has it."""

    proxy: ProxyRecord
    connection: ConnectionReport
    to: str


class MergedConnections:
    """The connections of these proxies, for one response. An inactive proxy has none but in processes that drain."""

    def __init__(
        self, bridge: Bridge, proxies: Iterable[ProxyRecord], report: RuntimeReport | None, nodes: AskedNodes
    ) -> None:
        """`report` knows the processes of an older program that drain here."""
        self.silent_at: dict[str, str] = {}
        """By address, why there is no reply. Nodes that do not respond are in `nodes`."""
        self.nodes = nodes
        self._bridge = bridge
        self._ends = time.monotonic() + WAIT
        every = list(proxies)
        here = [found for each in every if (found := nodes.runs_here(each)) is not None]
        active = addresses_of(bridge, [each for each in here if each.status == "active"])
        older = older_addresses(report, every) if nodes.here else {}
        self._proxies = {**active, **older, **nodes.addresses(bridge, every)}
        self._silent: set[str] = set()
        """Addresses of those that don't reply."""

    @property
    def silent(self) -> dict[str, str]:
        """By proxy id, why there is no reply; of another node with its name."""
        return {
            self._proxies[to].id: f"{self.nodes.name_of(to)}: {reason}" if NODE_MARK in to else reason
            for to, reason in self.silent_at.items()
        }

    def page(self, query: QueryConnections) -> tuple[list[Row], int]:
        """A page over all proxies, and how many match in all.

        The actors with connections on this page or before it are asked for more, until none of them can have another
        one there.
        """
        end = query.offset + query.limit
        share = max(FIRST_SHARE, 2 * end // max(1, len(self._proxies)))

        def request(known: int) -> QueryConnections:
            return QueryConnections(query.only, query.sort, min(PAGE_MAX if known else share, end, PAGE_MAX), known)

        fetched = self._fetch(_FetchedRows(query.sort), end, request, ConnectionPage)
        rows = _at_one_moment(fetched.sorted()[query.offset : end])
        return [Row(self._proxies[to], each, to) for to, each in rows], fetched.total()

    def groups(self, only: ConnectionFilter, by: str, limit: int, offset: int) -> tuple[list[MergedGroup], int]:
        """A page of the groups by a field of `connections.GROUPS`, the largest first, and how many there are in all.

        One process sends the page itself. Each of several sends its first groups, `PAGE_MAX` or as many as the page
        reaches: where one has more, there are at least so many, and one that is small everywhere may be missing.
        """
        if len(self._proxies) == 1:
            replies = self._count(dict.fromkeys(self._proxies, GroupConnections(only, by, limit, offset)))
            found = merged(each for reply in replies.values() for each in reply.groups.items())
            return found, sum(reply.total for reply in replies.values())
        fetched = self._fetch(
            FetchedGroups(),
            offset + limit,
            lambda known: GroupConnections(only, by, PAGE_MAX, known),
            ConnectionGroups,
        )
        values = {each.value for each in fetched.merged()[offset : offset + limit]}
        missing = fetched.missing(values).items()
        fetched.complete(self._count({to: GroupConnections(only, by, len(of), values=of) for to, of in missing}))
        return [each for each in fetched.merged() if each.value in values], fetched.total()

    def _fetch(self, fetched: F, end: int, request: Callable[[int], Any], kind: type[Any]) -> F:
        """At least the first `end` of all processes; `request` is the one to a process of which so many are known."""
        asked = set(self._proxies)
        while asked:
            fetched.add(self._ask({to: request(fetched.count(to)) for to in asked}, kind))
            for to in asked & self._silent:
                fetched.drop(to)
            asked = fetched.unfinished(end)
        return fetched

    def _count(self, requests: Mapping[str, GroupConnections]) -> dict[str, ConnectionGroups]:
        return self._ask(requests, ConnectionGroups)

    def groups_by_proxy(self, only: ConnectionFilter) -> list[MergedGroup]:
        """A group for each proxy with connections, the largest first; its value is the proxy's id."""
        replies = self._count(dict.fromkeys(self._proxies, GroupConnections(only, None, 1)))
        return merged(
            (self._proxies[to].id, counts) for to, reply in replies.items() for counts in reply.groups.values()
        )

    def end(self, only: ConnectionFilter) -> int:
        """Close all that match; the number of those that were closed."""
        return self.close(CloseConnections(None, only))

    def close(self, message: CloseConnections) -> int:
        """Have all close what this names; how many were closed."""
        replies = self._ask(dict.fromkeys(self._proxies, message), ConnectionsEnded)
        return sum(each.count for each in replies.values())

    def _ask(self, requests: Mapping[str, Any], kind: type[R]) -> dict[str, R]:
        """The replies of those that reply in time."""
        replies = self._bridge.ask_all(requests, max(SHORTEST, self._ends - time.monotonic()))
        found = {to: reply for to, reply in replies.items() if isinstance(reply, kind)}
        for to in replies.keys() - found.keys():
            self._silent.add(to)
            reply = replies[to]
            if isinstance(reply, NodeMissing):
                self.nodes.note(to, reply)
            elif not (self._has_ended(to, replies) or is_asleep(reply)):
                self.silent_at[to] = reply.reason if isinstance(reply, Unreachable) else reason_of(reply)
        return found

    def _has_ended(self, to: str, replies: Mapping[str, Any]) -> bool:
        """Whether it was one of several workers and is on the bus no more: its connections have ended with it."""
        reply, name = replies[to], to.partition("/")[0]
        others = any(each.partition("/")[0] == name for each in self._proxies.keys() - self._silent)
        return isinstance(reply, Unreachable) and reply.reason == NOT_ON_THE_BUS and others


class _FetchedRows(_Results[ConnectionReport]):
    """The first connections of each process in the order `sort`."""

    def __init__(self, sort: str) -> None:
        super().__init__()
        self._key = _key(sort.removeprefix("-"))
        self._reverse = sort.startswith("-")

    def total(self) -> int:
        """How many there are in all."""
        return sum(self._totals.values())

    def sorted(self) -> list[tuple[str, ConnectionReport]]:
        """Those that were fetched, each with its process."""
        rows = [(actor, each) for actor, known in self._known.items() for each in known.values()]
        return sorted(rows, key=lambda row: self._key(row[1]), reverse=self._reverse)

    def unfinished(self, end: int) -> set[str]:
        """The processes of which another connection may be among the first `end`."""
        rows = self.sorted()
        last = self._key(rows[end - 1][1]) if len(rows) >= end else None
        return {actor for actor in self._partial() if last is None or self._is_before(self._farthest(actor), last)}

    def _items(self, page: ConnectionPage) -> Mapping[str, ConnectionReport]:
        return {each.id: each for each in page.connections}

    def _farthest(self, actor: str) -> tuple[Any, float]:
        keys = map(self._key, self._known[actor].values())
        return min(keys) if self._reverse else max(keys)

    def _is_before(self, one: tuple[Any, float], other: tuple[Any, float]) -> bool:
        return one > other if self._reverse else one < other


def _at_one_moment(rows: list[tuple[str, ConnectionReport]]) -> list[tuple[str, ConnectionReport]]:
    """With ages as of the last reply: each actor has counted its own as of another moment."""
    now = max((each.started_at + each.age for _, each in rows), default=0.0)
    return [(actor, replace(each, age=now - each.started_at)) for actor, each in rows]


def _key(sort: str) -> _Key:
    """Ties go by age, as within one actor (`actors.forwarding.connections.table`)."""
    if sort == "age":
        return lambda each: (-each.started_at, each.started_at)
    return lambda each: (getattr(each, sort), each.started_at)
