"""Measures of tunnels in which little is said: what one costs to open, what it holds while idle, and ten thousand."""

from __future__ import annotations

import statistics
from contextlib import ExitStack

from benchmarks import entrants, tunnels
from benchmarks.load import Requests, run
from benchmarks.ours import OurProxy, Product
from benchmarks.peers import GIGABYTE, Subject
from benchmarks.processes import uss
from benchmarks.report import Bar, Comparison, Figure, Row, cpu_rows
from benchmarks.rounds import Bench, Entrant, Results, spent

KB = 1024
IDLE_KB = 1.4
"""What an idle tunnel may cost."""
CHECK_US = 15.0
"""What reading the name in a handshake may cost, compiled."""
RATE = ("rate", "tunnels/s")
SPARE_DESCRIPTORS = 300
"""What an actor, and the benchmark, need beside the two of each tunnel."""


def set_up(bench: Bench) -> list[Row]:
    """What it costs to open and close a tunnel, one after the other."""
    by_connect = _set_up(bench, entrants.http(bench))
    by_socks5 = _set_up(bench, entrants.socks5(bench))
    return [
        *cpu_rows("tunnel set-up by CONNECT", "us/tunnel", by_connect, {"squid": Bar(factor=1.0)}, RATE),
        *cpu_rows("tunnel set-up by SOCKS5", "us/tunnel", by_socks5, {"dante": Bar(factor=0.45)}, RATE),
    ]


def _set_up(bench: Bench, present: list[Entrant]) -> Results:
    with tunnels.SilentOrigin() as origin:

        def one(subject: Subject) -> Figure:
            count = 0

            def act() -> float:
                nonlocal count
                count = tunnels.short(subject, origin, bench.effort.seconds)
                return count / 1e6

            return spent(subject, act) | {"rate": count / bench.effort.seconds}

        return bench.in_turn(present, one)


def greetings(bench: Bench) -> list[Row]:
    """What it costs to read the name in a client's TLS handshake: tunnels with a first flight and a response to it,
    through proxies that differ in `tls_name` alone and take turns."""
    if bench.product is None:
        return []
    with tunnels.SilentOrigin() as origin, ExitStack() as stack:
        present = [_Checking(bench.product, check, origin.port) for check in ("off", "record", "match")]
        for each in present:
            stack.callback(each.proxy.end)
        rounds = [
            {each.check: each.spent(origin, bench.effort.seconds / 2) for each in present}
            for _ in range(3 * bench.effort.rounds)
        ]
    off = statistics.median(each["off"] for each in rounds)
    return [
        Row("tunnel with a TLS handshake, tls_name off, CPU of the actor alone", "us/tunnel", off),
        *(
            Row(
                f"the name in its handshake, tls_name {check}",
                "us/tunnel",
                statistics.median(each[check] - each["off"] for each in rounds),
                bar=Bar(CHECK_US),
            )
            for check in ("record", "match")
        ),
    ]


class _Checking:
    """A proxy that does this about names in handshakes with one port."""

    def __init__(self, product: Product, check: str, port: int) -> None:
        self.check = check
        self.proxy = OurProxy(product)
        product.call("PATCH", f"/proxies/{self.proxy.id}", {"tls_name": check, "tls_ports": [port]})

    def spent(self, origin: tunnels.SilentOrigin, seconds: float) -> float:
        """Microseconds of the actor for a tunnel."""
        return spent(self.proxy, lambda: tunnels.greeted(self.proxy, origin, seconds) / 1e6)["actor"]


def idle(bench: Bench) -> list[Row]:
    """What a tunnel in which nothing is said costs in memory; each round with processes that are new."""
    by_connect = [*bench.ours(), entrants.squid(bench), entrants.tinyproxy(bench), *entrants.from_pypi(bench)]
    return [
        *_idle(bench, "idle tunnel (CONNECT), memory", by_connect),
        *_idle(bench, "idle tunnel (SOCKS5), memory", entrants.socks5(bench)),
    ]


def _idle(bench: Bench, measure: str, present: list[Entrant]) -> list[Row]:
    with tunnels.SilentOrigin() as origin:

        def one(subject: Subject) -> Figure:
            slow = subject.carries < GIGABYTE  # such open few tunnels a second, and each holds much
            count = bench.effort.idle // (5 if slow else 1)
            with tunnels.idle(subject, origin, 50):
                before = uss(subject.forwarding())
                with tunnels.idle(subject, origin, count):
                    return {"memory": (uss(subject.forwarding()) - before) / count / KB}

        results = bench.in_turn(present, one, anew=True)
    return Comparison(measure, "memory", "KB", {"": Bar(IDLE_KB)}).rows(results)


def crowd(bench: Bench) -> list[Row]:
    """1 KiB GETs on ten connections, as fast as they go, through an actor that holds ten thousand idle tunnels.

    A tunnel takes two descriptors of the actor and two of the benchmark: where the limit is lower there are fewer.
    """
    if bench.product is None:
        return []
    count = min(bench.effort.crowd, (bench.descriptors - SPARE_DESCRIPTORS) // 2)
    proxy = OurProxy(bench.product)
    try:
        with tunnels.SilentOrigin() as origin:
            before = uss(proxy.forwarding())
            with tunnels.idle(proxy, origin, count):
                memory = (uss(proxy.forwarding()) - before) / count / KB
                among = _p99(bench, proxy)
        alone = _p99(bench, proxy)
    finally:
        proxy.end()
    name = f"1 KiB GET beside {count:,} idle tunnels"
    return [
        Row(f"{name}, p99", "ms", among, bar=Bar(5.0)),
        Row("1 KiB GET beside no tunnel, p99", "ms", alone),
        Row(f"idle tunnel, one of {count:,}, memory", "KB", memory, bar=Bar(IDLE_KB)),
    ]


def _p99(bench: Bench, proxy: OurProxy) -> float:
    load = Requests("1k", 10)
    seconds = bench.effort.seconds
    rounds = [run(bench.folder, proxy, bench.origin.port, load, seconds).p99 for _ in range(bench.effort.rounds)]
    return statistics.median(rounds)
