"""`scripts/bench`: run the measures that were asked for and print the table. Ends with 1 when a bar is missed."""

from __future__ import annotations

import argparse
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.measures import FULL, MEASURES, QUICK, Bench, Effort
from benchmarks.ours import Product
from benchmarks.peers import Origin
from benchmarks.processes import BenchError
from benchmarks.report import Row, save, table

PACKAGES = ("wrk", "squid", "tinyproxy", "haproxy", "nginx-light")


def main() -> int:
    """The exit status: 0 all bars reached, 1 a bar missed, 2 could not measure."""
    arguments = _parser().parse_args()
    try:
        if arguments.install:
            install()
        rows = run(arguments.only or list(MEASURES), QUICK if arguments.quick else FULL, not arguments.peers_only)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    print(_machine(), table(rows), sep="\n\n")
    if arguments.json:
        save(rows, arguments.json)
    return 1 if any(row.reached is False for row in rows) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measure the product beside its peers.")
    parser.add_argument("--install", action="store_true", help=f"install {', '.join(PACKAGES)} first (Debian, as root)")
    parser.add_argument("--quick", action="store_true", help="a short run: the figures are rough")
    parser.add_argument(
        "--only", action="append", metavar="NAME", choices=MEASURES, help=f"one of {', '.join(MEASURES)}"
    )
    parser.add_argument("--peers-only", action="store_true", help="leave the product out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    return parser


def install() -> None:
    """The load generator, the origin and the peers, from Debian. Raises `BenchError`."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise BenchError(f"--install needs root and apt-get; install by hand: {' '.join(PACKAGES)}")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *PACKAGES]):
        done = subprocess.run(["apt-get", *command], env=environment, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise BenchError(f"apt-get {command[0]} failed")


def run(names: list[str], effort: Effort, with_product: bool) -> list[Row]:
    """The rows of these measures. Everything that is started is ended, and the folder removed."""
    _allow_many_descriptors()
    rows: list[Row] = []
    with ExitStack() as stack:
        # under /tmp, whose path is short: the product's sockets lie in it
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pf-bench-", dir="/tmp")))
        folder.chmod(0o755)
        origin = Origin(folder)
        stack.callback(origin.end)
        product = Product(folder) if with_product else None
        if product:
            stack.callback(product.end)
        for name in names:
            print(f"measuring: {name} ...", file=sys.stderr)
            rows += MEASURES[name](Bench(folder, origin, product, effort))
    return rows


def _allow_many_descriptors() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _machine() -> str:
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.release()}; medians, all on loopback"


if __name__ == "__main__":
    sys.exit(main())
