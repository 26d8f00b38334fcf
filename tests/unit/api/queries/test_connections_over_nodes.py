"""Live connections of a fleet: those of all nodes in one list, and nodes that do not respond."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from actors.bus.messages.common import SUPERVISOR, Unreachable, forwarding_name
from actors.bus.messages.supervision import Workers
from api.bus_bridge import NodeMissing, on_node
from tests.kit.api_stage import PROXY
from tests.kit.tables import table
from tests.unit.api.objects.nodes.staged_nodes import FleetApi, two_nodes
from tests.unit.api.queries.live_connections import Process, connection

NYC = "nod_nyc"


class Stage:
    """The node `fra`, with a proxy on both nodes, one on each, and one with two workers."""

    def __init__(self, fra: FleetApi) -> None:
        self.fra = fra
        self.ids: dict[str, str] = {}
        fields: dict[str, dict[str, Any]] = {
            "both": {},
            "fra": {"nodes": {"names": ["fra"]}},
            "nyc": {"nodes": {"names": ["nyc"]}},
            "workers": {"workers": 2},
        }
        for number, (name, more) in enumerate(fields.items()):
            body = {**PROXY, "name": name, "port": 3128 + number, **more}
            self.ids[name] = fra.ask("POST", "/proxies", body)[1]["proxy"]["id"]
        self.processes: dict[str, Process] = {}
        workers = self.ids["workers"]
        fra.fleet.workers = {workers: (1, 2)}
        fra.fleet.others[on_node(NYC, SUPERVISOR)] = lambda _query: Workers({workers: (7, 8)})
        names = {name: forwarding_name(each) for name, each in self.ids.items()}
        several = [f"{names['workers']}/{each}" for each in (1, 2, 7, 8)]
        there = [names["both"], names["nyc"], *several[2:]]
        for number, to in enumerate(
            [names["both"], names["fra"], *several[:2], *(on_node(NYC, each) for each in there)]
        ):
            self.processes[to] = Process([connection(number + 1)])
            fra.fleet.others[to] = self.processes[to]

    def end_nyc(self) -> None:
        for to in list(self.fra.fleet.others):
            if to.startswith(NYC):
                self.fra.fleet.others[to] = lambda _message, to=to: NodeMissing(to, "connection refused")

    def ask(self, path: str, method: str = "GET") -> Any:
        status, data = self.fra.ask(method, path)
        assert status == 200, data
        return data


@pytest.fixture
def stage() -> Iterator[Stage]:
    with two_nodes() as (fra, _nyc):
        yield Stage(fra)


def places(data: Any) -> list[tuple[str, str]]:
    return sorted((each["node"], each["proxy"]) for each in data["connections"])


HERE = [("fra", "both"), ("fra", "fra"), ("fra", "workers"), ("fra", "workers")]
THERE = [("nyc", "both"), ("nyc", "nyc"), ("nyc", "workers"), ("nyc", "workers")]


@table(
    "node, found",
    [
        ("", HERE + THERE),
        ("&node=all", HERE + THERE),
        ("&node=self", HERE),
        ("&node=fra", HERE),
        ("&node=nyc", THERE),
        ("&node=nod_nyc", THERE),
    ],
)
def test_connections_of_the_nodes_that_are_named_come_in_one_list(
    stage: Stage, node: str, found: list[tuple[str, str]]
) -> None:
    data = stage.ask(f"/connections?limit=100{node}")
    assert places(data) == found
    assert (data["total"], data["unavailable"], data["meta"]) == (len(found), [], {"missing_nodes": []})


def test_pages_go_over_nodes(stage: Stage) -> None:
    found = [stage.ask(f"/connections?limit=3&offset={offset}")["connections"] for offset in (0, 3, 6)]
    assert [each["id"] for page in found for each in page] == [str(number) for number in range(1, 9)]


def test_a_node_that_does_not_respond_is_named_and_the_others_are_listed(stage: Stage) -> None:
    stage.end_nyc()
    missing = {"missing_nodes": [{"node": "nyc", "reason": "connection refused"}]}
    data = stage.ask("/connections")
    assert places(data) == HERE
    assert (data["total"], data["unavailable"], data["meta"]) == (4, [], missing)
    for path in ("/connections?group_by=client", f"/proxies/{stage.ids['both']}/connections"):
        assert stage.ask(path)["meta"] == missing
    assert stage.ask("/connections?all=true", "DELETE") == {"ended": 4, "unavailable": [], "meta": missing}


def test_a_process_of_another_node_that_does_not_reply_is_named_with_its_node(stage: Stage) -> None:
    both = forwarding_name(stage.ids["both"])
    stage.fra.fleet.others[on_node(NYC, both)] = lambda _message: Unreachable(both, "no response in time")
    (found,) = stage.ask("/connections")["unavailable"]
    assert (found["proxy"], found["error"]) == ("both", "nyc: no response in time")


def test_connections_end_on_all_nodes_or_on_the_named_one(stage: Stage) -> None:
    assert stage.ask("/connections?all=true&node=nyc", "DELETE")["ended"] == 4
    assert stage.ask("/connections?all=true", "DELETE")["ended"] == 8
    both = f"/proxies/{stage.ids['both']}/connections"
    assert stage.ask(f"{both}?all=true", "DELETE") == {"ended": 2, "meta": {"missing_nodes": []}}
    assert stage.ask(f"{both}/5", "DELETE") == {"id": "5", "ended": True, "meta": {"missing_nodes": []}}


def test_connections_of_a_proxy_that_runs_on_another_node_only_are_listed(stage: Stage) -> None:
    data = stage.ask(f"/proxies/{stage.ids['nyc']}/connections")
    assert [each["node"] for each in data["connections"]] == ["nyc"]
    assert data["total"] == 1


def test_groups_are_added_over_nodes(stage: Stage) -> None:
    (group,) = stage.ask("/connections?group_by=client")["groups"]
    assert group["count"] == 8
    counts = {each["proxy"]: each["count"] for each in stage.ask("/connections?group_by=proxy")["groups"]}
    assert counts == {"both": 2, "fra": 1, "nyc": 1, "workers": 4}


def test_a_node_that_there_is_not_is_refused(stage: Stage) -> None:
    status, *_ = stage.fra.ask("GET", "/connections?node=ams")
    assert status == 400
