"""Changes with a success response are kept: through kills, damaged files and a full disk."""

from __future__ import annotations

import os
import random
import threading

import pytest
import requests

from api.audit.trail import Head, Selection, verify
from config.files.paths import DataDir
from tests.kit.product import Product
from tests.kit.trails import opened_trail
from tests.product.e2e.cramped_product import CrampedProduct

pytestmark = pytest.mark.product


KILLS = 2
PROXY_EACH = 10
"""One of so many creates is a proxy, since each runs a process after every start; the others are API keys."""


class Creator(threading.Thread):
    """Creates proxies and API keys one after the other until the API is gone; `created` has the id of each request."""

    def __init__(self, product: Product, count: int, token: str, enough: threading.Event, minimum: int) -> None:
        super().__init__(daemon=True)
        self.created: dict[str, str] = {}
        self._product, self._count, self._token = product, count, token
        self._enough, self._minimum = enough, minimum

    def run(self) -> None:
        with requests.Session() as session:
            session.trust_env = False
            session.headers["Authorization"] = f"Bearer {self._token}"
            for number in range(self._count):
                name = f"made-{os.urandom(6).hex()}"
                path, body = "api-keys", {"name": name, "permissions": ["proxy.read"]}
                if number % PROXY_EACH == 0:
                    path, body = "proxies", {"name": name, "port": self._product.free_port(), "protocol": "http"}
                try:
                    response = session.post(f"{self._product.base_url}/api/v1/{path}", json=body, timeout=120)
                except requests.RequestException:
                    return  # killed meanwhile
                if response.status_code == 201:
                    self.created[f"{path} {name}"] = response.headers["X-Request-Id"]
                if len(self.created) >= self._minimum:
                    self._enough.set()


def everything(product: Product) -> set[str]:
    """The proxies and API keys, as `Creator.created` has them."""
    keys = {f"api-keys {each['name']}" for each in product.data("GET", "/api-keys")["api_keys"]}
    return keys | {f"proxies {name}" for name in names(product)}


def names(product: Product) -> set[str]:
    found: set[str] = set()
    page = 1
    while True:
        data = product.data("GET", f"/proxies?per_page=100&page={page}")
        found |= {each["name"] for each in data["proxies"]}
        if not data["pagination"]["has_next"]:
            return found
        page += 1


def test_every_acknowledged_create_is_there_after_a_kill_of_everything_in_the_middle(own_product: Product) -> None:
    """In the store and in the audit trail; each start is also the check of the kill before."""
    product, dice = own_product, random.Random(0)
    created: dict[str, str] = {}
    for kill in range(KILLS):
        enough = threading.Event()
        minimum = dice.randrange(40, 90) if kill == KILLS - 1 else dice.randrange(1, 12)
        creators = [Creator(product, 100, product.token, enough, minimum) for _ in range(2)]
        for creator in creators:
            creator.start()
        assert enough.wait(300)
        product.kill_all()
        for creator in creators:
            creator.join(300)
            created |= creator.created
        assert set(created.values()) <= in_trail(DataDir(product.data_dir))
        product.start()
        assert created.keys() <= everything(product)


def in_trail(data: DataDir) -> set[str]:
    """The ids of the requests in the audit trail, which is whole."""
    assert isinstance(verify(data), Head)
    with opened_trail(data) as trail:
        rows, _ = trail.find(Selection({}), 100_000, 0)
    return {row.content["request_id"] for row in rows}


def test_a_full_disk_refuses_proxies_and_accounts_and_leaves_nothing_half_done(cramped: CrampedProduct) -> None:
    product = cramped.product
    kept, before = product.proxy()["name"], names(product)
    account = product.data("POST", "/accounts", {"username": "kept"})["account"]
    cramped.fill()
    body = {"name": "too-much", "port": product.free_port(), "protocol": "http", "tags": ["x" * 60] * 20}
    response = product.api("POST", "/proxies", body)
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "INTERNAL_ERROR"
    assert set(response.json()["error"]["details"]) == {"request_id"}
    assert product.api("POST", "/accounts", {"username": "lost"}).status_code == 500
    assert product.api("PATCH", f"/accounts/{account['id']}", {"enabled": False}).status_code == 500
    assert product.api("DELETE", f"/accounts/{account['id']}").status_code == 500
    assert kept in names(product) == before
    assert accounts(product) == [("kept", True)]
    cramped.clear()
    product.data("PATCH", f"/accounts/{account['id']}", {"enabled": False})
    product.kill_all()
    product.start()
    assert names(product) == before
    assert accounts(product) == [("kept", False)]
    assert product.api("POST", "/proxies", body).status_code == 201


def accounts(product: Product) -> list[tuple[str, bool]]:
    return [(each["username"], each["enabled"]) for each in product.data("GET", "/accounts")["accounts"]]
