"""Which upstream is used: four policies.

- `failover`: the first in the list that is usable.
- `round_robin`: in turn, in proportion to the weights and as evenly spread as possible. Each upstream has a virtual
time
  that grows by 1/weight with each use, and the earliest is next (stride scheduling), which costs log n for n upstreams.
- `least_connections`: the one with the fewest connections in use, or on their way, for its weight.
- `sticky`: by rendezvous hashing of the key (Thaler and Ravishankar, 1998), weighted: the upstream with the highest
score
  for the key; with it down the second, and when it comes back the first again. A changed list moves only the keys of
  the upstreams that have changed.

`usable(upstream)` says which may be chosen; without any the result is None.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections.abc import Callable, Sequence
from typing import Protocol

from actors.bounded import keep
from actors.forwarding.upstream import Upstream, identity

Usable = Callable[[Upstream], bool]

KEYS_KEPT = 4096


class BalancingPolicy(Protocol):
    """One policy over one list of upstreams."""

    def choose(self, key: str, usable: Usable) -> Upstream | None:
        """The upstream for a request whose client has this key; None without a usable one."""


class Failover:
    """The first that is usable."""

    def __init__(self, upstreams: Sequence[Upstream]) -> None:
        self._upstreams = upstreams

    def choose(self, _key: str, usable: Usable) -> Upstream | None:
        """See the module."""
        return next((upstream for upstream in self._upstreams if usable(upstream)), None)


class RoundRobin:
    """By virtual time. An upstream that comes back does not get the uses that it has missed."""

    def __init__(self, upstreams: Sequence[Upstream]) -> None:
        self._waiting = [(1 / upstream.spec.weight, upstream.index, upstream) for upstream in upstreams]
        heapq.heapify(self._waiting)

    def choose(self, _key: str, usable: Usable) -> Upstream | None:
        """See the module."""
        passed: list[tuple[float, int, Upstream]] = []
        chosen: Upstream | None = None
        now = 0.0
        while self._waiting and chosen is None:
            now, index, upstream = heapq.heappop(self._waiting)
            if usable(upstream):
                chosen = upstream
                heapq.heappush(self._waiting, (now + 1 / upstream.spec.weight, index, upstream))
            else:
                passed.append((now, index, upstream))
        for time, index, upstream in passed:
            heapq.heappush(self._waiting, (max(time, now) if chosen else time, index, upstream))
        return chosen


class LeastConnections:
    """The fewest uses for its weight; ties go by the order of the list."""

    def __init__(self, upstreams: Sequence[Upstream]) -> None:
        self._upstreams = upstreams

    def choose(self, _key: str, usable: Usable) -> Upstream | None:
        """See the module."""
        candidates = (upstream for upstream in self._upstreams if usable(upstream))
        return min(
            candidates,
            key=lambda upstream: (upstream.active + upstream.pending + 1) / upstream.spec.weight,
            default=None,
        )


class Sticky:
    """The first choice of a key is cached, so that scores are computed again only when it is not usable."""

    def __init__(self, upstreams: Sequence[Upstream]) -> None:
        self._upstreams = upstreams
        self._marks = [repr(identity(upstream.spec)).encode() for upstream in upstreams]
        self._first: dict[str, Upstream] = {}

    def choose(self, key: str, usable: Usable) -> Upstream | None:
        """See the module."""
        first = self._first.get(key)
        if first is None:
            first = self._best(key, lambda _upstream: True)
            if first is None:
                return None
            keep(self._first, key, first, KEYS_KEPT)
        return first if usable(first) else self._best(key, usable)

    def _best(self, key: str, usable: Usable) -> Upstream | None:
        known = key.encode("utf-8", "surrogateescape")
        scored = (
            (_score(known, mark, upstream.spec.weight), -upstream.index, upstream)
            for mark, upstream in zip(self._marks, self._upstreams, strict=True)
            if usable(upstream)
        )
        best = max(scored, default=None)
        return None if best is None else best[2]


def _score(key: bytes, mark: bytes, weight: int) -> float:
    """Greater for the upstream that wins; in proportion to the weights over many keys."""
    digest = hashlib.blake2b(key + b"\0" + mark, digest_size=8).digest()
    return _score_of(int.from_bytes(digest, "big"), weight)


def _score_of(number: int, weight: int) -> float:
    """Of a number of 64 bits, of which a float can tell 52 apart here: so the share is neither 0 nor 1."""
    share = ((number >> 12) + 0.5) / 2**52
    return -weight / math.log(share)


_POLICIES: dict[str, Callable[[Sequence[Upstream]], BalancingPolicy]] = {
    "failover": Failover,
    "round_robin": RoundRobin,
    "least_connections": LeastConnections,
    "sticky": Sticky,
}


def new_policy(policy: str, upstreams: Sequence[Upstream]) -> BalancingPolicy:
    """The policy of this name."""
    return _POLICIES[policy](upstreams)
