"""Lists and policies that proxies, plans, accounts and credentials name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from actors.accounts.records import effective
from actors.bus.codec import unpack
from actors.bus.messages.specs import ListRef
from actors.bus.messages.supervision import ApplyObjects
from api.objects.proxies import supervisor_link
from api.objects.proxies.supervisor_link import REPLACE_TIMEOUT
from api.operator.start import read_desired_objects
from tests.kit.api_stage import Api
from tests.kit.tables import table
from tests.kit.wait import wait_until
from tests.unit.api.naming import fields_of, imported, problem, proxy
from tests.unit.api.published import Published

DENY = {"name": "all", "match": {}, "action": {"use": "deny"}}
LIST = {"name": "mirrors", "kind": "domains", "entries": ["mirror.example"]}


@pytest.fixture
def token(api: Api) -> dict[str, str]:
    return api.token()


@pytest.fixture
def objects(api: Api, token: dict[str, str]) -> None:
    """The list `mirrors` and the policy `closed`."""
    assert api.post("/lists", LIST, token).status_code == 201
    assert api.post("/policies", {"name": "closed", "rules": [DENY]}, token).status_code == 201


def test_a_proxy_names_what_is_there(api: Api, token: dict[str, str]) -> None:
    assert problem(proxy(api, policy="closed")) == ("policy", "there is no policy 'closed'")
    named = {"allow_destinations": ["a.example", "list:mirrors:443"]}
    expected = ("access.allow_destinations[1]", "there is no list 'mirrors'")
    assert problem(proxy(api, access=named)) == expected
    assert api.fleet.desired == {}
    made = proxy(api).json["data"]["proxy"]
    assert made["policy"] is None
    assert problem(api.patch(f"/proxies/{made['id']}", {"access": named}, token)) == expected


@pytest.mark.usefixtures("objects")
def test_a_proxy_is_sent_with_the_keys_of_what_it_names(api: Api, token: dict[str, str]) -> None:
    made = proxy(api, policy="closed", access={"deny_destinations": ["list:mirrors", ":25"]}).json["data"]["proxy"]
    assert made["policy"] == "closed"
    spec = api.fleet.desired[made["id"]]
    assert (spec.policy, spec.objects) == ("closed", ("policy:closed", "list:mirrors"))
    api.patch(f"/proxies/{made['id']}", {"description": "as before"}, token)
    assert api.fleet.desired[made["id"]].policy == "closed"
    api.patch(f"/proxies/{made['id']}", {"policy": None, "auth": {"enabled": True}}, token)
    assert api.fleet.desired[made["id"]].objects == ("list:mirrors", "list:*", "plans")


@pytest.mark.usefixtures("objects")
def test_what_is_in_use_is_not_deleted_and_the_users_are_named(api: Api, token: dict[str, str]) -> None:
    proxy(api, policy="closed", access={"allow_destinations": ["list:mirrors"]})
    plan = {"name": "basic", "policy": "closed", "allow_destinations": ["list:mirrors"]}
    assert api.post("/plans", plan, token).status_code == 201
    body = {"username": "ada", "password": "secret-word", "deny_destinations": ["list:mirrors:25"]}
    account = api.post("/accounts", body, token).json["data"]["account"]
    other = {"username": "bob", "password": "secret-word", "metadata": {"note": "list:mirrors"}}
    assert api.post("/accounts", other, token).status_code == 201
    credential = {"ttl": 60, "allow_destinations": ["list:mirrors"]}
    minted = api.post(f"/accounts/{account['id']}/credentials", credential, token).json["data"]["credential"]
    error = problem(api.request("DELETE", "/lists/mirrors", token))[1]
    assert f"4 (proxy office, plan basic, account ada, credential {minted['id']})" in error
    assert problem(api.patch("/lists/mirrors", {"name": "others"}, token))[0] == "name"
    assert "2 (proxy office, plan basic)" in problem(api.request("DELETE", "/policies/closed", token))[1]


def test_accounts_plans_and_credentials_name_lists_that_are_there(api: Api, token: dict[str, str]) -> None:
    destinations = ["a.example", "list:mirrors"]
    expected = ("deny_destinations[1]", "there is no list 'mirrors'")
    body = {"username": "ada", "password": "secret-word"}
    assert problem(api.post("/accounts", {**body, "deny_destinations": destinations}, token)) == expected
    assert problem(api.post("/plans", {"name": "basic", "deny_destinations": destinations}, token)) == expected
    assert problem(api.post("/plans", {"name": "basic", "policy": "x"}, token)) == ("policy", "there is no policy 'x'")
    batch = {"create": [{**body, "deny_destinations": destinations}]}
    assert problem(api.post("/accounts/batch", batch, token))[0] == "create[0].deny_destinations[1]"
    account = api.post("/accounts", body, token).json["data"]["account"]
    path = f"/accounts/{account['id']}"
    assert problem(api.patch(path, {"deny_destinations": destinations}, token)) == expected
    minted = api.post(f"{path}/credentials", {"ttl": 60, "allow_destinations": destinations}, token)
    assert problem(minted)[0] == "allow_destinations[1]"


@pytest.mark.usefixtures("objects")
def test_proxies_have_the_policy_of_a_plan_before_the_plan_has_it(api: Api, token: dict[str, str]) -> None:
    plan = api.post("/plans", {"name": "basic", "policy": "closed"}, token).json["data"]["plan"]
    assert plan["policy"] == "closed"
    assert api.fleet.objects["plans"].names == ("policy:closed",)
    with api.fleet.silent_after(0):
        assert api.post("/plans", {"name": "other", "policy": "closed"}, token).status_code == 500
    assert [each["name"] for each in api.get("/plans", token).json["data"]["plans"]] == ["basic"]
    body = {"username": "ada", "password": "secret-word", "plan": "basic"}
    account = api.post("/accounts", body, token).json["data"]["account"]
    table = Published(api)
    assert effective(table.account(account["id"]), table.plan(plan["id"])).policies == ("closed",)
    assert api.patch(f"/plans/{plan['id']}", {"policy": None}, token).json["data"]["plan"]["policy"] is None
    assert effective(table.account(account["id"]), table.plan(plan["id"])).policies == ()
    assert api.request("DELETE", "/policies/closed", token).status_code == 200


def test_a_plan_that_is_not_there_is_not_found_whatever_policy_it_is_given(api: Api, token: dict[str, str]) -> None:
    assert api.patch("/plans/plan_0123456789abcdef", {"policy": "nowhere"}, token).status_code == 404


def test_an_import_of_objects_waits_for_all_processes_as_long_as_one_of_proxies(
    api: Api, token: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, seconds = api.fleet.ask, list[float]()

    def ask_noting(to: str, message: Any, timeout: float = 5.0) -> Any:
        seconds.extend([timeout] if isinstance(message, ApplyObjects) else ())
        return ask(to, message, timeout)

    monkeypatch.setattr(api.fleet, "ask", ask_noting)
    body = {"kind": "proxyfleet.config", "version": 1, "lists": [LIST, {**LIST, "name": "others"}]}
    assert api.post("/config/import", body, token).status_code == 200
    assert seconds == [REPLACE_TIMEOUT]


def test_what_an_import_stores_beside_a_secret_that_no_key_opens_comes_when_that_is_gone(
    api: Api, token: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_link, "PROXIES_MOST", 1)
    monkeypatch.setattr(supervisor_link, "RETRY_INTERVAL", 0.01)
    api.post("/pools", {"name": "broken", "upstreams": ["http://u:word@10.0.0.1:1"]}, token)
    (pool,) = api.store.find("pools")
    entry = pool.body["upstreams"][0]
    lost = {**entry, "password": entry["password"][:-8]}
    api.store.put("pools", {**pool.body, "upstreams": [lost]})
    proxies = [{"name": name, "port": port, "protocol": "http"} for name, port in (("a", 4001), ("b", 4002))]
    body = {"kind": "proxyfleet.config", "version": 1, "proxies": proxies}
    assert api.post("/config/import", body, token).status_code == 500
    assert api.request("DELETE", "/pools/broken", token).status_code == 200
    wait_until(lambda: len(api.fleet.desired) == 2, "the supervisor has both")


@pytest.mark.usefixtures("objects")
def test_an_account_has_a_policy_before_that_of_its_plan(api: Api, token: dict[str, str]) -> None:
    assert api.post("/policies", {"name": "agents", "rules": [DENY]}, token).status_code == 201
    assert api.post("/plans", {"name": "basic", "policy": "closed"}, token).status_code == 201
    body = {"username": "ada", "plan": "basic", "policy": "agents"}
    assert problem(api.post("/accounts", {**body, "policy": "x"}, token)) == ("policy", "there is no policy 'x'")
    with api.fleet.silent_after(0):
        assert api.post("/accounts", body, token).status_code == 500
    assert api.get("/accounts", token).json["data"]["accounts"] == [], "proxies would not have known the policy"
    account = api.post("/accounts", body, token).json["data"]["account"]
    assert account["policy"] == "agents"
    assert api.fleet.objects["plans"].names == ("policy:agents", "policy:closed")
    table = Published(api)
    record = table.account(account["id"])
    assert effective(record, table.plan(record.plan)).policies == ("agents", "closed")
    assert "1 (account ada)" in problem(api.request("DELETE", "/policies/agents", token))[1]
    assert problem(imported(api, "prune=true", policies=[{"name": "closed", "rules": [DENY]}]))[0] == "policies"
    path = f"/accounts/{account['id']}"
    assert api.patch(path, {"policy": None}, token).json["data"]["account"]["policy"] is None
    assert effective(table.account(account["id"]), table.plan(record.plan)).policies == ("closed",)
    assert api.request("DELETE", "/policies/agents", token).status_code == 200


@pytest.mark.usefixtures("objects")
def test_the_supervisor_reads_at_its_start_what_the_api_would_send(api: Api, token: dict[str, str]) -> None:
    assert api.post("/policies", {"name": "agents", "rules": [DENY]}, token).status_code == 201
    api.post("/plans", {"name": "basic", "policy": "closed"}, token)
    api.post("/accounts", {"username": "ada", "policy": "agents"}, token)
    sent = api.services.link.desired_state().objects
    assert read_desired_objects(api.engine, api.data) == sent
    ref = unpack(ListRef, sent[0].packed)
    assert (api.data.lists / ref.file).is_file()


@pytest.mark.usefixtures("objects")
def test_a_list_with_other_entries_is_sent_with_another_file(api: Api, token: dict[str, str]) -> None:
    def file() -> str:
        (found,) = (each for each in api.fleet.objects.values() if each.key == "list:mirrors")
        return unpack(ListRef, found.packed).file

    before = file()
    api.patch("/lists/mirrors", {"entries": ["other.example"]}, token)
    assert file() != before
    sent = len([each for _, each in api.fleet.received if isinstance(each, ApplyObjects)])
    api.services._content_changed(api.get("/lists/mirrors", token).json["data"]["list"]["id"])
    assert len([each for _, each in api.fleet.received if isinstance(each, ApplyObjects)]) == sent + 1


# --- the configuration as a whole ---------------------------------------------------------------------------------

OFFICE = {"name": "office", "port": 3128, "protocol": "http", "policy": "closed"}
BASIC = {"name": "basic", "policy": "closed", "deny_destinations": ["list:mirrors"]}
ADA = {"username": "ada", "password": "secret-word", "allow_destinations": ["list:mirrors"]}
CLOSED = {"name": "closed", "rules": [DENY]}


def test_an_import_has_what_it_names(api: Api) -> None:
    assert fields_of(imported(api, proxies=[OFFICE], plans=[BASIC], accounts=[ADA])) == [
        "proxies[0].policy",
        "plans[0].policy",
        "plans[0].deny_destinations[0]",
        "accounts[0].allow_destinations[0]",
    ]
    whole = {"lists": [LIST], "policies": [CLOSED], "proxies": [OFFICE], "plans": [BASIC], "accounts": [ADA]}
    assert imported(api, **whole).status_code == 200
    assert api.fleet.objects["plans"].names == ("policy:closed",)
    (proxy,) = api.fleet.desired.values()
    assert proxy.objects == ("policy:closed",)
    again = imported(api, **{**whole, "accounts": []})
    assert again.json["data"]["changed"] is False
    refused = fields_of(imported(api, "prune=true", lists=[], policies=[]))
    assert sorted(refused) == ["lists", "lists", "policies", "policies"]
    exported = api.get("/config/export", api.token()).json["data"]
    assert (exported["proxies"][0]["policy"], exported["plans"][0]["policy"]) == ("closed", "closed")
    assert imported(api, "prune=true", lists=[], policies=[], proxies=[], plans=[], accounts=[]).status_code == 200


def test_an_earlier_state_comes_back_only_with_what_it_names(api: Api, token: dict[str, str]) -> None:
    imported(api, lists=[LIST], policies=[CLOSED], proxies=[OFFICE])
    later = api.get("/revisions?limit=1", token).json["data"]["revisions"][0]["revision"]
    imported(api, "prune=true", lists=[], policies=[], proxies=[])
    assert api.post(f"/revisions/{later}/restore", None, token).status_code == 200
    (spec,) = api.fleet.desired.values()
    assert spec.policy == "closed"


TURNED = "\u202egnp.exe-override"
ACCOUNT = {"password": "secret-word"}
NAMES = {
    "proxy": ("/proxies", {"name": TURNED, "port": 3128, "protocol": "http"}, "name"),
    "tag": ("/proxies", {"name": "a", "port": 3128, "protocol": "http", "tags": [TURNED]}, "tags[0]"),
    "user of a proxy": (
        "/proxies",
        {"name": "a", "port": 3128, "protocol": "http", "auth": {"username": TURNED, **ACCOUNT}},
        "auth.username",
    ),
    "account of a proxy": (
        "/proxies",
        {"name": "a", "port": 3128, "protocol": "http", "accounts": [{"username": TURNED, **ACCOUNT}]},
        "accounts[0].username",
    ),
    "upstream": (
        "/proxies",
        {
            "name": "a",
            "port": 3128,
            "protocol": "http",
            "upstreams": [{"protocol": "http", "host": "up.example", "port": 1, "name": TURNED}],
        },
        "upstreams[0].name",
    ),
    "account": ("/accounts", {"username": TURNED, "proxies": {"all": True}, **ACCOUNT}, "username"),
    "plan": ("/plans", {"name": TURNED}, "name"),
    "pool": ("/pools", {"name": TURNED, "upstreams": []}, "name"),
    "list": ("/lists", {**LIST, "name": TURNED}, "name"),
    "policy": ("/policies", {"name": TURNED, "rules": [DENY]}, "name"),
    "rule": ("/policies", {"name": "a", "rules": [{**DENY, "name": TURNED}]}, "rules[0].name"),
    "webhook": ("/webhooks", {"name": TURNED, "url": "https://hook.test/", "events": ["proxy.*"]}, "name"),
    "key": ("/api-keys", {"name": TURNED}, "name"),
    "user": ("/users", {"username": TURNED, "password": "correct horse battery"}, "username"),
}


@table(("path", "body", "field"), NAMES.values(), ids=NAMES)
def test_no_name_turns_the_direction_of_writing(
    api: Api, token: dict[str, str], path: str, body: dict[str, Any], field: str
) -> None:
    assert problem(api.post(path, body, token))[0] == field
    straight = json.loads(json.dumps(body).replace(json.dumps(TURNED)[1:-1], "gnp.exe-override"))
    made = api.post(path, straight, token)
    assert made.status_code == 201 or problem(made)[0] != field


@table("character", "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")
def test_each_character_that_turns_is_named(api: Api, character: str) -> None:
    assert problem(proxy(api, name=f"a{character}b")) == (
        "name",
        f"must not have characters that turn the direction of writing, as U+{ord(character):04X}",
    )
