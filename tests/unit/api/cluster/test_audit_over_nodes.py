"""GET /audit in a fleet: the trails of all nodes as one list, read from the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from actors.bus.messages.common import API
from actors.cluster.database import DatabaseSession
from api.audit.trail import Head, canonical_json, chain_hash
from api.bus_bridge import NodeMissing, on_node
from api.cluster.following import audit_trails
from api.http.query import cursor_text
from config.model.nodes import NodeRecord
from tests.kit.api_stage import PROXY, error_of
from tests.kit.postgresql import migrated_database, needs_postgresql
from tests.kit.tables import table
from tests.unit.api.audit_reader import rows
from tests.unit.api.cluster.node_api import FollowingApi, following
from tests.unit.api.objects.nodes.staged_nodes import FleetApi, StagedTrails, presence, two_nodes

GONE = "nod_gone"
"""A node that was removed."""


@contextmanager
def fra_and_nyc() -> Iterator[list[FollowingApi]]:
    with migrated_database() as dsn, following(dsn, dsn) as found:
        for number, (each, name) in enumerate(zip(found, ("fra", "nyc"), strict=True)):
            record = NodeRecord(id=each.name, name=name, created_at=float(number))
            found[0].engine.put("nodes", record.model_dump(mode="json"), 0)
        found[1].engine.catch_up()
        yield found


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[FollowingApi]]:
    with fra_and_nyc() as found:
        yield found


def written(api: FollowingApi, *actions: str) -> None:
    """Entries of a node, which has sent them."""
    for each in actions:
        api.services.audit.append(each)
    api.node.audit.send()


def insert(api: FollowingApi, node: str, seq: int, content: str) -> None:
    with api.node.database.session() as session:
        session.transaction("INSERT INTO proxyfleet.audit VALUES (%s, %s, 1, %s, 'h')", [node, seq, content])


def entry(seq: int, at: str, action: str = "x.gone") -> str:
    actor = {"type": "system", "user_id": None, "username": None, "role": None}
    nothing = dict.fromkeys(("credential", "resource", "before", "after", "details", "address", "request_id"))
    fields = {"seq": seq, "timestamp": at, "action": action, "outcome": "done", "actor": actor, "operation": None}
    return canonical_json({**nothing, **fields})


def listed(api: FollowingApi, **query: Any) -> list[tuple[str, str]]:
    return [(row["node"], row["action"]) for row in rows(api, **query)]


@needs_postgresql
def test_the_trails_of_all_nodes_are_one_list_at_each_of_them(nodes: list[FollowingApi]) -> None:
    fra, nyc = nodes
    for api, action in ((fra, "one.1"), (nyc, "one.2"), (fra, "one.3"), (nyc, "one.4")):
        written(api, action)
    found = []
    for api in nodes:
        data = api.get("/audit", api.token(), params={"action": "one.*"}).json["data"]
        found.append([(row["timestamp"], row["node"] == "nyc", row["seq"]) for row in data["audit"]])
        assert found[-1] == sorted(found[0], reverse=True), "by time, then by the id of the node"
        assert {row["node"] + row["action"] for row in data["audit"]} == {
            "fraone.1",
            "nycone.2",
            "fraone.3",
            "nycone.4",
        }
        assert (data["total"], data["has_more"], data["meta"]) == (4, False, {"missing_nodes": []})
        heads = {each["node"]: Head(each["seq"], each["hash"]) for each in data["heads"]}
        assert heads == {"fra": fra.services.audit.head, "nyc": nyc.services.audit.head}
        assert data["head"]["hash"] == api.services.audit.head.hash
    own = [("fra", "one.3"), ("fra", "one.1")]
    assert listed(nyc, action="one.*", node="fra") == listed(fra, action="one.*", node="self") == own
    seq = nyc.services.audit.head.seq
    assert ("nyc", "one.4") in listed(fra, seq=seq)
    assert listed(fra, seq=seq, node="nyc") == [("nyc", "one.4")]


@needs_postgresql
def test_each_filter_finds_in_the_database_what_it_finds_in_the_file_of_the_node(nodes: list[FollowingApi]) -> None:
    fra, nyc = nodes
    fra.post("/proxies", {**PROXY, "description": '"action":"f.1"'}, fra.key(name="ci"))
    written(fra, "f.2")
    fra.services.audit.append("f.1", {"type": "x", "id": 'a"b', "name": "ü\\"}, outcome="failed")
    fra.node.audit.send()
    other, made, failed = (rows(fra, node="self", action=each)[0] for each in ("f.2", "proxy.created", "f.1"))
    named = {"user_id": made["actor"]["user_id"], "username": "admin", "credential_id": made["credential"]["id"],
             "address": made["address"], "request_id": made["request_id"]}  # fmt: skip
    of_resource = {f"resource_{name}": value for name, value in failed["resource"].items()}
    bounds = {"start_time": made["timestamp"], "end_time": other["timestamp"]}
    for query in (
        *({name: value} for name, value in {**named, **of_resource, **bounds, "outcome": "failed"}.items()),
        {"action": "f.1"}, {"action": "f.*"}, {"action": "f.%"}, {**named, "action": "proxy.*"}, {"seq": made["seq"]},
    ):  # fmt: skip
        in_the_file = rows(fra, node="self", **query)
        assert rows(nyc, node="fra", **query) == in_the_file
        assert bool(in_the_file) is (query != {"action": "f.%"})


@needs_postgresql
def test_a_count_that_takes_too_long_is_a_lower_bound(
    nodes: list[FollowingApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    written(nodes[0], "long.1", "long.2")
    session = DatabaseSession.transaction

    def slow(self: DatabaseSession, statements: str, *more: Any) -> Any:
        return session(self, f"SELECT pg_sleep(1); {statements}" if "count(*)" in statements else statements, *more)

    monkeypatch.setattr(audit_trails, "REPORT", 0.1)
    monkeypatch.setattr(DatabaseSession, "transaction", slow)
    data = nodes[0].get("/audit", nodes[0].token(), params={"action": "long.*", "limit": 1}).json["data"]
    assert (data["total"], data["total_is_lower_bound"], len(data["audit"])) == (2, True, 1)


@needs_postgresql
def test_what_the_asked_node_has_not_sent_yet_is_there(nodes: list[FollowingApi]) -> None:
    nodes[0].services.audit.append("new.1")
    assert listed(nodes[0], action="new.*") == [("fra", "new.1")]


@needs_postgresql
def test_pages_have_each_entry_once_though_more_come_meanwhile_also_earlier_ones(nodes: list[FollowingApi]) -> None:
    fra, nyc = nodes
    same = "2026-01-31T12:00:00.000Z"
    for seq in range(1, 4):
        insert(fra, GONE, seq, entry(seq, same, "page.gone"))
    written(fra, "page.1", "page.2")
    written(nyc, "page.3", "page.4")
    found, cursor = list[tuple[str, int]](), None
    for number in range(20):
        query = {"action": "page.*", "limit": 2, **({"cursor": cursor} if cursor else {})}
        data = fra.get("/audit", fra.token(), params=query).json["data"]
        found += [(row["node"], row["seq"]) for row in data["audit"]]
        cursor = data["next_cursor"]
        if cursor is None:
            break
        written(nyc, "page.later")
        insert(fra, GONE, 10 + number, entry(10 + number, "2026-01-01T00:00:00.000Z", "other"))
    assert len(found) == len({*found}) == 7
    assert found[-3:] == [(GONE, 3), (GONE, 2), (GONE, 1)]
    assert listed(fra, action="page.*", limit=3, offset=7)[-3:] == [(GONE, "page.gone")] * 3
    assert listed(fra, start_time=same, end_time=same, limit=2) == [(GONE, "page.gone")] * 2
    nul = cursor_text([6, "\0", "a", 1])
    for query in ({"cursor": "100"}, {"cursor": "lAAA"}, {"cursor": nul}, {"node": "lon"}):
        assert error_of(fra.get("/audit", fra.token(), params=query))[2]["field"] in query


@needs_postgresql
@table(
    "content",
    [
        "",
        "{",
        "7",
        "null",
        "[" * 20_000,
        '{"action": "odd.1"}',
        entry(99, "2026-01-31T12:00:00.000Z", "odd.1"),
        entry(1, "x" * 10_000, "odd.1").replace('"type":"system"', '"kind":"system"'),
        entry(1, "2026-01-31T12:00:00.000Z", "odd.1").replace('"after":null', '"after":5'),
        entry(1, "\\u0000", "odd.1").replace("null", '"\\u0000"'),
    ],
)
def test_rows_that_no_node_wrote_keep_no_entry_from_being_found(nodes: list[FollowingApi], content: str) -> None:
    node = f"odd{abs(hash(content))}"
    insert(nodes[0], node, 1, content)
    written(nodes[0], "odd.2")
    assert listed(nodes[0], action="odd.*", limit=1000)[0] == ("fra", "odd.2")
    assert node not in {row["node"] for row in rows(nodes[0], limit=1000)}
    assert rows(nodes[0], username="a\0b") == []


@needs_postgresql
def test_cut_off_there_are_the_entries_of_the_asked_node_and_the_others_are_missing() -> None:
    with fra_and_nyc() as (fra, _nyc):
        written(fra, "x.1", "x.2", "x.3")
        token = fra.token()
        first = fra.get("/audit", token, params={"limit": 1}).json["data"]
        fra.node.database.refuse("it is away")
        cut_off = fra.get("/audit", token, params={"limit": 1, "cursor": first["next_cursor"]}).json["data"]
        assert {row["node"] for row in cut_off["audit"]} == {"fra"}
        assert cut_off["audit"][0]["seq"] < first["audit"][0]["seq"]
        (missing,) = cut_off["meta"]["missing_nodes"]
        assert (missing["node"], "it is away" in missing["reason"]) == ("nyc", True)
        other = fra.get("/audit", token, params={"node": "nyc"}).json["data"]
        assert (other["audit"], other["total"], len(other["meta"]["missing_nodes"])) == ([], 0, 1)
        assert fra.get("/audit", token, params={"node": "self"}).json["data"]["meta"] == {"missing_nodes": []}


@table(("silent", "error", "reason"), [(4.0, "", ""), (31.0, "", "no heartbeat for 31 s"), (4.0, "away", "away")])
def test_a_node_that_may_have_more_than_the_database_is_named(silent: float, error: str, reason: str) -> None:
    with two_nodes() as (fra, nyc):
        fra.node.present = {fra.id: presence(), nyc.id: presence(silent)}
        fra.node.trails = StagedTrails(error=error)
        data = read(fra)
        missing = {each["node"]: each["reason"] for each in data["meta"]["missing_nodes"]}
        assert missing.keys() == ({"nyc"} if reason else set())
        assert reason in missing.get("nyc", "")
        assert bool(data["audit"]) is bool(error)


@needs_postgresql
def test_each_chain_is_followed_in_the_database_and_compared_with_what_its_node_has() -> None:
    with fra_and_nyc() as (fra, nyc):
        for api in (fra, nyc):
            written(api, "x.y")
        far = on_node(nyc.name, API)
        fra.fleet.others |= {API: fra.services.reply, far: nyc.services.reply}

        def verified() -> tuple[list[tuple[str, str]], list[Any]]:
            data = fra.get("/audit/verify", fra.token()).json["data"]
            assert data["intact"] is True, "that of the asked node"
            of_nodes = [(each["node"], (each["broken"] or {"error": ""})["error"]) for each in data["nodes"]]
            return of_nodes, data["meta"]["missing_nodes"]

        assert verified() == ([("fra", ""), ("nyc", "")], [])
        fra.fleet.others[far] = lambda _message: NodeMissing(far, "it is away")
        assert verified() == ([("fra", ""), ("nyc", "")], [{"node": "nyc", "reason": "it is away"}])
        fra.fleet.others[far] = nyc.services.reply
        head = nyc.services.audit.head
        content = entry(head.seq + 1, "2026-01-31T12:00:00.000Z")
        with fra.node.database.session() as session:
            forged = [nyc.name, head.seq + 1, content, chain_hash(head.hash, content)]
            session.transaction("INSERT INTO proxyfleet.audit VALUES (%s, %s, 1, %s, %s)", forged)
        assert verified()[0][1] == ("nyc", f"on the node: is missing: there were {head.seq + 1} rows")
        with fra.node.database.session() as session:
            session.transaction("UPDATE proxyfleet.audit SET content = 'x' WHERE node = %s AND seq = 1", [nyc.name])
        assert verified()[0][1] == ("nyc", "in the database: its content is not JSON")
        fra.node.database.refuse("it is away")
        assert verified()[0] == []


def read(api: FleetApi) -> Any:
    status, data = api.ask("GET", "/audit")
    assert status == 200, data
    return data
