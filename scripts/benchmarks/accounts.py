"""Accounts of the fleet: what many of them cost, how soon a new one works, how fast credentials are made.

Each figure is taken with few accounts and with many, since it must not grow with their number. Beside the product's own
figures stands squid with basic_ncsa_auth, whose helper reads a file of users.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from actors.accounts.records import effective
from actors.accounts.table import TableReader
from api.store import Write
from api.store.accounts import open_accounts
from benchmarks.client_signins import FEW, PASSWORD, SignIns, median_ms, refusals, request, rows_of, sign_ins, squids
from benchmarks.ours import Product
from benchmarks.peers import Origin
from benchmarks.processes import BenchError, free_port, pss, uss
from benchmarks.report import Bar, Row
from config.files.paths import open_data_dir
from config.model.fleet_accounts import FleetAccount
from config.passwords import hash_password

MB = 1024**2
BATCH = 5_000
SAMPLES = 15
PAGES = 60
MINTED_EACH_SECOND = 100


def measure(folder: Path, origin: Origin, accounts: int, proxies: int, seconds: float) -> list[Row]:
    """With `FEW` accounts, then with `accounts`, each with so many proxies; `seconds` of minting."""
    memory: dict[int, float] = {}
    ours: dict[int, SignIns] = {}
    rows: list[Row] = []
    for count in (FEW, accounts):
        own = folder / str(count)
        own.mkdir()
        fill(own / "data", count)
        with ExitStack() as stack:
            product = Product(own)
            stack.callback(product.end)
            ports = [_proxy(product, number) for number in range(proxies)]
            memory[count] = pss(product.processes())
            ours[count] = sign_ins(ports[0], origin, product)
            if count == accounts:
                rows += _with_many(product, own, ports, origin, seconds)
    more = (memory[accounts] - memory[FEW]) / MB
    return [
        Row(f"memory for {accounts:,} accounts, product with {proxies} proxies (PSS)", "MB", more, bar=Bar(100.0)),
        *rows,
        *rows_of(ours, accounts, squids(folder, origin, (FEW, accounts))),
    ]


def measure_sign_ins(folder: Path, origin: Origin, accounts: int) -> list[Row]:
    """Sign-ins of clients alone, with one proxy."""
    ours: dict[int, SignIns] = {}
    refused: list[Row] = []
    for count in (FEW, accounts):
        own = folder / str(count)
        own.mkdir()
        fill(own / "data", count)
        with ExitStack() as stack:
            product = Product(own)
            stack.callback(product.end)
            port = _proxy(product, 0)
            ours[count] = sign_ins(port, origin, product)
            if count == accounts:
                refused = refusals(product, port)
    return [*rows_of(ours, accounts, squids(folder, origin, (FEW, accounts))), *refused]


def fill(data: Path, count: int) -> None:
    """Put so many accounts into a new data directory, by the product's own store."""
    hashed, now = hash_password(PASSWORD), time.time()
    with closing(open_accounts(open_data_dir(data))) as store:
        numbers = iter(range(count))
        while batch := list(itertools.islice(numbers, BATCH)):
            store.commit([Write("accounts", (made := _account(each, hashed, now))["id"], made) for each in batch])


def _account(number: int, hashed: str, now: float) -> dict[str, Any]:
    name, identifier = f"account-{number:06}", f"acc_{number:016x}"
    made = FleetAccount(id=identifier, username=name, password_hash=hashed, created_at=now, updated_at=now)
    made.metadata["customer"] = f"{number:08}"
    return made.model_dump(mode="json")


def _proxy(product: Product, number: int) -> int:
    port = free_port()
    body = {"name": f"proxy-{number}", "port": port, "protocol": "http", "auth": {"enabled": True}}
    product.forwarding_pid(product.call("POST", "/proxies", body)["proxy"]["id"])
    return port


# --- with many accounts ---


def _with_many(product: Product, folder: Path, ports: Sequence[int], origin: Origin, seconds: float) -> list[Row]:
    return [
        *_actor_memory(product, ports, origin),
        _first_lookup(folder),
        *_creates(product, ports, origin),
        *_pages(product),
        *_minting(product, seconds),
    ]


def _actor_memory(product: Product, ports: Sequence[int], origin: Origin) -> list[Row]:
    """What accounts cost a further actor: one that has checked passwords beside one with the same requests.

    The latter wants no credentials. Any request costs an actor that was idle before. Two actors check the same
    passwords: all actors share the table's pages, which would count as the first one's own while it is alone.
    """
    proxies = {each["port"]: each for each in product.call("GET", "/proxies?per_page=100")["proxies"]}
    used, unused, without, first = ports[:4]
    product.call("PATCH", f"/proxies/{proxies[without]['id']}", {"auth": {"enabled": False}})
    for number in [*range(1, FEW), *range(1, FEW), *random.sample(range(FEW), FEW)]:  # the first two as in `_sign_ins`
        request(without, origin, f"account-{number:06}", PASSWORD)
    for number in random.sample(range(FEW), FEW):
        for port in (first, used):
            request(port, origin, f"account-{number:06}", PASSWORD)
    memory = {port: uss([proxies[port]["runtime"]["pid"]]) / MB for port in (used, unused, without)}
    name = "a further actor that has checked passwords of the table, beside"
    return [
        Row(f"{name} one of as many requests without (USS)", "MB", memory[used] - memory[without], bar=Bar(1.0)),
        Row(f"{name} an idle one (USS)", "MB", memory[used] - memory[unused]),
    ]


def _first_lookup(folder: Path) -> Row:
    """An account that this process has not seen, from its name to what is in force for it."""
    data = open_data_dir(folder / "data")
    reader = TableReader(data.accounts_table)
    with closing(reader):
        count = 2_000
        names = [f"account-{random.randrange(10_000):06}" for _ in range(count)]
        began = time.perf_counter()
        for name in names:
            for account in reader.accounts_named(name):
                effective(account, None)
        took = (time.perf_counter() - began) / count
    return Row("lookup of an account for its first request", "us", took * 1e6, bar=Bar(50.0))


def _creates(product: Product, ports: Sequence[int], origin: Origin) -> list[Row]:
    """From the request that creates an account until it has got through a proxy, and until the API has responded."""
    responded, worked = [], []
    for number in range(SAMPLES):
        body = {"username": f"new-{number}", "password": PASSWORD}
        began = time.monotonic()
        product.call("POST", "/accounts", body)
        responded.append(time.monotonic() - began)
        request(random.choice(ports), origin, body["username"], PASSWORD)
        worked.append(time.monotonic() - began)
    return [
        Row("create an account, durable and usable on all proxies", "ms", median_ms(responded), bar=Bar(60.0)),
        Row("create an account until its first response through a proxy", "ms", median_ms(worked)),
    ]


def _pages(product: Product) -> list[Row]:
    def page(query: str) -> Callable[[], object]:
        return lambda: product.call("GET", f"/accounts?limit=50{query}")

    kinds = {"by name": "", "newest first": "&sort=-created_at", "a search": "&q=ount-0042"}
    return [
        Row(f"a page of 50 accounts, {name}, p99", "ms", p99_ms(_times(page(query), PAGES)), bar=Bar(25.0))
        for name, query in kinds.items()
    ]


def _minting(product: Product, seconds: float) -> list[Row]:
    """At a steady rate; each is durable."""
    took, late = [], 0
    began = time.monotonic()
    for number in range(int(seconds * MINTED_EACH_SECOND)):
        due = began + number / MINTED_EACH_SECOND
        pause = due - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        late += pause < -1.0
        begins = time.monotonic()
        account = f"acc_{number % FEW:016x}"
        product.call("POST", f"/accounts/{account}/credentials", {"ttl": 900})
        took.append(time.monotonic() - begins)
    if late:
        raise BenchError(f"{late} of {len(took)} credentials were more than a second late")
    return [
        Row(f"mint a credential, {MINTED_EACH_SECOND} a second, p99", "ms", p99_ms(took), bar=Bar(10.0)),
        Row(f"mint a credential, {MINTED_EACH_SECOND} a second, median", "ms", median_ms(took)),
    ]


# --- figures ---


def _times(act: Callable[[], object], count: int) -> list[float]:
    def each() -> Iterator[float]:
        for _ in range(count):
            began = time.monotonic()
            act()
            yield time.monotonic() - began

    return list(each())


def p99_ms(seconds: Sequence[float]) -> float:
    """In ms."""
    return sorted(seconds)[min(len(seconds) - 1, int(len(seconds) * 0.99))] * 1e3
