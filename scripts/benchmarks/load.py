"""Requests through a proxy, sent by wrk as fast as the proxy responds."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers import Subject, program
from benchmarks.processes import BenchError, accepts, wait_until

_WRK_SCRIPT = """
wrk.path = "http://127.0.0.1:%(origin)d/%(path)s"
wrk.headers["Host"] = "127.0.0.1:%(origin)d"
%(close)s
%(heads)s
done = function(summary, latency, requests)
  local e = summary.errors
  io.stderr:write(string.format('{"requests": %%d, "seconds": %%f, "p99": %%f, "closed": %%d, "errors": %%d}\\n',
    summary.requests, summary.duration / 1e6, latency:percentile(99) / 1e3, e.read,
    e.connect + e.write + e.status + e.timeout))
end
"""

_NEW_HEADS = """
local number = os.time() % 100000 * 1000000
request = function()
  number = number + 1
  wrk.headers["X-Request-Id"] = string.format("%.0f", number)
  return wrk.format()
end
"""


@dataclass(frozen=True, slots=True)
class Requests:
    """Absolute-form GETs of `/<path>`; with `close` each has a client connection of its own, which the proxy closes.

    With `new_heads` each has a header field with another number.
    """

    path: str
    connections: int
    close: bool = False
    new_heads: bool = False


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What wrk saw. `p99` is in milliseconds."""

    requests: int
    seconds: float
    p99: float


def run(folder: Path, subject: Subject, origin: int, load: Requests, seconds: float) -> LoadResult:
    """Send for so long. Raises `BenchError` when more than 1 % fail.

    A proxy that closes after each response without being asked has `keeps_alive` False.
    """
    script = folder / "absolute-form.lua"
    close = 'wrk.headers["Connection"] = "close"' if load.close else ""
    heads = _NEW_HEADS if load.new_heads else ""
    script.write_text(_WRK_SCRIPT % {"origin": origin, "path": load.path, "close": close, "heads": heads})
    command = [program("wrk"), "-t1", f"-c{load.connections}", f"-d{_whole(seconds)}s", "-s", str(script)]
    done = subprocess.run([*command, f"http://127.0.0.1:{subject.port}/"], capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchError(f"wrk through {subject.name}: {done.stdout}{done.stderr}")
    seen = json.loads(done.stderr.strip().splitlines()[-1])
    expects_close = load.close or not subject.keeps_alive
    failed = seen["errors"] + (0 if expects_close else seen["closed"])
    if seen["requests"] == 0 or failed > seen["requests"] / 100:
        raise BenchError(f"wrk through {subject.name}: {done.stdout}")
    return LoadResult(seen["requests"], seen["seconds"], seen["p99"])


def _whole(seconds: float) -> int:
    """wrk knows no fractions."""
    return max(1, round(seconds))


def first_response(proxy: int, origin: int, began: float, seconds: float = 10.0) -> float:
    """Seconds from `began` (monotonic) until a request through `proxy` gets the origin's response."""

    def responded() -> bool:
        try:
            with socket.create_connection(("127.0.0.1", proxy), seconds) as client:
                client.sendall(b"GET http://127.0.0.1:%d/1k HTTP/1.1\r\nHost: origin\r\n\r\n" % origin)
                return client.recv(16)[9:12] == b"200"
        except ConnectionError:
            return False

    wait_until(responded, f"port {proxy} responds to a request", seconds)
    return time.monotonic() - began


def first_connection(proxy: int, began: float, seconds: float = 10.0) -> float:
    """Seconds from `began` (monotonic) until a connection to `proxy` is accepted."""
    wait_until(lambda: accepts(proxy), f"port {proxy} accepts", seconds)
    return time.monotonic() - began
