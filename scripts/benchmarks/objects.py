"""Measures of what is looked up: accounts and their credentials, sign-ins, rules, lists of domains, access records."""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

import msgpack

from actors.bus.messages.records import QueryLogs
from actors.bus.messages.specs import PolicySpec, RuleSpec
from actors.bus.records import RecordBatch
from actors.forwarding.fleet_objects import NO_LISTS
from actors.forwarding.policies.compiled import CompiledPolicy, compile_policy
from actors.forwarding.policies.facts import Facts
from actors.forwarding.policies.judge import Judge
from actors.lists.compiled import CompiledList
from actors.lists.compiler import ListCompiler
from actors.lists.reading import read_list
from actors.logs.index import LogIndex
from actors.logs.record_schema import empty_record
from actors.logs.search import Searcher
from actors.state.counts import SharedKey
from actors.state.live_state import LiveState
from actors.supervision.processes.live_state_files import LiveStateFiles
from benchmarks.ours import OURS, Product
from benchmarks.processes import BenchError, pss
from benchmarks.rounds import Bench, Figure, Results
from config.passwords import PREHASHED, hash_password
from config.text.access_fields import ACCESS_FIELDS
from tests.kit.product import PASSWORD


def p99(milliseconds: Sequence[float]) -> float:
    """The one that one in a hundred exceeds."""
    return sorted(milliseconds)[min(len(milliseconds) - 1, int(len(milliseconds) * 0.99))]


def timed(act: Callable[[], Any]) -> tuple[float, Any]:
    """Milliseconds, and the result."""
    began = time.perf_counter()
    result = act()
    return (time.perf_counter() - began) * 1e3, result


def microseconds(act: Callable[[], object], count: int) -> float:
    """Those of the processor for one of so many, in the best of five rounds."""
    times = []
    for _ in range(5):
        began = time.process_time()
        act()
        times.append((time.process_time() - began) / count * 1e6)
    return min(times)


# --- accounts and sign-ins ---

PROXIES, CLIENTS, MINTED_EACH_SECOND, FEW = 4, 2, 100, 10


def accounts(bench: Bench) -> Results:
    """Accounts of the fleet come by one import; then each figure is taken with all of them there."""
    product = Product().run()
    try:
        for _ in range(PROXIES):
            product.proxy(auth={"enabled": True})
        before, hashed = pss(product.everything()), PREHASHED + hash_password(PASSWORD)
        took = imported(product, hashed, bench.effort.accounts)
        some = [each["id"] for each in product.data("GET", f"/accounts?limit={FEW}&sort=username")["accounts"]]
        memory = pss(product.everything()) - before
        bodies = [{"username": f"new-{number}", "password_hash": hashed} for number in range(15)]
        creates = [timed(partial(product.data, "POST", "/accounts", body))[0] for body in bodies]
        pages = [timed(lambda: product.data("GET", "/accounts?limit=50"))[0] for _ in range(60)]
        minted = _minted(product, some, bench.effort.minting)
    finally:
        product.end()
    mint = {"mint": p99(minted), "mint median": statistics.median(minted)}
    return {
        OURS: {"import": took / 1e3, "create": statistics.median(creates), "page": p99(pages), "memory": memory, **mint}
    }


def imported(product: Product, hashed: str, number: int) -> float:
    """Import so many accounts with this hash; milliseconds. Raises `BenchError`."""
    names = (f"account-{each:06}" for each in range(number))
    body = "".join(json.dumps({"username": name, "password_hash": hashed}) + "\n" for name in names)
    headers = {"Content-Type": "application/x-ndjson"}
    took, response = timed(
        lambda: product.api("POST", "/accounts/import", data=body.encode(), headers=headers, timeout=600)
    )
    if response.status_code not in (200, 201):
        raise BenchError(f"import: {response.status_code} {response.text[:500]}")
    return took


def _minted(product: Product, some: Sequence[str], seconds: float) -> list[float]:
    """ms of each credential; each is durable. Raises `BenchError` when some were not made."""

    def mint(_client: int) -> list[float]:
        made = []
        with product.client() as client:
            began, rate = time.monotonic(), MINTED_EACH_SECOND / CLIENTS
            for number in range(int(seconds * rate)):
                time.sleep(max(0.0, began + number / rate - time.monotonic()))
                url = f"{product.base_url}/api/v1/accounts/{some[number % len(some)]}/credentials"
                milliseconds, response = timed(partial(client.post, url, json={"ttl": 900}, timeout=30))
                if response.status_code == 201:
                    made.append(milliseconds)
        return made

    with ThreadPoolExecutor(CLIENTS) as pool:
        took = [each for made in pool.map(mint, range(CLIENTS)) for each in made]
    if len(took) < int(seconds * MINTED_EACH_SECOND):
        raise BenchError(f"only {len(took)} credentials were made")
    return took


ATTEMPTS = {
    "wrong password": ("someuser", "wrong"),
    "unknown name": ("unknown", "wrong"),
    "disabled": ("disabled", PASSWORD),
    "locked, right password": ("locked", PASSWORD),
    "locked, wrong password": ("locked", "wrong"),
    "locked, unknown name": ("unknown-locked", "wrong"),
}
"""Kinds of refused sign-ins: name and password."""


def signin(bench: Bench) -> Results:
    """By how many percent the medians of refused sign-ins differ. Raises `BenchError` when their responses do."""
    product = Product().run()
    try:
        for name in ("someuser", "disabled", "locked"):
            user = product.data("POST", "/users", {"username": name, "password": PASSWORD})["user"]
            if name == "disabled":
                product.data("PATCH", f"/users/{user['id']}", {"status": "disabled"})
        with product.client() as client:
            client.headers.clear()

            def send(kind: str) -> tuple[int, str]:
                name, password = ATTEMPTS[kind]
                url = f"{product.base_url}/api/v1/auth/login"
                response = client.post(url, json={"username": name, "password": password}, timeout=60)
                body = response.json()
                body["error"].get("details", {}).pop("retry_after", None)
                return response.status_code, json.dumps(body)

            product.data("PATCH", "/settings", {"auth": {"max_login_attempts": 1}})
            for kind in ("locked, wrong password", "locked, unknown name"):
                send(kind)
            product.data("PATCH", "/settings", {"auth": {"max_login_attempts": 1000}})
            return {OURS: {"apart": spread(send, bench.effort.samples)}}
    finally:
        product.end()


def spread(send: Callable[[str], tuple[int, str]], rounds: int) -> float:
    """Percent between the slowest and the quickest kind; each round has all kinds in another order."""
    taken: dict[str, list[float]] = {kind: [] for kind in ATTEMPTS}
    responses: dict[bool, set[tuple[int, str]]] = {False: set(), True: set()}
    for number in range(rounds + 1):
        for kind in random.sample(list(ATTEMPTS), len(ATTEMPTS)):
            took, response = timed(partial(send, kind))
            responses[kind.startswith("locked")].add(response)
            if number:  # the first round only warms up
                taken[kind].append(took)
    if any(len(each) != 1 for each in responses.values()):
        raise BenchError(f"refused sign-ins get different responses: {responses}")
    middle = [statistics.median(each) for each in taken.values()]
    return (max(middle) / min(middle) - 1) * 100


# --- rules and lists ---

RULES = 1_000


def policies(bench: Bench) -> Results:
    """Microseconds from the facts of a request to the verdict, that at an address included; the best of five."""
    chance = random.Random(1)
    numbers = [chance.randrange(RULES * 5 // 4) for _ in range(bench.effort.samples * 20)]
    rules = tuple(
        RuleSpec(
            f"rule {number}",
            accounts=(f"tag:tag{number % 20}",),
            destinations=("*.example", f"10.{number >> 8}.{number & 255}.0/24"),
            methods=("GET", "POST"),
            paths=(f"/path{number}/*", f"/{number}/*/x"),
            clients=(f"192.0.{number % 200}.0/24", "198.51.100.0/24"),
            schedule=("Europe/Berlin", (((0, 1, 2, 3, 4), 480, 1080),)) if number % 2 else None,
            use="deny" if number % 3 else "direct",
        )
        for number in range(RULES)
    )
    policy = compile_policy(PolicySpec("policy_bench", "bench", rules), NO_LISTS)
    return {OURS: {"decision": microseconds(partial(_decide, policy, numbers), len(numbers))}}


def _decide(policy: CompiledPolicy, numbers: Sequence[int]) -> None:
    for number in numbers:
        tags, path = (f"tag{number % 20}", "other"), f"/path{number}/index.html?q=1"
        client, now = f"192.0.{number % 200}.7", 1_790_000_000.0
        facts = Facts(f"www.host{number}.example", 443, False, client, now, f"user{number}", tags, "GET", path)
        judge = Judge((policy,), facts)
        if judge.by_name() is None:
            judge.by_address("10.3.231.9")


# --- limits ---

USERS = (1, 50)
"""Other processes that use an account."""


def limits(bench: Bench) -> Results:
    """Microseconds of a request of an account with limits, as far as its limits are concerned."""
    folder, count, figure = bench.own("limits"), bench.effort.samples, {}
    files = LiveStateFiles(folder)
    states = [LiveState(time.monotonic, folder, "p", files.begin("p", each)) for each in range(1, 2 + max(USERS))]
    key, *others = [each.account("acc_1") for each in states]
    for users in USERS:
        for each in others[:users]:
            each.set_connections(1)
            each.add_requests(1)
        figure[f"{users}"] = microseconds(partial(_admit, key, count), count)
    return {OURS: figure}


def _admit(key: SharedKey, count: int) -> None:
    for _ in range(count):
        key.connections()
        key.set_connections(1)
        key.try_acquire(10**9)


def lists(bench: Bench) -> Results:
    """Seconds in which a list of domains is compiled, and microseconds of a look-up in it."""
    count, chance, file = bench.effort.domains, random.Random(1), bench.own("list") / "list"
    began = time.process_time()
    compiler = ListCompiler()
    read_list((f"{_domain(number)}\n".encode() for number in range(count)), "domains", "plain", compiler)
    compiler.compile().write(file)
    figure = {"compile": time.process_time() - began}
    content = CompiledList(file)
    missed = [f"www.cdn-{chance.getrandbits(32):08x}.example{chance.randrange(10_000)}.net" for _ in range(20_000)]
    found = [f"www.{_domain(chance.randrange(count))}" for _ in range(20_000)]
    if any(map(content.by_name, missed)) or not all(map(content.by_name, found)):
        raise BenchError("the list does not match what it has")
    for name, names in (("missed", missed), ("found", found)):
        figure[name] = microseconds(lambda some=names: [*map(content.by_name, some)], len(names))  # type: ignore[misc]
    return {OURS: figure}


def _domain(number: int) -> str:
    return f"host-{number * 2654435761 % 2**32:08x}.example{number % 5000}.com"


# --- access records ---

DAYS, BATCH, HOSTS, MIDNIGHT = 4, 1_000, 5_000, 1_800_057_600.0
RARE = "a-needle-in-it"
STATUSES = [200] * 180 + [304] * 10 + [404] * 6 + [403, 407, 502, 504]
PATHS = ("a", "img", "api/v1/items", "search", "static/js", "static/css", "users", "feed")
QUERIES: dict[str, dict[str, Any]] = {
    "common": {"search": "service.net"},
    "part": {"search": "ervice.ne"},
    "rare": {"search": RARE},
    "status": {"proxy_ids": ("prx_0000000000000007",), "status_code": 504},
    "client": {"client_ip": "10.0.7.7"},
    "newest": {},
}


def logs(bench: Bench) -> Results:
    """Records of four days are indexed in this process, for each second of its processor; then they are searched."""
    count, now, spent = bench.effort.records, MIDNIGHT, 0.0
    index = LogIndex(bench.own("logs"), lambda: now)
    for number, batch in enumerate(records(count), 1):
        now, packed = batch[-1][0], msgpack.packb(batch)
        began = time.process_time()
        index.commit(RecordBatch("bench", 1, number, 1, msgpack.unpackb(packed)))
        spent += time.process_time() - began
    room = sum(file.stat().st_size for file in index.path.parent.iterdir()) / 1024**2
    with ExitStack() as stack:
        stack.callback(index.close)
        searcher = Searcher(index.path.parent)
        stack.callback(searcher.close)
        figure = {"rate": count / spent, "room": room / count * 1e6, **_searched(searcher)}
    return {OURS: figure}


def _searched(searcher: Searcher) -> Figure:
    figure = {}
    for name, given in QUERIES.items():
        window = {"start": 0.0, "end": 1e11, "limit": 100, "offset": 0}
        query = QueryLogs(**{**window, "level": None, "search": None, "proxy_ids": None, **given})
        if not searcher.find(query).total:
            raise BenchError(f"nothing is found: {given}")
        figure[name] = statistics.median(timed(partial(searcher.find, query))[0] for _ in range(5))
    return figure


def records(count: int) -> Iterator[list[list[Any]]]:
    """In batches, the same at each run: half tunnels to one of 5,000 hosts, a few of them very common, half requests
    for URLs of which most are unlike all others; 20 proxies, 5,000 clients, 200 users."""
    dice = random.Random(20_270_115)
    syllables = ("ba", "do", "ke", "li", "mu", "na", "po", "ra", "se", "ti", "vo", "zu")
    hosts = [
        f"{''.join(dice.choices(syllables, k=4))}{at}.{dice.choice(('example', 'test', 'service'))}.net"
        for at in range(HOSTS)
    ]
    weights = [1 / (rank + 1) for rank in range(HOSTS)]
    others = list(empty_record().values())[ACCESS_FIELDS.index("parent") :]
    for first in range(0, count, BATCH):
        chosen, statuses = dice.choices(hosts, weights, k=BATCH), dice.choices(STATUSES, k=BATCH)
        batch = []
        for number, host, status in zip(range(first, first + BATCH), chosen, statuses, strict=True):
            bits = dice.getrandbits(64)
            path = RARE if number == count // 2 else f"{PATHS[bits >> 1 & 7]}/{bits >> 24:010x}?page={bits >> 8 & 63}"
            tunnel = bits & 1 and number != count // 2
            batch.append(
                [
                    MIDNIGHT + number * DAYS * 86_400 / count,
                    "warning" if status >= 500 else "info",
                    f"prx_{(bits >> 4) % 20:016x}",
                    f"10.0.{(bits >> 12) % 20}.{(bits >> 20) % 250}",
                    f"user{bits % 200}" if bits & 6 else "",
                    "CONNECT" if tunnel else "GET",
                    f"{host}:443" if tunnel else f"http://{host}/{path}",
                    status,
                    bits >> 10 & 255,
                    bits >> 10 & 1023,
                    bits >> 20 & 2047,
                    bits >> 30 & 0xFFFFF,
                    f"0123456789ab{number:08x}",
                    "" if status < 500 else "connection_timeout",
                    *others,
                ]
            )
        yield batch
