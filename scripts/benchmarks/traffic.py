"""Measures of what is forwarded: requests by wrk, bulk, handshakes of TLS, and tunnels in which little is said."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Any

from benchmarks import tunnels
from benchmarks.ours import OurProxy, Product
from benchmarks.processes import BenchError, cpu_seconds, uss
from benchmarks.programs import program
from benchmarks.rounds import Bench, Done, Entrants, Figure, Results, Subject, spent

Load = Callable[[Bench, Any], Done]


def wrk(bench: Bench, port: int, paths: Sequence[str], connections: int, fields: str, **more: str) -> Figure:
    """GETs as fast as they are answered, for as long as a round takes; what wrk saw. Raises `BenchError`."""
    load = WrkLoad(bench, "127.0.0.1", port, paths, connections, fields, max(1, round(bench.effort.seconds)), **more)
    return load.seen()


class WrkLoad:
    """wrk, from now on for so many seconds, which are a whole number."""

    def __init__(
        self, bench: Bench, host: str, port: int, paths: Sequence[str], connections: int, fields: str, seconds: int,
        **more: str,
    ) -> None:  # fmt: skip
        listed = bench.own("wrk") / "paths"
        listed.write_text("".join(f"{path}\n" for path in paths))
        script = Path(__file__).with_name("wrk.lua")
        command = [program("wrk"), "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s", "-s", str(script)]
        environment = {**os.environ, "BENCH_PATHS": str(listed), "BENCH_FIELDS": fields, **more}
        self._process = subprocess.Popen(
            [*command, f"http://{host}:{port}"], stdout=PIPE, stderr=PIPE, text=True, env=environment
        )

    def seen(self, now: bool = False) -> Figure:
        """What wrk saw, when it has ended, which it is to do `now`. Raises `BenchError`."""
        if now:
            self._process.send_signal(signal.SIGINT)
        printed, errors = self._process.communicate()
        if self._process.returncode != 0:
            raise BenchError(f"wrk: {printed}{errors}")
        seen: Figure = json.loads(errors.strip().splitlines()[-1])
        if not seen["requests"]:
            raise BenchError(f"wrk: {printed}")
        return seen


def requests(path: str, connections: int, fields: str, bench: Bench, subject: Subject, **more: str) -> Done:
    """Absolute-form GETs through a proxy. Raises `BenchError` when more than 1 % fail."""
    here = f"127.0.0.1:{bench.target}"
    seen = wrk(bench, subject.port, [f"http://{here}/{path}"], connections, f"Host={here};{fields}", **more)
    failed = seen["errors"] + (0 if fields == CLOSE else seen["closed"])
    if failed > seen["requests"] / 100:
        raise BenchError(f"of {seen['requests']} requests {failed} failed")
    return Done(seen["requests"], seen["seconds"], {"p99": seen["p99"], "failed": failed})


CLOSE = "Connection=close;"
KEEP_ALIVE: Load = partial(requests, "1k", 50, "")
FRESH: Load = partial(requests, "1k", 50, CLOSE)
NEW: Load = partial(requests, "1k", 50, "", BENCH_NEW_HEADS="1")
LARGE: Load = partial(requests, "100k", 20, "")


def bulk(bench: Bench, subject: Subject) -> Done:
    """GB by one tunnel after the other."""
    size = int(bench.effort.gigabytes * 1e9)
    return Done(size / 1e9, tunnels.download(subject, bench.target, size))


def handshakes(bench: Bench, subject: Subject) -> Done:
    """Full ones of TLS 1.3 by openssl, one client after the other."""
    began = time.monotonic()  # s_time counts whole seconds of the clock: it takes up to one more than it is given
    command = [program("openssl"), "s_time", "-new", "-tls1_3", "-time", str(max(1, round(bench.effort.seconds)))]
    done = subprocess.run([*command, "-connect", f"127.0.0.1:{subject.port}"], capture_output=True, text=True)
    found = re.search(r"^(\d+) connections in \d+ real seconds", done.stdout, re.MULTILINE)
    if found is None or not int(found[1]):
        raise BenchError(f"s_time: {done.stdout[-500:]}{done.stderr[-500:]}")
    return Done(int(found[1]), time.monotonic() - began)


def resumed(bench: Bench, subject: Subject) -> Done:
    """Handshakes that resume a session, which openssl's `s_time` doesn't do with TLS 1.3."""
    context, count, began = tunnels.trusting(), 0, time.monotonic()
    session: ssl.SSLSession | None = None

    def connected() -> ssl.SSLSocket:
        return context.wrap_socket(socket.create_connection(("127.0.0.1", subject.port), 30), session=session)

    with connected() as client:  # tickets come behind the handshake, before the response
        client.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        client.recv(65536)
        session = client.session
    while time.monotonic() < began + bench.effort.seconds:
        with connected() as client:
            if not client.session_reused:
                raise BenchError("no session is resumed")
            count += 1
    return Done(count, time.monotonic() - began)


def set_up(bench: Bench, subject: Subject) -> Done:
    """Tunnels that are opened and closed, one after the other."""
    with tunnels.silent_origin() as origin:
        return Done(tunnels.short(subject, origin, bench.effort.seconds), bench.effort.seconds)


def _spent(load: Load, bench: Bench, parts: float, subject: Subject) -> Figure:
    return spent(subject, partial(load, bench, subject), parts)


def by(load: Load, protocol: str, *peers: str, parts: float = 1e6) -> Callable[[Bench], Results]:
    """The measure of this load through ours and these peers in turn."""

    def measure(bench: Bench) -> Results:
        return bench.in_turn(bench.entrants(protocol, *peers), partial(_spent, load, bench, parts))

    return measure


# --- idle tunnels ---


def idle(protocol: str, peer: str) -> Callable[[Bench], Results]:
    """What a tunnel in which nothing is said costs in memory; each round with processes that are new."""

    def measure(bench: Bench) -> Results:
        with tunnels.silent_origin() as origin:

            def run(subject: Subject) -> Figure:
                with tunnels.idle(subject, origin, 50):
                    before = uss(subject.forwarding())
                    with tunnels.idle(subject, origin, bench.effort.idle):
                        return {"memory": (uss(subject.forwarding()) - before) / bench.effort.idle * 1024}

            return bench.in_turn(bench.entrants(protocol, peer), run, anew=True)

    return measure


def crowd(bench: Bench) -> Results:
    """1 KiB GETs on ten connections, as fast as they go, through an actor that holds ten thousand idle tunnels.

    A tunnel takes two descriptors of the actor and two of the benchmark: where the limit is lower there are fewer.
    """
    count = min(bench.effort.crowd, (bench.descriptors - 300) // 2)
    ten: Load = partial(requests, "1k", 10, "")

    def measured(product: Product) -> Figure:
        proxy = OurProxy(product, bench.folder)
        with ExitStack() as stack:
            stack.callback(proxy.end)

            def p99() -> float:
                return statistics.median(ten(bench, proxy).more["p99"] for _ in range(bench.effort.rounds))

            with tunnels.silent_origin() as origin:
                before = uss(proxy.forwarding())
                with tunnels.idle(proxy, origin, count):
                    memory = (uss(proxy.forwarding()) - before) / count * 1024
                    among = p99()
            return {"p99": among, "memory": memory, "alone": p99()}

    return bench.each(measured)


# --- two workers beside one ---

WORKERS, CLIENTS, IDLE = 2, 4, 64
CORES = 6
"""Of a machine on which the rate of two is judged: with fewer, they share them with clients and origin."""


def _side_by_side(load: Load, bench: Bench, subject: Subject) -> Done:
    """The same by some clients at once."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        done = list(pool.map(lambda _: load(bench, subject), range(CLIENTS)))
    return Done(sum(each.units for each in done), max(each.seconds for each in done))


_KINDS: dict[str, tuple[Load, str, dict[str, Any]]] = {
    "kept": (KEEP_ALIVE, "http", {}),
    "fresh": (FRESH, "http", {}),
    "bulk": (partial(_side_by_side, bulk), "http", {}),
    # with RSA of this size the proxy does nearly all of the work, so there is room for a second worker
    "handshakes": (partial(_side_by_side, handshakes), "https", {"key": ["rsa:4096"]}),
}


def workers(bench: Bench) -> Results:
    """Two workers by one in turns, and what many idle ones cost."""
    product = bench.products[0]
    figure: Figure = {}
    for kind, (load, protocol, more) in _KINDS.items():
        entrants: Entrants = {
            str(count): partial(OurProxy, product, bench.folder, protocol, count, **more) for count in (WORKERS, 1)
        }
        alone = Bench(bench.folder, bench.effort, bench.descriptors, bench.origin)
        seen = alone.in_turn(entrants, partial(_spent, load, bench, 1e6))
        if len(seen) < len(entrants):
            raise BenchError(f"{kind}: not measured")
        figure |= compared(kind, seen[str(WORKERS)], seen["1"], len(os.sched_getaffinity(0)))
    proxy = OurProxy(product, bench.folder, workers=IDLE)
    try:
        figure["idle"] = share_of_a_core(product, bench.effort.quiet)
    finally:
        proxy.end()
    return {product.name: figure}


def compared(kind: str, two: Figure, one: Figure, cores: int) -> Figure:
    """The rate is judged where the machine has cores for it."""
    rate = two["rate"] / one["rate"]
    judged = {f"{kind} judged": rate} if cores >= CORES else {}
    return {f"{kind} cpu": two["cpu"] / one["cpu"], f"{kind} rate": rate, **judged}


def share_of_a_core(product: Product, seconds: float) -> float:
    """CPU of all processes of the product in so many seconds, in percent of one core's."""
    time.sleep(5)  # what was done before is over then
    began, before = time.monotonic(), cpu_seconds(product.everything())
    time.sleep(seconds)
    return (cpu_seconds(product.everything()) - before) / (time.monotonic() - began) * 100
