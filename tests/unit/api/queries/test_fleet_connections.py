"""Live connections over all proxies: merged pages, groups, ends, and proxies that do not reply."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from actors.bus.mailbox import address_of
from actors.bus.messages.common import forwarding_name
from actors.bus.messages.forwarding import (
    CloseConnections,
    ConnectionFilter,
    ConnectionPage,
    ConnectionReport,
)
from actors.forwarding.connections.table import PAGE_MAX
from tests.kit.api_stage import PROXY, Api, error_of
from tests.kit.tables import table
from tests.unit.api.audit_reader import rows
from tests.unit.api.holding import account
from tests.unit.api.queries.live_connections import ONE, Process, connection


def serve(api: Api, *processes: Process) -> list[str]:
    """A proxy for each process; their ids."""
    made = []
    for number, process in enumerate(processes):
        body = {**PROXY, "name": f"p{number}", "port": 3128 + number}
        proxy_id = api.post("/proxies", body, api.token()).json["data"]["proxy"]["id"]
        api.fleet.others[forwarding_name(proxy_id)] = process
        made.append(proxy_id)
    return made


def listed(api: Api, headers: dict[str, str], query: str = "") -> Any:
    response = api.get(f"/connections{query}", headers)
    assert response.status_code == 200, response.text
    return response.json["data"]


def test_connections_of_all_proxies_come_in_one_list_with_their_proxy(api: Api, headers: dict[str, str]) -> None:
    first, second = serve(api, Process([connection(1), connection(3)]), Process([connection(2)]))
    data = listed(api, headers)
    assert [(each["id"], each["proxy_id"], each["proxy"]) for each in data["connections"]] == [
        ("1", first, "p0"),
        ("2", second, "p1"),
        ("3", first, "p0"),
    ]
    assert (data["total"], data["unavailable"]) == (3, [])
    assert data["connections"][0]["target"] == "a.example:443"
    assert "groups" not in data


def test_ages_are_as_of_one_moment_though_the_replies_are_not(api: Api, headers: dict[str, str]) -> None:
    early = [replace(connection(1), age=9.0), replace(connection(3), age=7.0)]
    late = [replace(connection(2), age=8.5)]
    serve(api, Process(early), Process(late))
    found = [(each["id"], each["age"]) for each in listed(api, headers, "?sort=-age")["connections"]]
    assert found == [("1", 9.5), ("2", 8.5), ("3", 7.5)]


@pytest.mark.parametrize("sort", ["-age", "age", "-bytes_in", "target", "-client"])
def test_pages_of_the_merged_list_are_those_of_one_list(api: Api, headers: dict[str, str], sort: str) -> None:
    dice = random.Random(sort)
    everything = [
        connection(
            number,
            bytes_in=dice.randrange(50),
            client=f"192.0.2.{dice.randrange(9)}",
            target=f"h{dice.randrange(5)}.example:443",
        )
        for number in range(400)
    ]
    dice.shuffle(everything)
    processes = Process(everything[:300]), Process(everything[300:390]), Process(everything[390:]), Process([])
    serve(api, *processes)
    expected = [each.id for each in Process(everything)._sorted(sort)]
    found = []
    for offset in range(0, 420, 70):
        data = listed(api, headers, f"?sort={sort}&limit=70&offset={offset}")
        assert data["total"] == 400
        found += [each["id"] for each in data["connections"]]
    assert found == expected


def test_a_page_fetches_little_more_than_it_needs(api: Api, headers: dict[str, str]) -> None:
    processes = [Process([connection(1000 * number + each) for each in range(900)]) for number in range(10)]
    serve(api, *processes)
    assert len(listed(api, headers, "?limit=100")["connections"]) == 100
    fetched = [sum(each.limit for each in process.asked) for process in processes]
    assert fetched == [120] * 4 + [20] * 6, "the first five have a hundred at first, so the others are not asked again"


def test_connections_that_go_between_two_requests_end_the_search(api: Api, headers: dict[str, str]) -> None:
    class Vanishing(Process):
        def __call__(self, message: Any) -> Any:
            page = super().__call__(message)
            return ConnectionPage(page.connections if message.offset == 0 else (), page.total)

    serve(api, Vanishing([connection(each) for each in range(100)]), Process([]))
    assert len(listed(api, headers, "?limit=60")["connections"]) in range(20, 61)


def test_filters_reach_all_and_proxy_selects_one_by_name_or_id(api: Api, headers: dict[str, str]) -> None:
    one, other = Process([connection(1)]), Process([connection(2)])
    _, second = serve(api, one, other)
    listed(
        api,
        headers,
        "?client=10.0.0.0/8&account=ada&target=a.ex&min_age=5&listen_port=9&tls_name=b.ex&alpn=h2&sort=-rate_out",
    )
    for process in (one, other):
        assert (process.asked[-1].only, process.asked[-1].sort) == (
            ConnectionFilter("10.0.0.0/8", "ada", "a.ex", 5.0, 9, "b.ex", "h2"),
            "-rate_out",
        )
    one.asked.clear()
    for named in ("p1", second):
        assert [each["id"] for each in listed(api, headers, f"?proxy={named}")["connections"]] == ["2"]
    assert one.asked == []
    assert error_of(api.get("/connections?proxy=p7", headers))[0] == 404


@pytest.mark.parametrize(
    ("group_by", "expected"),
    [
        ("client", [{"client": "192.0.2.1", "count": 2}, {"client": "192.0.2.2", "count": 1}]),
        ("account", [{"account": "ada", "count": 2}, {"account": None, "count": 1}]),
        ("target", [{"target": "a.example:443", "count": 3}]),
        ("proxy", [{"proxy": "p0", "count": 2}, {"proxy": "p1", "count": 1}]),
    ],
)
def test_connections_are_counted_by_what_they_have_in_common(
    api: Api, headers: dict[str, str], group_by: str, expected: list[dict[str, Any]]
) -> None:
    ids = serve(
        api,
        Process([connection(1, user="ada"), connection(2, client="192.0.2.2")]),
        Process([connection(3, user="ada")]),
    )
    data = listed(api, headers, f"?group_by={group_by}")
    wanted = [{**each, "bytes_in": 10 * each["count"], "bytes_out": 20 * each["count"]} for each in expected]
    if group_by == "proxy":
        wanted = [{**each, "proxy_id": proxy_id} for each, proxy_id in zip(wanted, ids, strict=True)]
    assert data == {"groups": wanted, "total": len(wanted), "unavailable": []}
    page = listed(api, headers, f"?group_by={group_by}&offset=1&limit=1")
    assert (page["groups"], page["total"]) == (wanted[1:2], len(wanted))


def clients(first: int, numbers: range, each: int = 1) -> list[ConnectionReport]:
    """So many connections of each of these clients."""
    return [
        connection(first + number * each + one, client=f"10.0.{number // 250}.{number % 250}")
        for number in numbers
        for one in range(each)
    ]


def test_a_page_of_groups_of_one_process_is_all_that_is_sent(api: Api, headers: dict[str, str]) -> None:
    process = Process([*clients(0, range(2500)), connection(9000, client="10.0.9.9")])
    serve(api, process)
    data = listed(api, headers, "?group_by=client&limit=3&offset=1")
    assert (len(data["groups"]), data["total"]) == (3, 2500)
    assert [(each.limit, each.offset) for each in process.asked] == [(3, 1)]


def test_of_several_processes_each_sends_its_largest_groups_and_the_counts_are_those_of_all(
    api: Api, headers: dict[str, str]
) -> None:
    small = Process(clients(20_000, range(2500)))
    large = Process([*clients(0, range(3), 5), *clients(10_000, range(5000, 5004), 2)])
    serve(api, small, large)
    data = listed(api, headers, "?group_by=client&limit=4")
    assert [each["count"] for each in data["groups"]] == [6, 6, 6, 2]
    assert data["total"] == 2500, "so many at least"
    assert [(len(each.values), each.limit) for each in small.asked] == [(0, PAGE_MAX), (1, 1)], "what was unknown"
    assert [each.limit for each in large.asked] == [PAGE_MAX], "it has no more than it sent"
    for process in (small, large):
        process.asked.clear()
    assert len(listed(api, headers, "?group_by=client&limit=1000&offset=1000")["groups"]) == 1000
    assert [each.offset for each in small.asked] == [0, PAGE_MAX]


@table(
    ("query", "field"),
    [
        ("group_by=colour", "group_by"),
        ("group_by=client&sort=age", "sort"),
        ("sort=colour", "sort"),
        ("limit=1001", "limit"),
        ("offset=10001", "offset"),
        ("proxy=", "proxy"),
        ("account=ada&user=eve", "account"),
        ("proxy_id=x", "proxy_id"),
    ],
)
def test_a_bad_parameter_is_400_naming_it(api: Api, headers: dict[str, str], query: str, field: str) -> None:
    status, _code, details = error_of(api.get(f"/connections?{query}", headers))
    assert (status, details["field"]) == (400, field)


def test_a_proxy_that_does_not_reply_is_named_and_the_others_are_listed(api: Api, headers: dict[str, str]) -> None:
    silent, _, stopped = serve(api, Process([]), Process([connection(1)]), Process([connection(2)]))
    del api.fleet.others[forwarding_name(silent)]
    api.post(f"/proxies/{stopped}/stop", None, headers)
    named = [{"proxy_id": silent, "proxy": "p0", "error": "it is not played"}]
    for query in ("", "?group_by=client"):
        data = listed(api, headers, query)
        assert (data["total"], data["unavailable"]) == (1, named)
    ended = api.request("DELETE", "/connections?all=true", headers)
    assert (ended.status_code, ended.json["data"]) == (200, {"ended": 1, "unavailable": named})
    [entry] = rows(api, action="proxy.connections_ended")
    assert entry["details"]["unavailable"] == [silent]


def test_those_that_match_are_ended_on_all_proxies_and_it_is_audited(api: Api, headers: dict[str, str]) -> None:
    one, other = Process([connection(1)]), Process([connection(2), connection(3)])
    first, _ = serve(api, one, other)
    ended = api.request("DELETE", "/connections?client=192.0.2.1&min_age=2", headers)
    assert ended.json["data"] == {"ended": 3, "unavailable": []}
    only = ConnectionFilter(client="192.0.2.1", min_age=2.0)
    assert one.asked == other.asked == [CloseConnections(None, only)]
    assert api.request("DELETE", "/connections?proxy=p0", headers).json["data"]["ended"] == 1
    last, before = rows(api, action="proxy.connections_ended")
    assert (before["resource"], before["details"]) == (
        None,
        {"filters": {"client": "192.0.2.1", "min_age": 2}, "ended": 3, "unavailable": []},
    )
    assert last["resource"] == {"type": "proxy", "id": first, "name": "p0"}


@pytest.mark.parametrize("query", ["", "?all=false", "?min_age=0", "?all=true&proxy=p0", "?all=true&account=ada"])
def test_ending_needs_a_filter_or_the_word_all(api: Api, headers: dict[str, str], query: str) -> None:
    process = Process([connection(1)])
    serve(api, process)
    status, _code, details = error_of(api.request("DELETE", f"/connections{query}", headers))
    assert (status, details["field"]) == (400, "all")
    assert process.asked == []


def test_reading_is_not_ending(api: Api) -> None:
    serve(api, Process([]))
    api.add_user("reader", role="user")
    assert api.get("/connections", api.token("reader")).status_code == 200
    assert api.request("DELETE", "/connections?all=true", api.token("reader")).status_code == 403


def test_a_scoped_key_reaches_its_own_proxies_alone(api: Api) -> None:
    mine, foreign = Process([connection(1)]), Process([connection(2)])
    first, second = serve(api, mine, foreign)
    key = api.key(permissions=["proxy.read", "proxy.write"], scope={"proxies": [first]})
    assert [each["id"] for each in listed(api, key)["connections"]] == ["1"]
    assert [each["proxy"] for each in listed(api, key, "?group_by=proxy")["groups"]] == ["p0"]
    assert api.request("DELETE", "/connections?all=true", key).json["data"]["ended"] == 1
    assert foreign.asked == []
    for named in ("p1", second, "no such proxy"):
        for method in ("GET", "DELETE"):
            assert error_of(api.request(method, f"/connections?proxy={named}", key))[:2] == (403, "FORBIDDEN")
    api.fleet.others.clear()
    assert [each["proxy"] for each in listed(api, key)["unavailable"]] == ["p0"]


def test_an_account_is_named_by_its_id_where_others_have_its_name(api: Api, headers: dict[str, str]) -> None:
    mine, foreign = Process([connection(1)]), Process([connection(2)])
    first, second = serve(api, mine, foreign)
    ids = [account(api, proxies={"ids": [each]}) for each in (first, second)]
    assert [each["id"] for each in listed(api, headers, f"?account={ids[0]}")["connections"]] == ["1"]
    assert (mine.asked[-1].only.user, foreign.asked) == ("alice", [])
    assert listed(api, headers, "?account=alice")["total"] == 2
    assert listed(api, headers, f"?account={ids[0]}&proxy=p1")["total"] == 0
    assert api.request("DELETE", f"/connections?account={ids[0]}", headers).json["data"]["ended"] == 1
    assert api.request("DELETE", f"/connections?account={ids[0]}&proxy=p1", headers).json["data"]["ended"] == 0
    assert error_of(api.get(f"/connections?account={ids[0]}&user=bob", headers))[2]["field"] == "account"


def test_connections_of_an_older_program_are_listed_and_ended_too(api: Api, headers: dict[str, str]) -> None:
    current, drains = Process([ONE]), Process([replace(ONE, id="6a")])
    (proxy_id,) = serve(api, current)
    api.fleet.older = {proxy_id: (3,)}
    api.fleet.others[address_of(forwarding_name(proxy_id), 3)] = drains
    for path in ("/connections", f"/proxies/{proxy_id}/connections"):
        found = api.get(path, headers).json["data"]
        assert (sorted(each["id"] for each in found["connections"]), found["total"]) == (["5f", "6a"], 2)
        assert api.request("DELETE", f"{path}?all=true", headers).json["data"]["ended"] == 2
    assert api.request("DELETE", f"/proxies/{proxy_id}/connections/6a", headers).status_code == 200
    api.post(f"/proxies/{proxy_id}/stop", None, headers)
    assert api.get(f"/proxies/{proxy_id}/connections", headers).json["data"]["total"] == 1
    assert api.get("/status", headers).json["data"]["server"]["older_processes"]["processes"] == 1
