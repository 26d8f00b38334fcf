"""An edge node has no management API: it says who has, and responds to monitoring alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from hashlib import sha256
from pathlib import Path

import psycopg
import pytest

from actors.cluster.identity import NodeIdentity
from api.api_settings import ApiSettings
from api.app import OPERATIONS
from api.cluster.fleet_chores import ApiAddress, reached_at
from api.cluster.fleet_node import FleetNode, NodeHost
from api.cluster.following.heartbeat import Beat
from api.fleet import ThisNode
from api.process import ApiStart
from config.files.secret_box import secret_box_of
from config.settings.groups import History
from tests.kit.api_stage import Api
from tests.kit.postgresql import needs_postgresql
from tests.kit.tables import table
from tests.kit.wait import wait_until
from tests.unit.api.cluster.admitted import Edge as RealEdge
from tests.unit.api.cluster.admitted import Full
from tests.unit.api.cluster.nodes import fleet, owner

TOKEN = "a token for monitoring"


class Edge(ThisNode):
    node_id: str | None = "nod_e"

    def management_at(self) -> Sequence[str] | None:
        return ["10.0.0.1:8080", "10.0.0.2"]


class EdgeApi(Api):
    node = Edge()


@pytest.fixture(scope="module")
def api() -> Iterator[EdgeApi]:
    settings = ApiSettings(prometheus_token_hash=sha256(TOKEN.encode()).hexdigest())
    with closing(made := EdgeApi(settings)):
        yield made


def test_every_operation_but_those_of_monitoring_is_refused_with_the_addresses_of_full_nodes(api: EdgeApi) -> None:
    allowed = set()
    headers = api.token()
    for each in OPERATIONS:
        found = api.client.simulate_request(each.method, each.path, headers=headers)
        if found.status_code != 421:
            allowed.add(each.path)
            continue
        error = found.json["error"]
        assert (error["code"], error["details"]) == ("NO_MANAGEMENT_API", {"full_nodes": ["10.0.0.1:8080", "10.0.0.2"]})
    assert allowed == {"/health", "/health/ready", "/livez", "/readyz", "/metrics"}


def test_the_dashboard_and_unknown_paths_are_refused_too(api: EdgeApi) -> None:
    for path in ("/", "/ui/", "/api/v1/nothing"):
        assert api.client.simulate_get(path).status_code == 421


def test_metrics_need_their_token(api: EdgeApi) -> None:
    assert api.client.simulate_get("/metrics").status_code == 401
    assert api.client.simulate_get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).status_code != 401


def test_an_administrator_is_refused_without_a_word_about_the_credentials(api: EdgeApi) -> None:
    found = api.get("/proxies", {"Authorization": "Bearer wrong"})
    assert (found.status_code, found.json["error"]["code"]) == (421, "NO_MANAGEMENT_API")


@needs_postgresql
def test_an_edge_node_makes_no_administrator_at_its_first_start() -> None:
    with fleet() as made:
        for role, wants in (("full", True), ("edge", False)):
            node = made.node(f"nod_{role}")
            node.end()
            NodeIdentity(made.id, f"nod_{role}", role, role, made.dsn).save(node.data, secret_box_of(node.data))  # type: ignore[arg-type]
            start = ApiStart()
            *_, makes = start.read(str(node.data.path))
            assert makes == wants
            assert start._opened is not None
            start._opened.engine.close()
            assert start._opened.node is not None
            start._opened.node.close()


@table(
    "host, internal, address",
    [
        ("192.0.2.7", "10.0.0.7:7443", "192.0.2.7:8080"),
        ("2001:db8::7", "10.0.0.7", "[2001:db8::7]:8080"),
        ("api.example", "10.0.0.7", "api.example:8080"),
        ("0.0.0.0", "10.0.0.7:7443", "10.0.0.7:8080"),
        ("::", "[2001:db8::7]:7443", "[2001:db8::7]:8080"),
        ("::", "", ""),
        ("::", "127.0.0.2:7443", ""),
        ("127.0.0.1", "10.0.0.7", ""),
        ("localhost", "10.0.0.7", ""),
    ],
)
def test_the_api_is_reached_where_it_listens(host: str, internal: str, address: str) -> None:
    assert reached_at(host, 8080, internal) == address


@needs_postgresql
def test_a_full_node_commits_the_address_of_its_api_when_that_changes_and_edges_name_it_alone() -> None:
    with ExitStack() as stack:
        full = Full(stack.enter_context(fleet(stack.enter_context(owner()))), stack)
        full.announce("first", "10.0.0.7:7443")
        engine, key = full.node.engine, full.login.node

        def started(host: str, port: int = 8080) -> tuple[int, list[str]]:
            """The number of commits of a start, and what an edge names then."""
            before = engine.file.last_number
            ApiAddress(engine, key, full.node.data, (host, port)).on_heartbeat(Beat(0, True, 0.0, {}))
            node = FleetNode(NodeIdentity(full.fleet.id, "nod_edge", "edge", "edge", full.fleet.dsn))
            with closing(node):
                node.opened(engine)
                return engine.file.last_number - before, [*(node.management_at() or ())]

        assert started("127.0.0.1") == (0, [])
        assert started("0.0.0.0") == (1, ["10.0.0.7:8080"])
        assert started("0.0.0.0") == (0, ["10.0.0.7:8080"])
        assert started("192.0.2.7", 443) == (1, ["192.0.2.7:443"])
        document = engine.get("nodes", key)
        assert document is not None
        by_hand = {**document.body, "addresses": {"api": "fleet.example"}}
        engine.put("nodes", by_hand)
        assert started("192.0.2.8") == (0, ["fleet.example"])
        engine.put("nodes", {**by_hand, "addresses": {"api": "192.0.2.8:8080"}})
        assert started("127.0.0.1") == (1, [])


@needs_postgresql
def test_the_audit_trail_of_an_edge_is_in_the_database_soon_while_others_have_the_lock_of_the_fleet(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        full = Full(stack.enter_context(fleet(stack.enter_context(owner()))), stack)
        edge = RealEdge(full, tmp_path / "edge", stack)
        (document,) = full.node.engine.find("nodes", name="edge")
        full.put("nodes", {**document.body, "addresses": {}})  # it listens at none
        edge.engine.catch_up()
        trail = edge.engine.trail
        trail.append("system.first")
        assert edge.node.pending()["audit"] == 1
        with psycopg.connect(full.fleet.dsn) as holder:
            holder.execute("SELECT FROM proxyfleet.fleet FOR UPDATE")
            edge.node.start(NodeHost(lambda _kind, _data: None, History))

            def is_sent() -> bool:
                wanted = "SELECT seq, content, hash FROM proxyfleet.audit WHERE node = '{}' ORDER BY seq"
                return full.fleet.execute(wanted.format(edge.node.node_id)) == [*trail.after(0)]

            wait_until(is_sent, "the entry is sent", 10)
            trail.append("system.second")
            trail.append("system.third")
            edge.node.beat_soon()
            wait_until(is_sent, "those that follow are sent", 10)
            wait_until(lambda: edge.node.pending()["audit"] == 0, "this node knows it", 10)
