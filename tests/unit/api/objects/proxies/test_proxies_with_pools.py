"""Proxies that have a pool in place of upstreams, and policies that name pools."""

from __future__ import annotations

from typing import Any

import pytest

from actors.bus.messages.common import forwarding_name
from actors.bus.messages.specs import Upstreams, UpstreamState
from tests.kit.api_stage import Api
from tests.unit.api.naming import fields_of, imported, problem, proxy

UPSTREAM = {"protocol": "http", "host": "exit1.example.net", "port": 3128, "labels": {"country": "fr"}}
PARIS = {"name": "paris", "upstreams": [UPSTREAM]}
THROUGH = {"name": "all", "match": {}, "action": {"use": "pool:paris"}}


@pytest.fixture
def token(api: Api) -> dict[str, str]:
    return api.token()


@pytest.fixture
def pool(api: Api, token: dict[str, str]) -> dict[str, Any]:
    """The pool `paris`."""
    made: dict[str, Any] = api.post("/pools", PARIS, token).json["data"]["pool"]
    return made


def test_a_proxy_names_a_pool_that_is_there(api: Api, token: dict[str, str]) -> None:
    assert problem(proxy(api, pool="paris")) == ("pool", "there is no pool 'paris'")
    assert api.fleet.desired == {}
    made = proxy(api).json["data"]["proxy"]
    assert made["pool"] is None
    assert problem(api.patch(f"/proxies/{made['id']}", {"pool": "paris"}, token))[0] == "pool"


@pytest.mark.usefixtures("pool")
def test_the_supervisor_learns_of_the_pool_by_name_and_not_of_its_upstreams(api: Api, token: dict[str, str]) -> None:
    made = proxy(api, pool="paris").json["data"]["proxy"]
    spec = api.fleet.desired[made["id"]]
    assert (spec.pool, spec.objects, spec.upstreams.entries) == ("paris", ("pool:paris",), ())
    api.patch(f"/proxies/{made['id']}", {"pool": None}, token)
    spec = api.fleet.desired[made["id"]]
    assert (spec.pool, spec.objects) == ("", ())


@pytest.mark.usefixtures("pool")
def test_a_proxy_has_a_pool_or_upstreams_and_not_both(api: Api, token: dict[str, str]) -> None:
    field, error = problem(proxy(api, pool="paris", upstreams=["http://exit2.example.net:3128"]))
    assert field == "pool"
    assert "upstreams" in error
    made = proxy(api, upstreams=["http://exit2.example.net:3128"]).json["data"]["proxy"]
    path = f"/proxies/{made['id']}"
    assert problem(api.patch(path, {"pool": "paris"}, token))[0] == "pool"
    changed = api.patch(path, {"pool": "paris", "upstreams": []}, token).json["data"]["proxy"]
    assert (changed["pool"], changed["upstreams"]) == ("paris", [])
    assert problem(api.patch(path, {"upstreams": ["http://exit2.example.net:3128"]}, token))[0] == "pool"


@pytest.mark.usefixtures("pool")
def test_a_pool_in_use_is_neither_deleted_nor_renamed(api: Api, token: dict[str, str]) -> None:
    made = proxy(api, pool="paris").json["data"]["proxy"]
    assert api.post("/policies", {"name": "exits", "rules": [THROUGH]}, token).status_code == 201
    assert "2 (policy exits, proxy office)" in problem(api.request("DELETE", "/pools/paris", token))[1]
    assert problem(api.patch("/pools/paris", {"name": "lyon"}, token))[0] == "name"
    assert api.request("DELETE", f"/proxies/{made['id']}", token).status_code == 200
    assert "1 (policy exits)" in problem(api.request("DELETE", "/pools/paris", token))[1]
    assert api.request("DELETE", "/policies/exits", token).status_code == 200
    assert api.request("DELETE", "/pools/paris", token).status_code == 200


def test_the_first_ten_users_are_named_and_all_are_counted(api: Api, token: dict[str, str], pool: Any) -> None:
    for number in range(12):
        assert proxy(api, name=f"p{number}", port=4000 + number, pool=pool["name"]).status_code == 201
    error = problem(api.request("DELETE", "/pools/paris", token))[1]
    assert "in use by 12" in error
    assert "proxy p9 and 2 more" in error


def test_a_policy_names_pools_that_are_there(api: Api, token: dict[str, str]) -> None:
    refused = api.post("/policies", {"name": "exits", "rules": [THROUGH]}, token)
    assert problem(refused) == ("rules[0].action.use", "there is no pool 'paris'")
    wrong = {"name": "all", "match": {}, "action": {"use": "pool:"}}
    assert problem(api.post("/policies", {"name": "exits", "rules": [wrong]}, token))[0] == "rules[0].action.use"


def test_a_chain_through_a_pool_that_comes_back_is_refused(api: Api, token: dict[str, str]) -> None:
    here = {"protocol": "http", "host": "127.0.0.1", "port": 3128}
    assert api.post("/pools", {"name": "back", "upstreams": [here]}, token).status_code == 201
    assert problem(proxy(api, pool="back")) == ("pool", "upstreams[0].port of the pool: is this proxy itself")
    proxy(api, name="other", port=3129, pool="back")
    field, error = problem(proxy(api, upstreams=["http://127.0.0.1:3129"]))
    assert (field, error) == ("upstreams[0]", "the chain comes back to this proxy, by way of 'other'")
    assert proxy(api, pool=None).status_code == 201
    assert problem(api.patch("/pools/back", {"upstreams": [{**here, "port": 3129}]}, token))[0] == "upstreams"
    document = {"pools": [{"name": "back", "upstreams": [{**here, "port": 3129}]}]}
    assert fields_of(imported(api, **document)) == ["pools"]


def test_upstreams_of_a_pool_may_not_be_own_services(api: Api, token: dict[str, str]) -> None:
    link_local = {"protocol": "http", "host": "169.254.169.254", "port": 80}
    refused = api.post("/pools", {"name": "inside", "upstreams": [link_local]}, token)
    assert problem(refused)[0] == "upstreams[0].host"


def test_pools_of_proxies_are_exported_and_imported(api: Api) -> None:
    office = {"name": "office", "port": 3128, "protocol": "http", "pool": "paris"}
    assert fields_of(imported(api, proxies=[office])) == ["proxies[0].pool"]
    assert imported(api, proxies=[office], pools=[PARIS]).status_code == 200
    exported = api.get("/config/export", api.token()).json["data"]
    assert (exported["proxies"][0]["pool"], exported["proxies"][0]["upstreams"]) == ("paris", [])
    assert imported(api, proxies=[office], pools=[PARIS]).json["data"]["changed"] is False
    assert fields_of(imported(api, "prune=true", pools=[])) == ["pools"]
    both = {**office, "upstreams": ["http://exit2.example.net:3128"]}
    assert fields_of(imported(api, proxies=[both])) == ["proxies[0].pool"]


@pytest.mark.usefixtures("pool")
def test_the_exit_of_a_proxy_is_its_pool_its_upstreams_or_direct(api: Api, token: dict[str, str]) -> None:
    def leaves(made: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = api.get(f"/proxies/{made['id']}", token).json["data"]["proxy"]["runtime"]["exit"]
        return found

    made = [
        proxy(api, name=kind, port=port, **fields).json["data"]["proxy"]
        for port, (kind, fields) in enumerate(
            (("through", {"pool": "paris"}), ("own", {"upstreams": ["http://exit2.example.net:3128"]}), ("direct", {})),
            4001,
        )
    ]
    through, own, direct = made
    nothing = dict.fromkeys(("usable", "unknown", "total"))
    assert leaves(direct) == {"kind": "direct", "pool": None, **nothing}
    assert leaves(through) == {"kind": "pool", "pool": "paris", "usable": 0, "unknown": 1, "total": 1}
    assert leaves(own) == {"kind": "upstreams", "pool": None, **nothing, "total": 1}
    states = [
        UpstreamState(f"up{n}", state, 1.7e9, 0, 0, 0, 0, 0, None, None) for n, state in enumerate(("up", "down"))
    ]
    api.fleet.others[forwarding_name(own["id"])] = lambda _question: Upstreams(tuple(states))
    assert leaves(own) == {"kind": "upstreams", "pool": None, "usable": 1, "unknown": 0, "total": 2}
