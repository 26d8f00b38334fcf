"""Sign-in, and what becomes of a session: in a reload, in another tab, at its end, without the API."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.kit.browser import Problems
from tests.kit.product import PASSWORD, Product
from tests.product.dashboard.signing import ENDED, fill_in, is_at, is_signed_out, sign_out

LIST = re.compile(r"/api/v1/proxies(\?|$)")


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
    expect(stranger.get_by_role("alert")).to_have_text("The user name or the password is wrong.")
    expect(stranger.get_by_label("User name")).to_have_value("admin")
    fill_in(stranger)
    is_at(stranger, "Overview")


def test_a_reload_keeps_the_session(page: Page) -> None:
    page.goto("/ui/proxies")
    is_at(page, "Proxies")
    page.reload()
    is_at(page, "Proxies")


def test_a_sign_out_ends_the_session_in_the_other_tab(page: Page) -> None:
    page.goto("/ui/")
    is_at(page, "Overview")
    other = page.context.new_page()
    other.goto("/ui/proxies")
    is_at(other, "Proxies")
    sign_out(page)
    is_signed_out(page)
    is_signed_out(other)
    other.reload()
    is_signed_out(other)


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
    expect(stranger.get_by_text(ENDED)).to_be_visible()
    product.data("PATCH", f"/users/{leaver['id']}", {"status": "active"})
    fill_in(stranger, "leaver")
    is_at(stranger, "Proxies")


def test_an_access_token_whose_time_is_over_is_replaced_and_the_page_goes_on(page: Page) -> None:
    page.clock.install()
    page.goto("/ui/proxies")
    is_at(page, "Proxies")
    with page.expect_response("**/api/v1/auth/refresh") as refreshed, page.expect_response(LIST) as listed:
        page.clock.fast_forward("01:00:00")
    assert refreshed.value.ok
    assert listed.value.status in (200, 304)
    is_at(page, "Proxies")


def test_a_session_whose_time_is_over_leads_to_the_sign_in_and_back(page: Page) -> None:
    page.clock.install()
    page.goto("/ui/proxies")
    is_at(page, "Proxies")
    page.context.clear_cookies()  # as a browser does when their time is over
    page.clock.fast_forward("01:00:00")
    expect(page.get_by_text(ENDED)).to_be_visible()
    fill_in(page)
    is_at(page, "Proxies")


def test_a_session_that_is_ended_from_another_browser_leads_to_the_sign_in(
    stranger: Page, new_context: Callable[..., BrowserContext], leaver: dict[str, str], problems: Problems
) -> None:
    """The sessions of a user of this test: other tests go on with those of the administrator."""
    problems.allow("/api/v1/.* 401 ")
    other = new_context().new_page()
    for page, path, title in ((stranger, "/ui/proxies", "Proxies"), (other, "/ui/sessions", "Sessions")):
        page.goto(path)
        fill_in(page, leaver["username"])
        is_at(page, title)
    body = {"username": leaver["username"], "password": PASSWORD}
    token = other.request.post("/api/v1/auth/login", data=body).json()["data"]["access_token"]
    theirs = {"Authorization": f"Bearer {token}"}
    sessions = other.request.get("/api/v1/auth/sessions", headers=theirs).json()["data"]["sessions"]
    ended = [each["id"] for each in sessions if not each["current"]]
    assert len(ended) == 2
    for each in ended:
        assert other.request.delete(f"/api/v1/auth/sessions/{each}", headers=theirs).ok
    is_signed_out(stranger)
    is_signed_out(other)


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
    message = page.get_by_text("Not reached since").first
    expect(message).to_be_visible()
    page.context.set_offline(False)
    expect(message).not_to_be_visible()


def test_two_who_share_a_browser_get_their_own_permissions_each(page: Page, people: Callable[[str], str]) -> None:
    page.goto("/ui/")
    is_at(page, "Overview")
    sign_out(page)
    is_signed_out(page)
    fill_in(page, people("auditor"))
    expect(page.get_by_role("button", name=re.compile("Your menu.*one-auditor"))).to_be_visible()
    page.reload()
    expect(page.get_by_role("button", name=re.compile("Your menu.*one-auditor"))).to_be_visible()
