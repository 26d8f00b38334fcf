"""Measures of machines that become nodes, or come back: `cluster init`, `cluster join`, and a node that was away."""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial
from typing import Any

from actors.cluster.database import Database
from actors.cluster.identity import NodeIdentity
from actors.sqlite import open_for_reading
from api.cluster.joining import read_state
from api.cluster.shared_ledger import SharedLedger
from api.engine.commit import Engine
from api.store import Write
from benchmarks.cluster.delays import DelayingRelay
from benchmarks.cluster.fleets import FIRST_PORT, Effort, Fleet, effort_of, sleepers
from benchmarks.fleet import first_byte
from benchmarks.objects import imported, timed
from benchmarks.ours import OURS, OurProxy, Product, store_proxies
from benchmarks.processes import BenchError
from benchmarks.rounds import Bench, Figure, Results
from benchmarks.traffic import WrkLoad
from config.files.paths import open_data_dir
from config.files.secret_box import secret_box_of
from config.passwords import PREHASHED, hash_password
from tests.kit.cluster import command
from tests.kit.product import PASSWORD
from tests.kit.wait import wait_until

CONNECTIONS, PAUSE = 20, 10
"""A load of up to 2,000 requests a second: of wrk, and the milliseconds before each request."""
LONGEST = 600
"""Seconds that a load lasts at most."""


def steady(bench: Bench, host: str, port: int, fields: str = "", connections: int = CONNECTIONS) -> WrkLoad:
    """A load of 100 requests a second for each connection, until it is asked what it saw."""
    here = f"127.0.0.1:{bench.target}"
    paths, pause = [f"http://{here}/1k"], str(PAUSE)
    return WrkLoad(bench, host, port, paths, connections, f"Host={here};{fields}", LONGEST, BENCH_PAUSE=pause)


def _filled(effort: Effort, host: str, product: Product) -> None:
    """An installation with proxies that sleep and accounts, which is stopped."""
    product.run()
    imported(product, PREHASHED + hash_password(PASSWORD), effort.many)
    product.stop()
    store_proxies(product.data_dir, ({**each, "host": host} for each in sleepers(effort.proxies)), "active")


def init(bench: Bench) -> Results:
    """Seconds of `cluster init` of all that while requests are forwarded, and how many of these failed."""
    effort = effort_of(bench)
    with Fleet() as fleet:
        product = fleet.alone(partial(_filled, effort, "127.77.0.1"))
        proxy = OurProxy(product, bench.folder)
        load = steady(bench, "127.0.0.1", proxy.port)
        time.sleep(2)
        took, _ = timed(lambda: fleet.init(product, "node1"))
        time.sleep(2)
        seen = load.seen(now=True)
    rate = seen["requests"] / seen["seconds"]
    return {OURS: {"seconds": took / 1e3, "failed": seen["errors"] + seen["closed"], "rate": rate}}


def join(bench: Bench) -> Results:
    """Seconds from `cluster join` on a fresh machine that runs until the first byte through one of the proxies."""
    effort = effort_of(bench)
    with Fleet() as fleet:
        fleet.first(prepare=partial(_filled, effort, "{address}"))
        machine = fleet.alone()
        host = fleet.addresses[machine].partition(":")[0]
        took, _ = timed(lambda: fleet.join(machine, fleet.nodes[0], "node2"))
        forwarded, _ = timed(lambda: wait_until(partial(_forwards, host, bench.target), "the proxy forwards", 300))
    return {OURS: {"command": took / 1e3, "seconds": (took + forwarded) / 1e3}}


def _forwards(host: str, target: int) -> bool:
    try:
        return first_byte(host, FIRST_PORT, target) > 0
    except (OSError, BenchError):
        return False


# --- a node that was away ---


def away(bench: Bench) -> Results:
    """Seconds from the return of the database until a node serves what others have changed meanwhile, and the steps."""
    effort = effort_of(bench)
    with Fleet() as fleet, DelayingRelay(fleet.server.port) as relay:
        fleet.dsn = fleet.server.dsn(port=str(relay.port))
        node = fleet.first(effort.proxies)
        client = fleet.clients()[0]
        with relay.closed():
            wait_until(lambda: command(node, "status")[0] == 3, "the node is cut off")
            revision = _changed_elsewhere(bench, fleet, effort.away)
        began = time.monotonic()
        with closing(open_for_reading(node.data_dir / "fleet.sqlite")) as replica:
            steps = set[int]()
            while revision not in steps:
                [(number,)] = replica.execute("SELECT revision FROM steps")
                steps.add(number)
                if time.monotonic() - began > LONGEST:
                    raise BenchError(f"the node has the commit {number} of {revision}")
                time.sleep(0.001)
        figure: Figure = {"file": time.monotonic() - began, "steps": len(steps) - 1}
        client.again().done("GET", "/version", revision=str(revision))  # the first connection was idle for too long
        figure["seconds"] = time.monotonic() - began
    return {OURS: figure}


def _changed_elsewhere(bench: Bench, fleet: Fleet, changes: int) -> int:
    """By an engine in this process, as of another node: the last commit."""
    [(found,)] = fleet.server.execute("SELECT id FROM proxyfleet.fleet")
    dsn = fleet.server.dsn()
    identity: Any = NodeIdentity(found, "nod_0000000000000bee", "writer", "full", dsn, "")  # type: ignore[arg-type]
    data = open_data_dir(bench.own("writer"))
    read_state(identity, data)
    with closing(Database(dsn)) as database:
        ledger = SharedLedger(database, identity.fleet, identity.id)
        with closing(Engine(data, secret_box_of(data), ledger)) as engine:
            proxies = [each.id for each in engine.find("proxies")]
            number = 0
            for each in range(changes):
                document = engine.get("proxies", proxies[each % len(proxies)])
                assert document is not None
                body = {**document.body, "tags": [f"t{each}"]}
                number = engine.commit([Write("proxies", document.id, body, document.revision)])
            return number
