"""Carries the drills out: every 15 seconds one, often two at once, in an order by the seed."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress

from soaking.cluster.faults import FleetJournal
from soaking.cluster.fleet import SoakedFleet, SoakedNode
from soaking.disturb import Plan
from soaking.faults import Fault
from tests.kit.gated_relay import REFUSE, Gate
from tests.kit.wait import wait_until

PERIOD = 15.0
LASTS = 4.0, 9.0
"""Seconds of a drill, at least and at most."""
TWO = 0.4
"""The share of two at once."""
MENDED_WITHIN = 60.0

Drill = Callable[["Drills", SoakedNode], AbstractContextManager[None]]
OF_DATABASE: dict[str, Drill] = {}
OF_NODE: dict[str, Drill] = {}
"""What is done to the database, and to one node, for the time of a block."""


def _drill(kind: str, table: dict[str, Drill]) -> Callable[[Callable[[Drills, SoakedNode], Iterator[None]]], None]:
    def noted(function: Callable[[Drills, SoakedNode], Iterator[None]]) -> None:
        table[kind] = contextmanager(function)

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

    def _run(self) -> None:
        number, orders = 0, [self._order(OF_DATABASE), self._order(OF_NODE)]
        while True:
            when = self._plan.begin + PERIOD * number
            if when >= self._plan.end or self.over.wait(max(0.0, self._began + when - time.monotonic())):
                return
            number = max(number + 1, int((time.monotonic() - self._began - self._plan.begin) / PERIOD) + 1)
            both = self.dice.random() < TWO
            chosen = [next(each) for each in (orders if both else [self.dice.choice(orders)])]
            try:
                self._carry_out([each for each in chosen if each])
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
    relay = drills.fleet.relay
    relay.gates["*"] = REFUSE
    relay.cut()
    yield
    del relay.gates["*"]


@_drill("database slow", OF_DATABASE)
def _slow(drills: Drills, _node: SoakedNode) -> Iterator[None]:
    drills.fleet.relay.gates["*"] = Gate(late=drills.dice.uniform(0.2, 1.0))
    yield
    del drills.fleet.relay.gates["*"]


@contextmanager
def _stopped_processes(pids: list[int]) -> Iterator[None]:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    yield
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


# --- a node, and the network ---


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
