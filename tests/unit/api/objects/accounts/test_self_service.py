"""Holders of accounts: they sign in with the account's name and password, and their token opens `/me` alone."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from actors.bus.messages.accounts import AccountActivity, AccountUsage, QueryUsage, UsageOfAccounts
from actors.bus.messages.common import METRICS, forwarding_name
from actors.bus.messages.forwarding import ConnectionFilter, ConnectionPage, ConnectionReport, QueryConnections
from actors.state.account_clients import open_clients
from api.api_settings import ApiSettings
from api.app import OPERATIONS
from api.engine.operation import HOLDER, NONE
from api.objects.accounts import self_service
from api.queries import me_operations as me
from api.security.account_sessions import LIFETIME
from config.model.fleet_accounts import FleetAccountUpdate
from config.model.plans import PlanCreate, PlanUpdate
from tests.kit.api_stage import INTRANET, QUIET, Api, error_of
from tests.unit.api.audit_reader import rows
from tests.unit.api.creating import create
from tests.unit.api.holding import PASSWORD, account, refused, sign_in, with_self_service


@pytest.fixture
def api() -> Iterator[Api]:
    made = with_self_service()
    yield made
    made.close()


def change(api: Api, account_id: str, **fields: Any) -> None:
    api.services.fleet_accounts.update(account_id, FleetAccountUpdate.model_validate(fields), None)


def plan(api: Api, name: str = "basic", **fields: Any) -> str:
    return api.services.objects["plans"].create(PlanCreate.model_validate({"name": name, **fields})).record.id


def test_the_token_of_a_holder_opens_me_and_nothing_else(api: Api) -> None:
    plan(api, self_service={"password": True, "credentials": True})
    account(api, plan="basic")
    holder = sign_in(api)
    wrong = []
    for operation in sorted(OPERATIONS, key=lambda each: each.id == "logoutAccount"):  # which ends the token
        path = re.sub(r"\{[a-z_]+\}", "nothing", operation.path)
        if operation.access == NONE:
            continue
        found = api.client.simulate_request(operation.method, path, headers=holder)
        opened = found.status_code not in (401, 403)
        if opened != (operation.access == HOLDER):
            wrong.append((operation.id, found.status_code))
        if not opened:
            assert error_of(found)[:2] == (403, "FORBIDDEN"), operation.id
    assert wrong == []
    assert len([each for each in OPERATIONS if each.access == HOLDER]) >= 5


def test_the_response_to_a_sign_in_is_a_token_for_an_hour(api: Api) -> None:
    account_id = account(api)
    response = api.post("/me/login", {"username": "alice", "password": PASSWORD})
    assert response.headers["Cache-Control"] == "no-store"
    assert response.json["data"].keys() == {"access_token", "expires_in", "token_type"}
    assert (response.json["data"]["expires_in"], response.json["data"]["token_type"]) == (3600, "Bearer")
    (entry,) = rows(api, action="account.login")
    assert entry["resource"] == {"type": "account", "id": account_id, "name": "alice"}
    assert entry["actor"]["type"] == "account"


def test_users_and_keys_are_no_holders(api: Api) -> None:
    for headers, status in ((api.token(), 403), (api.key(), 403), ({}, 401), ({"Authorization": "Bearer x"}, 401)):
        for operation in OPERATIONS:
            if operation.access == HOLDER:
                path = re.sub(r"\{[a-z_]+\}", "nothing", operation.path)
                assert api.client.simulate_request(operation.method, path, headers=headers).status_code == status


def test_it_is_off_unless_the_setting_is_on_and_turning_it_off_ends_what_tokens_may_do(api: Api) -> None:
    assert not ApiSettings().accounts.self_service
    account(api)
    holder = sign_in(api)
    assert api.get("/me", holder).status_code == 200
    api.services.apply(ApiSettings(security=QUIET, proxy=INTRANET))
    assert api.get("/me", holder).status_code == 401
    status, code, details = error_of(api.post("/me/login", {"username": "alice", "password": PASSWORD}))
    assert (status, code) == (403, "FORBIDDEN")
    assert "accounts.self_service" in details["reason"]


@pytest.mark.parametrize(
    ("own", "wrong"),
    [
        ({}, {"password": "wrong"}),
        ({}, {"username": "bob"}),
        ({}, {"username": "Alice"}),
        ({"password": None}, {}),
        ({"enabled": False}, {}),
        ({"proxies": {"tags": ["paris"]}}, {"proxy": "first"}),
        ({}, {"proxy": "no such proxy"}),
    ],
)
def test_every_wrong_sign_in_reads_the_same(api: Api, own: dict[str, Any], wrong: dict[str, str]) -> None:
    create(api, api.token())
    account(api, **{"password": PASSWORD, **own})
    response = api.post("/me/login", {"username": "alice", "password": PASSWORD, **wrong})
    assert (response.status_code, response.json["error"]["message"]) == (401, "The user name or the password is wrong")


@pytest.mark.parametrize("end", ["another password", "disabled", "expired", "deleted", "signed out", "no password"])
def test_the_token_ends_with_the_password_and_the_account(api: Api, end: str) -> None:
    account_id = account(api)
    holder, other = sign_in(api), sign_in(api)
    assert api.get("/me", holder).status_code == api.get("/me", other).status_code == 200
    if end == "another password":
        change(api, account_id, password="a new one")
    elif end == "disabled":
        change(api, account_id, enabled=False)
    elif end == "expired":
        change(api, account_id, expires_at="2099-01-01T00:00:00Z")
        api.services.self_service._clock = lambda: 4_100_000_000.0
        api.services.self_service._sessions._clock = api.services.self_service._clock
    elif end == "deleted":
        api.services.fleet_accounts.delete(account_id, None)
    elif end == "no password":
        change(api, account_id, password=None)
    else:
        assert api.post("/me/logout", None, holder).status_code == 200
    assert error_of(api.get("/me", holder))[0] == 401
    assert api.get("/me", other).status_code == (200 if end == "signed out" else 401)


def test_a_sign_out_and_a_sign_in_hold_through_a_restart(api: Api) -> None:
    account(api)
    gone, live = sign_in(api), sign_in(api)
    api.post("/me/logout", None, gone)
    api.start()
    assert (api.get("/me", gone).status_code, api.get("/me", live).status_code) == (401, 200)


def test_a_token_ends_after_an_hour_and_says_so(api: Api) -> None:
    account(api)
    holder = sign_in(api)
    clock = api.services.self_service._clock
    api.services.self_service._clock = lambda: clock() + LIFETIME - 10
    assert api.get("/me", holder).status_code == 200
    api.services.self_service._clock = lambda: clock() + LIFETIME + 1
    assert error_of(api.get("/me", holder))[:2] == (401, "TOKEN_EXPIRED")


def test_me_shows_what_holds_and_not_what_is_the_operator_s(api: Api) -> None:
    create(api, api.token(), name="berlin", tags=["x"])
    create(api, api.token(), name="paris", port=4000)
    stopped = create(api, api.token(), name="rome", port=4001, tags=["x"])
    api.post(f"/proxies/{stopped['id']}/stop", None, api.token())
    plan(
        api,
        limits={"connections": 10, "bandwidth_in": 2000},
        quota={"bytes": 5000, "period": "month"},
        allow_destinations=["*.example.com"],
        deny_destinations=["bad.example.com"],
        self_service={"password": True},
    )
    account(
        api,
        plan="basic",
        proxies={"tags": ["x"]},
        limits={"connections": 3},
        deny_destinations=[],
        tags=["vip"],
        metadata={"customer": "4711"},
    )
    me = api.get("/me", sign_in(api)).json["data"]["account"]
    bandwidth = {"bandwidth_in": 2000, "bandwidth_out": 0}
    rest = {"connections": 3, "requests_per_minute": 0, "clients": 0, "clients_window": 600}
    assert (me["limits"], me["clients"]) == ({**bandwidth, **rest}, None)
    assert me["quota"] == {"bytes": 5000, "period": "month"}
    assert (me["allow_destinations"], me["deny_destinations"]) == (["*.example.com"], [])
    assert me["self_service"] == {"password": True, "credentials": False}
    assert me["proxies"] == [{"name": "berlin", "protocol": "http", "port": 3128}]
    assert (me["plan"], me["status"], me["schedule"]) == ("basic", "active", None)
    assert "4711" not in str(me)
    assert "vip" not in str(me)


def test_me_says_how_many_client_addresses_are_in_use_within_the_window_of_the_plan(api: Api) -> None:
    plan(api, limits={"clients": 2, "clients_window": 60})
    account_id = account(api, plan="basic")
    own = api.get("/me", sign_in(api)).json["data"]["account"]
    assert (own["clients"], own["limits"]["clients"], own["limits"]["clients_window"]) == (0, 2, 60)
    clients = open_clients(api.run.clients)
    for address in ("192.0.2.1", "192.0.2.2", "192.0.2.3"):
        clients.admit(account_id, address, 2, 60)
    assert api.get("/me", sign_in(api)).json["data"]["account"]["clients"] == 2


def test_the_password_is_changed_if_the_plan_permits_it(api: Api) -> None:
    plan_id = plan(api)
    account_id = account(api, plan="basic")
    holder = sign_in(api)
    body = {"password": "a new one", "current_password": PASSWORD}
    assert error_of(api.patch("/me", body, holder))[:2] == (403, "FORBIDDEN")
    api.services.objects["plans"].update(plan_id, PlanUpdate.model_validate({"self_service": {"password": True}}), None)
    wrong = error_of(api.patch("/me", {**body, "current_password": "wrong"}, holder))
    assert (wrong[0], wrong[2]["field"]) == (400, "current_password")
    assert error_of(api.patch("/me", {"password": "a new one"}, holder))[2]["field"] == "current_password"
    assert error_of(api.patch("/me", {**body, "enabled": True}, holder))[0] == 400
    assert api.patch("/me", body, holder).status_code == 200
    assert api.get("/me", holder).status_code == 401
    assert refused(api) == (401, "UNAUTHORIZED")
    assert api.get("/me", sign_in(api, password="a new one")).status_code == 200
    changed = next(row for row in rows(api) if row["action"] == "account.updated")
    actor = {"type": "account", "user_id": account_id, "username": "alice", "role": None}
    assert (changed["actor"], changed["credential"]["method"]) == (actor, "account_token")
    assert "a new one" not in str(changed)
    (event,) = api.fleet.published("account.updated")
    assert (event["by"]["type"], event["by"]["user_id"]) == ("account", account_id)


@pytest.mark.parametrize("change_of", [{"password": "of the operator"}, {"tags": ["x"]}])
def test_a_change_of_the_account_meanwhile_is_not_overwritten(
    api: Api, monkeypatch: pytest.MonkeyPatch, change_of: dict[str, Any]
) -> None:
    """The operator sets a password while the present one is checked, to keep someone out who knows it."""
    plan(api, self_service={"password": True})
    account_id = account(api, plan="basic")
    holder = sign_in(api)
    check = api.services.password_checker.check_password

    def slow(*given: Any) -> bool:
        right = check(*given)
        change(api, account_id, **change_of)
        return right

    monkeypatch.setattr(api.services.password_checker, "check_password", slow)
    body = {"password": "a new one", "current_password": PASSWORD}
    assert error_of(api.patch("/me", body, holder))[:2] == (429, "RATE_LIMITED")
    monkeypatch.undo()
    sign_in(api, password=change_of.get("password", PASSWORD))


def test_a_holder_changes_the_password_so_often_in_an_hour(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one holder could push all revisions of the operators out of the history."""
    monkeypatch.setattr(api.services.self_service._passwords, "_each", 1)
    plan(api, self_service={"password": True})
    account(api, plan="basic")
    first = api.patch("/me", {"password": "another one", "current_password": PASSWORD}, sign_in(api))
    body = {"password": "a third one", "current_password": "another one"}
    second = api.patch("/me", body, sign_in(api, password="another one"))
    assert (first.status_code, second.status_code, second.headers["Retry-After"]) == (200, 429, "3600")


def test_without_a_plan_the_password_stays(api: Api) -> None:
    account(api)
    refusal = api.patch("/me", {"password": "a new one", "current_password": PASSWORD}, sign_in(api))
    assert error_of(refusal)[:2] == (403, "FORBIDDEN")


def test_guessing_the_current_password_locks_the_name(api: Api) -> None:
    plan(api, self_service={"password": True})
    account(api, plan="basic")
    holder = sign_in(api)
    for _ in range(5):
        assert api.patch("/me", {"password": "x", "current_password": "wrong"}, holder).status_code == 400
    assert api.patch("/me", {"password": "x", "current_password": PASSWORD}, holder).status_code == 429
    assert refused(api) == (429, "RATE_LIMITED")


def test_connections_are_those_of_the_account_on_its_proxies(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(me, "PROXIES_ASKED", 2)
    asked: list[tuple[str, Any]] = []
    ids: list[str] = []

    def process(name: str) -> Any:
        def reply(message: Any) -> Any:
            asked.append((name, message))
            live = ConnectionReport(
                "5f", "192.0.2.1", "alice", "a.example:443", "tunnel", 1.7e9, 1.0, 1, 2, 0.0, 0.0, "up1"
            )
            live = replace(live, pool="paris", source_address="10.0.0.9", source_rule="policy office[0] a")
            return ConnectionPage((live,), 1)

        return reply

    for name, port, tags in (
        ("own", 4000, ["x"]),
        ("other", 4001, []),
        ("silent", 4002, ["x"]),
        ("unused", 4003, ["x"]),
    ):
        proxy = create(api, api.token(), name=name, port=port, tags=tags)
        if name != "silent":
            api.fleet.others[forwarding_name(proxy["id"])] = process(name)
        ids.append(proxy["id"])
    account_id = account(api, proxies={"tags": ["x"]})
    assert api.get("/me/connections", sign_in(api)).status_code == 503
    used = AccountActivity(AccountUsage("total", 0.0, 0, 0), 3, proxies=tuple(ids[:3]))
    api.fleet.others[METRICS] = lambda _message: UsageOfAccounts({account_id: used})
    data = api.get("/me/connections?limit=5", sign_in(api)).json["data"]
    assert [(name, message.only) for name, message in asked] == [("own", ConnectionFilter(user="alice"))]
    assert isinstance(asked[0][1], QueryConnections)
    [shown] = data["connections"]
    assert (data["total"], shown["proxy"]) == (1, "own")
    assert [shown[name] for name in ("parent", "pool", "source_address", "source_rule")] == [None] * 4
    assert [each["proxy"] for each in data["unavailable"]] == ["silent"]


def test_holders_learn_no_names_of_lists(api: Api) -> None:
    operator = api.token()
    for kind in ("domains", "networks"):
        entries = {"domains": ["a.example"], "networks": ["192.0.2.0/24"]}[kind]
        made = api.post("/lists", {"name": f"secret-{kind}", "kind": kind, "entries": entries}, operator)
        assert made.status_code == 201, made.text
    rules = {
        "allow_destinations": ["list:secret-domains", "a.example"],
        "deny_destinations": ["list:secret-networks:25"],
    }
    plan(api, self_service={"credentials": True}, **rules)
    account_id = account(api, plan="basic")
    holder = sign_in(api)
    me = api.get("/me", holder).json["data"]["account"]
    assert (me["allow_destinations"], me["deny_destinations"]) == (["list:***", "a.example"], ["list:***:25"])
    given = {"ttl": 60, "allow_destinations": ["list:secret-domains"]}
    assert api.post(f"/accounts/{account_id}/credentials", given, operator).status_code == 201
    (listed,) = api.get("/me/credentials", holder).json["data"]["credentials"]
    assert listed["allow_destinations"] == ["list:***"]
    texts = {
        api.post("/me/credentials", {"ttl": 60, "allow_destinations": ["a.example", entry]}, holder).text.replace(
            entry, ""
        )
        for entry in ("list:secret-domains", "list:none", "geo:secret-domains:country=DE", "geo:none:asn=1")
    }
    (text,) = (re.sub(r'"(request_id|timestamp)": ?"[^"]*"', "", each) for each in texts)
    assert "allow_destinations[1]" in text


def test_snippets_are_for_the_proxies_of_the_account_with_its_name(api: Api) -> None:
    for name, port in (("one", 4000), ("two", 4001)):
        create(api, api.token(), name=name, port=port, host="0.0.0.0", tags=["x"], auth={"enabled": True})
    create(api, api.token(), name="other", port=4002)
    account(api, proxies={"tags": ["x"]})
    holder = {**sign_in(api), "Host": "proxy.example.com"}
    data = api.get("/me/snippets", holder).json["data"]
    assert [each["proxy"] for each in data["proxies"]] == ["one", "two"]
    assert data["proxies"][0]["snippets"]["url"] == "http://alice:PASSWORD@proxy.example.com:4000"
    (two,) = api.get("/me/snippets?proxy=two&host=192.0.2.9", holder).json["data"]["proxies"]
    assert two["snippets"]["url"] == "http://alice:PASSWORD@192.0.2.9:4001"
    assert api.get("/me/snippets?proxy=other", holder).json["data"] == {"proxies": [], "total": 0}


def test_usage_is_that_over_all_proxies_and_a_reached_quota_is_the_status(api: Api) -> None:
    account_id = account(api, quota={"bytes": 1000, "period": "total"})
    holder = sign_in(api)
    assert error_of(api.get("/me/usage", holder))[:2] == (503, "UNAVAILABLE")
    assert api.get("/me", holder).json["data"]["account"]["status"] == "active"
    used = AccountActivity(AccountUsage("total", 0.0, 300, 600), 2, 1_700_000_000.0, "192.0.2.1")

    def collector(to: str, message: Any, timeout: float = 5.0) -> Any:
        if to == METRICS and isinstance(message, QueryUsage):
            assert message == QueryUsage({account_id: "total"})
            return UsageOfAccounts({account_id: used})
        return original(to, message, timeout)

    original = api.fleet.ask
    api.fleet.ask = collector  # type: ignore[method-assign]
    data = api.get("/me/usage", holder).json["data"]
    assert (data["usage"]["bytes"], data["usage"]["remaining"], data["usage"]["active_connections"]) == (900, 100, 2)
    assert data["days"] == []
    assert (data["last_seen_at"], data["last_client_ip"]) == ("2023-11-14T22:13:20.000Z", "192.0.2.1")
    used = AccountActivity(AccountUsage("total", 0.0, 400, 600))
    assert api.get("/me/usage", holder).json["data"]["usage"]["remaining"] == 0
    assert api.get("/me", holder).json["data"]["account"]["status"] == "quota_reached"
    assert api.get("/me", sign_in(api)).status_code == 200, "who has reached the quota may still look"


def test_credentials_are_made_and_revoked_if_the_plan_permits_it_and_seen_in_any_case(api: Api) -> None:
    plan_id = plan(api)
    account_id, foreign = account(api, plan="basic"), account(api, "bob", plan="basic")
    holder, other = sign_in(api), sign_in(api, "bob")
    operator = api.post(f"/accounts/{account_id}/credentials", {"ttl": 60, "name": "job"}, api.token())
    theirs = operator.json["data"]["credential"]["id"]
    (listed,) = api.get("/me/credentials", holder).json["data"]["credentials"]
    assert (listed["name"], "secret" in listed) == ("job", False)
    assert error_of(api.post("/me/credentials", {"ttl": 60}, holder))[:2] == (403, "FORBIDDEN")
    assert error_of(api.request("DELETE", f"/me/credentials/{theirs}", holder))[:2] == (403, "FORBIDDEN")

    permitted = PlanUpdate.model_validate({"self_service": {"credentials": True}})
    api.services.objects["plans"].update(plan_id, permitted, None)
    made = api.post("/me/credentials", {"ttl": 60}, holder)
    assert (made.status_code, made.json["data"]["secret"][:4]) == (201, "pfc_")
    own = made.json["data"]["credential"]
    assert own["account_id"] == account_id
    assert api.get("/me/credentials", other).json["data"]["credentials"] == []
    assert api.request("DELETE", f"/me/credentials/{own['id']}", other).status_code == 404
    for credential in (own["id"], theirs):
        assert api.request("DELETE", f"/me/credentials/{credential}", holder).json["data"]["revoked"] is True
    assert api.services.account_store.credentials_of(account_id) == []
    assert foreign not in str(api.get("/me/credentials", holder).json)
    actions = [(row["action"], row["actor"]["type"]) for row in rows(api) if row["action"].startswith("credential.")]
    created, revoked = ("credential.created", "account"), ("credential.revoked", "account")
    assert actions == [revoked, revoked, created, ("credential.created", "user")]


def test_a_repeated_request_makes_one_credential_for_each_holder(api: Api) -> None:
    plan(api, self_service={"credentials": True})
    secrets = []
    for name in ("alice", "bob"):
        account(api, name, plan="basic")
        headers = {**sign_in(api, name), "Idempotency-Key": "one"}
        secrets += [api.post("/me/credentials", {"ttl": 60}, headers).json["data"]["secret"] for _ in range(2)]
    assert secrets[0] == secrets[1] != secrets[2] == secrets[3]


def test_what_holders_make_again_and_again_fills_no_trail(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """80 KB of rules go into no entry, also not of an operator; a holder has a budget."""
    plan(api, self_service={"credentials": True})
    account_id, holder = account(api, plan="basic"), sign_in(api)
    fat = {"ttl": 60, "name": "x" * 100, "allow_destinations": [f"{'a' * 60}.{n}.example" for n in range(1000)]}
    made = api.post("/me/credentials", fat, holder).json["data"]["credential"]
    api.request("DELETE", f"/me/credentials/{made['id']}", holder)
    deleted, created = rows(api, limit=2)
    assert created["after"].keys() == deleted["before"].keys() == {"id", "prefix", "expires_at"}
    assert (created["after"]["prefix"], created["resource"]["id"]) == (made["prefix"], made["id"])
    assert api.post(f"/accounts/{account_id}/credentials", fat, api.token()).status_code == 201
    (by_operator,) = rows(api, limit=1)
    assert len(str(by_operator)) < 4096
    monkeypatch.setattr(api.engine._of_holders, "_each", 4)
    before = rows(api, limit=1)[0]["seq"]
    for _ in range(3):
        each = api.post("/me/credentials", {"ttl": 60}, holder).json["data"]["credential"]
        assert api.request("DELETE", f"/me/credentials/{each['id']}", holder).status_code == 200
    assert [row["action"] for row in rows(api) if row["seq"] > before] == ["credential.revoked", "credential.created"]
    monkeypatch.setattr(api.engine._of_holders, "_began", -1e9)
    assert api.post("/me/credentials", {"ttl": 60}, holder).status_code == 201
    assert rows(api, limit=1)[0]["details"] == {"left_out": 4}


def test_sign_ins_and_outs_of_one_holder_are_bounded_in_the_trail(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.services.sign_ins_of_holders._budget, "_each", 3)
    account(api)
    for _ in range(3):
        api.post("/me/logout", None, sign_in(api))
    found = [row["action"] for row in rows(api) if row["action"].startswith("account.log")]
    assert found == ["account.login", "account.logout", "account.login"]


def test_credentials_that_are_made_at_once_are_counted_one_after_the_other(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_service, "CREDENTIALS_MAX", 1)
    plan(api, self_service={"credentials": True})
    account(api, plan="basic")
    holder, both, store = sign_in(api), threading.Barrier(2), api.services.account_store
    count = store.credential_count

    def counted(account_id: str) -> int:
        found = count(account_id)
        with suppress(threading.BrokenBarrierError):
            both.wait(0.2)
        return found

    monkeypatch.setattr(store, "credential_count", counted)
    with ThreadPoolExecutor(2) as threads:
        made = list(threads.map(lambda _: api.post("/me/credentials", {"ttl": 60}, holder).status_code, range(2)))
    assert sorted(made) == [201, 400]


def test_a_holder_makes_so_many_credentials_and_an_operator_more(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_service, "CREDENTIALS_MAX", 2)
    plan(api, self_service={"credentials": True})
    account_id, holder = account(api, plan="basic"), sign_in(api)
    made = [api.post("/me/credentials", {"ttl": 60}, holder) for _ in range(3)]
    assert [each.status_code for each in made] == [201, 201, 400]
    assert "revoke" in error_of(made[2])[2]["error"]
    assert api.post(f"/accounts/{account_id}/credentials", {"ttl": 60}, api.token()).status_code == 201
    for each in made[:2]:
        credential = each.json["data"]["credential"]["id"]
        assert api.request("DELETE", f"/me/credentials/{credential}", holder).status_code == 200
    assert api.post("/me/credentials", {"ttl": 60}, holder).status_code == 201
