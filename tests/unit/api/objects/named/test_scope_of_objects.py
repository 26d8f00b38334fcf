"""Pools, policies and lists for keys with a scope: what they set of their proxies, and what they get to read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from actors.bus.messages.common import LOGS, forwarding_name
from actors.bus.messages.forwarding import (
    ConnectionPage,
    ConnectionReport,
    Explain,
    RequestExplanation,
    RuleExplanation,
    UpstreamsExplanation,
)
from actors.bus.messages.records import CountLogs, LogCounts, LogPage, LogTailPage, QueryLogs, TailLogs
from actors.bus.messages.specs import QueryUpstreams, Upstreams, UpstreamState
from tests.kit.api_stage import PROXY, Api, error_of
from tests.kit.records import records
from tests.kit.tables import table
from tests.unit.api.creating import delete_all

LIVE = ConnectionReport("5f", "192.0.2.1", "", "a.example:443", "tunnel", 1.7e9, 1.0, 10, 20, 1.4, 2.6)
MINE = {"pools": ["mine"], "policies": ["mine"], "lists": ["mine"]}
RULES = [{"name": "r", "match": {"destinations": [":25"]}, "action": {"use": "deny"}}]
CA = "/etc/ssl/certs/ca-certificates.crt"


@pytest.fixture
def headers(api: Api) -> dict[str, str]:
    """Of an administrator; there are objects named `mine` and `other` of each kind."""
    headers = api.token()
    for name, host in (("mine", "192.0.2.1"), ("other", "192.0.2.2")):
        made(api, "/lists", {"name": name, "kind": "domains", "entries": ["example.com"]}, headers)
        made(api, "/pools", {"name": name, "upstreams": [{"protocol": "http", "host": host, "port": 3128}]}, headers)
        made(api, "/policies", {"name": name, "rules": RULES}, headers)
    return headers


def made(api: Api, path: str, body: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
    response = api.post(path, body, headers)
    assert response.status_code == 201, response.text
    found: dict[str, Any] = response.json["data"][{"/policies": "policy", "/proxies": "proxy"}.get(path, path[1:-1])]
    return found


def proxy(api: Api, headers: dict[str, str], **fields: Any) -> str:
    return str(made(api, "/proxies", {**PROXY, **fields}, headers)["id"])


@table(
    ("before", "change", "field"),
    [
        ({}, {"pool": "other"}, "pool"),
        ({}, {"pool": "nowhere"}, "pool"),
        ({"pool": "other"}, {"pool": None}, "pool"),
        ({"policy": "other"}, {"policy": None}, "policy"),
        ({"policy": "mine"}, {"policy": None}, "policy"),
        ({"policy": "mine"}, {"policy": "other"}, "policy"),
        ({}, {"access": {"deny_destinations": ["list:other"]}}, "access.deny_destinations"),
        ({}, {"access": {"allow_destinations": ["list:nowhere:443"]}}, "access.allow_destinations"),
        (
            {"access": {"deny_destinations": ["list:other"]}},
            {"access": {"deny_destinations": []}},
            "access.deny_destinations",
        ),
        ({"tags": ["office"]}, {"tags": []}, "tags"),
        ({}, {"tags": ["office"]}, "tags"),
        ({}, {"bind_address": "127.0.0.1"}, "bind_address"),
        ({}, {"tls": {"client_ca": CA}}, "tls.client_ca"),
        (
            {},
            {"upstreams": [{"protocol": "https", "host": "192.0.2.9", "port": 443, "tls": {"ca_file": CA}}]},
            "upstreams[0].tls.ca_file",
        ),
    ],
    ids=str,
)
def test_what_others_share_stays_as_it_is(
    api: Api, headers: dict[str, str], before: dict[str, Any], change: dict[str, Any], field: str
) -> None:
    delete_all(api, headers)
    proxy_id = proxy(api, headers, **before)
    stored = api.get(f"/proxies/{proxy_id}", headers).json["data"]["proxy"]
    key = api.key(scope={"proxies": [proxy_id], **MINE})
    status, code, details = error_of(api.patch(f"/proxies/{proxy_id}", change, key))
    assert (status, code) == (403, "FORBIDDEN")
    assert details["reason"].startswith(f"{field}: ")
    after = api.get(f"/proxies/{proxy_id}", headers).json["data"]["proxy"]
    assert {name: after[name] for name in change} == {name: stored[name] for name in change}


@pytest.mark.parametrize(
    ("before", "change"),
    [
        ({"pool": "other"}, {"pool": "mine"}),
        ({"pool": "other"}, {"pool": "other", "description": "x"}),
        ({"policy": "other"}, {"policy": "mine"}),
        ({}, {"pool": "mine", "policy": "mine"}),
        ({}, {"access": {"deny_destinations": ["list:mine", ":25"]}}),
        ({"access": {"deny_destinations": ["list:mine"]}}, {"access": {"deny_destinations": []}}),
        (
            {"access": {"deny_destinations": ["list:other"]}},
            {"access": {"deny_destinations": [":25", "list:other", "list:mine"]}},
        ),
        ({"tags": ["office"]}, {"tags": ["office"], "settings": {"timeout": 5}}),
    ],
    ids=str,
)
def test_what_is_there_may_stay_and_what_the_scope_names_may_be_set(
    api: Api, headers: dict[str, str], before: dict[str, Any], change: dict[str, Any]
) -> None:
    proxy_id = proxy(api, headers, **before)
    key = api.key(scope={"proxies": [proxy_id], **MINE})
    changed = api.patch(f"/proxies/{proxy_id}", change, key)
    assert changed.status_code == 200, changed.text


def test_a_caller_without_a_scope_of_proxies_sets_everything(api: Api, headers: dict[str, str]) -> None:
    proxy_id = proxy(api, headers)
    near = api.key(scope={"ip_whitelist": ["127.0.0.0/8"]})
    for caller in (near, headers):
        assert api.patch(f"/proxies/{proxy_id}", {"pool": "other", "tags": ["a"]}, caller).status_code == 200
        assert api.patch(f"/proxies/{proxy_id}", {"pool": None, "tags": []}, caller).status_code == 200


@pytest.mark.parametrize("collection", ["lists", "pools", "policies"])
def test_objects_are_read_where_the_scope_names_them(api: Api, headers: dict[str, str], collection: str) -> None:
    ids = {each["name"]: each["id"] for each in api.get(f"/{collection}", headers).json["data"][collection]}
    proxy_id = proxy(api, headers)
    key = api.key(scope={"proxies": [proxy_id], **MINE})
    assert [each["name"] for each in api.get(f"/{collection}", key).json["data"][collection]] == ["mine"]
    for name in ("mine", ids["mine"]):
        assert api.get(f"/{collection}/{name}", key).status_code == 200
        assert api.patch(f"/{collection}/{name}", {"description": "x"}, key).status_code == 403
        assert api.request("DELETE", f"/{collection}/{name}", key).status_code == 403
    refused = [error_of(api.get(f"/{collection}/{name}", key)) for name in ("other", ids["other"], "nowhere")]
    assert refused[0][:2] == (403, "FORBIDDEN")
    assert refused[1:] == refused[:1] * 2
    for scope in ({}, {collection: []}):
        without = api.key(scope={"proxies": [proxy_id], **scope})
        for path in ("", "/mine", "/nowhere"):
            assert api.get(f"/{collection}{path}", without).status_code == 403


def test_the_content_of_a_list_is_checked_where_the_scope_names_it(api: Api, headers: dict[str, str]) -> None:
    key = api.key(scope={"proxies": [proxy(api, headers)], **MINE})
    assert api.get("/lists/mine/check?target=example.com", key).json["data"]["matches"]
    assert api.get("/lists/other/check?target=example.com", key).status_code == 403
    assert api.post("/lists/mine/refresh", None, key).status_code == 403


def test_of_those_that_name_an_object_a_key_sees_its_own_proxies(api: Api, headers: dict[str, str]) -> None:
    proxy_id = proxy(api, headers, policy="mine")
    proxy(api, headers, name="foreign", port=3129, policy="mine")
    key = api.key(scope={"proxies": [proxy_id], **MINE})
    for caller, expected in ((headers, ["first", "foreign"]), (key, ["first"])):
        used = api.get("/policies/mine", caller).json["data"]["policy"]["used_by"]
        assert (used["total"], [each["name"] for each in used["first"]]) == (len(expected), expected)
        listed = api.get("/policies", caller).json["data"]["policies"]
        assert listed[0]["used_by"] == {"total": len(expected)}


@table(
    ("scope", "field"),
    [
        ({"proxies": [], "pools": ["nowhere"]}, "scope.pools[0]"),
        ({"proxies": [], "lists": ["mine", "lst_1"]}, "scope.lists[1]"),
        ({"proxies": [], "policies": ["nowhere"]}, "scope.policies[0]"),
        ({"pools": ["mine"]}, "scope.pools"),
        ({"ip_whitelist": ["127.0.0.1"], "lists": ["mine"]}, "scope.lists"),
        ({"accounts": ["acc_1"], "pools": ["mine"]}, "scope.pools"),
    ],
    ids=str,
)
def test_a_scope_names_objects_that_there_are_beside_what_they_are_for(
    api: Api, headers: dict[str, str], scope: dict[str, Any], field: str
) -> None:
    status, _, details = error_of(api.post("/api-keys", {"name": "k", "scope": scope}, headers))
    assert (status, details["field"]) == (400, field)


def test_who_may_not_read_objects_makes_no_key_that_does(api: Api, headers: dict[str, str]) -> None:
    api.add_user("meter", permissions=["metrics.read"])
    body = {"name": "k", "scope": {"proxies": [], "pools": ["mine"]}}
    assert error_of(api.post("/api-keys", body, api.token("meter")))[2]["field"] == "scope.pools"


def test_a_rotated_key_keeps_the_objects_of_its_scope(api: Api, headers: dict[str, str]) -> None:
    scope = {"proxies": [], **MINE}
    key = api.post("/api-keys", {"name": "k", "scope": scope}, headers).json["data"]["api_key"]
    assert key["scope"] == scope
    assert api.post(f"/api-keys/{key['id']}/rotate", {}, headers).json["data"]["api_key"]["scope"] == scope


@pytest.mark.parametrize(("pool", "shown"), [("mine", True), ("other", False)])
def test_upstreams_of_a_pool_are_shown_where_the_scope_names_it(
    api: Api, headers: dict[str, str], pool: str, shown: bool
) -> None:
    proxy_id = proxy(api, headers, pool=pool)
    states = (UpstreamState("u", "up", 0.0, 0, 0, 0, 0, 0, 0, None),)
    explained = UpstreamsExplanation(pool, "random", "u", 1, 1, ())
    rules = tuple(RuleExplanation(name, 0, "", "no", "", "", "enforce") for name in ("mine", "other"))

    def reply(message: Any) -> Any:
        if isinstance(message, QueryUpstreams):
            return Upstreams(states)
        assert isinstance(message, Explain)
        return RequestExplanation(
            "allow", "", "", "address", "enforce", "a.example", 443, (), rules=rules, upstreams=explained
        )

    api.fleet.others[forwarding_name(proxy_id)] = reply
    for caller, is_shown in ((headers, True), (api.key(scope={"proxies": [proxy_id], **MINE}), shown)):
        view = api.get(f"/proxies/{proxy_id}", caller).json["data"]["proxy"]
        assert (view["pool"], "u" in str(view["runtime"].get("upstreams"))) == (pool, is_shown)
        body = {"client_ip": "192.0.2.7", "target": "a.example"}
        explanation = api.post(f"/proxies/{proxy_id}/explain", body, caller).json["data"]
        assert (explanation["upstreams"] is not None) == is_shown
        assert [each["policy"] for each in explanation["rules"]] == ["mine", "other"][: 2 if caller is headers else 1]


def test_upstreams_that_the_scope_does_not_name_are_in_no_record_and_no_connection(
    api: Api, headers: dict[str, str]
) -> None:
    proxy_id = proxy(api, headers, upstreams=[{"protocol": "http", "host": "192.0.2.3", "port": 3128}])
    parents = [f"http://192.0.2.{number}:3128" for number in (2, 1, 3)]
    rows = tuple(
        record
        for each in parents
        for record in records(1, proxy_id=proxy_id, parent=each, detail=f"no; upstreams tried: {each} (refused)")
    )
    counts = LogCounts(0, (3,), (0,), {"parent": tuple((each, 1, 0, 0) for each in parents)}, exact=True)
    live = [replace(LIVE, id=str(number), parent=each) for number, each in enumerate(parents)]
    indexed = {QueryLogs: LogPage(rows, 3), TailLogs: LogTailPage(rows, 3), CountLogs: counts}
    api.fleet.others[LOGS] = lambda message: indexed[type(message)]
    api.fleet.others[forwarding_name(proxy_id)] = lambda _message: ConnectionPage(tuple(live), 3)
    paths = ("/logs", "/logs/tail", "/logs/export", "/logs/values?field=parent", "/connections")
    key = api.key(permissions=["proxy.read", "metrics.read"], scope={"proxies": [proxy_id], **MINE})
    for caller, shown in ((headers, parents), (key, parents[1:])):
        for path in (*paths, f"/proxies/{proxy_id}/connections"):
            text = api.client.simulate_get(f"/api/v1{path}", headers=caller).text
            assert [each for each in parents if each in text] == shown, path


@pytest.mark.parametrize(
    "rule",
    [
        {"name": "r", "match": {}, "action": {"use": "pool:other"}},
        {"name": "r", "match": {"destinations": ["list:other"]}, "action": {"use": "deny"}},
    ],
)
def test_a_draft_names_what_the_scope_names(api: Api, headers: dict[str, str], rule: dict[str, Any]) -> None:
    proxy_id = proxy(api, headers)
    key = api.key(scope={"proxies": [proxy_id], **MINE})
    body = {"client_ip": "192.0.2.7", "target": "a.example", "draft": {"name": "d", "rules": [rule]}}
    status, _, details = error_of(api.post(f"/proxies/{proxy_id}/explain", body, key))
    assert (status, details["reason"].startswith("draft.rules[0]")) == (403, True)


def test_a_credential_names_lists_that_the_scope_names(api: Api, headers: dict[str, str]) -> None:
    account = api.post("/accounts", {"username": "ann", "password": "correct horse"}, headers).json["data"]["account"]
    key = api.key(permissions=["proxy.read", "proxy.write"], scope={"accounts": [account["id"]], "lists": ["mine"]})

    def minted(name: str) -> int:
        body = {"ttl": 60, "allow_destinations": [f"list:{name}"]}
        return api.post(f"/accounts/{account['id']}/credentials", body, key).status_code

    assert [minted(name) for name in ("mine", "other", "nowhere")] == [201, 403, 403]
