"""`scripts/bench signin`: whether the time of a refused sign-in reveals its reason.

Kinds of refused sign-ins alternate in an order that is shuffled for each round, so that whatever else the machine does
falls on all of them alike; medians are compared. Their responses must be the same, too: all that are refused with 401
among themselves, and all that are locked out.
"""

from __future__ import annotations

import http.client
import json
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from benchmarks.ours import Product
from benchmarks.processes import BenchError
from benchmarks.report import Bar, Row

PASSWORD = "right on loopback"
WRONG = "wrong on loopback"
REFERENCE = "wrong password"
APART = 5.0
"""Percent by which a median may be apart from another."""

MOST_ATTEMPTS = 1000
"""What the product takes for `auth.max_login_attempts`; rounds stay below, or names would be locked on the way."""


class Outcome(NamedTuple):
    """What came back: the body without the seconds that a lock-out has left."""

    status: int
    body: str


ATTEMPTS: dict[str, tuple[str, str]] = {
    REFERENCE: ("someuser", WRONG),
    "unknown name": ("unknown-with-this-name", WRONG),
    "disabled account, right password": ("disabled", PASSWORD),
    "locked out, right password": ("locked", PASSWORD),
    "locked out, wrong password": ("locked", WRONG),
    "locked out, unknown name": ("unknown-with-that-name", WRONG),
}
"""User name and password of each kind."""


def measure(product: Product, rounds: int) -> list[Row]:
    """Medians of each kind, and how far the farthest two are apart. Raises `BenchError` when responses differ."""
    if not 1 <= rounds < MOST_ATTEMPTS:
        raise BenchError(f"rounds must be 1 to {MOST_ATTEMPTS - 1}")
    _prepare(product)
    connection = http.client.HTTPConnection("127.0.0.1", product.port, timeout=60)
    try:
        taken, responses = timed({kind: _sender(connection, *who) for kind, who in ATTEMPTS.items()}, rounds)
    finally:
        connection.close()
    _check(responses)
    return rows_of(taken)


def timed(
    attempts: Mapping[str, Callable[[], Outcome]], rounds: int
) -> tuple[dict[str, list[float]], dict[str, set[Outcome]]]:
    """Seconds that each attempt took, and the different responses to it; the first round only warms up."""
    taken: dict[str, list[float]] = {kind: [] for kind in attempts}
    responses: dict[str, set[Outcome]] = {kind: set() for kind in attempts}
    for number in range(rounds + 1):
        for kind in random.sample(list(attempts), len(attempts)):
            began = time.perf_counter()
            response = attempts[kind]()
            if number:
                taken[kind].append(time.perf_counter() - began)
            responses[kind].add(response)
    return taken, responses


def rows_of(taken: Mapping[str, Sequence[float]]) -> list[Row]:
    """A row for each kind beside the reference, and the judged one."""
    medians = {kind: statistics.median(times) * 1000 for kind, times in taken.items()}
    apart = (max(medians.values()) / min(medians.values()) - 1) * 100
    rows = [Row(f"sign-in, {kind}", "ms", median, REFERENCE, medians[REFERENCE]) for kind, median in medians.items()]
    return [*rows, Row("sign-ins, medians apart", "%", apart, bar=Bar(APART))]


def _prepare(product: Product) -> None:
    """The accounts; and two names that one failure locks, before failures count for little."""
    for name in ("someuser", "disabled", "locked"):
        user = product.call("POST", "/users", {"username": name, "password": PASSWORD})["user"]
        if name == "disabled":
            product.call("PATCH", f"/users/{user['id']}", {"status": "disabled"})
    product.call("PATCH", "/settings", {"auth": {"max_login_attempts": 1}})
    connection = http.client.HTTPConnection("127.0.0.1", product.port, timeout=60)
    for kind, who in ATTEMPTS.items():
        if kind.startswith("locked"):
            _sender(connection, who[0], WRONG)()
    connection.close()
    product.call("PATCH", "/settings", {"auth": {"max_login_attempts": MOST_ATTEMPTS}})


def _sender(connection: http.client.HTTPConnection, username: str, password: str) -> Callable[[], Outcome]:
    body = json.dumps({"username": username, "password": password})

    def send() -> Outcome:
        connection.request("POST", "/api/v1/auth/login", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        content = json.loads(response.read())
        content.get("error", {}).get("details", {}).pop("retry_after", None)
        return Outcome(response.status, json.dumps(content))

    return send


def _check(responses: Mapping[str, set[Outcome]]) -> None:
    for status, begins in ((401, False), (429, True)):
        kinds = [kind for kind in responses if kind.startswith("locked") is begins]
        found = set().union(*(responses[kind] for kind in kinds))
        if len(found) != 1 or next(iter(found)).status != status:
            raise BenchError(f"not all of {', '.join(kinds)} got the same {status}: {sorted(found)}")
