"""Users, their keys and their sessions, from the screens that make and end them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.kit.browser import Problems, leave, look, show
from tests.kit.curl import curl, needs_curl
from tests.kit.product import PASSWORD, Product
from tests.product.dashboard.signing import ENDED, buttons, fill_in, is_at


@pytest.fixture
def proxy(product: Product) -> Iterator[dict[str, Any]]:
    made = product.proxy(name="read by a reader")
    yield made
    product.api("DELETE", f"/proxies/{made['id']}")


def test_a_user_who_was_created_in_the_page_signs_in_and_has_no_buttons(
    product: Product, proxy: dict[str, Any], page: Page, stranger: Page
) -> None:
    show(page, "/settings/users")
    page.get_by_role("main").get_by_role("link", name="Create user").click()
    page.get_by_label("User name").fill("reader")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_label("Role", exact=True).select_option("user")
    page.get_by_role("button", name="Create user").click()
    expect(page.get_by_role("heading", level=1, name="reader")).to_be_visible()
    user = page.url.rpartition("/")[2]
    try:
        stranger.goto(f"/ui/proxies/{proxy['id']}")
        fill_in(stranger, "reader")
        is_at(stranger, "read by a reader")
        expect(buttons(stranger)).to_have_count(0)
        for path in ("/ui/proxies", "/ui/accounts"):
            stranger.goto(path)
            expect(stranger.get_by_role("heading", level=1)).to_be_visible()
            expect(buttons(stranger)).to_have_count(0)
        look(page)
        expect(page.get_by_role("row").filter(has_text="Chrome")).to_be_visible()
    finally:
        for each in (page, stranger):
            leave(each)
        product.api("DELETE", f"/users/{user}")


@needs_curl
def test_a_key_that_was_created_in_the_page_is_used_until_it_is_revoked(page: Page, product: Product) -> None:
    show(page, "/settings/api-keys")
    page.get_by_role("button", name="Create API key").first.click()
    form = page.get_by_role("dialog")
    form.get_by_label("Name").fill("of a script")
    form.get_by_role("button", name="Create API key").click()
    once = page.get_by_role("dialog", name="New API key")
    key = once.locator("code").first.inner_text()
    once.get_by_role("button", name="Close").last.click()
    expect(page.get_by_text(key)).to_have_count(0)
    header, url = f"X-API-Key: {key}", f"{product.base_url}/api/v1"
    assert curl("-H", header, f"{url}/proxies")[0] == 200
    assert curl("-H", header, f"{url}/users")[0] == 403
    row = page.get_by_role("row").filter(has_text="of a script")
    row.get_by_role("button", name="Actions: of a script").click()
    page.get_by_role("menuitem", name="Revoke").click()
    confirm = page.get_by_role("dialog", name="Revoke")
    confirm.get_by_label("Type of a script to confirm").fill("of a script")
    confirm.get_by_role("button", name="Revoke").click()
    expect(row).to_have_count(0)
    assert curl("-H", header, f"{url}/proxies")[0] == 401


@pytest.fixture
def user(product: Product) -> Iterator[dict[str, Any]]:
    body = {"username": "at two places", "password": PASSWORD, "role": "operator"}
    made: dict[str, Any] = product.data("POST", "/users", body)["user"]
    yield made
    product.api("DELETE", f"/users/{made['id']}")


def test_a_session_that_is_ended_in_one_browser_leads_the_other_to_the_sign_in(
    user: dict[str, Any], stranger: Page, new_context: Callable[..., BrowserContext], problems: Problems
) -> None:
    problems.allow(r"/api/v1/.* 40[13] ")
    here, there = stranger, new_context(user_agent="a stolen laptop").new_page()
    for each in (here, there):
        each.goto("/ui/account")
        fill_in(each, user["username"])
        is_at(each, "Your account")
    look(here)
    other = here.get_by_role("row").filter(has_text="a stolen laptop")
    other.get_by_role("button", name="End session").click()
    here.get_by_role("dialog").get_by_role("button", name="End session").click()
    expect(other).to_have_count(0)
    look(there)
    expect(there.get_by_text(ENDED)).to_be_visible()
    expect(here.get_by_role("row").filter(has_text="this one")).to_be_visible()
