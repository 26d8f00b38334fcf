"""Measures of handshakes with a proxy that speaks TLS to its clients: full ones, and those that resume a session.

Full ones are openssl's (`s_time`); resumed ones are Python's, since `s_time` resumes no session of TLS 1.3: it reads
nothing behind the handshake, where tickets come.
"""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
import time
from collections.abc import Callable

from benchmarks import entrants
from benchmarks.peers import Subject, program
from benchmarks.processes import BenchError
from benchmarks.report import Bar, Comparison, Figure, Row
from benchmarks.rounds import Bench, Results, spent
from benchmarks.tunnels import trusting

BARS = {"haproxy-tls": Bar(factor=0.8, at_least=True)}


def handshakes(bench: Bench) -> list[Row]:
    """How many handshakes of TLS 1.3 there are each second, with a certificate of ECDSA, one client after the other.

    What the client does is in this rate; the CPU beside it is the proxy's alone.
    """
    return [
        *_rows("TLS to the proxy, full handshakes", _results(bench, _full)),
        *_rows("TLS to the proxy, resumed", _results(bench, _resumed)),
    ]


def _rows(measure: str, results: Results) -> list[Row]:
    cpu = Comparison(f"{measure}, CPU", "cpu", "us/handshake")
    return [*Comparison(measure, "rate", "handshakes/s", BARS).rows(results), *cpu.rows(results, only=BARS)]


def _results(bench: Bench, connect: Callable[[Subject, int], int]) -> Results:
    def one(subject: Subject) -> Figure:
        seconds, count, took = max(1, round(bench.effort.seconds)), 0, 0.0

        def act() -> float:
            nonlocal count, took
            began = (
                time.monotonic()
            )  # s_time counts whole seconds of the clock: it takes up to one more than it is given
            count = connect(subject, seconds)
            took = time.monotonic() - began
            return count / 1e6

        return spent(subject, act) | {"rate": count / took}

    return bench.in_turn(entrants.tls_http(bench), one)


def _full(subject: Subject, seconds: int) -> int:
    command = [program("openssl"), "s_time", "-new", "-tls1_3", "-time", str(seconds)]
    done = subprocess.run([*command, "-connect", f"127.0.0.1:{subject.port}"], capture_output=True, text=True)
    found = re.search(r"^(\d+) connections in \d+ real seconds", done.stdout, re.MULTILINE)
    if found is None or not int(found[1]):
        raise BenchError(f"s_time at {subject.name}: {done.stdout[-500:]}{done.stderr[-500:]}")
    return int(found[1])


def _resumed(subject: Subject, seconds: int) -> int:
    context = trusting()
    session = _session(subject, context)
    count, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        with _connected(subject, context, session) as client:
            if not client.session_reused:
                raise BenchError(f"{subject.name} resumes no session")
            count += 1
    return count


def _session(subject: Subject, context: ssl.SSLContext) -> ssl.SSLSession:
    """That of a connection with one request, whose response comes behind the ticket."""
    with _connected(subject, context, None) as client:
        client.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        client.recv(65536)
        session = client.session
    if session is None:
        raise BenchError(f"{subject.name} gives no session")
    return session


def _connected(subject: Subject, context: ssl.SSLContext, session: ssl.SSLSession | None) -> ssl.SSLSocket:
    return context.wrap_socket(socket.create_connection(("127.0.0.1", subject.port), 30), session=session)
