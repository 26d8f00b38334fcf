"""The places of the navigation, the tabs in them, addresses of before, and the numbers of problems."""

from __future__ import annotations

import re
import secrets

from playwright.sync_api import Page, expect

from tests.kit.browser import SignIn, show
from tests.kit.product import Product
from tests.kit.upstreams import closed_port
from tests.kit.wait import wait_until

PLACES = ["Overview", "Proxies", "Accounts", "Rules", "Live", "Logs", "Changes", "Settings"]


def places(page: Page) -> list[str]:
    links = page.get_by_role("navigation", name="Main navigation").get_by_role("link")
    return [(each.get_attribute("href") or "").removeprefix("/ui") for each in links.all()]


def test_each_place_has_its_areas_as_tabs(page: Page, sign_in: SignIn) -> None:
    show(page, "/proxies")
    navigation = page.get_by_role("navigation", name="Main navigation")
    expect(navigation.get_by_role("link")).to_have_text([re.compile(f"^{each}") for each in PLACES])
    tabs = page.get_by_role("navigation", name="Proxies")
    expect(tabs.get_by_role("link")).to_have_text(["Proxies", "Pools"])
    tabs.get_by_role("link", name="Pools").click()
    expect(page.get_by_role("heading", level=1, name="Pools")).to_be_visible()
    expect(navigation.get_by_role("link", name="Proxies")).to_have_attribute("aria-current", "page")
    reader = sign_in("user")
    show(reader, "/rules")
    expect(reader.get_by_role("navigation", name="Rules").get_by_role("link")).to_have_text(
        ["Policies", "Lists", "Try"]
    )
    assert places(reader) == ["/", "/proxies", "/accounts", "/rules", "/live", "/logs"]


def test_an_address_of_before_leads_to_its_screen(page: Page) -> None:
    for before, now in {"lists?q=ads": "rules/lists?q=ads", "keys": "account", "history/1": "changes?open=1"}.items():
        page.goto(f"/ui/{before}")
        page.wait_for_url(f"**/ui/{now}")
        expect(page.get_by_role("main").get_by_role("heading", level=1)).to_be_visible()
    expect(page.get_by_role("dialog", name="Revision 1")).to_be_visible()


def test_what_needs_attention_is_counted_at_its_place_and_in_the_title(page: Page, product: Product) -> None:
    name = f"failing-{secrets.token_hex(4)}"
    source = {"url": f"http://127.0.0.1:{closed_port()}/", "format": "plain", "interval": 3600}
    product.data("POST", "/lists", {"name": name, "kind": "domains", "source": source})
    try:
        wait_until(
            lambda: name in [each["name"] for each in product.data("GET", "/overview")["attention"]["entries"]],
            "the list needs attention",
        )
        show(page, "/logs")
        rules = page.get_by_role("navigation", name="Main navigation").get_by_role("link", name="Rules")
        expect(rules).to_have_accessible_name(re.compile(r"^Rules \d+ needs? attention$"))
        expect(page).to_have_title(re.compile(r"^\(\d+\) Logs · Proxyfleet$"))
        expect(page.locator("link[rel=icon]")).to_have_attribute("href", re.compile("problem"))
        show(page, "/")
        needs = page.get_by_role("complementary", name="Needs attention").get_by_role("listitem").filter(has_text=name)
        expect(needs.get_by_role("button", name="Fetch now")).to_be_visible()
    finally:
        product.api("DELETE", f"/lists/{name}")
