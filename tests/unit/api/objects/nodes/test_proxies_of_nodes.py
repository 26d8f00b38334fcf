"""Which node runs which proxy, and as what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from actors.bus.messages.supervision import ApplyProxies, ReplaceProxies, ReserveListener
from tests.kit.api_stage import PROXY, Api, error_of
from tests.kit.tables import table
from tests.unit.api.objects.nodes.staged_nodes import two_nodes

EU, US = {"tags": ["eu"]}, {"tags": ["us"]}


def test_a_proxy_runs_on_the_nodes_that_it_selects_whichever_is_asked() -> None:
    with two_nodes() as (fra, nyc):
        bodies = [
            {**PROXY, "name": "all"},
            {**PROXY, "name": "eu", "port": 4001, "nodes": EU},
            {**PROXY, "name": "nyc", "port": 4002, "nodes": {"names": ["nyc"]}},
        ]
        views = {}
        for each in bodies:
            status, made = fra.ask("POST", "/proxies", each)
            assert status == 201, made
            views[each["name"]] = made["proxy"]["nodes"]
        assert views == {"all": {"all": True}, "eu": EU, "nyc": {"names": ["nyc"]}}
        assert (fra.specs.keys(), nyc.specs.keys()) == ({"all", "eu"}, {"all", "nyc"})
        bound = {each.proxy_id for _, each in fra.fleet.received if isinstance(each, ReserveListener)}
        assert bound == {each.id for each in fra.specs.values()}


def test_what_changes_of_a_node_or_of_a_proxys_nodes_holds_at_once() -> None:
    with two_nodes() as (fra, nyc):
        made = fra.ask("POST", "/proxies", {**PROXY, "nodes": EU})[1]["proxy"]
        path = f"/proxies/{made['id']}"
        assert (fra.specs.keys(), nyc.specs.keys()) == ({"first"}, set())
        assert nyc.ask("PATCH", path, {"nodes": US})[0] == 200
        assert (fra.specs.keys(), nyc.specs.keys()) == (set(), {"first"})
        assert fra.ask("PATCH", "/nodes/fra", {"tags": ["eu", "us"]})[0] == 200
        assert (fra.specs.keys(), nyc.specs.keys()) == ({"first"}, {"first"})


def test_changes_of_other_nodes_that_come_together_are_one_message_about_these_proxies_alone() -> None:
    with two_nodes() as (fra, nyc):
        made = [fra.ask("POST", "/proxies", {**PROXY, "name": f"p{each}", "port": 4000 + each}) for each in range(3)]
        ids = [data["proxy"]["id"] for _, data in made]
        nyc.follow()
        before, seen = nyc.services.nodes.here(), len(nyc.fleet.received)
        for each in ids[:2]:
            assert fra.ask("PATCH", f"/proxies/{each}", {"tags": ["b"]})[0] == 200
        nyc.follow()
        (message,) = (each for _, each in nyc.fleet.received[seen:] if isinstance(each, ApplyProxies | ReplaceProxies))
        assert {each.id for each in message.specs} == {*ids[:2]}
        assert isinstance(message, ApplyProxies)
        after = nyc.services.nodes.here()
        assert [each is known for each, known in zip(after, before, strict=True)] == [False, False, True]


def test_a_node_gets_certificates_of_others_before_it_serves_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with two_nodes() as (fra, nyc):
        seen: list[tuple[list[str], set[str]]] = []

        def have(proxies: Iterable[Mapping[str, Any]]) -> None:
            seen.append(([each["name"] for each in proxies], {*nyc.fleet.desired}))

        monkeypatch.setattr(nyc.node, "have_certificates", have)
        made = fra.ask("POST", "/proxies", PROXY)[1]["proxy"]
        assert nyc.specs.keys() == {"first"}
        assert seen == [(["first"], set())]
        fra.ask("PATCH", f"/proxies/{made['id']}", {"tags": ["b"]})
        nyc.follow()
        assert len(seen) == 1, "it listens as before"


def test_node_and_address_stand_for_those_of_each_node() -> None:
    with two_nodes() as (fra, nyc):
        body = {**PROXY, "host": "{address:public}", "bind_address": "{address}"}
        status, made = nyc.ask("POST", "/proxies", body)
        assert (status, made["proxy"]["host"], made["proxy"]["bind_address"]) == (201, "{address:public}", "{address}")
        found = [(each.specs["first"].host, each.specs["first"].bind_address) for each in (fra, nyc)]
        assert found == [("192.0.2.1", "10.0.0.1"), ("192.0.2.2", "10.0.0.2")]
        changed = {"addresses": {"public": "192.0.2.9", "internal": "10.0.0.9"}}
        assert nyc.ask("PATCH", "/nodes/fra", changed)[0] == 200
        assert fra.specs["first"].host == "192.0.2.9"
        status, made = nyc.ask("PATCH", f"/proxies/{made['proxy']['id']}", {"host": "p-{node}.example.com"})
        assert [each.specs["first"].host for each in (fra, nyc)] == ["p-fra.example.com", "p-nyc.example.com"], made


@table(
    "body, field",
    [
        ({"nodes": {"names": ["lon"]}}, "nodes.names[0]"),
        ({"nodes": {"names": []}}, "nodes.names"),
        ({"nodes": {}}, "nodes"),
        ({"host": "{address:v6}"}, "host"),
        ({"host": "{other}"}, "host"),
        ({"bind_address": ["{address}", "{address:v6}"]}, "bind_address[1]"),
        ({"protocol": "https", "tls": {"cert_file": "/c/{address:v6}", "key_file": "/k"}}, "tls.cert_file"),
    ],
)
def test_what_a_node_can_not_run_is_refused(body: dict[str, Any], field: str) -> None:
    with two_nodes() as (fra, _nyc):
        status, refused = fra.ask("POST", "/proxies", {**PROXY, **body})
        assert (status, refused[2]["field"]) == (400, field), refused
        assert fra.engine.every("proxies") == []


@table(
    "first, second, taken",
    [
        ({}, {}, True),
        ({"nodes": US}, {}, True),
        ({"nodes": US}, {"nodes": {"names": ["nyc"]}}, True),
        ({"nodes": EU}, {"nodes": US}, False),
        ({"nodes": US, "host": "{address:public}"}, {"nodes": US, "host": "192.0.2.2"}, True),
        ({"nodes": US, "host": "{address:public}"}, {"nodes": US, "host": "192.0.2.1"}, False),
        ({"host": "{address:public}"}, {"host": "{address}"}, False),
        ({"nodes": US, "port": "3000-3200"}, {"nodes": US, "host": "0.0.0.0"}, True),
    ],
)
def test_two_proxies_with_one_address_on_a_node_are_refused_whichever_node_is_asked(
    first: dict[str, Any], second: dict[str, Any], taken: bool
) -> None:
    with two_nodes() as (fra, nyc):
        assert nyc.ask("POST", "/proxies", {**PROXY, **first})[0] == 201
        fra.follow()
        status, refused = fra.ask("POST", "/proxies", {**PROXY, "name": "second", **second})
        assert status == (400 if taken else 201), refused
        assert not taken or (refused[2]["field"] == "port" and "'first'" in refused[2]["error"]), refused


@table(
    "changed, field",
    [
        ({"tags": ["us", "eu"]}, "tags"),
        ({"addresses": {"public": "192.0.2.2"}}, "addresses"),
        ({"addresses": {"internal": "192.0.2.2", "public": "192.0.2.2"}}, "addresses"),
        ({"tags": ["us", "asia"]}, None),
    ],
)
def test_a_change_of_a_node_to_which_its_proxies_do_not_fit_is_refused(
    changed: dict[str, Any], field: str | None
) -> None:
    with two_nodes() as (fra, nyc):
        bodies = [
            {"nodes": EU},
            {"nodes": US},
            {"nodes": US, "host": "{address}", "port": 4000},
            {"nodes": US, "host": "{address:public}", "port": 4000},
        ]
        for number, each in enumerate(bodies):
            assert fra.ask("POST", "/proxies", {**PROXY, "name": f"p{number}", **each})[0] == 201
        status, reply = nyc.ask("PATCH", "/nodes/nyc", changed)
        assert status == (200 if field is None else 400), reply
        assert field is None or reply[2]["field"] == field, reply


def test_on_a_node_that_drains_proxies_stop_until_it_resumes() -> None:
    with two_nodes() as (fra, nyc):
        assert fra.ask("POST", "/proxies", PROXY)[0] == 201
        assert fra.ask("POST", "/nodes/nyc/drain")[0] == 200
        assert [each.specs["first"].active for each in (fra, nyc)] == [True, False]
        nyc.start()
        nyc.services.link.again("nodes", nyc.id)
        assert not nyc.specs["first"].active
        assert nyc.ask("POST", "/nodes/nyc/resume")[0] == 200
        assert [each.specs["first"].active for each in (fra, nyc)] == [True, True]


@table(
    "field, value", [("nodes", {"names": ["a"]}), ("nodes", EU), ("host", "{address}"), ("bind_address", "{address}")]
)
def test_one_machine_has_no_nodes_to_name(field: str, value: Any) -> None:
    api = Api()
    try:
        refused = api.post("/proxies", {**PROXY, field: value}, api.token())
        assert (error_of(refused)[0], error_of(refused)[2]["field"]) == (400, field), refused.text
        assert "no node of a fleet" in error_of(refused)[2]["error"]
        made = api.post("/proxies", PROXY, api.token())
        assert made.json["data"]["proxy"]["nodes"] == {"all": True}
    finally:
        api.close()
