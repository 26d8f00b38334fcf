"""`scripts/bench logs`: how fast records are indexed, how much room they take, how fast they are found.

Ten million records over four days are written into a folder of its own by the index itself, in this process; the rate
is records for each second of processor time, so it says what one core does whatever else the machine is busy with.
Searches are the median of five. At last a real log indexer takes 10,000 records/s by the channel of the forwarding
actors, and is asked how many it has.

The records are those of a proxy: half are tunnels to one of 5,000 hosts (a few of them very common), half are requests
for URLs of which most are unlike all others; 20 proxies, 5,000 clients, 200 users.
"""

from __future__ import annotations

import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import zmq

from actors.bus.loop import Loop
from actors.bus.messages.common import LOGS
from actors.bus.messages.records import LogPage, QueryLogs
from actors.bus.records import Batch, RecordSender
from actors.logs.index import LogIndex
from actors.logs.search import Searcher
from actors.logs.search_service import share_fairly
from benchmarks.ours import Product
from benchmarks.processes import BenchError, cpu_seconds
from benchmarks.report import Bar, Beside, Row

DAYS = 4
DAY = 86_400
BATCH = 1_000
FIRST_MIDNIGHT = 1_800_057_600.0
PROXIES, CLIENTS, USERS, HOSTS = 20, 5_000, 200, 5_000
STATUSES = [200] * 180 + [304] * 10 + [404] * 6 + [403, 407, 502, 504]
RARE = "/a-needle-in-it"
RARE_EVERY = 2_500_000
REPEATS = 5
MB = 1024**2


class Records:
    """Records without end, in batches; the same ones at each run."""

    def __init__(self, seconds_each: float) -> None:
        self._dice = random.Random(20_270_115)
        self._hosts = [f"{name}.{self._dice.choice(('example', 'test', 'service'))}.net" for name in _names(self._dice)]
        self._weights = [1 / (rank + 1) for rank in range(HOSTS)]
        self._each = seconds_each
        self._clients = [f"10.{at >> 16 & 255}.{at >> 8 & 255}.{at & 255}" for at in range(CLIENTS)]

    def batches(self, start: float) -> Iterator[list[list[Any]]]:
        """From this time on."""
        dice, number = self._dice, 0
        while True:
            hosts = dice.choices(self._hosts, self._weights, k=BATCH)
            statuses = dice.choices(STATUSES, k=BATCH)
            clients = dice.choices(self._clients, k=BATCH)
            batch = []
            for host, status, client in zip(hosts, statuses, clients, strict=True):
                batch.append(self._record(number, start, host, status, client))
                number += 1
            yield batch

    def _record(self, number: int, start: float, host: str, status: int, client: str) -> list[Any]:
        bits = self._dice.getrandbits(64)
        tunnel = bits & 1
        path = f"{_PATHS[bits >> 1 & 7]}/{bits >> 24:010x}?page={bits >> 8 & 63}"
        url = f"{host}:443" if tunnel else f"http://{host}/{path}"
        if number % RARE_EVERY == RARE_EVERY // 2:
            url = f"http://{host}{RARE}"
        return [
            start + number * self._each,
            "warning" if status >= 500 else "info",
            f"prx_{(bits >> 4) % PROXIES:016x}",
            client,
            f"user{bits % USERS}" if bits & 6 else "",
            "CONNECT" if tunnel else "GET",
            url,
            status,
            bits >> 10 & 255,
            bits >> 10 & 1023,
            bits >> 20 & 2047,
            bits >> 30 & 0xFFFFF,
            f"0123456789ab{number:08x}",
            "" if status < 500 else "connection_timeout",
            "",
        ]


_PATHS = ("a", "img", "api/v1/items", "search", "static/js", "static/css", "users", "feed")


def measure(folder: Path, records: int) -> list[Row]:
    """All rows about an index of so many records in `folder`."""
    now = FIRST_MIDNIGHT
    index = LogIndex(folder / "logs", lambda: now)
    each = DAYS * DAY / records
    spent = 0.0
    for number, batch in enumerate(Records(each).batches(FIRST_MIDNIGHT), 1):
        now = batch[-1][0]
        packed = msgpack.packb(batch)
        began = time.process_time()
        index.commit(Batch("bench", 1, number, 1, msgpack.unpackb(packed)))
        spent += time.process_time() - began
        if number % 1_000 == 0:
            print(f"{number * BATCH:,} records", file=sys.stderr)
        if number * BATCH >= records:
            break
    taken = sum(file.stat().st_size for file in (folder / "logs").iterdir())
    rows = [
        Row("logs: indexed by one core", "records/s", records / spent, bar=Bar(50_000, at_least=True)),
        Row("logs: room for a million records", "MB", taken / MB / records * 1e6, bar=Bar(250)),
        *_searches(index, records, now),
        *_beside_a_search(index, now),
    ]
    index.close()
    return rows


def _searches(index: LogIndex, records: int, now: float) -> list[Row]:
    many = f"{records / 1e6:g} million"
    rare = records // RARE_EVERY or None
    proxy = {"proxy_ids": (f"prx_{7:016x}",), "status_code": 504}
    asked: list[tuple[str, dict[str, Any], float, int | None]] = [
        (f"a common word in {many}, newest 100", {"search": "service.net"}, 200, None),
        (f"a part of a host in {many}, newest 100", {"search": "ervice.ne"}, 200, None),
        (f"two words in {many}, newest 100", {"search": "static/js 404"}, 200, None),
        (f"a rare word in {many}, all days", {"search": RARE.strip("/")}, 1000, rare),
        (f"a word that isn't there in {many}, all days", {"search": "no-such-word"}, 1000, 0),
        (f"a proxy and a status in {many}, newest 100", proxy, 100, None),
        ("a proxy and a status in the last day, newest 100", {**proxy, "start": now - DAY}, 100, None),
        (f"a client's address in {many}, newest 100", {"client_ip": "10.0.7.7"}, 200, None),
        (f"the newest 100 of {many}", {}, 100, records),
        ("the newest 100 of the last hour", {"start": now - 3600}, 100, None),
    ]
    rows, searcher = [], Searcher(index.path.parent)
    for name, query, limit, expected in asked:
        elapsed, cpu, page = _timed(lambda query=query: searcher.find(_query(**query)))  # type: ignore[misc]
        if expected is not None and page.total != expected:
            raise BenchError(f"{name}: {page.total} records found, and there are {expected}")
        print(
            f"{name}: {elapsed:.1f} ms, {cpu:.1f} ms of CPU, {page.total} found{' or more' if page.at_least else ''}",
            file=sys.stderr,
        )
        rows.append(Row(f"logs: {name}", "ms", elapsed, bar=Bar(limit), beside=Beside("ms of CPU", cpu)))
    searcher.close()
    return rows


def _beside_a_search(index: LogIndex, now: float) -> list[Row]:
    """How long a batch waits for its acknowledgement while a search reads as much as it may, in another thread."""
    waits: list[float] = []
    batches = Records(0.0).batches(now)

    def search() -> None:
        searcher = Searcher(index.path.parent)
        searcher.find(_query(search="?=!"))
        searcher.close()

    share_fairly()
    thread = threading.Thread(target=search)
    thread.start()
    number = 0
    while thread.is_alive():
        number += 1
        batch = next(batches)
        began = time.perf_counter()
        index.commit(Batch("beside", 1, number, 1, batch))
        waits.append((time.perf_counter() - began) * 1e3)
    p99 = statistics.quantiles(waits, n=100)[98]
    return [Row("logs: a batch's commit beside the slowest search, p99", "ms", p99, bar=Bar(250))]


def _timed(search: Callable[[], LogPage]) -> tuple[float, float, LogPage]:
    """Milliseconds by the clock and of this process, the medians; the response."""
    search()
    elapsed, spent = [], []
    for _ in range(REPEATS):
        began, cpu = time.perf_counter(), time.process_time()
        page = search()
        elapsed.append((time.perf_counter() - began) * 1e3)
        spent.append((time.process_time() - cpu) * 1e3)
    return statistics.median(elapsed), statistics.median(spent), page


def _query(**fields: Any) -> QueryLogs:
    everything = {
        "start": 0.0,
        "end": 1e11,
        "limit": 100,
        "offset": 0,
        "level": None,
        "search": None,
        "proxy_ids": None,
    }
    return QueryLogs(**{**everything, **fields})


def _names(dice: random.Random) -> list[str]:
    syllables = ("ba", "do", "ke", "li", "mu", "na", "po", "ra", "se", "ti", "vo", "zu")
    return ["".join(dice.choices(syllables, k=4)) + str(at) for at in range(HOSTS)]


def channel(product: Product, rate: int, seconds: float) -> list[Row]:
    """The real indexer under `rate` records/s from one sender, for so long."""
    loop, context = Loop(), zmq.Context()
    sender = RecordSender(loop, context, product.run_dir.records, "bench", time.time_ns() // 1_000)
    indexer = next(pid for pid in product.processes() if Path(f"/proc/{pid}/comm").read_text().strip() == LOGS)
    batches = Records(0.0).batches(time.time())
    before, began, sent = cpu_seconds([indexer]), time.monotonic(), 0
    while (elapsed := time.monotonic() - began) < seconds:
        while sent < rate * elapsed:
            for record in next(batches):
                record[0] = time.time()
                sender.add(tuple(record))
            sent += BATCH
        loop.turn(0.005)
    while not sender.settled and time.monotonic() - began < seconds + 30:
        loop.turn(0.05)
    spent = cpu_seconds([indexer]) - before
    lost = sender.dropped + (0 if sender.settled else sent)
    sender.close()
    context.term()
    loop.close()
    found = product.call("GET", "/logs?limit=1")["total"]
    if found < sent - lost:
        raise BenchError(f"{sent} records were sent and {found} are found")
    name = f"logs: {rate:,} records/s for {seconds:g} s"
    return [
        Row(f"{name}, lost", "", lost, bar=Bar(0)),
        Row(f"{name}, CPU of the indexer", "% of a core", spent / seconds * 100),
    ]
