"""The accounts of a proxy by the API: returned without passwords, changed one by one, with their usage."""

from __future__ import annotations

import time
from typing import Any

import pytest

from actors.bus.messages.accounts import (
    AccountActivity,
    AccountState,
    AccountStates,
    AccountUsage,
    DropAccountUsage,
    QueryUsage,
    ResetUsage,
    UsageOfAccounts,
)
from actors.bus.messages.common import Done, forwarding_name
from config.model.choices import period_at
from tests.kit.api_stage import Api
from tests.kit.clocks import room_in_the_day

ADA = {"username": "ada", "password": "secret-word", "quota": {"bytes": 1000, "period": "day"}}


@pytest.fixture
def proxy_id(api: Api) -> str:
    made = api.post("/proxies", {"name": "p", "port": 3128, "protocol": "http"}, api.token())
    return str(made.json["data"]["proxy"]["id"])


def path(proxy_id: str, *more: str) -> str:
    return "/".join((f"/proxies/{proxy_id}/accounts", *more))


def field(response: Any) -> str:
    assert response.status_code == 400, response.text
    return str(response.json["error"]["details"]["field"])


def plays(api: Api, proxy_id: str, usage: dict[str, AccountUsage], connections: int = 0) -> list[Any]:
    """Let proxy and collector response with this usage; what they were asked."""
    received: list[Any] = []

    def forwarding(message: Any) -> Any:
        received.append(message)
        return AccountStates({each: AccountState(used, connections) for each, used in usage.items()})

    api.fleet.others[forwarding_name(proxy_id)] = forwarding
    return received


def account_ids(api: Api, proxy_id: str) -> dict[str, str]:
    return {each.username: each.id for each in api.fleet.desired[proxy_id].accounts}


def test_an_account_is_added_read_changed_and_removed(api: Api, proxy_id: str) -> None:
    token = api.token()
    made = api.post(path(proxy_id), ADA, token)
    assert made.status_code == 201, made.text
    account = made.json["data"]["account"]
    assert (account["username"], account["enabled"], account["expires_at"]) == ("ada", True, None)
    assert "secret-word" not in made.text
    assert "hash" not in made.text
    assert api.get(path(proxy_id, "ada"), token).json["data"]["account"] == account
    view = api.get(f"/proxies/{proxy_id}", token).json["data"]["proxy"]
    assert view["auth_enabled"]
    assert [each["username"] for each in view["accounts"]] == ["ada"]
    limits = {"limits": {"connections": 3}, "expires_at": "2090-01-01T00:00:00Z"}
    changed = api.patch(path(proxy_id, "ada"), limits, token).json["data"]["account"]
    assert (changed["limits"]["connections"], changed["expires_at"]) == (3, "2090-01-01T00:00:00.000Z")
    assert changed["quota"] == ADA["quota"]
    never = api.request("PUT", path(proxy_id, "ada"), token, json={"expires_at": None}).json["data"]["account"]
    assert never["expires_at"] is None
    assert api.fleet.desired[proxy_id].accounts[0].limits.connections == 3
    listed = api.get(path(proxy_id), token).json["data"]
    assert (listed["total"], listed["accounts"][0]["username"]) == (1, "ada")
    gone = api.request("DELETE", path(proxy_id, "ada"), token)
    assert gone.json["data"] == {"username": "ada", "deleted": True}
    assert api.get(path(proxy_id, "ada"), token).status_code == 404
    assert api.fleet.desired[proxy_id].wants_credentials
    assert [type(message) for to, message in api.fleet.received if to == "metrics"].count(DropAccountUsage) == 1


def test_names_in_a_path_may_be_anything_that_a_user_name_may(api: Api, proxy_id: str) -> None:
    assert api.post(path(proxy_id), {**ADA, "username": "ada l@e.example?"}, api.token()).status_code == 201
    assert api.get(path(proxy_id, "ada%20l%40e.example%3F"), api.token()).status_code == 200


@pytest.mark.parametrize(
    ("body", "at_fault"),
    [
        ({**ADA, "username": "bob"}, "username"),
        ({"username": "eve"}, "password"),
        ({**ADA, "expires_at": "2001-01-01T00:00:00Z"}, "expires_at"),
        ({**ADA, "quota": {"bytes": -1}}, "quota.bytes"),
        ({**ADA, "password": None}, "password"),
        ({**ADA, "usage": {}}, "usage"),
    ],
)
def test_a_bad_account_is_refused_by_its_field_and_changes_nothing(
    api: Api, proxy_id: str, body: dict[str, Any], at_fault: str
) -> None:
    assert api.post(path(proxy_id), {**ADA, "username": "bob"}, api.token()).status_code == 201
    assert field(api.post(path(proxy_id), body, api.token())) == at_fault
    assert list(account_ids(api, proxy_id)) == ["bob"]


def test_a_bad_entry_of_the_list_is_named_by_its_place(api: Api, proxy_id: str) -> None:
    token = api.token()
    for accounts, at_fault in (
        ([ADA, ADA], "accounts[1].username"),
        ([ADA, {"username": "bob", "password": None}], "accounts[1].password"),
        ([{**ADA, "limits": {"bandwidth_in": 5}}], "accounts[0].limits.bandwidth_in"),
    ):
        assert field(api.patch(f"/proxies/{proxy_id}", {"accounts": accounts}, token)) == at_fault


def test_the_user_name_of_an_account_can_not_be_changed(api: Api, proxy_id: str) -> None:
    api.post(path(proxy_id), ADA, api.token())
    response = api.patch(path(proxy_id, "ada"), {"username": "bob"}, api.token())
    assert (field(response), response.json["error"]["details"]["error"]) == ("username", "is read-only")


def test_usage_is_that_of_the_proxys_process(api: Api, proxy_id: str) -> None:
    api.post(path(proxy_id), ADA, api.token())
    [identifier] = account_ids(api, proxy_id).values()
    room_in_the_day()
    start, _end = period_at("day", time.time())
    plays(api, proxy_id, {identifier: AccountUsage("day", start, 100, 250)}, connections=2)
    usage = api.get(path(proxy_id, "ada"), api.token()).json["data"]["account"]["usage"]
    assert (usage["bytes"], usage["bytes_in"], usage["bytes_out"], usage["remaining"]) == (350, 100, 250, 650)
    assert usage["quota"] == 1000
    assert usage["active_connections"] == 2
    assert usage["period_start"] < usage["period_end"]


def test_usage_of_an_inactive_proxy_is_the_collectors_and_of_an_old_period_it_is_nothing(
    api: Api, proxy_id: str
) -> None:
    api.post(path(proxy_id), ADA, api.token())
    [identifier] = account_ids(api, proxy_id).values()
    api.post(f"/proxies/{proxy_id}/stop", None, api.token())
    room_in_the_day()
    since = period_at("day", time.time())[0]
    kept = {identifier: AccountActivity(AccountUsage("day", since, 5, 6))}
    ask = api.fleet.ask
    api.fleet.ask = lambda to, message, timeout=5.0: (  # type: ignore[method-assign]
        UsageOfAccounts(kept) if isinstance(message, QueryUsage) else ask(to, message, timeout)
    )
    assert api.get(path(proxy_id, "ada"), api.token()).json["data"]["account"]["usage"]["bytes"] == 11
    kept[identifier] = AccountActivity(AccountUsage("day", since - 86_400, 5, 6))
    assert api.get(path(proxy_id, "ada"), api.token()).json["data"]["account"]["usage"]["bytes"] == 0


def test_usage_that_the_process_does_not_know_yet_is_the_collectors(api: Api, proxy_id: str) -> None:
    api.post(path(proxy_id), ADA, api.token())
    [identifier] = account_ids(api, proxy_id).values()
    room_in_the_day()
    since = period_at("day", time.time())[0]
    state = AccountState(AccountUsage("day", since, 1, 0), connections=3, known=False)
    api.fleet.others[forwarding_name(proxy_id)] = lambda _message: AccountStates({identifier: state})
    kept = {identifier: AccountActivity(AccountUsage("day", since, 5, 6))}
    api.fleet.others["metrics"] = lambda message: UsageOfAccounts(kept) if isinstance(message, QueryUsage) else Done()
    usage = api.get(path(proxy_id, "ada"), api.token()).json["data"]["account"]["usage"]
    assert (usage["bytes"], usage["active_connections"]) == (11, 3)


def test_a_reset_is_the_collectors(api: Api, proxy_id: str) -> None:
    api.post(path(proxy_id), ADA, api.token())
    [identifier] = account_ids(api, proxy_id).values()
    reset = path(proxy_id, "ada", "reset-usage")
    assert api.post(reset, None, api.token()).status_code == 503  # there is no collector
    received = collector(api)
    assert api.post(reset, None, api.token()).status_code == 200
    assert ResetUsage((identifier,)) in received
    assert api.post(path(proxy_id, "eve", "reset-usage"), None, api.token()).status_code == 404


def test_a_different_period_begins_at_zero(api: Api, proxy_id: str) -> None:
    api.post(path(proxy_id), ADA, api.token())
    [identifier] = account_ids(api, proxy_id).values()
    received = collector(api)
    api.patch(path(proxy_id, "ada"), {"quota": {"bytes": 2000, "period": "day"}}, api.token())
    assert ResetUsage((identifier,), by_change=True) not in received
    api.patch(path(proxy_id, "ada"), {"quota": {"bytes": 2000, "period": "month"}}, api.token())
    assert ResetUsage((identifier,), by_change=True) in received


def test_the_usage_of_the_accounts_of_a_deleted_proxy_is_deleted(api: Api, proxy_id: str) -> None:
    api.post(path(proxy_id), ADA, api.token())
    [identifier] = account_ids(api, proxy_id).values()
    received = collector(api)
    assert api.request("DELETE", f"/proxies/{proxy_id}", api.token()).status_code == 200
    assert DropAccountUsage((identifier,)) in received


def collector(api: Api) -> list[Any]:
    """Let a collector do what it is asked; what that was."""
    received: list[Any] = []

    def done(message: Any) -> Done:
        received.append(message)
        return Done()

    api.fleet.others["metrics"] = done
    return received


def test_reading_and_writing_need_their_permissions(api: Api, proxy_id: str) -> None:
    api.add_user("reader", role="user")
    token = api.token("reader")
    assert api.get(path(proxy_id), token).status_code == 200
    assert api.post(path(proxy_id), ADA, token).status_code == 403
    assert api.request("DELETE", path(proxy_id, "ada"), token).status_code == 403
    assert api.post(path(proxy_id, "ada", "reset-usage"), None, token).status_code == 403


def test_an_etag_that_is_stale_changes_nothing(api: Api, proxy_id: str) -> None:
    made = api.post(path(proxy_id), ADA, api.token())
    etag = made.headers["ETag"]
    headers = {**api.token(), "If-Match": etag}
    assert api.patch(path(proxy_id, "ada"), {"enabled": False}, headers).status_code == 200
    assert api.patch(path(proxy_id, "ada"), {"enabled": True}, headers).status_code == 412
