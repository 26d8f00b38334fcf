"""Accounts of one proxy alone among all accounts: listed in every order, found, changed with their proxy only."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

from actors.bus.messages.accounts import OpenOfAccounts, QueryOpen
from actors.bus.messages.common import METRICS, Done, Unreachable
from actors.bus.messages.metrics import QueryRealtime, Realtime, RecentUse
from actors.metrics.usage.account_usage import SCHEMA
from actors.sqlite import open_database
from api.api_settings import ApiSettings
from api.http.query import ListCursor, checksum
from config.model.choices import period_at
from config.settings.settings import AccountSettings
from tests.kit.api_stage import INTRANET, QUIET, Api, error_of
from tests.unit.api.creating import create
from tests.unit.api.holding import PASSWORD, account, sign_in

ORDERS = ("username", "created_at", "usage", "last_seen_at")


@pytest.fixture
def api() -> Iterator[Api]:
    made = Api(ApiSettings(security=QUIET, proxy=INTRANET, accounts=AccountSettings(self_service=True)))
    made.fleet.others[METRICS] = lambda _: Done()
    yield made
    made.close()


def proxy(api: Api, name: str, port: int, *usernames: str, **fields: Any) -> dict[str, Any]:
    entries = [{"username": each, "password": PASSWORD} for each in usernames]
    return create(api, api.token(), name=name, port=port, accounts=entries, **fields)


def listed(api: Api, limit: int = 100, **query: Any) -> list[dict[str, Any]]:
    """All pages."""
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        response = api.get("/accounts", api.token(), params={"limit": limit, **query, **cursor})
        assert response.status_code == 200, response.text
        data = response.json["data"]
        found += data["accounts"]
        assert len(data["accounts"]) == limit or data["next_cursor"] is None
        if data["next_cursor"] is None:
            return found
        cursor = {"cursor": data["next_cursor"]}


def names(api: Api, **query: Any) -> list[str]:
    return [each["username"] for each in listed(api, **query)]


def use(api: Api, account_id: str, used: int) -> None:
    database = open_database(api.data.usage, SCHEMA)
    since = period_at("total", time.time())[0]
    database.execute(
        "INSERT INTO accounts (id, period, since, used, last_seen) VALUES (?, 'total', ?, ?, ?)",
        (account_id, since, used, float(used)),
    )
    database.close()


def test_pages_have_accounts_of_both_kinds_once_in_every_order(api: Api) -> None:
    first = proxy(api, "p1", 4001, "bob", "eve")
    account(api, "carol")
    proxy(api, "p2", 4002, "alice", "bob")
    account(api, "dave")
    by_id = {each["id"]: each for each in listed(api)}
    figures = dict.fromkeys(by_id, 0)
    for figure, account_id in zip((30, 10, 30), by_id, strict=False):
        use(api, account_id, figure)
        figures[account_id] = figure
    keys = {
        "username": {each: one["username"] for each, one in by_id.items()},
        "created_at": {each: one["created_at"] for each, one in by_id.items()},
        "usage": figures,
        "last_seen_at": figures,
    }
    for sort, limit in itertools.product(ORDERS, (1, 2, 3, 100)):
        found = [each["id"] for each in listed(api, limit, sort=sort)]
        assert sorted(found) == sorted(by_id)
        assert [keys[sort][each] for each in found] == sorted(keys[sort].values()), (sort, limit)  # type: ignore[type-var]
        assert [each["id"] for each in listed(api, limit, sort=f"-{sort}")] == found[::-1]
    assert names(api) == ["alice", "bob", "bob", "carol", "dave", "eve"]
    inline = [each for each in by_id.values() if each["inline"]]
    assert [each["proxies"] for each in inline if each["username"] == "eve"] == [{"ids": [first["id"]]}]


@pytest.mark.parametrize("sort", ["rate", "connections"])
def test_figures_of_now_are_an_order_of_both_kinds(api: Api, sort: str) -> None:
    proxy(api, "p1", 4001, "bob", "eve")
    account(api, "carol")
    account(api, "dave")
    ids = {each["username"]: each["id"] for each in listed(api)}
    figures = {ids[name]: figure for name, figure in {"eve": 9, "carol": 5}.items()}
    uses = {each: RecentUse((*(0,) * 11, rate), (), ()) for each, rate in figures.items()}

    def collector(message: Any) -> Any:
        if isinstance(message, QueryRealtime) and sort == "rate":
            assert message.busy == "acc_"
            return Realtime(0.0, {}, recent=uses)
        if isinstance(message, QueryOpen) and sort == "connections":
            assert message.beginning == "acc_"
            return OpenOfAccounts(figures)
        return Unreachable(METRICS, "it is not played")

    api.fleet.others[METRICS] = collector
    for limit in (1, 3, 100):
        found = [each["username"] for each in listed(api, limit, sort=f"-{sort}")]
        assert found[:2] == ["eve", "carol"]
        assert sorted(found) == ["bob", "carol", "dave", "eve"]
        assert [each["username"] for each in listed(api, limit, sort=sort)] == found[::-1]
    assert names(api, sort=f"-{sort}", inline="false")[0] == "carol"


def test_filters_find_them(api: Api) -> None:
    first = proxy(api, "p1", 4001, "bob", "eve", tags=["a"])
    proxy(api, "p2", 4002, "bobby")
    account(api, "bob.fleet", proxies={"tags": ["a"]}, tags=["x"])
    assert names(api, q="BOB") == ["bob", "bob.fleet", "bobby"]
    assert names(api, proxy=first["id"]) == ["bob", "bob.fleet", "eve"]
    assert names(api, inline="true") == ["bob", "bobby", "eve"]
    assert names(api, inline="false") == names(api, tag="x") == ["bob.fleet"]
    path = f"/proxies/{first['id']}/accounts"
    assert api.patch(f"{path}/bob", {"enabled": False}, api.token()).status_code == 200
    assert names(api, status="disabled") == ["bob"]
    assert names(api, status="active", inline="true") == ["bobby", "eve"]
    assert api.request("DELETE", f"{path}/bob", api.token()).status_code == 200
    assert names(api, q="bob") == ["bob.fleet", "bobby"]
    filters = checksum([None, None, None, None, None, "created_at", False, None])
    forged = ListCursor(("a text", "acc_1"), filters).text()
    response = api.get("/accounts", api.token(), params={"sort": "created_at", "cursor": forged})
    assert error_of(response)[2]["field"] == "cursor"


def test_one_is_shown_by_its_id_and_changed_with_its_proxy_alone(api: Api) -> None:
    made = proxy(api, "p1", 4001, "bob")
    token = api.token()
    (listed_,) = listed(api)
    path = f"/accounts/{listed_['id']}"
    shown = api.get(path, token)
    assert (shown.json["data"]["account"], shown.headers["ETag"] != "") == (listed_, True)
    assert (listed_["plan"], listed_["tags"], listed_["inline"]) == (None, [], True)
    for response in (api.patch(path, {"enabled": False}, token), api.request("DELETE", path, token)):
        status, _, details = error_of(response)
        assert (status, f"/proxies/{made['id']}/accounts/bob" in details["error"]) == (400, True)
    assert api.post(f"{path}/reset-usage", None, token).status_code == 200
    assert error_of(api.post(f"{path}/credentials", {"ttl": 60}, token))[0] == 404


def test_a_holder_signs_in_and_only_looks(api: Api) -> None:
    made = proxy(api, "p1", 4001, "alice")
    proxy(api, "p2", 4002, "alice")
    body = {"username": "alice", "password": PASSWORD}
    assert error_of(api.post("/me/login", body))[2]["field"] == "proxy"
    assert error_of(api.post("/me/login", {**body, "password": "wrong", "proxy": "p1"}))[0] == 401
    holder = sign_in(api, proxy="p1")
    me = api.get("/me", holder).json["data"]["account"]
    assert ([each["name"] for each in me["proxies"]], me["plan"]) == (["p1"], None)
    assert me["self_service"] == {"password": False, "credentials": False}
    assert api.get("/me/credentials", holder).json["data"]["credentials"] == []
    assert api.get("/me/snippets", holder).json["data"]["total"] == 1
    assert api.patch("/me", {"password": "battery staples", "current_password": PASSWORD}, holder).status_code == 403
    assert api.post("/me/credentials", {"ttl": 60}, holder).status_code == 403
    path = f"/proxies/{made['id']}/accounts/alice"
    assert api.patch(path, {"password": "battery staples"}, api.token()).status_code == 200
    assert api.get("/me", holder).status_code == 401, "the token ends with the password"
    holder = sign_in(api, password="battery staples")
    assert api.request("DELETE", path, api.token()).status_code == 200
    assert api.get("/me", holder).status_code == 401
