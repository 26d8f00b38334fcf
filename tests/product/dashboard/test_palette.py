"""The palette by keys alone: what it finds, where it leads, what it does, and where the focus is then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, expect

from tests.kit.browser import SignIn, show
from tests.kit.product import PASSWORD, Product

NAME = "Search or run a command"
FOCUSED = "() => document.activeElement?.id ?? ''"


def chosen(page: Page) -> str:
    """The text of the option that the field names as the active one."""
    option = page.get_by_role("combobox", name=NAME).get_attribute("aria-activedescendant")
    return page.locator(f"[id='{option}'][aria-selected=true] .title").inner_text()


def type_into(page: Page, text: str, first: str) -> None:
    """Type, and wait until this option is the chosen one."""
    page.get_by_role("combobox", name=NAME).fill(text)
    expect(page.get_by_role("option", selected=True).locator(".title")).to_have_text(first)
    assert chosen(page) == first


def test_it_finds_goes_and_acts_by_keys_and_gives_the_focus_back(
    make_proxy: Callable[..., dict[str, Any]], page: Page, product: Product, axe: Callable[..., None]
) -> None:
    proxy = make_proxy(name="palette-one")
    account = product.data("POST", "/accounts", {"username": "palette-user", "password": PASSWORD})["account"]
    show(page, "/accounts")
    search = page.get_by_role("searchbox")
    expect(search).to_be_visible()

    page.keyboard.press("/")
    field = page.get_by_role("combobox", name=NAME)
    expect(field).to_be_focused()
    axe(page)
    type_into(page, "palette-o", "palette-one")
    axe(page)
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("option", selected=True).locator(".title")).to_have_text("Restart palette-one")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("palette-one")
    assert page.url.endswith(f"/ui/proxies/{proxy['id']}")
    assert page.evaluate(FOCUSED) == "content"

    show(page, "/accounts")
    page.keyboard.press("f")
    expect(search).to_be_focused()
    page.keyboard.press("Control+k")
    expect(field).to_be_focused()
    expect(page.get_by_role("group", name="Recent").get_by_role("option")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(field).to_have_count(0)
    expect(search).to_be_focused()

    page.keyboard.press("Control+k")
    type_into(page, "restart palette", "Restart palette-one")
    page.keyboard.press("Enter")
    expect(page.get_by_text("palette-one restarted")).to_be_visible()

    page.keyboard.press("Control+k")
    field.fill("new credential for palette-u")
    page.keyboard.press("Enter")  # before there is a result
    expect(page.get_by_role("dialog", name="Create credential")).to_be_visible()
    assert account["id"] in page.url
    page.keyboard.press("Escape")

    page.keyboard.press("/")
    type_into(page, "block casino.example", "Block casino.example")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Block a host").get_by_label("Host")).to_have_value("casino.example")
    page.keyboard.press("Escape")
    product.data("DELETE", f"/accounts/{account['id']}")


def test_a_user_finds_what_the_role_may_read_and_is_offered_no_change(
    make_proxy: Callable[..., dict[str, Any]], sign_in: SignIn
) -> None:
    make_proxy(name="palette-two")
    page = sign_in("user")
    show(page, "/proxies")
    page.get_by_role("button", name="Search or run").click()
    type_into(page, "palette-t", "palette-two")
    titles = ["palette-two", "What did palette-two refuse?"]
    expect(page.get_by_role("option").locator(".title")).to_have_text(titles)
    page.get_by_role("combobox", name=NAME).fill("restart palette-two")
    expect(page.get_by_text("No results for “restart palette-two”")).to_be_visible()
    page.get_by_role("combobox", name=NAME).fill("webhooks")
    expect(page.get_by_text("No results for “webhooks”")).to_be_visible()
