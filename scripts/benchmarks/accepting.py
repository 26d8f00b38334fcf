"""How evenly processes accept that wait at one port, and what it costs: `python -m benchmarks.accepting`.

Two processes accept, outside the product, in ways that differ: a socket that both watch (`shared`), exclusively
(`exclusive`), watched anew after so many accepts (`rotated 4`), also left to the other while it has fewer connections
(`as the product`, by its own code), or a socket for each (`reuseport`). Clients come 50 at once and stay, 50 one by one
and stay, and 2,000 one after the other. A process writes one byte into each connection: which one it is.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from actors.bus.loop import Loop
from actors.forwarding.accept_turns import AcceptTurns

PROCESSES = 2
WORK = 25e-6
"""Seconds that a process works for a connection, about as long as a small request takes."""
LOADS = ("50 at once", "50 one by one", "2000 in turn")


@dataclass(frozen=True, slots=True)
class Way:
    """How processes share a port."""

    name: str
    exclusive: bool = False
    rotate_after: int = 0
    leaves: bool = False
    own_socket: bool = False


WAYS = (
    Way("shared"),
    Way("exclusive", exclusive=True),
    Way("rotated 1", exclusive=True, rotate_after=1),
    Way("rotated 4", exclusive=True, rotate_after=4),
    Way("rotated 16", exclusive=True, rotate_after=16),
    Way("as the product", exclusive=True, rotate_after=4, leaves=True),
    Way("reuseport", own_socket=True),
)


class Acceptor:
    """One process. `counts` has the open connections of each, in memory of all."""

    def __init__(self, way: Way, number: int, listener: socket.socket, counts: memoryview) -> None:
        self._way = way
        self._number = number
        self._listener = listener
        self._counts = counts
        self._loop = Loop()
        self._turns = AcceptTurns(self._loop, 64)
        self._turns.share(way.leaves)

    def run(self) -> None:
        """Accept until the process is killed."""
        self._watch()
        self._loop.run()

    def _watch(self) -> None:
        mask = select.EPOLLIN | (select.EPOLLEXCLUSIVE if self._way.exclusive else 0)
        self._loop.watch(self._listener.fileno(), mask, self._accept)

    def _accept(self, _mask: int) -> None:
        accepted, emptied = 0, False
        for _ in range(self._turns.at_once if self._way.leaves else self._way.rotate_after or 64):
            try:
                client, _address = self._listener.accept()
            except BlockingIOError:
                emptied = True
                break
            accepted += 1
            self._serve(client)
        fd = self._listener.fileno()
        if accepted and self._way.leaves:
            everywhere = sum(self._counts), PROCESSES
            self._turns.accepted(fd, self._watch, emptied, self._counts[self._number], everywhere)
        elif accepted and self._way.rotate_after:
            self._loop.unwatch(fd)
            self._watch()

    def _serve(self, client: socket.socket) -> None:
        until = time.perf_counter() + WORK
        while time.perf_counter() < until:
            pass
        self._counts[self._number] += 1
        client.sendall(bytes((self._number,)))
        self._loop.watch(client.fileno(), select.EPOLLIN, partial(self._ended, client))

    def _ended(self, client: socket.socket, _mask: int) -> None:
        self._loop.unwatch(client.fileno())
        self._counts[self._number] -= 1
        client.close()


@contextmanager
def accepting(way: Way) -> Iterator[tuple[int, list[int]]]:
    """The processes run: their port and their pids."""
    counts = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("Q")[:PROCESSES]
    first = socket.create_server(("127.0.0.1", 0), backlog=1024, reuse_port=way.own_socket)
    port = first.getsockname()[1]
    listeners = [first] * PROCESSES
    if way.own_socket:
        again = partial(socket.create_server, ("127.0.0.1", port), backlog=1024, reuse_port=True)
        listeners = [first, *(again() for _ in range(1, PROCESSES))]
    pids = [_forked(Acceptor(way, number, listeners[number], counts).run, listeners) for number in range(PROCESSES)]
    for each in set(listeners):
        each.close()
    try:
        yield port, pids
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _forked(run: Callable[[], None], listeners: list[socket.socket]) -> int:
    pid = os.fork()
    if pid == 0:
        for each in listeners:
            each.setblocking(False)
        try:
            run()
        finally:
            os._exit(1)
    return pid


def connect(port: int) -> socket.socket:
    """A connection that is under way."""
    client = socket.socket()
    client.setblocking(False)
    client.connect_ex(("127.0.0.1", port))
    return client


def met(client: socket.socket) -> int:
    """The process that has accepted it."""
    client.settimeout(10)
    return client.recv(1)[0]


def load(port: int, kind: str) -> tuple[list[int], list[float]]:
    """Which process each connection has met, and the seconds that this took."""
    if kind == LOADS[0]:
        began = time.perf_counter()
        held = [connect(port) for _ in range(50)]
        found = [(met(each), time.perf_counter() - began) for each in held]
    else:
        held, found = [], []
        for _ in range(50 if kind == LOADS[1] else 2000):
            began = time.perf_counter()
            client = connect(port)
            found.append((met(client), time.perf_counter() - began))
            if kind == LOADS[1]:
                held.append(client)
            else:
                client.close()
    for each in held:
        each.close()
    return [number for number, _seconds in found], [seconds for _number, seconds in found]


def cpu(pids: list[int]) -> float:
    """Seconds of CPU that these processes have used, in ticks of 10 ms."""
    ticks = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b") ")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(way: Way, rounds: int) -> list[str]:
    """The cells of one row: by load the share of the busier process in each round, then p99 and CPU of the last."""
    cells = [way.name]
    with accepting(way) as (port, pids):
        time.sleep(0.2)
        for kind in LOADS:
            shares, times, before, connections = [], [], cpu(pids), 0
            for _ in range(rounds if kind != LOADS[2] else 1):
                numbers, seconds = load(port, kind)
                shares.append(max(numbers.count(each) for each in range(PROCESSES)) / len(numbers))
                times += seconds
                connections += len(numbers)
                time.sleep(0.1)
            used = 1e6 * (cpu(pids) - before) / connections
            p99 = 1e3 * statistics.quantiles(times, n=100)[-1]
            cells.append(f"{100 * statistics.median(shares):.0f} % (worst {100 * max(shares):.0f}), {p99:.1f} ms")
        cells.append(f"{used:.0f} µs")
    return cells


def main() -> None:
    """Print a table in Markdown; the argument is the number of rounds."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    print("| way |", " | ".join(LOADS), "| CPU of a connection |\n|---|---|---|---|---:|")
    for way in WAYS:
        print("|", " | ".join(measure(way, rounds)), "|", flush=True)


if __name__ == "__main__":
    main()
