"""Who uses a browser sees nothing of others: another user in it, the holder of an account beside an operator, a page of
another site."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, Request, expect

from tests.kit.browser import Problems, leave, look
from tests.kit.product import PASSWORD, Product
from tests.product.dashboard.signing import fill_in, is_at, is_signed_out, is_user, sign_out

ELSEWHERE = "http://elsewhere.test/"
"""Never asked: its page comes from the test."""


def sign_in_unnoticed(context: BrowserContext, username: str) -> None:
    """Another user gets the cookie of this browser, and no tab gets a message: as in a browser without messages between
    tabs, or by an identity provider."""
    body = {"username": username, "password": PASSWORD, "session": "cookie"}
    assert context.request.post("/api/v1/auth/login", data=body, headers={"Sec-Fetch-Site": "same-origin"}).ok


# --- another user in the same browser -----------------------------------------------------------------------------


def test_a_tab_becomes_the_user_who_signed_in_in_another_and_keeps_nothing_of_the_one_before(
    own_page: Page, people: Callable[[str], str], problems: Problems
) -> None:
    problems.allow("/api/v1/.* 401 ")
    own_page.goto("/ui/settings/users?q=private")
    is_at(own_page, "Users")
    requests: list[Request] = []

    def note(request: Request) -> None:
        requests.append(request)

    own_page.on("request", note)
    sign_in_unnoticed(own_page.context, people("auditor"))
    look(own_page)
    is_user(own_page, "one-auditor")
    is_at(own_page, "Overview")
    assert own_page.url.endswith("/ui/")
    asked = [each for each in requests if "/api/v1/users" in each.url]
    refreshed = next(index for index, each in enumerate(requests) if each.url.endswith("/auth/refresh"))
    assert asked
    assert all(requests.index(each) < refreshed for each in asked), "none was sent again for the other user"


def test_after_a_sign_out_another_user_begins_at_the_first_screen_and_the_same_one_where_they_were(
    own_page: Page, people: Callable[[str], str]
) -> None:
    own_page.goto("/ui/proxies?q=private")
    is_at(own_page, "Proxies")
    sign_out(own_page)
    fill_in(own_page)
    is_at(own_page, "Proxies")
    expect(own_page.get_by_role("searchbox").last).to_have_value("private")
    sign_out(own_page)
    is_signed_out(own_page)
    assert "private" not in own_page.content()
    fill_in(own_page, people("operator"))
    is_at(own_page, "Overview")
    assert own_page.url.endswith("/ui/")
    own_page.reload()
    is_user(own_page, people("operator"))


def test_a_sign_out_ends_the_session_in_the_other_tab_which_is_the_next_users(
    own_page: Page, people: Callable[[str], str]
) -> None:
    own_page.goto("/ui/proxies?q=private")
    is_at(own_page, "Proxies")
    other = own_page.context.new_page()
    other.goto("/ui/")
    is_user(other, "admin")
    sign_out(other)
    is_signed_out(own_page)
    other.reload()
    is_signed_out(other)
    fill_in(other, people("auditor"))
    is_user(own_page, "one-auditor")
    is_at(own_page, "Overview")


@pytest.fixture
def climber(product: Product) -> Iterator[dict[str, Any]]:
    """A user whose role can be changed."""
    body = {"username": "climber", "password": PASSWORD, "role": "operator"}
    user = product.data("POST", "/users", body)["user"]
    yield user
    product.api("DELETE", f"/users/{user['id']}")


def test_a_role_that_is_lowered_while_the_page_is_open_takes_its_buttons_away(
    stranger: Page, climber: dict[str, Any], product: Product, problems: Problems
) -> None:
    problems.allow("/api/v1/.* 403 ")
    proxy = product.proxy(name="a proxy of the climber")
    stranger.goto(f"/ui/proxies/{proxy['id']}")
    fill_in(stranger, climber["username"])
    stop = stranger.get_by_role("button", name="Stop")
    expect(stop).to_be_visible()
    product.data("PATCH", f"/users/{climber['id']}", {"role": "user"})
    stop.click()
    expect(stop).to_have_count(0)
    assert product.data("GET", f"/proxies/{proxy['id']}")["proxy"]["status"] == "active"
    product.api("DELETE", f"/proxies/{proxy['id']}")


# --- the holder of an account beside an operator ------------------------------------------------------------------


@pytest.fixture
def holder(product: Product) -> Iterator[str]:
    """The name of an account, which is markup."""
    name = "<img src=x onerror=alert(1)>"
    body = {"username": name, "password": PASSWORD, "proxies": {"all": True}}
    account = product.data("POST", "/accounts", body)["account"]
    yield name
    product.api("DELETE", f"/accounts/{account['id']}")


def test_the_page_of_a_holder_leaves_the_session_of_an_operator_alone_and_never_uses_it(
    own_page: Page, holder: str, product: Product
) -> None:
    own_page.goto("/ui/")
    is_at(own_page, "Overview")
    cookies = own_page.context.cookies()
    mine = own_page.context.new_page()
    sent: list[dict[str, str]] = []
    mine.on("request", lambda request: sent.append({"url": request.url, **request.all_headers()}))
    mine.goto("/ui/me")
    fill_in(mine, holder)
    expect(mine.get_by_role("banner").get_by_text(holder)).to_be_visible()
    expect(mine.get_by_role("heading", level=1)).to_be_visible()
    sign_out(mine)
    is_signed_out(mine)
    assert holder not in mine.content()
    asked = [each for each in sent if "/api/v1/" in each["url"]]
    assert all(re.search("/api/v1/(me(/|$)|auth/methods$)", each["url"]) for each in asked), asked
    assert not any("proxyfleet=" in each.get("cookie", "") for each in asked)
    assert [each for each in own_page.context.cookies() if each.get("name") != "proxyfleet-holder"] == cookies
    own_page.reload()
    is_user(own_page, "admin")


def test_a_holder_whose_name_two_accounts_have_is_asked_for_the_proxy(
    stranger: Page, product: Product, problems: Problems
) -> None:
    problems.allow("/me/login: .* 400 ")
    proxies = [product.proxy(name=name) for name in ("first of two", "second of two")]
    body = {"username": "twice", "password": PASSWORD}
    allowed = [{"proxies": {"ids": [proxy["id"]]}} for proxy in proxies]
    accounts = [product.data("POST", "/accounts", {**body, **each})["account"] for each in allowed]
    stranger.goto("/ui/me")
    fill_in(stranger, "twice")
    stranger.get_by_label("Proxy").fill("second of two")
    stranger.get_by_role("button", name="Sign in").click()
    expect(stranger.get_by_role("banner").get_by_text("twice")).to_be_visible()
    expect(stranger.get_by_text("first of two")).to_have_count(0)
    leave(stranger)
    for account in accounts:
        product.api("DELETE", f"/accounts/{account['id']}")
    for proxy in proxies:
        product.api("DELETE", f"/proxies/{proxy['id']}")


def test_what_tabs_send_each_other_and_what_a_browser_keeps_has_no_token(stranger: Page, problems: Problems) -> None:
    """The other tab is of this origin and shows a file."""
    problems.allow("/favicon.ico")
    spy = stranger.context.new_page()
    spy.goto("/ui/LICENSES.txt")
    spy.evaluate("new BroadcastChannel('proxyfleet-session').onmessage = (event) => seen.push(event.data); seen = []")
    stranger.bring_to_front()
    stranger.goto("/ui/proxies")
    fill_in(stranger)
    is_at(stranger, "Proxies")
    kept = "[document.cookie, history.state, name, ...Object.entries(localStorage), ...Object.entries(sessionStorage)]"
    assert stranger.evaluate(kept) == ["", None, ""]
    sign_out(stranger)
    is_signed_out(stranger)
    assert stranger.evaluate(kept) == ["", None, ""]
    spy.wait_for_function("() => seen.some((each) => each.kind === 'signed-out')")
    seen = spy.evaluate("() => seen")
    assert {key for each in seen for key in each} == {"kind", "id"}
    assert all(each["id"].startswith("usr_") for each in seen if "id" in each)


# --- pages of other sites -----------------------------------------------------------------------------------------


def elsewhere(page: Page, content: str) -> None:
    """Show a page of another site."""
    page.route(ELSEWHERE, lambda route: route.fulfill(body=content, content_type="text/html"))
    page.goto(ELSEWHERE)


def test_no_page_of_another_site_can_frame_the_dashboard(stranger: Page, dashboard: str, problems: Problems) -> None:
    problems.allow("frame-ancestors|frame it|ERR_BLOCKED|refused to connect")
    address = dashboard.removesuffix("/ui/")
    framed = [
        f"<{element} {attribute}='{address}{path}?in={element}'></{element}>"
        for path in ("/ui/", "/ui/me", "/api/v1/docs")
        for element, attribute in (("iframe", "src"), ("object", "data"), ("embed", "src"))
    ]
    elsewhere(stranger, "".join(framed))
    stranger.wait_for_load_state("networkidle")
    assert [frame.url for frame in stranger.frames if frame.url.startswith(address)] == []


def test_a_page_that_opens_the_dashboard_has_no_hold_on_its_window(page: Page, dashboard: str) -> None:
    elsewhere(page, "a page of another site")
    with page.context.expect_page() as opened:
        page.evaluate("address => { window.held = window.open(address, 'a name') }", dashboard)
    window = opened.value
    expect(window.get_by_role("heading", level=1)).to_be_visible()
    assert window.evaluate("[window.opener, window.name]") == [None, ""]
    assert page.evaluate("held.closed")
