"""Measures of the management API with many proxies configured, beside what a user would write instead.

The yardstick (`yardstick.py`) is FastAPI under uvicorn, one worker, with everything in a dictionary: no disk, no audit,
no permissions.
"""

from __future__ import annotations

import os
import secrets
import statistics
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.objects import imported, p99, timed
from benchmarks.ours import OURS, Product, store_proxies
from benchmarks.processes import BenchError, Child, Missing, cpu_seconds
from benchmarks.rounds import QUICK, Bench, Entrants, Figure, Results
from benchmarks.traffic import wrk
from config.passwords import PREHASHED, hash_password
from tests.kit.ports import free_port
from tests.kit.product import PASSWORD

YARDSTICK, PER_PAGE, CLIENTS = "fastapi", 50, 8


class OurApi(Product):
    """The product with `count` inactive proxies, which were in its store before it started."""

    def __init__(self, count: int) -> None:
        super().__init__()
        bodies = ({"name": f"p-{number}", "port": 1024 + number, "protocol": "http"} for number in range(count))
        self.ids = store_proxies(self.data_dir, bodies, "inactive")
        self.run()
        self.key: str = self.data("POST", "/api-keys", {"name": "benchmark"})["key"]


class Yardstick:
    """Out of the environment that `scripts/bench --install` makes."""

    def __init__(self, bench: Bench) -> None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        python = cache / "proxyfleet-bench" / YARDSTICK / "bin" / "python"
        if not python.exists():
            raise Missing(f"{python} is not there (scripts/bench --install makes it)")
        self.key, self.port, self._python = "pf_" + secrets.token_hex(20), free_port(), str(python)
        self.ids = [f"prx_{number:016x}" for number in range(bench.effort.stored)]
        own = {"BENCH_PROXIES": str(len(self.ids)), "BENCH_KEY": self.key, "PYTHONDONTWRITEBYTECODE": "1"}
        where = ["--app-dir", str(Path(__file__).parent), "--host", "127.0.0.1", "--port", str(self.port)]
        command = [self._python, "-m", "uvicorn", "yardstick:app", *where]
        self._child = Child(YARDSTICK, command, bench.own(YARDSTICK), self.port, {**os.environ, **own})
        self.everything, self.end = self._child.processes, self._child.end

    def version(self) -> str:
        """Both."""
        asked = "import fastapi, uvicorn; print(fastapi.__version__, 'under uvicorn', uvicorn.__version__)"
        return subprocess.run([self._python, "-c", asked], capture_output=True, text=True).stdout.strip()


Server = OurApi | Yardstick


def reads(paths: Callable[[Sequence[str]], list[str]]) -> Callable[[Bench], Results]:
    """GETs of these paths for the ids of the proxies, beside the yardstick's."""

    def measure(bench: Bench) -> Results:
        entrants: Entrants = {OURS: partial(OurApi, bench.effort.stored), YARDSTICK: partial(Yardstick, bench)}
        return bench.in_turn(entrants, lambda server: _gets(bench, server, paths(server.ids)))

    return measure


one = reads(lambda ids: [f"/api/v1/proxies/{each}" for each in ids])
page = reads(
    lambda ids: [f"/api/v1/proxies?page={number + 1}&per_page={PER_PAGE}" for number in range(-(-len(ids) // PER_PAGE))]
)


def _gets(bench: Bench, server: Server, paths: Sequence[str]) -> Figure:
    fields = f"X-API-Key={server.key};"
    wrk(replace(bench, effort=QUICK), server.port, paths, CLIENTS, fields)  # what the first request makes is made now
    before = cpu_seconds(server.everything())
    seen = wrk(bench, server.port, paths, CLIENTS, fields)
    if failed := seen["errors"] + seen["closed"]:
        raise BenchError(f"of {seen['requests']} requests {failed} failed")
    cpu = (cpu_seconds(server.everything()) - before) / seen["requests"] * 1e6
    return {"cpu": cpu, "p99": seen["p99"], "rate": seen["requests"] / seen["seconds"]}


WORDS = ("p-1234", "p-", "1", "account-0421", "account", "has-none-of-it", "log", "a")
"""What nothing has, one thing, and nearly all."""
SEARCHES = 200


def search(bench: Bench) -> Results:
    """Searches of one client, one after the other, among all proxies and accounts."""
    product = OurApi(bench.effort.stored)
    try:
        imported(product, PREHASHED + hash_password(PASSWORD), bench.effort.accounts)
        paths = [f"/search?q={WORDS[number % len(WORDS)]}" for number in range(SEARCHES)]
        took = [timed(partial(product.data, "GET", path))[0] for path in paths]
    finally:
        product.end()
    return {OURS: {"p99": p99(took), "median": statistics.median(took)}}
