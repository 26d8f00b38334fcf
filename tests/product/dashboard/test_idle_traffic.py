"""What a tab loads that is open and not touched: all day long, over a phone or a VPN."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from playwright.sync_api import BrowserContext, expect

from config.passwords import hash_password
from tests.kit.dashboard_areas import screens
from tests.kit.product import PASSWORD, Product

SECONDS = 15
MOST = 100_000 * SECONDS // 60
"""Bytes: a tenth of a megabyte a minute."""
PROXIES, ACCOUNTS = 205, 2000
SETTLED = 3000
"""Milliseconds after which a page has loaded what it shows."""


class Tab:
    """A page, and the bytes that have come to it from the network."""

    def __init__(self, context: BrowserContext, path: str) -> None:
        self.path = path
        self.loaded = 0
        self.page = context.new_page()
        network = context.new_cdp_session(self.page)
        network.send("Network.enable")
        network.on("Network.loadingFinished", self._finished)
        self.page.goto(f"/ui{path}")
        expect(self.page.get_by_role("heading", level=1)).to_be_visible()

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


def test_an_idle_tab_loads_a_tenth_of_a_megabyte_a_minute_at_most(
    own_product: Product, new_context: Callable[..., BrowserContext]
) -> None:
    one = fill(own_product)
    context = new_context(base_url=own_product.base_url)
    body = {"username": "admin", "password": PASSWORD, "session": "cookie"}
    assert context.request.post("/api/v1/auth/login", data=body).ok
    paths = [each.plain_path for each in screens() if not each.needs_object and not each.tab]
    paths += [path.replace(":id", identifier) for path, identifier in one.items()]
    tabs = [Tab(context, path) for path in dict.fromkeys(paths) if not path.endswith(("/new", "/import", "/me"))]
    tabs[0].page.wait_for_timeout(SETTLED)
    for each in tabs:
        each.loaded = 0
    tabs[0].page.wait_for_timeout(SECONDS * 1000)
    assert {each.path: each.loaded for each in tabs if each.loaded > MOST} == {}
