"""Who may reach the API at all, from where a request came, how often, and what is logged of it."""

from __future__ import annotations

import base64
import json
import logging
from typing import Any

import pytest

from actors.log_lines import JsonFormatter
from api.api_settings import ApiSettings
from config.settings.settings import RateLimiting, Security, Server
from tests.kit.api_stage import PASSWORD, PROXY, QUIET, Api, error_of
from tests.kit.tables import table

OFF = RateLimiting(enabled=False)
RATE_HEADERS = {
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "ratelimit-policy",
    "ratelimit",
}


def guarded(api: Api, **settings: Any) -> None:
    """The settings as after a SIGHUP."""
    api.services.apply(ApiSettings(**{"security": QUIET, **settings}))


# --- the whitelist and https_only ---------------------------------------------------------------------------------


def test_an_address_outside_the_whitelist_is_refused_before_anything_else(api: Api) -> None:
    token = api.token()
    guarded(api, security=Security(ip_whitelist=("192.0.2.0/24", "2001:db8::/32"), rate_limiting=OFF))
    for headers in (token, {}):
        status, code, details = error_of(api.get("/proxies", headers))
        assert (status, code) == (403, "FORBIDDEN")
        assert "security.ip_whitelist" in details["reason"]
    assert api.post("/auth/login", {"username": "admin", "password": PASSWORD}).status_code == 403
    assert api.get("/no/such/path").status_code == 403
    for path in ("/health", "/livez", "/readyz"):
        assert api.get(path).status_code == 200


@table(
    ("address", "status"),
    [("192.0.2.7", 200), ("::ffff:192.0.2.7", 200), ("2001:db8::1", 200), ("192.0.3.7", 403), ("::1", 403)],
)
def test_the_whitelist_takes_networks_of_both_families(api: Api, address: str, status: int) -> None:
    guarded(api, security=Security(ip_whitelist=("192.0.2.0/24", "2001:db8::/32"), rate_limiting=OFF))
    assert api.get("/auth/test", api.token(), remote_addr=address).status_code == status


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("127.0.0.1", "192.0.2.7", "127.0.0.1"),
        ("10.0.0.1", "192.0.2.7", "192.0.2.7"),
        ("10.0.0.1", "192.0.2.7, 198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "192.0.2.7, 10.0.0.2", "192.0.2.7"),
        ("10.0.0.1", "192.0.2.7, nonsense", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("10.0.0.1", "", "10.0.0.1"),
    ],
)
def test_x_forwarded_for_counts_from_the_right_and_from_trusted_proxies_alone(
    api: Api, peer: str, forwarded: str, client: str
) -> None:
    guarded(api, server=Server(trusted_proxies=("10.0.0.0/24",)))
    wrong = {"username": "admin", "password": "wrong password"}
    api.post("/auth/login", wrong, {"X-Forwarded-For": forwarded}, remote_addr=peer)
    assert api.fleet.published("auth.login_failed")[0]["client_ip"] == client


def test_https_only_refuses_plain_requests_and_believes_trusted_proxies_alone(api: Api) -> None:
    token = api.token()
    guarded(api, security=Security(https_only=True, rate_limiting=OFF), server=Server(trusted_proxies=("10.0.0.1",)))
    status, code, details = error_of(api.get("/proxies", token))
    assert (status, code) == (403, "FORBIDDEN")
    assert "security.https_only" in details["reason"]
    assert api.get("/proxies", token, protocol="https").status_code == 200
    forwarded = {**token, "X-Forwarded-Proto": "https"}
    assert api.get("/proxies", forwarded).status_code == 403
    assert api.get("/proxies", forwarded, remote_addr="10.0.0.1").status_code == 200
    assert (
        api.get("/proxies", {**forwarded, "X-Forwarded-Proto": "https, http"}, remote_addr="10.0.0.1").status_code
        == 403
    )
    assert api.get("/health").status_code == 200


# --- rate limits --------------------------------------------------------------------------------------------------


@pytest.fixture
def counted(api: Api) -> Api:
    guarded(api, security=Security())
    return api


def test_every_response_has_the_limits_errors_included(counted: Api) -> None:
    token = counted.token()
    responses = {
        200: counted.get("/proxies", token),
        400: counted.post("/proxies", {"port": 0}, token),
        401: counted.get("/proxies"),
        404: counted.get("/no/such/path"),
        405: counted.request("PUT", "/proxies", token),
        406: counted.get("/proxies", {**token, "Accept": "image/png"}),
        413: counted.request("POST", "/proxies", token, body="x" * (1024 * 1024 + 1)),
        415: counted.request("POST", "/proxies", {**token, "Content-Type": "text/plain"}, body="x"),
    }
    for status, response in responses.items():
        assert response.status_code == status
        assert {name.lower() for name in response.headers} >= RATE_HEADERS, status


def test_the_hundred_and_first_of_a_minute_is_429_and_says_when_to_come_again(counted: Api) -> None:
    token = counted.token()
    last = [counted.get("/auth/test", token) for _ in range(101)][-1]
    status, code, details = error_of(last)
    assert (status, code) == (429, "RATE_LIMITED")
    assert 1 <= details["retry_after"] <= 60
    assert last.headers["Retry-After"] == str(details["retry_after"])
    assert last.headers["X-RateLimit-Remaining"] == "0"
    assert last.headers["RateLimit-Policy"] == '"burst";q=100;w=60, "hourly";q=1000;w=3600'
    counted.add_user("eva", role="administrator")
    assert counted.get("/auth/test", counted.token("eva")).status_code == 200
    assert counted.get("/health").status_code == 200


def test_all_keys_of_one_user_together_have_twice_the_limits_of_one(counted: Api) -> None:
    counted.add_user("eva", role="administrator")
    keys = [counted.key() for _ in range(3)]
    served = [[counted.get("/auth/test", key).status_code for _ in range(101)].count(200) for key in keys]
    assert served == [100, 100, 0]
    refused = counted.get("/auth/test", keys[2])
    assert error_of(refused)[:2] == (429, "RATE_LIMITED")
    assert refused.headers["X-RateLimit-Remaining"] == "0"
    assert '"owner-burst";q=200;w=60, "owner-hourly";q=2000;w=3600' in refused.headers["RateLimit-Policy"]
    for other in (counted.token(), counted.key("eva")):
        assert counted.get("/auth/test", other).status_code == 200


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
    ],
)
def test_the_addresses_of_one_host_are_counted_together(counted: Api, first: str, second: str, together: bool) -> None:
    left = [
        int(counted.get("/proxies", extras={"REMOTE_ADDR": address}).headers["X-RateLimit-Remaining"])
        for address in (first, second)
    ]
    assert left == [99, 98 if together else 99]


# --- pages of others ---


OTHERS = {
    "another site": ({"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}, False),
    "another origin of the same site": (
        {"Sec-Fetch-Site": "same-site", "Origin": "http://x.falconframework.org"},
        False,
    ),
    "another origin, of a browser that says no site": ({"Origin": "http://evil.example"}, False),
    "an origin that is kept secret": ({"Origin": "null"}, False),
    "the same host at another port": ({"Origin": "http://falconframework.org:81"}, False),
    "the API's own page": ({"Sec-Fetch-Site": "same-origin", "Origin": "https://falconframework.org"}, True),
    "the API's own page, of a browser that says no site": ({"Origin": "http://falconframework.org"}, True),
    "its own page behind a proxy with another name": ({"Sec-Fetch-Site": "same-origin", "Origin": "https://x"}, True),
    "a person": ({"Sec-Fetch-Site": "none"}, True),
    "a program": ({}, True),
}


@pytest.fixture
def proxy(api: Api) -> str:
    """Its id; it runs."""
    return str(api.post("/proxies", PROXY, api.token()).json["data"]["proxy"]["id"])


@table(("fetch", "may"), OTHERS.values(), ids=OTHERS)
def test_a_page_of_another_origin_changes_nothing_by_the_basic_credentials_of_a_browser(
    api: Api, proxy: str, fetch: dict[str, str], may: bool
) -> None:
    basic = {"Authorization": "Basic " + base64.b64encode(f"admin:{PASSWORD}".encode()).decode(), **fetch}
    stopped = api.post(f"/proxies/{proxy}/stop", None, basic)
    assert stopped.status_code == (200 if may else 403)
    assert may or "reason" in error_of(stopped)[2]
    assert api.get(f"/proxies/{proxy}", basic).status_code == 200  # no other origin can read the response
    assert api.get(f"/proxies/{proxy}", basic).json["data"]["proxy"]["status"] == ("inactive" if may else "active")
    assert api.post(f"/proxies/{proxy}/start", None, {**api.token(), **fetch}).status_code == 200


# --- the log of requests ------------------------------------------------------------------------------------------


def test_a_request_is_logged_with_its_caller_and_id_but_without_its_query(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "api.requests"):
        api.get("/logs?search=private", {**api.token(), "X-Request-Id": "mine-1"})
        api.get("/auth/test%0Aforged line")
        api.get("/health")
    first, second = [record for record in caplog.records if record.name == "api.requests"]
    line = json.loads(JsonFormatter().format(first))
    assert (line["method"], line["path"], line["request_id"]) == ("GET", "/api/v1/logs", "mine-1")
    assert (line["user"], line["credential"], line["client_ip"]) == ("admin", "bearer", "127.0.0.1")
    assert "private" not in first.getMessage()
    assert "\n" not in second.getMessage()
    assert "404" in second.getMessage()


def test_what_an_interactive_session_reads_is_logged_at_debug_and_what_it_changes_at_info(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    token = api.services.tokens.issue(api.admin, "interactive").access_token
    headers = {"Authorization": f"Bearer {token}"}
    with caplog.at_level(logging.DEBUG, "api.requests"):
        api.get("/proxies", headers)
        api.get("/proxies/gone", headers)
        api.patch("/settings", {}, headers)
        api.get("/proxies", api.token())
    logged = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "api.requests"]
    assert [level for level, _ in logged] == ["DEBUG", "INFO", "INFO", "INFO"], logged


def test_without_request_logging_nothing_is_logged(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    guarded(api, security=Security(request_logging=False, rate_limiting=OFF))
    with caplog.at_level(logging.INFO, "api.requests"):
        api.get("/proxies", api.token())
    assert [record for record in caplog.records if record.name == "api.requests"] == []
