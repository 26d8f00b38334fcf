"""Nodes in the API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from api.api_settings import ApiSettings
from tests.kit.api_stage import PROXY, Api, error_of
from tests.kit.tables import table
from tests.unit.api.objects.nodes.staged_nodes import FleetApi, presence, two_nodes


@pytest.fixture
def fleet() -> Iterator[tuple[FleetApi, FleetApi]]:
    with two_nodes() as nodes:
        yield nodes


def test_without_a_fleet_there_is_this_machine_alone() -> None:
    with closing(Api()) as api:
        assert api.post("/proxies", PROXY, api.token()).status_code == 201
        (node,) = api.get("/nodes", api.token()).json["data"]["nodes"]
        assert (node["id"], node["state"], node["role"], node["proxies"]) == (None, "up", "full", 1)
        assert node["version"]
        asked = [("GET", ""), ("PATCH", ""), ("POST", "/drain"), ("POST", "/resume"), ("DELETE", "")]
        for method, what in asked:
            body = {"json": {"tags": ["eu"]}} if method == "PATCH" else {}
            refused = api.request(method, f"/nodes/{node['name']}{what}", api.token(), **body)
            assert error_of(refused)[:2] == (409, "NOT_A_FLEET"), (method, what)
        assert api.get("/health/ready").status_code == 200


def test_a_node_has_its_document_and_what_heartbeats_say(fleet: tuple[FleetApi, FleetApi]) -> None:
    fra, nyc = fleet
    failed = {"collection": "proxies", "id": "prx_1", "name": "one", "revision": 9, "error": "no such file"}
    problems = {
        "failed": [{**failed, "since": 1_000_000.0}],
        "database": {"doorbell": "polling"},
        "pending": {"audit": 2},
    }
    problems["settings"] = {"logging.level": "a", "dns": "b"}
    fra.node.present = {nyc.id: presence(behind=12.5, problems=problems)}
    fra.node.present[fra.id] = presence(problems={"settings": {"logging.level": "c", "dns": "b"}})
    found = {each["name"]: each for each in fra.ask("GET", "/nodes")[1]["nodes"]}
    assert list(found) == ["fra", "nyc"]
    assert (found["nyc"]["tags"], found["nyc"]["addresses"]["public"]) == (["us"], "192.0.2.2")
    assert found["nyc"]["failed"] == [{**failed, "since": "1970-01-12T13:46:40.000Z"}]
    assert found["nyc"]["database"] == {"connected": True, "since": None, "doorbell": "polling", "round_trip_ms": None}
    assert (found["nyc"]["behind_seconds"], found["nyc"]["pending"]) == (12.5, {"audit": 2})
    assert (found["fra"]["settings_differ"], found["nyc"]["settings_differ"]) == (
        {"logging.level": ["nyc"]},
        {"logging.level": ["fra"]},
    )
    assert fra.ask("GET", "/nodes/nyc")[1] == fra.ask("GET", f"/nodes/{nyc.id}")[1] == {"node": found["nyc"]}


def test_what_a_node_knows_of_another_one_without_the_database(fleet: tuple[FleetApi, FleetApi]) -> None:
    fra = fleet[0]
    fra.node.cut_off = 12.0
    assert fra.ask("GET", "/nodes/nyc")[1]["node"]["state"] == "unknown"
    for cut_off, silent in ((12.0, 13.0), (12.0, 1.0), (None, 1.0), (None, 40.0)):
        fra.node.cut_off = cut_off
        fra.node.present = {each.id: presence(silent, is_current=cut_off is not None) for each in fleet}
        this, other = fra.ask("GET", "/nodes")[1]["nodes"]
        assert (other["state"], other["database"], other["revision"]) == ("unknown", None, 8)
        assert (this["state"], this["database"]["connected"]) == ("up", False)
        assert this["database"]["since"] == other["last_seen_at"] == "1970-01-12T13:46:40.000Z"


@table(
    "silent, draining, proxies, state",
    [
        (None, False, {}, "joining"),
        (9.9, False, {}, "up"),
        (10.0, False, {}, "late"),
        (30.0, True, {}, "down"),
        (1.0, True, {"prx_1": {"state": "draining", "error": None}}, "draining"),
        (1.0, True, {"prx_1": {"state": "failed", "error": None}}, "drained"),
    ],
)
def test_the_state_of_a_node(silent: float | None, draining: bool, proxies: dict[str, Any], state: str) -> None:
    with two_nodes() as (fra, nyc):
        fra.node.present = {} if silent is None else {nyc.id: presence(silent, problems={"proxies": proxies})}
        if draining:
            fra.ask("POST", "/nodes/nyc/drain")
        assert fra.ask("GET", "/nodes/nyc")[1]["node"]["state"] == state


def test_a_drained_node_is_not_ready_until_it_resumes(fleet: tuple[FleetApi, FleetApi]) -> None:
    fra, nyc = fleet
    for deed, status in (("drain", 503), ("resume", 200)):
        assert fra.ask("POST", f"/nodes/nyc/{deed}")[0] == 200
        nyc.follow()
        assert [nyc.get(path).status_code for path in ("/health/ready", "/readyz")] == [status, status]
        assert fra.get("/health/ready").status_code == 200


def test_changes_of_a_node_have_etag_audit_and_history_and_no_document_has_them(
    fleet: tuple[FleetApi, FleetApi],
) -> None:
    fra, _nyc = fleet
    assert fra.ask("POST", "/lists", {"name": "some", "kind": "domains", "entries": ["a.example"]})[0] == 201
    shown = fra.get("/nodes/fra", fra.headers)
    headers = {**fra.headers, "If-Match": shown.headers["ETag"]}
    assert fra.patch("/nodes/fra", {"tags": ["eu", "core"]}, headers).status_code == 200
    assert fra.patch("/nodes/fra", {"tags": []}, headers).status_code == 412
    entry = fra.get("/audit?limit=1", fra.headers).json["data"]["audit"][0]
    assert (entry["action"], entry["resource"]["name"]) == ("node.updated", "fra")
    revisions = fra.get("/revisions?kind=node", fra.headers).json["data"]["revisions"]
    assert revisions[0]["objects"] == [
        {"kind": "node", "id": fra.id, "name": "fra", "action": "update", "fields": ["tags"]}
    ]
    assert "nodes" not in fra.get("/config/export", fra.headers).json["data"]
    restored = fra.post(f"/revisions/{revisions[0]['revision'] - 1}/restore", None, fra.headers)
    (left,) = restored.json["data"]["not_restored"]
    assert (left["kind"], left["name"]) == ("node", "fra")
    assert fra.ask("GET", "/nodes/fra")[1]["node"]["tags"] == ["eu", "core"]


LOST = {
    "pending": {"usage_bytes": 7, "usage_seconds": 10},
    "usage_since": "1970-01-12T13:46:30.000Z",
    "last_seen_at": "1970-01-12T13:46:40.000Z",
}


def test_another_node_is_removed_by_an_administrator_with_what_it_may_do(fleet: tuple[FleetApi, FleetApi]) -> None:
    fra, nyc = fleet
    fra.add_user("olga", role="operator")
    assert fra.request("DELETE", "/nodes/nyc", fra.token("olga")).status_code == 403
    assert fra.ask("DELETE", "/nodes/fra")[0] == 400
    status, reply = fra.ask("DELETE", "/nodes/nyc")
    assert (status, reply) == (200, {"id": nyc.id, "deleted": True, "lost": LOST})
    assert fra.node.removed == [nyc.id]
    assert [each["name"] for each in fra.ask("GET", "/nodes")[1]["nodes"]] == ["fra"]
    (event,) = fra.fleet.published("node.removed")
    assert (event["node_id"], event["name"]) == (nyc.id, "nyc")


@table(
    "body, field",
    [
        ({"tags": ["a", "a"]}, "tags"),
        ({"addresses": {"Public": "192.0.2.1"}}, "addresses.Public"),
        ({"addresses": {"public": "not a host"}}, "addresses.public"),
        ({"addresses": {"public": "2001:db8::1:7000"}}, None),
        ({"addresses": {"public": "192.0.2.1:0"}}, "addresses.public"),
        ({"name": "other"}, "name"),
        ({"draining": True}, "draining"),
    ],
)
def test_bad_changes_of_a_node_name_their_field(body: dict[str, Any], field: str | None) -> None:
    with two_nodes() as (fra, _nyc):
        status, refused = fra.ask("PATCH", "/nodes/fra", body)
        assert status == (200 if field is None else 400), refused
        assert field is None or refused[2]["field"] == field, refused


def test_digests_of_settings_are_of_what_must_be_the_same_and_is_not_the_default() -> None:
    usual = ApiSettings()
    changed = ApiSettings(
        server=usual.server.model_copy(update={"port": 9999}),
        logging=usual.logging.model_copy(update={"level": "debug", "output": "stdout"}),
        proxy=usual.proxy.model_copy(update={"default_timeout": 7}),
    )
    assert usual.digests() == {}
    assert changed.digests().keys() == {"logging.level", "proxy.default_timeout"}
    assert changed.digests() != ApiSettings(proxy=usual.proxy.model_copy(update={"default_timeout": 8})).digests()
