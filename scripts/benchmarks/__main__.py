"""`scripts/bench [soak|api|signin|logs|observe|accounts|policies|pools|…]`: print the table; 1 when a bar is missed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import stalls
from benchmarks.commands import COMMANDS, GROUPS, MEASURES, measure
from benchmarks.install import default_folder, install
from benchmarks.paced import Pace
from benchmarks.processes import BenchError
from benchmarks.report import markdown, plain, save


def main() -> int:
    """The exit status: 0 all bars reached, 1 a bar missed, 2 could not measure all."""
    arguments = _parser().parse_args()
    try:
        if arguments.install:
            install(arguments.peers_dir)
        rows, about = COMMANDS.get(arguments.command, measure)(arguments)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    print(_heading(about), (markdown if arguments.markdown else plain)(rows), sep="\n\n")
    if arguments.json:
        save(rows, about, arguments.json)
    if about.get("failed"):
        return 2
    return 1 if any(row.reached is False for row in rows) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measure the product beside its peers.")
    parser.add_argument("--install", action="store_true", help="install the load generator and the peers first")
    parser.add_argument(
        "--peers-dir", type=Path, metavar="DIR", default=default_folder(), help="of the peers from PyPI"
    )
    parser.add_argument("--quick", action="store_true", help="a short run: the figures are rough")
    only = f"one of {', '.join(MEASURES)}, or a group ({', '.join(GROUPS)}); may be given more than once"
    parser.add_argument("--only", action="append", metavar="NAME", choices=[*MEASURES, *GROUPS], help=only)
    parser.add_argument(
        "--goals", action="store_true", help="only measures with goals, and only peers that a goal names"
    )
    parser.add_argument(
        "--peer", action="append", metavar="NAME", help="only beside this one; may be given more than once"
    )
    parser.add_argument("--peers-only", action="store_true", help="leave the product out")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    commands = parser.add_subparsers(dest="command")
    _add_runs(commands)
    _add_kinds(commands)
    commands.metavar = "|".join(commands.choices)
    return parser


def _add_runs(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """What the running product does: under load, at its start, and while it is watched."""
    long = commands.add_parser("soak", help="a steady load for long: does anything grow?")
    long.add_argument("--seconds", type=float, default=600.0)
    long.add_argument("--rate", type=int, default=Pace().requests, metavar="REQUESTS", help="each second")
    long.add_argument("--workers", type=int, default=1, metavar="NUMBER", help="of the proxy")
    commands.add_parser("workers", help="two workers of a proxy beside one, their balance, and 64 that are idle")
    turns = commands.add_parser(
        "stalls", help="the longest turns of an actor's loop by kind of load, and what they did"
    )
    turns.add_argument("--seconds", type=float, default=60.0, help="of each load, through each proxy")
    turns.add_argument("--load", action="append", choices=stalls.LOADS, help="only this; may be given more than once")
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


def _add_kinds(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """What many objects of one kind cost."""
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
    read = commands.add_parser("hellos", help="what reading the name in a TLS handshake costs")
    read.add_argument("--hellos", type=int, default=20_000, help="of each client")
    named = commands.add_parser("dns", help="names from the caches, and at once by slow and dead name servers")
    named.add_argument("--names", type=int, default=50_000, help="from the resolver's cache")
    listed = commands.add_parser("lists", help="what a list of many domains costs the machine and a look-up")
    listed.add_argument("--domains", type=int, default=1_000_000)
    pooled = commands.add_parser("pools", help="many proxies on one pool: how many checks, and what a choice costs")
    pooled.add_argument("--proxies", type=int, default=200)
    pooled.add_argument("--upstreams", type=int, default=1_000)
    pooled.add_argument("--seconds", type=float, default=20.0, help="in which checks are counted")
    resting = commands.add_parser("sleepers", help="thousands of proxies of which nearly all sleep")
    resting.add_argument("--proxies", type=int, metavar="NUMBER", help="10,000 unless given")
    resting.add_argument("--small", action="store_true", help="with 500, to try it")
    page = commands.add_parser("dashboard", help="weight, first paint, scrolling, and what open tabs cost the API")
    page.add_argument("--small", action="store_true", help="with little data, to try it")
    page.add_argument("--records", type=int, metavar="NUMBER", help="in the log index; a whole number of thousands")
    page.add_argument("--soak-minutes", type=float, metavar="MINUTES", help="instead: does the heap of the page grow?")
    managing = commands.add_parser("api", help="the management API, beside FastAPI under uvicorn")
    managing.add_argument("--configured", type=int, default=10_000, metavar="PROXIES")


def _heading(about: dict[str, object]) -> str:
    versions = about["versions"]
    assert isinstance(versions, dict)
    return f"{about['machine']}; {', '.join(f'{name} {version}' for name, version in sorted(versions.items()))}"


if __name__ == "__main__":
    sys.exit(main())
