"""Revisions of the configuration: each change is one, no secret is in a view, and an earlier state comes back whole."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import Mock

import pytest

from actors.bus.messages.common import METRICS, WEBHOOKS, Done
from api.errors import NotFound
from api.history.recorder import Limits
from api.periodic_work import HistoryPruning
from api.store import StoreWriteError, Write
from config.passwords import check_password
from tests.kit.api_stage import PASSWORD, PROXY, Api, error_of
from tests.unit.api.audit_reader import rows
from tests.unit.api.creating import create
from tests.unit.api.holding import PASSWORD as HOLDERS
from tests.unit.api.holding import account, sign_in
from tests.unit.api.importing import HEAD
from tests.unit.api.revising import everything, newest, restore, revisions, shown

SECRETS = ("of-a-client", "of-an-upstream", "Bearer-of-a-hook", "of-another-user", "of-an-account")


@pytest.fixture
def token(api: Api) -> dict[str, str]:
    api.fleet.others[WEBHOOKS] = api.fleet.others[METRICS] = lambda _message: Done()
    return api.token()


def fill(api: Api, token: dict[str, str]) -> dict[str, str]:
    """One of each kind, with secrets; their ids by kind."""
    client, upstream, hook, user, account = SECRETS
    proxy = create(
        api,
        token,
        auth={"enabled": True, "username": "c", "password": client},
        upstreams=[
            {"protocol": "http", "host": "10.0.0.1", "port": 1, "auth": {"username": "u", "password": upstream}}
        ],
    )
    headers = {"X-Plain": hook}
    webhook = {"name": "hook", "url": "https://hooks.example/secret-path", "events": ["proxy.*"], "headers": headers}
    made = {
        "webhook": api.post("/webhooks", webhook, token),
        "user": api.post("/users", {"username": "eva", "password": user, "role": "operator"}, token),
        "plan": api.post("/plans", {"name": "basic", "limits": {"connections": 5}}, token),
        "account": api.post("/accounts", {"username": "ada", "password": account, "plan": "basic"}, token),
    }
    ids = {kind: response.json["data"][kind]["id"] for kind, response in made.items()}
    api.patch("/settings", {"logging": {"level": "debug"}}, token)
    return {"proxy": proxy["id"], **ids}


# --- what is recorded ---------------------------------------------------------------------------------------------


def test_a_change_is_a_revision_with_who_when_from_where_and_what(api: Api, token: dict[str, str]) -> None:
    first = newest(api)
    proxy = create(api, {**token, "X-Request-Id": "mine-1"})
    key = api.key(permissions=["proxy.write"])
    api.patch(f"/proxies/{proxy['id']}", {"settings": {"timeout": 9}, "tags": ["a"]}, key)
    updated, of_key, created = revisions(api, limit=3)
    assert [each["revision"] for each in (created, of_key, updated)] == [first + 1, first + 2, first + 3]
    assert created["actor"] == {"type": "user", "user_id": api.admin.id, "username": "admin", "role": "administrator"}
    assert (created["address"], created["request_id"], created["operation"]) == ("127.0.0.1", "mine-1", "createProxy")
    assert created["summary"] == {"create": 1, "update": 0, "delete": 0}
    about = {"kind": "proxy", "id": proxy["id"], "name": "first"}
    assert created["objects"] == [{**about, "action": "create", "fields": []}]
    assert updated["credential"]["method"] == "api_key"
    assert updated["objects"] == [{**about, "action": "update", "fields": ["settings.timeout", "tags"]}]
    (change,) = shown(api, updated["revision"])["changes"]
    assert change["fields"] == [
        {"field": "settings.timeout", "before": 30, "after": 9},
        {"field": "tags", "before": [], "after": ["a"]},
    ]


def test_what_is_no_configuration_and_what_is_refused_has_none(api: Api, token: dict[str, str]) -> None:
    ids = fill(api, token)
    before = newest(api)
    api.post("/auth/login", {"username": "admin", "password": PASSWORD})
    minted = api.post(f"/accounts/{ids['account']}/credentials", {"ttl": 900}, token)
    assert minted.status_code == 201
    assert api.post("/proxies", {**PROXY, "port": 3999}, token).status_code == 400
    assert api.patch(f"/proxies/{ids['proxy']}", {}, token).status_code == 200
    assert api.request("DELETE", f"/proxies/{ids['proxy']}", {**token, "If-Match": '"1"'}).status_code == 412
    assert newest(api) == before
    create(api, token, name="next", port=3999)
    assert newest(api) == before + 1


def test_an_import_and_a_batch_are_one_revision_each(api: Api, token: dict[str, str]) -> None:
    before = newest(api)
    document = {
        **HEAD,
        "proxies": [{"name": "a", "port": 4001, "protocol": "http"}, {"name": "b", "port": 4002, "protocol": "http"}],
        "plans": [{"name": "basic"}],
        "accounts": [{"username": f"u{number}", "plan": "basic"} for number in range(30)],
        "settings": {"proxy": {"default_timeout": 31}},
    }
    assert api.post("/config/import", document, token).status_code == 200
    batch = {"create": [{"username": f"b{number}"} for number in range(25)]}
    assert api.post("/accounts/batch", batch, token).status_code == 200
    second, first = revisions(api, limit=2)
    assert (first["revision"], second["revision"]) == (before + 1, before + 2)
    assert first["summary"] == {"create": 34, "update": 0, "delete": 0}
    assert second["summary"] == {"create": 25, "update": 0, "delete": 0}
    assert len(second["objects"]) == 20
    pages = []
    query: dict[str, Any] = {"limit": 10}
    while True:
        data = api.get(f"/revisions/{before + 1}", token, params=query).json["data"]
        pages.append(len(data["changes"]))
        if not data["has_more"]:
            break
        query["cursor"] = data["next_cursor"]
    assert pages == [10, 10, 10, 4]


def test_no_view_has_a_secret(api: Api, token: dict[str, str]) -> None:
    ids = fill(api, token)
    first = revisions(api)[-1]["revision"]
    key = api.post("/api-keys", {"name": "k"}, token).json["data"]["api_key"]["id"]
    hashes = [each.body["password_hash"] for each in api.services.account_store.find("accounts")]
    hashes += [api.store.get("api_keys", key).body["key_hash"]]  # type: ignore[union-attr]
    views = [api.get("/revisions", token), api.get(f"/revisions/{first}...{newest(api)}", token)]
    views += [api.get(f"/revisions/{number}", token) for number in range(first, newest(api) + 1)]
    then = f"/revisions/{newest(api)}/objects"
    views += [api.get(f"{then}/{identifier}", token) for identifier in (*ids.values(), key, "settings")]
    for each in views:
        assert each.status_code == 200
        assert re.findall("renewal|_hash|_sealed", each.text) == []
        for secret in (*SECRETS, *hashes, "secret-path"):
            assert secret not in each.text
    assert "***" in views[1].text


def test_a_change_that_the_disk_refuses_leaves_none(
    api: Api, token: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = create(api, token)
    before = newest(api)

    def full(*_given: Any, **_more: Any) -> Any:
        raise StoreWriteError("full")

    with monkeypatch.context() as patched:
        patched.setattr(api.engine.documents, "take", full)
        assert api.patch(f"/proxies/{proxy['id']}", {"tags": ["x"]}, token).status_code == 500
    assert newest(api) == before
    api.patch(f"/proxies/{proxy['id']}", {"tags": ["y"]}, token)
    (change,) = shown(api, before + 1)["changes"]
    assert change["fields"] == [{"field": "tags", "before": [], "after": ["y"]}]
    api.start()
    assert newest(api) == before + 1


# --- reading ------------------------------------------------------------------------------------------------------


def test_the_list_is_filtered_and_paged(api: Api, token: dict[str, str]) -> None:
    ids = fill(api, token)
    eva = api.token("eva")
    api.patch(f"/proxies/{ids['proxy']}", {"tags": ["by-eva"]}, eva)

    def found(**query: Any) -> list[str]:
        return [each["objects"][0]["kind"] for each in revisions(api, **query)]

    assert found(kind="plan") == ["plan"]
    assert found(object_id=ids["proxy"]) == found(object_name="first") == ["proxy", "proxy"]
    assert found(username="eva") == found(user_id=ids["user"]) == ["proxy"]
    assert found(kind="proxy", username="admin") == ["proxy"]
    assert found(end_time="2020-01-01T00:00:00Z") == []
    assert len(found(start_time="2020-01-01T00:00:00Z", kind="proxy")) == 2
    numbers, cursor = [], None
    while True:
        query = {"limit": 3, **({} if cursor is None else {"cursor": cursor})}
        data = api.get("/revisions", token, params=query).json["data"]
        numbers += [each["revision"] for each in data["revisions"]]
        cursor = data["next_cursor"]
        assert (cursor is None) is not data["has_more"]
        if cursor is None:
            break
    assert numbers == list(range(newest(api), 0, -1))
    assert data["total"] == len(numbers)


def test_two_states_are_compared_in_both_directions(api: Api, token: dict[str, str]) -> None:
    base = newest(api)
    proxy = create(api, token)
    other = create(api, token, name="other", port=3129)
    for tags in (["a"], ["b"], ["c"]):
        api.patch(f"/proxies/{proxy['id']}", {"tags": tags}, token)
    api.request("DELETE", f"/proxies/{other['id']}", token)
    last = newest(api)

    def compared(first: int, second: int) -> list[tuple[str, str]]:
        data = api.get(f"/revisions/{first}...{second}", token).json["data"]
        assert (data["from_revision"], data["to_revision"]) == (first, second)
        return [(each["name"], each["action"]) for each in data["changes"]]

    assert compared(base, last) == [("first", "create")]
    assert compared(last, base) == [("first", "delete")]
    assert compared(base + 2, base + 3) == [("first", "update")]
    (change,) = api.get(f"/revisions/{base + 5}...{base + 2}", token).json["data"]["changes"]
    assert change["fields"] == [{"field": "tags", "before": ["c"], "after": []}]
    assert compared(last, last) == []
    keys = api.get(f"/revisions/{base}...{last}", token, params={"limit": 1}).json["data"]
    following = api.get(f"/revisions/{base}...{last}", token, params={"cursor": keys["next_cursor"]}).json["data"]
    assert len(keys["changes"]) + len(following["changes"]) == 1


def test_an_object_is_shown_as_it_was(api: Api, token: dict[str, str]) -> None:
    base = newest(api)
    proxy = create(api, token)
    api.patch(f"/proxies/{proxy['id']}", {"tags": ["a"]}, token)

    def then(number: int) -> Any:
        return api.get(f"/revisions/{number}/objects/{proxy['id']}", token).json["data"]

    assert then(base)["document"] is None
    assert then(base + 1)["document"]["tags"] == []
    assert then(base + 2)["document"]["tags"] == ["a"]
    assert (then(base + 2)["kind"], then(base + 2)["name"]) == ("proxy", "first")
    for path in (f"{base + 2}/objects/prx_ffffffffffffffff", f"{base + 3}/objects/{proxy['id']}", "0", "x", "1...x"):
        assert api.get(f"/revisions/{path}", token).status_code == 404


def test_auditors_read_and_administrators_restore(api: Api, token: dict[str, str]) -> None:
    for role, reads in (("auditor", 200), ("operator", 403), ("user", 403)):
        api.add_user(role, role=role)
        headers = api.token(role)
        for path in ("/revisions", "/revisions/1", "/revisions/1...1"):
            assert api.get(path, headers).status_code == reads
        assert api.post("/revisions/1/restore", None, headers).status_code == 403
    assert api.post("/revisions/1/restore", None, api.key(permissions=["settings.write"])).status_code == 403
    assert api.get("/revisions", token, params={"kind": "thing"}).status_code == 400
    assert api.get("/revisions", token, params={"cursor": "x"}).status_code == 400


# --- restoring ----------------------------------------------------------------------------------------------------


def test_a_state_comes_back_whole_with_its_secrets(api: Api, token: dict[str, str]) -> None:
    ids = fill(api, token)
    then, base = everything(api), newest(api)
    for kind, path in (("proxy", "proxies"), ("webhook", "webhooks"), ("account", "accounts")):
        assert api.request("DELETE", f"/{path}/{ids[kind]}", token).status_code == 200
    assert api.request("DELETE", f"/plans/{ids['plan']}", token).status_code == 200
    assert api.request("DELETE", f"/users/{ids['user']}", token).status_code == 200
    api.request("DELETE", "/settings/logging.level", token)
    create(api, token, name="first", port=3500)
    create(api, token, name="second", port=3128)
    changed, last = everything(api), newest(api)
    plan = restore(api, base, "dry_run=true")
    assert (plan["dry_run"], plan["changed"], plan["revision"]) == (True, True, None)
    assert (everything(api), newest(api)) == (changed, last)
    done = restore(api, base)
    assert done["summary"] == {"create": 5, "update": 1, "delete": 2, "unchanged": 0}
    assert (done["restored"], done["revision"], done["not_restored"]) == (base, last + 1, [])
    assert everything(api) == then
    assert ids["proxy"] in api.fleet.desired
    assert api.fleet.desired[ids["proxy"]].upstreams.entries[0].password == SECRETS[1]
    assert api.fleet.stored == {"logging": {"level": "debug"}}
    assert revisions(api, limit=1)[0]["restored"] == base
    restore(api, last)
    assert everything(api)["proxies"] == changed["proxies"]


@pytest.mark.parametrize("undo", [False, True])
def test_a_deleted_user_who_comes_back_has_no_sign_in_of_before(api: Api, token: dict[str, str], undo: bool) -> None:
    """Not either one of a node that was cut off when the user was deleted, and comes with it later."""
    ids = fill(api, token)
    tokens = api.services.tokens
    issued = api.post("/auth/login", {"username": "eva", "password": SECRETS[3]}).json["data"]
    (family,) = api.store.find("refresh_families", user_id=ids["user"])
    base = newest(api)
    assert api.request("DELETE", f"/users/{ids['user']}", token).status_code == 200
    if undo:
        assert api.post(f"/revisions/{base + 1}/undo", None, token).status_code == 200
    else:
        restore(api, base)
    assert api.store.get("refresh_families", family.id) is None
    api.store.put("refresh_families", family.body, 0)
    assert not tokens.fits_user(family.body)
    bearer = {"Authorization": f"Bearer {issued['access_token']}"}
    assert api.get("/auth/test", bearer).status_code == 401
    assert api.post("/auth/refresh", {"refresh_token": issued["refresh_token"]}).status_code == 401
    again = api.post("/auth/login", {"username": "eva", "password": SECRETS[3]}).json["data"]
    assert api.get("/auth/test", {"Authorization": f"Bearer {again['access_token']}"}).status_code == 200


def test_a_restore_is_in_the_trail_and_an_event(api: Api, token: dict[str, str]) -> None:
    proxy = create(api, token)
    base = newest(api)
    api.patch(f"/proxies/{proxy['id']}", {"tags": ["a"]}, token)
    restore(api, base)
    restored, updated = rows(api, limit=2)
    assert (restored["action"], restored["resource"]["id"]) == ("config.restored", str(base))
    assert restored["details"] == {"revision": base + 2}
    assert (updated["action"], updated["operation"]) == ("proxy.updated", "restoreRevision")
    (event,) = api.fleet.published("config.restored")
    assert (event["restored"], event["revision"], event["by"]["user_id"]) == (base, base + 2, api.admin.id)
    assert restore(api, base)["changed"] is False
    assert newest(api) == base + 2
    assert len(api.fleet.published("config.restored")) == 1


def test_only_the_named_objects_come_back(api: Api, token: dict[str, str]) -> None:
    one, two = create(api, token), create(api, token, name="two", port=3129)
    base = newest(api)
    for each in (one, two):
        api.patch(f"/proxies/{each['id']}", {"tags": ["a"]}, token)
    done = restore(api, base, f"object_id={two['id']}")
    assert done["summary"] == {"create": 0, "update": 1, "delete": 0, "unchanged": 0}
    tags = {each.body["name"]: each.body["tags"] for each in api.store.find("proxies")}
    assert tags == {"first": ["a"], "two": []}
    other = api.post(f"/revisions/{base}/restore", None, token, query_string="object_id=prx_ffffffffffffffff")
    assert error_of(other)[0] == 400


def test_keys_and_passwords_of_users_stay_and_are_named(api: Api, token: dict[str, str]) -> None:
    revoked = api.post("/api-keys", {"name": "revoked"}, token).json["data"]["api_key"]["id"]
    eva = api.post("/users", {"username": "eva", "password": PASSWORD}, token).json["data"]["user"]["id"]
    base = newest(api)
    api.request("DELETE", f"/api-keys/{revoked}", token)
    made = api.key(name="made")
    api.patch(f"/users/{eva}", {"password": "another good one", "role": "operator"}, token)
    done = restore(api, base)
    assert {(each["kind"], each["name"], each["field"]) for each in done["not_restored"]} == {
        ("api_key", "revoked", None),
        ("api_key", "made", None),
        ("user", "eva", "password"),
    }
    assert api.store.get("api_keys", revoked) is None
    assert api.get("/proxies", made).status_code == 200
    user = api.store.get("users", eva)
    assert user is not None
    assert user.body["role"] == "user"
    assert check_password("another good one", user.body["password_hash"])


def of_accounts(api: Api) -> tuple[Any, list[Any]]:
    """The hashes of the account of the fleet and of the proxy."""
    (account,), (proxy,) = api.services.account_store.find("accounts"), api.store.find("proxies")
    inline = [proxy.body["auth"]["password_hash"], *(each["password_hash"] for each in proxy.body["accounts"])]
    return account.body["password_hash"], inline


@pytest.mark.parametrize("with_passwords", [False, True])
def test_passwords_of_accounts_and_proxies_stay_unless_they_are_asked_for(
    api: Api, token: dict[str, str], with_passwords: bool
) -> None:
    proxy = create(
        api,
        token,
        auth={"enabled": True, "username": "c", "password": "first-of-c"},
        accounts=[{"username": name, "password": f"first-of-{name}"} for name in ("ann", "ben")],
    )
    account = {"username": "ada", "password": "first-of-ada", "limits": {"connections": 1}}
    path = f"/accounts/{api.post('/accounts', account, token).json['data']['account']['id']}"
    user = api.post("/users", {"username": "eva", "password": PASSWORD}, token).json["data"]["user"]["id"]
    base, then = newest(api), of_accounts(api)
    inline = f"/proxies/{proxy['id']}"
    api.patch(inline, {"auth": {"password": "second-of-c"}, "tags": ["changed"]}, token)
    api.patch(f"{inline}/accounts/ann", {"password": "second-of-ann"}, token)
    api.request("DELETE", f"{inline}/accounts/ben", token)
    api.patch(path, {"password": "second-of-ada", "limits": {"connections": 2}}, token)
    api.patch(f"/users/{user}", {"password": "another good one"}, token)
    now = of_accounts(api)
    done = restore(api, base, f"with_passwords={str(with_passwords).lower()}")
    named = {(each["kind"], each["name"], each["field"]) for each in done["not_restored"]}
    document = api.store.get("users", user)
    assert document is not None
    assert check_password(PASSWORD if with_passwords else "another good one", document.body["password_hash"])
    if with_passwords:
        assert (of_accounts(api), named) == (then, set())
    else:
        ben = then[1][2]  # was deleted, and comes back as it was
        assert of_accounts(api) == (now[0], [*now[1][:2], ben])
        assert named == {
            ("account", "ada", "password"),
            ("proxy", "first", "auth.password"),
            ("proxy", "first", "accounts[ann].password"),
            ("user", "eva", "password"),
        }
    assert api.get(path, token).json["data"]["account"]["limits"]["connections"] == 1
    assert api.get(inline, token).json["data"]["proxy"]["tags"] == []


def test_no_sign_in_of_a_holder_that_has_ended_is_revived(api: Api, token: dict[str, str]) -> None:
    api.services.self_service.enabled = lambda: True
    ids = {name: account(api, name) for name in ("changed", "disabled", "deleted", "expired", "same")}
    proxy = create(api, token, accounts=[{"username": "inline", "password": HOLDERS}])
    holders = {name: sign_in(api, name) for name in (*ids, "inline")}
    base = newest(api)
    api.patch(f"/accounts/{ids['changed']}", {"password": "a second one"}, token)
    api.patch(f"/accounts/{ids['disabled']}", {"enabled": False}, token)
    api.patch(f"/accounts/{ids['expired']}", {"expires_at": "2099-01-01T00:00:00Z"}, token)
    api.patch(f"/accounts/{ids['same']}", {"tags": ["x"]}, token)
    api.request("DELETE", f"/accounts/{ids['deleted']}", token)
    api.request("DELETE", f"/proxies/{proxy['id']}", token)
    restore(api, base, "with_passwords=true")
    live = {name for name, headers in holders.items() if api.get("/me", headers).status_code == 200}
    assert live == {"same"}
    for name in holders:
        assert api.get("/me", sign_in(api, name)).status_code == 200


def test_a_restore_binds_first_and_changes_nothing_when_that_fails(api: Api, token: dict[str, str]) -> None:
    proxy = create(api, token)
    base = newest(api)
    api.request("DELETE", f"/proxies/{proxy['id']}", token)
    api.fleet.taken.add(3128)
    status, _, details = error_of(api.post(f"/revisions/{base}/restore", None, token))
    assert (status, details["field"]) == (400, f"proxies.{proxy['id']}.port")
    assert (api.store.find("proxies"), newest(api)) == ([], base + 1)


def test_what_would_not_fit_together_is_refused_with_the_field(api: Api, token: dict[str, str]) -> None:
    proxy = create(api, token)
    plan = api.post("/plans", {"name": "basic"}, token).json["data"]["plan"]["id"]
    account = api.post("/accounts", {"username": "ada", "plan": "basic"}, token).json["data"]["account"]["id"]
    base = newest(api)
    api.request("DELETE", f"/proxies/{proxy['id']}", token)
    create(api, token, port=3500)
    api.request("DELETE", f"/accounts/{account}", token)
    api.request("DELETE", f"/plans/{plan}", token)
    for identifier, field in ((proxy["id"], f"proxies.{proxy['id']}.name"), (account, f"accounts.{account}.plan")):
        refused = api.post(f"/revisions/{base}/restore", None, token, query_string=f"object_id={identifier}")
        assert (error_of(refused)[0], error_of(refused)[2]["field"]) == (400, field)


def test_no_administrator_loses_administration_by_it(api: Api, token: dict[str, str]) -> None:
    made = api.post("/users", {"username": "eva", "password": PASSWORD}, token).json["data"]["user"]["id"]
    base = newest(api)
    api.patch(f"/users/{made}", {"role": "administrator"}, token)
    refused = api.post(f"/revisions/{base}/restore", None, api.token("eva"))
    assert (error_of(refused)[0], error_of(refused)[2]["field"]) == (400, f"users.{made}.role")


def test_it_makes_what_the_dry_run_has_shown_or_nothing(api: Api, token: dict[str, str]) -> None:
    proxy = create(api, token)
    base = newest(api)
    api.patch(f"/proxies/{proxy['id']}", {"tags": ["a"]}, token)
    plan = api.post(f"/revisions/{base}/restore", None, token, query_string="dry_run=true")
    etag = plan.headers["ETag"]
    api.patch(f"/proxies/{proxy['id']}", {"description": "other"}, token)
    bound = {**token, "If-Match": etag}
    assert api.post(f"/revisions/{base}/restore", None, bound).status_code == 412


def test_secrets_that_no_key_opens_are_named_as_missing(api: Api, token: dict[str, str]) -> None:
    ids = fill(api, token)
    base = newest(api)
    for kind, path in (("proxy", "proxies"), ("webhook", "webhooks")):
        api.request("DELETE", f"/{path}/{ids[kind]}", token)
    api.services.close()
    for each in api.data.keys.glob("*secret*"):
        each.unlink()
    del api.services
    api.start()
    done = restore(api, base, "object_id=" + ids["proxy"] + "&object_id=" + ids["webhook"])
    assert sorted((each["kind"], each["field"]) for each in done["not_restored"]) == [
        ("proxy", "auth.password"),
        ("proxy", "upstreams[0].auth.password"),
        ("webhook", "headers.X-Plain"),
        ("webhook", "secret"),
    ]
    assert api.fleet.desired[ids["proxy"]].upstreams.entries[0].password is None


def test_a_replaced_secret_of_a_webhook_stays_valid_beside_the_restored_one(api: Api, token: dict[str, str]) -> None:
    ids = fill(api, token)
    base = newest(api)
    first = api.store.get("webhooks", ids["webhook"])
    api.post(f"/webhooks/{ids['webhook']}/rotate-secret", None, token)
    second = api.store.get("webhooks", ids["webhook"])
    restore(api, base)
    now = api.store.get("webhooks", ids["webhook"])
    assert first is not None
    assert second is not None
    assert now is not None
    assert now.body["secret_sealed"] == first.body["secret_sealed"]
    assert now.body["previous_secrets"][0]["sealed"] == second.body["secret_sealed"]


# --- what is kept -------------------------------------------------------------------------------------------------


def test_old_and_surplus_revisions_are_deleted_and_later_states_still_come_back(
    api: Api, token: dict[str, str]
) -> None:
    proxy = create(api, token)
    for number in range(10):
        api.patch(f"/proxies/{proxy['id']}", {"tags": [f"t{number}"]}, token)
    last, history = newest(api), api.services.history
    assert history.prune(Limits(), time.time()) == 0
    assert history.prune(Limits(revisions=4), time.time()) == last - 4
    assert [each["revision"] for each in revisions(api)] == list(range(last, last - 4, -1))
    assert api.get(f"/revisions/{last - 4}", token).status_code == 404
    restore(api, last - 3)
    assert api.store.find("proxies")[0].body["tags"] == ["t6"]
    assert history.prune(Limits(size=0), time.time()) == 4
    api.patch(f"/proxies/{proxy['id']}", {"tags": []}, token)
    assert history.prune(Limits(days=90), time.time() + 91 * 86400) == 1
    assert [each["revision"] for each in revisions(api)] == [last + 2]
    api.start()
    api.patch(f"/proxies/{proxy['id']}", {"tags": ["x"]}, token)
    assert newest(api) == last + 3


def test_an_object_whose_revision_is_deleted_while_it_is_read_is_not_found(api: Api, token: dict[str, str]) -> None:
    proxy = create(api, token)
    key, last = ("proxies", proxy["id"]), newest(api)
    assert api.services.revisions.between(last - 1, last, key).before is None
    with pytest.raises(NotFound):
        api.services.revisions.between(last, last + 1, key)


def test_a_revision_whose_deletion_is_cut_off_is_gone_and_the_next_round_deletes_the_rest(
    api: Api, token: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    api.engine.commit([Write("api_keys", str(each), {"id": str(each), "name": f"w{each}"}) for each in range(12)])
    large, history, begin = newest(api), api.services.history, api.engine.file.transaction
    create(api, token)
    history.prune(Limits(revisions=2), time.time())
    monkeypatch.setattr("api.history.recorder.PRUNED_AT_ONCE", 5)
    monkeypatch.setattr(api.engine.file, "transaction", Mock(side_effect=[begin(), begin()]))  # a third is not begun
    with pytest.raises(StopIteration):
        history.prune(Limits(revisions=1), time.time())
    monkeypatch.setattr(api.engine.file, "transaction", begin)
    assert [each["revision"] for each in revisions(api)] == [large + 1]
    assert error_of(api.post(f"/revisions/{large}/undo", {}, token))[0] == 404
    history.prune(Limits(revisions=1), time.time())
    assert api.engine.file.database.execute("SELECT DISTINCT number FROM revision_changes").fetchall() == [(large + 1,)]


def test_an_installation_without_history_begins_with_a_revision_of_its_own(api: Api) -> None:
    (first,) = revisions(api)
    assert (first["revision"], first["actor"]["type"], first["objects"]) == (1, "system", [])
    api.start()
    assert len(revisions(api)) == 1


def test_the_settings_of_what_is_kept_hold_at_the_next_round(api: Api, token: dict[str, str]) -> None:
    pruning = HistoryPruning(api.services.history, lambda: api.services.settings.history)
    for number in range(5):
        create(api, token, name=f"p{number}", port=4000 + number)
    pruning.act()
    assert len(revisions(api)) == newest(api)
    assert api.patch("/settings", {"history": {"max_revisions": 2}}, token).status_code == 200
    pruning.act()
    assert len(revisions(api)) == 2
    assert api.patch("/settings", {"history": {"max_revisions": 0}}, token).status_code == 400


def test_changes_of_all_kinds_at_once_are_numbered_without_gaps_and_none_is_lost(
    api: Api, token: dict[str, str]
) -> None:
    base, lines = newest(api), {**token, "Content-Type": "application/x-ndjson"}

    def accounts(number: int) -> Any:
        body = "".join(f'{{"username":"line-{number}-{each}"}}\n' for each in range(5))
        return api.request("POST", "/accounts/import", lines, body=body.encode())

    acts: list[Callable[[int], Any]] = [
        lambda number: api.post("/proxies", {**PROXY, "name": f"p{number}", "port": 5000 + number}, token),
        lambda number: api.post("/accounts", {"username": f"a{number}"}, token),
        lambda number: api.post("/plans", {"name": f"plan{number}"}, token),
        lambda number: api.post("/api-keys", {"name": f"k{number}"}, token),
        lambda number: api.patch("/settings", {"proxy": {"default_timeout": 40 + number}}, token),
        lambda number: api.post("/config/import", {**HEAD, "accounts": [{"username": f"i{number}"}]}, token),
        accounts,
    ]

    def act(place: int) -> list[int]:
        return [acts[place](number).status_code for number in range(8)]

    with ThreadPoolExecutor(len(acts)) as pool:
        statuses = [each for found in pool.map(act, range(len(acts))) for each in found]
    assert {each // 100 for each in statuses} == {2}
    assert [each["revision"] for each in revisions(api, limit=1000)] == list(range(newest(api), 0, -1))
    assert newest(api) == base + len(statuses)
    restore(api, base)
    data = everything(api)
    assert (data["proxies"], data["accounts"], data["plans"]) == ([], [], [])
