"""Measures of what being a node costs: while it idles, in reads of the API, and in what it forwards.

One machine that is no node takes turns with it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from signal import SIGINT

from benchmarks import traffic
from benchmarks.cluster.changes import changed, ids
from benchmarks.cluster.fleets import Client, Fleet, effort_of, part
from benchmarks.ours import OURS, OurProxy, Product, store_proxies
from benchmarks.processes import cpu_seconds, pss
from benchmarks.rounds import Bench, Figure, Results, medians, spent
from benchmarks.traffic import Load

SETTLE = 15.0
"""Seconds until what was done before is over."""


# --- while it idles ---


def idle(bench: Bench) -> Results:
    """CPU in percent of a core, memory in MB and statements a second beyond those of one machine."""
    effort = effort_of(bench)
    with Fleet() as fleet:
        node = fleet.first()
        fleet.grow(2)
        machine = fleet.alone()
        time.sleep(SETTLE)
        statements, seconds, rounds = 0, 0.0, []
        for _ in range(4):
            before, began = fleet.statements(), time.monotonic()
            of_node, of_machine = _shares([node, machine], effort.quiet / 4)
            statements += fleet.statements() - before
            seconds += time.monotonic() - began
            rounds.append({"cpu": of_node - of_machine, "machine": of_machine})
        memory = pss(node.everything()) - pss(machine.everything())
    return {OURS: {**medians(rounds), "statements": statements / seconds / len(fleet.nodes), "memory": memory}}


def _shares(products: Sequence[Product], seconds: float) -> list[float]:
    """Of each in percent of a core, over the same time."""
    began, before = time.monotonic(), [cpu_seconds(each.everything()) for each in products]
    time.sleep(seconds)
    lasted = time.monotonic() - began
    after = [cpu_seconds(each.everything()) for each in products]
    return [(now - then) / lasted * 100 for now, then in zip(after, before, strict=True)]


# --- reads of the API ---

READS_EACH_SECOND = 200
CHANGES_EACH_SECOND = 50


def reads(bench: Bench) -> Results:
    """CPU and p99 of GETs of a proxy at a node by those at one machine, without changes and while many arrive.

    At the machine such changes are made; at the node they are made at another one.
    """
    effort = effort_of(bench)
    with Fleet() as fleet:
        node = fleet.first(effort.listed, active=False)
        fleet.grow(2)
        at_node, at_other = fleet.clients()
        machine = fleet.alone(partial(_stored, effort.listed))
        at_machine = Client(machine, machine.data("POST", "/api-keys", {"name": "benchmark"})["key"])
        entrants = {"node": (node, at_node, at_other), "machine": (machine, at_machine, at_machine)}
        figure: Figure = {}
        for name, changes in (("quiet", 0), ("busy", CHANGES_EACH_SECOND)):
            rounds: dict[str, list[Figure]] = {each: [] for each in entrants}
            for entrant in [*entrants] * bench.effort.rounds:
                rounds[entrant].append(_read(*entrants[entrant], changes, effort.seconds / 4))
            of_node, of_machine = medians(rounds["node"]), medians(rounds["machine"])
            figure |= {f"{name} {what}": of_node[what] / of_machine[what] for what in of_node}
            figure[f"{name} ms"] = of_node["p99"]
    return {OURS: figure}


def _stored(number: int, product: Product) -> None:
    bodies = ({"name": f"p-{each}", "port": 10_000 + each, "protocol": "http"} for each in range(number))
    store_proxies(product.data_dir, bodies, "inactive")


def _read(product: Product, client: Client, changing: Client, changes: int, seconds: float) -> Figure:
    """`changing` makes so many changes a second meanwhile."""
    proxies, stop = ids(client, 100), threading.Event()
    other = changing.again()

    def change() -> None:
        began = time.monotonic()
        for number in range(int(changes * seconds * 10)):
            if stop.wait(max(0.0, began + number / changes - time.monotonic())):
                return
            changed(other, proxies[number % len(proxies)], number)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        before, took, began = cpu_seconds(product.everything()), [], time.monotonic()
        for number in range(int(seconds * READS_EACH_SECOND)):
            time.sleep(max(0.0, began + number / READS_EACH_SECOND - time.monotonic()))
            started = time.perf_counter()
            client.done("GET", f"/proxies/{proxies[number % len(proxies)]}")
            took.append((time.perf_counter() - started) * 1e3)
        cpu = cpu_seconds(product.everything()) - before
    finally:
        stop.set()
        thread.join()
    return {"p99": part(took, 0.99), "cpu": cpu / len(took)}


# --- forwarding ---

LOADS: dict[str, tuple[Load, str, float]] = {
    "small": (traffic.KEEP_ALIVE, "http", 1e6),
    "heads": (traffic.NEW, "http", 1e6),
    "fresh": (traffic.FRESH, "http", 1e6),
    "medium": (traffic.LARGE, "http", 1e6),
    "connect": (traffic.bulk, "http", 1),
    "socks5": (traffic.bulk, "socks5", 1),
    "tls": (traffic.bulk, "https", 1),
    "handshakes": (traffic.handshakes, "https", 1e6),
    "short": (traffic.set_up, "http", 1e6),
}
"""Those of the measures with these names: the load, the protocol, and parts of a second."""


def forwarding(bench: Bench) -> Results:
    """CPU of a node by that of one machine for each load, with the database, and while it is stopped."""
    figure: Figure = {}
    with Fleet() as fleet:
        node, machine = fleet.first(), fleet.alone()
        proxies = {kind: [OurProxy(each, bench.folder, kind) for each in (node, machine)] for kind in _KINDS}
        for name, around in (("", _undisturbed), (" cut off", partial(fleet.outage, SIGINT))):
            with around():
                if name:
                    time.sleep(SETTLE)
                for load, (run, kind, parts) in LOADS.items():
                    figure[load + name] = _by_machine(bench, proxies[kind], run, parts)
                figure["all" + name] = part([each for what, each in figure.items() if what.endswith(name)], 0.5)
    return {OURS: figure}


_KINDS = ("http", "socks5", "https")


@contextmanager
def _undisturbed() -> Iterator[None]:
    yield


def _by_machine(bench: Bench, proxies: Sequence[OurProxy], run: Load, parts: float) -> float:
    """The median of rounds in each of which both take their turn, in changing order."""
    ratios = []
    for number in range(bench.effort.rounds * 2):
        both = {}
        for which in (0, 1)[:: 1 if number % 2 else -1]:
            both[which] = spent(proxies[which], partial(run, bench, proxies[which]), parts)["cpu"]
        ratios.append(both[0] / both[1])
    return part(ratios, 0.5)
