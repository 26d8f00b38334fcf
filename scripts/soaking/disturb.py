"""Carries the faults out: kills each twenty seconds, reloads, and once each a full disk and no descriptors left."""

from __future__ import annotations

import os
import random
import resource
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

from actors.supervision.processes.fd_reserve import FOR_LISTENERS
from soaking.faults import WORKERS, Fault, Journal
from soaking.installation import Installation

KILL_PERIOD = 20.0
RELOAD_PERIOD = 31.0
MENDED_WITHIN = 60.0
"""Seconds after which everything has to run again: the longest back-off is half of it."""
SPARE = {"supervisor": FOR_LISTENERS // 2}
"""Descriptors that are left to a process that runs out of them. The supervisor stops growing before it has none: with
none at all libzmq ends it, since its listener for `ipc://` takes that for impossible."""

ACTORS = ("api", "tls", "metrics", "logs", "webhooks", "resolver", "pools", "zygote")
HANGING = ("api", "logs", "metrics", "webhooks", "resolver", "pools", "worker")


@dataclass(frozen=True, slots=True)
class Plan:
    """Seconds from the begin: when faults begin and end, and when disk and descriptors run out, and for how long."""

    total: float

    @property
    def begin(self) -> float:
        """Until then nothing is disturbed, for the first sample."""
        return max(25.0, self.total * 0.08)

    @property
    def end(self) -> float:
        """From then on nothing is disturbed, so that everything can settle."""
        return self.total - max(50.0, self.total * 0.08)

    @property
    def scarcity(self) -> float:
        """How long there is no disk."""
        return min(60.0, (self.end - self.begin) * 0.22)

    @property
    def descriptorless(self) -> float:
        """How long each kind of process has no descriptor to spare, one kind after the other."""
        return min(60.0, (self.end - self.begin) * 0.1)

    @property
    def disk(self) -> float:
        """When the disk is full."""
        return self.begin + (self.end - self.begin) * 0.3

    @property
    def descriptors(self) -> float:
        """When there are no descriptors."""
        return self.begin + (self.end - self.begin) * 0.65


class Disturber:
    """In threads of its own, from `start` to `stop`. `proxies` are names by the names of the forwarding processes."""

    def __init__(self, product: Installation, journal: Journal, proxies: dict[str, str], plan: Plan, seed: int) -> None:
        self.failures: list[str] = []
        self.starts_that_failed = 0
        self._product, self._journal, self._proxies, self._plan = product, journal, proxies, plan
        self._dice = random.Random(seed)
        self._over = threading.Event()
        self._supervisor = threading.Lock()
        self._descriptorless = ""
        self._threads = [
            threading.Thread(target=each, name=each.__name__)
            for each in (self._kills, self._reloads, self._scarcities, self._restarts)
        ]
        self._began = time.monotonic()

    def start(self) -> None:
        """Begin to count."""
        self._began = time.monotonic()
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Return when the last fault is mended."""
        for thread in self._threads:
            thread.join()

    def stop(self) -> None:
        """Before its time."""
        self._over.set()
        self.join()

    # --- kills ---

    def _kills(self) -> None:
        mending: list[threading.Thread] = []
        order = self._order()
        while self._until(self._plan.begin + KILL_PERIOD * len(mending)):
            name = next(name for name in order if not self._spared(name))
            thread = threading.Thread(target=self._disturb, args=(name,))
            thread.start()
            mending.append(thread)
        for thread in mending:
            thread.join()

    def _order(self) -> Iterator[str]:
        """Every kind in each round, in an order of its own; the supervisor in every second round."""
        for number in range(10_000):
            kinds = [f"kill {each}" for each in ACTORS] + ["kill forwarding"] * 3 + ["hang forwarding"]
            kinds.append("kill worker")
            kinds.append(f"hang {self._dice.choice(HANGING)}")
            self._dice.shuffle(kinds)
            if number % 2 == 0:
                kinds.insert(len(kinds) // 2, "kill supervisor")
            yield from kinds

    def _spared(self, name: str) -> bool:
        """A kind without descriptors lives on: its successor would have some again."""
        return bool(self._descriptorless) and name.endswith(self._descriptorless)

    def _disturb(self, name: str) -> None:
        if name == "kill supervisor":
            self._kill_supervisor()
            return
        how, kind = name.split()
        with self._supervisor:
            found = self._product.by_kind().get("forwarding" if kind == "worker" else kind, [])
        if kind == "worker":
            found = [process for process in found if self._proxies.get(_name(process)) == WORKERS]
        if not found:
            return  # it died a moment ago and does not run again yet: another fault waits for that
        process = self._chosen(found)
        target = ""
        if kind in ("forwarding", "worker"):
            target = self._proxies.get(_name(process), "one that comes and goes")
        with self._journal.fault(name, target) as fault:
            _signal(process, signal.SIGKILL if how == "kill" else signal.SIGSTOP)
            if how == "hang":
                self._wait_dead(process)
            self._wait_whole(fault)

    def _chosen(self, found: list[psutil.Process]) -> psutil.Process:
        """One of them; mostly one that has traffic, if it is about proxies."""
        busy = [process for process in found if _name(process) in self._proxies]
        return self._dice.choice(busy if busy and self._dice.random() < 0.8 else found)

    def _kill_supervisor(self) -> None:
        """And start the product again, as a service manager would."""
        with self._journal.fault("kill supervisor") as fault, self._supervisor:
            self._product.kill()
            while not self._over.is_set():
                self._product.start(wait=False)
                if self._came_up():
                    break
                self.starts_that_failed += 1
            self._wait_whole(fault)

    def _came_up(self) -> bool:
        """False when it ended by itself."""
        assert self._product.process is not None
        deadline = time.monotonic() + MENDED_WITHIN
        while time.monotonic() < deadline and self._product.process.poll() is None:
            if self._product.everything_runs():
                return True
            time.sleep(0.1)
        return self._product.process.poll() is None

    def _wait_dead(self, process: psutil.Process) -> None:
        try:
            process.wait(MENDED_WITHIN)
        except psutil.NoSuchProcess:
            return
        except psutil.TimeoutExpired:
            self.failures.append(f"{process} hung for {MENDED_WITHIN:g} s and was not killed")
            _signal(process, signal.SIGCONT)

    def _wait_whole(self, fault: Fault) -> None:
        try:
            self._product.wait_whole(MENDED_WITHIN)
        except AssertionError:
            scarce = {"disk full", "descriptors of supervisor", "descriptors of api"}
            now = time.monotonic()
            if not scarce & set(self._journal.around(now - MENDED_WITHIN, now)):
                self.failures.append(f"after `{fault.kind}` not everything ran again within {MENDED_WITHIN:g} s")

    def _restarts(self) -> None:
        """A product that ends by itself is started again, and counts as a failure."""
        while time.monotonic() < self._began + self._plan.end and not self._over.wait(1.0):
            with self._supervisor:
                process = self._product.process
                if process is None or process.poll() is None:
                    continue
                self.failures.append(f"the supervisor ended by itself with status {process.returncode}")
                with self._journal.fault("the supervisor ended") as fault:
                    self._product.start(wait=False)
                    self._wait_whole(fault)

    # --- reloads ---

    def _reloads(self) -> None:
        number = 0
        while self._until(self._plan.begin + RELOAD_PERIOD * number):
            number += 1
            with self._supervisor:
                kind = "reload" if number % 3 else "reload of a bad file"
                with self._journal.fault(kind):
                    self._product.reload(good=number % 3 != 0)

    # --- scarcity ---

    def _scarcities(self) -> None:
        if self._until(self._plan.disk) and self._product.disk:
            with self._journal.fault("disk full"):
                self._product.fill_disk()
                self._over.wait(self._plan.scarcity)
                self._product.empty_disk()
        if self._until(self._plan.descriptors):
            for kind in ("forwarding", "api", "supervisor"):
                self._descriptorless = kind
                self._exhaust(kind, self._plan.descriptorless)
            self._descriptorless = ""

    def _exhaust(self, kind: str, seconds: float) -> None:
        with self._supervisor:
            process = self._chosen(self._product.by_kind()[kind])
        target = self._proxies.get(_name(process), "") if kind == "forwarding" else ""
        with self._journal.fault(f"descriptors of {kind}", target), _no_more_descriptors(process, SPARE.get(kind, 0)):
            self._over.wait(seconds)

    def _until(self, when: float) -> bool:
        """Wait until so many seconds after the begin; False when the time of faults is over then."""
        return when < self._plan.end and not self._over.wait(max(0.0, self._began + when - time.monotonic()))


@contextmanager
def _no_more_descriptors(process: psutil.Process, spare: int) -> Iterator[None]:
    """It may open only so many more than it has."""
    try:
        before = process.rlimit(resource.RLIMIT_NOFILE)
        process.rlimit(resource.RLIMIT_NOFILE, (process.num_fds() + spare, before[1]))
        yield
        process.rlimit(resource.RLIMIT_NOFILE, before)
    except psutil.NoSuchProcess:
        return  # it was killed meanwhile, and its successor has the limit of the zygote


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return  # it ended by itself


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""
