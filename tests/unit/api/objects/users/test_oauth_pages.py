"""Signing in at an identity provider from a page of this API: it ends in the cookie of a session, and at that page."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest
from falcon.testing import Result

from api.objects.users.oauth_operations import page_path
from tests.kit.api_stage import Api, error_of
from tests.kit.fake_provider import JSON, FakeProvider, Make, begin
from tests.kit.tables import table

TLS: dict[str, Any] = {"protocol": "https", "host": "fleet.example", "port": 443}
HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
NAME = "__Host-proxyfleet"


def start(api: Api, return_to: str | None = None, **where: Any) -> Result:
    query = {"session": "cookie", **({} if return_to is None else {"return_to": return_to})}
    return api.get(f"/auth/oauth2/authorize?{urlencode(query)}", HTML, **(where or TLS))


def cookies_of(result: Result) -> str:
    return "; ".join(f"{name}={each.value}" for name, each in result.cookies.items())


def come_back(api: Api, back: dict[str, str], cookies: str, headers: dict[str, str] | None = None) -> Result:
    """The redirect of the provider, which the browser follows; no page of ours has sent it."""
    sent = {**HTML, "Sec-Fetch-Site": "cross-site", "Cookie": cookies, **(headers or {})}
    return api.get(f"/auth/oauth2/callback?{urlencode(back)}", sent, **TLS)


def test_a_sign_in_ends_at_its_page_with_the_cookie_and_no_token_in_the_address(
    make: Make, provider: FakeProvider
) -> None:
    api = make()
    begun = start(api, "/ui/proxies?state=failed&q=a%20b")
    assert begun.status_code == 302
    done = come_back(api, provider.sign_in(begun.headers["location"]), cookies_of(begun))
    assert (done.status_code, done.headers["location"]) == (302, "/ui/proxies?state=failed&q=a%20b")
    assert done.headers["Referrer-Policy"] == "no-referrer"
    token = done.cookies[NAME]
    assert (token.same_site, token.secure, token.http_only, token.path) == ("Strict", True, True, "/")
    assert [each.max_age for name, each in done.cookies.items() if name != NAME] == [0], (
        "that of the sign-in is deleted"
    )
    assert token.value not in done.text
    page = {"Sec-Fetch-Site": "same-origin", "Cookie": f"{NAME}={token.value}"}
    refreshed = api.post("/auth/refresh", None, page, **TLS).json["data"]
    bearer = {"Authorization": f"Bearer {refreshed['access_token']}"}
    assert api.get("/auth/test", bearer).json["data"]["username"] == "jane@example.com"
    (session,) = api.get("/auth/sessions", bearer).json["data"]["sessions"]
    assert session["kind"] == "cookie"


def test_without_a_page_it_returns_to_the_first_one(make: Make, provider: FakeProvider) -> None:
    api = make()
    begun = start(api)
    done = come_back(api, provider.sign_in(begun.headers["location"]), cookies_of(begun))
    assert done.headers["location"] == "/ui/"


PAGES = ["/ui/", "/ui/proxies", "/ui/proxies/prx_1/log", "/ui/logs?q=a%2Fb&from=2026-01-01T00:00:00Z", "/ui/a.b/"]
ELSEWHERE = [
    "https://other.example/",
    *("//other.example/", "/\\other.example/", "/ui", "/api/v1/docs", "/ui/../api/v1/docs"),
    *("/ui/..//other.example", "/ui/./x", "/ui//other.example", "/ui/%2e%2e/x", "/ui/..%2fx", "/ui/x\\y"),
    *("/ui/x#y", "/ui/x\r\nSet-Cookie: a=b", "/ui/\u2025/x", "/ui/x?a=\n", "/ui/x\n"),
    *("javascript:alert(1)", "ui/", ""),
]


@table("path", PAGES)
def test_a_sign_in_returns_to_pages(path: str) -> None:
    assert page_path(path) == path


@table("path", ELSEWHERE)
def test_a_sign_in_returns_to_nothing_else(make: Make, path: str) -> None:
    response = start(make(), path)
    assert error_of(response)[0] == 400
    assert error_of(response)[2]["field"] == "return_to"
    with pytest.raises(ValueError, match="below /ui/"):
        page_path(path)


def test_a_page_to_return_to_needs_the_cookie(make: Make) -> None:
    response = make().get("/auth/oauth2/authorize?return_to=/ui/", HTML, **TLS)
    assert error_of(response)[2]["field"] == "return_to"


def test_where_the_cookie_would_be_in_clear_no_such_sign_in_begins(make: Make) -> None:
    response = start(make(), host="fleet.example")
    assert error_of(response)[2]["field"] == "session"


def test_only_the_browser_that_began_gets_the_session(make: Make, provider: FakeProvider) -> None:
    api = make()
    for cookies in ("", "__Host-proxyfleet-sign-in-0000000000000000=x"):
        back = provider.sign_in(start(api).headers["location"])
        done = come_back(api, back, cookies)
        assert (done.status_code, done.headers["location"]) == (302, "/ui/sign-in?error=expired")
        assert NAME not in done.cookies
    assert provider.token_requests == []


def test_a_program_cannot_finish_the_sign_in_of_a_browser(make: Make, provider: FakeProvider) -> None:
    """One without `Origin` and `Sec-Fetch-Site`, which needs no cookie for what it began itself."""
    api = make()
    back = provider.sign_in(start(api).headers["location"])
    assert error_of(api.post("/auth/oauth2/callback", back))[2]["field"] == "state"


def test_what_a_front_end_began_does_not_end_in_a_cookie(make: Make, provider: FakeProvider) -> None:
    api = make()
    begun = api.get("/auth/oauth2/authorize", HTML, **TLS)
    done = come_back(api, provider.sign_in(begun.headers["location"]), cookies_of(begun))
    assert done.headers["location"] == "/ui/sign-in?error=expired"
    assert NAME not in done.cookies


def test_code_and_state_are_good_once(make: Make, provider: FakeProvider) -> None:
    api = make()
    begun = start(api)
    back = provider.sign_in(begun.headers["location"])
    assert come_back(api, back, cookies_of(begun)).headers["location"] == "/ui/"
    assert come_back(api, back, cookies_of(begun)).headers["location"] == "/ui/sign-in?error=expired"


def test_the_page_for_signing_in_gets_to_know_why_there_is_no_session(make: Make, provider: FakeProvider) -> None:
    api = make(auto_create=False)
    begun = start(api)
    back = provider.sign_in(begun.headers["location"])
    assert come_back(api, back, cookies_of(begun)).headers["location"] == "/ui/sign-in?error=refused"
    cancelled = {"error": "access_denied", "error_description": "<script>", "state": "x"}
    response = come_back(api, cancelled, "")
    assert response.headers["location"] == "/ui/sign-in?error=cancelled"
    assert "script" not in response.text
    provider.responses["/token"] = (500, {}, b"")
    begun = start(api)
    back = provider.sign_in(begun.headers["location"])
    assert come_back(api, back, cookies_of(begun)).headers["location"] == "/ui/sign-in?error=unavailable"


def test_a_client_of_json_gets_the_path_and_errors_as_everywhere(make: Make, provider: FakeProvider) -> None:
    api = make()
    begun = start(api)
    back = provider.sign_in(begun.headers["location"])
    done = come_back(api, back, cookies_of(begun), JSON)
    assert (done.status_code, done.json["data"]) == (200, {"location": "/ui/"})
    assert error_of(come_back(api, back, cookies_of(begun), JSON))[2]["field"] == "state"


def test_a_front_end_may_ask_for_the_cookie_as_well(make: Make, provider: FakeProvider) -> None:
    api = make()
    back = provider.sign_in(begin(api)["authorization_url"])
    done = api.post("/auth/oauth2/callback", {**back, "session": "cookie"}, **TLS)
    assert done.status_code == 200
    assert "refresh_token" not in done.json["data"]
    assert done.cookies[NAME].same_site == "Strict"
