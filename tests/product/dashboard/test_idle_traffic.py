"""What a tab loads that is open and not touched: all day long, over a phone or a VPN."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import BrowserContext

from config.passwords import hash_password
from tests.kit.browser import log_in, wait_until_loaded
from tests.kit.dashboard_areas import screens
from tests.kit.product import PASSWORD, Product

SECONDS = 6
"""Longer than the pause of any list (5 s)."""
MOST = 100_000 * SECONDS // 60
"""Bytes: a tenth of a megabyte a minute."""
PROXIES, ACCOUNTS = 205, 500


class Tab:
    """A page, and the bytes that have come to it from the network."""

    def __init__(self, context: BrowserContext, path: str) -> None:
        self.path = path
        self.loaded = 0
        self.page = context.new_page()
        network = context.new_cdp_session(self.page)
        network.send("Network.enable")
        network.on("Network.loadingFinished", self._finished)
        self.page.goto(f"/ui{path}", wait_until="commit")  # the others load meanwhile

    def _finished(self, event: dict[str, Any]) -> None:
        self.loaded += int(event["encodedDataLength"])


def fill(product: Product) -> dict[str, str]:
    """Many objects, of which two proxies run; the ids of a proxy and of an account, by the path of their screen."""
    proxies = [
        {"name": f"idle-{number:03}", "protocol": "http", "port": 20_000 + number, "status": "inactive"}
        for number in range(PROXIES - 2)
    ]
    document = product.data("GET", "/config/export")
    product.data("POST", "/config/import", {**document, "proxies": proxies})
    running = [product.proxy(name=f"running-{number}") for number in range(2)]
    account = {"password_hash": hash_password(PASSWORD)}
    lines = [json.dumps({"username": f"idle{number:04}", **account}) for number in range(ACCOUNTS)]
    headers = {"Content-Type": "application/x-ndjson"}
    made = product.api("POST", "/accounts/import", data="\n".join(lines), headers=headers)
    assert made.status_code < 300, made.text
    found = product.data("GET", "/accounts?limit=1")["accounts"]
    return {"/proxies/:id": running[0]["id"], "/accounts/:id": found[0]["id"]}


@pytest.fixture
def tabs(own_product: Product, new_context: Callable[..., BrowserContext]) -> list[Tab]:
    """One for each screen that shows many objects or one of them."""
    one = fill(own_product)
    context = new_context(base_url=own_product.base_url)
    log_in(context, "admin")
    paths = [each.plain_path for each in screens() if not each.needs_object and not each.tab]
    paths += [path.replace(":id", identifier) for path, identifier in one.items()]
    return [Tab(context, path) for path in dict.fromkeys(paths) if not path.endswith(("/new", "/import", "/me"))]


def test_an_idle_tab_loads_a_tenth_of_a_megabyte_a_minute_at_most(tabs: list[Tab]) -> None:
    for each in tabs:
        wait_until_loaded(each.page)
    for each in tabs:
        each.loaded = 0
    tabs[0].page.wait_for_timeout(SECONDS * 1000)
    assert {each.path: each.loaded for each in tabs if each.loaded > MOST} == {}
