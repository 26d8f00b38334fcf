"""One refresh token, used by twenty at the same moment over real connections: one winner, and then the family is dead.

`RACES=100` in the environment runs it a hundred times; the suite runs it once.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from tests.kit.product import PASSWORD, Product

pytestmark = pytest.mark.product

RACES = int(os.environ.get("RACES", "1"))
RUNNERS = 20
LONG = 120.0


class Runner:
    """A client with a connection that is open before the start."""

    def __init__(self, product: Product) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", product.port, timeout=LONG)
        self._connection.connect()

    def close(self) -> None:
        self._connection.close()

    def ask(self, method: str, path: str, body: Any = None, token: str | None = None) -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._connection.request(method, f"/api/v1{path}", None if body is None else json.dumps(body), headers)
        response = self._connection.getresponse()
        return response.status, json.loads(response.read()).get("data")


@pytest.fixture(scope="module")
def runners(product: Product) -> Iterator[list[Runner]]:
    with ExitStack() as stack:
        made = [Runner(product) for _ in range(RUNNERS)]
        for each in made:
            stack.callback(each.close)
        yield made


@pytest.mark.parametrize("race", range(RACES))
def test_of_twenty_one_gets_the_next_tokens_and_then_no_one_has_any(runners: list[Runner], race: int) -> None:
    start = threading.Barrier(RUNNERS)
    one = runners[0]
    status, first = one.ask("POST", "/auth/login", {"username": "admin", "password": PASSWORD})
    assert status == 200

    def run(runner: Runner) -> tuple[int, Any]:
        start.wait(LONG)
        return runner.ask("POST", "/auth/refresh", {"refresh_token": first["refresh_token"]})

    with ThreadPoolExecutor(RUNNERS) as pool:
        responses = list(pool.map(run, runners))
    assert sorted(status for status, _ in responses) == [200] + [401] * (RUNNERS - 1)
    winner = next(data for status, data in responses if status == 200)
    for token in (first["access_token"], winner["access_token"]):
        assert one.ask("GET", "/auth/test", token=token)[0] == 401
    assert one.ask("POST", "/auth/refresh", {"refresh_token": winner["refresh_token"]})[0] == 401
