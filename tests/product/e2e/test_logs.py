"""Access records of real traffic: found, waited for, exported, written as lines; and a disk that is full."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

import pytest
import requests

from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.product.e2e.cramped_product import CrampedProduct
from tests.product.e2e.log_reader import Proxy, get

pytestmark = pytest.mark.product


def found(product: Product, proxy: Proxy, search: str) -> list[Proxy]:
    logs: list[Proxy] = product.data("GET", f"/logs?proxy_id={proxy['id']}&search={search}&limit=1000")["logs"]
    return logs


def lines(product: Product, query: str) -> list[Proxy]:
    response = product.api("GET", f"/logs/export?{query}")
    assert response.status_code == 200
    return [json.loads(line) for line in response.text.splitlines()]


def test_a_part_of_a_path_finds_a_request_and_the_export_has_it_too(
    product: Product, proxy: Proxy, origin: Origin
) -> None:
    marks = [os.urandom(6).hex() for _ in range(3)]
    for mark in marks:
        get(proxy, origin, f"?before-{mark}-after")
    logs = wait_until(lambda: found(product, proxy, marks[0][2:]), "the record is found")
    assert [entry["target_url"].endswith(f"/?before-{marks[0]}-after") for entry in logs] == [True]
    wait_until(lambda: len(found(product, proxy, "before")) == 3, "all are found")
    exported = lines(product, f"proxy_id={proxy['id']}&search=before-")
    assert [entry["target_url"].split("-")[1] for entry in exported] == marks[::-1]
    assert exported == found(product, proxy, "before-")


def test_a_tail_answers_when_there_is_traffic_and_goes_on_behind_it(
    product: Product, proxy: Proxy, origin: Origin
) -> None:
    cursor = product.data("GET", "/logs")["tail_cursor"]
    responses: list[Any] = []

    def wait() -> None:
        responses.append(
            requests.get(
                f"{product.base_url}/api/v1/logs/tail?proxy_id={proxy['id']}&cursor={cursor}&timeout=30",
                headers={"Authorization": f"Bearer {product.token}"},
                timeout=60,
            ).json()["data"]
        )

    waiting = threading.Thread(target=wait)
    waiting.start()
    get(proxy, origin, "?tailed")
    waiting.join(120)
    (response,) = responses
    assert [entry["target_url"].endswith("?tailed") for entry in response["logs"]] == [True]
    again = product.data("GET", f"/logs/tail?proxy_id={proxy['id']}&cursor={response['next_cursor']}&timeout=0")
    assert again["logs"] == []


def test_records_are_lines_in_a_file_from_when_the_settings_say_so(own_product: Product, origin: Origin) -> None:
    product = own_product
    proxy = product.proxy()
    changed = product.data("PATCH", "/settings", {"logging": {"output": "jsonl"}})
    assert changed["logging"]["output"] == "jsonl"
    get(proxy, origin, "?lined")
    folder = product.data_dir / "logs"
    (line,) = wait_until(
        lambda: [x for file in folder.glob("*.jsonl") for x in file.read_text().splitlines()], "a line"
    )
    assert json.loads(line) == found(product, proxy, "lined")[0]
    refused = product.api("PATCH", "/settings", {"logging": {"output": "jsonl:/tmp/anywhere"}})
    assert refused.status_code == 400
    assert refused.json()["error"]["details"]["field"] == "logging.output"


def test_a_full_disk_stops_no_traffic_and_its_records_are_there_when_there_is_room_again(
    cramped: CrampedProduct, origin: Origin
) -> None:
    product = cramped.product
    proxy = product.proxy()
    get(proxy, origin, "?before")
    wait_until(lambda: found(product, proxy, "before"), "the first is found")
    cramped.fill()
    for number in range(40):
        assert get(proxy, origin, f"hello?full-{number}-{'x' * 2000}") == 200
    wait_until(lambda: "cannot store access records" in product.log, "it is said")
    assert get(proxy, origin, "hello?full-40") == 200
    cramped.clear()
    wait_until(lambda: len(found(product, proxy, "full-")) == 41, "all are found")
