"""What a scope keeps a key from, and what a response never ignores."""

from __future__ import annotations

from typing import Any

import pytest

from actors.bus.messages.common import LOGS
from actors.bus.messages.records import LogPage, QueryLogs
from tests.kit.api_stage import Api, error_of
from tests.kit.tables import table


@pytest.fixture
def scoped(api: Api, headers: dict[str, str]) -> dict[str, str]:
    """A key with all permissions of an administrator, restricted to one address range."""
    body = {"name": "scoped", "permissions": ["*"], "scope": {"ip_whitelist": ["127.0.0.0/8"]}}
    made = api.post("/api-keys", body, headers)
    assert made.status_code == 201, made.text
    return {"X-API-Key": made.json["data"]["key"]}


def test_a_key_with_a_scope_makes_and_changes_no_user(
    api: Api, headers: dict[str, str], scoped: dict[str, str]
) -> None:
    body = {"username": "eve", "password": "long enough", "role": "administrator"}
    refused = api.post("/users", body, scoped)
    assert (refused.status_code, refused.json["error"]["code"]) == (403, "FORBIDDEN")
    assert "reason" in refused.json["error"]["details"]
    assert api.get("/users", scoped).status_code == 200


def test_a_key_of_one_proxy_gets_no_other_in_the_health_report(api: Api, headers: dict[str, str]) -> None:
    bodies = [{"name": f"p{number}", "port": 3128 + number, "protocol": "http"} for number in range(3)]
    made = [api.post("/proxies", body, headers).json["data"]["proxy"]["id"] for body in bodies]
    api.fleet.failed = set(made[:2])

    def service(caller: dict[str, str]) -> Any:
        api.services.runtime.changed()  # what was asked a moment ago is remembered
        return api.get("/api/v1/health", caller).json["data"]["checks"]["proxy_service"]

    check = service(headers)
    assert (set(check["failed_proxies"]), check["active_proxies"], check["status"]) == (set(made[:2]), 1, "degraded")
    check = service(api.key(scope={"proxies": made[1:2]}))
    assert (check["failed_proxies"], check["active_proxies"], check["status"]) == (made[1:2], 0, "degraded")
    key = api.key(scope={"proxies": made[2:]})
    check = service(key)
    assert (check["failed_proxies"], check["active_proxies"], check["status"]) == ([], 1, "healthy")
    assert error_of(api.get("/status", key))[:2] == (403, "FORBIDDEN")


@table(
    ("query", "field"),
    [
        ("foo=1", "foo"),
        ("status_code=abc", "status_code"),
        ("min_level=loud", "min_level"),
        ("status_class=6xx", "status_class"),
        ("user=", "user"),
        ("search=" + "+".join("abcdefghijklmnopqrstuvwxyz"), "search"),
        ("search=" + "x" * 501, "search"),
    ],
)
def test_a_query_that_would_be_ignored_is_refused(api: Api, headers: dict[str, str], query: str, field: str) -> None:
    refused = api.get(f"/logs?{query}", headers)
    assert refused.status_code == 400
    assert refused.json["error"]["details"]["field"] == field


def test_filters_of_records_reach_the_indexer(api: Api, headers: dict[str, str]) -> None:
    asked: list[Any] = []

    def response(message: Any) -> LogPage:
        asked.append(message)
        return LogPage((), 0)

    api.fleet.others[LOGS] = response
    assert api.get("/logs?status_code=407&client_ip=10.0.0.1&min_level=warning", headers).status_code == 200
    (question,) = asked
    assert isinstance(question, QueryLogs)
    assert (question.status_code, question.client_ip, question.min_level) == (407, "10.0.0.1", "warning")
    filters = "status_class=5xx&user=alice&method=GET&reason=dns_error&target=Example.com"
    assert api.get(f"/logs?{filters}", headers).status_code == 200
    question = asked[-1]
    assert (question.status_class, question.user, question.method) == (5, "alice", "GET")
    assert (question.reason, question.target) == ("dns_error", "Example.com")


@table("path", ["/logs", "/logs/tail", "/logs/export", "/metrics", "/metrics/realtime"])
def test_a_proxy_outside_of_the_scope_is_403_before_anything_of_the_query_is_judged(api: Api, path: str) -> None:
    key = api.key(scope={"proxies": ["prx_mine"]})
    for query in ("proxy_id=prx_other", "proxy_id=prx_other&foo=1"):
        status, code, details = error_of(api.get(f"{path}?{query}", key))
        assert (status, code) == (403, "FORBIDDEN")
        assert "scope" in details["reason"]
    assert error_of(api.get(f"{path}?proxy_id=prx_mine&foo=1", key))[0] == 400
