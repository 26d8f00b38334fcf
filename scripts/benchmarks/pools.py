"""`scripts/bench pools`: many proxies on one pool of many upstreams: checks, memory, and what a choice costs.

The upstreams are sockets of this process (`tests.kit.upstream_farm`), which counts connections. There is no traffic, so
each connection is a check. A choice is measured in this process, with the state of the pool mapped as proxies do.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from actors.bus.messages.fleet_objects import PoolSpec
from actors.bus.messages.upstreams import UpstreamSpec, UpstreamsSpec
from actors.forwarding.upstreams.balancing import new_policy
from actors.forwarding.upstreams.pool_upstream import PoolUpstream
from actors.pools.state import pool_state
from benchmarks.ours import Product
from benchmarks.processes import BenchError, cpu_seconds, free_port, uss, wait_until
from benchmarks.report import Bar, Beside, Row
from config.model.choices import POOL_POLICIES
from tests.kit.upstream_farm import Farm

INTERVAL = 10.0
JITTER = 1.1
"""Checks may come that much more often than the interval says."""
START_SECONDS = 120.0
CHOICES = 200
MB = 1024**2
POOL = "bench"


def measure(folder: Path, proxies: int, upstreams: int, seconds: float) -> list[Row]:
    """The rows."""
    product = Product(folder)
    try:
        with Farm(upstreams) as farm:
            rows = _checks(product, farm, proxies, seconds)
    finally:
        product.end()
    return [*rows, *_choices(folder / "choices", upstreams)]


def _checks(product: Product, farm: Farm, proxies: int, seconds: float) -> list[Row]:
    entries = farm.entries()
    product.call("POST", "/pools", {"name": POOL, "upstreams": entries, "check": {"interval": INTERVAL}})
    alone, _ = product.create("alone")
    made = [_using(product, number) for number in range(proxies)]
    pids = [product.forwarding_pid(each) for each in made]
    what = f"{proxies} proxies on a pool of {len(entries):,} upstreams"
    wait_until(lambda: _up(product) == len(entries), "all upstreams are up", START_SECONDS)
    checks, used = _rate(product, farm, seconds)
    if not checks:
        raise BenchError("there was no check: measure for longer")
    memory = sum(map(_memory_of, pids)) / len(pids) - _memory_of(product.forwarding_pid(alone))
    return [
        Row(
            f"{what}: checks",
            "1/s",
            checks,
            bar=Bar(len(entries) / INTERVAL * JITTER),
            beside=Beside("% of a core, of the process that checks", used * 100),
        ),
        Row(f"{what}: memory of the process that checks (USS)", "MB", _memory_of(_checking(product)) / MB),
        Row(f"{what}: memory of a proxy beside that of one without (USS)", "MB", memory / MB),
    ]


def _using(product: Product, number: int) -> str:
    body = {"name": f"using-{number}", "port": free_port(), "protocol": "http", "pool": POOL}
    return str(product.call("POST", "/proxies", body)["proxy"]["id"])


def _up(product: Product) -> int:
    return int(product.call("GET", f"/pools/{POOL}")["pool"]["status"]["up"])


def _rate(product: Product, farm: Farm, seconds: float) -> tuple[float, float]:
    """Connections to all upstreams in a second, and the processor time in a second of the process that checks."""
    pid = _checking(product)
    began, before, used = time.monotonic(), farm.total, cpu_seconds([pid])
    time.sleep(seconds)
    took = time.monotonic() - began
    return (farm.total - before) / took, (cpu_seconds([pid]) - used) / took


def _checking(product: Product) -> int:
    for pid in product.processes():
        if psutil.Process(pid).name() == "pools":
            return pid
    raise BenchError("no process checks the pool")


def _memory_of(pid: int) -> int:
    return uss([pid])


# --- choices ---


def _choices(folder: Path, upstreams: int) -> Iterator[Row]:
    entries = tuple(UpstreamSpec(f"up{number}", "http", "192.0.2.1", number + 1) for number in range(upstreams))
    for policy in POOL_POLICIES:
        with _members(folder, PoolSpec("pool_bench", POOL, 1, UpstreamsSpec(entries, policy))) as members:
            yield Row(f"a choice by {policy} of {upstreams:,} upstreams", "us", _choice(policy, members))


@contextmanager
def _members(folder: Path, spec: PoolSpec) -> Iterator[list[PoolUpstream]]:
    """As in a proxy, all up but every tenth."""
    state = pool_state(folder, spec)
    pairs = zip(spec.upstreams.entries, state.slots, strict=True)
    members = [PoolUpstream(each, index, spec.name, slot) for index, (each, slot) in enumerate(pairs)]
    now = time.monotonic()
    for index, member in enumerate(members):
        member.record_latency(0.01 + index / 1e5, reached_handshake=False)
        member.slot.succeeded(now)
        if index % 10 == 0:
            member.slot.ban(now + 3600)
    yield members


def _choice(policy: str, members: list[PoolUpstream]) -> float:
    """Microseconds of processor time, the best of five times."""
    balancing, now, times = new_policy(policy, members), time.monotonic(), []
    for _ in range(5):
        began = time.thread_time()
        for number in range(CHOICES):
            balancing.choose(f"client {number}", lambda upstream: upstream.eligible(now))
        times.append((time.thread_time() - began) / CHOICES * 1e6)
    return min(times)
