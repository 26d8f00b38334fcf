"""Proxies with ranges of ports in the API: how they are written, stored, found, moved and refused."""

from __future__ import annotations

from typing import Any

import pytest

from actors.bus.messages.common import Failed, forwarding_name
from tests.kit.api_stage import PROXY, Api, error_of
from tests.kit.tables import table

RANGE = {**PROXY, "name": "wide", "port": "20000-20999"}


def create(api: Api, headers: dict[str, str], **fields: Any) -> dict[str, Any]:
    response = api.post("/proxies", {**RANGE, **fields}, headers)
    assert response.status_code == 201, response.json
    made: dict[str, Any] = response.json["data"]["proxy"]
    return made


def test_a_range_is_shown_as_it_was_given_and_reaches_the_supervisor(api: Api, headers: dict[str, str]) -> None:
    made = create(api, headers)
    assert made["port"] == "20000-20999"
    assert "last_port" not in made
    shown = api.get(f"/proxies/{made['id']}", headers).json["data"]["proxy"]
    (listed,) = api.get("/proxies", headers).json["data"]["proxies"]
    assert (shown["port"], listed["port"]) == ("20000-20999", "20000-20999")
    spec = api.fleet.desired[made["id"]]
    assert (spec.port, spec.last_port) == (20000, 20999)


@pytest.mark.parametrize(("given", "shown"), [("3128-3128", 3128), (3128, 3128), ("1-4096", "1-4096")])
def test_a_range_of_one_is_a_port(api: Api, headers: dict[str, str], given: Any, shown: Any) -> None:
    assert create(api, headers, port=given)["port"] == shown


def test_ranges_that_overlap_are_refused_with_the_port(api: Api, headers: dict[str, str]) -> None:
    create(api, headers)
    for port in ("20500-21500", "19000-20000", 20700):
        status, _code, details = error_of(api.post("/proxies", {**RANGE, "name": "b", "port": port}, headers))
        assert (status, details["field"]) == (400, "port")
    assert create(api, headers, name="beside", port="21000-21010")["port"] == "21000-21010"


@pytest.mark.parametrize("active", [True, False])
def test_a_range_becomes_a_port_and_another_range(api: Api, headers: dict[str, str], active: bool) -> None:
    path = f"/proxies/{create(api, headers)['id']}"
    assert api.patch(path, {"port": "20000-20999"}, headers).status_code == 200
    if not active:
        assert api.post(f"{path}/stop", {}, headers).status_code == 200
    assert api.patch(path, {"port": 20000}, headers).json["data"]["proxy"]["port"] == 20000
    assert api.patch(path, {"port": "20000-20003"}, headers).json["data"]["proxy"]["port"] == "20000-20003"
    assert api.post(f"{path}/start", {}, headers).status_code == 200
    assert api.fleet.desired[path.rpartition("/")[2]].last_port == 20003


@pytest.mark.parametrize(("text", "found"), [("20005", 1), ("20000-2", 1), ("21000", 0), ("0020005", 0), ("wide", 1)])
def test_a_proxy_is_found_by_any_of_its_ports(api: Api, headers: dict[str, str], text: str, found: int) -> None:
    create(api, headers)
    assert len(api.get(f"/proxies?q={text}", headers).json["data"]["proxies"]) == found


@pytest.mark.parametrize(("port", "refused"), [(20000, True), (20999, True), (21000, False)])
def test_a_proxy_is_no_upstream_of_itself_at_any_port(
    api: Api, headers: dict[str, str], port: int, refused: bool
) -> None:
    upstreams = [{"protocol": "http", "host": "127.0.0.1", "port": port}]
    status = api.post("/proxies", {**RANGE, "upstreams": upstreams}, headers).status_code
    assert (status == 400) == refused


def test_an_export_has_the_range_and_an_import_makes_it_again(api: Api, headers: dict[str, str]) -> None:
    made = create(api, headers)
    document = api.get("/config/export", headers).json["data"]
    (entry,) = document["proxies"]
    assert entry["port"] == "20000-20999"
    assert api.request("DELETE", f"/proxies/{made['id']}", headers).status_code == 200
    result = api.post("/config/import", document, headers)
    assert result.status_code == 200, result.json
    (listed,) = api.get("/proxies", headers).json["data"]["proxies"]
    assert listed["port"] == "20000-20999"
    entry["port"] = "20990-21010"
    assert api.post("/config/import", document, headers).status_code == 200
    assert api.fleet.desired[listed["id"]].last_port == 21010


@pytest.mark.parametrize(("ports", "workers", "refused"), [(4096, 4, False), (4096, 5, True), (257, 64, True)])
def test_ports_and_workers_are_bounded_together(
    api: Api, headers: dict[str, str], ports: int, workers: int, refused: bool
) -> None:
    body = {**RANGE, "port": f"20000-{20000 + ports - 1}", "workers": workers}
    response = api.post("/proxies", body, headers)
    assert (response.status_code == 400) == refused
    assert not refused or error_of(response)[2]["field"] == "port"


def test_a_rule_names_ports_of_the_proxy(api: Api, headers: dict[str, str]) -> None:
    match = {"listen_ports": [20005, "20010-20019", "20020-20020"]}
    rule = {"name": "some", "match": match, "action": {"use": "deny"}}
    made = api.post("/policies", {"name": "by-port", "rules": [rule]}, headers)
    assert made.status_code == 201, made.json
    (shown,) = made.json["data"]["policy"]["rules"]
    assert shown["match"] == {"listen_ports": [20005, "20010-20019", 20020]}


@table("entry", [0, 65536, "20010", "20019-20010", "20010-", True, None, ":20010"])
def test_a_rule_with_a_port_that_is_none_is_refused_by_its_place(api: Api, headers: dict[str, str], entry: Any) -> None:
    rule = {"name": "some", "match": {"listen_ports": [20005, entry]}, "action": {"use": "deny"}}
    status, _code, details = error_of(api.post("/policies", {"name": "by-port", "rules": [rule]}, headers))
    assert (status, details["field"]) == (400, "rules[0].match.listen_ports[1]")


@pytest.mark.parametrize(("given", "asked"), [({}, 20000), ({"listen_port": 20007}, 20007)])
def test_explain_asks_about_a_port_of_the_proxy_by_default_the_first(
    api: Api, headers: dict[str, str], given: dict[str, int], asked: int
) -> None:
    made = create(api, headers)
    queries: list[Any] = []
    api.fleet.others[forwarding_name(made["id"])] = lambda query: queries.append(query) or Failed("no", "target")
    body = {"client_ip": "192.0.2.1", "target": "a.example:443"}
    api.post(f"/proxies/{made['id']}/explain", {**body, **given}, headers)
    assert [each.listen_port for each in queries] == [asked]


def test_explain_refuses_a_port_of_another_proxy(api: Api, headers: dict[str, str]) -> None:
    made = create(api, headers)
    body = {"client_ip": "192.0.2.1", "target": "a.example:443", "listen_port": 21000}
    status, _code, details = error_of(api.post(f"/proxies/{made['id']}/explain", body, headers))
    assert (status, details["field"]) == (400, "listen_port")
