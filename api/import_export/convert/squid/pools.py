"""Upstreams as pools: one for each set of them that rules choose."""

from __future__ import annotations

from api.import_export.convert.draft import Draft
from api.import_export.convert.report import Effect, Report
from api.import_export.convert.squid.gathered import Peer

_MODES = {
    "sourcehash": "sticky",
    "userhash": "sticky",
    "carp": "sticky",
    "round-robin": "round_robin",
    "weighted-round-robin": "round_robin",
}
"""The nearest upstream policy of each mode, in squid's order: the first that any of the upstreams has chooses."""
_EXACT = {"sourcehash", "round-robin"}
IN_NAME = 2
"""Upstreams of which the name of a pool is made; with more it is a number."""


class Pools:
    """The sets of upstreams that rules use."""

    def __init__(self, draft: Draft, report: Report) -> None:
        self._draft = draft
        self._report = report
        self._used: dict[tuple[str, ...], str] = {}

    def use(self, peers: tuple[Peer, ...]) -> str:
        """What a rule says as `use` where squid has these to choose from."""
        mode, peers = self._choosing(peers)
        key = tuple(each.name for each in peers)
        if key not in self._used:
            name = self._draft.object_name("-".join(("upstreams", *(key if len(key) <= IN_NAME else ()))))
            policy = _MODES.get(mode, "failover")
            self._draft.pools.append({"name": name, "policy": policy, "upstreams": [each.upstream for each in peers]})
            self._used[key] = f"pool:{name}"
        return self._used[key]

    def _choosing(self, peers: tuple[Peer, ...]) -> tuple[str, tuple[Peer, ...]]:
        """The mode by which squid chooses, empty for the first that is up, and those that it chooses from."""
        mode = next((mode for mode in _MODES if any(mode in each.modes for each in peers)), "")
        if not mode:
            return mode, peers
        chosen = tuple(each for each in peers if mode in each.modes)
        if mode not in _EXACT:
            why = f"{mode}: the nearest upstream policy is {_MODES[mode]}"
            self._report.add(Effect.DIFFERS, chosen[0].statement, why, "see docs/api.md, upstreams")
        for each in peers:
            if each not in chosen:
                why = f"squid uses it only when all that have {mode} are down, the rules don't"
                self._report.add(Effect.DIFFERS, each.statement, why, "add it to the pool")
        return mode, chosen
