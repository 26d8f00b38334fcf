"""Datagrams of one UDP association that wait until the names of their targets are looked up, within a bound.

When there is no room, the oldest datagram of the zone with the most octets is dropped: names of a zone whose servers
are silent take no room from the names of other zones.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import NamedTuple

from actors.forwarding.connections.udp_targets import Share
from actors.forwarding.net.resolver import zone_of
from actors.forwarding.protocols.http.targets import Authority

OCTETS_MAX = 32 * 1024
"""Octets of all datagrams, with `COST` for each of them."""
COST = 512


class Datagram(NamedTuple):
    """`payload` for `target`, whose bytes are counted in `share`."""

    target: Authority
    payload: bytes
    share: Share

    @property
    def cost(self) -> int:
        """Octets that it takes of `OCTETS_MAX`."""
        return len(self.payload) + COST


class WaitingDatagrams:
    """In the order of their arrival, by zone."""

    __slots__ = ("_names", "_octets", "_zones")

    def __init__(self) -> None:
        self._zones: dict[str, deque[Datagram]] = {}
        self._octets: Counter[str] = Counter()
        self._names: set[str] = set()

    def add(self, datagram: Datagram) -> bool:
        """Whether its name has to be looked up: no lookup is under way. One too large for the bound is dropped."""
        if datagram.cost > OCTETS_MAX:
            return False
        name = datagram.target.host
        zone = zone_of(name)
        self._zones.setdefault(zone, deque()).append(datagram)
        self._octets[zone] += datagram.cost
        while self._octets.total() > OCTETS_MAX:
            self._drop_oldest(self._octets.most_common(1)[0][0])
        is_new = name not in self._names
        self._names.add(name)
        return is_new

    def pop(self, name: str) -> list[Datagram]:
        """The lookup of `name` is over: its datagrams, which wait no longer."""
        self._names.discard(name)
        zone = zone_of(name)
        waiting = self._zones.get(zone, deque())
        taken = [each for each in waiting if each.target.host == name]
        self._keep(zone, deque(each for each in waiting if each.target.host != name))
        return taken

    def _drop_oldest(self, zone: str) -> None:
        self._zones[zone].popleft()
        self._keep(zone, self._zones[zone])

    def _keep(self, zone: str, left: deque[Datagram]) -> None:
        if left:
            self._zones[zone], self._octets[zone] = left, sum(each.cost for each in left)
        else:
            self._zones.pop(zone, None)
            self._octets.pop(zone, None)
