"""`scripts/bench sleepers`: what thousands of proxies cost of which nearly all sleep, and how soon one serves.

They are put into the store of a new product. All of them begin asleep, and clients wake as many as are to be awake.
"""

from __future__ import annotations

import selectors
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.management.servers import store_proxies
from benchmarks.ours import Product
from benchmarks.peers import Origin
from benchmarks.processes import BenchError, cpu_seconds, descriptors, pss, uss
from benchmarks.report import Bar, Row

MB = 1024**2
HOST = "127.77.0.1"
"""An address of loopback at which nothing else listens, so that thousands of ports are free."""
FIRST_PORT = 10_000
SLEEP_AFTER = 3600
"""Seconds: who is awake stays so during the measure."""
SETTLE_SECONDS = 5.0
PATIENCE = 30.0
SLABS = ("TCP", "eventpoll_epi", "eventpoll_pwq", "sock_inode_cache", "dentry", "filp")
"""What a watched listening socket takes of the kernel (slabinfo(5))."""


@dataclass(frozen=True, slots=True)
class Size:
    """How many proxies there are; are awake; are woken one by one in all; at once. `quiet` is how long is watched."""

    proxies: int
    awake: int
    one_by_one: int
    at_once: int
    quiet: float


LARGE = Size(10_000, 50, 200, 100, 30.0)
SMALL = Size(500, 10, 50, 20, 10.0)


def measure(folder: Path, origin: Origin, size: Size) -> list[Row]:
    """The rows. Memory and processor are those of all processes of the product."""
    store_proxies(folder / "data", _bodies(size.proxies), "active")
    kernel = _slabs()
    product = Product(folder)
    try:
        spent = cpu_seconds(product.processes())
        return [
            Row(f"start to ready, {size.proxies:,} proxies asleep", "s", product.ready_after, bar=Bar(5.0)),
            Row("CPU of all processes until then", "s", spent),
            *_stages(product, origin, size, kernel),
        ]
    finally:
        product.end()


def _stages(product: Product, origin: Origin, size: Size, kernel: int | None) -> Iterator[Row]:
    ports = iter(range(FIRST_PORT, FIRST_PORT + size.proxies))
    _settled(product)
    yield Row("memory while all sleep (PSS)", "MB", pss(product.processes()) / MB)
    waits = [first_byte(next(ports), origin.port) for _ in range(size.awake)]
    yield from _while_quiet(product, size, kernel)
    waits += [first_byte(next(ports), origin.port) for _ in range(size.one_by_one - size.awake)]
    yield Row("first byte through one that sleeps, median", "ms", statistics.median(waits) * 1e3)
    yield Row(
        "first byte through one that sleeps, p99", "ms", statistics.quantiles(waits, n=100)[98] * 1e3, bar=Bar(40.0)
    )
    woken = all_at_once([next(ports) for _ in range(size.at_once)], origin.port)
    yield Row(f"first byte through each of {size.at_once} woken at once", "s", woken, bar=Bar(2.0))
    yield from _operator(product, FIRST_PORT + size.proxies)


def _while_quiet(product: Product, size: Size, kernel: int | None) -> Iterator[Row]:
    """With as many awake as the goal has."""
    _settled(product)
    awake = f"{size.proxies:,} proxies, {size.awake} awake"
    began, before = time.monotonic(), cpu_seconds(product.processes())
    time.sleep(size.quiet)
    share = (cpu_seconds(product.processes()) - before) / (time.monotonic() - began)
    yield Row(f"{awake}, memory (PSS)", "MB", pss(product.processes()) / MB, bar=Bar(400.0))
    for name, pid in product.actors().items():
        yield Row(f"of it {name} (USS)", "MB", uss([pid]) / MB)
    now = _slabs()
    if kernel is not None and now is not None:
        yield Row("the kernel's for sockets (slabs), beside it", "MB", (now - kernel) / MB)
    yield Row(f"{awake}, CPU while idle", "% of a core", share * 100, bar=Bar(1.0))
    yield Row("descriptors of the supervisor", "", descriptors([product.pid]))
    yield Row("descriptors of all processes", "", descriptors(product.processes()))


def _operator(product: Product, port: int) -> Iterator[Row]:
    """What an operator of so many waits for."""
    body = {"name": "another", "host": HOST, "port": port, "protocol": "http", "sleep_after": SLEEP_AFTER}
    took, data = _timed(lambda: product.call("POST", "/proxies", body))
    proxy = data["proxy"]["id"]
    yield Row("create of another", "ms", took * 1e3)
    took, _ = _timed(lambda: product.call("PATCH", f"/proxies/{proxy}", {"settings": {"timeout": 45}}))
    yield Row("change of a setting of it", "ms", took * 1e3)
    took, _ = _timed(lambda: product.call("GET", f"/proxies/{proxy}"))
    yield Row("read of it", "ms", took * 1e3)
    took, _ = _timed(lambda: product.call("DELETE", f"/proxies/{proxy}"))
    yield Row("delete of it", "ms", took * 1e3)
    took, _ = _timed(product.end)
    yield Row("stop of the product", "s", took)


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.monotonic()
    result = call()
    return time.monotonic() - began, result


def _bodies(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        where = {"host": HOST, "port": FIRST_PORT + number, "protocol": "http"}
        yield {"name": f"sleeper-{number:05}", **where, "sleep_after": SLEEP_AFTER, "tags": [f"customer-{number}"]}


def _settled(product: Product) -> None:
    """What a start or a wake leaves to do is over."""
    time.sleep(SETTLE_SECONDS)
    if not product.processes():
        raise BenchError("the product has ended")


def _slabs() -> int | None:
    """Bytes in the kernel's caches of what sockets are made of; None where only root may know."""
    try:
        lines = Path("/proc/slabinfo").read_text().splitlines()
    except OSError as error:
        print(f"without the kernel's memory: {error}", file=sys.stderr)
        return None
    fields = [line.split() for line in lines]
    return sum(int(each[1]) * int(each[3]) for each in fields if each[0] in SLABS)


# --- clients ---


def first_byte(port: int, origin: int) -> float:
    """Seconds from the connect until the first byte of the origin's response, through a proxy at `port`."""
    began = time.monotonic()
    with socket.create_connection((HOST, port), PATIENCE) as client:
        client.sendall(_request(origin))
        _expect_success(client.recv(16), port)
    return time.monotonic() - began


def all_at_once(ports: Sequence[int], origin: int) -> float:
    """Seconds until clients of all `ports`, which connect at the same moment, have a first byte each."""
    began = time.monotonic()
    with selectors.DefaultSelector() as selector:
        for port in ports:
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex((HOST, port))
            selector.register(client, selectors.EVENT_WRITE, port)
        try:
            return _served(selector, origin, began)
        finally:
            for key in list(selector.get_map().values()):
                _leave(selector, key)


def _served(selector: selectors.BaseSelector, origin: int, began: float) -> float:
    while selector.get_map():
        if time.monotonic() - began > PATIENCE:
            raise BenchError(f"{len(selector.get_map())} clients of those that sleep are not served")
        for key, _events in selector.select(0.1):
            client = key.fileobj
            assert isinstance(client, socket.socket)
            if key.events == selectors.EVENT_WRITE:
                client.sendall(_request(origin))
                selector.modify(client, selectors.EVENT_READ, key.data)
            else:
                _expect_success(client.recv(16), key.data)
                _leave(selector, key)
    return time.monotonic() - began


def _leave(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    selector.unregister(key.fileobj)
    assert isinstance(key.fileobj, socket.socket)
    key.fileobj.close()


def _request(origin: int) -> bytes:
    return b"GET http://127.0.0.1:%d/1k HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % (origin, origin)


def _expect_success(start: bytes, port: int) -> None:
    if start[9:12] != b"200":
        raise BenchError(f"through port {port}: {start!r}")
