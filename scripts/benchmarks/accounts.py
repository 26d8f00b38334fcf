"""Accounts of the fleet: what many of them cost, how soon a new one works, how fast credentials are made.

Each figure is taken with few accounts and with many, since it must not grow with their number. Beside the product's own
figures stands squid with basic_ncsa_auth, whose helper reads a file of users.
"""

from __future__ import annotations

import base64
import http.client
import itertools
import random
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from actors.accounts.records import effective
from actors.accounts.table import TableReader
from api.store import Write
from api.store.accounts import open_accounts
from benchmarks.ours import Product
from benchmarks.peers import Origin, Program, program
from benchmarks.processes import BenchError, free_port, pss, uss, wait_until
from benchmarks.report import Bar, Row
from config.files.paths import open_data_dir
from config.model.fleet_accounts import FleetAccount
from config.passwords import hash_password

MB = 1024**2
FEW = 10
PASSWORD = "a password for the benchmark"
BATCH = 5_000
SAMPLES = 15
PAGES = 60
MINTED_EACH_SECOND = 100
HELPER = Path("/usr/lib/squid/basic_ncsa_auth")
TIMEOUT = 30.0


def measure(folder: Path, origin: Origin, accounts: int, proxies: int, seconds: float) -> list[Row]:
    """With `FEW` accounts, then with `accounts`, each with so many proxies; `seconds` of minting."""
    memory, sign_ins = {}, {}
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
            sign_ins[count] = _sign_ins(ports[0], origin)
            if count == accounts:
                rows += _with_many(product, own, ports, origin, seconds)
    more = (memory[accounts] - memory[FEW]) / MB
    return [
        Row(f"memory for {accounts:,} accounts, product with {proxies} proxies (PSS)", "MB", more, bar=Bar(100.0)),
        *rows,
        *_sign_in_rows(sign_ins, accounts, _squid(folder, origin, (FEW, accounts))),
    ]


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
    """What accounts cost an actor: one that has checked passwords of the table beside one with the same requests.

    The latter wants no credentials. Any request costs an actor that was idle before.
    """
    proxies = {each["port"]: each for each in product.call("GET", "/proxies?per_page=100")["proxies"]}
    used, unused, without = ports[0], ports[1], ports[2]
    product.call("PATCH", f"/proxies/{proxies[without]['id']}", {"auth": {"enabled": False}})
    for number in [*range(1, FEW), *range(1, FEW), *random.sample(range(FEW), FEW)]:  # the first two as in `_sign_ins`
        request(without, origin, f"account-{number:06}", PASSWORD)
    for number in random.sample(range(FEW), FEW):
        request(used, origin, f"account-{number:06}", PASSWORD)
    memory = {port: uss([proxies[port]["runtime"]["pid"]]) / MB for port in (used, unused, without)}
    name = "an actor that has checked passwords of the table, beside"
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


# --- sign-ins of clients ---


def _sign_ins(port: int, origin: Origin) -> dict[str, float]:
    """Medians in ms of a client's first request with a name, and of one whose credentials are known."""
    names = [f"account-{number:06}" for number in range(1, FEW)]
    first = [request(port, origin, name, PASSWORD) for name in names]
    again = [request(port, origin, name, PASSWORD) for name in names]
    return {"first": median_ms(first), "again": median_ms(again)}


def _sign_in_rows(ours: dict[int, dict[str, float]], accounts: int, squid: dict[int, dict[str, float]]) -> list[Row]:
    kinds = {"first": "first request of a client, with the check of its password", "again": "one that is known"}
    rows = []
    for kind, name in kinds.items():
        for count in (FEW, accounts):
            peer = squid.get(count, {}).get(kind)
            rows.append(Row(f"{name}, {count:,} accounts", "ms", ours[count][kind], "squid" if squid else "", peer))
        grown = ours[accounts][kind] / ours[FEW][kind]
        rows.append(Row(f"{name}: {accounts:,} accounts beside {FEW}", "x", grown, bar=Bar(1.3)))
    return rows


def _squid(folder: Path, origin: Origin, counts: Sequence[int]) -> dict[int, dict[str, float]]:
    """The same of squid with basic_ncsa_auth; empty where it is not installed. Its users have hashes of MD5."""
    if not HELPER.exists() or shutil.which("openssl") is None:
        return {}
    command = ["openssl", "passwd", "-apr1", PASSWORD]
    hashed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    found = {}
    for count in counts:
        own = folder / f"squid-{count}"
        own.mkdir(mode=0o755)
        users = own / "users"
        users.write_text("".join(f"account-{number:06}:{hashed}\n" for number in range(count)))
        users.chmod(0o644)
        peer = _SquidWithUsers(own, users)
        try:
            wait_until(lambda port=peer.port: _responds(port, origin), "squid checks passwords", 60.0)  # type: ignore[misc]
            found[count] = _sign_ins(peer.port, origin)
        finally:
            peer.end()
    return found


class _SquidWithUsers(Program):
    """squid that wants credentials, with one helper."""

    def __init__(self, folder: Path, users: Path) -> None:
        folder.chmod(0o777)  # it gives up root's rights before it opens its log
        port = free_port()
        configuration = f"""
http_port 127.0.0.1:{port}
auth_param basic program {HELPER} {users}
auth_param basic children 1 startup=1
acl known proxy_auth REQUIRED
http_access allow known
cache deny all
access_log none
cache_log {folder}/squid-cache.log
pid_filename none
netdb_filename none
pinger_enable off
coredump_dir none
shutdown_lifetime 0 seconds
"""
        super().__init__("squid", folder, port, [program("squid"), "-N", "-f", f"{folder}/squid.conf"], configuration)


def _responds(port: int, origin: Origin) -> bool:
    try:
        request(port, origin, "account-000000", PASSWORD)
    except (OSError, BenchError, http.client.HTTPException):
        return False
    return True


# --- requests and figures ---


def request(port: int, origin: Origin, user: str, password: str) -> float:
    """Seconds of one request on a new connection, which gets 404 from the origin. Raises `BenchError`."""
    pair = base64.b64encode(f"{user}:{password}".encode()).decode()
    began = time.monotonic()
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)) as client:
        client.request("GET", f"http://127.0.0.1:{origin.port}/none", headers={"Proxy-Authorization": f"Basic {pair}"})
        response = client.getresponse()
        content = response.read()
    if response.status != http.HTTPStatus.NOT_FOUND:
        raise BenchError(f"a request of {user} at port {port}: {response.status} {content[:200]!r}")
    return time.monotonic() - began


def _times(act: Callable[[], object], count: int) -> list[float]:
    def each() -> Iterator[float]:
        for _ in range(count):
            began = time.monotonic()
            act()
            yield time.monotonic() - began

    return list(each())


def median_ms(seconds: Sequence[float]) -> float:
    """In ms."""
    return statistics.median(seconds) * 1e3


def p99_ms(seconds: Sequence[float]) -> float:
    """In ms."""
    return sorted(seconds)[min(len(seconds) - 1, int(len(seconds) * 0.99))] * 1e3
