"""Measures of requests that are forwarded: small ones on kept connections and on new ones, and bigger ones."""

from __future__ import annotations

from benchmarks import entrants
from benchmarks.load import Requests, run
from benchmarks.peers import Subject
from benchmarks.report import Bar, Comparison, Figure, Row, cpu_rows
from benchmarks.rounds import Bench, Entrant, Results, spent

RATE = ("rate", "requests/s")


def small(bench: Bench) -> list[Row]:
    """1 KiB GETs on 50 keep-alive connections."""
    present = [*entrants.http(bench), entrants.haproxy(bench, "http")]
    results = _results(bench, present, Requests("1k", 50))
    bars = {"squid": Bar(factor=0.5), "haproxy-http": Bar(factor=2.0)}
    cpu = cpu_rows("1 KiB GET keep-alive", "us/request", results, bars, RATE, pure_bars={"squid": Bar(factor=0.7)})
    return [*cpu, *Comparison("1 KiB GET keep-alive, p99", "p99", "ms").rows(results, only=bars)]


def heads(bench: Bench) -> list[Row]:
    """The same with a request head that was never there before, so that what is kept of heads is of no use."""
    results = _results(bench, entrants.http(bench), Requests("1k", 50, new_heads=True))
    bars = {"squid": Bar(factor=0.65)}
    return cpu_rows("1 KiB GET keep-alive, heads new each time", "us/request", results, bars, RATE)


def fresh(bench: Bench) -> list[Row]:
    """1 KiB GETs, each on a client connection of its own, 50 at a time."""
    results = _results(bench, entrants.http(bench), Requests("1k", 50, close=True))
    bars = {"squid": Bar(factor=0.45)}
    p99 = Comparison("1 KiB GET, new connection each, p99", "p99", "ms", {"squid": Bar(factor=1.0)})
    return [
        *cpu_rows("1 KiB GET, new connection each", "us/request", results, bars, RATE),
        *p99.rows(results, only=bars),
    ]


def medium(bench: Bench) -> list[Row]:
    """100 KiB GETs on 20 keep-alive connections."""
    present = [*entrants.http(bench), entrants.haproxy(bench, "http")]
    results = _results(bench, present, Requests("100k", 20))
    bars = {"squid": Bar(factor=0.2), "haproxy-http": Bar(factor=1.2)}
    p99 = Comparison("100 KiB GET, p99", "p99", "ms")
    return [*cpu_rows("100 KiB GET", "us/request", results, bars, RATE), *p99.rows(results, only=bars)]


def _results(bench: Bench, present: list[Entrant], load: Requests) -> Results:
    def one(subject: Subject) -> Figure:
        other: Figure = {}

        def act() -> float:
            seen = run(bench.folder, subject, bench.origin.port, load, bench.effort.seconds)
            other.update(rate=seen.requests / seen.seconds, p99=seen.p99)
            return seen.requests / 1e6

        return spent(subject, act) | other

    return bench.in_turn(present, one)
