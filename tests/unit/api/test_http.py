"""HTTP as the API speaks it: the error table, ids, rates, health."""

from __future__ import annotations

import json
from typing import Any

import pytest

from actors.bus.messages.events import WebhookSenderState
from actors.bus.messages.metrics import SystemMetrics
from actors.bus.messages.records import LogPage, QueryLogs
from actors.bus.messages.supervision import Runtime
from api.api_settings import ApiSettings
from api.http.body import MAX_BODY, MAX_IMPORT
from api.http.request_site import client_address
from api.store import LedgerError, StoreWriteError
from config.settings.settings import RateLimiting, Security, Server
from tests.kit.api_stage import PASSWORD, PROXY, Api, application, check_envelope, error_of
from tests.kit.standin_actors import stats_of
from tests.kit.tables import table

JSON = {"Content-Type": "application/json"}

BAD_JSON = {
    "nothing": b"",
    "half": b'{"name": ',
    "a list": b"[]",
    "a number": b"1",
    "NaN": b'{"port": NaN}',
    "twice": b'{"name": "a", "name": "b"}',
    "not UTF-8": b'{"name": "\xff"}',
    "half a surrogate pair": b'{"name": "\\ud800"}',
    "UTF-16": '{"name": "a"}'.encode("utf-16"),
    "a BOM": b"\xef\xbb\xbf{}",
    "deep lists": b'{"tags": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "a little too deep": b'{"tags": ' + b"[" * 200 + b"]" * 200 + b"}",
    "an endless number": b'{"port": ' + b"1" * 10_000 + b"}",
}


@table("content", BAD_JSON.values(), ids=BAD_JSON)
def test_a_malformed_body_is_400(api: Api, content: bytes) -> None:
    response = api.request("POST", "/proxies", {**api.token(), **JSON}, body=content)
    assert error_of(response)[:2] == (400, "INVALID_REQUEST")


@table("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""])
def test_a_body_of_another_type_is_415(api: Api, kind: str) -> None:
    headers = {**api.token(), "Content-Type": kind}
    response = api.request("POST", "/proxies", headers, body=json.dumps(PROXY))
    assert error_of(response)[:2] == (415, "INVALID_REQUEST")


@pytest.mark.parametrize(("coding", "status"), [("gzip", 415), ("gzip, identity", 415), ("identity", 201), ("", 201)])
def test_a_body_in_a_coding_is_415_and_never_read_as_it_is(api: Api, coding: str, status: int) -> None:
    headers = {**api.token(), **JSON, "Content-Encoding": coding}
    response = api.request("POST", "/proxies", headers, body=json.dumps(PROXY))
    assert response.status_code == status
    if status == 415:
        assert error_of(response)[2]["field"] == "Content-Encoding"


def test_a_charset_parameter_does_not_matter(api: Api) -> None:
    headers = {**api.token(), "Content-Type": "application/json; charset=utf-8"}
    assert api.request("POST", "/proxies", headers, body=json.dumps(PROXY)).status_code == 201


def test_a_body_over_one_mebibyte_is_413_whatever_the_operation(api: Api) -> None:
    large = b'{"name": "' + b"x" * MAX_BODY + b'"}'
    for path in ("/proxies", "/proxies/prx_none/start"):
        response = api.request("POST", path, {**api.token(), **JSON}, body=large)
        assert error_of(response)[:2] == (413, "INVALID_REQUEST")


def test_an_import_may_be_larger_and_is_413_beyond_that(api: Api) -> None:
    for size, status in ((MAX_BODY, 400), (MAX_IMPORT, 413)):
        large = b'{"kind": "' + b"x" * size + b'"}'
        response = api.request("POST", "/config/import", {**api.token(), **JSON}, body=large)
        assert error_of(response)[:2] == (status, "INVALID_REQUEST")


@pytest.mark.filterwarnings("ignore:Unknown REQUEST_METHOD")
@pytest.mark.parametrize("method", ["PUT", "PROPFIND", "BREW"])
def test_another_method_is_405_with_allow(api: Api, method: str) -> None:
    response = api.request(method, "/proxies")
    assert error_of(response)[:2] == (405, "INVALID_REQUEST")
    assert {"GET", "POST"} <= {each.strip() for each in response.headers["Allow"].split(",")}


def test_a_client_that_takes_no_json_is_406(api: Api) -> None:
    response = api.get("/proxies", {**api.token(), "Accept": "text/html"})
    assert error_of(response)[:2] == (406, "INVALID_REQUEST")
    assert api.get("/proxies", {**api.token(), "Accept": "text/html, */*;q=0.1"}).status_code == 200


BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@table(
    ("accept", "target"),
    [(BROWSER, "/ui/"), ("TEXT/HTML;q=0.5", "/ui/"), ("*/*", "/api/v1/docs"), ("application/json", "/api/v1/docs")],
)
def test_the_root_leads_browsers_to_the_dashboard_and_programs_to_the_documentation(
    api: Api, accept: str, target: str
) -> None:
    response = api.client.simulate_get("/", headers={"Accept": accept})
    assert (response.status_code, response.headers["location"]) == (302, target)
    assert response.headers["vary"] == "Accept"
    assert api.client.simulate_get("/docs", headers={"Accept": accept}).headers["location"] == "/api/v1/docs"


@pytest.mark.parametrize(("path", "target"), [("/", "/docs"), ("/docs", "/docs"), ("/openapi.json", "/openapi.json")])
def test_what_people_try_first_leads_to_where_it_is(api: Api, path: str, target: str) -> None:
    response = api.client.simulate_get(path)
    assert (response.status_code, response.headers["Location"]) == (302, f"/api/v1{target}")
    check_envelope(response)
    assert api.client.simulate_get(response.headers["Location"]).status_code == 200
    refused = api.client.simulate_post(path)
    assert (refused.status_code, refused.headers["Allow"]) == (405, "GET, HEAD, OPTIONS")


@table("path", ["/nothing", "/api/v1/hooks", "/api/v2/proxies", "/docs/", "/proxies/a/b/c"])
def test_an_unknown_path_is_404(api: Api, path: str) -> None:
    response = api.client.simulate_get(path)
    assert error_of(response)[:2] == (404, "NOT_FOUND")


def test_validation_comes_before_existence(api: Api) -> None:
    assert api.patch("/proxies/prx_none", {"port": 0}, api.token()).status_code == 400
    assert api.patch("/proxies/prx_none", {"port": 1}, api.token()).status_code == 404


def test_head_is_get_without_a_body(api: Api) -> None:
    response = api.request("HEAD", "/proxies", api.token())
    assert (response.status_code, response.content) == (200, b"")


def test_a_well_formed_request_id_is_kept_and_another_replaced(api: Api) -> None:
    assert api.get("/livez", {"X-Request-Id": "abc-123"}).headers["X-Request-Id"] == "abc-123"
    for bad in ("a b", "x" * 129, "<script>"):
        assert api.get("/livez", {"X-Request-Id": bad}).headers["X-Request-Id"].startswith("req_")


def test_a_bug_is_500_with_the_request_id_and_nothing_of_the_inside(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    headers = api.token()

    def bug() -> Any:
        raise ZeroDivisionError("the inside")

    monkeypatch.setattr(api.services.proxies, "all", bug)
    response = api.get("/proxies", {**headers, "X-Request-Id": "find-me"})
    assert error_of(response) == (500, "INTERNAL_ERROR", {"request_id": "find-me"})
    assert "inside" not in response.text
    assert any("find-me" in record.getMessage() for record in caplog.records)


def test_a_disk_that_refuses_is_500_and_nothing_changes(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    headers = api.token()
    before = api.store.revision

    def full(*_: Any) -> Any:
        raise StoreWriteError("No space left on device")

    monkeypatch.setattr(api.engine.documents, "take", full)
    response = api.post("/proxies", PROXY, headers)
    assert error_of(response)[:2] == (500, "INTERNAL_ERROR")
    assert "nothing was changed" in response.json["error"]["message"]
    assert (api.store.revision, api.store.find("proxies")) == (before, [])


def test_an_outage_of_the_fleets_database_is_one_warning_and_not_an_error_for_each_request(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_: Any) -> Any:
        raise LedgerError("db: no route to host")

    application.cache_clear()  # that of other tests may have said it within the last minute
    api.start()
    headers = api.token()
    monkeypatch.setattr(api.engine.documents, "take", away)
    for name in ("one", "two", "three"):
        response = api.post("/lists", {"name": name, "kind": "domains", "entries": []}, headers)
        assert error_of(response)[:2] == (503, "DATABASE_UNAVAILABLE")
    lines = [(each.levelname, each.getMessage()) for each in caplog.records if each.name == "api.app"]
    text = "changes are refused while the fleet's database can't be used: db: no route to host"
    assert lines == [("WARNING", text)]


# --- rates --------------------------------------------------------------------------------------------------------


def limited(per_minute: int, session_per_minute: int = 600, **server: Any) -> Api:
    rates = RateLimiting(requests_per_minute=per_minute, session_per_minute=session_per_minute)
    return Api(ApiSettings(server=Server(**server), security=Security(rate_limiting=rates)))


def test_beyond_the_burst_is_429_with_headers_that_tell() -> None:
    api = limited(3)
    headers = api.token()
    responses = [api.get("/auth/test", headers) for _ in range(4)]
    assert [response.status_code for response in responses] == [200, 200, 200, 429]
    assert [response.headers["X-RateLimit-Remaining"] for response in responses] == ["2", "1", "0", "0"]
    last = responses[-1]
    assert last.headers["X-RateLimit-Limit"] == "3"
    assert last.headers["RateLimit-Policy"] == '"burst";q=3;w=60, "hourly";q=1000;w=3600'
    assert last.headers["RateLimit"].startswith('"burst";r=0;t=')
    assert 1 <= int(last.headers["Retry-After"]) <= 60
    assert error_of(last) == (429, "RATE_LIMITED", {"retry_after": int(last.headers["Retry-After"])})
    assert api.get("/health").status_code == 200
    assert "X-RateLimit-Limit" not in api.get("/livez").headers
    api.close()


def test_keys_users_and_addresses_have_limits_of_their_own() -> None:
    api = limited(2)
    api.add_user("other")
    admin, other = api.token(), api.token("other")
    assert [api.get("/auth/test", admin).status_code for _ in range(3)] == [200, 200, 429]
    assert api.get("/auth/test", other).status_code == 200
    assert [api.get("/auth/test").status_code for _ in range(3)] == [401, 401, 429]
    assert api.get("/auth/test", extras={"REMOTE_ADDR": "192.0.2.1"}).status_code == 401
    api.close()


def interactive(api: Api, kind: str = "interactive") -> dict[str, str]:
    body = {"username": "admin", "password": PASSWORD, "session": kind}
    data = api.post("/auth/login", body, extras={"REMOTE_ADDR": f"192.0.2.{len(kind)}"}).json["data"]
    return {"Authorization": f"Bearer {data['access_token']}"}


def test_interactive_sessions_have_windows_of_their_own_and_the_user_keeps_the_plain_ones() -> None:
    api = limited(2, session_per_minute=4)
    plain, session = api.token(), interactive(api)
    assert [api.get("/auth/test", plain).status_code for _ in range(3)] == [200, 200, 429]
    responses = [api.get("/auth/test", session) for _ in range(5)]
    assert [response.status_code for response in responses] == [200, 200, 200, 200, 429]
    assert responses[0].headers["X-RateLimit-Limit"] == "4"
    assert responses[0].headers["RateLimit-Policy"] == '"burst";q=4;w=60, "hourly";q=20000;w=3600'
    api.close()


def test_more_interactive_sessions_of_a_user_are_no_more_requests() -> None:
    api = limited(10, session_per_minute=3)
    sessions = [interactive(api), interactive(api, "cookie"), interactive(api)]
    assert [api.get("/auth/test", each).status_code for each in sessions] == [200, 200, 200]
    assert [api.get("/auth/test", each).status_code for each in sessions] == [429, 429, 429]
    api.close()


def test_a_session_stays_interactive_when_its_token_is_refreshed_and_when_the_api_starts_anew() -> None:
    api = limited(10, session_per_minute=7)
    body = {"username": "admin", "password": PASSWORD, "session": "interactive"}
    refresh = api.post("/auth/login", body).json["data"]["refresh_token"]
    api.start()
    token = api.post("/auth/refresh", {"refresh_token": refresh}).json["data"]["access_token"]
    response = api.get("/auth/test", {"Authorization": f"Bearer {token}"})
    assert response.headers["X-RateLimit-Limit"] == "7"
    api.close()


@table("kind", ["program", "", None, 1])
def test_a_session_of_no_known_kind_is_400_and_the_field_is_named(api: Api, kind: Any) -> None:
    body = {"username": "admin", "password": PASSWORD, "session": kind}
    status, code, details = error_of(api.post("/auth/login", body))
    assert (status, code, details["field"]) == (400, "INVALID_REQUEST", "session")


def test_rates_turned_off_leave_no_headers(api: Api) -> None:
    assert not [name for name in api.get("/auth/test", api.token()).headers if "ratelimit" in name.lower()]


@table(
    ("peer", "forwarded", "client"),
    [
        ("192.0.2.1", "203.0.113.5", "192.0.2.1"),
        ("10.0.0.1", "203.0.113.5", "203.0.113.5"),
        ("10.0.0.1", "1.1.1.1, 203.0.113.5, 10.0.0.2", "203.0.113.5"),
        ("10.0.0.1", "1.1.1.1, nonsense", "10.0.0.1"),
        ("10.0.0.1", None, "10.0.0.1"),
        ("::ffff:10.0.0.1", "203.0.113.5", "203.0.113.5"),
    ],
)
def test_forwarded_for_counts_only_from_trusted_proxies(peer: str, forwarded: str | None, client: str) -> None:
    assert client_address(peer, forwarded, ("10.0.0.0/8",)) == client


# --- health -------------------------------------------------------------------------------------------------------


def test_a_product_that_is_well_says_so(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.queries.overall.health.SCARCE_PERCENT", 100.1)  # of the machine of the tests
    made = api.post("/proxies", PROXY, api.token())
    assert made.status_code == 201
    report = api.get("/api/v1/health", api.token()).json["data"]
    assert report["status"] == "healthy"
    assert report["checks"]["proxy_service"]["active_proxies"] == 1
    assert set(report["checks"]) == {"database", "proxy_service", "webhooks", "memory", "disk"}
    for path in ("/health", "/readyz"):
        assert api.get(path).json["data"]["status"] == "healthy"


def test_a_failed_proxy_or_a_missing_helper_is_degraded_and_200(api: Api) -> None:
    proxy_id = api.post("/proxies", PROXY, api.token()).json["data"]["proxy"]["id"]
    api.fleet.failed = {proxy_id}
    assert (api.get("/health").status_code, api.get("/health").json["data"]["status"]) == (200, "degraded")
    api.fleet.failed = set()
    del api.fleet.helpers["metrics"]
    api.start()
    assert api.get("/health").json["data"]["status"] == "degraded"
    api.fleet.helpers["metrics"] = Runtime("failed", None, 1.0, 9, "it died")
    api.start()
    assert api.get("/health").json["data"]["status"] == "degraded"


def test_without_a_supervisor_it_is_unhealthy_and_503_but_alive(api: Api) -> None:
    api.fleet.gone = {"supervisor"}
    assert api.get("/health").status_code == 503
    report = api.get("/api/v1/health", api.token())
    assert (report.status_code, report.json["data"]["status"]) == (503, "unhealthy")
    assert api.get("/livez").status_code == 200


def test_without_its_files_it_is_unhealthy(api: Api) -> None:
    api.data.fleet.unlink()
    assert api.get("/health").status_code == 503


def test_status_has_all_members_with_and_without_a_collector(api: Api) -> None:
    headers = api.token()
    without = api.get("/status", headers).json["data"]
    total = stats_of(
        requests=200,
        errors=10,
        active_connections=3,
        connections=50,
        bytes_in=2**30,
        bytes_out=3 * 2**29,
        response_seconds=1.0,
    )
    figures = SystemMetrics(
        12.5, (0.1, 0.2, 0.3), 50.0, 8, 4, 60.0, 9, 2**19, "pss", 2**20, 2**18, 2**21, 7.5, 10.0, 20.0, total
    )
    api.fleet.others["metrics"] = lambda _message: figures
    api.fleet.others["webhooks"] = lambda _message: WebhookSenderState(9, 3, 2)
    data = api.get("/status", headers).json["data"]
    assert (without.pop("webhooks"), data.pop("webhooks")) == (None, {"waiting": 3, "events_lost": 2})
    assert {group: set(data[group]) for group in data} == {group: set(without[group]) for group in without}
    assert data["proxy"]["error_rate"] == "5.00%"
    assert data["network"]["total_bytes_out"] == "1.50 GB"
    memory = data["server"]["memory"]
    assert (memory["rss"], memory["rss_bytes"], memory["used_bytes"], memory["measure"]) == (
        "1.00 MB",
        2**20,
        2**19,
        "pss",
    )
    assert (data["network"]["bandwidth_in_bytes"], data["network"]["bandwidth_out_bytes"]) == (10.0, 20.0)
    assert len(data["server"]["cpu"]["load_average"]) == 3


# --- logs ---------------------------------------------------------------------------------------------------------


def test_logs_are_asked_of_the_indexer(api: Api) -> None:
    asked: list[QueryLogs] = []
    row = {
        "timestamp": 1_700_000_000.0,
        "level": "info",
        "proxy_id": "prx_1",
        "client_ip": "192.0.2.1",
        "method": "GET",
        "target_url": "http://example.org/",
        "status_code": 200,
        "response_time": 12.4,
        "duration": 13,
        "bytes_in": 100,
        "bytes_out": 1200,
        "request_id": "0123456789ab00000001",
        "user": "",
        "reason": "",
        "parent": "",
        "detail": "",
        "rule": "",
        "credential": "",
        "source_address": "",
        "parameters": "",
        "pool": "",
        "country": "",
        "asn": "",
        "listen_port": 0,
        "tls_name": "example.org",
        "alpn": "h2,http/1.1",
        "tls_version": "1.3",
    }

    def index(message: QueryLogs) -> LogPage:
        asked.append(message)
        return LogPage((row,), 7, next=(1_700_000_000_000_000, 5), upto=9)

    api.fleet.others["logs"] = index
    query = "level=info&limit=1&search=example&start_time=2023-01-01T00:00:00%2B01:00"
    data = api.get(f"/logs?{query}", api.token()).json["data"]
    assert (data["total"], data["has_more"]) == (7, True)
    assert data["logs"][0]["message"] == "GET http://example.org/ 200"
    assert data["logs"][0]["timestamp"] == "2023-11-14T22:13:20.000Z"
    assert (asked[0].limit, asked[0].level, asked[0].search) == (1, "info", "example")
    assert asked[0].start == 1_672_527_600.0
    api.get("/logs", api.key(scope={"proxies": ["prx_1"]}))
    assert asked[1].proxy_ids == ("prx_1",)


@table("query", ["level=loud", "limit=0", "limit=1001", "start_time=yesterday", "offset=-1", "alpn=h2,h3"])
def test_a_bad_log_query_is_400_naming_it(api: Api, query: str) -> None:
    assert error_of(api.get(f"/logs?{query}", api.token()))[2]["field"] == query.partition("=")[0]


def test_without_an_indexer_logs_are_unavailable(api: Api) -> None:
    response = api.get("/logs", api.token())
    assert error_of(response)[:2] == (503, "UNAVAILABLE")
    assert int(response.headers["Retry-After"]) > 0


def test_every_single_resource_has_an_etag_and_a_stale_one_is_412(api: Api) -> None:
    token = api.token()
    made = api.post("/proxies", {**PROXY, "accounts": [{"username": "ann", "password": "secret-1"}]}, token)
    proxy = f"/proxies/{made.json['data']['proxy']['id']}"
    hook = api.post("/webhooks", {"name": "w", "url": "https://example.com/", "events": ["*"]}, token)
    me = api.get("/auth/test", token).json["data"]["user_id"]
    webhook = f"/webhooks/{hook.json['data']['webhook']['id']}"
    for path in (proxy, f"{proxy}/accounts/ann", f"/users/{me}", "/settings", webhook, "/config/export"):
        tag = api.get(path, token).headers["ETag"]
        assert api.get(path, {**token, "If-Match": tag}).status_code == 200, path
        assert api.get(path, {**token, "If-Match": "*"}).status_code == 200, path
        assert error_of(api.get(path, {**token, "If-Match": '"999999"'}))[:2] == (412, "INVALID_REQUEST"), path


READ_ONLY, UNKNOWN, NULL = "is read-only", "is not a known field", "must not be null"


@table(
    ("body", "errors"),
    [
        ({"name": None}, {"name": NULL}),
        ({"name": None, "tags": "x"}, {"name": NULL, "tags": "must be a list"}),
        ({"name": None, "tags": None}, {"name": NULL, "tags": NULL}),
        ({"runtime": {"error": None, "pid": None}}, {"runtime": READ_ONLY}),
        ({"settings": {"timeout": None}, "foo": {"a.b": None}}, {"settings.timeout": NULL, "foo": UNKNOWN}),
        (
            {"settings": {"timeout": None, "x": 1}, "id": None},
            {"settings.timeout": NULL, "settings.x": UNKNOWN, "id": READ_ONLY},
        ),
    ],
)
def test_with_a_null_the_rest_is_judged_too(api: Api, body: dict[str, Any], errors: dict[str, str]) -> None:
    status, _code, details = error_of(api.patch("/proxies/prx_any", body, api.token()))
    reported = details.get("errors", [details])
    assert (status, {each["field"]: each["error"] for each in reported}) == (400, errors)
    assert len(reported) == len(errors)


def test_a_required_field_that_is_null_is_not_reported_as_missing_too(api: Api) -> None:
    status, _code, details = error_of(api.post("/proxies", {**PROXY, "port": None, "name": None}, api.token()))
    reported = {(each["field"], each["error"]) for each in details["errors"]}
    assert (status, reported) == (400, {("name", "must not be null"), ("port", "must not be null")})
