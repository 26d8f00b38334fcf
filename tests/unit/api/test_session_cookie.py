"""The session of a browser: its cookie, who may use it and for what, and how several tabs share it."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from falcon.testing import Result

from api.api_settings import ApiSettings
from api.app import OPERATIONS
from api.http.request_site import Site
from api.operations import NONE
from api.security.tokens import GRACE
from config.settings.settings import Server
from tests.kit.api_stage import PASSWORD, QUIET, Api, error_of
from tests.kit.tables import table
from tests.unit.api.audit_reader import rows

TLS: dict[str, Any] = {"protocol": "https", "host": "fleet.example", "port": 443}
HERE: dict[str, Any] = {"host": "127.0.0.1", "port": 8080}
PAGE = {"Sec-Fetch-Site": "same-origin"}
NAME = "__Host-proxyfleet"


def sign_in(api: Api, headers: dict[str, str] | None = None, username: str = "admin", **where: Any) -> Result:
    body = {"username": username, "password": PASSWORD, "session": "cookie"}
    return api.post("/auth/login", body, headers, **(where or TLS))


def cookie_of(result: Result, name: str = NAME) -> str:
    return str(result.cookies[name].value)


def use(api: Api, act: str, token: str, headers: dict[str, str] = PAGE, name: str = NAME, **where: Any) -> Result:
    """A page's request to refresh or to sign out: the cookie, and no body."""
    return api.post(f"/auth/{act}", None, {**headers, "Cookie": f"{name}={token}"}, **(where or TLS))


def bearer(result: Result) -> dict[str, str]:
    return {"Authorization": f"Bearer {result.json['data']['access_token']}"}


def lives(api: Api, signed_in: Result) -> bool:
    return api.get("/auth/test", bearer(signed_in)).status_code == 200


@pytest.fixture
def now(api: Api, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of tokens, which stands still until a test moves it."""
    moment = [1_700_000_000.0]
    monkeypatch.setattr(api.services.tokens, "_clock", lambda: moment[0])
    monkeypatch.setattr(api.services.sessions, "_clock", lambda: moment[0])
    return moment


# --- the cookie ---------------------------------------------------------------------------------------------------


def test_the_refresh_token_is_in_the_cookie_and_not_in_the_body(api: Api) -> None:
    response = sign_in(api)
    data = response.json["data"]
    assert data.keys() == {"access_token", "expires_in", "token_type", "user", "session_kept"}
    assert data["session_kept"] is True
    cookie = response.cookies[NAME]
    assert re.fullmatch("rt_[0-9a-f]{24}_[0-9A-Za-z_-]{43}", cookie.value)
    assert (cookie.secure, cookie.http_only, cookie.same_site, cookie.path) == (True, True, "Strict", "/")
    assert cookie.max_age == api.services.tokens.lifetimes().refresh_token_ttl
    assert cookie.domain in (None, "")
    assert cookie.value not in response.text
    assert lives(api, response)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_without_tls_on_this_machine_it_has_no_prefix_and_goes_to_the_auth_operations_alone(
    api: Api, host: str
) -> None:
    response = sign_in(api, host=host, port=8080)
    cookie = response.cookies["proxyfleet"]
    assert (cookie.secure, cookie.http_only, cookie.same_site, cookie.path) == (False, True, "Strict", "/api/v1/auth")
    assert list(response.cookies) == ["proxyfleet"]
    assert use(api, "refresh", cookie.value, name="proxyfleet", host=host, port=8080).status_code == 200


def test_without_tls_elsewhere_there_is_no_cookie_and_the_session_lasts_as_long_as_its_page(api: Api) -> None:
    response = sign_in(api, host="fleet.example")
    assert not response.cookies
    assert response.json["data"]["session_kept"] is False
    assert lives(api, response)


@pytest.mark.parametrize(
    "origin", ["https://fleet.example", "https://localhost:8080", "http://fleet.example", "http://["]
)
def test_there_is_no_cookie_where_the_page_is_elsewhere_though_the_host_is_this_machine(api: Api, origin: str) -> None:
    """A proxy in front that rewrites `Host` and isn't trusted: without `Secure` it would be sent in clear, too."""
    response = sign_in(api, {**PAGE, "Origin": origin}, **HERE)
    assert not response.cookies
    assert response.json["data"]["session_kept"] is False
    assert lives(api, response)
    here = sign_in(api, {**PAGE, "Origin": "http://127.0.0.1:8080"}, **HERE)
    assert [*here.cookies] == ["proxyfleet"]


@pytest.mark.parametrize(("trusted", "name"), [(("127.0.0.0/8",), NAME), ((), None)])
def test_tls_that_a_trusted_proxy_terminates_counts(trusted: tuple[str, ...], name: str | None) -> None:
    api = Api(ApiSettings(security=QUIET, server=Server(trusted_proxies=trusted)))
    response = sign_in(api, {"X-Forwarded-Proto": "https"}, host="fleet.example")
    assert [*response.cookies] == ([name] if name else [])
    api.close()


def test_with_tls_a_cookie_without_the_prefix_is_none_of_ours(api: Api) -> None:
    """Any host of the domain can set one of that name."""
    token = cookie_of(sign_in(api))
    assert error_of(use(api, "refresh", token, name="proxyfleet"))[:2] == (401, "UNAUTHORIZED")
    assert use(api, "refresh", token).status_code == 200


def test_of_two_cookies_neither_is_believed(api: Api) -> None:
    """Another port of this machine may have set the second, to sign the person in as someone else."""
    token = cookie_of(sign_in(api, **HERE), "proxyfleet")
    planted = cookie_of(sign_in(api, **HERE), "proxyfleet")
    both = {**PAGE, "Cookie": f"proxyfleet={planted}; proxyfleet={token}"}
    for act in ("refresh", "logout"):
        assert error_of(api.post(f"/auth/{act}", None, both, **HERE))[:2] == (401, "UNAUTHORIZED")
    assert use(api, "refresh", token, name="proxyfleet", **HERE).status_code == 200


@table("value", ["", "x", "rt_", "rt_" + "0" * 24 + "_" + "A" * 43, '"', "\xff", "a" * 5000])
def test_a_made_up_cookie_is_401(api: Api, value: str) -> None:
    assert error_of(use(api, "refresh", value))[:2] == (401, "UNAUTHORIZED")


# --- what it is good for ------------------------------------------------------------------------------------------


def test_a_refresh_needs_nothing_but_the_cookie_and_gives_the_next_one(api: Api) -> None:
    first = sign_in(api)
    second = use(api, "refresh", cookie_of(first))
    assert second.status_code == 200, second.text
    assert second.json["data"].keys() == {"access_token", "expires_in", "token_type", "session_kept"}
    assert cookie_of(second) != cookie_of(first)
    assert lives(api, second)
    assert second.headers["Cache-Control"] == "no-store"


def test_it_survives_a_restart_of_the_api(api: Api) -> None:
    token = cookie_of(sign_in(api))
    api.start()
    assert use(api, "refresh", token).status_code == 200


@pytest.fixture
def cookie(api: Api) -> str:
    return cookie_of(sign_in(api))


@table("operation", [each for each in OPERATIONS if each.access != NONE], ids=lambda each: each.id)
def test_it_authorizes_nothing_else(api: Api, cookie: str, operation: Any) -> None:
    if operation.id == "logout":
        return
    headers = {**PAGE, "Cookie": f"{NAME}={cookie}"}
    path = re.sub(r"\{[a-z_]+\}", "nothing", operation.path)
    assert api.client.simulate_request(operation.method, path, headers=headers, **TLS).status_code == 401


def test_without_cookie_and_body_a_refresh_is_401(api: Api) -> None:
    assert error_of(api.post("/auth/refresh", None, PAGE, **TLS))[:2] == (401, "UNAUTHORIZED")
    assert error_of(api.post("/auth/refresh", {}, PAGE, **TLS))[:2] == (401, "UNAUTHORIZED")


def test_tokens_of_cookies_and_of_programs_are_not_interchangeable(api: Api) -> None:
    page = sign_in(api)
    assert api.post("/auth/refresh", {"refresh_token": cookie_of(page)}).status_code == 401
    program = api.post("/auth/login", {"username": "admin", "password": PASSWORD}).json["data"]["refresh_token"]
    assert use(api, "refresh", program).status_code == 401
    assert use(api, "refresh", cookie_of(page)).status_code == 200
    assert api.post("/auth/refresh", {"refresh_token": program}).status_code == 200


# --- which pages may use it ---------------------------------------------------------------------------------------

OURS = [
    {"Sec-Fetch-Site": "same-origin"},
    {"Sec-Fetch-Site": "none"},
    {"Origin": "https://fleet.example"},
    {"Origin": "https://FLEET.example:443"},
    {"Sec-Fetch-Site": "same-origin", "Origin": "null"},
]
FOREIGN = [
    {},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "https://fleet.example"},
    {"Sec-Fetch-Site": ""},
    {"Origin": "https://other.example"},
    {"Origin": "http://fleet.example"},
    {"Origin": "https://fleet.example:8443"},
    {"Origin": "https://fleet.example.other.example"},
    {"Origin": "https://other.example@fleet.example"},
    {"Origin": "https://"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Referer": "https://fleet.example/ui/"},
]


@table("act", ["refresh", "logout"])
@table("headers", OURS, ids=str)
def test_pages_of_this_api_may_use_it(api: Api, headers: dict[str, str], act: str) -> None:
    assert use(api, act, cookie_of(sign_in(api)), headers).status_code == 200


@table("act", ["refresh", "logout"])
@table("headers", FOREIGN, ids=str)
def test_no_page_of_another_origin_can_use_it(api: Api, headers: dict[str, str], act: str) -> None:
    page = sign_in(api)
    status, code, details = error_of(use(api, act, cookie_of(page), headers))
    assert (status, code) == (403, "FORBIDDEN")
    assert "Sec-Fetch-Site" in details["reason"]
    assert lives(api, page)
    assert use(api, "refresh", cookie_of(page)).status_code == 200, "it was not used"


@pytest.mark.parametrize("headers", [{"Origin": "https://other.example"}, {"Sec-Fetch-Site": "cross-site"}], ids=str)
def test_no_page_of_another_origin_can_sign_a_browser_in(api: Api, headers: dict[str, str]) -> None:
    response = sign_in(api, headers)
    assert error_of(response)[:2] == (403, "FORBIDDEN")
    assert not response.cookies


TRUSTED = ("127.0.0.0/8",)
SITES = {
    "plain": ({"host": "h"}, Site(False, "h", 80)),
    "a port": ({"host": "H:8080"}, Site(False, "h", 8080)),
    "IPv6": ({"host": "[::1]:8080"}, Site(False, "::1", 8080)),
    "TLS in front": ({"host": "h", "x-forwarded-proto": "https"}, Site(True, "h", 443)),
    "the last word": ({"host": "h", "x-forwarded-proto": "https, http"}, Site(False, "h", 80)),
    "a host in front": ({"host": "inner:1", "x-forwarded-host": "x, outer"}, Site(False, "outer", 80)),
    "its port": ({"host": "i", "x-forwarded-host": "outer:81", "x-forwarded-port": "82"}, Site(False, "outer", 81)),
    "a port in front": ({"host": "h", "x-forwarded-port": "8443"}, Site(False, "h", 8443)),
    "an odd port": ({"host": "h", "x-forwarded-port": "8" * 5000}, Site(False, "h", 80)),
    "no host": ({}, Site(False, "", 80)),
    "nonsense": ({"host": "a@b:c/d"}, Site(False, "", 80)),
}


@table(("headers", "site"), SITES.values(), ids=SITES)
def test_the_site_is_what_the_client_sees(headers: dict[str, str], site: Site) -> None:
    assert Site.of("http", "127.0.0.1", headers, TRUSTED) == site


@pytest.mark.parametrize("name", ["x-forwarded-proto", "x-forwarded-host", "x-forwarded-port"])
def test_what_an_untrusted_peer_says_about_the_site_does_not_count(name: str) -> None:
    value = {"x-forwarded-proto": "https", "x-forwarded-host": "other", "x-forwarded-port": "81"}[name]
    assert Site.of("http", "192.0.2.7", {"host": "h", name: value}, TRUSTED) == Site(False, "h", 80)


def test_a_site_without_a_host_is_the_origin_of_no_page() -> None:
    site = Site.of("http", "127.0.0.1", {}, ())
    assert all(site.is_cross_origin(None, origin) for origin in (None, "", "http://", "null"))


# --- several tabs -------------------------------------------------------------------------------------------------


def test_the_token_before_is_good_for_ten_seconds_and_gives_the_current_one(api: Api, now: list[float]) -> None:
    first = sign_in(api)
    second = use(api, "refresh", cookie_of(first))
    now[0] += GRACE - 0.1
    again = use(api, "refresh", cookie_of(first))
    assert again.status_code == 200
    assert cookie_of(again) == cookie_of(second)
    assert lives(api, again)


def test_a_use_after_that_ends_the_session_and_is_recorded(api: Api, now: list[float]) -> None:
    first = sign_in(api)
    second = use(api, "refresh", cookie_of(first))
    now[0] += GRACE
    assert error_of(use(api, "refresh", cookie_of(first)))[:2] == (401, "UNAUTHORIZED")
    assert use(api, "refresh", cookie_of(second)).status_code == 401
    assert not lives(api, second)
    assert rows(api)[0]["action"] == "auth.refresh_reused"


def test_a_tab_that_is_late_by_several_refreshes_gets_the_current_token(api: Api, now: list[float]) -> None:
    chain = [cookie_of(sign_in(api))]
    for _ in range(4):
        now[0] += 2
        chain.append(cookie_of(use(api, "refresh", chain[-1])))
    assert len(set(chain)) == 5
    now[0] += 1.5
    assert {cookie_of(use(api, "refresh", each)) for each in chain[:-1]} == {chain[-1]}
    now[0] += 2.5
    assert use(api, "refresh", chain[0]).status_code == 401, "ten seconds after it was replaced"


def test_the_grace_of_a_token_is_not_renewed_by_its_use(api: Api, now: list[float]) -> None:
    first = cookie_of(sign_in(api))
    use(api, "refresh", first)
    now[0] += GRACE / 2
    assert use(api, "refresh", first).status_code == 200
    now[0] += GRACE / 2
    assert use(api, "refresh", first).status_code == 401


@pytest.mark.usefixtures("now")
def test_twenty_tabs_that_refresh_at_once_stay_signed_in_with_one_token(api: Api) -> None:
    token, start = cookie_of(sign_in(api)), threading.Barrier(20)

    def refresh(_: int) -> Result:
        start.wait(120)
        return use(api, "refresh", token)

    with ThreadPoolExecutor(20) as pool:
        responses = list(pool.map(refresh, range(20)))
    assert {response.status_code for response in responses} == {200}
    assert len({cookie_of(response) for response in responses}) == 1
    assert all(lives(api, response) for response in responses)


def test_a_token_that_is_too_old_is_expired_and_its_age_is_that_of_the_cookie(api: Api, now: list[float]) -> None:
    first = cookie_of(sign_in(api))
    second = use(api, "refresh", first)
    now[0] += 3.0
    again = use(api, "refresh", first)
    assert again.cookies[NAME].max_age == second.cookies[NAME].max_age - 3
    now[0] += api.services.tokens.lifetimes().refresh_token_ttl
    assert error_of(use(api, "refresh", cookie_of(second)))[:2] == (401, "TOKEN_EXPIRED")


# --- the end ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [TLS, HERE], ids=["TLS", "loopback"])
def test_a_sign_out_ends_the_session_and_deletes_the_cookie(api: Api, place: dict[str, Any]) -> None:
    name = NAME if place is TLS else "proxyfleet"
    page = sign_in(api, **place)
    response = use(api, "logout", cookie_of(page, name), name=name, **place)
    assert response.status_code == 200
    cleared, was = response.cookies[name], page.cookies[name]
    assert (cleared.value, cleared.max_age) == ("", 0)
    assert (cleared.path, cleared.secure, cleared.http_only) == (was.path, was.secure, was.http_only)
    assert not lives(api, page)
    assert use(api, "refresh", cookie_of(page, name), name=name, **place).status_code == 401


def test_a_sign_out_by_access_token_deletes_the_cookie_too(api: Api) -> None:
    page = sign_in(api)
    response = api.post("/auth/logout", None, bearer(page), **TLS)
    assert response.cookies[NAME].max_age == 0
    assert use(api, "refresh", cookie_of(page)).status_code == 401


def test_a_sign_out_with_a_replaced_token_ends_the_session(api: Api, now: list[float]) -> None:
    first = sign_in(api)
    second = use(api, "refresh", cookie_of(first))
    now[0] += 3600
    assert use(api, "logout", cookie_of(first)).status_code == 200
    assert use(api, "refresh", cookie_of(second)).status_code == 401


def test_a_made_up_cookie_ends_no_session_of_others(api: Api) -> None:
    page = sign_in(api)
    family = cookie_of(page).split("_")[1]
    assert use(api, "logout", f"rt_{family}_{'A' * 43}").status_code == 200
    assert lives(api, page)


def test_a_sign_out_is_recorded_with_the_user_and_the_session(api: Api) -> None:
    page = sign_in(api)
    use(api, "logout", cookie_of(page))
    entry = rows(api)[0]
    family = cookie_of(page).split("_")[1]
    assert (entry["action"], entry["actor"]["username"]) == ("auth.logout", "admin")
    assert entry["credential"] == {"method": "cookie", "id": family, "name": None}


def test_the_next_sign_in_of_a_browser_ends_the_session_before(api: Api) -> None:
    api.add_user("eva")
    first = sign_in(api)
    second = sign_in(api, {**PAGE, "Cookie": f"{NAME}={cookie_of(first)}"}, "eva")
    assert second.json["data"]["user"]["username"] == "eva"
    assert not lives(api, first)
    assert lives(api, second)


def test_a_planted_cookie_does_not_become_the_session(api: Api) -> None:
    """Fixation: what the browser had before a sign-in is not what it has after it."""
    api.add_user("eva")
    planted = cookie_of(sign_in(api, username="eva"))
    signed_in = sign_in(api, {**PAGE, "Cookie": f"{NAME}={planted}"})
    assert cookie_of(signed_in).split("_")[1] != planted.split("_")[1]
    assert use(api, "refresh", planted).status_code == 401


def test_a_wrong_password_leaves_the_session_as_it_is(api: Api) -> None:
    page = sign_in(api)
    headers = {**PAGE, "Cookie": f"{NAME}={cookie_of(page)}"}
    body = {"username": "admin", "password": "wrong", "session": "cookie"}
    assert api.post("/auth/login", body, headers, **TLS).status_code == 401
    assert lives(api, page)


def test_a_disabled_user_gets_no_further(api: Api) -> None:
    eva = api.add_user("eva")
    page = sign_in(api, username="eva")
    assert api.patch(f"/users/{eva.id}", {"status": "disabled"}, api.token()).status_code == 200
    assert use(api, "refresh", cookie_of(page)).status_code == 401


# --- what must not be seen ----------------------------------------------------------------------------------------


@pytest.fixture
def _all_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.DEBUG):
        yield


@pytest.mark.usefixtures("_all_logged")
def test_no_token_is_in_logs_audit_and_errors(api: Api, now: list[float], caplog: pytest.LogCaptureFixture) -> None:
    first = sign_in(api)
    secrets = [cookie_of(first), cookie_of(use(api, "refresh", cookie_of(first)))]
    responses = [use(api, "refresh", secrets[0], {}), use(api, "refresh", secrets[0] + "x")]
    responses.append(api.post("/auth/refresh", {"refresh_token": [secrets[0]]}))
    now[0] += GRACE
    responses += [use(api, "refresh", secrets[0]), use(api, "logout", secrets[1])]
    seen = "".join(response.text for response in responses) + caplog.text
    seen += str(rows(api))
    for secret in (each.split("_", 2)[2] for each in secrets):
        assert secret not in seen
        assert secret not in str([each.body for each in api.store.find("refresh_families")])
