"""Upstreams as pools: one for each set of them that rules choose."""

from __future__ import annotations

from api.import_export.convert.draft import Draft
from api.import_export.convert.squid.gathered import Peer

_STICKY = {"carp", "sourcehash", "userhash"}
_EVENLY = {"round-robin", "weighted-round-robin"}
IN_NAME = 2
"""Upstreams of which the name of a pool is made; with more it is a number."""


class Pools:
    """The sets of upstreams that rules use."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._used: dict[tuple[str, ...], str] = {}

    def use(self, peers: tuple[Peer, ...]) -> str:
        """What a rule says as `use` for these."""
        key = tuple(each.name for each in peers)
        if key not in self._used:
            name = self._draft.object_name("-".join(("upstreams", *(key if len(key) <= IN_NAME else ()))))
            upstreams = [each.upstream for each in in_order(peers)]
            self._draft.pools.append({"name": name, "policy": policy_of(peers), "upstreams": upstreams})
            self._used[key] = f"pool:{name}"
        return self._used[key]


def policy_of(peers: tuple[Peer, ...]) -> str:
    """The upstream policy that is the nearest."""
    modes = set[str]().union(*(each.modes for each in peers))
    if modes & _STICKY:
        return "sticky"
    return "round_robin" if modes & _EVENLY else "failover"


def in_order(peers: tuple[Peer, ...]) -> list[Peer]:
    """Those that are the last resort at the end."""
    return sorted(peers, key=lambda each: "default" in each.modes)
