"""`runtime` of a proxy in a fleet, what a node reports of its proxies, and warnings of nodes that refused a change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from api.fleet import Presence
from api.objects.nodes.proxies_over_nodes import sum_of
from tests.kit.api_stage import PROXY
from tests.kit.tables import table
from tests.unit.api.objects.nodes.staged_nodes import FleetApi, presence, two_nodes

FAILED = {"state": "failed", "error": "port 3128 is in use"}


@table(
    "states, found",
    [
        (["running", "running"], "running"),
        (["running", "sleeping"], "running"),
        (["running", "failed"], "degraded"),
        (["sleeping", "unknown"], "degraded"),
        (["degraded", "stopped"], "degraded"),
        (["failed", "failed"], "failed"),
        (["stopped", "draining"], "draining"),
        (["stopped", "stopped"], "stopped"),
        (["failed", "starting"], "failed"),
        (["unknown"], "failed"),
        ([], "stopped"),
    ],
)
def test_the_state_of_a_proxy_is_the_sum_of_its_nodes(states: Sequence[str], found: str) -> None:
    assert sum_of(states) == found


def created(node: FleetApi, **fields: Any) -> dict[str, Any]:
    status, made = node.ask("POST", "/proxies", {**PROXY, **fields})
    assert status == 201, made
    return dict(made)


def runtime(node: FleetApi, made: Mapping[str, Any]) -> tuple[str, list[tuple[str, str]], Any]:
    node.follow()
    found = node.ask("GET", f"/proxies/{made['proxy']['id']}")[1]["proxy"]["runtime"]
    (listed,) = node.ask("GET", "/proxies")[1]["proxies"]
    assert listed["runtime"]["state"] == found["state"]
    return found["state"], [(each["node"], each["state"]) for each in found["nodes"]], found["error"]


def test_runtime_names_each_node_that_runs_it_and_what_is_wrong_there() -> None:
    with two_nodes() as (fra, nyc):
        made = created(fra)
        identifier = made["proxy"]["id"]
        assert runtime(fra, made) == ("degraded", [("fra", "running"), ("nyc", "unknown")], None)
        fra.node.present = {nyc.id: presence()}
        assert runtime(fra, made) == ("running", [("fra", "running"), ("nyc", "running")], None)
        fra.node.present = {nyc.id: presence(problems={"proxies": {identifier: FAILED}})}
        error = "nyc: port 3128 is in use"
        assert runtime(fra, made) == ("degraded", [("fra", "running"), ("nyc", "failed")], error)
        said = {identifier: {"state": "of a later release", "error": None}}
        fra.node.present = {nyc.id: presence(problems={"proxies": said})}
        assert runtime(fra, made) == ("degraded", [("fra", "running"), ("nyc", "unknown")], None)
        fra.node.present = {nyc.id: presence(silent=31.0)}
        assert runtime(fra, made) == ("degraded", [("fra", "running"), ("nyc", "unknown")], None)
        fra.node.present = {nyc.id: presence()}
        assert fra.ask("POST", "/nodes/fra/drain")[0] == 200
        assert runtime(fra, made) == ("degraded", [("fra", "stopped"), ("nyc", "running")], None)


@table(
    ("nodes", "host", "at"),
    [
        ({"all": True}, "{address:public}", "192.0.2.1"),
        ({"tags": ["us"]}, "{address:public}", "192.0.2.2"),
        ({"all": True}, "127.0.0.1", "127.0.0.1"),
    ],
)
def test_runtime_has_the_address_of_the_asked_node_or_else_of_the_first(nodes: Any, host: str, at: str) -> None:
    with two_nodes() as (fra, _nyc):
        identifier = created(fra, nodes=nodes, host=host)["proxy"]["id"]
        found = fra.ask("GET", f"/proxies/{identifier}")[1]["proxy"]
        (listed,) = fra.ask("GET", "/proxies")[1]["proxies"]
        assert (found["host"], found["runtime"]["host"], listed["runtime"]["host"]) == (host, at, at)


def test_a_proxy_that_does_not_run_here_has_the_state_of_where_it_does() -> None:
    with two_nodes() as (fra, nyc):
        fra.node.present = {nyc.id: presence(revision=10**9)}
        made = created(fra, nodes={"tags": ["us"]})
        assert runtime(fra, made) == ("running", [("nyc", "running")], None)
        assert fra.ask("GET", f"/proxies/{made['proxy']['id']}")[1]["proxy"]["runtime"]["pid"] is None


def test_a_node_reports_the_proxies_that_do_not_run_there_at_once_after_a_change_of_where_they_listen() -> None:
    with two_nodes() as (fra, nyc):
        made = created(fra)
        path, identifier = f"/proxies/{made['proxy']['id']}", made["proxy"]["id"]
        nyc.follow()
        assert nyc.node.beats == 1
        assert nyc.services.proxies_over_nodes.report()["proxies"] == {}
        nyc.fleet.failed.add(identifier)
        nyc.services.runtime.changed()
        assert nyc.services.proxies_over_nodes.report()["proxies"] == {identifier: {"state": "failed", "error": None}}
        for change, beats in (({"description": "x"}, 1), ({"port": 4000}, 2)):
            assert fra.ask("PATCH", path, change)[0] == 200
            nyc.follow()
            assert nyc.node.beats == beats, change


def test_a_change_warns_of_nodes_that_refused_it_and_waits_for_no_other() -> None:
    with two_nodes() as (fra, nyc):
        asked: list[str] = []

        def answer() -> Mapping[str, Presence]:
            """The node has taken the change, and says so when it is asked a second time."""
            nyc.follow()
            asked.append("")
            identifiers = [each.id for each in nyc.engine.every("proxies")]
            if len(asked) % 2:
                return {nyc.id: presence(revision=0)}
            problems = {"proxies": dict.fromkeys(identifiers, FAILED)}
            return {nyc.id: presence(revision=nyc.engine.file.last_number, problems=problems)}

        fra.node.asked = answer
        made = created(fra)
        path = f"/proxies/{made['proxy']['id']}"
        warning = {"field": "nodes", "warning": "the node 'nyc' can't run it: port 3128 is in use"}
        assert (warning in made["warnings"], len(asked)) == (True, 2)
        assert warning in fra.ask("PATCH", path, {"port": 4000})[1]["warnings"]
        fra.node.asked = lambda: {nyc.id: presence(silent=11.0, revision=0)}
        assert warning not in fra.ask("PATCH", path, {"port": 4001})[1]["warnings"], "it is not connected"
        fra.node.asked = lambda: {nyc.id: presence(problems={"proxies": {made["proxy"]["id"]: FAILED}})}
        assert warning not in fra.ask("PATCH", path, {"description": "x"})[1]["warnings"], "it could not be refused"
