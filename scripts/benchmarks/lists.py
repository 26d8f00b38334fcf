"""Lists of destinations: what a list of many domains costs the machine, a look-up and its replacement while in use.

Each process maps the list as a forwarding actor does. Memory is the proportional share (PSS) that it adds to all of
them together, so pages that they share count once. The pause is the longest turn of a loop that looks names up all the
time while another content takes the place of the list: CPU of its thread, the median of several replacements.
"""

from __future__ import annotations

import multiprocessing
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from actors.bus.loop import Loop
from actors.bus.messages.fleet_objects import ListRef
from actors.forwarding.access.named_lists import NamedListFiles
from actors.lists.compiled import CompiledList
from actors.lists.compiler import ListCompiler
from actors.lists.files import file_name
from actors.lists.formats.reading import read_list
from actors.problems import Problems
from benchmarks.processes import BenchError
from benchmarks.report import Bar, Row
from config.net.entries import ListHost

PROCESSES = 8
LOOKUPS = 100_000
ROUNDS = 5
WAIT = 60.0
MEMORY_MOST, LOOKUP_MOST, PAUSE_MOST = 80.0, 5.0, 20.0
"""Megabytes, microseconds and milliseconds."""
LIST = "list_00"

_SPAWN = multiprocessing.get_context("spawn")


def measure(domains: int) -> list[Row]:
    """The rows."""
    with tempfile.TemporaryDirectory(prefix="proxyfleet-bench-") as name:
        folder = Path(name)
        files = [file_name(LIST, f"{number:024x}") for number in range(2)]
        seconds, peak = _in_process(_compile, folder / files[0], domains, 0)
        _in_process(_compile, folder / files[1], domains, 1)
        missed, found = _in_process(_searches, folder / files[0], domains)
        size = (folder / files[0]).stat().st_size / 1e6
        what = f"{domains:,} domains"
        return [
            Row(f"{what}: file", "MB", size),
            Row(
                f"{what}: memory of {PROCESSES} processes together",
                "MB",
                _memory(folder, files[0]),
                bar=Bar(MEMORY_MOST),
            ),
            Row(f"{what}: look-up of a name of 4 labels that is not in it", "us", missed, bar=Bar(LOOKUP_MOST)),
            Row(f"{what}: look-up of one that is", "us", found, bar=Bar(LOOKUP_MOST)),
            Row(
                f"{what}: longest pause while it is replaced",
                "ms",
                _in_process(_pause, folder, files),
                bar=Bar(PAUSE_MOST),
            ),
            Row(f"{what}: reading and compiling", "s", seconds),
            Row(f"{what}: memory of the process that compiles, at most", "MB", peak),
        ]


def domain(number: int) -> str:
    """A domain of the list, of three labels."""
    return f"host-{number * 2654435761 % 2**32:08x}.example{number % 5000}.com"


def _in_process(work: Callable[..., Any], *arguments: Any) -> Any:
    """The result of `work` in a process of its own."""
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_send, args=(theirs, work, arguments))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        raise BenchError(f"{work.__name__} failed") from None
    finally:
        process.join()


def _send(connection: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    connection.send(work(*arguments))


def _compile(path: Path, domains: int, first: int) -> tuple[float, float]:
    """Seconds, and megabytes of the process at most."""
    began = time.process_time()
    text = (f"{domain(number)}\n".encode() for number in range(first, first + domains))
    compiler = ListCompiler()
    read_list(text, "domains", "plain", compiler)
    compiler.compile().write(path)
    return time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def _searches(path: Path, domains: int) -> tuple[float, float]:
    """Microseconds of a look-up that finds nothing, and of one that finds its name."""
    content = CompiledList(path)
    chance = random.Random(1)
    missed = [f"www.cdn-{chance.getrandbits(32):08x}.example{chance.randrange(10_000)}.net" for _ in range(LOOKUPS)]
    found = [f"www.{domain(chance.randrange(domains))}" for _ in range(LOOKUPS)]
    if any(map(content.by_name, missed)) or not all(map(content.by_name, found)):
        raise BenchError("the list does not match what it has")
    return _best(content, missed), _best(content, found)


def _best(content: CompiledList, names: list[str]) -> float:
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for name in names:
            content.by_name(name)
        times.append((time.process_time() - began) / len(names) * 1e6)
    return min(times)


# --- memory ---


def _memory(folder: Path, file: str) -> float:
    """Megabytes that the list adds to processes that have all of it mapped."""
    barrier = _SPAWN.Barrier(PROCESSES)
    pipes = [_SPAWN.Pipe() for _ in range(PROCESSES)]
    processes = [_SPAWN.Process(target=_use, args=(theirs, barrier, folder / file)) for _, theirs in pipes]
    for process in processes:
        process.start()
    added = [ours.recv() for ours, _ in pipes]
    for process in processes:
        process.join()
    return sum(added) / 1e3


def _use(connection: Connection, barrier: Barrier, path: Path) -> None:
    before = _proportional()
    content = CompiledList(path)
    content.verify()
    content.by_name("www.a.example.com")
    barrier.wait(WAIT)
    connection.send(_proportional() - before)
    barrier.wait(WAIT)


def _proportional() -> int:
    """Kilobytes (PSS, proc(5))."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    raise BenchError("no Pss in /proc/self/smaps_rollup")


# --- replacement ---


def _pause(folder: Path, files: list[str]) -> float:
    """Milliseconds of the longest turn while the list is replaced: the median of `ROUNDS` times."""
    loop = Loop()
    lists = NamedListFiles(loop, Problems(loop, time.time), folder)
    changes = 0

    def changed() -> None:
        nonlocal changes
        changes += 1

    lists.on_changed = changed
    host = ListHost("bench")
    lists.configure([_ref(files[0])])
    _match(lists, host)
    pauses = []
    for number in range(ROUNDS):
        lists.configure([_ref(files[1 - number % 2])])
        until, longest = time.monotonic() + WAIT, 0.0
        while changes == number and time.monotonic() < until:
            began = time.thread_time()
            loop.turn(0.0)
            _match(lists, host)
            longest = max(longest, time.thread_time() - began)
        pauses.append(longest)
    if changes != ROUNDS:
        raise BenchError("the list was not replaced")
    return statistics.median(pauses) * 1e3


def _ref(file: str) -> ListRef:
    return ListRef(LIST, "bench", 1, "domains", file)


def _match(lists: NamedListFiles, host: ListHost) -> None:
    found = lists.find(host)
    if found is None:
        raise BenchError("the list can't be read")
    found.by_name("www.a.example.com")
