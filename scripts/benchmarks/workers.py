"""`scripts/bench workers`: a proxy with two workers beside one with one worker, and what many idle workers cost.

Two workers are to take the same CPU for a request, share the connections, and forward more. The load generator and the
origin use the same cores: how much more two workers could forward at most follows from the CPU of all that take part,
and the goal of their rate is judged where that leaves room for it.
"""

from __future__ import annotations

import os
import re
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from benchmarks import load, tunnels
from benchmarks.fleet import share_of_a_core
from benchmarks.load import Requests
from benchmarks.ours import OurProxy, Product
from benchmarks.peers import Key, Subject, program
from benchmarks.processes import BenchError, cpu_seconds, descriptors, wait_until
from benchmarks.report import OURS, Bar, Beside, Comparison, Figure, Row
from benchmarks.rounds import Bench, Entrant, Results, in_turn

WORKERS = 2
ALONE = "one worker"
IDLE = 64
IDLE_CPU = 1.0
"""Percent of a core, of all processes of the product."""
CPU_FACTOR = 1.05
BUSIER = 60.0
"""Percent of the connections that the busier of two workers may have."""
RATE_FACTOR = 1.6
ROOM = 1.75
"""Times the rate of one worker that the machine must be able to forward before the goal is judged."""
HELD = 200
FEW = 10
"""Descriptors that workers may have opened meanwhile beside those of connections."""
CLIENTS = 4

Load = Callable[[Bench, Subject], tuple[float, float]]
"""How many units were forwarded, and in how many seconds."""


def measure(bench: Bench) -> list[Row]:
    """All rows."""
    product = bench.product
    if product is None:
        raise BenchError("workers measures the product alone")
    rows: list[Row] = []
    for name, what in _MEASURES:
        print(f"measuring: {name} ...", file=sys.stderr, flush=True)
        rows += what(bench, product)
    return rows


# --- loads ---


def _requests(requests: Requests, bench: Bench, subject: Subject) -> tuple[float, float]:
    seen = load.run(bench.folder, subject, bench.origin.port, requests, bench.effort.seconds)
    return seen.requests, seen.seconds


def _downloads(bench: Bench, subject: Subject) -> tuple[float, float]:
    """GB by tunnels side by side, which the proxy splices and the client throws away in the kernel."""
    size = int(subject.carries * bench.effort.share)
    took = [0.0] * CLIENTS

    def fetch(number: int) -> None:
        took[number] = tunnels.download(subject, bench.origin.port, size)

    _at_once(fetch)
    return CLIENTS * size / 1e9, max(took)


def _handshakes(bench: Bench, subject: Subject) -> tuple[float, float]:
    """Handshakes in full, by clients side by side."""
    whole, counts = max(1, round(bench.effort.seconds)), [0] * CLIENTS
    command = [program("openssl"), "s_time", "-new", "-tls1_3", "-time", str(whole)]

    def shake(number: int) -> None:
        done = subprocess.run([*command, "-connect", f"127.0.0.1:{subject.port}"], capture_output=True, text=True)
        found = re.search(r"^(\d+) connections in \d+ real seconds", done.stdout, re.MULTILINE)
        counts[number] = int(found[1]) if found else 0

    began = time.monotonic()  # s_time counts whole seconds of the clock: it takes up to one more than it is given
    _at_once(shake)
    took = time.monotonic() - began
    if not all(counts):
        raise BenchError(f"s_time at {subject.name}: {counts} handshakes")
    return sum(counts), took


def _at_once(act: Callable[[int], None]) -> None:
    """In a thread each. Raises `BenchError` when one fails."""
    failed: list[BaseException] = []

    def run(number: int) -> None:
        try:
            act(number)
        except (BenchError, OSError) as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise BenchError(str(failed[0]))


# --- two workers beside one ---


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of load. `unit` is that of the CPU, of which a second has `parts`."""

    name: str
    sent: Load
    unit: str
    parts: float
    rate_unit: str
    protocol: str = "http"


def _compared(kind: Kind, bench: Bench, product: Product) -> list[Row]:
    """CPU and rate under one load."""
    results = _in_turn(bench, product, kind)
    name = f"{WORKERS} workers, {kind.name}"
    cpu = Comparison(f"{name}: CPU", "cpu", kind.unit, {ALONE: Bar(factor=CPU_FACTOR)})
    busier = Comparison(f"{name}: CPU of the busier one", "busier", "%")
    return [*cpu.rows(results), rate_row(f"{name}: rate", kind, results), *busier.rows({OURS: results[OURS]})]


def rate_row(name: str, kind: Kind, results: Results) -> Row:
    """That of two workers by that of one; judged where the machine leaves room for more."""
    ours, alone = results[OURS], results.get(ALONE)
    if alone is None:
        return Row(name, kind.rate_unit, ours["rate"], ALONE)
    most = alone["most"] / alone["rate"]
    bar = Bar(factor=RATE_FACTOR, at_least=True) if most >= ROOM else None
    return Row(name, kind.rate_unit, ours["rate"], ALONE, alone["rate"], bar, Beside("x, at most", most))


def _in_turn(bench: Bench, product: Product, kind: Kind) -> Results:
    key: Key = "rsa" if kind.protocol == "https" else "ecdsa"
    entrants = [
        Entrant(name, partial(OurProxy, product, kind.protocol, workers=count, key=key))
        for name, count in ((OURS, WORKERS), (ALONE, 1))
    ]
    return in_turn(entrants, partial(_figures, bench, kind), bench.effort.rounds, {})


def _figures(bench: Bench, kind: Kind, subject: Subject) -> Figure:
    """CPU of the product for a unit; the rate; the most that the machine could forward at this CPU of all that take
    part; and the share of the busier worker.
    """
    pids = subject.forwarding()
    before = [cpu_seconds([pid]) for pid in pids]
    ours, others = cpu_seconds(subject.everything()), _others(bench)
    done, seconds = kind.sent(bench, subject)
    each = [cpu_seconds([pid]) - was for pid, was in zip(pids, before, strict=True)]
    ours, others = cpu_seconds(subject.everything()) - ours, _others(bench) - others
    cores = len(os.sched_getaffinity(0))
    most = cores * done / (ours + others)
    return {"cpu": ours / done * kind.parts, "rate": done / seconds, "most": most, "busier": _busier(each)}


def _others(bench: Bench) -> float:
    """CPU seconds of the origin, of this program and of load generators that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return cpu_seconds(bench.origin.everything()) + sum(each.ru_utime + each.ru_stime for each in used)


def _busier(figures: Sequence[float]) -> float:
    """Percent of them all that the largest has."""
    return max(figures) / sum(figures) * 100 if sum(figures) else 100.0


# --- the balance of connections, and idle workers ---


def _balance(_bench: Bench, product: Product) -> list[Row]:
    """Of connections that stay: opened one after the other, and at once."""
    proxy = OurProxy(product, workers=WORKERS)
    try:
        with tunnels.SilentOrigin() as origin:
            one_by_one = _share_of(proxy, lambda stack: _opened_in_turn(stack, proxy, origin))
            at_once = _share_of(proxy, lambda stack: _opened_at_once(stack, proxy))
    finally:
        proxy.end()
    name = f"{WORKERS} workers, {HELD} connections"
    return [
        Row(f"{name} one by one: those of the busier one", "%", one_by_one, bar=Bar(BUSIER)),
        Row(f"{name} at once: those of the busier one", "%", at_once, bar=Bar(BUSIER)),
    ]


def _share_of(proxy: OurProxy, opened: Callable[[ExitStack], int]) -> float:
    """Percent of the descriptors that the busier worker got. `opened` says how many descriptors those are."""
    before = [descriptors([pid]) for pid in proxy.forwarding()]

    def more() -> list[int]:
        return [descriptors([pid]) - was for pid, was in zip(proxy.forwarding(), before, strict=True)]

    with ExitStack() as stack:
        wanted = opened(stack)
        wait_until(lambda: sum(more()) >= wanted, "all connections are accepted")
        share = _busier(more())
    wait_until(lambda: sum(more()) <= FEW, "all connections are closed")
    return share


def _opened_in_turn(stack: ExitStack, proxy: OurProxy, origin: tunnels.SilentOrigin) -> int:
    stack.enter_context(tunnels.idle(proxy, origin, HELD))
    return 2 * HELD


def _opened_at_once(stack: ExitStack, proxy: OurProxy) -> int:
    for _ in range(HELD):
        client = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
        client.connect_ex(("127.0.0.1", proxy.port))
    return HELD


def _idle(bench: Bench, product: Product) -> list[Row]:
    """All processes of the product while one proxy with many workers has nothing to do."""
    proxy = OurProxy(product, workers=IDLE)
    try:
        share = share_of_a_core(product, bench.effort.quiet)
    finally:
        proxy.end()
    return [Row(f"{IDLE} idle workers, CPU of all processes", "% of a core", share * 100, bar=Bar(IDLE_CPU))]


_KINDS = (
    Kind("1 KiB GET keep-alive", partial(_requests, Requests("1k", 50)), "us/request", 1e6, "requests/s"),
    Kind(
        "1 KiB GET, new connection each",
        partial(_requests, Requests("1k", 50, close=True)),
        "us/request",
        1e6,
        "requests/s",
    ),
    Kind("CONNECT bulk", _downloads, "s/GB", 1.0, "GB/s"),
    Kind("handshakes with RSA of 4,096 bits", _handshakes, "us/handshake", 1e6, "handshakes/s", "https"),
)
"""With RSA of this size the proxy does nearly all of the work of a handshake, so there is room for a second worker."""

_MEASURES: tuple[tuple[str, Callable[[Bench, Product], list[Row]]], ...] = (
    *((kind.name, partial(_compared, kind)) for kind in _KINDS),
    ("balance", _balance),
    ("idle", _idle),
)
