"""Fleets on this machine: real products as nodes, on a PostgreSQL of their own that syncs what it writes."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from benchmarks.ours import OURS, Product, store_proxies
from benchmarks.processes import BenchError
from benchmarks.rounds import QUICK, Bench
from tests.kit.cluster import Nodes, command
from tests.kit.ports import free_port
from tests.kit.postgresql_server import Server
from tests.kit.wait import wait_until

FIRST_PORT = 9_000
"""Proxies listen from there on, each node at an address of its own; a thousand are below those of `free_port`."""
SETTINGS = {
    "max_connections": "400",
    "shared_buffers": "256MB",
    "shared_preload_libraries": "pg_stat_statements",
    "track_functions": "none",
}
"""Of the server: for 50 nodes, and with a count of statements."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is done: nodes, proxies, accounts, changes, followers, records of a node, and seconds.

    `accounts` are those of reports, and `many` those of a fleet that a machine joins.
    """

    nodes: int = 10
    proxies: int = 1_000
    listed: int = 10_000
    seconds: float = 20
    samples: int = 200
    polled: int = 20
    quiet: float = 120
    many: int = 100_000
    away: int = 10_000
    followers: int = 50
    accounts: int = 1_000
    reports: float = 600
    quota: int = 1 << 30
    outage: float = 600
    records: int = 2_000_000
    searching: int = 5


FULL = Effort()
SHORT = Effort(3, 100, 500, 3, 20, 3, 8, 2_000, 500, 10, 200, 6, 64 << 20, 10, 20_000, 3)


def effort_of(bench: Bench) -> Effort:
    """That of this run."""
    return SHORT if bench.effort is QUICK else FULL


class Client:
    """One connection to the API of a node, kept open, with an API key. Not thread-safe."""

    def __init__(self, product: Product, key: str) -> None:
        self._product, self._key = product, key
        self._connection = http.client.HTTPConnection("127.0.0.1", product.port, timeout=60)
        self._fields = {"X-API-Key": key, "Content-Type": "application/json"}

    def send(self, method: str, path: str, body: object = None, revision: str = "") -> tuple[int, str, Any]:
        """Status, the revision of the configuration, and the body. `revision` is waited for at that node."""
        fields = {**self._fields, **({"X-Config-Revision": revision} if revision else {})}
        text = None if body is None else json.dumps(body)
        self._connection.request(method, f"/api/v1{path}", text, fields)
        response = self._connection.getresponse()
        data = response.read()
        return response.status, response.headers.get("X-Config-Revision", ""), json.loads(data) if data else None

    def done(self, method: str, path: str, body: object = None, revision: str = "") -> tuple[str, Any]:
        """Revision and data. Raises `BenchError` for an error."""
        status, at, found = self.send(method, path, body, revision)
        if status not in (200, 201):
            raise BenchError(f"{method} {path}: {status} {found}")
        return at, found["data"]

    def again(self) -> Client:
        """Another one, for a thread of its own."""
        return Client(self._product, self._key)


class Fleet(Nodes):
    """The products that are nodes, in `nodes`; `alone` makes one that is none."""

    def __init__(self) -> None:
        super().__init__(Server(durable=True, **SETTINGS))
        self.nodes: list[Product] = []
        self._numbers = count(1)

    def alone(self, prepare: Callable[[Product], object] = lambda _product: None) -> Product:
        """One that runs. `prepare` gets it before its start."""
        host = f"127.77.0.{next(self._numbers)}"
        address = f"{host}:{free_port()}"
        made = Product(OURS, {"PROXYFLEET_CLUSTER__LISTEN": address})
        self._stack.callback(made.end)
        self.addresses[made] = address
        prepare(made)
        return made.run()

    def first(
        self, proxies: int = 0, active: bool = True, prepare: Callable[[Product], object] = lambda _product: None
    ) -> Product:
        """The first node, with so many proxies that are on all nodes, and sleep or are inactive.

        `prepare` as for `alone`; it may put in proxies at `{address}`.
        """
        product = self.alone(prepare)
        product.stop()
        store_proxies(product.data_dir, sleepers(proxies), "active" if active else "inactive")
        self.init(product, "node1")
        self.nodes.append(product.run())
        return product

    def grow(self, to: int, prepare: Callable[[Product], object] = lambda _product: None) -> None:
        """Have machines join until there are so many nodes; `prepare` as for `alone`."""
        missing = to - len(self.nodes)
        with ThreadPoolExecutor(4) as pool:
            made = [each.result() for each in [pool.submit(self.alone, prepare) for _ in range(missing)]]
        for each in made:
            self.join(each, self.nodes[0], f"node{len(self.nodes) + 1}")
            self.nodes.append(each)
        self.settled()

    def settled(self) -> None:
        """Wait until all nodes are up, and have what the first one has."""

        def are_up() -> bool:
            found = self.nodes[0].data("GET", "/nodes")["nodes"]
            return len(found) == len(self.nodes) and all(each["state"] == "up" for each in found)

        wait_until(are_up, "all nodes are up")
        for each in self.nodes:
            wait_until(partial(_is_current, each), "the node has all commits")

    def clients(self) -> list[Client]:
        """One for each node, with a key that holds at all of them."""
        name = f"benchmark-{time.monotonic_ns()}"
        key = self.nodes[0].data("POST", "/api-keys", {"name": name})["key"]
        clients = [Client(each, key) for each in self.nodes]
        for each in clients:
            wait_until(lambda of=each: of.send("GET", "/version")[0] == 200, "the key holds at the node")  # type: ignore[misc]
        return clients

    def notified(self, notified: bool) -> None:
        """Whether commits are announced by the database."""
        old, new = ("PERFORM pg_notify(", "PERFORM concat(")[:: 1 if not notified else -1]
        [(text,)] = self.server.execute("SELECT pg_get_functiondef('proxyfleet.commit_change'::regproc)")
        self.server.execute(str(text).replace(old, new))

    def statements(self) -> int:
        """Transactions of all nodes so far; each is one statement with what begins and ends it."""
        self.server.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        [(found,)] = self.server.execute(
            "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements"
            " WHERE query = 'COMMIT' AND userid <> 'postgres'::regrole"
        )
        return int(str(found))


def sleepers(number: int) -> list[dict[str, Any]]:
    """Creates of proxies that sleep, at the address of each node."""
    return [
        {"name": f"p-{each}", "host": "{address}", "port": FIRST_PORT + each, "protocol": "http", "sleep_after": 3600}
        for each in range(number)
    ]


def _is_current(product: Product) -> bool:
    return command(product, "status")[0] == 0


def at_once(acts: Sequence[Callable[[], Any]]) -> list[Any]:
    """All of them, each in a thread; what they return."""
    with ThreadPoolExecutor(len(acts)) as pool:
        return [each.result() for each in [pool.submit(act) for act in acts]]


def part(values: Sequence[float], share: float) -> float:
    """The value that all but so large a share exceed: 0.5 for the median."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]
