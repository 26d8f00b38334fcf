"""`proxyfleet nodes …` with the API of a node, whose fleet is in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from actors.bus.mailbox import NOT_ON_THE_BUS
from actors.bus.messages.cluster import TrailVerified
from actors.bus.messages.common import API, PROXY_RESOLVER, RESOLVER, Unreachable
from actors.bus.messages.dns import DnsCache, DnsEntry, DnsState, QueryDns
from api.bus_bridge import NodeMissing, on_node
from api.cli.client import ApiClient
from api.cli.errors import CommandError, refused
from api.cli.remote import nodes as node_commands
from api.fleet import Presence
from config.model.nodes.tokens import COLLECTION, NodeTokenCreate, new_token
from tests.kit.tables import table
from tests.product.cli.shell import Shell
from tests.unit.api.objects.nodes.staged_nodes import FleetApi, StagedTrails, presence, two_nodes

FAILED = {
    "collection": "lists",
    "id": "lst_1",
    "name": "ads",
    "revision": 9,
    "error": "disk full",
    "since": 1_000_000.0,
}


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FleetApi, FleetApi]]:
    with two_nodes() as (fra, nyc):
        fra.node.present = {each.id: presence(revision=99) for each in (fra, nyc)}
        monkeypatch.setattr(ApiClient, "call", caller_of(fra))
        yield fra, nyc


def caller_of(api: FleetApi) -> Any:
    def call(
        client: ApiClient,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        given = {name: value for name, value in (query or {}).items() if value is not None}
        more = {} if body is None else {"json": body}
        result = api.request(method, path, {**api.headers, **(headers or {})}, params=given, **more)
        client.etag = result.headers.get("ETag")
        if result.status_code >= 300:
            raise refused(result.status_code, result.json["error"])
        return result.json["data"]

    return call


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path, "http://127.0.0.1:1")


def test_nodes_alone_lists_them_with_what_is_wrong(shell: Shell, fleet: tuple[FleetApi, FleetApi]) -> None:
    fra, nyc = fleet
    problems = {"failed": [FAILED], "database": {"doorbell": "polling"}, "settings": {"dns": "a"}}
    fra.node.present[nyc.id] = presence(behind=75.0, problems=problems)
    expected = [
        ["fra", "full", "up", "1.2", "99", "0", "0", "settings differ"],
        ["nyc", "full", "up", "1.2", "8", "75", "0", "no notifications, 1 not applied, settings differ"],
    ]
    for line in (["nodes"], ["nodes", "list"]):
        ran = shell.good(*line)
        assert ran.out.splitlines()[0].replace("\t", " ") == "NAME ROLE STATE VERSION REVISION BEHIND PROXIES PROBLEMS"
        assert ran.rows == expected
    assert [each["name"] for each in shell.good("nodes", "-o", "json").data["nodes"]] == ["fra", "nyc"]
    details = shell.good("nodes", "show", "nyc").details
    assert details["not applied"] == "lists ads: disk full"
    assert (details["settings differ"], details["addresses"]) == ("dns: fra", "internal 10.0.0.2, public 192.0.2.2")
    fra.node.present[nyc.id] = presence(silent=31.0)
    assert shell.good("nodes").rows[1][2:3] + shell.good("nodes").rows[1][7:] == ["down", "no heartbeat"]
    fra.node.present[nyc.id] = presence(is_current=False)
    found = shell.good("nodes").rows[1]
    assert found[2:3] + found[7:] == ["unknown", "as of 1970-01-12T13:46:40.000Z"]
    assert "Usage: proxyfleet nodes" in shell.good("nodes", "--help").out


def test_a_node_without_the_fleets_key_says_so_with_the_remedy(shell: Shell, fleet: tuple[FleetApi, FleetApi]) -> None:
    fra, nyc = fleet
    text = "no node that can be reached has the fleet's key 5c1f0e2a: add it to /data/keys/secrets.key"
    lacks = {**FAILED, "collection": "secrets", "id": "fleet-key", "name": None, "error": text}
    for failed, said in (([lacks], text), ([lacks, FAILED], f"{text}, 1 not applied")):
        fra.node.present[nyc.id] = presence(revision=99, problems={"failed": failed})
        assert shell.good("nodes").rows[1][-1] == said
    assert shell.good("nodes", "show", "nyc").details["problems"] == f"{text}, 1 not applied"


def test_an_update_changes_the_addresses_that_it_names(shell: Shell, fleet: tuple[FleetApi, FleetApi]) -> None:
    shell.good("nodes", "update", "nyc", "--tag", "us", "--tag", "east", "--address", "v6=2001:db8::2")
    shell.good("nodes", "update", "nyc", "--address", "public=", "--address", "internal=10.0.0.3")
    node = fleet[0].ask("GET", "/nodes/nyc")[1]["node"]
    assert (node["tags"], node["addresses"]) == (["us", "east"], {"internal": "10.0.0.3", "v6": "2001:db8::2"})
    for line, status, said in (
        (["nyc", "--address", "10.0.0.9"], 2, "must be NAME=HOST[:PORT]"),
        (["nyc"], 2, "Nothing to change"),
        (["nyx", "--tag", "us"], 5, "Did you mean 'nyc'?"),
    ):
        ran = shell("nodes", "update", *line)
        assert (ran.status, said in ran.err) == (status, True), ran.err


def test_drain_waits_until_the_proxies_have_finished(
    shell: Shell, fleet: tuple[FleetApi, FleetApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    fra, nyc = fleet
    monkeypatch.setattr(node_commands, "PAUSE", 0.001)
    assert shell.good("nodes", "drain", "nyc").out == "nyc drains.\n"
    ends = {"proxies": {"prx_1": {"state": "draining", "error": None}}}
    said = [presence(revision=1), *(presence(revision=99, problems=ends) for _ in range(3)), presence(revision=99)]

    def known() -> dict[str, Presence]:
        return {nyc.id: said.pop(0) if len(said) > 1 else said[0]}

    fra.node.asked = known
    assert shell.good("nodes", "drain", "nyc", "--wait", "60").out == "nyc is drained.\n"
    assert len(said) == 1
    assert shell.good("nodes", "resume", "nyc").out == "nyc accepts connections again.\n"
    said[0] = presence(revision=99, problems=ends)
    ran = shell("nodes", "drain", "nyc", "--wait", "1")
    assert (ran.status, "nyc still has connections after 1 s" in ran.err) == (1, True)
    assert "proxyfleet nodes resume nyc" in ran.err


def test_a_node_that_is_removed_says_what_it_had(
    shell: Shell, fleet: tuple[FleetApi, FleetApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    fra, nyc = fleet
    lost = {"pending": {"usage_bytes": 7_000, "usage_seconds": 40, "audit": 0}, "last_seen_at": 100.0}
    monkeypatch.setattr(type(fra.node), "remove", lambda _self, _node: lost)
    assert shell("nodes", "remove", "nyc").status == 2
    assert shell("nodes", "remove", "fra", "--yes").status == 1
    ran = shell.good("nodes", "remove", nyc.id, "--yes")
    said = "its access records and series, 7000 bytes of usage (used since 1970-01-01T00:01:00.000Z), as of its last"
    assert (ran.out, said in ran.err) == ("nyc is removed.\n", True)
    assert [row[0] for row in shell.good("nodes").rows] == ["fra"]


def test_proxies_and_settings_are_of_nodes(shell: Shell, fleet: tuple[FleetApi, FleetApi]) -> None:
    line = ["office", "--protocol", "http", "--port", "3128", "--node", "nyc", "--node-tag", "asia"]
    shell.good("proxies", "create", *line)
    proxy = shell.good("proxies", "show", "office", "-o", "json").data["proxy"]
    assert proxy["nodes"] == {"names": ["nyc"], "tags": ["asia"]}
    assert shell.good("proxies", "show", "office").details["nodes"].startswith("nyc (")
    shell.good("proxies", "update", "office", "--set", "host={address}")
    assert shell.good("proxies", "show", "office").details["address"] == "http://10.0.0.2:3128", "that of nyc"
    assert shell.good("proxies", "show", "office", "-o", "json").data["proxy"]["host"] == "{address}"
    shell.good("proxies", "update", "office", "--set", 'nodes={"all": true}')
    ran = shell.good("proxies", "list")
    assert dict(zip(ran.out.splitlines()[0].split("\t"), ran.rows[0], strict=True))["ADDRESS"] == "10.0.0.1:3128"
    shell.good("settings", "set", "logging.level=debug", "--node", "nyc")
    levels = [dict(shell.good("settings", "show", *of).rows)["logging.level"] for of in ((), ("--node", "nyc"))]
    assert levels == ["info", "debug"]
    shell.good("settings", "unset", "logging.level", "--node", "nyc")
    assert dict(shell.good("settings", "show", "--node", "nyc").rows)["logging.level"] == "info"


def test_without_a_fleet_an_error_says_how_to_have_one() -> None:
    found = refused(409, {"code": "NOT_A_FLEET", "message": "This installation is no node of a fleet", "details": {}})
    assert "proxyfleet cluster join" in str(found.hint)


@table(("places", "hint"), [(["10.0.0.7:8080"], "with --url: 10.0.0.7:8080"), ([], "proxyfleet nodes on one of them")])
def test_an_edge_node_says_whom_to_ask(places: list[str], hint: str) -> None:
    found = refused(421, {"code": "NO_MANAGEMENT_API", "message": "edge", "details": {"full_nodes": places}})
    assert hint in str(found.hint)


def test_a_used_token_has_the_name_of_its_node(shell: Shell, fleet: tuple[FleetApi, FleetApi]) -> None:
    record, _secret = new_token(NodeTokenCreate(name="nyc"), 1_000_000.0)
    body = {**record.model_dump(mode="json"), "used_by": "nod_nyc", "used_at": 1_000_000.0}
    fleet[0].engine.put(COLLECTION, body, 0)
    ran = shell.good("nodes", "tokens")
    assert ran.out.splitlines()[0].endswith("USED BY")
    assert [row[-1] for row in ran.rows] == ["nyc"]


def test_rows_of_several_nodes_have_a_column_of_it_and_a_missing_node_is_named(
    shell: Shell, fleet: tuple[FleetApi, FleetApi]
) -> None:
    entry = DnsEntry("a.example", "A", "found", ("192.0.2.1",), 5.0, (), "")
    state = DnsState(0, 0, 0, 1, 0, {}, ())
    others = fleet[0].fleet.others
    others[RESOLVER] = lambda message: state if isinstance(message, QueryDns) else DnsCache((entry,), 1)
    others[PROXY_RESOLVER] = lambda _message: Unreachable(PROXY_RESOLVER, NOT_ON_THE_BUS)
    for each in (RESOLVER, PROXY_RESOLVER):
        others[on_node("nod_nyc", each)] = lambda _message: NodeMissing("", "connection refused")
    ran = shell.good("dns", "cache")
    assert ran.out.splitlines()[0].startswith("NODE\tNAME\t")
    assert [row[:2] for row in ran.rows] == [["fra", "a.example"]]
    assert "The node nyc is missing: connection refused" in ran.err
    assert "missing" not in shell.good("dns", "cache", "--node", "self").err


@table(
    ("host", "on", "said"),
    [
        ("{address:public}", ("--node", "nyc"), "listens at 192.0.2.2:3128 on nyc ("),
        ("{address}", (), "listens at 10.0.0.1:3128 on fra, and on 1 other node ("),
        ("127.0.0.1", (), "listens at 127.0.0.1:3128 ("),
    ],
)
def test_a_new_proxy_has_the_address_of_a_node_that_runs_it(
    shell: Shell, fleet: tuple[FleetApi, FleetApi], host: str, on: tuple[str, ...], said: str
) -> None:
    ran = shell.good("proxies", "create", "office", "--protocol", "http", "--port", "3128", "--host", host, *on)
    assert said in ran.out
    shell.good("proxies", "delete", "office", "--yes")


def test_entries_of_the_audit_trail_name_the_node_that_has_them(shell: Shell, fleet: tuple[FleetApi, FleetApi]) -> None:
    shell.good("nodes", "update", "nyc", "--tag", "us")
    ran = shell.good("audit", "list", "--action", "node.*")
    assert ran.out.splitlines()[0].split("\t")[:3] == ["SEQ", "TIME", "NODE"]
    assert [row[2] for row in ran.rows] == ["fra"]
    assert shell.good("audit", "show", ran.rows[0][0]).details["node"] == "fra"
    fra, nyc = fleet
    first = fra.services.audit.append("x.y")
    fra.node.trails = StagedTrails((fra.id, first), (nyc.id, first))
    assert [row[2] for row in shell.good("audit", "list").rows] == ["fra", "nyc"]
    ran = shell("audit", "show", str(first.seq))
    assert (ran.status, f"2 nodes have a row {first.seq}: fra, nyc" in ran.err) == (2, True)
    assert shell.good("audit", "show", str(first.seq), "--node", "fra").details["node"] == "fra"
    fra.node.trails = StagedTrails(error="it is away")
    assert "The node nyc is missing" in shell.good("audit", "list").err


def test_all_chains_are_verified_by_one_command(shell: Shell, fleet: tuple[FleetApi, FleetApi]) -> None:
    fra, nyc = fleet
    fra.services.audit.append("x.y")
    fra.node.trails = StagedTrails()
    far = on_node(nyc.id, API)
    fra.fleet.others |= {API: fra.services.reply, far: lambda _message: TrailVerified(3, "", "is missing")}
    ran = shell("audit", "verify", "--all")
    assert (ran.status, "The audit trail is broken: nyc" in ran.err) == (1, True)
    head = fra.services.audit.head
    assert list(ran.rows) == [
        ["fra", str(head.seq), f"{head.seq}:{head.hash}", "-"],
        ["nyc", "-", "-", "row 3 on the node: is missing"],
    ]
    fra.fleet.others[far] = lambda _message: NodeMissing(far, "it is away")
    assert "The node nyc is missing: it is away" in shell.good("audit", "verify", "--all").err


def test_metrics_are_of_one_node_where_that_is_asked(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def call(_client: ApiClient, _method: str, path: str, query: Any = None, **_more: Any) -> Any:
        asked.append((path, query.get("node")))
        missing = {"missing_nodes": [{"node": "fra", "reason": "no response"}]}
        return {"metrics": {}, "timestamp": "2030-01-31T12:00:00Z", "meta": missing}

    monkeypatch.setattr(ApiClient, "call", call)
    for more in ((), ("--now",)):
        assert "The node fra is missing: no response" in shell.good("metrics", "--node", "nyc", *more).err
    assert asked == [("/metrics", "nyc"), ("/metrics/realtime", "nyc")]


def test_revisions_name_the_node_that_made_them(
    shell: Shell, fleet: tuple[FleetApi, FleetApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    def row(node: str | None) -> dict[str, Any]:
        return {
            "revision": 7, "timestamp": "2030-01-31T12:00:00Z", "actor": {"username": "admin"}, "credential": None,
            "address": None, "objects": [], "restored": None, "undone": None, "kinds": [], "summary": {}, "node": node,
        }  # fmt: skip

    for node, titles in (("fra", "REVISION TIME NODE BY FROM"), (None, "REVISION TIME BY FROM")):
        monkeypatch.setattr(ApiClient, "call", lambda *_, node=node, **__: {"revisions": [row(node)]})
        assert shell.good("history").out.replace("\t", " ").startswith(titles)


@table(
    ("line", "path"),
    [
        (("proxies", "restart", "office"), "/restart"),
        (("proxies", "explain", "office", "http://a.example/"), "/explain"),
        (("webhooks", "test", "hook"), "/test"),
    ],
)
def test_what_is_done_on_machines_is_done_on_the_node_that_is_named(
    shell: Shell, fleet: tuple[FleetApi, FleetApi], line: tuple[str, ...], path: str
) -> None:
    asked: list[tuple[str, Any]] = []

    def call(
        _client: ApiClient, method: str, path: str, query: Mapping[str, Any] | None = None, *_: Any, **__: Any
    ) -> Any:
        if method == "GET":
            return {
                "proxies": [{"id": "prx_1", "name": "office"}],
                "webhooks": [{"id": "wh_1", "name": "hook"}],
                "next_cursor": None,
            }
        asked.append((path, query))
        raise CommandError("enough")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ApiClient, "call", call)
        patch.setattr(ApiClient, "pages", lambda _client, _path, member, *_, **__: call(_client, "GET", "")[member])
        assert "enough" in shell(*line, "--node", "nyc").err
    ((sent, query),) = asked
    assert (sent.endswith(path), dict(query)) == (True, {"node": "nyc"})


def test_a_test_of_a_webhook_has_a_row_of_each_node(shell: Shell, fleet: tuple[FleetApi, FleetApi]) -> None:
    one = {"delivered": True, "status_code": 200, "response_time": 3.0, "error": None}
    data = {**one, "nodes": [{"node": name, **one} for name in ("fra", "nyc")], "meta": {"missing_nodes": []}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ApiClient, "call", lambda *_, **__: {"webhooks": [{"id": "wh_1", "name": "hook"}], **data})
        ran = shell.good("webhooks", "test", "hook")
    assert ran.out.splitlines()[0].split("\t") == ["NODE", "DELIVERED", "STATUS CODE", "RESPONSE TIME", "ERROR"]
    assert [row[0] for row in ran.rows] == ["fra", "nyc"]


class Exported:
    """The response to an export that lacks a node."""

    status_code, headers = 200, {"X-Missing-Nodes": "nyc"}

    def iter_content(self, _size: int) -> list[bytes]:
        return [b"{}\n"]

    def close(self) -> None:
        """It is read."""


@table("file", ["-", "x.ndjson"])
def test_an_export_says_which_nodes_it_lacks(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str
) -> None:
    monkeypatch.setattr(ApiClient, "_send", lambda *_asked, **_more: Exported())
    ran = shell.good("logs", "--export", file if file == "-" else str(tmp_path / file))
    assert "Missing nodes, whose records are not in it: nyc" in ran.err
    assert (ran.out if file == "-" else (tmp_path / file).read_text()) == "{}\n"
