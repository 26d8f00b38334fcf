"""Measures of bytes in bulk: through CONNECT, through SOCKS5, and through TLS to the proxy."""

from __future__ import annotations

from benchmarks import entrants
from benchmarks.peers import Subject
from benchmarks.report import Bar, Comparison, Figure, Row, cpu_rows
from benchmarks.rounds import Bench, Entrant, Results, spent
from benchmarks.tunnels import download

RATE = ("rate", "GB/s")
NOT_WORSE = 1.1
"""By so much two runs of the same program differ."""


def connect(bench: Bench) -> list[Row]:
    """One CONNECT tunnel after the other, each carrying up to 1 GiB to the client."""
    relays = [entrants.haproxy(bench, "tcp"), entrants.haproxy(bench, "tcp", splice=True)]
    results = _results(bench, [*entrants.http(bench), *relays], 2)
    return cpu_rows("CONNECT bulk", "s/GB", results, {"haproxy-tcp": Bar(factor=0.15 * NOT_WORSE)}, RATE)


def socks5(bench: Bench) -> list[Row]:
    """The same by SOCKS5."""
    results = _results(bench, entrants.socks5(bench), 2)
    return cpu_rows("SOCKS5 bulk", "s/GB", results, {"dante": Bar(factor=0.29 * NOT_WORSE)}, RATE)


def tls(bench: Bench) -> list[Row]:
    """One tunnel at a time within TLS to the proxy, TLS 1.3 with what both ends prefer; the rate is judged."""
    results = _results(bench, entrants.tls(bench), 1)
    bar = Bar(factor=0.8, at_least=True)
    bars = {"haproxy-tls": bar, "stunnel": bar}
    return Comparison("TLS to the proxy, bulk", "rate", "GB/s", bars, ("cpu", "s/GB")).rows(results)


def _results(bench: Bench, present: list[Entrant], times: int) -> Results:
    bench.origin.bring_into_memory()

    def one(subject: Subject) -> Figure:
        size = int(subject.carries * bench.effort.share * times)
        seconds = 0.0

        def act() -> float:
            nonlocal seconds
            seconds = download(subject, bench.origin.port, size)
            return size / 1e9

        return spent(subject, act) | {"rate": size / 1e9 / seconds}

    return bench.in_turn(present, one)
