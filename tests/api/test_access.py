"""Access rules over the API: stored, merged, told to the supervisor, and refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from actors.bus.messages import AccessSpec
from tests.api.support import PROXY, Api, error_of

OPEN = {
    "allow_clients": [],
    "deny_clients": [],
    "allow_destinations": [],
    "deny_destinations": [],
    "mode": "enforce",
}


@pytest.fixture
def headers(api: Api) -> dict[str, str]:
    return api.token()


def create(api: Api, headers: dict[str, str], **fields: Any) -> dict[str, Any]:
    made = api.post("/proxies", {**PROXY, **fields}, headers)
    assert made.status_code == 201, made.text
    proxy: dict[str, Any] = made.json["data"]["proxy"]
    return proxy


def test_without_rules_everybody_may_go_everywhere(api: Api, headers: dict[str, str]) -> None:
    proxy = create(api, headers)
    assert proxy["access"] == OPEN
    assert api.fleet.wish[proxy["id"]].access == AccessSpec()


def test_rules_are_shown_in_the_detail_form_and_told_to_the_supervisor(api: Api, headers: dict[str, str]) -> None:
    access = {"deny_clients": ["192.0.2.0/24"], "allow_destinations": ["*.example.com:443"], "mode": "report"}
    proxy = create(api, headers, access=access)
    assert api.get(f"/proxies/{proxy['id']}", headers).json["data"]["proxy"]["access"] == {**OPEN, **access}
    assert "access" not in api.get("/proxies", headers).json["data"]["proxies"][0]
    expected = AccessSpec(deny_clients=("192.0.2.0/24",), allow_destinations=("*.example.com:443",), mode="report")
    assert api.fleet.wish[proxy["id"]].access == expected


def test_an_update_replaces_the_lists_that_are_given_and_keeps_the_others(api: Api, headers: dict[str, str]) -> None:
    proxy = create(api, headers, access={"deny_clients": ["192.0.2.1"], "deny_destinations": [":25", ":26"]})
    body = {"access": {"deny_destinations": [":27"], "mode": "report"}}
    shown = api.patch(f"/proxies/{proxy['id']}", body, headers).json["data"]["proxy"]["access"]
    assert shown == {**OPEN, "deny_clients": ["192.0.2.1"], "deny_destinations": [":27"], "mode": "report"}
    shown = api.patch(f"/proxies/{proxy['id']}", {"access": {"deny_clients": []}}, headers).json["data"]["proxy"]
    assert shown["access"]["deny_clients"] == []


@pytest.mark.parametrize(
    ("access", "field"),
    [
        ({"deny_destinations": [":25", "*.a.example", "a*b"]}, "access.deny_destinations[2]"),
        ({"allow_destinations": ["10.0.0.0/33"]}, "access.allow_destinations[0]"),
        ({"allow_destinations": [25]}, "access.allow_destinations[0]"),
        ({"allow_destinations": [None]}, "access.allow_destinations[0]"),
        ({"allow_clients": ["10.0.0.0/8", "example.com"]}, "access.allow_clients[1]"),
        ({"deny_clients": ["10.0.0.1:80"]}, "access.deny_clients[0]"),
        ({"deny_clients": "10.0.0.1"}, "access.deny_clients"),
        ({"deny_clients": None}, "access.deny_clients"),
        ({"deny_clients": ["10.0.0.1"] * 10_001}, "access.deny_clients"),
        ({"mode": "dream"}, "access.mode"),
        ({"colour": "red"}, "access.colour"),
        ([], "access"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_bad_rule_is_400_naming_it(api: Api, headers: dict[str, str], access: Any, field: str) -> None:
    status, code, details = error_of(api.post("/proxies", {**PROXY, "access": access}, headers))
    assert (status, code, details["field"]) == (400, "INVALID_REQUEST", field)
    assert details["error"]
    assert api.store.find("proxies") == []
