"""The end of an account on the whole product: one event, though the product was down at that moment."""

from __future__ import annotations

import time

import pytest

from config.text.formatting import timestamp_text
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.kit.webhook_targets import Target

pytestmark = pytest.mark.product


def test_an_end_while_the_product_is_down_is_one_event_also_after_another_start_and_a_kill(
    own_product: Product,
) -> None:
    product = own_product
    with Target() as target:
        product.data("POST", "/webhooks", {"name": "ends", "url": target.url, "events": ["account.*"]})
        end = time.time() + 3
        body = {"username": "ada", "expires_at": timestamp_text(end)}
        account = product.data("POST", "/accounts", body)["account"]
        assert product.stop() == 0
        wait_until(lambda: time.time() > end, "the time of the account is over")
        product.start()
        wait_until(lambda: kinds(target) == ["account.created", "account.expired"], "the event has come")
        product.actor("api").kill()
        product.wait_healthy()
        product.data("POST", "/accounts", {"username": "bob", "expires_at": timestamp_text(time.time() + 3)})
        wait_until(lambda: len(kinds(target)) >= 4, "a later end has come")
        assert sorted(kinds(target)) == ["account.created"] * 2 + ["account.expired"] * 2
        ends = [each.content["data"] for each in target.received if each.content["type"] == "account.expired"]
        assert [each["username"] for each in ends] == ["ada", "bob"]
        assert ends[0]["account_id"] == account["id"]


def kinds(target: Target) -> list[str]:
    return [each.content["type"] for each in target.received]
