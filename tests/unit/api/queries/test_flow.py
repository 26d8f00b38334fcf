"""Where traffic flows: columns of the largest, all others as one, links between neighbours, and what may be seen."""

from __future__ import annotations

from typing import Any

import pytest

from actors.bus.messages.common import LOGS, Failed, forwarding_name
from actors.bus.messages.records import CountLogs, LogCounts
from actors.logs.record_schema import SEPARATOR, WAY
from api.queries.overall.flow import of_columns, way_of
from tests.kit.api_stage import PROXY, Api
from tests.unit.api.queries.live_connections import Process, connection


class Traffic:
    """Two proxies: one with open connections, and records of the last minute."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.ids = [self._add(f"p{number}", 3128 + number) for number in range(2)]
        api.fleet.others[forwarding_name(self.ids[0])] = Process(
            [
                connection(1, user="alice", rate_in=10.0, rate_out=90.0),
                connection(2, user="bob", target="b.example:443", rate_in=1.0, rate_out=2.0, parent="up", pool="eu"),
            ]
        )
        api.fleet.others[forwarding_name(self.ids[1])] = Process([])
        self.counted: list[tuple[str, int]] = []
        self.asked: list[CountLogs] = []
        api.fleet.others[LOGS] = self._count

    def _add(self, name: str, port: int) -> str:
        body = {**PROXY, "name": name, "port": port}
        return str(self.api.post("/proxies", body, self.api.token()).json["data"]["proxy"]["id"])

    def record(self, count: int, user: str, proxy: int, pool: str, parent: str, host: str, reason: str) -> None:
        self.counted.append((SEPARATOR.join((user, self.ids[proxy], pool, parent, host, reason)), count))

    def _count(self, message: CountLogs) -> Any:
        self.asked.append(message)
        values = tuple((value, count, 0, 0) for value, count in self.counted)
        return LogCounts(0, (0,), (0,), {WAY: values}, exact=True)

    def flow(self, query: str = "", headers: dict[str, str] | None = None) -> Any:
        response = self.api.get(f"/flow{query}", headers or self.api.token())
        assert response.status_code == 200, response.text
        return response.json["data"]


@pytest.fixture
def traffic(api: Api) -> Traffic:
    return Traffic(api)


def test_rates_are_of_open_connections_and_requests_of_the_records_of_the_last_minute(traffic: Traffic) -> None:
    traffic.record(7, "alice", 0, "", "", "a.example", "")
    traffic.record(3, "alice", 1, "", "", "casino.example", "denied")
    data = traffic.flow()
    alice, bob = data["accounts"]
    assert (alice["key"], alice["name"], alice["kind"]) == ("account:alice", "alice", "account")
    figures = {"connections": 1, "rate_in": 10, "rate_out": 90, "requests": 10, "refused": 3}
    assert {name: alice[name] for name in figures} == figures
    assert (bob["rate_out"], bob["requests"]) == (2, 0)
    assert [(each["id"], each["name"]) for each in data["proxies"]] == [(traffic.ids[0], "p0"), (traffic.ids[1], "p1")]
    assert [(each["key"], each["kind"], each["name"]) for each in data["exits"]] == [
        ("direct", "direct", None),
        ("pool:eu", "pool", "eu"),
    ]
    assert [each["name"] for each in data["targets"]] == ["a.example", "b.example", "casino.example"]
    links = {(each["source"], each["target"]): each for each in data["links"]}
    assert links["direct", "target:a.example"]["requests"] == 7
    assert links["direct", "target:casino.example"]["refused"] == 3
    assert links["account:alice", f"proxy:{traffic.ids[1]}"]["requests"] == 3
    assert (data["window"], data["exact"]) == (60, True)
    (asked,) = traffic.asked
    assert asked.query.end - asked.query.start == 60


def test_what_flows_through_one_node_is_all_there_is_when_it_is_asked_for(traffic: Traffic) -> None:
    traffic.record(3, "alice", 1, "", "", "casino.example", "denied")
    through = {
        "account=alice": ["account:alice"],
        "exit=pool:eu": ["account:bob"],
        "host=casino.example": ["account:alice"],
        f"proxy_id={traffic.ids[0]}&account=bob": ["account:bob"],
        "account=": [],
    }
    found = {query: [each["key"] for each in traffic.flow(f"?{query}")["accounts"]] for query in through}
    assert found == through


def test_upstreams_of_pools_are_exits_by_themselves_when_they_are_asked_for(traffic: Traffic) -> None:
    traffic.record(3, "alice", 1, "eu", "other", "a.example", "")
    traffic.record(2, "alice", 1, "eu", "", "a.example", "upstream_down")
    exits = {each["key"]: (each["rate_out"], each["requests"]) for each in traffic.flow("?members=true")["exits"]}
    assert exits == {"direct": (90, 0), "upstream:eu/up": (2, 0), "upstream:eu/other": (0, 3), "pool:eu": (0, 2)}


def test_the_largest_have_nodes_and_all_others_are_one_whatever_they_are_called() -> None:
    ways = [way_of(f"u{number}", "prx_1", "direct", "a.example", rate_in=float(number)) for number in range(5)]
    ways.append(way_of("*", "prx_1", "direct", "a.example", rate_in=100.0))
    found = of_columns(ways, 2, lambda _id: None)
    assert [(each["key"], each["others"], each["rate_in"]) for each in found["accounts"]] == [
        ("account:*", 0, 100),
        ("account:u4", 0, 4),
        ("others:account", 4, 6),
    ]
    assert found["proxies"][0]["name"] is None  # of one that was deleted
    assert sum(each["rate_in"] for each in found["links"] if each["target"] == "target:a.example") == 110


def test_without_the_log_there_are_rates_and_it_says_that_not_all_is_known(traffic: Traffic, api: Api) -> None:
    api.fleet.others[LOGS] = lambda _message: Failed("the disk is full")
    data = traffic.flow()
    assert (data["accounts"][0]["rate_out"], data["accounts"][0]["requests"], data["exact"]) == (90, 0, False)


def test_a_key_sees_only_its_proxies_and_no_requests_without_the_right_to_see_metrics(traffic: Traffic) -> None:
    traffic.record(3, "alice", 0, "", "", "a.example", "")
    headers = traffic.api.key(permissions=["proxy.read"], scope={"proxies": [traffic.ids[0]]})
    data = traffic.flow("", headers)
    assert [each["id"] for each in data["proxies"]] == [traffic.ids[0]]
    assert [each["requests"] for each in data["proxies"]] == [0]
    assert not traffic.asked
    assert [(each["kind"], each["name"]) for each in data["exits"]] == [("direct", None), ("upstream", None)]
