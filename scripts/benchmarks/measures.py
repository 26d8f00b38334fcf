"""The measures: each takes the bench (who is there, how long) and gives rows of the table."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks import load
from benchmarks.ours import OurProxy, Product
from benchmarks.peers import Haproxy, Origin, Squid, Subject, Tinyproxy
from benchmarks.processes import cpu_seconds, uss
from benchmarks.report import Row, against

KB, MB = 1024, 1024 * 1024


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is done. `rounds` per subject, seconds of requests, and counts."""

    rounds: int
    seconds: float
    gigabytes: int
    idle: int
    short: int
    configured: int
    samples: int


FULL = Effort(rounds=5, seconds=5, gigabytes=2, idle=1500, short=2000, configured=1000, samples=50)
QUICK = Effort(rounds=1, seconds=2, gigabytes=1, idle=300, short=300, configured=100, samples=10)


Maker = Callable[[], Subject]
"""Starts a subject; whoever calls it ends it."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Who is there. `product` is None when only the peers are measured."""

    folder: Path
    origin: Origin
    product: Product | None
    effort: Effort

    def ours(self) -> list[Maker]:
        """Our proxy for one measure, or none."""
        product = self.product
        return [lambda: OurProxy(product)] if product else []

    def own(self, name: str) -> Path:
        """A new folder of this name, for one peer."""
        folder = self.folder / f"{name}-{time.monotonic_ns()}"
        folder.mkdir()
        return folder


Figure = dict[str, float]
"""Figures of one run by what they are."""


def in_turn(makers: Sequence[Maker], rounds: int, run: Callable[[Subject], Figure]) -> dict[str, Figure]:
    """The medians by subject; each round measures all subjects one after the other. Starts and ends the subjects."""
    seen: dict[str, list[Figure]] = {}
    with ExitStack() as stack:
        subjects = []
        for make in makers:
            subjects.append(make())
            stack.callback(subjects[-1].end)
        for _ in range(rounds):
            for subject in subjects:
                seen.setdefault(subject.name, []).append(run(subject))
    return {name: _medians(figures) for name, figures in seen.items()}


def _medians(figures: list[Figure]) -> Figure:
    return {what: statistics.median(figure[what] for figure in figures) for what in figures[0]}


def _split(results: dict[str, Figure], what: str) -> tuple[float | None, dict[str, float]]:
    ours = results.get("proxyfleet")
    return (ours[what] if ours else None), {name: each[what] for name, each in results.items() if name != "proxyfleet"}


def _spent(subject: Subject, act: Callable[[], float]) -> Figure:
    """CPU of the forwarding processes and of all, per unit of what `act` says that it did."""
    before = cpu_seconds(subject.forwarding()), cpu_seconds(subject.everything())
    done = act()
    after = cpu_seconds(subject.forwarding()), cpu_seconds(subject.everything())
    return {"forwarding": (after[0] - before[0]) / done, "everything": (after[1] - before[1]) / done}


def small_requests(bench: Bench) -> list[Row]:
    """1 KiB GETs on 50 keep-alive connections, with access records."""
    peers: list[Maker] = [
        lambda: Squid(bench.own("squid")),
        lambda: Tinyproxy(bench.own("tinyproxy")),
        lambda: Haproxy(bench.own("haproxy"), "http", bench.origin.port),
    ]

    def run(subject: Subject) -> Figure:
        seen: list[load.Answered] = []

        def act() -> float:
            seen.append(load.requests(bench.folder, subject, bench.origin.port, "1k", 50, bench.effort.seconds))
            return seen[0].requests / 1e6

        return _spent(subject, act) | {"rate": seen[0].requests / seen[0].seconds, "p99": seen[0].p99}

    results = in_turn([*bench.ours(), *peers], bench.effort.rounds, run)
    cpu, whole = "1 KiB GET keep-alive, CPU", "1 KiB GET keep-alive, CPU of all processes"
    return [
        *against(cpu, "us/request", *_split(results, "forwarding"), judged_by="squid"),
        *against(whole, "us/request", *_split(results, "everything")),
        *against("1 KiB GET keep-alive, rate", "requests/s", *_split(results, "rate")),
        *against("1 KiB GET keep-alive, p99", "ms", *_split(results, "p99")),
    ]


def bulk(bench: Bench) -> list[Row]:
    """One tunnel after the other, each carrying 1 GiB to the client."""
    peers: list[Maker] = [
        lambda: Haproxy(bench.own("haproxy"), "tcp", bench.origin.port),
        lambda: Haproxy(bench.own("haproxy"), "tcp", bench.origin.port, splice=True),
        lambda: Squid(bench.own("squid")),
        lambda: Tinyproxy(bench.own("tinyproxy")),
    ]

    def run(subject: Subject) -> Figure:
        gigabytes = bench.effort.gigabytes
        seconds: list[float] = []

        def act() -> float:
            seconds.append(load.download(subject, bench.origin.port, gigabytes))
            return gigabytes * 2**30 / 1e9

        return _spent(subject, act) | {"rate": gigabytes * 2**30 / 1e9 / seconds[0]}

    results = in_turn([*bench.ours(), *peers], bench.effort.rounds, run)
    return [
        *against("CONNECT bulk, CPU", "s/GB", *_split(results, "forwarding"), judged_by="haproxy-tcp"),
        *against("CONNECT bulk, rate", "GB/s", *_split(results, "rate")),
    ]


def idle_tunnels(bench: Bench) -> list[Row]:
    """What a tunnel in which nothing is said costs in memory."""
    origin = load.SilentOrigin()

    def run(subject: Subject) -> Figure:
        with load.idle_tunnels(subject, origin, 50):
            before = uss(subject.forwarding())
            with load.idle_tunnels(subject, origin, bench.effort.idle):
                return {"memory": (uss(subject.forwarding()) - before) / bench.effort.idle / KB}

    makers = [*bench.ours(), lambda: Squid(bench.own("squid")), lambda: Tinyproxy(bench.own("tinyproxy"))]
    results = in_turn(makers, 1, run)  # once: a second time would find the memory that the first left behind
    origin.close()
    ours, peers = _split(results, "memory")
    return [Row("idle tunnel, memory", "KB", ours, name, peer, 4.0) for name, peer in peers.items()]


def short_tunnels(bench: Bench) -> list[Row]:
    """What it costs to open and close a tunnel."""
    origin = load.SilentOrigin()

    def run(subject: Subject) -> Figure:
        def act() -> float:
            load.short_tunnels(subject, origin, bench.effort.short)
            return bench.effort.short / 1e6

        return _spent(subject, act)

    makers = [*bench.ours(), lambda: Squid(bench.own("squid")), lambda: Tinyproxy(bench.own("tinyproxy"))]
    results = in_turn(makers, bench.effort.rounds, run)
    origin.close()
    return against("tunnel set-up and end, CPU", "us/tunnel", *_split(results, "forwarding"))


def idle_actor(bench: Bench) -> list[Row]:
    """An actor that has nothing to do: its memory, and how soon after the create request it forwards."""
    if bench.product is None:
        return []
    memory, accepted, answered = [], [], []
    for number in range(bench.effort.samples):
        began = time.monotonic()
        proxy, port = bench.product.create(f"idle-{number}")
        accepted.append(load.first_connection(port, began))
        answered.append(load.first_answer(port, bench.origin.port, began))
        memory.append(uss([bench.product.forwarding_pid(proxy)]))
        bench.product.call("DELETE", f"/proxies/{proxy}")
    return [
        Row("idle forwarding actor, memory (USS)", "MB", statistics.median(memory) / MB, bar=10.0),
        Row("create request to accepted connection", "ms", statistics.median(accepted) * 1e3, bar=150.0),
        Row("create request to first answer forwarded", "ms", statistics.median(answered) * 1e3, bar=150.0),
    ]


def create_among_many(bench: Bench) -> list[Row]:
    """Create, durable on disk, while many proxies are configured and do not run."""
    product = bench.product
    if product is None:
        return []
    kept = [_created(product, f"configured-{number}") for number in range(bench.effort.configured)]
    times = []
    for number in range(bench.effort.samples):
        began = time.monotonic()
        proxy, _ = product.create(f"measured-{number}")
        times.append(time.monotonic() - began)
        product.call("DELETE", f"/proxies/{proxy}")
    for proxy in kept:
        product.call("DELETE", f"/proxies/{proxy}")
    name = f"create with {bench.effort.configured:,} proxies configured"
    return [
        Row(name, "ms", statistics.median(times) * 1e3, bar=50.0),
        Row(f"{name}, worst of {len(times)}", "ms", max(times) * 1e3),
    ]


def _created(product: Product, name: str) -> str:
    proxy, _ = product.create(name)
    product.call("POST", f"/proxies/{proxy}/stop")
    return proxy


def product_at_rest(bench: Bench) -> list[Row]:
    """The whole product with nothing to do: memory of all its processes."""
    if bench.product is None:
        return []
    return [Row("product without proxies, memory (USS)", "MB", uss(bench.product.processes()) / MB)]


MEASURES: dict[str, Callable[[Bench], list[Row]]] = {
    "rest": product_at_rest,
    "actor": idle_actor,
    "small": small_requests,
    "bulk": bulk,
    "idle": idle_tunnels,
    "short": short_tunnels,
    "create": create_among_many,
}
