"""Measures of the product itself, which have no peer: what a proxy costs while idle, alone or one of many."""

from __future__ import annotations

import statistics
import time

from benchmarks import load
from benchmarks.ours import Product
from benchmarks.processes import cpu_seconds, pss, uss, wait_until
from benchmarks.report import Bar, Row
from benchmarks.rounds import Bench

MB, GB = 1024**2, 1024**3
SETTLE_SECONDS = 5.0


def at_rest(bench: Bench) -> list[Row]:
    """The whole product with nothing to do: memory of all its processes."""
    if bench.product is None:
        return []
    return [Row("product without proxies, memory (USS)", "MB", uss(bench.product.processes()) / MB)]


def idle_actor(bench: Bench) -> list[Row]:
    """An actor that has nothing to do: its memory, and how soon after the create request it forwards."""
    if bench.product is None:
        return []
    memory, accepted, responded = [], [], []
    for number in range(bench.effort.samples):
        began = time.monotonic()
        proxy, port = bench.product.create(f"idle-{number}")
        accepted.append(load.first_connection(port, began))
        responded.append(load.first_response(port, bench.origin.port, began))
        memory.append(uss([bench.product.forwarding_pid(proxy)]))
        bench.product.call("DELETE", f"/proxies/{proxy}")
    return [
        Row("idle forwarding actor, memory (USS)", "MB", statistics.median(memory) / MB, bar=Bar(10.0)),
        Row("create request to accepted connection", "ms", statistics.median(accepted) * 1e3, bar=Bar(150.0)),
        Row("create request to first response forwarded", "ms", statistics.median(responded) * 1e3, bar=Bar(150.0)),
    ]


def many_idle_actors(bench: Bench) -> list[Row]:
    """200 actors that have nothing to do: memory and CPU of all processes of the product."""
    if bench.product is None:
        return []
    product, count = bench.product, bench.effort.fleet
    made = [product.create(f"fleet-{number}")[0] for number in range(count)]
    try:
        for proxy in made:
            product.forwarding_pid(proxy)
        share = _share_of_a_core(product, bench.effort.quiet)
        memory = pss(product.processes())
    finally:
        for proxy in made:
            product.call("DELETE", f"/proxies/{proxy}")
    return [
        Row(f"{count} idle actors, memory of all processes (PSS)", "GB", memory / GB, bar=Bar(1.6)),
        Row(f"{count} idle actors, CPU of all processes", "% of a core", share * 100, bar=Bar(1.0)),
    ]


def _share_of_a_core(product: Product, seconds: float) -> float:
    time.sleep(SETTLE_SECONDS)  # what the creates have left to do is not idleness
    began, before = time.monotonic(), cpu_seconds(product.processes())
    time.sleep(seconds)
    return (cpu_seconds(product.processes()) - before) / (time.monotonic() - began)


def create_among_many(bench: Bench) -> list[Row]:
    """Create, durable on disk, while many proxies are configured and do not run."""
    product = bench.product
    if product is None:
        return []
    kept = [_created(product, f"configured-{number}") for number in range(bench.effort.configured)]
    wait_until(lambda: not any(_runs(product, proxy) for proxy in kept[-5:]), "the configured proxies stop")
    times = []
    for number in range(bench.effort.samples):
        began = time.monotonic()
        proxy, _ = product.create(f"measured-{number}")
        times.append(time.monotonic() - began)
        product.call("DELETE", f"/proxies/{proxy}")
    for proxy in kept:
        product.call("DELETE", f"/proxies/{proxy}")
    name = f"create with {bench.effort.configured:,} proxies configured"
    return [
        Row(name, "ms", statistics.median(times) * 1e3, bar=Bar(50.0)),
        Row(f"{name}, worst of {len(times)}", "ms", max(times) * 1e3),
    ]


def _created(product: Product, name: str) -> str:
    proxy, _ = product.create(name)
    product.call("POST", f"/proxies/{proxy}/stop")
    return proxy


def _runs(product: Product, proxy: str) -> bool:
    return bool(product.call("GET", f"/proxies/{proxy}")["proxy"]["runtime"]["state"] != "stopped")
