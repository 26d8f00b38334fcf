"""Undoing one revision: what it changed goes back, later changes stay, and what stands in the way is named."""

from __future__ import annotations

from typing import Any

import pytest

from actors.bus.messages.common import METRICS, WEBHOOKS, Done
from config.passwords import check_password
from tests.kit.api_stage import PASSWORD, Api
from tests.unit.api.audit_reader import rows
from tests.unit.api.creating import create
from tests.unit.api.holding import PASSWORD as HOLDERS
from tests.unit.api.holding import account, sign_in
from tests.unit.api.importing import HEAD
from tests.unit.api.revising import everything, newest, restore, shown, undo, undone

RULES = [
    {"name": name, "match": {"destinations": [f"{name}.example"]}, "action": {"use": "deny"}}
    for name in ("ads", "shops", "videos")
]
HOPS = [
    {"protocol": "http", "host": "10.0.0.1", "port": 1, "auth": {"username": "u", "password": "p"}, "name": "one"},
    {"protocol": "http", "host": "10.0.0.2", "port": 1, "name": "two"},
]


@pytest.fixture
def token(api: Api) -> dict[str, str]:
    api.fleet.others[WEBHOOKS] = api.fleet.others[METRICS] = lambda _message: Done()
    return api.token()


def problems(api: Api, number: int, query: str = "") -> dict[str, str]:
    """The errors of an undo that is refused, by their fields."""
    response = undo(api, number, query)
    assert response.status_code == 400, response.text
    details = response.json["error"]["details"]
    found = details.get("errors", [details])
    return {each["field"]: each["error"] for each in found}


def test_later_changes_stay_and_the_revision_says_which_one_it_undoes(api: Api, token: dict[str, str]) -> None:
    proxy = create(api, token, access={"deny_destinations": ["ads.example"]})
    path = f"/proxies/{proxy['id']}"
    api.patch(path, {"access": {"deny_destinations": ["ads.example", "shop.example"]}, "tags": ["a"]}, token)
    mistake = newest(api)
    api.patch(path, {"access": {"deny_destinations": ["ads.example", "shop.example", "games.example"]}}, token)
    api.patch(path, {"description": "kept"}, token)
    other = create(api, token, name="other", port=3129)
    last = newest(api)
    plan = undone(api, mistake, "dry_run=true")
    assert (plan["revision"], newest(api)) == (None, last)
    done = undone(api, mistake)
    assert done["changes"] == plan["changes"]
    assert done["summary"] == {"create": 0, "update": 1, "delete": 0, "unchanged": 0}
    assert (done["undone"], done["restored"], done["revision"]) == (mistake, None, last + 1)
    now = api.get(path, token).json["data"]["proxy"]
    assert now["access"]["deny_destinations"] == ["ads.example", "games.example"]
    assert (now["tags"], now["description"]) == ([], "kept")
    assert api.get(f"/proxies/{other['id']}", token).status_code == 200
    view = shown(api, last + 1)
    assert (view["revision"]["undone"], view["revision"]["restored"], view["newest"]) == (mistake, None, last + 1)
    entry = rows(api, limit=1)[0]
    assert (entry["action"], entry["resource"]["id"], entry["details"]) == (
        "config.undone",
        str(mistake),
        {"revision": last + 1},
    )
    (event,) = api.fleet.published("config.undone")
    assert (event["undone"], event["revision"]) == (mistake, last + 1)
    assert undone(api, mistake)["changed"] is False
    assert undone(api, last + 1)["changed"] is True
    assert api.get(path, token).json["data"]["proxy"]["tags"] == ["a"]


def test_a_field_that_was_changed_again_is_refused_with_the_revisions_and_who(api: Api, token: dict[str, str]) -> None:
    proxy = create(api, token)
    api.add_user("greta", role="administrator")
    api.patch(f"/proxies/{proxy['id']}", {"tags": ["x"], "settings": {"timeout": 9}}, token)
    first = newest(api)
    api.patch(f"/proxies/{proxy['id']}", {"settings": {"timeout": 10}}, api.token("greta"))
    api.patch(f"/proxies/{proxy['id']}", {"description": "is no reason"}, token)
    field = f"proxies.{proxy['id']}.settings.timeout"
    before = everything(api)
    assert problems(api, first) == {
        field: f"was changed since in the proxy 'first' by revision {first + 1} (greta); undo that first, or change it"
        " by hand"
    }
    assert everything(api) == before
    api.patch(f"/proxies/{proxy['id']}", {"settings": {"timeout": 11}}, token)
    text = problems(api, first)[field]
    assert f"by the revisions {first + 3} (admin), {first + 1} (greta); undo these first, in this order" in text
    for number in (first + 3, first + 1, first):
        undone(api, number)
    now = api.get(f"/proxies/{proxy['id']}", token).json["data"]["proxy"]
    assert (now["settings"]["timeout"], now["tags"], now["description"]) == (30, [], "is no reason")


def test_what_it_created_is_deleted_unless_it_was_changed_or_others_use_it(api: Api, token: dict[str, str]) -> None:
    made = api.post("/pools", {"name": "europe", "upstreams": ["http://10.0.0.1:1"]}, token)
    pool, first = made.json["data"]["pool"]["id"], newest(api)
    proxy = create(api, token, pool="europe")
    second = newest(api)
    assert problems(api, first) == {"pools": "the pool 'europe' would be deleted, and the proxy 'first' names it"}
    api.patch(f"/pools/{pool}", {"description": "changed"}, token)
    undone(api, second)
    assert [api.store.get("proxies", proxy["id"]), api.store.find("proxies")] == [None, []]
    assert problems(api, first) == {
        f"pools.{pool}.description": f"was changed since in the pool 'europe' by revision {second + 1} (admin);"
        " undo that first, or delete it by hand"
    }
    undone(api, second + 1)
    undone(api, first)
    assert api.store.find("pools") == []
    assert undone(api, first)["changed"] is False


def test_an_object_that_it_deleted_is_with_the_supervisor_again(api: Api, token: dict[str, str]) -> None:
    body = {"name": "europe", "upstreams": ["http://10.0.0.1:1"]}
    pool = api.post("/pools", body, token).json["data"]["pool"]["id"]
    api.request("DELETE", f"/pools/{pool}", token)
    undone(api, newest(api))
    assert api.fleet.objects[pool].key == "pool:europe"


def test_what_it_deleted_comes_back_with_its_id_and_its_secrets(api: Api, token: dict[str, str]) -> None:
    hop = {"protocol": "http", "host": "10.0.0.1", "port": 1, "auth": {"username": "u", "password": "of-an-upstream"}}
    proxy = create(api, token, upstreams=[hop])
    then = everything(api)
    api.request("DELETE", f"/proxies/{proxy['id']}", token)
    gone = newest(api)
    api.post("/plans", {"name": "later"}, token)
    done = undone(api, gone)
    assert done["summary"] == {"create": 1, "update": 0, "delete": 0, "unchanged": 0}
    assert everything(api)["proxies"] == then["proxies"]
    assert everything(api)["ids"] == [proxy["id"]]
    assert api.fleet.desired[proxy["id"]].upstreams.entries[0].password == "of-an-upstream"
    assert [each["name"] for each in everything(api)["plans"]] == ["later"]
    api.request("DELETE", f"/proxies/{proxy['id']}", token)
    create(api, token, port=3500)
    assert problems(api, gone).keys() == {f"proxies.{proxy['id']}.name"}


def test_what_is_gone_can_not_get_a_field_back(api: Api, token: dict[str, str]) -> None:
    proxy = create(api, token)
    api.patch(f"/proxies/{proxy['id']}", {"tags": ["x"]}, token)
    changed = newest(api)
    api.request("DELETE", f"/proxies/{proxy['id']}", token)
    assert problems(api, changed) == {
        f"proxies.{proxy['id']}": f"was removed since: the proxy 'first' by revision {changed + 1} (admin);"
        " undo that first, or change it by hand"
    }


def test_what_would_not_fit_together_is_refused_as_in_any_change(api: Api, token: dict[str, str]) -> None:
    api.post("/pools", {"name": "europe", "upstreams": ["http://10.0.0.1:1"]}, token)
    proxy = create(api, token, pool="europe")
    path = f"/proxies/{proxy['id']}"
    assert api.patch(path, {"pool": None}, token).status_code == 200
    number = newest(api)
    assert api.patch(path, {"upstreams": HOPS}, token).status_code == 200
    assert problems(api, number).keys() == {f"proxies.{proxy['id']}.pool"}


def test_rules_of_a_policy_are_taken_back_one_by_one(api: Api, token: dict[str, str]) -> None:
    ads, shops, videos = RULES
    made = api.post("/policies", {"name": "people", "rules": [ads, videos]}, token)
    path = f"/policies/{made.json['data']['policy']['id']}"
    api.patch(path, {"rules": [ads, shops, videos], "end_existing": True}, token)
    added = newest(api)
    api.patch(path, {"rules": [videos, ads, shops]}, token)
    moved = newest(api)
    api.patch(path, {"rules": [videos, ads, {**shops, "mode": "report"}]}, token)
    field = f"{path[1:].replace('/', '.')}.rules[shops].mode"
    assert problems(api, added).keys() == {field}
    undone(api, moved)

    def names() -> list[str]:
        return [each["name"] for each in api.get(path, token).json["data"]["policy"]["rules"]]

    assert names() == ["ads", "shops", "videos"]
    undone(api, moved + 1)
    undone(api, added)
    assert names() == ["ads", "videos"]
    (policy,) = api.store.find("policies")
    assert policy.body["ended"] == 1  # else tunnels would outlive the next change that ends them


def test_only_who_moved_a_rule_stands_in_the_way_of_the_order(api: Api, token: dict[str, str]) -> None:
    ads, shops, videos = RULES
    path = f"/policies/{api.post('/policies', {'name': 'people', 'rules': RULES}, token).json['data']['policy']['id']}"
    api.patch(path, {"rules": [videos, ads, shops]}, token)
    moved = newest(api)
    api.patch(path, {"rules": [videos, ads, {**shops, "mode": "report"}]}, token)
    api.patch(path, {"rules": [ads, videos, {**shops, "mode": "report"}]}, token)
    ((field, error),) = problems(api, moved).items()
    assert field == f"{path[1:].replace('/', '.')}.rules"
    assert f"by revision {moved + 2} (admin);" in error
    undone(api, moved + 2)
    undone(api, moved)
    rules = api.get(path, token).json["data"]["policy"]["rules"]
    assert [(each["name"], each["mode"]) for each in rules] == [
        ("ads", "enforce"),
        ("shops", "report"),
        ("videos", "enforce"),
    ]


def test_of_an_import_one_object_can_be_taken_back_and_settings_too(api: Api, token: dict[str, str]) -> None:
    proxy = create(api, token)
    document = {
        **HEAD,
        "proxies": [{"name": "first", "port": 3128, "protocol": "http", "tags": ["x"]}],
        "plans": [{"name": "basic"}],
        "accounts": [{"username": f"u{number}", "plan": "basic"} for number in range(40)],
        "settings": {"proxy": {"default_timeout": 31}, "logging": {"level": "debug"}},
    }
    assert api.post("/config/import", document, token).status_code == 200
    number = newest(api)
    api.patch("/settings", {"logging": {"level": "warning"}}, token)
    assert undone(api, number, f"object_id={proxy['id']}")["summary"]["update"] == 1
    assert api.get(f"/proxies/{proxy['id']}", token).json["data"]["proxy"]["tags"] == []
    assert problems(api, number, "object_id=prx_ffffffffffffffff").keys() == {"object_id"}
    assert problems(api, number) == {
        "settings.logging.level": f"was changed since by revision {number + 1} (admin); undo that first, or change it"
        " by hand"
    }
    undone(api, number + 1)
    assert undone(api, number)["summary"] == {"create": 0, "update": 1, "delete": 41, "unchanged": 1}
    assert (everything(api)["accounts"], everything(api)["plans"]) == ([], [])
    assert api.fleet.stored == {}


@pytest.mark.parametrize("with_passwords", [False, True])
def test_passwords_stay_unless_they_are_asked_for(api: Api, token: dict[str, str], with_passwords: bool) -> None:
    made = api.post("/accounts", {"username": "ada", "password": "first-of-ada"}, token)
    path = f"/accounts/{made.json['data']['account']['id']}"
    api.patch(path, {"password": "second-of-ada", "tags": ["x"]}, token)
    number, query = newest(api), f"with_passwords={str(with_passwords).lower()}"
    done = undone(api, number, query)
    (account,) = api.services.account_store.find("accounts")
    assert check_password("first-of-ada" if with_passwords else "second-of-ada", account.body["password_hash"])
    assert account.body["tags"] == []
    left = [] if with_passwords else [("account", "ada", "password")]
    assert [(each["kind"], each["name"], each["field"]) for each in done["not_restored"]] == left
    undone(api, newest(api), query)
    api.patch(path, {"password": "third-of-ada"}, token)
    if with_passwords:
        assert problems(api, number, query).keys() == {f"{path[1:].replace('/', '.')}.password"}
    else:
        assert undone(api, number, query)["summary"]["update"] == 1


def test_what_holders_did_themselves_stays(api: Api, token: dict[str, str]) -> None:
    api.services.self_service.enabled = lambda: True
    may = {"name": "basic", "self_service": {"password": True, "credentials": True}}
    assert api.post("/plans", may, token).status_code == 201
    path = f"/accounts/{account(api, plan='basic')}"
    base, holder = newest(api), sign_in(api)
    revoked, kept = (
        api.post("/me/credentials", {"ttl": 600}, holder).json["data"]["credential"]["id"] for _ in range(2)
    )
    api.patch(path, {"tags": ["mistake"]}, token)
    mistake = newest(api)
    assert api.request("DELETE", f"/me/credentials/{revoked}", holder).status_code == 200
    body = {"password": "a word of my own", "current_password": HOLDERS}
    assert api.patch("/me", body, holder).status_code == 200
    for take_back in (lambda: undone(api, mistake), lambda: undone(api, newest(api)), lambda: restore(api, base)):
        done = take_back()
        assert done["changed"]
        credentials = api.get(f"{path}/credentials", token).json["data"]["credentials"]
        assert [each["id"] for each in credentials] == [kept]
        api.get("/me", sign_in(api, password="a word of my own"))


def test_keys_stay_and_are_named(api: Api, token: dict[str, str]) -> None:
    key = api.post("/api-keys", {"name": "of-ci"}, token).json["data"]["api_key"]["id"]
    (left,) = undone(api, newest(api))["not_restored"]
    assert (left["kind"], left["name"], left["field"]) == ("api_key", "of-ci", None)
    assert api.store.get("api_keys", key) is not None


def test_an_undo_of_the_newest_revision_is_the_state_before_it(api: Api, token: dict[str, str]) -> None:
    """Whatever it was, also another undo."""
    proxy = create(api, token, accounts=[{"username": "ann", "password": PASSWORD}])
    path = f"/proxies/{proxy['id']}"
    made = api.post("/policies", {"name": "people", "rules": RULES}, token).json["data"]["policy"]["id"]
    user = api.post("/users", {"username": "eva", "password": PASSWORD}, token).json["data"]["user"]["id"]
    acts: list[tuple[str, str, Any]] = [
        ("PATCH", path, {"limits": {"requests_per_minute": 1}, "tags": ["a", "b"]}),
        ("PATCH", path, {"upstreams": HOPS}),
        ("PATCH", path, {"upstreams": HOPS[1:], "policy": "people"}),
        ("PATCH", f"{path}/accounts/ann", {"enabled": False}),
        ("PATCH", f"/policies/{made}", {"rules": [RULES[2], RULES[0]]}),
        ("PATCH", f"/users/{user}", {"role": "operator"}),
        ("DELETE", f"/users/{user}", None),
        ("POST", "/plans", {"name": "basic", "limits": {"connections": 5}}),
        ("PATCH", "/settings", {"logging": {"level": "debug"}}),
        ("DELETE", path, None),
    ]
    for method, where, body in acts:
        then, base = everything(api), newest(api)
        assert api.request(method, where, api.token(), json=body).status_code < 300
        assert newest(api) == base + 1
        changed = everything(api)
        undone(api, base + 1)
        assert everything(api) == then
        restore(api, base + 1)
        assert everything(api) == changed
        for state in (then, changed):
            undone(api, newest(api))
            assert everything(api) == state
