"""Settings of all nodes of a fleet, and of one."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from api.objects.live_settings import read_overrides
from tests.kit.api_stage import Api, error_of
from tests.unit.api.objects.nodes.staged_nodes import FleetApi, two_nodes


def timeout(node: FleetApi, of: str = "") -> Any:
    node.follow()
    query = f"?node={of}" if of else ""
    return node.ask("GET", f"/settings{query}")[1]["proxy"]["default_timeout"]


def set_timeout(node: FleetApi, seconds: int, of: str = "") -> None:
    query = f"?node={of}" if of else ""
    status, reply = node.ask("PATCH", f"/settings{query}", {"proxy": {"default_timeout": seconds}})
    assert (status, reply["proxy"]["default_timeout"]) == (200, timeout(node, of)), reply


def test_a_change_is_of_all_nodes_or_of_one_where_it_wins() -> None:
    with two_nodes() as (fra, nyc):
        set_timeout(fra, 40)
        assert (timeout(fra), timeout(nyc)) == (40, 40)
        set_timeout(fra, 50, of="nyc")
        assert (timeout(fra), timeout(nyc), timeout(fra, "nyc"), timeout(nyc, "fra")) == (40, 50, 50, 40)
        set_timeout(nyc, 60)
        assert (timeout(fra), timeout(nyc)) == (60, 50), "that of the node wins"
        set_timeout(nyc, 50)
        assert (timeout(fra), timeout(nyc)) == (50, 50), "what holds at the asked node alone is a change of all"
        assert read_overrides(nyc.engine, nyc.id)["proxy"] == {"default_timeout": 50}
        assert fra.ask("DELETE", "/settings/proxy.default_timeout?node=nyc")[0] == 200
        set_timeout(fra, 70)
        assert (timeout(fra), timeout(nyc)) == (70, 70)


def test_a_policy_that_all_proxies_of_one_node_have_stays_on_all_nodes() -> None:
    with two_nodes() as (fra, nyc):
        rules = [{"name": "all", "match": {}, "action": {"use": "deny"}}]
        assert fra.ask("POST", "/policies", {"name": "everywhere", "rules": rules})[0] == 201
        named = {"proxy": {"policy": "everywhere"}}
        assert fra.ask("PATCH", "/settings?node=nyc", named)[1]["proxy"]["policy"] == "everywhere"
        assert fra.ask("GET", "/settings")[1]["proxy"]["policy"] == ""
        refused = fra.ask("DELETE", "/policies/everywhere")[1][2]["error"]
        assert "in use by 1 (setting proxy.policy of nyc)" in refused
        nyc.follow()
        assert nyc.ask("DELETE", "/settings/proxy.policy?node=nyc")[0] == 200
        fra.follow()
        assert fra.ask("DELETE", "/policies/everywhere")[0] == 200


def test_the_server_differs_by_node_where_there_are_several() -> None:
    with two_nodes() as (fra, nyc):
        change = {"server": {"max_connections": 50}}
        status, refused = fra.ask("PATCH", "/settings", change)
        assert (status, refused[2]["field"]) == (400, "server")
        assert fra.ask("PATCH", "/settings?node=fra", change)[1]["server"]["max_connections"] == 50
        nyc.follow()
        assert nyc.ask("GET", "/settings")[1]["server"]["max_connections"] != 50
        assert fra.ask("PATCH", "/settings?node=lon", change)[0] == 404
        assert fra.ask("DELETE", "/nodes/nyc")[0] == 200
        assert fra.ask("PATCH", "/settings", {"server": {"max_connections": 60}})[0] == 200, "one node is one machine"


def test_settings_of_a_node_go_with_it_and_stay_in_no_export() -> None:
    with two_nodes() as (fra, nyc):
        set_timeout(fra, 50, of="nyc")
        exported = fra.get("/config/export", fra.headers).json["data"]
        assert not exported.get("settings")
        assert fra.engine.get("settings", nyc.id) is not None
        assert fra.ask("DELETE", "/nodes/nyc")[0] == 200
        assert fra.engine.get("settings", nyc.id) is None


def test_a_restored_state_leaves_settings_of_one_node() -> None:
    with two_nodes() as (fra, nyc):
        set_timeout(fra, 40)
        before = fra.get("/revisions?limit=1", fra.headers).json["data"]["revisions"][0]["revision"]
        set_timeout(fra, 45)
        set_timeout(fra, 50, of="nyc")
        reply = fra.post(f"/revisions/{before}/restore", None, fra.headers)
        assert reply.status_code == 200, reply.text
        assert [(each["kind"], each["id"]) for each in reply.json["data"]["not_restored"]] == [("settings", nyc.id)]
        assert (timeout(fra), timeout(nyc)) == (40, 50)


def test_one_machine_has_no_settings_of_nodes() -> None:
    with closing(Api()) as api:
        for method, body in (("GET", None), ("PATCH", {"proxy": {"default_timeout": 40}})):
            refused = api.request(method, "/settings?node=a", api.token(), **({"json": body} if body else {}))
            assert error_of(refused)[:2] == (409, "NOT_A_FLEET")
