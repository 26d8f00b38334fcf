"""The session of a browser over real connections: reloads, twenty tabs, TLS, a restart, foreign pages, the log."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.cookies import Morsel, SimpleCookie
from typing import Any

import pytest
import requests

from tests.kit.product import PASSWORD, Product
from tests.kit.secured_product import LONG, SecuredProduct

pytestmark = [pytest.mark.product, pytest.mark.filterwarnings("ignore:Unverified HTTPS request")]

TABS = 20
PAGE = {"Sec-Fetch-Site": "same-origin"}
BODY = {"username": "admin", "password": PASSWORD, "session": "cookie"}


class Tab:
    """A page with a connection of its own; what it stores of cookies is what the test says."""

    def __init__(self, product: Product) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", product.port, timeout=LONG)
        self._connection.connect()

    def close(self) -> None:
        self._connection.close()

    def ask(
        self, method: str, path: str, headers: dict[str, str], body: Any = None
    ) -> tuple[int, Any, Morsel[str] | None]:
        """The status, the data, and the cookie that was set."""
        content = None if body is None else json.dumps(body)
        self._connection.request(method, f"/api/v1{path}", content, {"Content-Type": "application/json", **headers})
        response = self._connection.getresponse()
        data = json.loads(response.read()).get("data")
        set_cookies = SimpleCookie(response.headers["Set-Cookie"] or "")
        return response.status, data, next(iter(set_cookies.values()), None)


@pytest.fixture
def tabs(product: Product) -> Iterator[list[Tab]]:
    made = [Tab(product) for _ in range(TABS)]
    yield made
    for each in made:
        each.close()


def signed_in(tab: Tab) -> Morsel[str]:
    status, data, cookie = tab.ask("POST", "/auth/login", PAGE, BODY)
    assert (status, "refresh_token" in data) == (200, False)
    assert cookie is not None
    return cookie


def with_cookie(cookie: Morsel[str]) -> dict[str, str]:
    return {**PAGE, "Cookie": f"{cookie.key}={cookie.value}"}


def is_signed_in(tab: Tab, access_token: str) -> bool:
    return tab.ask("GET", "/auth/test", {"Authorization": f"Bearer {access_token}"})[0] == 200


def test_twenty_tabs_that_refresh_at_once_share_one_session(tabs: list[Tab]) -> None:
    first, start = signed_in(tabs[0]), threading.Barrier(TABS)

    def refresh(tab: Tab) -> tuple[int, Any, Morsel[str] | None]:
        start.wait(LONG)
        return tab.ask("POST", "/auth/refresh", with_cookie(first))

    with ThreadPoolExecutor(TABS) as pool:
        responses = list(pool.map(refresh, tabs))
    assert [status for status, _, _ in responses] == [200] * TABS
    (token,) = {cookie.value for _, _, cookie in responses if cookie is not None}
    assert token != first.value
    assert all(is_signed_in(tabs[0], data["access_token"]) for _, data, _ in responses)
    status, _, cleared = tabs[0].ask("POST", "/auth/logout", {**PAGE, "Cookie": f"{first.key}={token}"})
    assert status == 200
    assert cleared is not None
    assert (cleared.value, cleared["max-age"]) == ("", "0")
    assert not any(is_signed_in(tabs[0], data["access_token"]) for _, data, _ in responses)


def test_a_foreign_page_gets_nothing_and_ends_nothing(tabs: list[Tab]) -> None:
    tab = tabs[0]
    cookie = signed_in(tab)
    foreign = {**with_cookie(cookie), "Sec-Fetch-Site": "cross-site"}
    for path in ("/auth/refresh", "/auth/logout"):
        assert tab.ask("POST", path, foreign)[0] == 403
    status, data, _ = tab.ask("POST", "/auth/refresh", with_cookie(cookie))
    assert status == 200
    assert is_signed_in(tab, data["access_token"])


def test_a_cookie_opens_nothing_but_the_session(tabs: list[Tab]) -> None:
    cookie = signed_in(tabs[0])
    for path in ("/proxies", "/auth/test", "/auth/sessions"):
        assert tabs[0].ask("GET", path, with_cookie(cookie))[0] == 401


def test_the_log_has_no_token(tabs: list[Tab], product: Product) -> None:
    cookie = signed_in(tabs[0])
    _, _, fresh = tabs[0].ask("POST", "/auth/refresh", with_cookie(cookie))
    assert fresh is not None
    tabs[0].ask("POST", "/auth/logout", {**with_cookie(fresh), "Sec-Fetch-Site": "cross-site"})
    assert "/api/v1/auth/refresh" in product.log
    for each in (cookie, fresh):
        assert each.value.split("_", 2)[2] not in product.log


def test_with_tls_a_browser_keeps_its_session_through_a_restart(secured: SecuredProduct) -> None:
    browser = requests.Session()
    browser.verify, browser.trust_env = False, False
    url = f"{secured.base_url}/api/v1/auth"
    response = browser.post(f"{url}/login", json=BODY, headers=PAGE, timeout=LONG)
    assert response.status_code == 200, response.text
    header = response.headers["Set-Cookie"]
    assert header.startswith("__Host-proxyfleet=rt_")
    assert {"Secure", "HttpOnly", "SameSite=Strict", "Path=/"} <= {part.strip() for part in header.split(";")}
    assert "Domain" not in header
    assert secured.stop() == 0
    secured.start()
    for _ in range(3):
        response = browser.post(f"{url}/refresh", headers={"Origin": secured.base_url}, timeout=LONG)
        assert response.status_code == 200, response.text
    other = {"Origin": secured.base_url.replace("https", "http")}
    assert browser.post(f"{url}/refresh", headers=other, timeout=LONG).status_code == 403
    bearer = {"Authorization": f"Bearer {response.json()['data']['access_token']}"}
    sessions = browser.get(f"{url}/sessions", headers=bearer, timeout=LONG).json()["data"]["sessions"]
    assert [each["kind"] for each in sessions if each["current"]] == ["cookie"]
    assert browser.post(f"{url}/logout", headers=PAGE, timeout=LONG).status_code == 200
    assert not browser.cookies
    assert browser.post(f"{url}/refresh", headers=PAGE, timeout=LONG).status_code == 401
