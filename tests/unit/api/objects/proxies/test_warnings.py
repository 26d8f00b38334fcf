"""Proxies that any client could use cause a warning, in the response and in the log."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.kit.api_stage import PROXY, Api
from tests.kit.tables import table
from tests.unit.api.creating import delete_all

OPEN, ANNOUNCED = ["auth.enabled"], ["accept_proxy_protocol"]
AUTH = {"auth": {"enabled": True, "username": "a", "password": "b"}}

CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "loopback": ({}, []),
    "loopback by IPv6": ({"host": "::1"}, []),
    "loopback by name": ({"host": "localhost"}, []),
    "all addresses": ({"host": "0.0.0.0"}, OPEN),
    "all addresses of IPv6": ({"host": "::"}, OPEN),
    "one public address": ({"host": "192.0.2.1"}, OPEN),
    "credentials": ({"host": "0.0.0.0", **AUTH}, []),
    "accounts": ({"host": "0.0.0.0", "accounts": [{"username": "a", "password": "battery staple"}]}, []),
    "a list of clients": ({"host": "0.0.0.0", "access": {"allow_clients": ["10.0.0.0/8"]}}, []),
    "a list of all clients": ({"host": "0.0.0.0", "access": {"allow_clients": ["10.0.0.0/8", "::/0"]}}, OPEN),
    "a list that only reports": (
        {"host": "0.0.0.0", "access": {"allow_clients": ["10.0.0.0/8"], "mode": "report"}},
        OPEN,
    ),
    "a list of who may not": ({"host": "0.0.0.0", "access": {"deny_clients": ["10.0.0.0/8"]}}, OPEN),
    "a balancer": ({"host": "0.0.0.0", "accept_proxy_protocol": True, **AUTH}, ANNOUNCED),
    "a balancer on this machine": ({"accept_proxy_protocol": True}, []),
}


@table(("fields", "warned"), CASES.values(), ids=CASES)
def test_who_could_use_a_proxy_that_is_created(api: Api, fields: dict[str, Any], warned: list[str]) -> None:
    delete_all(api, api.token())
    made = api.post("/proxies", {**PROXY, **fields}, api.token())
    assert made.status_code == 201, made.text
    assert [each["field"] for each in made.json["data"]["warnings"]] == warned
    path = f"/proxies/{made.json['data']['proxy']['id']}"
    assert api.get(path, api.token()).json["data"]["warnings"] == made.json["data"]["warnings"]
    assert api.post(f"{path}/stop", None, api.token()).json["data"]["warnings"] == made.json["data"]["warnings"]


def test_the_log_warns_when_it_comes_to_be_and_not_again(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="api.objects.proxies.proxy_service"):
        made = api.post("/proxies", {**PROXY, "host": "0.0.0.0", **AUTH}, api.token()).json["data"]["proxy"]
        assert caplog.messages == []
        opened = api.patch(f"/proxies/{made['id']}", {"auth": {"enabled": False}}, api.token())
        assert [each["field"] for each in opened.json["data"]["warnings"]] == OPEN
        assert api.patch(f"/proxies/{made['id']}", {"tags": ["x"]}, api.token()).status_code == 200
    (warning,) = caplog.messages
    assert made["id"] in warning
    assert "asks for no credentials" in warning


RULES = {"rules": [{"name": "nothing else", "match": {}, "action": {"use": "deny"}}]}
FENCES: dict[str, tuple[dict[str, str | None], dict[str, Any], list[str]]] = {
    "no proxy has one": ({"a": None, "b": None}, {}, []),
    "all have the same": ({"a": "x", "b": "x"}, {}, []),
    "one lacks it": ({"a": "x", "b": None}, {}, ["2 proxies", "the policy 'x'", "1 with none: 'b'"]),
    "they have different ones": ({"a": "x", "b": "y"}, {}, ["'x', 'y'", "each holds on its own proxies alone"]),
    "the account may use those with it alone": ({"a": "x", "b": None}, {"proxies": {"tags": ["a"]}}, []),
    "its plan has one": ({"a": "x", "b": None}, {"plan": "fenced"}, []),
}


@pytest.mark.parametrize(("proxies", "fields", "said"), FENCES.values(), ids=FENCES)
def test_an_account_that_may_go_round_a_policy_is_warned_of(
    api: Api, proxies: dict[str, str | None], fields: dict[str, Any], said: list[str]
) -> None:
    for name in ("x", "y"):
        assert api.post("/policies", {"name": name, **RULES}, api.token()).status_code == 201
    assert api.post("/plans", {"name": "fenced", "policy": "x"}, api.token()).status_code == 201
    for port, (name, policy) in enumerate(proxies.items(), 4000):
        body = {"name": name, "port": port, "protocol": "http", "tags": [name], "auth": {"enabled": True}}
        made = api.post("/proxies", body if policy is None else {**body, "policy": policy}, api.token())
        assert made.status_code == 201, made.text
    made = api.post("/accounts", {"username": "agent", **fields}, api.token()).json["data"]
    assert [each["field"] for each in made["warnings"]] == (["policy"] if said else [])
    assert all(part in each["warning"] for part in said for each in made["warnings"])
    path = f"/accounts/{made['account']['id']}"
    changed = api.patch(path, {"proxies": {"tags": ["a"]}}, api.token()).json["data"]["warnings"]
    assert changed == []


def test_a_warning_of_proxies_that_ask_for_no_credentials_is_a_sentence_for_one_and_for_several(api: Api) -> None:
    for port, name in enumerate(("a", "b"), 4000):
        assert (
            api.post("/proxies", {**PROXY, "name": name, "port": port, "tags": [name]}, api.token()).status_code == 201
        )
    for tags, warning in (
        (["a"], "'a' asks for no credentials: any client may use it, and no account counts there"),
        (["a", "b"], "'a', 'b' ask for no credentials: any client may use them, and no account counts there"),
    ):
        body = {"username": f"agent{len(tags)}", "proxies": {"tags": tags}}
        made = api.post("/accounts", body, api.token()).json["data"]
        assert [each["warning"] for each in made["warnings"] if each["field"] == "proxies"] == [warning]
