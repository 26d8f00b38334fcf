"""How measures run: ours and the peers in turn, round after round, and the medians of that."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.ours import OurProxy, Product
from benchmarks.peers import Origin, Subject
from benchmarks.processes import BenchError, cpu_seconds
from benchmarks.report import OURS, PURE, Figure


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is done.

    `rounds` per subject, `seconds` of requests or tunnels in each, `share` of what a subject carries in about a second
    or two in each round of bulk, and counts: tunnels, proxies, samples. `configured` proxies are made through the API,
    `stored` ones are in the store before the start. `quiet` is how long idle actors are watched.
    """

    rounds: int
    seconds: float
    share: float
    idle: int
    crowd: int
    configured: int
    samples: int
    fleet: int
    stored: int
    quiet: float


FULL = Effort(
    rounds=5,
    seconds=2,
    share=1,
    idle=1000,
    crowd=10_000,
    configured=1000,
    samples=50,
    fleet=200,
    stored=10_000,
    quiet=30,
)
GOALS = replace(FULL, rounds=4)
"""What has a goal is measured in about eleven minutes."""

QUICK = Effort(
    rounds=1, seconds=1, share=0.25, idle=300, crowd=1000, configured=100, samples=10, fleet=20, stored=1000, quiet=5
)


@dataclass(frozen=True, slots=True)
class Entrant:
    """A program that takes part in a measure. `start` raises `BenchError`, `Missing` when it is not installed; the
    caller ends what it returns."""

    name: str
    start: Callable[[], Any]
    """Returns a `Subject`, or the measure's own kind of one; it has `version` and `end`."""


Results = dict[str, Figure]
"""Medians by the name of the entrant."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Who is there. `product` is None when only the peers are measured, `peers_dir` holds those from PyPI.

    `pure` runs beside a compiled `product`, without compiled modules.
    """

    folder: Path
    peers_dir: Path
    origin: Origin
    product: Product | None
    effort: Effort
    descriptors: int
    versions: dict[str, str]
    """Of the peers that were started so far, by name."""
    peers: Collection[str] = ()
    """Those that take part; all when empty."""
    pure: Product | None = None

    @property
    def products(self) -> list[Product]:
        """Ours: none, one, or the compiled and the pure one."""
        return [each for each in (self.product, self.pure) if each]

    def ours(self, protocol: str = "http") -> list[Entrant]:
        """A proxy of each of our products for one measure."""
        return [Entrant(each.name, partial(OurProxy, each, protocol)) for each in self.products]

    def own(self, name: str) -> Path:
        """A new folder of this name, for one peer."""
        folder = self.folder / f"{name}-{time.monotonic_ns()}"
        folder.mkdir()
        return folder

    def in_turn(self, entrants: Sequence[Entrant], run: Callable[[Subject], Figure], anew: bool = False) -> Results:
        """The medians by entrant; each round measures all of them one after the other.

        With `anew` each round starts every entrant anew. A peer that is missing or fails is said and left out; ours
        raises `BenchError`.
        """
        return in_turn(self.taking_part(entrants), run, self.effort.rounds, self.versions, anew)

    def taking_part(self, entrants: Sequence[Entrant]) -> list[Entrant]:
        """Ours, and those of the peers that were asked for."""
        return [each for each in entrants if each.name in (OURS, PURE, *(self.peers or [each.name]))]


def in_turn(
    entrants: Sequence[Entrant],
    run: Callable[[Any], Figure],
    rounds: int,
    versions: dict[str, str],
    anew: bool = False,
) -> Results:
    """See `Bench.in_turn`. `versions` gets those of all that are started."""
    kept = _Rounds(run, versions)
    if anew:
        for _ in range(rounds):
            for entrant in entrants:
                with kept.started([entrant]):
                    kept.measure()
    else:
        with kept.started(entrants):
            for _ in range(rounds):
                kept.measure()
    return kept.medians()


class _Rounds:
    """The figures so far, and who is left out."""

    def __init__(self, run: Callable[[Any], Figure], versions: dict[str, str]) -> None:
        self._run = run
        self._versions = versions
        self._seen: dict[str, list[Figure]] = {}
        self._out: set[str] = set()
        self._present: dict[str, Any] = {}

    @contextmanager
    def started(self, entrants: Sequence[Entrant]) -> Iterator[None]:
        """These entrants run, as far as they can be started."""
        with ExitStack() as stack:
            for entrant in entrants:
                if entrant.name in self._out:
                    continue
                with self._left_out_on_failure(entrant.name):
                    self._present[entrant.name] = subject = entrant.start()
                    stack.callback(subject.end)
                    if entrant.name not in self._versions:
                        self._versions[entrant.name] = subject.version()
            yield
        self._present.clear()

    def measure(self) -> None:
        """One round of those who are present."""
        for name, subject in self._present.items():
            if name in self._out:
                continue
            with self._left_out_on_failure(name):
                self._seen.setdefault(name, []).append(self._run(subject))

    @contextmanager
    def _left_out_on_failure(self, name: str) -> Iterator[None]:
        try:
            yield
        except (BenchError, OSError) as error:
            if name in (OURS, PURE):
                raise BenchError(f"{name}: {error}") from error
            self._out.add(name)
            print(f"left out: {name}: {error}", file=sys.stderr)

    def medians(self) -> Results:
        """By entrant; nothing of one who failed in any round."""
        return {name: medians(figures) for name, figures in self._seen.items() if name not in self._out}


def medians(figures: Sequence[Figure]) -> Figure:
    """The median of each figure over the rounds."""
    return {what: statistics.median(figure[what] for figure in figures) for what in figures[0]}


def spent(subject: Subject, act: Callable[[], float]) -> Figure:
    """CPU seconds per unit of what `act` says that it did: `cpu` of all the proxy's processes, `actor` of those alone
    that carry the bytes."""
    before = cpu_seconds(subject.forwarding()), cpu_seconds(subject.everything())
    done = act()
    after = cpu_seconds(subject.forwarding()), cpu_seconds(subject.everything())
    return {"actor": (after[0] - before[0]) / done, "cpu": (after[1] - before[1]) / done}
