"""The measures of the management API, each as rows of the table."""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.management import load
from benchmarks.management.servers import YARDSTICK, OurApi, Server, Yardstick
from benchmarks.processes import BenchError, cpu_seconds
from benchmarks.report import OURS, Bar, Comparison, Figure, Row
from benchmarks.rounds import Bench, Entrant, Results, in_turn

PER_PAGE = 50
LOGIN_RATE = 20.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done: `folder` is for files of this run, `count` proxies are configured.

    `seconds` are those of each kind of load in a round, `samples` the creates.
    """

    folder: Path
    peers_dir: Path
    count: int
    rounds: int
    seconds: float
    samples: int


def measure(plan: Plan, with_ours: bool, with_yardstick: bool) -> tuple[list[Row], dict[str, str]]:
    """The rows, and the versions of all servers."""
    ours, yardstick = _entrants(plan)
    entrants = [*([ours] if with_ours else []), *([yardstick] if with_yardstick else [])]
    versions: dict[str, str] = {}
    return rows(in_turn(entrants, lambda server: _round(plan, server), plan.rounds, versions), plan.count), versions


def read(bench: Bench) -> list[Row]:
    """GETs of one proxy of many, beside the yardstick's."""
    effort = bench.effort
    plan = Plan(bench.own("api"), bench.peers_dir, effort.stored, effort.rounds, effort.seconds, effort.samples)
    ours, yardstick = _entrants(plan)
    entrants = [*([ours] if bench.product else []), yardstick]
    results = in_turn(bench.taking_part(entrants), partial(_read, plan), plan.rounds, bench.versions)
    return _read_rows(results, plan.count)


def _read(plan: Plan, server: Server) -> Figure:
    return _prefixed("one", _gets(plan, server, _details(server)))


def _entrants(plan: Plan) -> tuple[Entrant, Entrant]:
    ours = Entrant(OURS, lambda: OurApi(_own(plan, "ours"), plan.count))
    return ours, Entrant(YARDSTICK, lambda: Yardstick(_own(plan, YARDSTICK), plan.peers_dir, plan.count))


def _own(plan: Plan, name: str) -> Path:
    folder = plan.folder / name
    folder.mkdir()
    return folder


def _round(plan: Plan, server: Server) -> Figure:
    """One round of everything at one server."""
    return {
        **_read(plan, server),
        **_prefixed("page", _gets(plan, server, _pages(server))),
        **_prefixed("create", _creates(plan, server)),
        **_prefixed("login", _sign_ins(plan, server)),
    }


def rows(results: dict[str, Figure], count: int) -> list[Row]:
    """The table."""
    made = _read_rows(results, count)
    page = f"GET a page of {PER_PAGE} of {count:,}"
    made += _compared(f"{page}, p99", "page p99", "ms", results, Bar(25.0))
    made += _compared(f"{page}, 8 clients", "page rate", "requests/s", results, Bar(1000.0, at_least=True))
    made += _compared(f"{page}, CPU", "page cpu", "us/request", results)
    durable = f"create, durable, at {count:,}"
    made += _compared(durable, "create median", "ms", results, Bar(60.0))
    made += _compared(f"{durable}, worst", "create worst", "ms", results)
    beside = f"GET one proxy during {LOGIN_RATE:.0f} sign-ins/s"
    made += _compared(f"{beside}, p99", "login p99", "ms", results, Bar(50.0))
    made += _compared(f"{beside}", "login rate", "requests/s", results)
    made += _compared("sign-ins beside these reads, with a response", "login responded", "1/s", results)
    made += _compared("sign-ins beside these reads, median", "login median", "ms", results)
    made += _compared("sign-ins beside these reads, refused", "login refused", "", results)
    made += _compared("sign-ins by 8 clients", "login most", "1/s", results)
    ours = results.get(OURS)
    if ours is not None:
        bcrypt = Bar(factor=0.8, at_least=True)
        made.append(
            Row("sign-ins by 8 clients", "1/s", ours["login most"], "bcrypt alone", ours["login alone"], bcrypt)
        )
    return made


def _read_rows(results: Results, count: int) -> list[Row]:
    one = f"GET one proxy of {count:,}"
    return [
        *_compared(f"{one}, CPU", "one cpu", "us/request", results, Bar(factor=1.2)),
        *_compared(f"{one}, p99", "one p99", "ms", results, Bar(factor=1.0)),
        *_compared(f"{one}, 8 clients", "one rate", "requests/s", results, Bar(1000.0, at_least=True)),
    ]


def _compared(measure: str, what: str, unit: str, results: dict[str, Figure], bar: Bar | None = None) -> list[Row]:
    """The bar judges ours alone; it stands in the row of the yardstick."""
    return Comparison(measure, what, unit, {YARDSTICK: bar} if bar else {}).rows(results)


def _details(server: Server) -> list[str]:
    return [f"/api/v1/proxies/{each}" for each in server.ids]


def _pages(server: Server) -> list[str]:
    return [f"/api/v1/proxies?page={page + 1}&per_page={PER_PAGE}" for page in range(-(-len(server.ids) // PER_PAGE))]


def _gets(plan: Plan, server: Server, paths: list[str]) -> Figure:
    load.gets(plan.folder, server, paths, 1)  # what is made at the first request is made now
    before = cpu_seconds(server.everything())
    seen = load.gets(plan.folder, server, paths, plan.seconds)
    cpu = (cpu_seconds(server.everything()) - before) / seen.requests
    return {"p99": seen.p99, "rate": seen.requests / seen.seconds, "cpu": cpu * 1e6}


def _creates(plan: Plan, server: Server) -> Figure:
    took = load.creates(server, plan.samples)
    return {"median": statistics.median(took) * 1e3, "worst": max(took) * 1e3}


def _sign_ins(plan: Plan, server: Server) -> Figure:
    began = time.monotonic()
    with load.sign_ins_at(server, LOGIN_RATE) as seen:
        reads = load.gets(plan.folder, server, _details(server), plan.seconds)
    responded = len(seen.took) / (time.monotonic() - began)  # the last of them, too, was awaited
    if seen.failed or not seen.took:
        raise BenchError(f"{server.name}: {len(seen.took)} sign-ins succeeded, {seen.failed} failed")
    return {
        "p99": reads.p99,
        "rate": reads.requests / reads.seconds,
        "responded": responded,
        "refused": seen.refused,
        "median": statistics.median(seen.took) * 1e3,
        "most": load.sign_ins_back_to_back(server, plan.seconds),
        "alone": load.hashes_alone(plan.seconds, os.cpu_count() or 1),
    }


def _prefixed(name: str, figure: Figure) -> Figure:
    return {f"{name} {what}": value for what, value in figure.items()}
