"""What is sent to the API: GETs by wrk as fast as they are answered, creates one by one, sign-ins at a pace or back to
back.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.load import LoadResult
from benchmarks.management.servers import Server
from benchmarks.ours import PASSWORD
from benchmarks.peers import program
from benchmarks.processes import BenchError, free_port

CLIENTS = 8
TIMEOUT = 60.0

_WRK_SCRIPT = """
wrk.headers["X-API-Key"] = "%(key)s"
wrk.headers["Accept"] = "application/json"
local requests = {}
init = function(args)
  math.randomseed(os.time())
  for path in io.lines("%(paths)s") do requests[#requests + 1] = wrk.format("GET", path) end
end
request = function() return requests[math.random(#requests)] end
done = function(summary, latency, _)
  local e = summary.errors
  io.stderr:write(string.format('{"requests": %%d, "seconds": %%f, "p99": %%f, "errors": %%d}\\n', summary.requests,
    summary.duration / 1e6, latency:percentile(99) / 1e3, e.connect + e.read + e.write + e.status + e.timeout))
end
"""


def gets(folder: Path, server: Server, paths: Sequence[str], seconds: float) -> LoadResult:
    """GET one of `paths` after the other, chosen at random, by each of 8 clients. Raises `BenchError` if any fails."""
    listed, script = folder / "paths", folder / "get.lua"
    listed.write_text("".join(f"{path}\n" for path in paths))
    script.write_text(_WRK_SCRIPT % {"key": server.key, "paths": listed})
    command = [
        program("wrk"),
        "-t1",
        f"-c{CLIENTS}",
        f"-d{max(1, round(seconds))}s",
        "--timeout",
        "30s",
        "-s",
        str(script),
    ]
    done = subprocess.run([*command, f"http://127.0.0.1:{server.port}"], capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchError(f"wrk at {server.name}: {done.stdout}{done.stderr}")
    seen = json.loads(done.stderr.strip().splitlines()[-1])
    if seen["requests"] == 0 or seen["errors"]:
        raise BenchError(f"wrk at {server.name}: {done.stdout}")
    return LoadResult(seen["requests"], seen["seconds"], seen["p99"])


class Client:
    """One kept connection with the API key."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT)

    def call(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, object]]:
        """Status and body of the response."""
        headers = {"X-API-Key": self._server.key, "Content-Type": "application/json"}
        content = None if body is None else json.dumps(body)
        self._connection.request(method, f"/api/v1{path}", content, headers)
        response = self._connection.getresponse()
        return response.status, json.loads(response.read())

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def creates(server: Server, count: int) -> list[float]:
    """Seconds that each of so many creates took; what was made is deleted again. Raises `BenchError`."""
    client, took = Client(server), []
    try:
        for number in range(count):
            body = {"name": f"measured-{number}", "port": free_port(), "protocol": "http"}
            began = time.monotonic()
            status, made = client.call("POST", "/proxies", body)
            took.append(time.monotonic() - began)
            if status != 201:
                raise BenchError(f"{server.name}: create: {status} {made}")
            client.call("DELETE", f"/proxies/{made['data']['proxy']['id']}")  # type: ignore[index]
    finally:
        client.close()
    return took


@dataclass(slots=True)
class SignIns:
    """What became of sign-ins; `took` are seconds of those that succeeded."""

    took: list[float] = field(default_factory=list)
    refused: int = 0
    failed: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def one(self, server: Server) -> None:
        """Sign in on a new connection. 429 is a refusal, everything else but 200 a failure."""
        began = time.monotonic()
        try:
            client = Client(server)
            status, _ = client.call("POST", "/auth/login", {"username": "admin", "password": PASSWORD})
            client.close()
        except OSError:
            status = 0
        with self.lock:
            if status == 200:
                self.took.append(time.monotonic() - began)
            self.refused += status == 429
            self.failed += status not in (200, 429)


@contextmanager
def sign_ins_at(server: Server, rate: float) -> Iterator[SignIns]:
    """`rate` sign-ins begin each second, whether or not the earlier ones are answered; at the end all are awaited."""
    seen, over = SignIns(), threading.Event()
    threads: list[threading.Thread] = []

    def pace() -> None:
        began = time.monotonic()
        while not over.wait(max(0.0, began + len(threads) / rate - time.monotonic())):
            threads.append(threading.Thread(target=seen.one, args=(server,)))
            threads[-1].start()

    pacer = threading.Thread(target=pace)
    pacer.start()
    try:
        yield seen
    finally:
        over.set()
        pacer.join()
        for thread in threads:
            thread.join()


def sign_ins_back_to_back(server: Server, seconds: float) -> float:
    """Sign-ins each second by 8 clients that do nothing else. Raises `BenchError` when one fails."""
    seen, began = SignIns(), time.monotonic()

    def run() -> None:
        while time.monotonic() - began < seconds:
            seen.one(server)

    threads = [threading.Thread(target=run) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if seen.failed or seen.refused:
        raise BenchError(f"{server.name}: {seen.failed} sign-ins failed, {seen.refused} were refused")
    return len(seen.took) / (time.monotonic() - began)


def hashes_alone(seconds: float, threads: int) -> float:
    """Password checks each second by bcrypt alone in so many threads: what no API can surpass on this machine."""
    from config.passwords import check_password, hash_password

    hashed, began, counts = hash_password(PASSWORD), time.monotonic(), [0] * threads

    def run(number: int) -> None:
        while time.monotonic() - began < seconds:
            check_password(PASSWORD, hashed)
            counts[number] += 1

    running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return sum(counts) / (time.monotonic() - began)
