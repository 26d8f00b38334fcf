"""What a proxy says of addresses: whether balancers announce its clients, and which address it goes out from."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.api_stage import PROXY, Api, error_of
from tests.kit.tables import table
from tests.unit.api.creating import create


def test_announcements_are_off_until_they_are_wanted_and_can_be_turned_off(api: Api, headers: dict[str, str]) -> None:
    proxy = create(api, headers)
    path = f"/proxies/{proxy['id']}"
    assert proxy["accept_proxy_protocol"] is False
    for wanted in (True, False):
        view = api.patch(path, {"accept_proxy_protocol": wanted}, headers).json["data"]["proxy"]
        assert view["accept_proxy_protocol"] is wanted
        assert api.fleet.desired[proxy["id"]].accept_proxy_protocol is wanted
    assert "accept_proxy_protocol" not in api.get("/proxies", headers).json["data"]["proxies"][0]


def test_announcements_can_be_wanted_from_the_first(api: Api, headers: dict[str, str]) -> None:
    proxy = create(api, headers, accept_proxy_protocol=True)
    assert proxy["accept_proxy_protocol"] is True
    assert api.fleet.desired[proxy["id"]].accept_proxy_protocol


@table("given", [1, "true", None, ["192.0.2.0/24"]])
def test_announcements_are_wanted_or_not(api: Api, headers: dict[str, str], given: Any) -> None:
    refused = api.post("/proxies", {**PROXY, "accept_proxy_protocol": given}, headers)
    status, _code, details = error_of(refused)
    assert (status, details["field"]) == (400, "accept_proxy_protocol")


@pytest.mark.parametrize(
    ("given", "kept"), [("127.0.0.9", "127.0.0.9"), ("::ffff:127.0.0.9", "127.0.0.9"), ("0:0::1", "::1"), ("", "")]
)
def test_a_source_address_of_this_machine_is_kept_in_its_usual_form(
    api: Api, headers: dict[str, str], given: str, kept: str
) -> None:
    proxy = create(api, headers, bind_address=given)
    assert proxy["bind_address"] == kept
    assert api.fleet.desired[proxy["id"]].bind_address == kept


def test_an_empty_source_address_takes_the_one_that_there_was_away(api: Api, headers: dict[str, str]) -> None:
    proxy = create(api, headers, bind_address="127.0.0.9")
    path = f"/proxies/{proxy['id']}"
    assert api.patch(path, {"tags": ["x"]}, headers).json["data"]["proxy"]["bind_address"] == "127.0.0.9"
    assert api.patch(path, {"bind_address": ""}, headers).json["data"]["proxy"]["bind_address"] == ""
    assert api.fleet.desired[proxy["id"]].bind_address == ""


@table(
    "given",
    [
        *("203.0.113.9", "2001:db8::9", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255", "127.1"),
        *("localhost", "127.0.0.1:80", "fe80::1%lo", "224.0.0.0/8", "::/0", " 127.0.0.1", None, 7),
    ],
)
def test_what_is_no_address_of_this_machine_is_refused(api: Api, headers: dict[str, str], given: Any) -> None:
    refused = api.post("/proxies", {**PROXY, "bind_address": given}, headers)
    status, _code, details = error_of(refused)
    assert (status, details["field"]) == (400, "bind_address")
    assert api.store.find("proxies") == []


@pytest.mark.parametrize(
    ("given", "kept", "entries"),
    [
        (["127.0.0.9"], ["127.0.0.9"], ("127.0.0.9",)),
        (["127.0.0.9", "2001:DB8:7::1/48"], ["127.0.0.9", "2001:db8:7::/48"], ("127.0.0.9", "2001:db8:7::/48")),
        ("192.0.2.7/24", "192.0.2.0/24", ("192.0.2.0/24",)),
        (["203.0.113.9/32"], ["203.0.113.9/32"], ("203.0.113.9/32",)),
        ([], "", ()),
    ],
)
def test_a_source_address_may_be_one_of_several(
    api: Api, headers: dict[str, str], given: Any, kept: Any, entries: tuple[str, ...]
) -> None:
    proxy = create(api, headers, bind_address=given, bind_policy="session")
    assert (proxy["bind_address"], proxy["bind_policy"]) == (kept, "session")
    spec = api.fleet.desired[proxy["id"]]
    assert (spec.bind_address, spec.egress, spec.bind_policy) == ("", entries, "session")
    back = api.patch(f"/proxies/{proxy['id']}", {"bind_address": "127.0.0.9"}, headers).json["data"]["proxy"]
    assert (back["bind_address"], api.fleet.desired[proxy["id"]].egress) == ("127.0.0.9", ())


@table(
    ("given", "field"),
    [
        (["127.0.0.9", "203.0.113.9"], "bind_address[1]"),
        (["::/0"], "bind_address[0]"),
        (["127.0.0.9", 7], "bind_address[1]"),
        (["127.0.0.9", ""], "bind_address[1]"),
        (["127.0.0.9"] * 101, "bind_address"),
        ({"a": "b"}, "bind_address"),
    ],
)
def test_an_entry_that_is_none_is_named_by_its_place(api: Api, headers: dict[str, str], given: Any, field: str) -> None:
    status, _code, details = error_of(api.post("/proxies", {**PROXY, "bind_address": given}, headers))
    assert (status, details["field"]) == (400, field)


def test_how_an_address_is_chosen_is_one_of_three(api: Api, headers: dict[str, str]) -> None:
    assert create(api, headers)["bind_policy"] == "random"
    refused = api.post("/proxies", {**PROXY, "name": "b", "port": 3200, "bind_policy": "sticky"}, headers)
    assert error_of(refused)[2]["field"] == "bind_policy"


def test_a_plan_says_where_its_accounts_leave_from(api: Api, headers: dict[str, str]) -> None:
    plan = api.post("/plans", {"name": "gold", "egress": ["2001:DB8:7::/48"]}, headers).json["data"]["plan"]
    assert plan["egress"] == ["2001:db8:7::/48"]
    path = f"/plans/{plan['id']}"
    assert error_of(api.patch(path, {"egress": ["203.0.113.9"]}, headers))[2]["field"] == "egress[0]"
    assert api.patch(path, {"description": "x"}, headers).json["data"]["plan"]["egress"] == ["2001:db8:7::/48"]
    assert api.patch(path, {"egress": None}, headers).json["data"]["plan"]["egress"] is None


def test_a_rule_says_where_requests_leave_from(api: Api, headers: dict[str, str]) -> None:
    rules = [{"name": "far", "match": {}, "action": {"egress": ["127.0.0.9", "192.0.2.1/24"]}}]
    policy = api.post("/policies", {"name": "office", "rules": rules}, headers).json["data"]["policy"]
    assert policy["rules"][0]["action"] == {"egress": ["127.0.0.9", "192.0.2.0/24"]}
    rules[0]["action"] = {"egress": ["203.0.113.9"]}
    refused = api.put(f"/policies/{policy['id']}", {"rules": rules}, headers)
    assert error_of(refused)[2]["field"] == "rules[0].action.egress[0]"
    rules[0]["action"] = {"egress": ["127.0.0.9"], "use": "deny"}
    refused = api.put(f"/policies/{policy['id']}", {"rules": rules}, headers)
    assert error_of(refused)[2]["field"] == "rules[0].action.egress"


def test_source_addresses_are_exported_and_imported(api: Api, headers: dict[str, str]) -> None:
    proxy = create(api, headers, bind_address=["127.0.0.9", "2001:db8:7::/48"], bind_policy="account")
    api.post("/plans", {"name": "gold", "egress": ["2001:db8:7::/48"]}, headers)
    action = {"egress": ["192.0.2.0/24"], "limits": {"connections": 3}}
    api.post("/policies", {"name": "office", "rules": [{"name": "a", "match": {}, "action": action}]}, headers)
    document = api.get("/config/export", headers).json
    api.patch(f"/proxies/{proxy['id']}", {"bind_address": "", "bind_policy": "random"}, headers)
    [plan] = api.get("/plans", headers).json["data"]["plans"]
    api.patch(f"/plans/{plan['id']}", {"egress": None}, headers)
    api.patch("/policies/office", {"rules": []}, headers)
    imported = api.post("/config/import", document.get("data", document), headers)
    assert imported.status_code == 200, imported.json
    after = api.get(f"/proxies/{proxy['id']}", headers).json["data"]["proxy"]
    assert (after["bind_address"], after["bind_policy"]) == (["127.0.0.9", "2001:db8:7::/48"], "account")
    assert api.get("/plans", headers).json["data"]["plans"][0]["egress"] == ["2001:db8:7::/48"]
    assert api.get("/policies/office", headers).json["data"]["policy"]["rules"][0]["action"] == action


def test_a_network_that_is_not_routed_here_is_warned_of(api: Api, headers: dict[str, str]) -> None:
    entries = ["127.0.0.9", "127.7.0.0/16", "203.0.113.0/24", "2001:db8:7::/48"]
    warned = api.post("/proxies", {**PROXY, "bind_address": entries}, headers).json["data"]["warnings"]
    assert [each["field"] for each in warned] == ["bind_address[2]", "bind_address[3]"]
    assert warned[1]["warning"].endswith("ip -6 route add local 2001:db8:7::/48 dev lo")
    one = {**PROXY, "name": "one", "port": 3200, "bind_address": "203.0.113.0/24"}
    assert [each["field"] for each in api.post("/proxies", one, headers).json["data"]["warnings"]] == ["bind_address"]
    rules = [{"name": "a", "match": {}, "action": {"egress": entries}}]
    warned = api.post("/policies", {"name": "office", "rules": rules}, headers).json["data"]["warnings"]
    assert [each["field"] for each in warned] == ["rules[0].action.egress[2]", "rules[0].action.egress[3]"]
