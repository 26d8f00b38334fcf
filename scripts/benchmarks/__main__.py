"""`scripts/bench`: measure, and print the table. Ends with 1 when a goal is missed, with 2 when a measure failed."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from actors.compiled import runs_compiled
from benchmarks import browser, cluster, fleet, management, objects, traffic
from benchmarks.ours import OURS, PURE, Product
from benchmarks.processes import FAILURES, allow_many_descriptors
from benchmarks.programs import origin, version_of
from benchmarks.rounds import FULL, QUICK, Bench, Results
from benchmarks.table import lines_of, markdown, save

MEASURES: dict[str, Callable[[Bench], Results]] = {
    "rest": fleet.at_rest,
    "actor": fleet.idle_actor,
    "fleet": fleet.many_idle_actors,
    "create": fleet.create_among_many,
    "start": fleet.starts,
    "sleepers": fleet.sleepers,
    "small": traffic.by(traffic.KEEP_ALIVE, "http", "squid", "haproxy-http"),
    "heads": traffic.by(traffic.NEW, "http", "squid"),
    "fresh": traffic.by(traffic.FRESH, "http", "squid"),
    "medium": traffic.by(traffic.LARGE, "http", "squid", "haproxy-http"),
    "connect": traffic.by(traffic.bulk, "http", "haproxy-tcp", "squid", parts=1),
    "socks5": traffic.by(traffic.bulk, "socks5", "dante", parts=1),
    "tls": traffic.by(traffic.bulk, "https", "haproxy-tls-tcp", "stunnel", parts=1),
    "handshakes": traffic.by(traffic.handshakes, "https", "haproxy-tls"),
    "resumed": traffic.by(traffic.resumed, "https", "haproxy-tls"),
    "short": traffic.by(traffic.set_up, "http", "squid"),
    "short5": traffic.by(traffic.set_up, "socks5", "dante"),
    "idle": traffic.idle("http", "squid"),
    "idle5": traffic.idle("socks5", "dante"),
    "crowd": traffic.crowd,
    "workers": traffic.workers,
    "read": management.one,
    "page": management.page,
    "search": management.search,
    "scrolling": browser.scrolling,
    "tabs": browser.tabs,
    "accounts": objects.accounts,
    "signin": objects.signin,
    "policies": objects.policies,
    "limits": objects.limits,
    "lists": objects.lists,
    "logs": objects.logs,
}


ALL = {**MEASURES, **cluster.MEASURES}


def main() -> int:
    """The exit status."""
    given = _parser().parse_args()
    of = cluster.MEASURES if given.of else MEASURES
    results: dict[str, Results] = {}
    failed: list[str] = []
    with _started(given) as bench:
        for name in given.only or of:
            began = time.monotonic()
            print(f"measuring: {name} ...", end=" ", file=sys.stderr, flush=True)
            try:
                results[name] = ALL[name](bench)
            except FAILURES as error:
                failed.append(name)
                print(f"failed: {error}", file=sys.stderr)
            print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    lines = lines_of(results)
    machine = f"{os.cpu_count()} cores, Linux {platform.release()}, CPython {platform.python_version()}"
    versions = {"wrk": version_of("wrk", "-v"), **bench.versions}
    print(f"{machine}; {', '.join(f'{name} {version}' for name, version in sorted(versions.items()))}")
    if given.quick:
        print("--quick: numbers are smaller than the rows say, and figures are rough")
    print("", markdown(lines), sep="\n")
    if given.json:
        save(lines, {"machine": machine, "versions": versions, "quick": given.quick, "failed": failed}, given.json)
    return 2 if failed else any(line.reached is False for line in lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measure the product beside its peers.")
    parser.add_argument("of", nargs="?", choices=["cluster"], help="of several nodes, and not of one machine")
    only = f"only this measure; may be given more than once: {', '.join(ALL)}"
    parser.add_argument("--only", action="append", metavar="NAME", choices=ALL, help=only)
    parser.add_argument("--peer", action="append", metavar="NAME", help="only beside this one; likewise")
    parser.add_argument("--quick", action="store_true", help="a short run: the figures are rough")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    return parser


@contextmanager
def _started(given: argparse.Namespace) -> Iterator[Bench]:
    """The origin runs, and unless it is of several nodes the product, and the pure one beside a compiled one.

    All is ended, and the folder removed."""
    effort, many = QUICK if given.quick else FULL, allow_many_descriptors()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pf-bench-", dir="/tmp")))
        folder.chmod(0o755)
        nginx = origin(folder)
        stack.callback(nginx.end)
        chosen = given.only or (cluster.MEASURES if given.of else MEASURES)
        names = (OURS, *([PURE] if runs_compiled() else [])) if set(chosen) & set(MEASURES) else ()
        products = [Product(name).run() for name in names]
        for each in products:
            stack.callback(each.end)
        versions = {"nginx": nginx.version(), **{each.name: each.version() for each in products}}
        yield Bench(folder, effort, many, nginx, products, given.peer or (), versions=versions)


if __name__ == "__main__":
    sys.exit(main())
