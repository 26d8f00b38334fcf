"""Carries the faults out: kills each twenty seconds, reloads, and once each a full disk and no descriptors left."""

from __future__ import annotations

import os
import random
import resource
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psutil

from actors.supervision.fd_limit import FOR_LISTENERS
from soaking.faults import WORKERS, Fault, Journal
from soaking.installation import ACTORS, Installation

KILL_PERIOD, RELOAD_PERIOD = 20.0, 31.0
MENDED_WITHIN = 60.0
"""Seconds after which everything has to run again: the longest back-off is half of it."""
SPARE = {"supervisor": FOR_LISTENERS // 2}
"""Descriptors that are left to a process that runs out of them. The supervisor stops growing before it has none: with
none at all libzmq ends it, since its listener for `ipc://` takes that for impossible."""
HANGING = ("api", "logs", "metrics", "webhooks", "resolver", "pools", "worker")
SCARCE = {"disk full", "descriptors of supervisor", "descriptors of api"}


@dataclass(frozen=True, slots=True)
class Plan:
    """Seconds from the begin of a run that takes `total`."""

    total: float

    def at(self, share: float) -> float:
        """After this share of the time from `begin` to `end`, in which things are disturbed."""
        return self.begin + (self.end - self.begin) * share

    @property
    def begin(self) -> float:
        """Until then nothing is disturbed, for the first sample."""
        return max(25.0, self.total * 0.08)

    @property
    def end(self) -> float:
        """From then on nothing is disturbed, so that everything can settle."""
        return self.total - max(50.0, self.total * 0.08)

    def scarce_for(self, share: float) -> float:
        """How long something is scarce: this share of the time, and at most a minute."""
        return min(60.0, (self.end - self.begin) * share)


class Disturber:
    """In threads of its own, from `start` to `stop`. `proxies` are names by the names of the forwarding processes."""

    def __init__(self, product: Installation, journal: Journal, proxies: dict[str, str], plan: Plan, seed: int) -> None:
        self.failures: list[str] = []
        self.starts_that_failed: list[str] = []
        self._product, self._journal, self._proxies, self._plan = product, journal, proxies, plan
        self._dice = random.Random(seed)
        self._over = threading.Event()
        self._supervisor = threading.Lock()
        self._descriptorless = ""
        works = (self._kills, self._reloads, self._scarcities)
        self._threads = [threading.Thread(target=each, name=each.__name__) for each in works]
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

    def _until(self, when: float) -> bool:
        """Wait until so many seconds after the begin; False when the time of faults is over then."""
        return when < self._plan.end and not self._over.wait(max(0.0, self._began + when - time.monotonic()))

    # --- kills ---

    def _kills(self) -> None:
        mending: list[threading.Thread] = []
        order = self._order()
        while self._until(self._plan.begin + KILL_PERIOD * len(mending)):
            # a kind without descriptors lives on: its successor would have some again
            name = next(name for name in order if not (self._descriptorless and name.endswith(self._descriptorless)))
            mending.append(threading.Thread(target=self._disturb, args=name.split()))
            mending[-1].start()
        for thread in mending:
            thread.join()

    def _order(self) -> Iterator[str]:
        """Every kind in each round, in an order of its own; the supervisor in every second round."""
        for number in range(10_000):
            kinds = [*(f"kill {each}" for each in ACTORS), *["kill forwarding"] * 3, "hang forwarding", "kill worker"]
            kinds.append(f"hang {self._dice.choice(HANGING)}")
            self._dice.shuffle(kinds)
            if number % 2 == 0:
                kinds.insert(len(kinds) // 2, "kill supervisor")
            yield from kinds

    def _disturb(self, how: str, kind: str) -> None:
        if kind == "supervisor":
            self._kill_supervisor()
            return
        with self._supervisor:
            found = self._product.by_kind().get("forwarding" if kind == "worker" else kind, [])
        if kind == "worker":
            found = [process for process in found if self._target(process) == WORKERS]
        if not found:
            return  # it died a moment ago and does not run again yet: another fault waits for that
        process = self._chosen(found)
        target = self._target(process) or "one that comes and goes" if kind in ("forwarding", "worker") else ""
        with self._journal.fault(f"{how} {kind}", target) as fault:
            with suppress(ProcessLookupError):  # it ended by itself
                os.kill(process.pid, signal.SIGKILL if how == "kill" else signal.SIGSTOP)
            try:
                process.wait(MENDED_WITHIN)
            except psutil.TimeoutExpired:
                self.failures.append(f"{process} hung for {MENDED_WITHIN:g} s and was not killed")
                process.resume()
            self._wait_whole(fault)

    def _target(self, process: psutil.Process) -> str:
        """The name of its proxy; empty for one that comes and goes."""
        with suppress(psutil.NoSuchProcess):
            return self._proxies.get(process.name(), "")
        return ""

    def _chosen(self, found: list[psutil.Process]) -> psutil.Process:
        """One of them; mostly one that has traffic, if it is about proxies."""
        busy = [process for process in found if self._target(process)]
        return self._dice.choice(busy if busy and self._dice.random() < 0.8 else found)

    def _kill_supervisor(self) -> None:
        """And start the product again, as a service manager would."""
        with self._journal.fault("kill supervisor") as fault, self._supervisor:
            self._product.kill()
            self._product.start(wait=False)
            self._wait_whole(fault)
            if self._product.process is None or self._product.process.poll() is not None:
                self.starts_that_failed.append("a start failed")

    def _wait_whole(self, fault: Fault) -> None:
        try:
            self._product.wait_whole(MENDED_WITHIN)
        except AssertionError:
            now = time.monotonic()
            if not SCARCE & set(self._journal.around(now - MENDED_WITHIN, now)):
                self.failures.append(f"after `{fault.kind}` not everything ran again within {MENDED_WITHIN:g} s")

    # --- reloads and scarcity ---

    def _reloads(self) -> None:
        number = 0
        while self._until(self._plan.begin + RELOAD_PERIOD * number):
            number += 1
            good = number % 3 != 0
            with self._supervisor, self._journal.fault("reload" if good else "reload of a bad file"):
                self._product.reload(good)

    def _scarcities(self) -> None:
        if self._until(self._plan.at(0.3)) and self._product.disk:
            with self._journal.fault("disk full"):
                self._product.fill_disk()
                self._over.wait(self._plan.scarce_for(0.22))
                self._product.empty_disk()
        if not self._until(self._plan.at(0.65)):
            return
        for kind in ("forwarding", "api", "supervisor"):
            self._descriptorless = kind
            with self._supervisor:
                process = self._chosen(self._product.by_kind()[kind])
            fault = self._journal.fault(f"descriptors of {kind}", self._target(process))
            with fault, _no_more_descriptors(process, SPARE.get(kind, 0)):
                self._over.wait(self._plan.scarce_for(0.1))
        self._descriptorless = ""


@contextmanager
def _no_more_descriptors(process: psutil.Process, spare: int) -> Iterator[None]:
    """It may open only so many more than it has."""
    with suppress(psutil.NoSuchProcess):  # it was killed meanwhile, and its successor has the limit of the zygote
        before = process.rlimit(resource.RLIMIT_NOFILE)
        process.rlimit(resource.RLIMIT_NOFILE, (process.num_fds() + spare, before[1]))
        yield
        process.rlimit(resource.RLIMIT_NOFILE, before)
