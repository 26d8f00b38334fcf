"""`scripts/bench observe`: the cost of observing, and the delay of what is published.

- Series of 200 proxies, asked of the collector's own code and, unscoped, of the running product.
- The CPU of a request with everything that observes against the same with all that can be turned off turned off.
- From an event to the first byte at a webhook's target, and many events to ten targets of which two are bad.
"""

from __future__ import annotations

import json
import random
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import msgpack
import zmq

from actors.bus.events import Publisher, event_topic, new_event
from actors.metrics.catalogue import NAMES, values
from actors.metrics.increments import FIELDS, FRACTIONS
from actors.metrics.series import TOTAL, Series
from actors.sqlite import open_database
from benchmarks.load import Requests, run
from benchmarks.ours import OurProxy, Product
from benchmarks.peers import Origin
from benchmarks.processes import BenchError, cpu_seconds, free_port, wait_until
from benchmarks.report import Bar, Beside, Row
from config.text.formatting import timestamp_text

PROXIES = 200
DAY, YEAR = 86_400, 365 * 86_400
TOKEN = "a token of the benchmark"
QUIET = {"PROXYFLEET_LOGGING__LEVEL": "error", "PROXYFLEET_METRICS__PUBLISH": ""}
SLOW = 1.0
"""Seconds that the slow target takes for each response."""
PATIENCE = 300.0


def measure(folder: Path, origin: Origin, seconds: float, events: int) -> list[Row]:
    """All rows; `seconds` of load for each of the rounds, `events` for the webhooks."""
    return [*series(folder / "series"), *cost(folder, origin, seconds), *webhooks(folder / "hooks", events)]


# --- series -------------------------------------------------------------------------------------------------------


def series(folder: Path) -> list[Row]:
    """A day of five minutes and a year of days of 200 proxies with all metrics, each the median of some."""
    data = folder / "data" / "metrics"
    database = open_database(data / "totals.sqlite", "")
    book, ids = Series(database), tuple(f"prx_{number:016x}" for number in range(PROXIES))
    now = time.time()
    ends = {step: int(now // step + 1) * step for step in (300, DAY)}
    spans = {300: DAY, DAY: YEAR}
    for step, span in spans.items():
        _fill(database, step, ends[step] - span, span // step, ids)
    while _sealed(database) < sum(spans[step] // step for step in spans) - 2:
        database.execute("BEGIN")
        book.store(now)
        database.execute("COMMIT")

    def asked(step: int, proxy_ids: tuple[str, ...] | None) -> Callable[[], object]:
        def ask() -> object:
            buckets = book.read(step, ends[step] - spans[step], ends[step], proxy_ids, latency=True)
            return {name: values(name, buckets, step, now) for name in NAMES}

        return ask

    names = {300: "a day of 5 m", DAY: "a year of days"}
    rows = [
        _timed(f"{names[step]}, {whom}, all metrics", asked(step, proxy_ids))
        for step in spans
        for whom, proxy_ids in (("all", None), (f"a scope of {PROXIES}", ids), ("one proxy", ids[:1]))
    ]
    database.close()
    return rows + _by_api(folder, spans, names, now)


def _by_api(folder: Path, spans: dict[int, int], names: dict[int, str], now: float) -> list[Row]:
    product = Product(folder)
    try:
        intervals = {300: "5m", DAY: "1d"}
        return [
            _timed(
                f"{names[step]}, all, all metrics, over HTTP",
                lambda step=step: product.call(  # type: ignore[misc]
                    "GET", f"/metrics?interval={intervals[step]}&start_time={timestamp_text(now - spans[step])}"
                ),
                here=False,
            )
            for step in spans
        ]
    finally:
        product.end()


def _fill(database: Any, step: int, start: int, count: int, ids: tuple[str, ...]) -> None:
    """Rows as the collector writes them: busy proxies with latencies over some octaves."""
    rng = random.Random(step)
    from actors.metrics.series import _INSERT  # the very statement; there is no other way in that is quick enough

    def row(t: int, proxy_id: str, scale: int) -> tuple[Any, ...]:
        latency = {20 + rng.randrange(30): rng.randrange(1, 200) * scale for _ in range(15)}
        values = [rng.uniform(0, 90.0) if name in FRACTIONS else rng.randrange(100_000) * scale for name in FIELDS]
        return (step, t, proxy_id, *values, msgpack.packb([each for pair in sorted(latency.items()) for each in pair]))

    database.execute("BEGIN")
    for t in range(start, start + count * step, step):
        database.executemany(_INSERT, [row(t, each, 1) for each in ids] + [row(t, TOTAL, PROXIES)])
    database.execute("COMMIT")


def _sealed(database: Any) -> int:
    return int(database.execute("SELECT count(*) FROM sheets").fetchone()[0])


def _timed(name: str, ask: Callable[[], object], times: int = 9, here: bool = True) -> Row:
    """The medians of some times; the CPU beside it, when it is used `here`: a busy machine shows in the time alone."""
    passed, spent = [], []
    for _ in range(times):
        began, cpu = time.perf_counter(), time.process_time()
        ask()
        passed.append(1000 * (time.perf_counter() - began))
        spent.append(1000 * (time.process_time() - cpu))
    beside = Beside("ms of CPU", statistics.median(spent)) if here else None
    return Row(name, "ms", statistics.median(passed), bar=Bar(50), beside=beside)


# --- what a request costs -----------------------------------------------------------------------------------------


def cost(folder: Path, origin: Origin, seconds: float, rounds: int = 3) -> list[Row]:
    """CPU of all processes of the product for each request, observed and not, in turn."""
    spent: dict[bool, list[float]] = {True: [], False: []}
    with ExitStack() as stack:
        proxies: dict[bool, tuple[Product, OurProxy]] = {}
        for observed in spent:
            own = folder / ("observed" if observed else "quiet")
            own.mkdir()
            publish = f"tcp://127.0.0.1:{free_port()}"
            settings = {"PROXYFLEET_METRICS__PUBLISH": publish, "PROXYFLEET_METRICS__PROMETHEUS_TOKEN": TOKEN}
            product = Product(own, settings | {"PROXYFLEET_WEBHOOKS__ALLOW_PRIVATE": "true"} if observed else QUIET)
            stack.callback(product.end)
            proxies[observed] = product, OurProxy(product)
            if observed:
                stack.enter_context(Observers(product, publish))
        for observed in [True, False] * rounds:
            product, proxy = proxies[observed]
            before = cpu_seconds(product.processes())
            seen = run(folder, proxy, origin.port, Requests("1k", 50), seconds)
            time.sleep(2)  # records and counters follow the last request
            spent[observed].append((cpu_seconds(product.processes()) - before) / seen.requests * 1e6)
    on, off = statistics.median(spent[True]), statistics.median(spent[False])
    return [Row("1 KiB GET, CPU with everything observed", "us/request", on, "nothing observed", off, Bar(factor=1.25))]


class Observers:
    """The observers of a product in a busy installation: a subscriber to everything, a scraper, and a webhook."""

    def __init__(self, product: Product, publish: str) -> None:
        self._product, self._publish = product, publish
        self._over = threading.Event()
        self._target = Target()
        self._threads = [threading.Thread(target=each) for each in (self._subscribe, self._scrape)]

    def __enter__(self) -> None:
        self._target.start()
        self._product.call("POST", "/webhooks", {"name": "all", "url": self._target.url, "events": ["*"]})
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._target.end()

    def _subscribe(self) -> None:
        with zmq.Context() as context, context.socket(zmq.SUB) as subscriber:
            subscriber.linger = 0
            subscriber.subscribe("")
            subscriber.connect(self._publish)
            while not self._over.is_set():
                if subscriber.poll(200):
                    subscriber.recv_multipart()

    def _scrape(self) -> None:
        while not self._over.wait(5.0):
            self._product.scrape(TOKEN)


# --- webhooks -----------------------------------------------------------------------------------------------------


class Target:
    """Takes deliveries and notes when the first byte of each came; responds after `delay` seconds."""

    def __init__(self, delay: float = 0.0) -> None:
        self.arrived: list[tuple[float, dict[str, Any]]] = []
        target = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def parse_request(self) -> bool:
                self.began = time.time()  # the request line has just come
                return super().parse_request()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                target.arrived.append((self.began, json.loads(body)))
                time.sleep(delay)
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        class Server(ThreadingHTTPServer):
            request_queue_size = 128
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                """The sender was ended in the middle of a request."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook"

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def numbers(self) -> list[int]:
        """Of the events of the benchmark, in the order of their arrival."""
        return [body["data"]["number"] for _began, body in list(self.arrived) if "number" in body["data"]]


def webhooks(folder: Path, events: int) -> list[Row]:
    """One target that is well; then ten, of which one is dead and one is slow."""
    folder.mkdir()
    schedule = {"PROXYFLEET_WEBHOOKS__RETRY_SCHEDULE": "[1, 5, 30]"}
    product = Product(folder, {"PROXYFLEET_WEBHOOKS__ALLOW_PRIVATE": "true", **schedule})
    try:
        return [*_latency(product, min(events, 300)), *_ten_targets(product, events)]
    finally:
        product.end()


def _latency(product: Product, events: int) -> list[Row]:
    target = Target()
    target.start()
    hook = product.call("POST", "/webhooks", {"name": "quick", "url": target.url, "events": ["proxy.up"]})["webhook"]
    with _Events(product) as happen:
        for number in range(events):
            happen("proxy.up", number)
            time.sleep(0.02)
        wait_until(lambda: len(target.numbers()) == events, "all events are delivered", PATIENCE)
    product.call("DELETE", f"/webhooks/{hook['id']}")
    target.end()
    late = sorted(1000 * (began - happen.at[body["data"]["number"]]) for began, body in target.arrived)
    return [
        Row("webhook: event to first byte, median", "ms", statistics.median(late)),
        Row("webhook: event to first byte, p99", "ms", late[int(0.99 * len(late))], bar=Bar(200)),
    ]


def _ten_targets(product: Product, events: int) -> list[Row]:
    well, slow = [Target() for _ in range(8)], Target(SLOW)
    for each in (*well, slow):
        each.start()
    dead = f"http://127.0.0.1:{free_port()}/hook"
    for number, url in enumerate([dead, slow.url, *(each.url for each in well)]):
        product.call("POST", "/webhooks", {"name": f"target {number}", "url": url, "events": ["proxy.down"]})
    with _Events(product) as happen:
        began = time.monotonic()
        for number in range(events):
            happen("proxy.down", number)
        wait_until(lambda: all(len(each.numbers()) >= events for each in well), "eight targets got all", PATIENCE)
        took = time.monotonic() - began
    for each in well:
        if each.numbers() != list(range(events)):
            raise BenchError("a target got events out of order, or one twice")
    for each in (*well, slow):
        each.end()
    name = f"webhook: {events:,} events to ten targets, one dead, one slow"
    return [
        Row(f"{name}: the other eight have all in order after", "s", took),
        Row(f"{name}: deliveries", "1/s", 8 * events / took),
    ]


class _Events:
    """Facts that are said on the bus as the supervisor says its own. `at` is when, Unix seconds, by number."""

    def __init__(self, product: Product) -> None:
        self._address = product.run_dir.events_in
        self._context: zmq.Context[Any] = zmq.Context()
        self.at: dict[int, float] = {}

    def __enter__(self) -> Self:
        self._publisher = Publisher(self._context, self._address)
        time.sleep(1.0)  # until the subscription has arrived; a publisher gets no signal
        return self

    def __call__(self, kind: str, number: int) -> None:
        event = new_event(kind, {"number": number, "proxy_id": "prx_0000000000000000"})
        self.at[number] = event.timestamp
        self._publisher.publish(event_topic(event), event)

    def __exit__(self, *_: object) -> None:
        self._publisher.close()
        self._context.term()
