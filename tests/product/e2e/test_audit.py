"""The audit trail of the whole product: what was answered is in it, whatever dies."""

from __future__ import annotations

import threading

import pytest
import requests

from api.audit import Head, Selection, Trail, verify
from config.files.paths import DataDir
from tests.kit.product import Product
from tests.kit.wait import wait_until

pytestmark = pytest.mark.product


def test_every_change_that_was_answered_is_in_the_trail_after_a_kill_of_all_processes(own_product: Product) -> None:
    product = own_product
    path = f"/proxies/{product.proxy()['id']}"
    answered: list[str] = []

    def change() -> None:
        for number in range(10_000):
            try:
                response = product.api(
                    "PATCH", path, {"tags": [f"n{number}"]}, headers={"X-Request-Id": f"change-{number}"}
                )
            except requests.RequestException:
                return  # it was killed
            if response.status_code == 200:
                answered.append(f"change-{number}")

    thread = threading.Thread(target=change)
    thread.start()
    wait_until(lambda: len(answered) >= 30, "some changes are made")
    product.kill_all()
    thread.join()
    data = DataDir(product.data_dir)
    assert isinstance(verify(data), Head)
    trail = Trail(data)
    rows, _ = trail.find(Selection({"action": "proxy.updated"}), 20_000, 0)
    trail.close()
    assert set(answered) <= {row.content["request_id"] for row in rows}
