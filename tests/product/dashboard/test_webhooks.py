"""A webhook from its creation to a delivery that is sent again."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.kit.browser import leave, show
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.kit.webhook_targets import Received, Target


def first_refused(number: int, _received: Received) -> tuple[int, dict[str, str]]:
    return (500 if number == 1 else 200), {}


def test_a_webhook_is_created_tested_and_a_delivery_is_seen_with_its_attempts_and_sent_again(
    page: Page, product: Product
) -> None:
    with Target(first_refused) as target:
        show(page, "/settings/webhooks")
        page.get_by_role("main").get_by_role("link", name="Create webhook").first.click()
        page.get_by_label("Name", exact=True).fill("of a test")
        page.get_by_label("URL").fill(target.url)
        page.get_by_role("checkbox", name="All (proxy.*)").uncheck()
        page.get_by_role("checkbox", name="user.deleted").check()
        page.get_by_role("button", name="Create webhook").click()
        secret = page.get_by_role("dialog", name="Signing secret")
        shown = secret.locator("code").inner_text()
        secret.get_by_role("button", name="Next").click()
        expect(page.get_by_role("heading", level=1, name="of a test")).to_be_visible()
        webhook = re.search(r"/webhooks/(\w+)", page.url)
        assert webhook
        try:
            page.get_by_role("button", name="Send test").click()
            expect(page.get_by_text("Test not delivered:")).to_be_visible()
            page.get_by_role("button", name="Send test").click()
            expect(page.get_by_text("Test delivered: 200")).to_be_visible()
            assert target.received[-1].verified(shown)["type"] == "webhook.test"
            page.get_by_role("group", name="State").get_by_text("failed").click()
            row = page.get_by_role("row").filter(has_text="webhook.test")
            expect(row).to_have_count(1)
            row.click()
            delivery = page.get_by_role("dialog", name="webhook.test")
            expect(delivery.get_by_text("Attempt 1")).to_contain_text("500")
            expect(delivery).to_contain_text("webhook-signature")
            expect(delivery).to_contain_text("thanks")
            delivery.get_by_role("button", name="Send again").click()
            wait_until(lambda: len(target.received) == 3, "the delivery arrives again")
            assert target.received[2].verified(shown)["type"] == "webhook.test"
        finally:
            leave(page)
            product.api("DELETE", f"/webhooks/{webhook[1]}")
