"""`scripts/bench stalls`: the longest turns of an actor's loop under five kinds of load, with what they did.

While a turn lasts all other clients wait. Ours and squid take turns, half of the time each time. Forwarding actors are
started with a loop that logs its longest turns (`benchmarks.traced_program`).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from actors.forwarding.reporting.turn_log import LongTurn
from api.store import Write
from api.store.accounts import open_accounts
from benchmarks import entrants, tunnels
from benchmarks.names import name_server
from benchmarks.ours import OurProxy, Product
from benchmarks.paced import Generator, Pace
from benchmarks.peers import Subject
from benchmarks.processes import BenchError, wait_until
from benchmarks.report import OURS, Bar, Beside, Comparison, Row
from benchmarks.rounds import Bench, Entrant
from benchmarks.visits import Visits, one_of_many, request
from config.files.paths import open_data_dir
from config.model.account_credentials import PREFIX_LENGTH, AccountCredential
from config.model.accounts import Quota
from config.model.fleet_accounts import FleetAccount
from config.model.plans import Plan

PROGRAM = (sys.executable, "-m", "benchmarks.traced_program")
TURN_MAX = 20.0
"""Milliseconds."""
HALVES = 2
PRINTED = 5
CLIENTS = 50_000
TUNNELS = 20_000
TUNNELS_OF_SQUID = 8_000
"""It is configured for 16,384 descriptors."""
SPARE_DESCRIPTORS = 300
TUNNEL_RATE = 50
ACCOUNTS = 10_000
PLAN = "plan_of_all"
PLAN_PERIOD = 10.0
"""Seconds between two changes of the plan that all accounts have."""
CHANGES: tuple[dict[str, Any], ...] = ({"requests_per_minute": 50_000}, {"requests_per_minute": 60_000})

Run = Callable[[Bench, Subject, float], list[float]]
"""Send for so many seconds; the latencies in ms."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of load. `settings` are those of our proxy beside the usual ones."""

    text: str
    run: Run
    settings: dict[str, Any] = field(default_factory=dict)


def prepare(folder: Path) -> None:
    """Accounts with a plan and a credential each, in a new data directory."""
    now = time.time()
    with closing(open_accounts(open_data_dir(folder / "data"))) as store:
        quota = Quota(bytes=10**15, period="month")
        plan = Plan(id=PLAN, name="all", quota=quota, created_at=now, updated_at=now)
        store.commit([Write("plans", plan.id, plan.model_dump(mode="json"))])
        for first in range(0, ACCOUNTS, 2_000):
            numbers = range(first, min(first + 2_000, ACCOUNTS))
            store.commit([write for number in numbers for write in _account(number, now)])


def _account(number: int, now: float) -> list[Write]:
    identifier, secret = f"acc_{number:016x}", _secret(number)
    account = FleetAccount(id=identifier, username=f"account-{number:06}", plan=PLAN, created_at=now, updated_at=now)
    credential = AccountCredential(
        id=f"crd_{number:016x}",
        account_id=identifier,
        prefix=secret[:PREFIX_LENGTH],
        secret_hash=hashlib.sha256(secret.encode()).hexdigest(),
        expires_at=now + 86_400,
        created_at=now,
    )
    return [
        Write("accounts", identifier, account.model_dump(mode="json")),
        Write("credentials", credential.id, credential.model_dump(mode="json")),
    ]


def _secret(number: int) -> str:
    return f"pfc_{number:040}"


# --- the loads ---


def _new(bench: Bench, subject: Subject, seconds: float) -> list[float]:
    asked = request(b"127.0.0.1", bench.origin.port)
    visits = Visits(subject.port, lambda _number: asked, lambda _number: "127.0.0.1")
    return _milliseconds(visits.run(seconds))


def _kept(bench: Bench, subject: Subject, seconds: float) -> list[float]:
    generator = Generator(subject, bench.origin.port, Pace(tunnels=0, heads=2_000))
    try:
        generator.run(seconds, lambda _at: None, seconds)
    finally:
        generator.close()
    if generator.sent.failed > generator.sent.responded / 100:
        raise BenchError(f"{generator.sent.failed} requests failed")
    return _milliseconds(generator.sent.latencies)


def _tunnels(bench: Bench, subject: Subject, seconds: float) -> list[float]:
    """How long it takes to open one beside many."""
    most = TUNNELS if subject.name == OURS else TUNNELS_OF_SQUID
    count = min(most, (bench.descriptors - SPARE_DESCRIPTORS) // 2)
    took = []
    with tunnels.SilentOrigin() as origin, tunnels.idle(subject, origin, count):
        began = time.monotonic()
        for number in range(int(seconds * TUNNEL_RATE)):
            time.sleep(max(0.0, began + number / TUNNEL_RATE - time.monotonic()))
            begins = time.monotonic()
            with tunnels.open_tunnel(subject, origin.port), origin.accept():
                took.append(time.monotonic() - begins)
    return _milliseconds(took)


def _clients(bench: Bench, subject: Subject, seconds: float) -> list[float]:
    asked = request(b"127.0.0.1", bench.origin.port)
    visits = Visits(subject.port, lambda _number: asked, lambda number: one_of_many(number, CLIENTS))
    return _milliseconds(visits.run(seconds))


def _accounts(bench: Bench, subject: Subject, seconds: float) -> list[float]:
    """Through squid the same without accounts and names."""
    port = bench.origin.port
    if subject.name != OURS or bench.product is None:
        return _new(bench, subject, seconds)

    def asked(number: int) -> bytes:
        authorization = b"Proxy-Authorization: Bearer %b" % _secret(number % ACCOUNTS).encode()
        return request(b"n%d.example" % number, port, authorization)

    visits = Visits(subject.port, asked, lambda number: one_of_many(number, CLIENTS))
    with _changing_plan(bench.product):
        return _milliseconds(visits.run(seconds))


@contextmanager
def _changing_plan(product: Product) -> Iterator[None]:
    over, session = threading.Event(), product.session()

    def change() -> None:
        for limits in itertools.cycle(CHANGES):
            if over.wait(PLAN_PERIOD):
                return
            product.call("PATCH", f"/plans/{PLAN}", {"limits": limits}, session)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        session.close()


def _milliseconds(seconds: Sequence[float]) -> list[float]:
    return [each * 1e3 for each in seconds]


_LIMITED = {"limits": {"connections_per_client": 100, "requests_per_minute": 100}}

LOADS = {
    "new": Kind("new connection each", _new),
    "kept": Kind("5,000 requests/s on kept connections, 2,000 heads", _kept),
    "tunnels": Kind("tunnels, beside many idle ones", _tunnels),
    "clients": Kind(f"{CLIENTS:,} clients with limits, new connection each", _clients, _LIMITED),
    "accounts": Kind(f"{ACCOUNTS:,} accounts with quotas, new names", _accounts, {"auth": {"enabled": True}}),
}


# --- turns ---


@dataclass(slots=True)
class Turns:
    """The longest of one actor, and how many were long."""

    longest: list[LongTurn]
    busiest: list[LongTurn]
    long: int

    def add(self, before: Turns, after: Turns, since: float) -> None:
        """Those between two readings."""
        self.long += after.long - before.long
        self.longest += [each for each in after.longest if each.at >= since]
        self.busiest += [each for each in after.busiest if each.at >= since]
        self.longest.sort(key=lambda each: each.milliseconds, reverse=True)
        self.busiest.sort(key=lambda each: each.cpu, reverse=True)


def _turns(product: Product, pid: int) -> Turns:
    """Those until now."""
    file, now = product.run_dir.path / f"turns-{pid}.json", time.time()
    wait_until(lambda: file.exists() and file.stat().st_mtime > now, "the log of the turns is written")
    read = json.loads(file.read_text())
    longest, busiest = ([LongTurn(*each) for each in read[name]] for name in ("longest", "busiest"))
    return Turns(longest, busiest, read["long"])


class _Ours:
    """Our side of one load: the proxy, and the turns of its actor while it is used."""

    def __init__(self, product: Product, settings: dict[str, Any]) -> None:
        self._product = product
        self.turns = Turns([], [], 0)
        self._settings = settings

    def start(self) -> OurProxy:
        proxy = OurProxy(self._product)
        if self._settings:
            self._product.call("PATCH", f"/proxies/{proxy.id}", self._settings)
        return proxy

    def watched(self, pid: int, act: Callable[[], list[float]]) -> list[float]:
        """`act`, whose turns count; those of the start don't."""
        before, began = _turns(self._product, pid), time.time()
        latencies = act()
        self.turns.add(before, _turns(self._product, pid), began)
        return latencies


def measure(bench: Bench, seconds: float, only: Sequence[str] = ()) -> list[Row]:
    """The rows of each load; what the longest turns did is printed as it is found."""
    product = bench.product
    if product is None:
        raise BenchError("stalls measures the product, beside squid")
    rows = []
    with name_server(0.0, "127.0.0.1") as server:
        for name in only or LOADS:
            kind = LOADS[name]
            dns = {"dns": {"servers": [server]}} if name == "accounts" else {}
            print(f"measuring: {name} ...", file=sys.stderr, flush=True)
            rows += _one(bench, kind, _Ours(product, kind.settings | dns), seconds / HALVES)
    return rows


def _one(bench: Bench, kind: Kind, ours: _Ours, seconds: float) -> list[Row]:
    def run(subject: Subject) -> dict[str, float]:
        act = partial(kind.run, bench, subject, seconds)
        latencies = ours.watched(subject.forwarding()[0], act) if subject.name == OURS else act()
        return {"p99": statistics.quantiles(latencies, n=100)[98]}

    results = bench.in_turn([Entrant(OURS, ours.start), entrants.squid(bench)], run)
    turns = ours.turns
    _show("longest", turns.longest)
    _show("with most work", turns.busiest)
    longest = max((each.milliseconds for each in turns.longest), default=0.0)
    work = Beside("ms of the processor", max((each.cpu for each in turns.busiest), default=0.0))
    bars = {"squid": Bar(factor=1.0)}
    return [
        Row(f"{kind.text}: longest turn", "ms", longest, bar=Bar(TURN_MAX), beside=work),
        Row(f"{kind.text}: turns over {TURN_MAX:.0f} ms", "", turns.long, bar=Bar(0)),
        *Comparison(f"{kind.text}: p99", "p99", "ms", bars).rows(results, only=bars),
    ]


def _show(what: str, turns: Sequence[LongTurn]) -> None:
    for turn in turns[:PRINTED]:
        calls = ", ".join(f"{name} {ms:.1f}" for name, ms in turn.what.items())
        print(f"  {what}: {turn.milliseconds:.1f} ms, {turn.cpu:.1f} of the processor: {calls}", file=sys.stderr)
