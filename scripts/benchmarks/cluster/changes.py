"""Measures of changes: how soon all nodes serve one, how many there are in a second, and credentials."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import count, islice
from sqlite3 import Connection
from typing import Any

from actors.sqlite import open_for_reading
from benchmarks.cluster.delays import DelayingRelay
from benchmarks.cluster.fleets import Client, Effort, Fleet, at_once, effort_of, part
from benchmarks.ours import OURS
from benchmarks.processes import BenchError
from benchmarks.rounds import Bench, Figure, Results

DISTANCE = 0.010
"""Seconds from a node to the database and back."""
MINTED_EACH_SECOND = 100


@contextmanager
def fleet_of(effort: Effort, nodes: int) -> Iterator[Fleet]:
    """With proxies that sleep on all nodes."""
    with Fleet() as fleet:
        fleet.first(effort.proxies)
        fleet.grow(nodes)
        yield fleet


def changed(client: Client, proxy_id: str, value: int) -> str:
    """Change it; the revision."""
    return client.done("PATCH", f"/proxies/{proxy_id}", {"settings": {"timeout": 31 + value % 97}})[0]


def ids(client: Client, number: int) -> list[str]:
    """Of so many proxies."""
    found: list[dict[str, Any]] = client.done("GET", f"/proxies?per_page={min(number, 100)}")[1]["proxies"]
    return [each["id"] for each in found]


# --- how soon ---


def served(bench: Bench) -> Results:
    """ms from the response to a change until the last node serves it."""
    effort = effort_of(bench)
    with fleet_of(effort, effort.nodes) as fleet:
        clients = fleet.clients()
        proxies = ids(clients[0], 50)
        numbers = count()
        served_by_last(fleet, clients, proxies, islice(numbers, 10))
        took = served_by_last(fleet, clients, proxies, islice(numbers, effort.samples))
        fleet.notified(False)
        polled = served_by_last(fleet, clients, proxies, islice(numbers, effort.polled))
    return {OURS: {"p50": part(took, 0.5), "p99": part(took, 0.99), "polled": max(polled) / 1e3}}


def served_by_last(
    fleet: Fleet, clients: Sequence[Client], proxies: Sequence[str], numbers: Iterable[int]
) -> list[float]:
    """ms of each change, made at one node after the other.

    A request that waits for a revision would have a node ask for it: it is sent when the replica has that, which is
    looked for in its file.
    """
    took = []
    with ExitStack() as stack:
        replicas = [
            stack.enter_context(closing(open_for_reading(each.data_dir / "fleet.sqlite"))) for each in fleet.nodes
        ]
        for number in numbers:  # none twice: what changes nothing has no revision
            at = number % len(clients)
            revision = changed(clients[at], proxies[number % len(proxies)], number)
            responded = time.monotonic()
            waited = [each for each in range(len(clients)) if each != at]
            while waited:
                for each in [each for each in waited if _number(replicas[each]) >= int(revision)]:
                    waited.remove(each)
                    last = each
                time.sleep(0.001)
            clients[last].done("GET", "/version", revision=revision)
            took.append((time.monotonic() - responded) * 1e3)
    return took


def _number(replica: Connection) -> int:
    [(number,)] = replica.execute("SELECT revision FROM steps")
    return int(number)


# --- how many ---


def rates(bench: Bench) -> Results:
    """Changes a second: at all nodes at once, at one, and at one that is so far from its database."""
    effort = effort_of(bench)
    with fleet_of(effort, effort.nodes) as fleet:
        clients = fleet.clients()
        proxies = ids(clients[0], 100)
        figure = {
            "all": rate(clients, proxies, effort.seconds),
            "one": rate(clients[:1], proxies, effort.seconds),
        }
    with Fleet() as fleet, DelayingRelay(fleet.server.port, DISTANCE / 2) as relay:
        fleet.dsn = fleet.server.dsn(port=str(relay.port))
        fleet.first(effort.proxies)
        fleet.grow(2)
        clients = fleet.clients()
        figure["distant"] = rate(clients, ids(clients[0], 100), effort.seconds)
    return {OURS: figure}


def rate(clients: Sequence[Client], proxies: Sequence[str], seconds: float) -> float:
    """Changes in a second by clients that change proxies of their own, one after the other."""
    end = time.monotonic() + seconds

    def run(which: int) -> int:
        own, done = proxies[which :: len(clients)], 0
        while time.monotonic() < end:
            changed(clients[which], own[done % len(own)], done)
            done += 1
        return done

    began = time.monotonic()
    done: int = sum(at_once([partial(run, each) for each in range(len(clients))]))
    return done / (time.monotonic() - began)


# --- credentials ---


def minting(bench: Bench) -> Results:
    """ms of a credential, p99, while a hundred are made each second: over all nodes, and at one."""
    effort = effort_of(bench)
    with fleet_of(effort, effort.nodes) as fleet:
        clients = fleet.clients()
        password = {"password": "sesame-and-more"}
        made = [clients[0].done("POST", "/accounts", {"username": f"a-{each}", **password}) for each in range(10)]
        accounts = [data["account"]["id"] for _, data in made]
        for each in clients:
            each.done("GET", "/version", revision=made[-1][0])

        def mint(client: Client, number: int) -> None:
            client.done("POST", f"/accounts/{accounts[number % len(accounts)]}/credentials", {"ttl": 900})

        two = [clients[0], clients[0].again()]
        figure: Figure = {}
        for name, at in (("all", clients), ("one", two)):
            paced(at, mint, MINTED_EACH_SECOND, 1)
            took = paced(at, mint, MINTED_EACH_SECOND, effort.seconds)
            figure |= {name: part(took, 0.99), f"{name} median": part(took, 0.5)}
    return {OURS: figure}


def paced(
    clients: Sequence[Client], act: Callable[[Client, int], object], each_second: float, seconds: float
) -> list[float]:
    """ms of each: so many in a second by all clients together."""
    each_client, began = each_second / len(clients), time.monotonic()

    def run(which: int) -> list[float]:
        took = []
        for number in range(int(seconds * each_client)):
            due = began + (number + which / len(clients)) / each_client
            time.sleep(max(0.0, due - time.monotonic()))
            started = time.perf_counter()
            act(clients[which], number * len(clients) + which)
            took.append((time.perf_counter() - started) * 1e3)
        return took

    took = [each for found in at_once([partial(run, each) for each in range(len(clients))]) for each in found]
    if not took:
        raise BenchError("nothing was done")
    return took
