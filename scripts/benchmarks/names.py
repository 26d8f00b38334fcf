"""`scripts/bench dns`: names from the caches, and many names at once against slow and dead name servers.

A resolver runs as a process of its own, and this one is the forwarding actor that asks it. The name servers are on
loopback, too (`benchmarks.name_server`), so all of them share the processors.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

import msgpack

from actors.bus.loop import Loop
from actors.forwarding.net.dns_settings import DnsSettings
from actors.forwarding.net.resolver import Resolution, Resolved, Resolver, new_threads
from actors.forwarding.net.resolver_link import Profile, ResolverLink
from actors.process import Boot
from benchmarks.processes import BenchError, cpu_seconds
from benchmarks.report import Bar, Beside, Row
from config.files.paths import RunDir, open_run_dir
from config.settings.settings import Settings, plain

DELAY = 0.1
WINDOW = 200
KNOWN = 1_000
REPEATED = 100_000
PATIENCE = 30.0
UNDER_WAY = 20
_RESOLVER = """
import sys, msgpack
from actors.process import Boot, main
main("actors.resolver.actor:ResolverActor", Boot(**msgpack.unpackb(sys.stdin.buffer.read())), [], int(sys.argv[1]))
"""


class Front:
    """A forwarding actor's side: names by the resolver, and by the system as `look_up` has it."""

    def __init__(self, folder: Path, look_up: Callable[[str], Resolution]) -> None:
        self.loop = Loop()
        self._link = ResolverLink(self.loop, RunDir(folder))
        self.resolver = Resolver(self.loop, new_threads(self.loop), look_up, link=self._link)

    def use(self, *servers: str) -> None:
        """Ask these from now on."""
        self.resolver.configure(DnsSettings(Profile(servers)))

    def resolve(self, names: Iterable[str], window: int) -> float:
        """Seconds for all, with so many at a time. Raises `BenchError` when one fails."""
        waiting, under_way, failed = iter(names), 0, 0
        left = True

        def done(result: Resolution) -> None:
            nonlocal under_way, failed
            under_way -= 1
            failed += not isinstance(result, Resolved)

        began = time.perf_counter()
        while left or under_way:
            while left and under_way < window:
                name = next(waiting, None)
                left = name is not None
                if name is not None:
                    under_way += 1
                    self.resolver.resolve(name, done)
            if under_way:
                self.loop.turn(PATIENCE)
            if time.perf_counter() - began > PATIENCE:
                raise BenchError("names take too long")
        if failed:
            raise BenchError(f"{failed} names have failed")
        return time.perf_counter() - began


def measure(folder: Path, names: int) -> list[Row]:
    """The rows."""
    with ExitStack() as stack:
        quick = stack.enter_context(name_server(0.0))
        late = [stack.enter_context(name_server(DELAY)) for _ in range(3)]
        resolver = stack.enter_context(_resolver(folder))
        dead = stack.enter_context(_silent())
        front = Front(folder, _refuse)
        rows = _from_caches(front, quick, names, resolver)
        texts = [f"n{number}.example.com" for number in range(1_000)]
        for what, servers, most in (
            ("1,000 names at once, the server responds after 0.1 s", late[:1], 1.0),
            ("the same, and the first of three servers is dead", [dead, *late[1:]], 3.0),
        ):
            front.use(*servers)
            before = cpu_seconds([resolver])
            seconds = front.resolve(texts, len(texts))
            used = Beside("s CPU of the resolver", cpu_seconds([resolver]) - before)
            rows.append(Row(what, "s", seconds, bar=Bar(most), beside=used))
        return [*rows, _killed(folder, dead, resolver)]


def _killed(folder: Path, silent: str, resolver: int) -> Row:
    """From the end of the resolver to the address by the system, of names that it was asked for."""
    front, done = Front(folder, lambda _name: Resolved(("192.0.2.1",))), []
    front.use(silent)
    for number in range(UNDER_WAY):
        front.resolver.resolve(f"late{number}.example.com", done.append)
    front.loop.turn(0.1)
    os.kill(resolver, signal.SIGKILL)
    began = time.perf_counter()
    while len(done) < UNDER_WAY:
        front.loop.turn(PATIENCE)
    seconds = time.perf_counter() - began
    return Row(f"{UNDER_WAY} names under way when the resolver is killed", "ms", seconds * 1e3, bar=Bar(100.0))


def _from_caches(front: Front, server: str, names: int, resolver: int) -> list[Row]:
    texts = [f"known{number}.example.com" for number in range(KNOWN)]
    front.use(server)
    front.resolve(texts, WINDOW)
    own = _microseconds(lambda: front.resolver.resolve(texts[0], _ignore))
    front.resolver.kept = 0.0
    front.resolver.forget()
    before = cpu_seconds([resolver])
    seconds = front.resolve((texts[number % KNOWN] for number in range(names)), WINDOW)
    each = (cpu_seconds([resolver]) - before) / names * 1e6
    front.resolver.kept = 30.0
    return [
        Row("a name that the actor has cached", "us", own, bar=Bar(5.0)),
        Row(
            "names from the resolver's cache",
            "1/s",
            names / seconds,
            bar=Bar(10_000, at_least=True),
            beside=Beside("us CPU of the resolver each", each),
        ),
    ]


def _microseconds(call: Callable[[], None]) -> float:
    """Of one call, the best of five rounds."""
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(REPEATED // 5):
            call()
        best = min(best, time.perf_counter() - began)
    return best / (REPEATED // 5) * 1e6


def _ignore(_result: Resolution) -> None:
    return


def _refuse(name: str) -> Resolution:
    raise BenchError(f"{name} was not resolved by the resolver")


@contextmanager
def name_server(delay: float, *address: str) -> Iterator[str]:
    """A name server by its address and port; `address` is what every name has."""
    port = _free_port()
    command = [sys.executable, "-m", "benchmarks.name_server", str(port), str(delay), *address]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        try:
            _await_line(process)
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()


def _await_line(process: subprocess.Popen[bytes]) -> None:
    if process.stdout is None or process.stdout.readline() != b"ready\n":
        raise BenchError("the name server did not start")


@contextmanager
def _silent() -> Iterator[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{sock.getsockname()[1]}"


@contextmanager
def _resolver(folder: Path) -> Iterator[int]:
    run = open_run_dir(folder)
    boot = Boot("resolver", 1, str(folder), str(folder), plain(Settings()))
    reading, writing = os.pipe()
    command: Sequence[str] = [sys.executable, "-c", _RESOLVER, str(reading)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(reading,), env=environment) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(msgpack.packb(asdict(boot)))
            process.stdin.close()
            _await_socket(run.resolver)
            yield process.pid
        finally:
            process.kill()
            os.close(reading)
            os.close(writing)


def _await_socket(path: Path) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            if probe.connect_ex(str(path)) == 0:
                return
        time.sleep(0.02)
    raise BenchError("the resolver did not start")


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
