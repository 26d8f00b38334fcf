"""The data of a large installation, put into a new data directory by the product's own classes."""

from __future__ import annotations

import itertools
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from actors.bus.records import Batch
from actors.logs.index import LogIndex
from benchmarks import accounts
from benchmarks.logs import BATCH, DAY, DAYS, Records
from benchmarks.management.servers import configure
from config.files.paths import open_data_dir


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is of everything."""

    proxies: int
    accounts: int
    records: int


LARGE = Size(10_000, 100_000, 10_000_000)
SMALL = Size(1_000, 2_000, 100_000)


def fill(data: Path, size: Size) -> None:
    """Make it; the records are those of the last days, up to now."""
    configure(data, size.proxies)
    accounts.fill(data, size.accounts)
    _records(open_data_dir(data).logs, size.records, time.time())


def _records(folder: Path, count: int, until: float) -> None:
    start = now = until - DAYS * DAY
    index = LogIndex(folder, lambda: now)
    batches = Records(DAYS * DAY / count).batches(start)
    for number, batch in enumerate(itertools.islice(batches, count // BATCH), 1):
        now = float(batch[-1][0])
        index.commit(Batch("bench", 1, number, 1, batch))
        if number % 1_000 == 0:
            print(f"{number * BATCH:,} records", file=sys.stderr)
    index.close()
