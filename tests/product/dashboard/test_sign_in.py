"""Sign-in, and what becomes of a session: in a reload, at its end, without the API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.kit.browser import Problems, look
from tests.kit.product import PASSWORD, Product
from tests.product.dashboard.signing import ENDED, fill_in, is_at


def test_a_sign_in_leads_to_the_address_that_was_asked_for_and_leaves_no_token_behind(stranger: Page) -> None:
    stranger.goto("/ui/proxies?q=x")
    fill_in(stranger)
    is_at(stranger, "Proxies")
    assert stranger.url.endswith("/ui/proxies?q=x")
    assert stranger.evaluate("[document.cookie, ...Object.keys(localStorage), ...Object.keys(sessionStorage)]") == [""]


def test_a_wrong_password_is_reported_and_the_form_stays(stranger: Page, problems: Problems) -> None:
    problems.allow("/auth/login: .* 401 ")
    stranger.goto("/ui/")
    fill_in(stranger, password="a wrong password")
    expect(stranger.get_by_role("alert")).to_have_text("The user name or password is wrong.")
    expect(stranger.get_by_label("User name")).to_have_value("admin")
    fill_in(stranger)
    is_at(stranger, "Overview")


def test_a_reload_keeps_the_session(page: Page) -> None:
    page.goto("/ui/proxies")
    is_at(page, "Proxies")
    page.reload()
    is_at(page, "Proxies")


@pytest.fixture
def leaver(product: Product) -> Iterator[dict[str, str]]:
    """A user who can be disabled, and whose sessions can be ended."""
    body = {"username": "leaver", "password": PASSWORD, "role": "operator"}
    user: dict[str, str] = product.data("POST", "/users", body)["user"]
    yield user
    product.api("DELETE", f"/users/{user['id']}")


def test_a_session_that_was_ended_leads_to_the_sign_in_and_back(
    stranger: Page, leaver: dict[str, str], product: Product, problems: Problems
) -> None:
    problems.allow(r"/api/v1/.* 40[13] ")
    stranger.goto("/ui/proxies")
    fill_in(stranger, "leaver")
    is_at(stranger, "Proxies")
    product.data("PATCH", f"/users/{leaver['id']}", {"status": "disabled"})
    look(stranger)
    expect(stranger.get_by_text(ENDED)).to_be_visible()
    product.data("PATCH", f"/users/{leaver['id']}", {"status": "active"})
    fill_in(stranger, "leaver")
    is_at(stranger, "Proxies")


def test_a_session_whose_time_is_over_leads_to_the_sign_in_and_back(fresh_page: Page, problems: Problems) -> None:
    problems.allow("net::ERR_CONNECTION_RESET")  # the page loads again what it has lost
    fresh_page.clock.install()
    fresh_page.goto("/ui/proxies")
    is_at(fresh_page, "Proxies")
    fresh_page.context.clear_cookies()  # as a browser does when their time is over
    fresh_page.clock.fast_forward("01:00:00")
    expect(fresh_page.get_by_text(ENDED)).to_be_visible()
    fill_in(fresh_page)
    is_at(fresh_page, "Proxies")


def test_a_restarted_api_costs_no_session(page: Page, product: Product, problems: Problems) -> None:
    problems.allow("net::ERR_|/api/v1/.* 50[0-9] ")
    page.goto("/ui/")
    is_at(page, "Overview")
    product.actor("api").kill()
    product.wait_healthy()
    page.get_by_role("link", name="Proxies").first.click()
    is_at(page, "Proxies")
    expect(page.get_by_text("Not reached since")).to_have_count(0)


def test_a_dropped_network_is_shown_with_its_begin_until_it_is_back(page: Page, problems: Problems) -> None:
    problems.allow("net::ERR_INTERNET_DISCONNECTED")
    page.goto("/ui/")
    is_at(page, "Overview")
    expect(page.get_by_role("status").filter(has_text="Loading")).to_have_count(0)
    page.context.set_offline(True)
    look(page)
    message = page.get_by_text("Not reached since").first
    expect(message).to_be_visible()
    page.context.set_offline(False)
    look(page)
    expect(message).not_to_be_visible()
