"""One search over everything by name: what is found, in which order, and by whom."""

from __future__ import annotations

import threading
from typing import Any, get_args

import pytest

from actors.bus.messages.common import LOGS
from actors.bus.messages.records import CountLogs, LogCounts
from actors.logs.record_schema import HOST
from api.queries import search_operations
from api.queries.overall import overview
from api.queries.search_operations import SearchedKind, place_of_match
from tests.kit.api_stage import PROXY, Api, error_of
from tests.kit.tables import table
from tests.kit.wait import wait_until
from tests.unit.api.holding import account

UPSTREAM = {"protocol": "http", "host": "192.0.2.1", "port": 3128}
RULE = {"name": "r", "match": {"destinations": [":25"]}, "action": {"use": "deny"}}


class Indexer:
    """Played here: it has these hosts."""

    def __init__(self, api: Api) -> None:
        self.asked: list[CountLogs] = []
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.hosts = (("office.example", 9, 1, 1), ("mail.office.example", 90, 1, 1))
        api.fleet.others[LOGS] = self._reply

    def _reply(self, message: Any) -> Any:
        self.asked.append(message)
        assert self.goes_on.wait(60)
        return LogCounts(0, (1,), (0,), {HOST: self.hosts}, exact=True)


@pytest.fixture
def indexer(api: Api) -> Indexer:
    return Indexer(api)


def make(api: Api, path: str, **body: Any) -> dict[str, Any]:
    response = api.post(path, body, api.token())
    assert response.status_code == 201, response.text
    (made,) = (each for each in response.json["data"].values() if isinstance(each, dict))
    return made


def proxy(api: Api, name: str, port: int | str = 3128, **fields: Any) -> str:
    return str(make(api, "/proxies", **{**PROXY, "name": name, "port": port, **fields})["id"])


@pytest.fixture
def everything(api: Api, indexer: Indexer) -> Api:
    """Of each kind one with `office` in its name."""
    proxy(api, "office", tags=["berlin"])
    make(api, "/plans", name="office plan", description="for all of Berlin")
    account(api, "office-7", plan="office plan", metadata={"customer": "Berlin 12"})
    make(api, "/lists", name="office", kind="domains", entries=["example.com"])
    make(api, "/pools", name="office", upstreams=[UPSTREAM])
    make(api, "/policies", name="office", rules=[RULE, {**RULE, "name": "s"}])
    make(api, "/webhooks", name="office", url="https://hooks.example/secret", events=["*"])
    api.add_user("office", role="operator")
    return api


def found(api: Api, path: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
    response = api.get(f"/search?{path}", headers or api.token())
    assert response.status_code == 200, response.text
    data: dict[str, Any] = response.json["data"]
    return data


def names(api: Api, path: str, headers: dict[str, str] | None = None) -> list[tuple[str, str]]:
    return [(each["kind"], each["name"]) for each in found(api, path, headers)["results"]]


# --- what is found ------------------------------------------------------------------------------------------------


def test_each_kind_is_found_by_its_name_and_has_a_line(everything: Api) -> None:
    lines = {each["kind"]: (each["name"], each["detail"]) for each in found(everything, "q=OFFICE")["results"]}
    assert lines == {
        "proxy": ("office", "http 127.0.0.1:3128, running"),
        "account": ("office-7", "active, plan office plan"),
        "user": ("office", "operator, active"),
        "pool": ("office", "1 upstream"),
        "policy": ("office", "2 rules"),
        "list": ("office", "domains"),
        "plan": ("office plan", "for all of Berlin"),
        "webhook": ("office", "https://hooks.example/***"),
        "host": ("mail.office.example", "90 requests in the last hour"),
    }


def test_a_setting_has_its_value_where_the_api_can_change_it(api: Api) -> None:
    lines = {each["name"]: each["detail"] for each in found(api, "q=log&kinds=setting&limit=50")["results"]}
    assert lines["logging.level"] == "info"
    assert found(api, "q=prometheus_token&kinds=setting")["results"][0]["detail"] == ""


@table(
    ("q", "where"),
    [
        ("berlin", [("plan", "description"), ("proxy", "tag"), ("account", "metadata")]),
        ("127.0", [("proxy", "host")]),
        ("3128", [("proxy", "port")]),
        ("office@", [("user", "email")]),
        ("nothing has it", []),
    ],
)
def test_other_fields_are_searched_and_named(everything: Api, q: str, where: list[tuple[str, str]]) -> None:
    user = everything.store.find("users", username="office")[0]
    everything.store.put("users", {**user.body, "email": "office@example.com"})
    results = found(everything, f"q={q}")["results"]
    assert sorted((each["kind"], each["field"]) for each in results) == sorted(where)


def test_an_object_is_found_by_its_whole_id_and_by_a_port_of_its_range(api: Api) -> None:
    one, other = proxy(api, "one"), account(api, "two")
    ranged = proxy(api, "ports", "4000-4009")
    make(api, f"/proxies/{one}/accounts", username="three", password="correct horse battery")
    (inline,) = (each["id"] for each in found(api, "q=three")["results"])
    for kind, identifier in (("proxy", one), ("account", other), ("account", inline)):
        (only,) = found(api, f"q={identifier}")["results"]
        assert (only["kind"], only["id"], only["field"], only["match"]) == (kind, identifier, "id", "exact")
    assert found(api, f"q={one[:-1]}")["results"] == []
    assert [each["id"] for each in found(api, "q=4005")["results"]] == [ranged]
    assert [each["field"] for each in found(api, "q=4000")["results"]] == ["port"]


def test_an_account_of_one_proxy_is_found_with_its_proxy(api: Api) -> None:
    make(api, f"/proxies/{proxy(api, 'one')}/accounts", username="three", password="correct horse battery")
    (only,) = found(api, "q=thr")["results"]
    assert (only["kind"], only["detail"]) == ("account", "active, of the proxy one")


# --- in which order -----------------------------------------------------------------------------------------------


@table(
    ("text", "q", "place"),
    [
        ("office", "office", 0),
        ("office-1", "office", 1),
        ("the office", "office", 2),
        ("backoffice.office", "office", 2),
        ("backoffice", "office", 3),
        ("a" * 500, "a" * 100, 1),
        ("b" + "a" * 500, "a" * 100, 3),
    ],
)
def test_how_a_text_matches(text: str, q: str, place: int) -> None:
    assert place_of_match(text, q) == place


def test_the_best_matches_come_first_and_the_kind_of_the_best_one(api: Api) -> None:
    for port, name in enumerate(("Backoffice", "the office", "office-2", "office"), 3000):
        proxy(api, name, port)
    proxy(api, "tagged", 3100, tags=["office"])
    account(api, "office")
    account(api, "box-office")
    assert names(api, "q=office") == [
        *(("proxy", name) for name in ("office", "office-2", "the office", "tagged", "Backoffice")),
        ("account", "office"),
        ("account", "box-office"),
    ]
    assert [kind for kind, _ in names(api, "q=box")] == ["account"]
    assert [kind for kind, _ in names(api, "q=box-office&kinds=proxy,account")] == ["account"]


def test_accounts_whose_names_begin_with_the_text_are_among_many_others(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_operations, "JUDGED", 3)
    for name in ("a-zed", "b-zed", "c-zed", "zed-9", "Zed-8"):
        account(api, name)
    assert names(api, "q=zed") == [("account", "Zed-8"), ("account", "zed-9"), ("account", "a-zed")]


def test_hosts_with_most_records_come_first_among_equal_matches(api: Api, indexer: Indexer) -> None:
    indexer.hosts = (("a.example", 5, 1, 1), ("b.example", 50, 1, 1), ("example", 1, 1, 1))
    assert [name for _, name in names(api, "q=example")] == ["example", "b.example", "a.example"]


def test_each_kind_has_its_limit_and_says_that_there_is_more(api: Api) -> None:
    for port in range(3000, 3004):
        proxy(api, f"p{port}", port)
    account(api, "p-account")
    data = found(api, "q=p&limit=3&kinds=proxy,account")
    assert [each["kind"] for each in data["results"]] == ["proxy"] * 3 + ["account"]
    assert data["more"] == ["proxy"]
    assert found(api, "q=p&limit=4&kinds=proxy")["more"] == []


@table(
    ("path", "field"),
    [
        ("", "q"),
        ("q=", "q"),
        ("q=%20%20", "q"),
        (f"q={'x' * 101}", "q"),
        ("q=x&kinds=proxy,session", "kinds"),
        ("q=x&limit=0", "limit"),
        ("q=x&limit=51", "limit"),
        ("q=x&node=fra", "node"),
    ],
)
def test_a_wrong_query_names_its_parameter(api: Api, path: str, field: str) -> None:
    status, _, details = error_of(api.get(f"/search?{path}", api.token()))
    assert (status, details["field"]) == (400, field)


# --- by whom ------------------------------------------------------------------------------------------------------

OF_PROXIES = {"proxy", "account", "pool", "policy", "list", "plan"}
PERMITTED = {
    "proxy.read": OF_PROXIES,
    "metrics.read": {"host"},
    "users.read": {"user"},
    "settings.read": {"webhook"},
    "proxy.write": set(),
    "admin": {*OF_PROXIES, "host", "user", "webhook"},
}


@table(("permission", "kinds"), PERMITTED.items())
def test_kinds_that_the_caller_may_not_read_are_left_out(everything: Api, permission: str, kinds: set[str]) -> None:
    headers = everything.key(permissions=[permission])
    data = found(everything, "q=office&limit=1", headers)
    assert {each["kind"] for each in data["results"]} == kinds
    assert {*data["more"]} <= kinds
    wanted = ",".join(get_args(SearchedKind))
    assert found(everything, f"q=office&limit=1&kinds={wanted}", headers) == data


def test_a_key_with_a_scope_finds_what_it_names_alone(everything: Api, indexer: Indexer) -> None:
    other = proxy(everything, "office 2", 4000)
    make(everything, "/lists", name="office-2", kind="domains", entries=["example.com"])
    key = everything.key(scope={"proxies": [other], "lists": ["office-2"]})
    assert names(everything, "q=office", key) == [
        ("proxy", "office 2"),
        ("list", "office-2"),
        ("host", "office.example"),
        ("host", "mail.office.example"),
    ]
    assert indexer.asked[-1].query.proxy_ids == (other,)
    assert names(everything, f"q={everything.store.find('proxies', name='office')[0].body['id']}", key) == []


def test_a_key_of_accounts_finds_nothing(everything: Api) -> None:
    account_id = everything.store.find("accounts")[0].body["id"]
    status, code, _ = error_of(everything.get("/search?q=office", everything.key(scope={"accounts": [account_id]})))
    assert (status, code) == (403, "FORBIDDEN")


# --- hosts --------------------------------------------------------------------------------------------------------


def test_hosts_are_counted_once_for_many_searches(api: Api, indexer: Indexer) -> None:
    for _ in range(3):
        assert ("host", "office.example") in names(api, "q=office")
    (asked,) = indexer.asked
    assert (asked.fields, asked.most, asked.query.end - asked.query.start) == ((HOST,), overview.HOSTS_MAX, 3600)


def test_older_hosts_serve_while_they_are_counted_again(
    api: Api, indexer: Indexer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert names(api, "q=late&kinds=host") == []
    indexer.hosts = (("late.example", 1, 1, 1),)
    indexer.goes_on.clear()
    monkeypatch.setattr(overview, "HOSTS_FRESH", 0.0)
    assert names(api, "q=late&kinds=host") == []
    indexer.goes_on.set()
    wait_until(lambda: names(api, "q=late&kinds=host") == [("host", "late.example")], "hosts are counted again")


def test_without_the_log_indexer_the_rest_is_found(api: Api) -> None:
    proxy(api, "office")
    assert names(api, "q=office") == [("proxy", "office")]
