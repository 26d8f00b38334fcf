"""What the resolver counts: requests of actors, and by name server queries, failures and latencies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from actors.histogram import BUCKETS, bucket_of, sparse

UNUSED_MAX = 64
"""Servers whose counters are kept though no proxy has them any more."""


class ServerCounts:
    """Counters of one name server since the start."""

    def __init__(self) -> None:
        self.queries = 0
        self.failures = 0
        self.seconds = 0.0
        self._latency = [0] * BUCKETS

    def responded(self, seconds: float) -> None:
        """A response has come after this time."""
        self.seconds += seconds
        self._latency[bucket_of(seconds)] += 1

    @property
    def latency(self) -> tuple[tuple[int, int], ...]:
        """Number and count of the buckets of `actors.histogram` that aren't empty."""
        return sparse(self._latency)


class Counts:
    """All counters of the process."""

    def __init__(self) -> None:
        self.requests = 0
        self.hits = 0
        self.failures = 0
        self.dropped: Counter[str] = Counter()
        """Messages that are no response to a query, by what is wrong with them."""
        self.servers: dict[str, ServerCounts] = {}

    def of_server(self, name: str) -> ServerCounts:
        """The counters of a name server."""
        return self.servers.setdefault(name, ServerCounts())

    def forget_unused(self, used: Collection[str]) -> None:
        """Drop the counters of servers that are not used any more, except those that came last."""
        unused = [name for name in self.servers if name not in used]
        for name in unused[:-UNUSED_MAX]:
            del self.servers[name]
