"""Which upstream is used: five policies.

- `failover`: the first in the list that is usable.
- `round_robin`: in turn, in proportion to the weights and as evenly spread as possible. Each upstream has a virtual
time
  that grows by 1/weight with each use, and the earliest is next (stride scheduling), which costs log n for n upstreams.
- `least_connections`: the one with the fewest connections in use, or on their way, for its weight.
- `sticky`: by rendezvous hashing of the key (Thaler and Ravishankar, 1998), weighted: the upstream with the highest
score
  for the key; with it down the second, and when it comes back the first again. A changed list moves only the keys of
  the upstreams that have changed.
- `latency`, of pools: of two at random the one with the smaller moving average of latency for its weight (Mitzenmacher,
  2001). One of which nothing is known yet counts as the fastest, and after a minute what was measured counts half:
  so one that was slow is tried again.

`usable(upstream)` says which may be chosen; without any the result is None.
"""

from __future__ import annotations

import hashlib
import heapq
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Final

from actors.bounded import keep
from actors.pools.state import identity
from actors.pools.upstream import Upstream

Usable = Callable[[Upstream], bool]

STICKY: Final = "sticky"
CACHED_KEYS = 4096
HALVED_AFTER = 60.0
"""Seconds after which a measured latency counts half."""
DRAWS_MAX = 16
"""Draws of `latency` until all upstreams are asked which of them are usable."""


class BalancingPolicy(ABC):
    """One policy over one list of upstreams."""

    @abstractmethod
    def choose(self, key: str, usable: Usable) -> Upstream | None:
        """The upstream for a request whose client has this key; None without a usable one."""

    def peek(self, key: str, usable: Usable) -> Upstream | None:
        """What `choose` would return, without any effect on later choices."""
        return self.choose(key, usable)


class Failover(BalancingPolicy):
    """The first that is usable."""

    def __init__(self, upstreams: Sequence[Upstream]) -> None:
        self._upstreams = upstreams

    def choose(self, _key: str, usable: Usable) -> Upstream | None:
        """See the module."""
        return next((upstream for upstream in self._upstreams if usable(upstream)), None)


class RoundRobin(BalancingPolicy):
    """By virtual time. An upstream that comes back does not get the uses that it has missed."""

    def __init__(self, upstreams: Sequence[Upstream]) -> None:
        self._waiting = [(1 / upstream.spec.weight, upstream.index, upstream) for upstream in upstreams]
        heapq.heapify(self._waiting)

    def begin_at(self, part: float) -> None:
        """Begin at this part of the way round: other workers begin elsewhere."""
        for _ in range(int(part * len(self._waiting))):
            now, index, upstream = self._waiting[0]
            heapq.heapreplace(self._waiting, (now + 1 / upstream.spec.weight, index, upstream))

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

    def peek(self, _key: str, usable: Usable) -> Upstream | None:
        """See `BalancingPolicy`."""
        return min((each for each in self._waiting if usable(each[2])), default=(0.0, 0, None))[2]


class LeastConnections(BalancingPolicy):
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


class Sticky(BalancingPolicy):
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
            keep(self._first, key, first, CACHED_KEYS)
        return first if usable(first) else self._best(key, usable)

    def _best(self, key: str, usable: Usable) -> Upstream | None:
        known = key.encode("utf-8", "surrogateescape")
        scored = (
            (score(known, mark, upstream.spec.weight), -upstream.index, upstream)
            for mark, upstream in zip(self._marks, self._upstreams, strict=True)
            if usable(upstream)
        )
        best = max(scored, default=None)
        return None if best is None else best[2]


class Latency(BalancingPolicy):
    """The better of two at random, so that no upstream gets all requests, however many processes choose."""

    def __init__(self, upstreams: Sequence[Upstream], clock: Callable[[], float] = monotonic) -> None:
        self._upstreams = upstreams
        self._clock = clock

    def choose(self, _key: str, usable: Usable) -> Upstream | None:
        """See the module."""
        return min(self._two(usable), key=partial(_cost, self._clock()), default=None)

    def peek(self, _key: str, usable: Usable) -> Upstream | None:
        """The best of all: `choose` is random."""
        return min(
            (upstream for upstream in self._upstreams if usable(upstream)),
            key=partial(_cost, self._clock()),
            default=None,
        )

    def _two(self, usable: Usable) -> Sequence[Upstream]:
        """Up to two that are usable; all are asked only when few of them are."""
        upstreams = self._upstreams
        found: list[Upstream] = []
        for _ in range(DRAWS_MAX if upstreams else 0):
            upstream = random.choice(upstreams)  # noqa: S311 - nothing secret
            if upstream not in found and usable(upstream):
                found.append(upstream)
                if len(found) == 2:
                    return found
        left = [upstream for upstream in upstreams if usable(upstream)]
        return random.sample(left, min(2, len(left)))


def _cost(now: float, upstream: Upstream) -> float:
    age = max(0.0, now - upstream.measured_at)
    return (upstream.latency or 0.0) * math.exp2(-age / HALVED_AFTER) / upstream.spec.weight


def score(key: bytes, mark: bytes, weight: int) -> float:
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
    STICKY: Sticky,
    "latency": Latency,
}


_GOLDEN = (5**0.5 - 1) / 2
"""Multiples of it modulo 1 are spread evenly, however many there are."""


def new_policy(policy: str, upstreams: Sequence[Upstream], worker: int = 0) -> BalancingPolicy:
    """The policy of this name. One that takes turns begins at another place at each worker of a proxy."""
    made = _POLICIES[policy](upstreams)
    if worker and isinstance(made, RoundRobin):
        made.begin_at(worker * _GOLDEN % 1.0)
    return made
