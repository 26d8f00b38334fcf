"""`scripts/bench accounts --mint-seconds N`: credentials at a steady rate, and what is left an hour after their end.

They live for seconds, and some of them are used. The hour for which a lapsed credential is still listed is not waited
for: its end is moved into the past in the store, behind the product's back, and the next purge removes it.
"""

from __future__ import annotations

import itertools
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

import lmdb
import psutil

from api.audit.trail import trail_file
from api.services.account_credentials import KEPT_AFTER_END, PURGE_PERIOD
from api.store.accounts import accounts_file
from benchmarks.accounts import MB, fill, p99_ms
from benchmarks.client_signins import FEW, median_ms, request
from benchmarks.ours import Product
from benchmarks.peers import Origin
from benchmarks.processes import free_port, uss, wait_until
from benchmarks.report import Bar, Row
from config.files.paths import DataDir, open_data_dir

RATE = 100
CLIENTS = 2
"""Of the API; each mints its share of `RATE`."""
LIFE = 30
"""Seconds that a credential lives."""
USED_EACH = 10
"""One of so many credentials is used for a request."""
PROXIES = 4
SETTLED = 15.0
"""Seconds after which everything that follows a purge is done, too."""


@dataclass(frozen=True, slots=True)
class State:
    """Sizes in MB; the rest are counts."""

    credentials: int
    deletions: int
    table_credentials: int
    audit_rows: int
    store_size: float
    table_size: float
    audit_size: float
    api_memory: float
    actors_memory: float
    other_memory: float


TEXTS = {
    "credentials": ("credentials in the store", ""),
    "deletions": ("deletions that followers may ask for", ""),
    "table_credentials": ("credentials in the table", ""),
    "audit_rows": ("entries of the audit trail", ""),
    "store_size": ("size of the store", "MB"),
    "table_size": ("size of the table", "MB"),
    "audit_size": ("size of the audit trail", "MB"),
    "api_memory": ("memory of the API (USS)", "MB"),
    "actors_memory": (f"memory of {PROXIES} forwarding actors (USS)", "MB"),
    "other_memory": ("memory of the other processes (USS)", "MB"),
}


def measure(folder: Path, origin: Origin, seconds: float) -> list[Row]:
    """Mint for so many seconds; the state before, then, and after everything has lapsed and was purged."""
    data = open_data_dir(folder / "data")
    fill(data.path, FEW)
    with ExitStack() as stack:
        product = Product(folder)
        stack.callback(product.end)
        minting = _Minting(product, origin)
        minting.run(5.0)
        states = {"before": _state(product, data)}
        began = time.monotonic()
        minting.run(seconds)
        took = time.monotonic() - began
        states["after minting"] = _state(product, data)
        _purged(data)
        states["after the purge"] = _state(product, data)
    return [*_rate_rows(minting, took), *_state_rows(states)]


class _Minting:
    """Proxies, and clients of the API that mint."""

    def __init__(self, product: Product, origin: Origin) -> None:
        self._product = product
        self._origin = origin
        self._ports = [_proxy(product, number) for number in range(PROXIES)]
        self.took: list[float] = []
        self.used = 0
        self.minted = 0

    def run(self, seconds: float) -> None:
        """Mint at `RATE`. Raises what a client raised."""
        self.took, self.used, self.minted = [], 0, 0
        secrets: list[str] = []
        failed: list[BaseException] = []
        threads = [threading.Thread(target=self._client, args=(seconds, secrets, failed)) for _ in range(CLIENTS)]
        for each in threads:
            each.start()
        ports = itertools.cycle(self._ports)
        while any(each.is_alive() for each in threads):
            time.sleep(0.05)
            while secrets:
                request(next(ports), self._origin, "", secrets.pop())
                self.used += 1
        if failed:
            raise failed[0]

    def _client(self, seconds: float, secrets: list[str], failed: list[BaseException]) -> None:
        try:
            with closing(self._product.session()) as session:
                for number in _paced(int(seconds * RATE / CLIENTS), RATE / CLIENTS):
                    began = time.monotonic()
                    path = f"/accounts/acc_{number % FEW:016x}/credentials"
                    made = self._product.call("POST", path, {"ttl": LIFE}, session)
                    self.took.append(time.monotonic() - began)
                    self.minted += 1
                    if number % USED_EACH == 0:
                        secrets.append(made["secret"])
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            failed.append(error)


def _paced(count: int, rate: float) -> Iterator[int]:
    """Numbers, each when it is due; those that are late at once."""
    began = time.monotonic()
    for number in range(count):
        pause = began + number / rate - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        yield number


def _proxy(product: Product, number: int) -> int:
    port = free_port()
    body = {"name": f"proxy-{number}", "port": port, "protocol": "http", "auth": {"enabled": True}}
    product.forwarding_pid(product.call("POST", "/proxies", body)["proxy"]["id"])
    return port


# --- what is left ---


def _purged(data: DataDir) -> None:
    """Return when the credentials have lapsed, their hour has passed as far as the store knows, and they are gone."""
    time.sleep(LIFE + 1)
    with _database(accounts_file(data)) as database:
        database.execute("UPDATE credentials SET expires_at = expires_at - ?", [KEPT_AFTER_END])
        database.commit()
    wait_until(lambda: _rows(accounts_file(data), "credentials") == 0, "the credentials are purged", 3 * PURGE_PERIOD)
    time.sleep(SETTLED)


def _state(product: Product, data: DataDir) -> State:
    actors, api, others = _processes(product)
    store, table, trail = accounts_file(data), data.accounts_table, trail_file(data)
    return State(
        credentials=_rows(store, "credentials"),
        deletions=_rows(store, "gone"),
        table_credentials=_table_credentials(table),
        audit_rows=_rows(trail, "audit"),
        store_size=_size(store),
        table_size=_size(table),
        audit_size=_size(trail),
        api_memory=uss(api) / MB,
        actors_memory=uss(actors) / MB,
        other_memory=uss(others) / MB,
    )


def _processes(product: Product) -> tuple[list[int], list[int], list[int]]:
    """Forwarding actors, the API, and the others."""
    found: tuple[list[int], list[int], list[int]] = ([], [], [])
    for pid in product.processes():
        name = psutil.Process(pid).name()
        found[0 if name.startswith("fwd-") else 1 if name == "api" else 2].append(pid)
    return found


def _table_credentials(table: Path) -> int:
    with (
        lmdb.open(str(table), subdir=False, readonly=True, max_dbs=8) as opened,
        opened.begin() as transaction,
    ):
        return int(transaction.stat(opened.open_db(b"credentials", transaction, create=False))["entries"])


def _rows(file: Path, table: str) -> int:
    with _database(file) as database:
        return int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


@contextmanager
def _database(file: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(file, timeout=30)) as database:
        yield database


def _size(file: Path) -> float:
    """With what is beside it, in MB."""
    return sum(each.stat().st_size for each in file.parent.glob(f"{file.name}*") if "lock" not in each.name) / MB


# --- rows ---


def _rate_rows(minting: _Minting, seconds: float) -> list[Row]:
    return [
        Row("credentials minted", "1/s", minting.minted / seconds, bar=Bar(0.98 * RATE, at_least=True)),
        Row("of them used for a request", "", minting.used),
        Row("mint a credential, median", "ms", median_ms(minting.took)),
        Row("mint a credential, p99", "ms", p99_ms(minting.took), bar=Bar(10.0)),
    ]


def _state_rows(states: dict[str, State]) -> list[Row]:
    rows = []
    for each in fields(State):
        text, unit = TEXTS[each.name]
        bar = Bar(0) if each.name in ("credentials", "table_credentials") else None
        rows += [
            Row(f"{text}, {when}", unit, getattr(state, each.name), bar=bar if when == "after the purge" else None)
            for when, state in states.items()
        ]
    return rows
