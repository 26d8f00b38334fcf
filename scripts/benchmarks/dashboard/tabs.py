"""What open tabs cost the API: the requests that one page makes are noted, and then made by many at the same pace."""

from __future__ import annotations

import heapq
import http.client
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Request

from benchmarks.dashboard.visitor import Visitor
from benchmarks.ours import Product
from benchmarks.processes import BenchError, cpu_seconds
from benchmarks.report import Bar, Beside, Row

TABS = 200
THREADS = 10
NOTED = 30.0
"""Seconds that the page is observed."""
SHARE = 20
"""Percent of a core, at most."""
API = "/api/v1/"
KEPT = ("authorization", "accept", "accept-encoding")


@dataclass(slots=True)
class Polled:
    """A request that a page repeats: its target, every how many seconds, and its headers."""

    target: str
    every: float
    headers: dict[str, str]


def measure(visitor: Visitor, product: Product, seconds: float) -> list[Row]:
    """The share of a core that the API needs for `TABS` overviews."""
    polled = _noted(visitor)
    idle = _share(product, seconds / 2)
    crowd = _Crowd(product.port, polled)
    crowd.start()
    try:
        share = _share(product, seconds)
    finally:
        crowd.end()
    if crowd.failed:
        raise BenchError(f"{crowd.failed} requests of the tabs failed; the last: {crowd.last_failure}")
    unchanged = crowd.statuses[http.HTTPStatus.NOT_MODIFIED] / max(1, crowd.statuses.total()) * 100
    name = f"dashboard: {TABS} open tabs of the overview"
    beside = Beside("requests/s", crowd.statuses.total() / seconds)
    return [
        Row(f"{name}, CPU of the API", "% of a core", share - idle, bar=Bar(SHARE), beside=beside),
        Row(f"{name}, responses without a body (304)", "%", unchanged),
        Row("dashboard: CPU of the API without a tab", "% of a core", idle),
    ]


def _noted(visitor: Visitor) -> list[Polled]:
    """What the overview asks for again and again."""
    seen: dict[str, list[tuple[float, dict[str, str]]]] = {}

    def note(request: Request) -> None:
        target = request.url.partition("/api/v1/")[2]
        if request.method == "GET" and target:
            seen.setdefault(API + target, []).append((time.monotonic(), request.headers))

    with visitor.page() as page:
        page.goto("/ui/", wait_until="networkidle")
        page.on("request", note)
        page.wait_for_timeout(NOTED * 1000)
    polled = [_polled(target, times) for target, times in seen.items() if len(times) > 1]
    if not polled:
        raise BenchError("the overview asks for nothing again")
    return polled


def _polled(target: str, times: list[tuple[float, dict[str, str]]]) -> Polled:
    every = (times[-1][0] - times[0][0]) / (len(times) - 1)
    return Polled(target, every, {name: value for name, value in times[-1][1].items() if name in KEPT})


def _share(product: Product, seconds: float) -> float:
    """Percent of a core that the API has taken."""
    pids = [pid for pid in product.processes() if Path(f"/proc/{pid}/comm").read_text().strip() == "api"]
    before, began = cpu_seconds(pids), time.monotonic()
    time.sleep(seconds)
    return (cpu_seconds(pids) - before) / (time.monotonic() - began) * 100


@dataclass(slots=True, order=True)
class _Due:
    at: float
    tab: int
    polled: Polled = field(compare=False)
    etag: str | None = field(default=None, compare=False)


class _Crowd:
    """The tabs, each with a connection of its own, in a few threads."""

    def __init__(self, port: int, polled: list[Polled]) -> None:
        self._port, self._polled = port, polled
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(THREADS)]
        self._lock = threading.Lock()
        self.statuses: Counter[int] = Counter()
        self.failed, self.last_failure = 0, ""

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        tabs = range(number, TABS, THREADS)
        began = time.monotonic()
        due = [_Due(began + each.every * tab / TABS, tab, each) for tab in tabs for each in self._polled]
        heapq.heapify(due)
        clients = {tab: http.client.HTTPConnection("127.0.0.1", self._port, timeout=30) for tab in tabs}
        while not self._over.wait(max(0.0, due[0].at - time.monotonic())):
            first = due[0]
            self._ask(clients[first.tab], first)
            first.at += first.polled.every
            heapq.heapreplace(due, first)
        for client in clients.values():
            client.close()

    def _ask(self, client: http.client.HTTPConnection, due: _Due) -> None:
        headers = {**due.polled.headers, **({"if-none-match": due.etag} if due.etag else {})}
        try:
            client.request("GET", due.polled.target, headers=headers)
            response = client.getresponse()
            response.read()
        except (OSError, http.client.HTTPException) as error:
            client.close()
            self._note(0, repr(error))
            return
        due.etag = response.headers.get("ETag") or due.etag
        self._note(response.status, f"{due.polled.target}: {response.status}")

    def _note(self, status: int, text: str) -> None:
        with self._lock:
            self.statuses[status] += 1
            if status not in (http.HTTPStatus.OK, http.HTTPStatus.NOT_MODIFIED):
                self.failed, self.last_failure = self.failed + 1, text
