"""Measures of the product itself, which have no peer: what proxies cost while idle or asleep, starts, and creates."""

from __future__ import annotations

import socket
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from benchmarks.ours import OurProxy, Product, store_proxies
from benchmarks.processes import BenchError, accepts, pss, uss
from benchmarks.rounds import Bench, Figure, Results, medians
from benchmarks.traffic import share_of_a_core
from tests.kit.wait import wait_until

FEW = 10
HOST = "127.77.0.1"
"""An address of loopback at which nothing else listens, so that thousands of ports are free."""
FIRST_PORT = 10_000
PATIENCE = 30.0


def at_rest(bench: Bench) -> Results:
    """The whole product with nothing to do."""
    return bench.each(lambda product: {"memory": uss(product.everything())})


def idle_actor(bench: Bench) -> Results:
    """An actor that has nothing to do: its memory, and how soon after the create request it forwards, in ms."""

    def one(product: Product) -> Figure:
        began = time.monotonic()
        proxy = product.create()
        wait_until(lambda: accepts(proxy["port"]), "it accepts", PATIENCE, 0.001)
        accepted = time.monotonic() - began
        first_byte("127.0.0.1", proxy["port"], bench.target)
        responded = time.monotonic() - began
        memory = uss(product.workers(proxy))
        product.delete(proxy)
        return {"memory": memory, "accepted": accepted * 1e3, "responded": responded * 1e3}

    return bench.each(lambda product: medians([one(product) for _ in range(bench.effort.samples)]))


def many_idle_actors(bench: Bench) -> Results:
    """Memory in GB and CPU of all processes of the product."""

    def measured(product: Product) -> Figure:
        made = [OurProxy(product, bench.folder) for _ in range(bench.effort.fleet)]
        share, memory = share_of_a_core(product, bench.effort.quiet), pss(product.everything())
        for proxy in made:
            proxy.end()
        return {"memory": memory / 1024, "cpu": share}

    return bench.each(measured)


def create_among_many(bench: Bench) -> Results:
    """ms of a create, durable on disk, while many proxies are configured and do not run."""

    def measured(product: Product) -> Figure:
        kept = [product.create() for _ in range(bench.effort.configured)]
        for proxy in kept:
            product.data("POST", f"/proxies/{proxy['id']}/stop")
        wait_until(lambda: product.running() == 0, "the configured proxies stop")
        times = []
        for _ in range(bench.effort.samples):
            began = time.monotonic()
            proxy = product.create()
            times.append((time.monotonic() - began) * 1e3)
            product.delete(proxy)
        for proxy in kept:
            product.delete(proxy)
        return {"median": statistics.median(times), "worst": max(times)}

    return bench.each(measured)


# --- starts ---


def starts(bench: Bench) -> Results:
    """Seconds of starts with ten active proxies, in turns with those of the pure version."""
    return bench.in_turn({each.name: partial(_stopped, each.name) for each in bench.products}, _started, anew=True)


def _stopped(name: str) -> Product:
    product = Product(name).run()
    for _ in range(FEW):
        product.create()
    product.stop()
    return product


def _started(product: Product) -> Figure:
    began = time.monotonic()
    product.run()
    wait_until(lambda: product.running() == FEW, "all proxies run")
    running = time.monotonic() - began
    began = time.monotonic()
    product.stop()
    return {"ready": product.ready_after, "running": running, "stopped": time.monotonic() - began}


# --- proxies that sleep ---


def sleepers(bench: Bench) -> Results:
    """Thousands of proxies of which nearly all sleep. They are put into the store of a new product; all begin asleep,
    and clients wake as many as are to be awake."""
    count = bench.effort.stored
    product = Product()
    bodies = (
        {"name": f"sleeper-{number}", "host": HOST, "port": FIRST_PORT + number, "protocol": "http"}
        | {"sleep_after": 3600}
        for number in range(count)
    )
    store_proxies(product.data_dir, bodies, "active")
    product.run()
    ports = iter(range(FIRST_PORT, FIRST_PORT + count))
    one_by_one, at_once = (200, 100) if count >= 1_000 else (60, 20)
    try:
        time.sleep(5)  # what a start leaves to do is over
        figure = {"ready": product.ready_after, "asleep": pss(product.everything())}
        waits = [first_byte(HOST, next(ports), bench.target) for _ in range(50)]
        figure |= {"cpu": share_of_a_core(product, bench.effort.quiet), "memory": pss(product.everything())}
        waits += [first_byte(HOST, next(ports), bench.target) for _ in range(one_by_one - 50)]
        figure |= {"median": statistics.median(waits) * 1e3, "p99": statistics.quantiles(waits, n=100)[98] * 1e3}
        with ThreadPoolExecutor(at_once) as pool:
            began = time.monotonic()
            woken = [pool.submit(first_byte, HOST, next(ports), bench.target) for _ in range(at_once)]
            for each in woken:
                each.result()
            figure["at_once"] = time.monotonic() - began
    finally:
        product.end()
    return {product.name: figure}


def first_byte(host: str, port: int, origin: int) -> float:
    """Seconds from the connect until the first byte of the origin's response."""
    began = time.monotonic()
    with socket.create_connection((host, port), PATIENCE) as client:
        client.sendall(b"GET http://127.0.0.1:%d/1k HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % (origin, origin))
        start = client.recv(16)
    if start[9:12] != b"200":
        raise BenchError(f"a proxy answered {start!r}")
    return time.monotonic() - began
