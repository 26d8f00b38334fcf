"""Pools, decisions, restarts and tests of proxies at the nodes of a fleet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from actors.bus.mailbox import ASLEEP
from actors.bus.messages.common import API, SUPERVISOR, Done, Failed, Unreachable, explainer_name, forwarding_name
from actors.bus.messages.forwarding import RequestExplanation
from actors.bus.messages.supervision import RestartProxy, StartExplainer
from api.bus_bridge import NodeMissing, on_node
from api.objects.named.pool_kind import POOLS
from tests.kit.api_stage import PROXY
from tests.kit.tables import table
from tests.unit.api.objects.nodes.staged_nodes import FleetApi, two_nodes

NYC = "nod_nyc"
MISSING = {"missing_nodes": [{"node": "nyc", "reason": "connection refused"}]}
NONE_MISSING: dict[str, Any] = {"missing_nodes": []}
QUESTION = {"client_ip": "192.0.2.1", "target": "https://a.example/"}


def decided(rule: str) -> Any:
    found = RequestExplanation("allow", "", rule, "name", "enforce", "a.example", 443, ())
    return lambda _message: found


class Stage:
    """The node `fra`, with a proxy on both nodes and one on each, and the API of the real `nyc`."""

    def __init__(self, fra: FleetApi, nyc: FleetApi) -> None:
        self.fra, self.nyc = fra, nyc
        self.restarted: list[Any] = []
        fra.fleet.others |= {
            API: fra.services.reply,
            on_node(NYC, API): nyc.services.reply,
            on_node(NYC, SUPERVISOR): self._supervise,
        }
        self.ids = {}
        for number, (name, nodes) in enumerate({"both": None, "fra": ["fra"], "nyc": ["nyc"]}.items()):
            body = {**PROXY, "name": name, "port": 3128 + number, **({"nodes": {"names": nodes}} if nodes else {})}
            self.ids[name] = fra.ask("POST", "/proxies", body)[1]["proxy"]["id"]
        for name, proxy_id in self.ids.items():
            fra.fleet.others[forwarding_name(proxy_id)] = decided(f"{name} at fra")
            fra.fleet.others[on_node(NYC, forwarding_name(proxy_id))] = decided(f"{name} at nyc")
        nyc.follow()

    def _supervise(self, message: Any) -> Any:
        self.restarted.append(message)
        return Done()

    def end_nyc(self) -> None:
        for to in list(self.fra.fleet.others):
            if to.startswith(NYC):
                self.fra.fleet.others[to] = lambda _message, to=to: NodeMissing(to, "connection refused")

    def ask(self, path: str, method: str = "POST", body: Any = None) -> Any:
        status, data = self.fra.ask(method, path, body)
        assert status in (200, 201), data
        return data

    def restarted_here(self) -> int:
        return sum(isinstance(message, RestartProxy) for to, message in self.fra.fleet.received if to == SUPERVISOR)


@pytest.fixture
def stage() -> Iterator[Stage]:
    with two_nodes() as (fra, nyc):
        yield Stage(fra, nyc)


# --- explain ---


@table(
    "proxy, node, decides",
    [
        ("both", "", "fra"),
        ("both", "?node=all", "fra"),
        ("both", "?node=nyc", "nyc"),
        ("fra", "", "fra"),
        ("nyc", "", "nyc"),
        ("nyc", "?node=nyc", "nyc"),
    ],
)
def test_a_request_is_explained_by_a_node_that_runs_the_proxy(
    stage: Stage, proxy: str, node: str, decides: str
) -> None:
    data = stage.ask(f"/proxies/{stage.ids[proxy]}/explain{node}", body=QUESTION)
    assert (data["rule"], data["node"], data["meta"]) == (f"{proxy} at {decides}", decides, NONE_MISSING)


@table("proxy, node", [("nyc", "?node=fra"), ("nyc", "?node=self"), ("fra", "?node=nyc"), ("both", "?node=ams")])
def test_nodes_that_do_not_run_the_proxy_explain_nothing(stage: Stage, proxy: str, node: str) -> None:
    assert stage.fra.ask("POST", f"/proxies/{stage.ids[proxy]}/explain{node}", QUESTION)[0] == 400


def test_of_a_proxy_that_sleeps_at_another_node_a_process_there_explains(stage: Stage) -> None:
    name = forwarding_name(stage.ids["nyc"])
    explainer = on_node(NYC, explainer_name(stage.ids["nyc"]))
    stage.fra.fleet.others[on_node(NYC, name)] = lambda _message: Unreachable(name, ASLEEP)
    stage.fra.fleet.others[explainer] = decided("by the explainer")
    assert stage.ask(f"/proxies/{stage.ids['nyc']}/explain", body=QUESTION)["rule"] == "by the explainer"
    assert stage.restarted == [StartExplainer(stage.ids["nyc"])]


def test_a_missing_node_explains_nothing(stage: Stage) -> None:
    stage.end_nyc()
    assert stage.fra.ask("POST", f"/proxies/{stage.ids['nyc']}/explain", QUESTION)[0] == 503


# --- restarts ---


@table(
    "proxy, node, here, there",
    [
        ("both", "", 1, 1),
        ("both", "?node=fra", 1, 0),
        ("both", "?node=nyc", 0, 1),
        ("fra", "", 1, 0),
        ("nyc", "", 0, 1),
    ],
)
def test_a_proxy_is_restarted_at_the_nodes_that_run_it(
    stage: Stage, proxy: str, node: str, here: int, there: int
) -> None:
    stage.fra.fleet.received.clear()
    stage.restarted.clear()
    data = stage.ask(f"/proxies/{stage.ids[proxy]}/restart{node}")
    assert (data["changed"], data["meta"]) == (True, NONE_MISSING)
    assert (stage.restarted_here(), stage.restarted) == (here, [RestartProxy(stage.ids[proxy])] * there)


def test_a_node_that_is_missing_or_refuses_at_a_restart_is_named(stage: Stage) -> None:
    stage.fra.fleet.others[on_node(NYC, SUPERVISOR)] = lambda _message: Failed("it died at its start")
    (missing,) = stage.ask(f"/proxies/{stage.ids['both']}/restart")["meta"]["missing_nodes"]
    assert missing == {"node": "nyc", "reason": "it died at its start"}
    stage.end_nyc()
    assert stage.ask(f"/proxies/{stage.ids['both']}/restart")["meta"] == MISSING
    assert stage.restarted_here() == 2


# --- tests ---


def test_a_proxy_is_tried_at_each_node_that_runs_it(stage: Stage) -> None:
    stage.nyc.fleet.gone.add(forwarding_name(stage.ids["both"]))
    stage.nyc.fleet.forwarding = lambda _admit: Failed("no")
    body = {"url": "http://127.0.0.1:1/", "timeout": 0.5}
    data = stage.ask(f"/proxies/{stage.ids['both']}/test", body=body)
    assert [(each["node"], each["status"]) for each in data["nodes"]] == [("fra", "failed"), ("nyc", "failed")]
    assert data["nodes"][1]["error"] == "the proxy's process does not reply"
    assert data["test_result"].keys() == data["nodes"][0].keys() - {"node"}
    data = stage.ask(f"/proxies/{stage.ids['nyc']}/test", body=body)
    assert ([each["node"] for each in data["nodes"]], data["meta"]) == (["nyc"], NONE_MISSING)
    assert "nodes" not in stage.ask(f"/proxies/{stage.ids['both']}/test?node=self", body=body)
    stage.end_nyc()
    data = stage.ask(f"/proxies/{stage.ids['both']}/test", body=body)
    assert ([each["node"] for each in data["nodes"]], data["meta"]) == (["fra"], MISSING)
    assert stage.fra.ask("POST", f"/proxies/{stage.ids['nyc']}/test", body)[0] == 503


# --- pools ---


def test_a_pool_has_what_each_node_knows_of_it(stage: Stage) -> None:
    upstreams = [
        {"name": f"up{each}", "protocol": "http", "host": "192.0.2.9", "port": 3128 + each} for each in range(2)
    ]
    stage.ask("/pools", body={"name": "exits", "upstreams": upstreams})
    stage.nyc.follow()
    pool = stage.nyc.services.shared_objects
    stored = pool.complete(pool.get(POOLS, "exits"))
    stage.nyc.services.pool_states._judge(stored, 1, 60.0)
    found = stage.ask("/pools/exits", "GET")
    assert found["meta"] == NONE_MISSING
    nodes = {each["node"]: each for each in found["pool"]["nodes"]}
    assert (nodes["fra"]["banned"], nodes["nyc"]["banned"]) == (0, 1)
    assert [each["banned_until"] is not None for each in nodes["nyc"]["upstreams"]] == [False, True]
    assert found["pool"]["status"]["banned"] == 0
    assert [each["node"] for each in stage.ask("/pools/exits?node=nyc", "GET")["pool"]["nodes"]] == ["nyc"]
    stage.end_nyc()
    found = stage.ask("/pools/exits", "GET")
    assert ([each["node"] for each in found["pool"]["nodes"]], found["meta"]) == (["fra"], MISSING)


def test_what_the_api_is_not_asked_has_failed(stage: Stage) -> None:
    assert isinstance(stage.nyc.services.reply(StartExplainer("prx_1")), Failed)
