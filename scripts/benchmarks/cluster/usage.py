"""Measures of what accounts use over nodes: a quota that all race for, and the database's absence under load."""

from __future__ import annotations

import base64
import re
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from signal import SIGINT
from typing import Any, NamedTuple

from benchmarks.cluster.fleets import FIRST_PORT, Fleet, at_once, effort_of, part
from benchmarks.cluster.joining import steady
from benchmarks.ours import OURS, Product
from benchmarks.processes import BenchError, accepts
from benchmarks.rounds import Bench, Results
from tests.kit.wait import wait_until

LEFT = 64 << 20
"""Bytes of a quota down to which no request waits for a lease."""
MIB = 1 << 20
PASSWORD = "sesame-and-more"
WITHIN = 120.0


def host_of(fleet: Fleet, node: Product) -> str:
    """Where its proxies listen."""
    return fleet.addresses[node].partition(":")[0]


def guarded(fleet: Fleet) -> str:
    """A proxy on all nodes, whose users are accounts; it runs on each. Its id."""
    fields = {"name": "guarded", "host": "{address}", "port": FIRST_PORT, "protocol": "http"}
    limits = {"settings": {"max_connections": 1_000}}
    made = fleet.nodes[0].data("POST", "/proxies", {**fields, **limits, "auth": {"enabled": True}})["proxy"]
    for node in fleet.nodes:
        wait_until(partial(accepts, FIRST_PORT, host_of(fleet, node)), "the proxy runs", WITHIN)
    return str(made["id"])


def account(fleet: Fleet, name: str, quota: int) -> str:
    """A new one with a quota in bytes, which all nodes have; its id."""
    response = fleet.nodes[0].api(
        "POST", "/accounts", {"username": name, "password": PASSWORD, "quota": {"bytes": quota, "period": "total"}}
    )
    if response.status_code != 201:
        raise BenchError(f"POST /accounts: {response.text}")
    revision = response.headers["X-Config-Revision"]
    for node in fleet.nodes:
        node.api("GET", "/version", headers={"X-Config-Revision": revision})
    return str(response.json()["data"]["account"]["id"])


def used(fleet: Fleet, account_id: str) -> dict[str, Any]:
    """Bytes and requests of an account on all nodes, as the database has them."""
    [(count, requests)] = fleet.server.execute(
        "SELECT coalesce(sum(bytes_in + bytes_out), 0)::bigint, coalesce(sum(requests), 0)::bigint"
        f" FROM proxyfleet.usage_hours WHERE account = '{account_id}'"
    )
    return {"bytes": int(str(count)), "requests": int(str(requests))}


def sign_in(name: str) -> str:
    """The field of a request by which an account signs in at a proxy."""
    return f"Basic {base64.b64encode(f'{name}:{PASSWORD}'.encode()).decode()}"


# --- a quota that all race for ---


def quota(bench: Bench) -> Results:
    """MiB beyond a quota that all nodes race for, and ms of the longest request while much of it is left.

    `first` is that of the first requests, by which clients sign in before the race: each node checks a password then.
    """
    effort = effort_of(bench)
    with Fleet() as fleet:
        fleet.first()
        fleet.grow(effort.nodes)
        guarded(fleet)
        identifier = account(fleet, "racer", effort.quota)
        time.sleep(5)  # with the first account of a fleet each node connects what reports its use
        hosts = [host_of(fleet, each) for each in fleet.nodes]
        ready = threading.Barrier(len(hosts), timeout=WITHIN)
        found = at_once([partial(_race, each, bench.target, ready) for each in hosts])
        requests = sorted(each for _, *race in found for each in race)
        sum_, waits = sum(first.count for first, *_ in found), list[float]()
        for each in requests:
            sum_ += each.count
            if effort.quota - sum_ >= min(LEFT, effort.quota // 2):
                waits.append(each.took * 1e3)
        figure = {"first": max(first.took * 1e3 for first, *_ in found), "wait": max(waits), "p99": part(waits, 0.99)}
        time.sleep(5)  # all is reported then
        figure["beyond"] = (used(fleet, identifier)["bytes"] - effort.quota) / MIB
        figure["rate"] = sum_ / MIB / (requests[-1].ended - requests[0].ended)
    return {OURS: figure}


class Raced(NamedTuple):
    """A request: when it ended, its seconds, and its bytes."""

    ended: float
    took: float
    count: int


def _race(host: str, target: int, ready: threading.Barrier) -> list[Raced]:
    """Requests for 100 KiB until one is refused; after the first one all wait for each other."""
    wanted = (
        f"GET http://127.0.0.1:{target}/100k HTTP/1.1\r\nHost: 127.0.0.1:{target}\r\n"
        f"Proxy-Authorization: {sign_in('racer')}\r\n\r\n"
    ).encode()
    done = list[Raced]()
    until = time.monotonic() + 600
    with socket.create_connection((host, FIRST_PORT), 60) as client:
        while time.monotonic() < until:
            began = time.monotonic()
            count = _received(client, wanted)
            if not count:
                if not done:
                    raise BenchError("the quota was used up before the race")
                return done
            done.append(Raced(time.monotonic(), time.monotonic() - began, count + len(wanted)))
            if len(done) == 1:
                ready.wait()
    raise BenchError("the quota was never used up")


def _received(client: socket.socket, wanted: bytes) -> int:
    """Octets of the response to a request; 0 when it is refused, or the connection ends."""
    with suppress(ConnectionError):
        client.sendall(wanted)
        return _octets(client)
    return 0


def _octets(client: socket.socket) -> int:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = client.recv(65536)
        if not piece:
            return 0
        data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    if b" 200 " not in head[:16] or length is None:
        return 0
    left = int(length[1]) - len(rest)
    while left:
        piece = client.recv(min(left, 1 << 20))
        if not piece:
            return 0
        left -= len(piece)
    return len(head) + 4 + int(length[1])


# --- without the database ---

NAMES = ("one", "two", "three", "four")
PLENTY = 1 << 50
CONNECTIONS = 5
"""Of each account: 500 requests a second."""


def outage(bench: Bench) -> Results:
    """Requests that fail while the database is stopped under load with accounts and quotas.

    And the seconds until the usage is whole afterwards.
    """
    effort = effort_of(bench)
    with Fleet() as fleet:
        fleet.first()
        fleet.grow(2)
        guarded(fleet)
        ids = [account(fleet, name, PLENTY) for name in NAMES]
        hosts = [host_of(fleet, each) for each in fleet.nodes]
        loads = [
            steady(bench, hosts[each % 2], FIRST_PORT, f"Proxy-Authorization={sign_in(name)};", CONNECTIONS)
            for each, name in enumerate(NAMES)
        ]
        time.sleep(5)
        with fleet.outage(SIGINT):
            time.sleep(effort.outage)
        returned = time.monotonic()
        time.sleep(5)
        seen = [each.seen(now=True) for each in loads]
        wanted = [int(each["requests"]) for each in seen]
        ended = time.monotonic()
        wait_until(lambda: _are_whole(fleet, ids, wanted), "usage is whole", 300)
        figure = {
            "failed": sum(each["errors"] + each["closed"] for each in seen),
            "rate": sum(each["requests"] / each["seconds"] for each in seen),
            "whole": time.monotonic() - returned,
            "behind": time.monotonic() - ended,
        }
    return {OURS: figure}


def _are_whole(fleet: Fleet, ids: Sequence[str], wanted: Sequence[int]) -> bool:
    """Whether the database has all requests that clients have counted; those that wrk cut off at its end are more."""
    return all(used(fleet, each)["requests"] >= count for each, count in zip(ids, wanted, strict=True))
