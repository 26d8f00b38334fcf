"""What each command of `scripts/bench` measures: its rows, and what is said of the run beside them."""

from __future__ import annotations

import argparse
import os
import platform
import sqlite3
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from actors.compiled import runs_compiled
from benchmarks import (
    accounts,
    fleet,
    forwarding,
    hellos,
    lists,
    logs,
    minting,
    names,
    observe,
    policies,
    pools,
    signin,
    sleepers,
    soak,
    stalls,
    starts,
    streaming,
    tls,
    tunnelling,
    usage_export,
    workers,
)
from benchmarks.management import measures
from benchmarks.management.servers import YARDSTICK
from benchmarks.ours import PROGRAM, Product
from benchmarks.paced import Pace
from benchmarks.peers import Origin, version_of
from benchmarks.processes import BenchError, allow_many_descriptors
from benchmarks.report import PURE, Row
from benchmarks.rounds import FULL, GOALS, QUICK, Bench, Effort
from config import VERSION

MEASURES: dict[str, Callable[[Bench], list[Row]]] = {
    "rest": fleet.at_rest,
    "actor": fleet.idle_actor,
    "fleet": fleet.many_idle_actors,
    "create": fleet.create_among_many,
    "small": forwarding.small,
    "heads": forwarding.heads,
    "fresh": forwarding.fresh,
    "medium": forwarding.medium,
    "connect": streaming.connect,
    "socks5": streaming.socks5,
    "tls": streaming.tls,
    "handshakes": tls.handshakes,
    "short": tunnelling.set_up,
    "greetings": tunnelling.greetings,
    "idle": tunnelling.idle,
    "crowd": tunnelling.crowd,
    "start": starts.ready,
    "read": measures.read,
}

GROUPS: dict[str, tuple[str, ...]] = {
    "requests": ("small", "heads", "fresh", "medium"),
    "tunnels": ("short", "greetings", "idle"),
    "bulk": ("connect", "socks5"),
    "encrypted": ("handshakes", "tls"),
    "processes": ("actor", "fleet", "start"),
    "api": ("read",),
}
"""Together they are all measures with goals."""

JUDGES = ("squid", "haproxy-http", "haproxy-tcp", "haproxy-tls", "stunnel", "dante", YARDSTICK)
"""The peers that goals name."""


def chosen(names: Sequence[str] | None, goals: bool) -> list[str]:
    """The measures of these names, of which some may be groups; all with `goals`, or every measure."""
    if not names:
        return [measure for group in GROUPS.values() for measure in group] if goals else list(MEASURES)
    return [measure for name in names for measure in GROUPS.get(name, (name,))]


def measure(arguments: argparse.Namespace) -> tuple[list[Row], dict[str, object]]:
    """A measure that fails is named under `failed`, and the others go on."""
    effort = QUICK if arguments.quick else GOALS if arguments.goals else FULL
    rows: list[Row] = []
    failed: list[str] = []
    with _started(arguments, effort, with_pure=runs_compiled()) as bench:
        for name in chosen(arguments.only, arguments.goals):
            began = time.monotonic()
            print(f"measuring: {name} ...", end=" ", file=sys.stderr, flush=True)
            try:
                rows += MEASURES[name](bench)
            except (BenchError, OSError) as error:
                failed.append(name)
                print(f"failed: {error}", file=sys.stderr)
            print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
        return rows, _about(bench) | {"effort": asdict(effort), "failed": failed}


def _soak(arguments: argparse.Namespace) -> tuple[list[Row], dict[str, object]]:
    with _started(arguments, FULL) as bench:
        if bench.product is None:
            raise BenchError("soak measures the product alone")
        rows, samples = soak.soak(
            bench.product, bench.origin, arguments.seconds, Pace(arguments.rate), arguments.workers
        )
        return rows, _about(bench) | samples


def _workers(arguments: argparse.Namespace) -> tuple[list[Row], dict[str, object]]:
    with _started(arguments, QUICK if arguments.quick else FULL) as bench:
        return workers.measure(bench), _about(bench)


def _stalls(arguments: argparse.Namespace) -> tuple[list[Row], dict[str, object]]:
    effort = replace(FULL, rounds=stalls.HALVES)
    with _started(arguments, effort, stalls.PROGRAM, stalls.prepare) as bench:
        return stalls.measure(bench, arguments.seconds, arguments.load or ()), _about(bench)


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


def _hellos(arguments: argparse.Namespace) -> tuple[list[Row], dict[str, object]]:
    rows = hellos.measure(arguments.hellos)
    return rows, {"machine": _machine(), "versions": {"proxyfleet": VERSION, "OpenSSL": ssl.OPENSSL_VERSION.split()[1]}}


def _dns(arguments: argparse.Namespace) -> tuple[list[Row], dict[str, object]]:
    allow_many_descriptors()
    with tempfile.TemporaryDirectory(prefix="pf-bench-", dir="/tmp") as name:
        rows = names.measure(Path(name), arguments.names)
    return rows, {"machine": _machine(), "versions": {"proxyfleet": VERSION}}


def _lists(arguments: argparse.Namespace) -> tuple[list[Row], dict[str, object]]:
    rows = lists.measure(arguments.domains)
    return rows, {"machine": _machine(), "versions": {"proxyfleet": VERSION}}


def _pools(arguments: argparse.Namespace) -> tuple[list[Row], dict[str, object]]:
    allow_many_descriptors()
    with tempfile.TemporaryDirectory(prefix="pf-bench-", dir="/tmp") as name:
        rows = pools.measure(Path(name), arguments.proxies, arguments.upstreams, arguments.seconds)
    return rows, {"machine": _machine(), "versions": {"proxyfleet": VERSION}}


def _sleepers(arguments: argparse.Namespace) -> tuple[list[Row], dict[str, object]]:
    allow_many_descriptors()
    size = sleepers.SMALL if arguments.small else sleepers.LARGE
    size = replace(size, proxies=arguments.proxies or size.proxies)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pf-bench-", dir="/tmp")))
        folder.chmod(0o755)
        origin = Origin(folder)
        stack.callback(origin.end)
        rows = sleepers.measure(folder, origin, size)
    versions = {"proxyfleet": VERSION, "nginx": version_of("nginx", "-v")}
    return rows, {"machine": _machine(), "versions": versions, "size": asdict(size)}


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


COMMANDS: dict[str, Callable[[argparse.Namespace], tuple[list[Row], dict[str, object]]]] = {
    "soak": _soak,
    "stalls": _stalls,
    "workers": _workers,
    "api": _api,
    "signin": _signin,
    "logs": _logs,
    "start": _start,
    "observe": _observe,
    "accounts": _accounts,
    "policies": _policies,
    "hellos": _hellos,
    "dns": _dns,
    "lists": _lists,
    "pools": _pools,
    "sleepers": _sleepers,
    "dashboard": _dashboard,
}


@contextmanager
def _started(
    arguments: argparse.Namespace,
    effort: Effort,
    program: Sequence[str] = PROGRAM,
    prepare: Callable[[Path], None] = lambda _folder: None,
    with_pure: bool = False,
) -> Iterator[Bench]:
    """The origin and the product run, whose data `prepare` may have made. All is ended, and the folder removed.

    With `with_pure` another product runs beside it, of pure modules.
    """
    descriptors = allow_many_descriptors()
    with ExitStack() as stack:
        # under /tmp, whose path is short: the product's sockets lie in it
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pf-bench-", dir="/tmp")))
        folder.chmod(0o755)
        origin = Origin(folder)
        stack.callback(origin.end)
        prepare(folder)
        product = pure = None
        if not arguments.peers_only:
            product = Product(folder, program=program)
            stack.callback(product.end)
        if product and with_pure:
            (folder / PURE).mkdir()
            pure = Product(folder / PURE, name=PURE)
            stack.callback(pure.end)
        versions = {"nginx": origin.version(), **{each.name: each.version() for each in (product, pure) if each}}
        peers = arguments.peer or (JUDGES if arguments.goals else ())
        yield Bench(folder, arguments.peers_dir, origin, product, effort, descriptors, versions, peers, pure)


def _about(bench: Bench) -> dict[str, object]:
    return {
        "machine": _machine(),
        "descriptors": bench.descriptors,
        "versions": {"wrk": version_of("wrk", "-v"), **bench.versions},
    }


def _machine() -> str:
    return f"{os.cpu_count()} cores, Linux {platform.release()}, CPython {platform.python_version()}"
