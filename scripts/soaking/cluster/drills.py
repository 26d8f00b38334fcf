"""Carries the drills out: every 15 seconds one, often two at once, in an order by the seed."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any

import psycopg

from soaking.cluster.faults import CLOCK_OFF, FleetJournal
from soaking.cluster.fleet import DATABASE, SoakedFleet, SoakedNode
from soaking.disturb import Plan
from soaking.faults import Fault
from tests.kit.gated_relay import ALL, HOLD, REFUSE, Gate
from tests.kit.postgresql_server import Server
from tests.kit.wait import wait_until

PERIOD = 15.0
LASTS = 4.0, 9.0
"""Seconds of a drill, at least and at most."""
TWO = 0.4
"""The share of two at once."""
MENDED_WITHIN = 150.0
"""Seconds, of which a start of a node on a machine that others use has most."""
_END_CONNECTIONS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename LIKE 'pf_nod_%'"

Drill = Callable[["Drills", SoakedNode], AbstractContextManager[None]]
OF_DATABASE: dict[str, Drill] = {}
OF_NODE: dict[str, Drill] = {}
"""What is done to the database, and to one node, for the time of a block."""


def _drill(kind: str, table: dict[str, Drill]) -> Callable[[Callable[[Drills, SoakedNode], Iterator[None]]], None]:
    def noted(function: Callable[[Drills, SoakedNode], Iterator[None]]) -> None:
        @contextmanager
        def drill(drills: Drills, node: SoakedNode) -> Iterator[None]:
            steps = function(drills, node)
            next(steps)
            try:
                yield
            finally:  # also when another one that is carried out with it has failed
                next(steps, None)

        table[kind] = drill

    return noted


class Drills:
    """In a thread of its own, from `start` to `stop`."""

    def __init__(
        self,
        fleet: SoakedFleet,
        journal: FleetJournal,
        plan: Plan,
        seed: int,
        only: list[str],
        on_rewind: Callable[[float], object],
    ) -> None:
        """`only` these kinds, if there are any. `on_rewind` gets the moment since which changes may be undone."""
        self.failures: list[str] = []
        self.fleet, self.on_rewind = fleet, on_rewind
        self._journal, self._plan, self._only = journal, plan, only
        self.dice = random.Random(seed)
        self.over = threading.Event()
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="drills")

    def start(self) -> None:
        """Begin to count."""
        self._began = time.monotonic()
        self._thread.start()

    def join(self) -> None:
        """Return when the last one is mended."""
        self._thread.join()

    def stop(self) -> None:
        """Before its time."""
        self.over.set()
        if self._thread.is_alive():
            self._thread.join()

    @contextmanager
    def gate(self, whose: str, gate: Gate) -> Iterator[None]:
        """Between nodes and the database."""
        gates = self.fleet.relay.gates
        gates[whose] = gate
        try:
            yield
        finally:
            del gates[whose]

    def _run(self) -> None:
        number, orders = 0, [self._order(OF_DATABASE), self._order(OF_NODE)]
        while True:
            when = self._plan.begin + PERIOD * number
            if when >= self._plan.end or self.over.wait(max(0.0, self._began + when - time.monotonic())):
                return
            number = max(number + 1, int((time.monotonic() - self._began - self._plan.begin) / PERIOD) + 1)
            both = self.dice.random() < TWO
            chosen = [next(each) for each in (orders if both else [self.dice.choice(orders)])]
            kinds = [each for each in chosen if each]
            try:
                if kinds:
                    self._carry_out(kinds)
            except Exception as error:  # noqa: BLE001 - it is a finding
                self.failures.append(f"{chosen}: {error!r}")

    def _order(self, table: dict[str, Drill]) -> Iterator[str]:
        """All of them in each round, in an order of its own."""
        kinds = [each for each in table if not self._only or each in self._only]
        while True:
            self.dice.shuffle(kinds)
            yield from kinds or [""]

    def _carry_out(self, kinds: list[str]) -> None:
        """At once, and return when all is mended."""
        with ExitStack() as stack:
            for kind in kinds:
                target = self.dice.choice(self.fleet.nodes)
                fault = stack.enter_context(self._journal.fault(kind, target.name if kind in OF_NODE else ""))
                stack.callback(self._wait_whole, fault)
            for kind, fault in zip(kinds, self._journal.faults[-len(kinds) :], strict=True):
                target = next((each for each in self.fleet.nodes if each.name == fault.target), self.fleet.nodes[0])
                table = OF_NODE if kind in OF_NODE else OF_DATABASE
                stack.enter_context(table[kind](self, target))
            self.over.wait(self.dice.uniform(*LASTS))

    def _wait_whole(self, fault: Fault) -> None:
        try:
            wait_until(self.fleet.is_whole, "all is mended", MENDED_WITHIN, 0.2)
        except AssertionError:
            known = [(each["name"], each["state"], each["database"]) for each in self.fleet.known()]
            self.failures.append(f"after `{fault.kind}` not all was whole within {MENDED_WITHIN:g} s: {known}")


# --- the database ---


@_drill("database stopped", OF_DATABASE)
def _stopped(drills: Drills, _node: SoakedNode) -> Iterator[None]:
    drills.fleet.server.stop()
    yield
    drills.fleet.server.start()


@_drill("database killed", OF_DATABASE)
def _killed(drills: Drills, _node: SoakedNode) -> Iterator[None]:
    drills.fleet.server.stop(signal.SIGKILL)
    yield
    drills.fleet.server.start()


@_drill("database hangs", OF_DATABASE)
def _hangs(drills: Drills, _node: SoakedNode) -> Iterator[None]:
    server = drills.fleet.server
    with _stopped_processes([server.process.pid, *server.backends()]):
        yield


@_drill("backend hangs", OF_DATABASE)
def _backend_hangs(drills: Drills, _node: SoakedNode) -> Iterator[None]:
    query = "SELECT pid FROM pg_stat_activity WHERE usename LIKE 'pf_nod_%'"
    pids = [int(str(pid)) for (pid,) in drills.fleet.execute(query)]
    with _stopped_processes([drills.dice.choice(pids)] if pids else []):
        yield


@_drill("database cut", OF_DATABASE)
def _cut(drills: Drills, _node: SoakedNode) -> Iterator[None]:
    with drills.gate(ALL, REFUSE):
        drills.fleet.relay.cut()
        yield


@_drill("database slow", OF_DATABASE)
def _slow(drills: Drills, _node: SoakedNode) -> Iterator[None]:
    with drills.gate(ALL, Gate(late=drills.dice.uniform(0.2, 1.0))):
        yield


@contextmanager
def _stopped_processes(pids: list[int]) -> Iterator[None]:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    yield
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@_drill("database out of connections", OF_DATABASE)
def _out_of_connections(drills: Drills, _node: SoakedNode) -> Iterator[None]:
    server, taken = drills.fleet.server, list[psycopg.Connection[Any]]()
    try:
        while True:
            try:
                taken.append(psycopg.connect(server.dsn(), autocommit=True))
            except psycopg.OperationalError:
                if not taken[0].execute(_END_CONNECTIONS).fetchall():
                    break
        yield
    finally:
        for each in taken:
            each.close()


@_drill("database read-only", OF_DATABASE)
def _read_only(drills: Drills, _node: SoakedNode) -> Iterator[None]:
    """As providers do it when the disk is nearly full: connections of that time stay so until they end."""
    fleet = drills.fleet
    fleet.execute(f"ALTER DATABASE {DATABASE} SET default_transaction_read_only = on")
    fleet.execute(_END_CONNECTIONS)
    yield
    with psycopg.connect(fleet.server.dsn(), autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {DATABASE} RESET default_transaction_read_only".encode())


@_drill("failover that lacks commits", OF_DATABASE)
def _failover(drills: Drills, _node: SoakedNode) -> Iterator[None]:
    fleet, before = drills.fleet, drills.fleet.server
    standby = Server(durable=True, standby_of=before)
    since = time.monotonic() - 1
    standby.part()
    drills.over.wait(drills.dice.uniform(1, 4))
    before.stop(signal.SIGKILL)
    drills.over.wait(drills.dice.uniform(0, 3))
    standby.promote()
    fleet.server, fleet.relay.target = standby, standby.port
    fleet.relay.cut()
    drills.on_rewind(since)
    yield
    before.remove()
    drills.over.wait(5)
    drills.on_rewind(since)


@_drill("older dump put in", OF_DATABASE)
def _older_dump(drills: Drills, _node: SoakedNode) -> Iterator[None]:
    fleet, since = drills.fleet, time.monotonic() - 1
    dump = fleet.run("pg_dump", "--schema=proxyfleet", fleet.server.dsn(DATABASE))
    drills.over.wait(drills.dice.uniform(1, 4))
    words = ["-q", "-1", "-v", "ON_ERROR_STOP=1", "-c", "DROP SCHEMA proxyfleet CASCADE", "-f", "-"]
    for left in reversed(range(5)):
        try:
            fleet.run("psql", *words, fleet.server.dsn(DATABASE), text=dump)
            break
        except AssertionError as error:  # with the locks of nodes; an operator does it again, too
            if not left or "deadlock detected" not in str(error):
                raise
    drills.on_rewind(since)
    yield
    drills.over.wait(5)
    drills.on_rewind(since)


@_drill("empty database", OF_DATABASE)
def _empty_database(drills: Drills, _node: SoakedNode) -> Iterator[None]:
    with _another_database(drills, ""):
        yield


@_drill("database of another fleet", OF_DATABASE)
def _other_fleet(drills: Drills, _node: SoakedNode) -> Iterator[None]:
    with _another_database(drills, " TEMPLATE away"):
        yield


@contextmanager
def _another_database(drills: Drills, like: str) -> Iterator[None]:
    fleet = drills.fleet
    with drills.gate(ALL, REFUSE):
        fleet.relay.cut()
        fleet.alone(f"ALTER DATABASE {DATABASE} RENAME TO away", f"CREATE DATABASE {DATABASE}{like}")
        if like:
            fleet.execute("UPDATE proxyfleet.fleet SET id = gen_random_uuid()")
    yield
    with drills.gate(ALL, REFUSE):
        fleet.relay.cut()
        fleet.alone(f"DROP DATABASE {DATABASE}", f"ALTER DATABASE away RENAME TO {DATABASE}")


# --- a node, and the network ---


@_drill("node cut off", OF_NODE)
def _node_cut_off(drills: Drills, node: SoakedNode) -> Iterator[None]:
    with drills.gate(node.role_name, HOLD):
        yield


@_drill("node cut off one way", OF_NODE)
def _node_half_cut_off(drills: Drills, node: SoakedNode) -> Iterator[None]:
    """What it sends arrives; no response does."""
    with drills.gate(node.role_name, Gate(to_client=False)):
        yield


@_drill("links cut", OF_NODE)
def _links_cut(_drills: Drills, node: SoakedNode) -> Iterator[None]:
    """Other nodes can't reach it."""
    node.link.gates["*"] = HOLD
    yield
    node.link.gates.clear()
    node.link.cut()


@_drill("clock an hour off", OF_NODE)
def _clock(drills: Drills, node: SoakedNode) -> Iterator[None]:
    node.clock.set(drills.dice.choice(CLOCK_OFF))
    yield
    node.clock.set(0)
    node.forget_token()  # one of that hour is of the future, or has ended


@_drill("disk full", OF_NODE)
def _disk_full(_drills: Drills, node: SoakedNode) -> Iterator[None]:
    node.fill_disk()
    yield
    node.empty_disk()


@_drill("replica damaged", OF_NODE)
def _replica_damaged(_drills: Drills, node: SoakedNode) -> Iterator[None]:
    node.kill_all()
    with (node.data_dir / "fleet.sqlite").open("r+b") as file:
        file.write(os.urandom(8192))
    node.start(wait=False)
    node.forget_token()
    yield


@_drill("replica deleted", OF_NODE)
def _replica_deleted(_drills: Drills, node: SoakedNode) -> Iterator[None]:
    node.kill_all()
    for each in node.data_dir.glob("fleet.sqlite*"):
        each.unlink()
    node.start(wait=False)
    node.forget_token()
    yield


@_drill("node killed", OF_NODE)
def _node_killed(_drills: Drills, node: SoakedNode) -> Iterator[None]:
    node.kill_all()
    node.start(wait=False)
    yield
    node.forget_token()


@_drill("node away", OF_NODE)
def _node_away(drills: Drills, node: SoakedNode) -> Iterator[None]:
    node.kill_all()
    yield
    drills.over.wait(10)
    node.start(wait=False)
    node.forget_token()
