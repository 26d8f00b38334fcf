"""The report of usage at full size: every account on every day of a month, each format in one response of the API."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

from actors.metrics.account_usage import DAY, FIGURES, UsageLedger
from actors.sqlite import transaction
from benchmarks.accounts import MB, fill
from benchmarks.ours import Product
from benchmarks.processes import BenchError, uss
from benchmarks.report import Bar, Row
from config.files.paths import open_data_dir

DAYS = 31
TO_READ = 1 << 16
"""Bytes that a client reads at once."""


def measure(folder: Path, accounts: int) -> list[Row]:
    """Both formats, for so many accounts."""
    fill(folder / "data", accounts)
    _fill_days(folder / "data", accounts)
    with ExitStack() as stack:
        product = Product(folder)
        stack.callback(product.end)
        return [row for kind in ("csv", "json") for row in _export(product, kind, accounts)]


def _fill_days(data: Path, accounts: int) -> None:
    """What each account used on each of the days before today, in the collector's own file."""
    file = open_data_dir(data).usage
    UsageLedger(file.parent).close()
    today = int(time.time()) // DAY
    with closing(sqlite3.connect(file, isolation_level=None)) as database, transaction(database):
        database.execute("INSERT INTO proxies VALUES (1, 'prx_0000000000000001')")
        names = ((f"acc_{number:016x}", f"account-{number:06}") for number in range(accounts))
        database.executemany("INSERT INTO accounts (id, username) VALUES (?, ?)", names)
        marks = ", ".join("?" * (3 + len(FIGURES)))
        database.executemany(f"INSERT INTO days VALUES ({marks})", _days(today, accounts))


def _days(today: int, accounts: int) -> Iterator[tuple[int, ...]]:
    for day in range(today - DAYS, today):
        for number in range(1, accounts + 1):
            yield (day, number, 1, 1_000 * number, 9_000 * number, 17, 1_500, 1)


def _export(product: Product, kind: str, accounts: int) -> list[Row]:
    """From the request to the last byte, and the most memory that the API had more than before."""
    pid = next(each for each in product.processes() if _is_api(each))
    before = uss([pid])
    most, ended = [before], threading.Event()

    def watch() -> None:
        while not ended.wait(0.05):
            most.append(uss([pid]))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        began = time.monotonic()
        rows = _read(product, kind)
        took = time.monotonic() - began
    finally:
        ended.set()
        watching.join()
    if rows != accounts * DAYS:
        raise BenchError(f"{kind}: {rows:,} rows, not {accounts * DAYS:,}")
    name = f"usage of {accounts:,} accounts on {DAYS} days as {kind}"
    return [
        Row(f"{name}, {rows:,} rows", "s", took, bar=Bar(30.0)),
        Row(f"{name}, memory of the API meanwhile (USS)", "MB", (max(most) - before) / MB, bar=Bar(200.0)),
    ]


def _read(product: Product, kind: str) -> int:
    """The number of rows in the response."""
    start = time.strftime("%Y-%m-%d", time.gmtime(time.time() - DAYS * DAY))
    end = time.strftime("%Y-%m-%d", time.gmtime())
    query = f"from={start}T00:00:00Z&to={end}T00:00:00Z&interval=day&group_by=account&format={kind}"
    url = f"http://127.0.0.1:{product.port}/api/v1/usage?{query}"
    mark, found, rest = (b"\n", 0, b"") if kind == "csv" else (b'"from"', 0, b"")
    with product.session().get(url, stream=True, timeout=120) as response:
        if not response.ok:
            raise BenchError(f"GET /usage: {response.status_code} {response.text[:500]}")
        for piece in response.iter_content(TO_READ):
            found += (rest + piece).count(mark)
            rest = piece[-(len(mark) - 1) :] if len(mark) > 1 else b""
    return found - 1 if kind == "csv" else found


def _is_api(pid: int) -> bool:
    """Whether this process is the API; the product names its processes."""
    return Path(f"/proc/{pid}/comm").read_text().strip().endswith("api")
