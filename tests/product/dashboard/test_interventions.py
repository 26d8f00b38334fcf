"""What is done about traffic where it is seen: a host is blocked, an account disabled, and that taken back. And the log
where it is seen: its facets, its histogram, a record beside the list."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.kit.browser import show
from tests.kit.curl import curl, needs_curl
from tests.kit.http_origins import Origin, serving
from tests.kit.product import PASSWORD, Product
from tests.kit.wait import wait_until

pytestmark = needs_curl

POLICY = "everywhere"
USER = "bob"
DENIED = "denied.example"


@pytest.fixture(scope="module")
def origin() -> Iterator[Origin]:
    with serving(server := Origin()):
        yield server


@pytest.fixture
def proxy(make_proxy: Callable[..., dict[str, Any]], product: Product) -> Iterator[dict[str, Any]]:
    """Of bob alone. Nothing holds for all proxies, before and after the test."""
    product.api("DELETE", "/settings/proxy.policy")
    product.api("DELETE", f"/policies/{POLICY}")
    accounts = [{"username": USER, "password": PASSWORD}]
    yield make_proxy(accounts=accounts, access={"deny_destinations": [DENIED]})
    product.api("DELETE", "/settings/proxy.policy")
    product.api("DELETE", f"/policies/{POLICY}")


class Client:
    """curl as bob."""

    def __init__(self, proxy: dict[str, Any], origin: Origin, product: Product) -> None:
        self._line = ("-x", f"http://127.0.0.1:{proxy['port']}", "-U", f"{USER}:{PASSWORD}")
        self._proxy, self._origin, self._product = proxy, origin, product

    def status(self, url: str = "") -> int:
        return curl(*self._line, url or self._origin.url("/hello"))[0]

    def recorded(self, number: int) -> None:
        """Wait until there are so many records."""
        path = f"/logs?proxy_id={self._proxy['id']}&limit=1"
        wait_until(lambda: self._product.data("GET", path)["total"] >= number, "the records are there")


@pytest.fixture
def client(proxy: dict[str, Any], origin: Origin, product: Product) -> Client:
    return Client(proxy, origin, product)


def rows(page: Page) -> Locator:
    return page.get_by_role("grid", name="Logs").locator("[data-index]")


def act(page: Page, row: Locator, item: str) -> Locator:
    """Choose an action of the row, which opens a form."""
    row.get_by_role("button", name="Actions").click()
    page.get_by_role("menuitem", name=item).click()
    return page.get_by_role("dialog")


def test_a_host_is_blocked_from_its_record_and_the_undo_takes_it_back(
    page: Page, product: Product, proxy: dict[str, Any], client: Client, axe: Callable[..., None]
) -> None:
    assert client.status() == 200
    client.recorded(1)
    show(page, f"/logs?proxy={proxy['id']}")
    form = act(page, rows(page).first, "Block 127.0.0.1")
    form.get_by_label("Where").select_option(label=f"on the proxy {proxy['name']}")
    form.get_by_label("For whom").select_option(label=f"for the account {USER}")
    preview = form.get_by_role("status")
    sentence = f"Requests to 127.0.0.1 on the proxy {proxy['name']} for the account {USER} are refused for an hour."
    expect(preview).to_contain_text(sentence)
    expect(preview).to_contain_text(f"This creates the policy {POLICY}")
    axe(page)
    form.get_by_role("button", name="Block", exact=True).click()
    expect(page.get_by_text(f"Blocked by the policy {POLICY}")).to_be_visible()
    (rule,) = product.data("GET", f"/policies/{POLICY}")["policy"]["rules"]
    assert rule["name"] == f"block 127.0.0.1 on {proxy['name']} for {USER}"
    assert rule["match"]["until"]
    assert client.status() == 403

    page.get_by_role("button", name="Undo", exact=True).click()
    expect(page.get_by_text("Undone")).to_be_visible()
    assert product.data("GET", f"/policies/{POLICY}")["policy"]["rules"] == []
    assert client.status() == 200


def test_a_limit_comes_behind_the_rules_that_are_there(
    page: Page, product: Product, proxy: dict[str, Any], client: Client
) -> None:
    stored = {"name": "first", "match": {"destinations": ["casino.example"]}, "action": {"use": "deny"}}
    product.data("POST", "/policies", {"name": POLICY, "rules": [stored]})
    product.data("PATCH", "/settings", {"proxy": {"policy": POLICY}})
    assert client.status() == 200
    client.recorded(1)
    show(page, f"/logs?proxy={proxy['id']}")
    form = act(page, rows(page).first, "Limit")
    expect(form.get_by_role("button", name="Limit", exact=True)).to_be_disabled()
    form.get_by_label("Connections").fill("2")
    form.get_by_role("button", name="Limit", exact=True).click()
    expect(page.get_by_text(f"Limited by the policy {POLICY}")).to_be_visible()
    first, limit = product.data("GET", f"/policies/{POLICY}")["policy"]["rules"]
    assert first["name"] == "first"
    assert (limit["name"], limit["match"]["accounts"]) == (f"limit for {USER}", [USER])
    assert limit["action"] == {"limits": {"connections": 2}}


def test_an_account_is_disabled_from_its_record_and_enabled_by_the_undo(
    page: Page, proxy: dict[str, Any], client: Client
) -> None:
    assert client.status() == 200
    client.recorded(1)
    show(page, f"/logs?proxy={proxy['id']}")
    form = act(page, rows(page).first, f"Disable {USER}")
    expect(form.get_by_role("status")).to_contain_text(f"The account {USER} can no longer use any proxy")
    form.get_by_role("button", name="Disable", exact=True).click()
    expect(page.get_by_text(f"{USER} disabled")).to_be_visible()
    assert client.status() == 403
    page.get_by_role("button", name="Undo", exact=True).click()
    expect(page.get_by_text("Undone")).to_be_visible()
    assert client.status() == 200


@pytest.mark.usefixtures("proxy")
def test_the_policy_for_all_proxies_is_chosen_above_the_policies_and_says_that_it_is(
    page: Page, product: Product
) -> None:
    name = f"all-{secrets.token_hex(4)}"
    product.data("POST", "/policies", {"name": name, "rules": []})
    try:
        show(page, "/rules")
        page.get_by_label("Policy before all others").select_option(label=name)
        expect(page.get_by_text(f"{name} applies on all proxies")).to_be_visible()
        assert product.data("GET", "/settings")["proxy"]["policy"] == name
        page.get_by_role("link", name=f"Open {name}").click()
        expect(page.get_by_text("all proxies (proxy.policy)")).to_be_visible()
        page.get_by_role("button", name="Undo", exact=True).click()
        expect(page.get_by_text("No policy applies on all proxies")).to_be_visible()
        assert product.data("GET", "/settings")["proxy"]["policy"] == ""
    finally:
        product.api("DELETE", "/settings/proxy.policy")
        product.data("DELETE", f"/policies/{name}")


def test_facets_and_the_histogram_narrow_the_log_in_its_address(
    page: Page, proxy: dict[str, Any], client: Client, axe: Callable[..., None]
) -> None:
    assert [client.status(), client.status(f"http://{DENIED}/")] == [200, 403]
    client.recorded(2)
    show(page, f"/logs?proxy={proxy['id']}")
    expect(rows(page)).to_have_count(2)
    outcomes = page.get_by_role("region", name="Outcome")
    expect(outcomes.get_by_role("button")).to_have_text(["passed 1", "refused by the proxy 1"])
    expect(page.get_by_role("region", name="Reason").get_by_role("button")).to_have_text(["target denied 1"])
    axe(page)
    outcomes.get_by_role("button", name="refused by the proxy").click()
    expect(rows(page)).to_have_count(1)
    expect(rows(page)).to_contain_text("target denied")
    assert "outcome=refused" in page.url
    outcomes.get_by_role("button", name="refused by the proxy").click()
    expect(rows(page)).to_have_count(2)

    bars = page.get_by_role("slider", name="Records over time").bounding_box()
    assert bars is not None
    middle = bars["y"] + bars["height"] / 2
    page.mouse.move(bars["x"] + bars["width"] * 0.9, middle)
    page.mouse.down()
    page.mouse.move(bars["x"] + bars["width"] - 2, middle, steps=4)
    page.mouse.up()
    page.wait_for_url(lambda url: "from=" in url and "to=" in url)
    expect(rows(page)).to_have_count(2)
    page.go_back()
    page.wait_for_url(lambda url: "from=" not in url)


def test_a_record_is_open_beside_the_list_with_the_steps_of_its_decision(
    page: Page, proxy: dict[str, Any], client: Client, axe: Callable[..., None]
) -> None:
    assert client.status(f"http://{DENIED}/") == 403
    client.recorded(1)
    show(page, f"/logs?proxy={proxy['id']}")
    expect(rows(page)).to_have_count(1)
    searches: list[str] = []
    page.on("request", lambda request: searches.append(request.url) if "/api/v1/logs?" in request.url else None)
    rows(page).first.press("Enter")
    record = page.get_by_role("dialog", name="Record")
    steps = record.get_by_role("listitem")
    expect(steps).to_contain_text(["Listener", "Sign-in", "Rules", "Exit", "Target"])
    expect(steps.nth(2)).to_contain_text("refused here")
    expect(steps.nth(2)).to_contain_text(f"access.deny_destinations[0] {DENIED}")
    expect(steps.nth(3)).to_contain_text("not reached")
    axe(page)
    assert "open=" in page.url
    page.keyboard.press("Escape")
    expect(record).to_have_count(0)
    assert "open=" not in page.url
    expect(rows(page).first).to_be_focused()
    assert searches == []
