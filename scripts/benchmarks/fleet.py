"""Measures of the product itself, which have no peer: what a proxy costs while idle, alone or one of many."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

from benchmarks import load
from benchmarks.ours import Product
from benchmarks.processes import cpu_seconds, pss, uss, wait_until
from benchmarks.report import Bar, Comparison, Figure, Row
from benchmarks.rounds import Bench, Results

MB, GB = 1024**2, 1024**3
SETTLE_SECONDS = 5.0
MANY = 200
MANY_MEMORY = 1.0
"""GB that so many actors may take together with the rest of the product."""


def at_rest(bench: Bench) -> list[Row]:
    """The whole product with nothing to do: memory of all its processes."""
    results = _each(bench, lambda product: {"memory": uss(product.processes()) / MB})
    return Comparison("product without proxies, memory (USS)", "memory", "MB").rows(results)


def _each(bench: Bench, measured: Callable[[Product], Figure]) -> Results:
    """Of our products, one after the other."""
    return {product.name: measured(product) for product in bench.products}


def idle_actor(bench: Bench) -> list[Row]:
    """An actor that has nothing to do: its memory, and how soon after the create request it forwards."""
    results = _each(bench, partial(_idle_actor, bench))
    measures = (
        ("idle forwarding actor, memory (USS)", "memory", "MB", 4.5),
        ("create request to accepted connection", "accepted", "ms", 150.0),
        ("create request to first response forwarded", "responded", "ms", 150.0),
    )
    comparisons = (Comparison(name, what, unit, {"": Bar(limit)}) for name, what, unit, limit in measures)
    return [row for comparison in comparisons for row in comparison.rows(results)]


def _idle_actor(bench: Bench, product: Product) -> Figure:
    memory, accepted, responded = [], [], []
    for number in range(bench.effort.samples):
        began = time.monotonic()
        proxy, port = product.create(f"idle-{number}")
        accepted.append(load.first_connection(port, began))
        responded.append(load.first_response(port, bench.origin.port, began))
        memory.append(uss([product.forwarding_pid(proxy)]))
        product.call("DELETE", f"/proxies/{proxy}")
    times = {"accepted": statistics.median(accepted) * 1e3, "responded": statistics.median(responded) * 1e3}
    return {"memory": statistics.median(memory) / MB, **times}


def many_idle_actors(bench: Bench) -> list[Row]:
    """200 actors that have nothing to do: memory and CPU of all processes of the product."""
    results = _each(bench, partial(_many_idle_actors, bench))
    name = f"{bench.effort.fleet} idle actors"
    memory = {"": Bar(MANY_MEMORY)} if bench.effort.fleet == MANY else {}
    return [
        *Comparison(f"{name}, memory of all processes (PSS)", "memory", "GB", memory).rows(results),
        *Comparison(f"{name}, CPU of all processes", "cpu", "% of a core", {"": Bar(1.0)}).rows(results),
    ]


def _many_idle_actors(bench: Bench, product: Product) -> Figure:
    count = bench.effort.fleet
    made = [product.create(f"fleet-{number}")[0] for number in range(count)]
    try:
        for proxy in made:
            product.forwarding_pid(proxy)
        share = share_of_a_core(product, bench.effort.quiet)
        memory = pss(product.processes())
    finally:
        for proxy in made:
            product.call("DELETE", f"/proxies/{proxy}")
    return {"memory": memory / GB, "cpu": share * 100}


def share_of_a_core(product: Product, seconds: float) -> float:
    """CPU of all processes of the product in so many seconds, as a part of one core's."""
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
