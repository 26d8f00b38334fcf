"""Requests to all workers of a proxy, and what is made of their replies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from actors.bus.mailbox import NOT_ON_THE_BUS, STARTING, address_of
from actors.bus.messages.accounts import (
    AccountActivity,
    AccountState,
    AccountStates,
    AccountUsage,
    QueryUsage,
    UsageOfAccounts,
)
from actors.bus.messages.common import METRICS, Done, Unreachable, forwarding_name
from actors.bus.messages.forwarding import (
    AllowTestClient,
    CloseConnections,
    ConnectionGroups,
    ConnectionPage,
    ConnectionReport,
    ConnectionsEnded,
    GroupConnections,
    QueryConnections,
)
from actors.bus.messages.specs import QueryUpstreams, Upstreams, UpstreamState
from api.api_settings import ApiSettings
from api.bus_bridge import united_upstreams
from api.objects.proxies import proxy_service as proxies
from config.settings.settings import ProxyGroup
from tests.kit.api_stage import PROXY, QUIET, Api, error_of
from tests.unit.api.importing import HEAD

ONE = ConnectionReport("5f", "192.0.2.1", "", "a.example:443", "tunnel", 1_700_000_000.0, 1.0, 10, 20, 1.0, 2.0)
UP = UpstreamState("p1", "up", 10.0, 1, 3, 0, 100, 200, 8.0, None)


@pytest.fixture
def proxy_id(api: Api, headers: dict[str, str]) -> str:
    """A proxy with two workers, the processes 11 and 12."""
    made = api.post("/proxies", {**PROXY, "workers": 2}, headers)
    found: str = made.json["data"]["proxy"]["id"]
    api.fleet.workers[found] = (11, 12)
    return found


def play(api: Api, proxy_id: str, instance: int, reply: Callable[[Any], Any]) -> None:
    api.fleet.others[address_of(forwarding_name(proxy_id), instance)] = reply


def worker(identifier: str, count: int) -> Callable[[Any], Any]:
    """A worker with one connection, which closes so many."""

    def reply(message: Any) -> Any:
        if isinstance(message, QueryConnections):
            return ConnectionPage((replace(ONE, id=identifier),), 1)
        if isinstance(message, GroupConnections):
            return ConnectionGroups({"192.0.2.1": (1, 10, 20)}, 1)
        assert isinstance(message, CloseConnections)
        return ConnectionsEnded(count)

    return reply


def test_the_connections_of_all_workers_are_listed_grouped_and_closed(
    api: Api, headers: dict[str, str], proxy_id: str
) -> None:
    play(api, proxy_id, 11, worker("a", 1))
    play(api, proxy_id, 12, worker("b", 2))
    page = api.get(f"/proxies/{proxy_id}/connections", headers).json["data"]
    assert (sorted(each["id"] for each in page["connections"]), page["total"]) == (["a", "b"], 2)
    grouped = api.get("/connections?group_by=client", headers).json["data"]
    assert [(each["client"], each["count"]) for each in grouped["groups"]] == [("192.0.2.1", 2)]
    everywhere = api.get("/connections", headers).json["data"]
    assert (everywhere["total"], everywhere["unavailable"]) == (2, [])
    assert api.request("DELETE", f"/proxies/{proxy_id}/connections?all=true", headers).json["data"] == {"ended": 3}
    assert api.request("DELETE", f"/proxies/{proxy_id}/connections/b", headers).status_code == 200


def test_a_worker_that_has_gone_has_no_connections_and_is_no_failure(
    api: Api, headers: dict[str, str], proxy_id: str
) -> None:
    play(api, proxy_id, 11, worker("a", 1))
    play(api, proxy_id, 12, lambda _message: Unreachable("x", NOT_ON_THE_BUS))
    page = api.get(f"/proxies/{proxy_id}/connections", headers).json["data"]
    assert [each["id"] for each in page["connections"]] == ["a"]


def test_a_worker_that_does_not_reply_is_reported(api: Api, headers: dict[str, str], proxy_id: str) -> None:
    play(api, proxy_id, 11, worker("a", 1))
    play(api, proxy_id, 12, lambda _message: Unreachable("x", "no reply in time"))
    assert api.get(f"/proxies/{proxy_id}/connections", headers).status_code == 503
    assert len(api.get("/connections", headers).json["data"]["unavailable"]) == 1


def test_another_process_in_the_place_of_one_that_has_gone_is_asked(
    api: Api, headers: dict[str, str], proxy_id: str
) -> None:
    play(api, proxy_id, 11, worker("a", 1))
    play(api, proxy_id, 13, worker("c", 4))

    def gone(_message: Any) -> Any:
        api.fleet.workers[proxy_id] = (11, 13)
        return Unreachable("x", NOT_ON_THE_BUS)

    play(api, proxy_id, 12, gone)
    assert api.request("DELETE", f"/proxies/{proxy_id}/connections?all=true", headers).json["data"] == {"ended": 5}


def test_a_test_is_allowed_by_all_workers_first(api: Api, headers: dict[str, str], proxy_id: str) -> None:
    replies: list[Any] = [Done(), Unreachable("x", STARTING)]
    asked: list[AllowTestClient] = []

    def admit(message: AllowTestClient) -> Any:
        asked.append(message)
        return replies[len(asked) - 1]

    api.fleet.forwarding = admit
    reply = api.post(f"/proxies/{proxy_id}/test", {}, headers)
    assert error_of(reply)[0] == 503
    assert len(asked) == 2


def test_the_connections_of_an_account_are_added_and_its_usage_is_the_collectors(
    api: Api, headers: dict[str, str]
) -> None:
    body = {**PROXY, "workers": 2, "accounts": [{"username": "alice", "password": "correct horse"}]}
    proxy_id = api.post("/proxies", body, headers).json["data"]["proxy"]["id"]
    account_id = api.fleet.desired[proxy_id].accounts[0].id
    api.fleet.workers[proxy_id] = (11, 12)
    part = AccountUsage("total", 0.0, 1, 1)
    for instance in (11, 12):
        play(api, proxy_id, instance, lambda _message: AccountStates({account_id: AccountState(part, 2)}))

    def collector(message: Any) -> Any:
        assert isinstance(message, QueryUsage)
        return UsageOfAccounts({account_id: AccountActivity(AccountUsage("total", 0.0, 70, 0))})

    api.fleet.others[METRICS] = collector
    (account,) = api.get(f"/proxies/{proxy_id}/accounts", headers).json["data"]["accounts"]
    usage = account["usage"]
    assert (usage["bytes"], usage["active_connections"]) == (70, 4)


def test_the_states_of_upstreams_are_united() -> None:
    other = UpstreamState("p1", "down", 20.0, 2, 1, 4, 10, 20, 16.0, "refused")
    unknown = UpstreamState("p2", "unknown", 5.0, 0, 0, 0, 0, 0, None, None)
    down = replace(unknown, state="down", last_error="timed out")
    united = united_upstreams([Upstreams((UP, unknown)), Upstreams((other, down))])
    assert united.states == (
        UpstreamState("p1", "up", 10.0, 3, 4, 4, 110, 220, 10.0, "refused"),
        UpstreamState("p2", "down", 5.0, 0, 0, 0, 0, 0, None, "timed out"),
    )


def test_upstreams_are_asked_of_all_workers(api: Api, headers: dict[str, str]) -> None:
    body = {**PROXY, "workers": 2, "upstreams": [{"name": "p1", "protocol": "http", "host": "10.0.0.9", "port": 3128}]}
    proxy_id = api.post("/proxies", body, headers).json["data"]["proxy"]["id"]
    api.fleet.workers[proxy_id] = (11, 12)
    for instance in (11, 12):
        play(api, proxy_id, instance, lambda message: Upstreams((UP,)) if isinstance(message, QueryUpstreams) else None)
    (state,) = api.get(f"/proxies/{proxy_id}", headers).json["data"]["proxy"]["runtime"]["upstreams"]
    assert (state["total_connections"], state["bytes_in"]) == (6, 200)


@pytest.mark.parametrize("workers", [1, 4, 64, "auto"])
def test_the_number_of_workers_is_stored_as_written(api: Api, headers: dict[str, str], workers: Any) -> None:
    made = api.post("/proxies", {**PROXY, "workers": workers}, headers).json["data"]["proxy"]
    assert made["workers"] == workers
    assert api.fleet.desired[made["id"]].workers == (0 if workers == "auto" else workers)


@pytest.mark.parametrize("workers", [0, 65, -1, "all", True, 1.5])
def test_other_numbers_are_refused(api: Api, headers: dict[str, str], workers: Any) -> None:
    refused = api.post("/proxies", {**PROXY, "workers": workers}, headers)
    status, _code, details = error_of(refused)
    assert status == 400
    assert details == {"field": "workers", "error": "must be a whole number from 1 to 64, or auto"}


def test_a_proxy_with_one_worker_shows_its_process_as_that(api: Api, headers: dict[str, str]) -> None:
    made = api.post("/proxies", PROXY, headers).json["data"]["proxy"]
    runtime = api.get(f"/proxies/{made['id']}", headers).json["data"]["proxy"]["runtime"]
    (only,) = runtime["workers"]
    assert (only["index"], only["pid"], only["state"]) == (0, runtime["pid"], "running")


def test_a_new_proxy_without_a_number_has_that_of_the_configuration() -> None:
    api = Api(ApiSettings(security=QUIET, proxy=ProxyGroup(workers="auto")))
    headers = api.token()
    assert api.post("/proxies", PROXY, headers).json["data"]["proxy"]["workers"] == "auto"
    other = {**PROXY, "name": "second", "port": 3129, "workers": 2}
    assert api.post("/proxies", other, headers).json["data"]["proxy"]["workers"] == 2


def test_more_processes_than_can_read_the_table_of_accounts_are_refused(
    api: Api, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxies, "PROCESSES_MAX", 5)
    made = [api.post("/proxies", {**PROXY, "name": f"p{n}", "port": 4000 + n, "workers": 2}, headers) for n in range(3)]
    assert [each.status_code for each in made] == [201, 201, 400]
    details = made[2].json["error"]["details"]
    assert details["field"] == "workers"
    assert "6 processes" in details["error"]
    assert "5 are possible" in details["error"]
    first = made[0].json["data"]["proxy"]["id"]
    assert error_of(api.patch(f"/proxies/{first}", {"workers": 4}, headers))[2]["field"] == "workers"
    asleep = {**PROXY, "name": "asleep", "port": 4009, "workers": 2, "sleep_after": 60}
    sleeper = api.post("/proxies", asleep, headers).json["data"]["proxy"]["id"]
    assert error_of(api.patch(f"/proxies/{sleeper}", {"sleep_after": 0}, headers))[0] == 400
    assert api.patch(f"/proxies/{first}", {"description": "x", "workers": 1}, headers).status_code == 200
    assert api.post(f"/proxies/{first}/stop", None, headers).status_code == 200
    assert api.patch(f"/proxies/{sleeper}", {"sleep_after": 0}, headers).status_code == 200
    assert api.post(f"/proxies/{first}/start", None, headers).status_code == 200
    assert api.patch(f"/proxies/{first}", {"workers": 2}, headers).status_code == 400


def test_an_import_of_more_processes_is_refused(
    api: Api, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxies, "PROCESSES_MAX", 2)
    entries = [{**PROXY, "name": f"p{n}", "port": 4000 + n} for n in range(3)]
    refused = error_of(api.post("/config/import", {**HEAD, "proxies": entries}, headers))
    assert (refused[0], refused[2]["field"]) == (400, "proxies")
