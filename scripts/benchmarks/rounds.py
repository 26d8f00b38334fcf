"""How measures run: ours and the peers in turn, round after round, and the medians of that."""

from __future__ import annotations

import itertools
import statistics
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.ours import OURS, PURE, OurProxy, Product
from benchmarks.processes import FAILURES, BenchError, cpu_seconds
from benchmarks.programs import PEERS, Program, self_signed


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is done.

    `rounds` per subject, `seconds` of requests or tunnels in each, `gigabytes` in each round of bulk, and counts:
    tunnels, proxies, samples, accounts, records, domains. `stored` proxies are in the store before the start. `quiet`
    is how long idle actors are watched.
    """

    rounds: int = 5
    seconds: float = 2
    gigabytes: float = 2
    idle: int = 1000
    crowd: int = 10_000
    configured: int = 1000
    samples: int = 50
    fleet: int = 200
    stored: int = 10_000
    quiet: float = 30
    accounts: int = 100_000
    minting: float = 10
    records: int = 10_000_000
    domains: int = 1_000_000


FULL = Effort()
QUICK = Effort(1, 1, 0.25, 300, 1000, 100, 10, 20, 500, 5, 2_000, 2, 100_000, 20_000)

Subject = OurProxy | Program
"""A proxy under measure. `forwarding` are the processes that carry the bytes, `everything` all that it consists of."""
Figure = dict[str, float]
"""Figures of one subject by what they are, such as `cpu` and `rate`."""
Results = dict[str, Figure]
"""Medians by the name of the entrant."""
Entrants = Mapping[str, Callable[[], Any]]
"""Who takes part in a measure: what starts it. The caller ends what it returns, which has `version` and `end`."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Who is there. `products` are ours: one, or the compiled and the pure one. `peers` take part; all when empty."""

    folder: Path
    effort: Effort
    descriptors: int
    origin: Program | None = None
    products: Sequence[Product] = ()
    peers: Collection[str] = ()
    versions: dict[str, str] = field(default_factory=dict)
    """Of all that were started so far, by name."""
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def target(self) -> int:
        """The port of the origin."""
        assert self.origin is not None
        return self.origin.port

    def own(self, name: str) -> Path:
        """A new folder."""
        folder = self.folder / f"{name}-{next(self.numbers)}"
        folder.mkdir()
        return folder

    def entrants(self, protocol: str, *peers: str) -> dict[str, Callable[[], Any]]:
        """A proxy of each of our products, and these peers."""
        ours = {each.name: partial(OurProxy, each, self.folder, protocol) for each in self.products}
        return {**ours, **{name: partial(self._peer, name) for name in peers}}

    def _peer(self, name: str) -> Program:
        values = {"target": self.target, "certificate": self_signed(self.folder)}
        return Program(name, PEERS[name], self.own(name), values)

    def each(self, measured: Callable[[Product], Figure]) -> Results:
        """Of our products, one after the other."""
        return {product.name: measured(product) for product in self.products}

    def in_turn(self, entrants: Entrants, run: Callable[[Any], Figure], anew: bool = False) -> Results:
        """The medians by entrant; each round measures all of them one after the other.

        With `anew` each round starts every entrant anew. A peer that is missing or fails is said and left out; ours
        raises `BenchError`.
        """
        chosen = {name: start for name, start in entrants.items() if name in (OURS, PURE, *(self.peers or entrants))}
        seen: dict[str, list[Figure]] = {name: [] for name in chosen}
        running: dict[str, Any] = {}
        with ExitStack() as stack:
            for name in [*chosen] * self.effort.rounds:
                if name not in seen:
                    continue
                try:
                    if name not in running:
                        running[name] = chosen[name]()
                        stack.callback(running[name].end)
                        self.versions.setdefault(name, running[name].version())
                    seen[name].append(run(running[name]))
                except FAILURES as error:
                    if name in (OURS, PURE):
                        raise BenchError(f"{name}: {error}") from error
                    del seen[name]
                    print(f"left out: {name}: {error}", file=sys.stderr)
                if anew:
                    stack.close()
                    running.clear()
        return {name: medians(figures) for name, figures in seen.items()}


def medians(figures: Sequence[Figure]) -> Figure:
    """The median of each figure over the rounds."""
    return {what: statistics.median(figure[what] for figure in figures) for what in figures[0]}


@dataclass(slots=True)
class Done:
    """What a load did: so many units in so many seconds, and other figures, such as `p99`."""

    units: float
    seconds: float
    more: Figure = field(default_factory=dict)


def spent(subject: Subject, load: Callable[[], Done], parts: float = 1e6) -> Figure:
    """For each unit that `load` did, CPU in microseconds, or such that a second has `parts`: `cpu` of all the proxy's
    processes, `actor` of those alone that carry the bytes. And the `rate` of units a second, and what else it saw."""
    before = cpu_seconds(subject.forwarding()), cpu_seconds(subject.everything())
    done = load()
    after = cpu_seconds(subject.forwarding()), cpu_seconds(subject.everything())
    actor, everything = ((now - then) / done.units * parts for then, now in zip(before, after, strict=True))
    return {"actor": actor, "cpu": everything, "rate": done.units / done.seconds, **done.more}
