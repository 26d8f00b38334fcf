"""What is sent through a proxy: requests by wrk, one big download, many idle tunnels, many short ones."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers import BIG, Subject, program
from benchmarks.processes import BenchError, accepts, wait_until

_WRK_SCRIPT = """
wrk.path = "http://127.0.0.1:%(origin)d/%(path)s"
wrk.headers["Host"] = "127.0.0.1:%(origin)d"
done = function(summary, latency, requests)
  local e = summary.errors
  io.stderr:write(string.format('{"requests": %%d, "seconds": %%f, "p99": %%f, "closed": %%d, "errors": %%d}\\n',
    summary.requests, summary.duration / 1e6, latency:percentile(99) / 1e3, e.read,
    e.connect + e.write + e.status + e.timeout))
end
"""


@dataclass(frozen=True, slots=True)
class Answered:
    """What wrk saw. `p99` is in milliseconds."""

    requests: int
    seconds: float
    p99: float


def requests(folder: Path, subject: Subject, origin: int, path: str, connections: int, seconds: float) -> Answered:
    """Absolute-form GETs on keep-alive connections for so long.

    Raises `BenchError` when more than 1 % fail; a proxy that closes after each answer is told by its `keeps_alive`.
    """
    script = folder / "absolute-form.lua"
    script.write_text(_WRK_SCRIPT % {"origin": origin, "path": path})
    command = [program("wrk"), "-t1", f"-c{connections}", f"-d{seconds:g}s", "-s", str(script)]
    run = subprocess.run([*command, f"http://127.0.0.1:{subject.port}/"], capture_output=True, text=True, check=True)
    seen = json.loads(run.stderr.strip().splitlines()[-1])
    failed = seen["errors"] + (seen["closed"] if subject.keeps_alive else 0)
    if seen["requests"] == 0 or failed > seen["requests"] / 100:
        raise BenchError(f"wrk through {subject.name}: {run.stdout}")
    return Answered(seen["requests"], seen["seconds"], seen["p99"])


def tunnel(proxy: int, target: int, connect: bool = True) -> socket.socket:
    """A tunnel to `target`, ready for bytes; `connect` false when the proxy is a relay that needs no CONNECT."""
    client = socket.create_connection(("127.0.0.1", proxy), 30)
    if connect:
        client.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % (target, target))
        _head(client, b" 200 ")
    return client


def _head(client: socket.socket, expected: bytes) -> None:
    """Read exactly one head: what follows it belongs to the caller."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        piece = client.recv(1)
        if not piece:
            break
        head += piece
    if expected not in head[:16]:
        raise BenchError(f"the proxy answered {head[:200]!r}")


def download(subject: Subject, origin: int, gigabytes: int) -> float:
    """Fetch `/big` so many times through one tunnel after the other; the seconds that it took."""
    buffer = bytearray(1 << 18)
    began = time.monotonic()
    for _ in range(gigabytes):
        with tunnel(subject.port, origin, subject.speaks_connect) as client:
            client.sendall(b"GET /big HTTP/1.1\r\nHost: origin\r\nConnection: close\r\n\r\n")
            _head(client, b" 200 ")
            received = 0
            while count := client.recv_into(buffer):
                received += count
        if received != BIG:
            raise BenchError(f"{subject.name}: {received} of {BIG} bytes arrived")
    return time.monotonic() - began


class SilentOrigin:
    """Accepts connections and says nothing; lives in this process."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self._listener.settimeout(10)
        self.port: int = self._listener.getsockname()[1]

    def accept(self) -> socket.socket:
        return self._listener.accept()[0]

    def close(self) -> None:
        self._listener.close()


@contextmanager
def idle_tunnels(subject: Subject, origin: SilentOrigin, count: int) -> Iterator[None]:
    """Hold so many tunnels open in which nothing has been said."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(tunnel(subject.port, origin.port, subject.speaks_connect))
            stack.enter_context(origin.accept())
        yield


def short_tunnels(subject: Subject, origin: SilentOrigin, count: int) -> None:
    """Open and close so many tunnels, one after the other; the client closes first, the origin after it."""
    for _ in range(count):
        with tunnel(subject.port, origin.port, subject.speaks_connect), origin.accept():
            pass


def first_answer(proxy: int, origin: int, began: float, seconds: float = 10.0) -> float:
    """Seconds from `began` (monotonic) until a request through `proxy` is answered by the origin."""

    def answered() -> bool:
        try:
            with socket.create_connection(("127.0.0.1", proxy), seconds) as client:
                client.sendall(b"GET http://127.0.0.1:%d/1k HTTP/1.1\r\nHost: origin\r\n\r\n" % origin)
                return client.recv(16)[9:12] == b"200"
        except ConnectionError:
            return False

    wait_until(answered, f"port {proxy} answers a request", seconds)
    return time.monotonic() - began


def first_connection(proxy: int, began: float, seconds: float = 10.0) -> float:
    """Seconds from `began` (monotonic) until a connection to `proxy` is accepted."""
    wait_until(lambda: accepts(proxy), f"port {proxy} accepts", seconds)
    return time.monotonic() - began
