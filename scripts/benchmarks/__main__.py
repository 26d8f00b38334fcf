"""`scripts/bench [soak|api|signin|logs|observe|accounts|policies|lists|…]`: print the table; 1 when a bar is missed."""

from __future__ import annotations

import argparse
import os
import platform
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks import (
    accounts,
    fleet,
    forwarding,
    lists,
    logs,
    minting,
    names,
    observe,
    policies,
    signin,
    soak,
    starts,
    streaming,
    tunnelling,
    usage_export,
)
from benchmarks.install import default_folder, install
from benchmarks.management import measures
from benchmarks.management.servers import YARDSTICK
from benchmarks.ours import Product
from benchmarks.paced import Pace
from benchmarks.peers import Origin, version_of
from benchmarks.processes import BenchError, allow_many_descriptors
from benchmarks.report import Row, markdown, plain, save
from benchmarks.rounds import FULL, QUICK, Bench, Effort
from config import VERSION

MEASURES: dict[str, Callable[[Bench], list[Row]]] = {
    "rest": fleet.at_rest,
    "actor": fleet.idle_actor,
    "fleet": fleet.many_idle_actors,
    "create": fleet.create_among_many,
    "small": forwarding.small,
    "fresh": forwarding.fresh,
    "medium": forwarding.medium,
    "connect": streaming.connect,
    "socks5": streaming.socks5,
    "tls": streaming.tls,
    "short": tunnelling.set_up,
    "idle": tunnelling.idle,
    "crowd": tunnelling.crowd,
}


def main() -> int:
    """The exit status: 0 all bars reached, 1 a bar missed, 2 could not measure."""
    arguments = _parser().parse_args()
    try:
        if arguments.install:
            install(arguments.peers_dir)
        rows, about = COMMANDS.get(arguments.command, _measure)(arguments)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    print(_heading(about), (markdown if arguments.markdown else plain)(rows), sep="\n\n")
    if arguments.json:
        save(rows, about, arguments.json)
    return 1 if any(row.reached is False for row in rows) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measure the product beside its peers.")
    parser.add_argument("--install", action="store_true", help="install the load generator and the peers first")
    parser.add_argument(
        "--peers-dir", type=Path, metavar="DIR", default=default_folder(), help="of the peers from PyPI"
    )
    parser.add_argument("--quick", action="store_true", help="a short run: the figures are rough")
    only = f"one of {', '.join(MEASURES)}; may be given more than once"
    parser.add_argument("--only", action="append", metavar="NAME", choices=MEASURES, help=only)
    parser.add_argument(
        "--peer", action="append", metavar="NAME", help="only beside this one; may be given more than once"
    )
    parser.add_argument("--peers-only", action="store_true", help="leave the product out")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    commands = parser.add_subparsers(
        dest="command", metavar="soak|api|signin|logs|observe|start|accounts|policies|dns|lists|dashboard"
    )
    long = commands.add_parser("soak", help="a steady load for long: does anything grow?")
    long.add_argument("--seconds", type=float, default=600.0)
    long.add_argument("--rate", type=int, default=Pace().requests, metavar="REQUESTS", help="each second")
    guesses = commands.add_parser("signin", help="does the time of a refused sign-in tell what was wrong with it?")
    guesses.add_argument("--rounds", type=int, default=200, help="sign-ins of each kind")
    index = commands.add_parser("logs", help="the log index: how fast, how large, how soon found?")
    index.add_argument("--records", type=int, default=10_000_000, help="in the index; a whole number of thousands")
    index.add_argument("--rate", type=int, default=10_000, metavar="RECORDS", help="each second, to a running indexer")
    index.add_argument("--seconds", type=float, default=20.0, help="of that")
    begin = commands.add_parser("start", help="start, stop and upgrade: how long, and does anybody notice?")
    begin.add_argument("--proxies", type=int, action="append", metavar="NUMBER", help="to start with; 10 and 300")
    watched = commands.add_parser("observe", help="what looking costs: series, records, live figures, webhooks")
    watched.add_argument("--seconds", type=float, default=5.0, help="of load in each round")
    watched.add_argument("--events", type=int, default=1_000, help="to ten webhooks")
    many = commands.add_parser("accounts", help="accounts of the fleet: what many of them cost")
    many.add_argument("--accounts", type=int, default=100_000)
    many.add_argument("--proxies", type=int, default=20)
    many.add_argument("--seconds", type=float, default=10.0, help="of minting credentials")
    only = "measure this alone: mint for so long, and what is left of it an hour later"
    many.add_argument("--mint-seconds", type=float, metavar="SECONDS", help=only)
    many.add_argument("--sign-ins", action="store_true", help="only how long sign-ins of clients take")
    many.add_argument("--usage", action="store_true", help="only the report of a month's usage of all of them")
    ruled = commands.add_parser("policies", help="what a decision costs, by 10 rules and by 1,000")
    ruled.add_argument("--decisions", type=int, default=20_000, help="of each kind")
    named = commands.add_parser("dns", help="names from the caches, and at once by slow and dead name servers")
    named.add_argument("--names", type=int, default=50_000, help="from the resolver's cache")
    listed = commands.add_parser("lists", help="what a list of many domains costs the machine and a look-up")
    listed.add_argument("--domains", type=int, default=1_000_000)
    page = commands.add_parser("dashboard", help="weight, first paint, scrolling, and what open tabs cost the API")
    page.add_argument("--small", action="store_true", help="with little data, to try it")
    page.add_argument("--records", type=int, metavar="NUMBER", help="in the log index; a whole number of thousands")
    page.add_argument("--soak-minutes", type=float, metavar="MINUTES", help="instead: does the heap of the page grow?")
    managing = commands.add_parser("api", help="the management API, beside FastAPI under uvicorn")
    managing.add_argument("--configured", type=int, default=10_000, metavar="PROXIES")
    return parser


def _measure(arguments: argparse.Namespace) -> tuple[list[Row], dict[str, object]]:
    effort = QUICK if arguments.quick else FULL
    rows: list[Row] = []
    with _started(arguments, effort) as bench:
        for name in arguments.only or MEASURES:
            began = time.monotonic()
            print(f"measuring: {name} ...", end=" ", file=sys.stderr, flush=True)
            rows += MEASURES[name](bench)
            print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
        return rows, _about(bench) | {"effort": asdict(effort)}


def _soak(arguments: argparse.Namespace) -> tuple[list[Row], dict[str, object]]:
    with _started(arguments, FULL) as bench:
        if bench.product is None:
            raise BenchError("soak measures the product alone")
        rows, samples = soak.soak(bench.product, bench.origin, arguments.seconds, Pace(arguments.rate))
        return rows, _about(bench) | samples


def _api(arguments: argparse.Namespace) -> tuple[list[Row], dict[str, object]]:
    effort, seconds = (QUICK, 1.0) if arguments.quick else (FULL, 3.0)
    with tempfile.TemporaryDirectory(prefix="pf-bench-", dir="/tmp") as folder:
        wanted = (arguments.configured, effort.rounds, seconds, effort.samples)
        plan = measures.Plan(Path(folder), arguments.peers_dir, *wanted)
        with_yardstick = not arguments.peer or YARDSTICK in arguments.peer
        rows, versions = measures.measure(plan, not arguments.peers_only, with_yardstick)
    about = {"machine": _machine(), "versions": {"wrk": version_of("wrk", "-v"), **versions}}
    return rows, {**about, "configured": plan.count, "rounds": plan.rounds, "seconds": plan.seconds}


def _signin(arguments: argparse.Namespace) -> tuple[list[Row], dict[str, object]]:
    """The product alone, without an origin or peers."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pf-bench-", dir="/tmp")))
        product = Product(folder)
        stack.callback(product.end)
        rows = signin.measure(product, arguments.rounds)
        return rows, {"machine": _machine(), "versions": {"proxyfleet": product.version()}, "rounds": arguments.rounds}


def _logs(arguments: argparse.Namespace) -> tuple[list[Row], dict[str, object]]:
    with tempfile.TemporaryDirectory(prefix="pf-bench-", dir="/tmp") as name:
        folder = Path(name)
        rows = logs.measure(folder, arguments.records)
        product = Product(folder)
        try:
            rows += logs.channel(product, arguments.rate, arguments.seconds)
            versions = {"proxyfleet": product.version(), "SQLite": sqlite3.sqlite_version}
            return rows, {"machine": _machine(), "versions": versions}
        finally:
            product.end()


def _start(arguments: argparse.Namespace) -> tuple[list[Row], dict[str, object]]:
    with tempfile.TemporaryDirectory(prefix="pf-bench-", dir="/tmp") as name:
        rows = starts.measure(Path(name), arguments.proxies or [10, 300])
    return rows, {"machine": _machine(), "versions": {"proxyfleet": VERSION}}


def _observe(arguments: argparse.Namespace) -> tuple[list[Row], dict[str, object]]:
    allow_many_descriptors()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pf-bench-", dir="/tmp")))
        folder.chmod(0o755)
        origin = Origin(folder)
        stack.callback(origin.end)
        rows = observe.measure(folder, origin, arguments.seconds, arguments.events)
        versions = {"wrk": version_of("wrk", "-v"), "SQLite": sqlite3.sqlite_version}
        return rows, {"machine": _machine(), "versions": versions}


def _accounts(arguments: argparse.Namespace) -> tuple[list[Row], dict[str, object]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pf-bench-", dir="/tmp")))
        folder.chmod(0o755)
        origin = Origin(folder)
        stack.callback(origin.end)
        if arguments.mint_seconds:
            rows = minting.measure(folder, origin, arguments.mint_seconds)
        elif arguments.usage:
            rows = usage_export.measure(folder, arguments.accounts)
        elif arguments.sign_ins:
            rows = accounts.measure_sign_ins(folder, origin, arguments.accounts)
        else:
            rows = accounts.measure(folder, origin, arguments.accounts, arguments.proxies, arguments.seconds)
        return rows, {"machine": _machine(), "versions": {"proxyfleet": VERSION, "SQLite": sqlite3.sqlite_version}}


def _policies(arguments: argparse.Namespace) -> tuple[list[Row], dict[str, object]]:
    rows = policies.measure(arguments.decisions)
    return rows, {"machine": _machine(), "versions": {"proxyfleet": VERSION}}


def _dns(arguments: argparse.Namespace) -> tuple[list[Row], dict[str, object]]:
    allow_many_descriptors()
    with tempfile.TemporaryDirectory(prefix="pf-bench-", dir="/tmp") as name:
        rows = names.measure(Path(name), arguments.names)
    return rows, {"machine": _machine(), "versions": {"proxyfleet": VERSION}}


def _lists(arguments: argparse.Namespace) -> tuple[list[Row], dict[str, object]]:
    rows = lists.measure(arguments.domains)
    return rows, {"machine": _machine(), "versions": {"proxyfleet": VERSION}}


def _dashboard(arguments: argparse.Namespace) -> tuple[list[Row], dict[str, object]]:
    from benchmarks.dashboard import installation, measure  # they need the group `dashboard`
    from tests.kit import browser

    allow_many_descriptors()
    size = installation.SMALL if arguments.small else installation.LARGE
    size = replace(size, records=arguments.records or size.records)
    with tempfile.TemporaryDirectory(prefix="pf-bench-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        minutes = arguments.soak_minutes
        rows = measure.soak(folder, minutes) if minutes else measure.measure(folder, size)
    versions = {"proxyfleet": VERSION, "Chromium": version_of(browser.program() or "", "--version")}
    return rows, {"machine": _machine(), "versions": versions, "size": asdict(size)}


COMMANDS: dict[str | None, Callable[[argparse.Namespace], tuple[list[Row], dict[str, object]]]] = {
    "soak": _soak,
    "api": _api,
    "signin": _signin,
    "logs": _logs,
    "start": _start,
    "observe": _observe,
    "accounts": _accounts,
    "policies": _policies,
    "dns": _dns,
    "lists": _lists,
    "dashboard": _dashboard,
}


@contextmanager
def _started(arguments: argparse.Namespace, effort: Effort) -> Iterator[Bench]:
    """The origin and the product run. Everything that was started is ended, and the folder removed."""
    descriptors = allow_many_descriptors()
    with ExitStack() as stack:
        # under /tmp, whose path is short: the product's sockets lie in it
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pf-bench-", dir="/tmp")))
        folder.chmod(0o755)
        origin = Origin(folder)
        stack.callback(origin.end)
        product = None if arguments.peers_only else Product(folder)
        if product:
            stack.callback(product.end)
        versions = {"nginx": origin.version()} | ({"proxyfleet": product.version()} if product else {})
        yield Bench(folder, arguments.peers_dir, origin, product, effort, descriptors, versions, arguments.peer or ())


def _about(bench: Bench) -> dict[str, object]:
    return {
        "machine": _machine(),
        "descriptors": bench.descriptors,
        "versions": {"wrk": version_of("wrk", "-v"), **bench.versions},
    }


def _machine() -> str:
    return f"{os.cpu_count()} cores, Linux {platform.release()}, CPython {platform.python_version()}"


def _heading(about: dict[str, object]) -> str:
    versions = about["versions"]
    assert isinstance(versions, dict)
    return f"{about['machine']}; {', '.join(f'{name} {version}' for name, version in sorted(versions.items()))}"


if __name__ == "__main__":
    sys.exit(main())
