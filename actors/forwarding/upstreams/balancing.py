"""Which parent is used: four policies, each a small object that is asked again until one is good.

- `failover`: the first in the list that is up.
- `round_robin`: in turn, in proportion to the weights and as evenly spread as possible. Each parent has a virtual time
  that grows by 1/weight with each use, and the earliest is next (stride scheduling), which costs log n for n parents.
- `least_connections`: the one with the fewest connections in use, or on their way, for its weight.
- `sticky`: by rendezvous hashing of the key (Thaler and Ravishankar, 1998), weighted: the parent with the highest score
  for the key; with it down the second, and when it comes back the first again. A changed list moves only the keys of
  the parents that have changed.

`usable(parent)` says which may be chosen; with none the answer is None.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections.abc import Callable, Sequence
from typing import Protocol

from actors.bounded import keep
from actors.forwarding.upstreams.upstream import Parent, identity

Usable = Callable[[Parent], bool]

KEYS_KEPT = 4096


class BalancingPolicy(Protocol):
    """One policy over one list of parents."""

    def choose(self, key: str, usable: Usable) -> Parent | None:
        """The parent for a request whose client has this key."""


class Failover:
    """The first that is usable."""

    def __init__(self, parents: Sequence[Parent]) -> None:
        self._parents = parents

    def choose(self, _key: str, usable: Usable) -> Parent | None:
        """See the module."""
        return next((parent for parent in self._parents if usable(parent)), None)


class RoundRobin:
    """By virtual time. A parent that could not be used is not owed what it missed."""

    def __init__(self, parents: Sequence[Parent]) -> None:
        self._waiting = [(1 / parent.spec.weight, parent.index, parent) for parent in parents]
        heapq.heapify(self._waiting)

    def choose(self, _key: str, usable: Usable) -> Parent | None:
        """See the module."""
        passed: list[tuple[float, int, Parent]] = []
        chosen: Parent | None = None
        now = 0.0
        while self._waiting and chosen is None:
            now, index, parent = heapq.heappop(self._waiting)
            if usable(parent):
                chosen = parent
                heapq.heappush(self._waiting, (now + 1 / parent.spec.weight, index, parent))
            else:
                passed.append((now, index, parent))
        for time, index, parent in passed:
            heapq.heappush(self._waiting, (max(time, now) if chosen else time, index, parent))
        return chosen


class LeastConnections:
    """Ties go by the order of the list."""

    def __init__(self, parents: Sequence[Parent]) -> None:
        self._parents = parents

    def choose(self, _key: str, usable: Usable) -> Parent | None:
        """See the module."""
        candidates = (parent for parent in self._parents if usable(parent))
        return min(
            candidates, key=lambda parent: (parent.active + parent.coming + 1) / parent.spec.weight, default=None
        )


class Sticky:
    """The first choice of a key is remembered, so that only failures cost a look at all."""

    def __init__(self, parents: Sequence[Parent]) -> None:
        self._parents = parents
        self._marks = [repr(identity(parent.spec)).encode() for parent in parents]
        self._first: dict[str, Parent] = {}

    def choose(self, key: str, usable: Usable) -> Parent | None:
        """See the module."""
        first = self._first.get(key)
        if first is None:
            first = self._best(key, lambda _parent: True)
            if first is None:
                return None
            keep(self._first, key, first, KEYS_KEPT)
        return first if usable(first) else self._best(key, usable)

    def _best(self, key: str, usable: Usable) -> Parent | None:
        known = key.encode("utf-8", "surrogateescape")
        scored = (
            (_score(known, mark, parent.spec.weight), -parent.index, parent)
            for mark, parent in zip(self._marks, self._parents, strict=True)
            if usable(parent)
        )
        best = max(scored, default=None)
        return None if best is None else best[2]


def _score(key: bytes, mark: bytes, weight: int) -> float:
    """Greater for the parent that wins; in proportion to the weights over many keys."""
    digest = hashlib.blake2b(key + b"\0" + mark, digest_size=8).digest()
    return _score_of(int.from_bytes(digest, "big"), weight)


def _score_of(number: int, weight: int) -> float:
    """Of a number of 64 bits, of which a float can tell 52 apart here: so the share is neither 0 nor 1."""
    share = ((number >> 12) + 0.5) / 2**52
    return -weight / math.log(share)


_CHOICES: dict[str, Callable[[Sequence[Parent]], BalancingPolicy]] = {
    "failover": Failover,
    "round_robin": RoundRobin,
    "least_connections": LeastConnections,
    "sticky": Sticky,
}


def new_choice(policy: str, parents: Sequence[Parent]) -> BalancingPolicy:
    """The policy of this name."""
    return _CHOICES[policy](parents)
