"""How soon the product is ready with many proxies, how soon it ends when idle, and what callers feel of an upgrade."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.ours import Product
from benchmarks.processes import wait_until
from benchmarks.report import OURS, Bar, Comparison, Figure, Row
from benchmarks.rounds import Bench, Entrant

FEW = 10
READY_WITHIN = {FEW: 1.0, 300: 10.0}
"""Seconds by the number of proxies."""
STOPPED_WITHIN = 1.0
KNOCK_EVERY = 0.005
PATIENCE = 30.0


def measure(folder: Path, counts: list[int]) -> list[Row]:
    """A start with each number of active proxies; the stop and the upgrade with the smallest."""
    rows: list[Row] = []
    for number, count in enumerate(sorted(counts)):
        own = folder / str(count)
        own.mkdir()
        _configure(own, count)
        rows += _restart(own, count, with_upgrade=number == 0)
    return rows


def ready(bench: Bench) -> list[Row]:
    """Starts with ten active proxies, anew in each round."""
    entrants = [_configured(bench, each.name) for each in bench.products]
    results = bench.in_turn(entrants, _started, anew=True)
    name = f"start to ready, {FEW} proxies"
    return [
        *Comparison(name, "ready", "s", {"": Bar(READY_WITHIN[FEW])}).rows(results),
        *Comparison(f"start until all of {FEW} proxies run", "running", "s").rows(results),
    ]


def _configured(bench: Bench, name: str) -> Entrant:
    folder = bench.own("start")
    _configure(folder, FEW, name)
    return Entrant(name, partial(Product, folder, name=name))


def _started(product: Any) -> Figure:
    began = time.monotonic()
    wait_until(lambda: _running(product) >= FEW, "all proxies run")
    return {"ready": product.ready_after, "running": product.ready_after + time.monotonic() - began}


def _configure(folder: Path, count: int, name: str = OURS) -> None:
    product = Product(folder, name=name)
    try:
        for number in range(count):
            product.create(f"started-{number}")
    finally:
        product.end()


def _restart(folder: Path, count: int, with_upgrade: bool) -> list[Row]:
    began = time.monotonic()
    product = Product(folder)
    try:
        wait_until(lambda: _running(product) >= count, "all proxies run")
        all_run = time.monotonic() - began
        rows = [
            Row(f"start to ready, {count} proxies", "s", product.ready_after, bar=Bar(READY_WITHIN.get(count, 10.0))),
            Row(f"start until all of {count} proxies run", "s", all_run),
        ]
        rows += _upgrade(product) if with_upgrade else []
    finally:
        began = time.monotonic()
        product.end()
    return [*rows, Row(f"stop while idle, {count} proxies", "s", time.monotonic() - began, bar=Bar(STOPPED_WITHIN))]


def _running(product: Product) -> int:
    found, page, more = 0, 1, True
    while more:
        data = product.call("GET", f"/proxies?per_page=100&page={page}")
        found += sum(proxy["runtime"]["state"] == "running" for proxy in data["proxies"])
        page, more = page + 1, data["pagination"]["has_next"]
    return found


def _upgrade(product: Product) -> list[Row]:
    """An upgrade to the same version, while a client connects anew to a proxy and to the API again and again."""
    ports = [product.call("GET", "/proxies")["proxies"][0]["port"], product.port]
    over = threading.Event()
    longest = [0.0] * len(ports)
    failed = [0] * len(ports)
    before = product.started_at()

    def knock(index: int) -> None:
        while not over.is_set():
            began = time.monotonic()
            failed[index] += not _responded(ports[index])
            longest[index] = max(longest[index], time.monotonic() - began)
            time.sleep(KNOCK_EVERY)

    threads = [threading.Thread(target=knock, args=(index,), daemon=True) for index in range(len(ports))]
    for thread in threads:
        thread.start()
    os.kill(product.pid, signal.SIGUSR2)
    wait_until(lambda: product.started_at() not in (None, before), "the product is upgraded")
    over.set()
    for thread in threads:
        thread.join(PATIENCE)
    return [
        Row("upgrade: longest wait of a new client of a proxy", "s", longest[0]),
        Row("upgrade: longest wait of a new client of the API", "s", longest[1]),
        Row("upgrade: refused or failed", "", float(sum(failed)), bar=Bar(0.0)),
    ]


def _responded(port: int) -> bool:
    """A proxy answers this with 404 or the like, and so does the API; any response counts."""
    try:
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
            client.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return client.recv(64).startswith(b"HTTP/1.1 ")
    except OSError:
        return False
