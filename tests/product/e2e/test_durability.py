"""Changes with a success response are kept: through kills, damaged files and a full disk."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.kit.product import Product
from tests.product.e2e.small_disk import fill

pytestmark = pytest.mark.product


PROXY_EACH = 10
"""One of so many creates is a proxy, since each runs a process after every start; the others are API keys."""


class Creator(threading.Thread):
    """Creates proxies and API keys one after the other until the API is gone."""

    def __init__(self, product: Product, count: int, token: str, enough: threading.Event, minimum: int) -> None:
        super().__init__(daemon=True)
        self.created: set[str] = set()
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
                    self.created.add(f"{path} {name}")
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


@pytest.mark.parametrize("seed", range(4))
def test_every_acknowledged_create_is_there_after_a_kill_of_everything_in_the_middle_of_200(seed: int) -> None:
    """Five kills for each seed, twenty in all; each start is also the check of the kill before."""
    dice = random.Random(seed)
    created: set[str] = set()
    with Product({"PROXYFLEET_AUTH__MAX_API_KEYS": "1000"}) as product:
        for kill in range(5):
            enough = threading.Event()
            minimum = dice.randrange(40, 90) if kill == 4 else dice.randrange(1, 12)
            creators = [Creator(product, 100, product.token, enough, minimum) for _ in range(2)]
            for creator in creators:
                creator.start()
            assert enough.wait(300)
            product.kill_all()
            for creator in creators:
                creator.join(300)
                created |= creator.created
            product.start()
            assert created <= everything(product)


def newest(folder: Path, word: str) -> Path:
    """The file of this collection that was written last."""
    files = [file for file in folder.rglob("*") if file.is_file() and word in file.name and file.stat().st_size]
    return max(files, key=lambda file: (file.stat().st_mtime_ns, ".previous" not in file.name))


def cut_short(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: len(data) * 2 // 3])


def flip_a_byte(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) * 2 // 3] ^= 0x20
    file.write_bytes(bytes(data))


def emptied(file: Path) -> None:
    file.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut_short, flip_a_byte, emptied], ids=lambda damage: damage.__name__)
def test_a_damaged_store_file_gives_the_previous_generation_or_a_refused_start(damage: Any) -> None:
    with Product() as product:
        made = [product.proxy()["name"] for _ in range(3)]
        assert product.stop() == 0
        file = newest(product.data_dir / "store", "prox")
        damage(file)
        product.start(wait=False)
        try:
            product.wait_healthy()
        except AssertionError:
            assert product.process is not None
            assert product.process.poll() not in (None, 0)
            assert file.name in product.log
        else:
            assert set(made[:-1]) <= names(product) <= set(made)
            assert file.name in product.log


def test_a_full_disk_is_a_clear_500_and_the_old_data_stay(small_disk: Path) -> None:
    product = Product()
    product.data_dir = small_disk / "data"
    with product:
        kept = product.proxy()["name"]
        filler = small_disk / "filler"
        with pytest.raises(OSError, match="No space"):
            fill(filler)
        body = {"name": "too-much", "port": product.free_port(), "protocol": "http", "tags": ["x" * 60] * 20}
        response = product.api("POST", "/proxies", body)
        assert response.status_code == 500
        assert response.json()["error"]["code"] == "INTERNAL_ERROR"
        assert set(response.json()["error"]["details"]) == {"request_id"}
        assert names(product) == {kept}
        filler.unlink()
        product.kill_all()
        product.start()
        assert names(product) == {kept}
        assert product.api("POST", "/proxies", body).status_code == 201
