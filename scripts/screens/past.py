"""Records and series of the days before the pictures, written by the product's own classes while it is stopped."""

from __future__ import annotations

import math
import random
import time
from pathlib import Path

from actors.bus.records import Batch
from actors.histogram import bucket_of
from actors.logs.index import LogIndex
from actors.logs.record_schema import Row
from actors.metrics.increments import PLACE, RESIDENT_SAMPLES, Increments
from actors.metrics.series import TOTAL, Series
from actors.sqlite import open_database
from config.files.paths import open_data_dir
from screens.clients import RATES, TUNNELS, address, host
from screens.names import ACCOUNTS, PATHS, REFUSED
from screens.seed import Seeded

DAY, MINUTE = 86_400, 60
BATCH = 500
KEPT_SHARE = 0.02
"""Of the requests that the series have, those with a record: enough for the pictures."""


def write(data: Path, seeded: Seeded) -> None:
    """A day of both, up to now."""
    directory, now = open_data_dir(data), time.time()
    proxies = {name: proxy["id"] for name, proxy in seeded.proxies.items() if name in RATES}
    _series(directory.metrics / "totals.sqlite", proxies, now)
    _records(directory.logs, proxies, now)


def _busy(ago: float) -> float:
    """The share of the traffic of now that there was so many seconds ago: half a day ago it was night."""
    return (0.7 + 0.3 * math.cos(ago / DAY * 2 * math.pi)) * random.uniform(0.94, 1.06)


def _series(file: Path, proxies: dict[str, str], now: float) -> None:
    database = open_database(file, "")
    series = Series(database)
    first = int(now // MINUTE - DAY // MINUTE) * MINUTE
    database.execute("BEGIN")
    for at in range(first, int(now), MINUTE):
        total = Increments()
        for name, proxy_id in proxies.items():
            counted = _minute(name, _busy(now - at))
            series.add(proxy_id, counted, at)
            total.add(counted)
        series.add(TOTAL, total, at)
        series.add_machine(MINUTE, random.uniform(20, 35), random.uniform(40, 44), at)
    series.store(now)
    database.execute("COMMIT")
    series.stored(now)
    database.close()


def _minute(name: str, busy: float) -> Increments:
    requests = int(RATES[name] * MINUTE * busy * random.uniform(0.8, 1.2))
    slow = random.lognormvariate(0, 0.15)
    made = Increments(latency={})
    for _ in range(24):
        bucket = bucket_of(random.lognormvariate(-2.9, 0.75) * slow)
        made.latency[bucket] = made.latency.get(bucket, 0) + max(1, requests // 24)
    counted = {
        "requests": requests,
        "errors": int(requests * random.uniform(0.002, 0.012)),
        "denied": int(requests * random.uniform(0.01, 0.03)),
        "bytes_in": requests * random.randrange(500, 900),
        "bytes_out": requests * random.randrange(28_000, 40_000),
        "response_seconds": requests * 0.07 * slow,
        "answered": requests,
        "active": int(TUNNELS[name] * busy),
        "resident": 30_000_000,
        RESIDENT_SAMPLES: 1,
    }
    for field, value in counted.items():
        made.values[PLACE[field]] = value
    return made


def _records(folder: Path, proxies: dict[str, str], until: float) -> None:
    at = until - DAY
    index = LogIndex(folder, lambda: at)
    rows: list[Row] = []
    number = 0
    while at < until:
        at += random.expovariate(sum(RATES.values()) * KEPT_SHARE * _busy(until - at))
        rows.append(_record(random.choices(list(proxies.values()), [RATES[name] for name in proxies])[0], at))
        if len(rows) == BATCH or at >= until:
            number += 1
            index.commit(Batch("past", 1, number, 1, rows))
            rows = []
    index.close()


def _record(proxy_id: str, at: float) -> Row:
    name, tunnel = host(), random.random() < 0.45
    target = f"{name}:443" if tunnel else f"http://{name}/{random.choice(PATHS)}"
    status = 200 if tunnel else random.choice((200,) * 40 + (304,) * 3 + (404,) * 2 + (503,))
    reason = detail = rule = ""
    if name == REFUSED:
        status, reason, rule = 403, "http_request_denied", f"deny_destinations: {REFUSED}"
        detail = "the destination is denied by an access rule"
    took = random.lognormvariate(3.4, 0.7)
    longer = random.uniform(1_000, 200_000) if tunnel and not reason else random.uniform(0, 40)
    level = "warning" if status >= 500 else "info"
    sizes = (0, 300) if reason else (random.randrange(300, 9_000), int(random.lognormvariate(9.4, 1.6)))
    return [
        at,
        level,
        proxy_id,
        address(),
        random.choice(ACCOUNTS),
        "CONNECT" if tunnel else "GET",
        target,
        status,
        took,
        took + longer,
        *sizes,
        f"req_{random.getrandbits(96):024x}",
        reason,
        "",
        detail,
        rule,
        "",
    ]
