"""What belongs to a user alone: the first password, the account in the menu; and the page of a holder."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.kit.browser import Problems, leave, look
from tests.kit.product import PASSWORD, Product
from tests.product.dashboard.signing import fill_in, is_at, is_signed_out, is_user, sign_out

NEXT = "another horse, another battery"
REFUSED = r"/api/v1/users/.* 400 "


@pytest.fixture
def person(product: Product) -> Iterator[dict[str, Any]]:
    body = {"username": "changing", "password": PASSWORD, "role": "user"}
    made: dict[str, Any] = product.data("POST", "/users", body)["user"]
    yield made
    product.api("DELETE", f"/users/{made['id']}")


def change_password(page: Page, current: str, following: str) -> None:
    card = page.locator("form").filter(has_text="New password")
    card.get_by_label("Current password").fill(current)
    card.get_by_label("New password").fill(following)
    card.get_by_role("button", name="Change password").click()


def test_users_change_their_password_and_address_in_their_account_and_stay_signed_in(
    person: dict[str, Any],
    stranger: Page,
    new_context: Callable[..., BrowserContext],
    product: Product,
    problems: Problems,
) -> None:
    problems.allow(REFUSED)
    problems.allow(r"/api/v1/.* 401 ")
    here, there = stranger, new_context().new_page()
    for page in (here, there):
        page.goto("/ui/proxies")
        fill_in(page, person["username"])
        is_at(page, "Proxies")
    here.get_by_role("button", name=re.compile("Your menu")).click()
    here.get_by_role("menuitem", name="Your account").click()
    is_at(here, "Your account")
    change_password(here, "a guess at it", NEXT)
    expect(here.get_by_label("Current password").first).to_be_focused()
    expect(here.get_by_role("alert").filter(has_text="1 field has an error")).to_contain_text("is wrong")
    change_password(here, PASSWORD, NEXT)
    expect(here.get_by_text("Password changed. Your other sessions have ended.")).to_be_visible()
    expect(here.get_by_role("dialog")).to_have_count(0)
    here.get_by_label("E-mail").fill("one@example.com")
    address = here.locator("form").filter(has_text="Change e-mail address")
    address.get_by_label("Current password").fill(NEXT)
    address.get_by_role("button", name="Change e-mail address").click()
    expect(here.get_by_text("E-mail address changed")).to_be_visible()
    assert product.data("GET", f"/users/{person['id']}")["user"]["email"] == "one@example.com"
    look(there)
    expect(there.get_by_text("Your session has ended")).to_be_visible()
    here.get_by_label("Theme").select_option("High contrast")
    assert here.evaluate("document.documentElement.dataset.theme") == "contrast"
    here.get_by_label("Language").select_option("Deutsch")
    expect(here.get_by_role("heading", level=1, name="Ihr Konto")).to_be_visible()
    expect(here.get_by_text("diese", exact=True)).to_be_visible()
    here.reload()
    expect(here.get_by_role("heading", level=1, name="Ihr Konto")).to_be_visible()  # as it was chosen here
    here.get_by_label("Sprache").select_option("English")
    is_user(here, person["username"])


def test_the_first_password_is_changed_before_anything_else_or_kept_which_is_recorded(
    own_product: Product, new_context: Callable[..., BrowserContext], problems: Problems
) -> None:
    problems.allow(REFUSED)
    file = own_product.data_dir / "initial-admin-password"
    file.write_text(f"{PASSWORD}\n")
    page = new_context(base_url=own_product.base_url, permissions=["clipboard-read", "clipboard-write"]).new_page()
    page.goto("/ui/proxies")
    expect(page.get_by_label("Password", exact=True)).to_be_focused()
    expect(page.get_by_label("User name")).to_have_value("admin")
    page.get_by_role("button", name="Copy").first.click()
    assert page.evaluate("navigator.clipboard.readText()") == f"cat {file}"
    page.get_by_label("User name").click()
    page.keyboard.type("admin")
    expect(page.get_by_label("User name")).to_have_value("admin")
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    heading = page.get_by_role("heading", level=1, name="Choose your own password")
    expect(heading).to_be_visible()
    page.reload()
    expect(heading).to_be_visible()
    page.get_by_role("button", name="Keep it for now").click()
    is_at(page, "Proxies")
    page.reload()
    is_at(page, "Proxies")
    kept = own_product.data("GET", "/audit?action=auth.first_password_kept")["audit"]
    assert [each["user"]["username"] if "user" in each else each["resource"]["name"] for each in kept] == ["admin"]
    sign_out(page)
    is_signed_out(page)
    fill_in(page)
    expect(heading).to_be_visible()
    expect(page.get_by_label("Current password")).to_have_count(0)
    page.get_by_label("New password").fill("short")
    page.get_by_role("button", name="Change password").click()
    expect(page.get_by_label("New password")).to_be_focused()
    page.get_by_label("New password").fill(NEXT)
    page.get_by_role("button", name="Change password").click()
    is_at(page, "Proxies")
    assert not file.exists()
    page.reload()
    is_at(page, "Proxies")
    url = f"{own_product.base_url}/api/v1/users/{kept[0]['resource']['id']}"
    body = {"password": PASSWORD, "current_password": NEXT}
    assert own_product.session.patch(url, json=body, auth=("admin", NEXT), timeout=60).ok


def test_a_holder_chooses_one_of_many_proxies_and_copies_its_line(stranger: Page, product: Product) -> None:
    proxies = [product.proxy(name=f"many-{number:02}", auth={"enabled": True}) for number in range(9)]
    body = {"username": "of many", "password": PASSWORD, "proxies": {"ids": [each["id"] for each in proxies]}}
    account = product.data("POST", "/accounts", body)["account"]
    stranger.goto("/ui/me")
    fill_in(stranger, "of many")
    cards = stranger.get_by_role("main").get_by_role("heading", level=2)
    expect(cards.first).to_have_text("Usage")
    expect(cards.nth(1)).to_have_text("Set up a client")
    expect(stranger.get_by_text("9 proxies", exact=True)).to_be_visible()
    line = stranger.get_by_role("group", name="curl")
    expect(line).to_contain_text(f":{proxies[0]['port']}")
    choice = stranger.get_by_label("Proxy")
    expect(stranger.locator(f"#{choice.get_attribute('list')} option")).to_have_count(9)
    choice.fill("many-07")
    expect(line).to_contain_text(f"of%20many:PASSWORD@127.0.0.1:{proxies[7]['port']}")
    stranger.reload()
    expect(line).to_contain_text(f"of%20many:PASSWORD@127.0.0.1:{proxies[0]['port']}")
    kept = "[document.cookie, ...Object.keys(localStorage), ...Object.keys(sessionStorage)]"
    assert stranger.evaluate(kept) == [""]
    choice.fill("none of them")
    expect(stranger.get_by_text("Your account has no proxy with this name")).to_be_visible()
    sign_out(stranger)
    is_signed_out(stranger)
    stranger.reload()
    is_signed_out(stranger)
    leave(stranger)
    product.api("DELETE", f"/accounts/{account['id']}")
    for each in proxies:
        product.api("DELETE", f"/proxies/{each['id']}")
