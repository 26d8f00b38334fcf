"""The overview draws where traffic flows; a node leaves what flows through it, by keys as well. Its chart has marks of
changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import requests
from playwright.sync_api import Page, expect

from tests.kit.browser import show
from tests.kit.http_origins import Origin


def test_a_node_of_the_flow_leaves_what_flows_through_it_and_leads_to_its_page(
    make_proxy: Callable[..., dict[str, Any]], page: Page, origin: Origin, axe: Callable[..., None]
) -> None:
    proxy = make_proxy(name="flow-one")
    through = {"http": f"http://127.0.0.1:{proxy['port']}"}
    assert requests.get(origin.url("/hello"), proxies=through, timeout=30).status_code == 200
    show(page, "/")
    change = page.get_by_role("link", name=re.compile("Proxy flow-one: created"))
    expect(change).to_have_attribute("href", re.compile(r"^/ui/changes\?open=\d+$"))
    card = page.locator("section", has=page.get_by_role("heading", name="Current traffic flow"))
    card.get_by_text("Requests", exact=True).click()
    node = card.get_by_role("button", name="flow-one")
    expect(node).to_be_visible(timeout=30_000)
    axe(page)
    node.focus()
    page.keyboard.press("Enter")
    expect(node).to_have_attribute("aria-pressed", "true")
    expect(card.get_by_role("button", name="127.0.0.1")).to_be_visible()
    axe(page)
    card.get_by_role("link", name="Open").click()
    expect(page.get_by_role("heading", name="flow-one", level=1)).to_be_visible()
