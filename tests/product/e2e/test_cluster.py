"""A real product becomes a node of a fleet while it serves, goes on in an outage of the database, and leaves again."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import requests

from tests.kit.cluster import Nodes, command, current
from tests.kit.postgresql import needs_postgresql
from tests.kit.product import Product
from tests.kit.wait import wait_until

pytestmark = needs_postgresql


@contextmanager
def reading(product: Product) -> Iterator[None]:
    """For the time of the block requests read, one after the other, and none fails."""
    ended, failed = threading.Event(), []
    token = product.token

    def read() -> None:
        with requests.Session() as session:
            session.trust_env = False
            while not ended.is_set():
                response = session.get(
                    f"{product.base_url}/api/v1/proxies", headers={"Authorization": f"Bearer {token}"}, timeout=30
                )
                if response.status_code != 200:
                    failed.append(response.text)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert failed == []


def made(product: Product, name: str) -> tuple[int, float]:
    """The status of a change, and how long it took."""
    began = time.monotonic()
    response = product.api("POST", "/lists", {"name": name, "kind": "domains", "entries": ["example.com"]})
    if response.status_code == 503:
        assert response.json()["error"]["code"] == "DATABASE_UNAVAILABLE", response.text
        assert int(response.headers["Retry-After"]) > 0
    return response.status_code, time.monotonic() - began


def revision(product: Product, proxy_id: str) -> str:
    """That of a proxy, from its ETag, which has the tag of the content behind it."""
    return product.api("GET", f"/proxies/{proxy_id}").headers["ETag"].partition("-")[0]


def test_a_running_product_becomes_a_node_goes_on_without_the_database_and_leaves() -> None:
    with Nodes() as nodes:
        product = nodes.product()
        proxy = product.proxy()
        tag = revision(product, proxy["id"])
        with reading(product):
            founded = nodes.init(product)
        assert revision(product, proxy["id"]) == tag
        assert made(product, "in-the-fleet")[0] == 201
        assert current(product)["fleet"] == founded["fleet"]
        for how in (signal.SIGSTOP, signal.SIGKILL):
            with nodes.outage(how), reading(product):
                assert made(product, f"first-{how}")[0] == 503
                wait_until(lambda h=how: made(product, f"known-{h}")[1] < 0.1, "the node knows")
                response = product.api("GET", "/lists")
                assert int(response.headers["X-Config-Stale"]) >= 0
                assert "in-the-fleet" in response.text
            wait_until(lambda h=how: made(product, f"back-{h}")[0] == 201, "changes go on")
            assert "X-Config-Stale" not in product.api("GET", "/lists").headers
        with nodes.outage(signal.SIGKILL):
            product.stop()
            product.forget_token()
            product.start()
            assert product.data("GET", f"/proxies/{proxy['id']}")["proxy"]["id"] == proxy["id"]
            assert made(product, "restarted")[0] == 503
            assert command(product, "status")[0] == 3
        wait_until(lambda: made(product, "again")[0] == 201, "changes go on")
        status, text = command(product, "leave")
        assert status == 0, text
        nodes.server.stop()
        assert made(product, "alone")[0] == 201
        product.stop()
        product.start()
        names = {each["name"] for each in product.data("GET", "/lists")["lists"]}
        assert {"in-the-fleet", "again", "alone"} <= names
        nodes.server.start()


def test_a_stopped_product_becomes_a_node_and_leaves_by_force() -> None:
    with Nodes() as nodes:
        product = nodes.product()
        product.stop()
        nodes.init(product)
        product.start()
        assert made(product, "in-the-fleet")[0] == 201
        product.stop()
        with nodes.outage(signal.SIGKILL):
            status, text = command(product, "leave")
            assert (status, "--force" in text) == (1, True), text
            assert command(product, "leave", "--force")[0] == 0
        product.start()
        assert made(product, "alone")[0] == 201
