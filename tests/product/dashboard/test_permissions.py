"""What a role may not do has no button, and is refused by the API all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from api.security.permissions import ROLES, holds
from tests.kit.browser import SignIn, show
from tests.kit.dashboard_areas import screens
from tests.kit.product import PASSWORD, Product
from tests.kit.tables import table
from tests.product.dashboard.signing import buttons

CLOSED = [each for each in screens() if each.permission and not holds(ROLES["user"], each.permission)]
"""Screens that the role `user` may not see."""


@pytest.fixture(scope="module")
def proxy(product: Product) -> Iterator[dict[str, Any]]:
    made = product.proxy(name="a proxy of permissions")
    yield made
    product.api("DELETE", f"/proxies/{made['id']}")


def named(page: Page, path: str, proxy: dict[str, Any]) -> None:
    show(page, path)
    expect(page.get_by_role("main").get_by_text(proxy["name"]).first).to_be_visible()


def test_a_role_that_only_reads_has_no_button_that_changes_a_proxy_and_is_refused_by_the_api(
    product: Product, proxy: dict[str, Any], sign_in: SignIn, people: Callable[[str], str]
) -> None:
    page = sign_in("user")
    for path in ("/proxies", f"/proxies/{proxy['id']}"):
        named(page, path, proxy)
        expect(buttons(page)).to_have_count(0)
    body = {"username": people("user"), "password": PASSWORD}
    token = page.context.request.post("/api/v1/auth/login", data=body).json()["data"]["access_token"]
    headers = {"Authorization": f"Bearer {token}"}
    refused = page.context.request.post(f"/api/v1/proxies/{proxy['id']}/stop", headers=headers)
    assert refused.status == 403
    assert refused.json()["error"]["details"] == {"required_permission": "proxy.write"}
    assert product.data("GET", f"/proxies/{proxy['id']}")["proxy"]["runtime"]["state"] == "running"


@table(("tab", "permission"), [("configuration", "proxy.write"), ("history", "admin")])
def test_a_part_of_a_proxy_that_a_role_may_not_see_names_the_permission(
    sign_in: SignIn, proxy: dict[str, Any], tab: str, permission: str
) -> None:
    page = sign_in("user")
    show(page, f"/proxies/{proxy['id']}/{tab}")
    expect(page.get_by_text(f"You need the permission {permission}.")).to_be_visible()
    page.goto(f"/ui/proxies/{proxy['id']}/nothing-like-it")
    expect(page.get_by_text("Page not found")).to_be_visible()


def test_a_role_that_may_change_a_proxy_has_buttons_for_it(sign_in: SignIn, proxy: dict[str, Any]) -> None:
    page = sign_in("operator")
    named(page, f"/proxies/{proxy['id']}", proxy)
    expect(buttons(page).first).to_be_visible()


@pytest.mark.skipif(not CLOSED, reason="each screen is open to each role")
def test_screens_that_a_role_may_not_see_are_not_in_its_navigation_and_name_the_permission(sign_in: SignIn) -> None:
    page = sign_in("user")
    show(page, "/proxies")
    navigation = page.get_by_role("navigation", name="Main navigation")
    expect(navigation.get_by_role("link", name="Proxies")).to_be_visible()
    for screen in CLOSED:
        expect(navigation.locator(f'a[href="/ui{screen.plain_path}"]')).to_have_count(0)
    for screen in [each for each in CLOSED if not each.needs_object]:
        show(page, screen.plain_path)
        expect(page.get_by_text(f"You need the permission {screen.permission}.")).to_be_visible()
