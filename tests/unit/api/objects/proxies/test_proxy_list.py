"""The list of proxies: searched, filtered, sorted, and read page by page while it changes."""

from __future__ import annotations

from typing import Any

import pytest

from actors.bus.messages.common import METRICS
from actors.bus.messages.metrics import Realtime, RecentUse
from api.http.query import LIST, ListCursor, cursor_text
from tests.kit.api_stage import Api, error_of
from tests.kit.standin_actors import stats_of
from tests.kit.tables import table
from tests.unit.api.creating import create


@pytest.fixture
def proxies(api: Api, headers: dict[str, str]) -> dict[str, Any]:
    """By name, four proxies in the order of their creation."""
    bodies = [
        {"name": "delta", "port": 4004, "tags": ["paris", "prod"]},
        {"name": "Alpha", "port": 4002, "tags": ["berlin"], "host": "127.0.0.9"},
        {"name": "charlie", "port": 4003, "tags": ["paris"]},
        {"name": "bravo", "port": 4001, "tags": [], "protocol": "socks5"},
    ]
    made = {each["name"]: create(api, headers, **each) for each in bodies}
    api.post(f"/proxies/{made['charlie']['id']}/stop", None, headers)
    return made


def names(api: Api, headers: dict[str, str], query: str = "") -> list[str]:
    response = api.get(f"/proxies{query}", headers)
    assert response.status_code == 200, response.text
    return [each["name"] for each in response.json["data"]["proxies"]]


@table(
    ("query", "found"),
    [
        ("q=LPH", ["Alpha"]),
        ("q=0.9", ["Alpha"]),
        ("q=400", ["delta", "Alpha", "charlie", "bravo"]),
        ("q=4003", ["charlie"]),
        ("q=pari", ["delta", "charlie"]),
        ("q=nothing", []),
        ("tag=paris", ["delta", "charlie"]),
        ("tag=paris&tag=prod", ["delta"]),
        ("tag=pari", []),
        ("q=a&tag=paris&status=active", ["delta"]),
        ("q=400&protocol=socks5", ["bravo"]),
    ],
)
def test_proxies_are_found_by_text_and_by_all_of_several_tags(
    api: Api, headers: dict[str, str], proxies: dict[str, Any], query: str, found: list[str]
) -> None:
    assert names(api, headers, f"?{query}") == found
    total = api.get(f"/proxies?{query}", headers).json["data"]["pagination"]["total"]
    assert total == len(found) <= len(proxies)


SORTED = {
    "name": ["Alpha", "bravo", "charlie", "delta"],
    "created_at": ["delta", "Alpha", "charlie", "bravo"],
    "port": ["bravo", "Alpha", "charlie", "delta"],
}


@table("sort", SORTED)
@table("size", [1, 3, 4])
def test_the_order_is_that_of_the_field_and_pages_follow_it(
    api: Api, headers: dict[str, str], proxies: dict[str, Any], sort: str, size: int
) -> None:
    for order, expected in ((sort, SORTED[sort]), (f"-{sort}", SORTED[sort][::-1])):
        assert names(api, headers, f"?sort={order}") == expected
        found, query = [], f"sort={order}&per_page={size}"
        cursor: str | None = ""
        while cursor is not None:
            data = api.get(f"/proxies?{query}{cursor and f'&cursor={cursor}'}", headers).json["data"]
            found += [each["name"] for each in data["proxies"]]
            cursor = data["next_cursor"]
            assert data["pagination"]["has_next"] == (cursor is not None)
        assert found == expected
    assert len(proxies) == len(SORTED[sort])


@table(
    ("sort", "found"),
    [
        ("-connections", ["charlie", "Alpha", "delta", "bravo"]),
        ("-requests", ["Alpha", "charlie", "delta", "bravo"]),
        ("-errors", ["charlie", "Alpha", "delta", "bravo"]),
        ("traffic", ["bravo", "delta", "charlie", "Alpha"]),
    ],
)
def test_the_order_may_be_that_of_the_statistics(
    api: Api, headers: dict[str, str], proxies: dict[str, Any], sort: str, found: list[str]
) -> None:
    api.services.runtime.remembered = 0.0
    api.fleet.stats = {
        proxies["Alpha"]["id"]: stats_of(requests=100, errors=1, bytes_in=5, bytes_out=9, active_connections=2),
        proxies["charlie"]["id"]: stats_of(requests=10, errors=1, bytes_out=7, active_connections=3),
        proxies["delta"]["id"]: stats_of(requests=5, bytes_in=1, active_connections=1),
    }
    assert names(api, headers, f"?sort={sort}") == found
    first = api.get(f"/proxies?sort={sort}&per_page=3", headers).json["data"]
    assert names(api, headers, f"?sort={sort}&per_page=3&cursor={first['next_cursor']}") == found[3:]


def test_the_order_may_be_that_of_the_rates_of_now(api: Api, headers: dict[str, str], proxies: dict[str, Any]) -> None:
    def collector(message: Any) -> Any:
        nothing = (0,) * 11
        rates = {"charlie": 5, "Alpha": 70}
        uses = {proxies[name]["id"]: RecentUse((*nothing, rate), (), ()) for name, rate in rates.items()}
        assert message.busy == "prx_"
        return Realtime(0.0, {}, recent=uses)

    api.fleet.others[METRICS] = collector
    assert names(api, headers, "?sort=-rate&per_page=2") == ["Alpha", "charlie"]
    assert names(api, headers, "?sort=-rate&tag=paris")[0] == "charlie"
    api.fleet.gone.add(METRICS)
    assert sorted(names(api, headers, "?sort=-rate")) == sorted(proxies)


def test_by_status_the_active_ones_come_first(api: Api, headers: dict[str, str], proxies: dict[str, Any]) -> None:
    assert names(api, headers, "?sort=status")[-1] == "charlie"
    assert names(api, headers, "?sort=-status")[0] == "charlie"
    assert len(proxies) == 4


@pytest.mark.parametrize("sort", ["created_at", "-created_at", "name", "-port"])
def test_nothing_is_repeated_or_omitted_when_proxies_come_and_go_between_pages(
    api: Api, headers: dict[str, str], sort: str
) -> None:
    made = [create(api, headers, name=f"p{number}", port=4000 + number)["id"] for number in range(8)]
    query = f"/proxies?per_page=3&sort={sort}"
    first = api.get(query, headers).json["data"]
    seen = [each["id"] for each in first["proxies"]]
    assert api.request("DELETE", f"/proxies/{seen[0]}", headers).status_code == 200
    assert api.request("DELETE", f"/proxies/{seen[-1]}", headers).status_code == 200
    for name, port in (("a", 3999), ("z", 5000)):
        create(api, headers, name=name, port=port)
    cursor = first["next_cursor"]
    while cursor is not None:
        data = api.get(f"{query}&cursor={cursor}", headers).json["data"]
        seen += [each["id"] for each in data["proxies"]]
        cursor = data["next_cursor"]
    assert len(seen) == len(set(seen))
    assert set(seen) >= set(made)


def test_a_cursor_belongs_to_its_filters_and_order_and_not_beside_a_page(
    api: Api, headers: dict[str, str], proxies: dict[str, Any]
) -> None:
    cursor = api.get("/proxies?per_page=1&tag=paris", headers).json["data"]["next_cursor"]
    assert cursor
    same = f"per_page=2&tag=paris&cursor={cursor}"
    assert names(api, headers, f"?{same}") == ["charlie"], "the size of the page may change"
    forged = cursor_text([LIST, "text", proxies["bravo"]["id"], 1])
    for query in (
        f"cursor={cursor}",
        f"tag=paris&sort=name&cursor={cursor}",
        f"{same}&page=1",
        f"cursor={forged}",
        "cursor=x",
        "cursor=",
    ):
        status, _code, details = error_of(api.get(f"/proxies?{query}", headers))
        assert (status, details["field"]) == (400, "cursor"), query


def test_a_forged_cursor_of_another_type_is_400(api: Api, headers: dict[str, str], proxies: dict[str, Any]) -> None:
    good = api.get("/proxies?per_page=1", headers).json["data"]["next_cursor"]
    checksum = ListCursor.of(good).filters
    forged = ListCursor(("text", proxies["bravo"]["id"]), checksum).text()
    assert error_of(api.get(f"/proxies?cursor={forged}", headers))[2]["field"] == "cursor"


@table("query", ["sort=colour", "sort=--name", "q=", "tag=", "tag=a&tag=", "q=" + "x" * 129])
def test_a_bad_parameter_is_400_naming_it(api: Api, headers: dict[str, str], query: str) -> None:
    status, _code, details = error_of(api.get(f"/proxies?{query}", headers))
    assert (status, details["field"]) == (400, query.partition("=")[0])


def test_too_many_tags_are_400(api: Api, headers: dict[str, str]) -> None:
    query = "&".join(["tag=a"] * 21)
    assert error_of(api.get(f"/proxies?{query}", headers))[2]["field"] == "tag"


def test_a_scoped_key_pages_through_its_own_proxies(api: Api, headers: dict[str, str], proxies: dict[str, Any]) -> None:
    key = api.key(scope={"proxies": [proxies["Alpha"]["id"], proxies["bravo"]["id"]]})
    data = api.get("/proxies?per_page=1&sort=name", key).json["data"]
    assert ([each["name"] for each in data["proxies"]], data["pagination"]["total"]) == (["Alpha"], 2)
    assert names(api, key, f"?per_page=1&sort=name&cursor={data['next_cursor']}") == ["bravo"]
    assert names(api, headers, "?q=bravo") == names(api, key, "?q=400")[1:]


def test_proxies_are_those_that_an_account_may_use(api: Api, headers: dict[str, str], proxies: dict[str, Any]) -> None:
    body = {"username": "alice", "proxies": {"tags": ["paris"], "ids": [proxies["bravo"]["id"]]}}
    account = api.post("/accounts", body, headers).json["data"]["account"]["id"]
    assert names(api, headers, f"?account={account}&sort=name") == ["bravo", "charlie", "delta"]
    assert names(api, headers, f"?account={account}&status=active&protocol=http") == ["delta"]
    assert error_of(api.get("/proxies?account=acc_0", headers))[2]["field"] == "account"
    scoped = api.key(permissions=["proxy.read"], scope={"proxies": [proxies["delta"]["id"]]})
    assert error_of(api.get(f"/proxies?account={account}", scoped))[2]["field"] == "account"
