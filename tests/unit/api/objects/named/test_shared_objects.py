"""Lists, pools and policies in the API: one mechanism for all of them."""

from __future__ import annotations

from typing import Any

import pytest
from falcon.testing import Result

from actors.bus.codec import unpack
from actors.bus.messages.specs import PoolSpec
from api.objects.kinds import NAMED
from api.objects.named.named_kind import NamedKind
from config.model.fields import example_of
from tests.kit.api_stage import PROXY, Api, error_of
from tests.unit.api.audit_reader import rows

ALL = pytest.mark.parametrize("kind", NAMED.values(), ids=list(NAMED))


def body_of(kind: NamedKind[Any], **fields: Any) -> dict[str, Any]:
    return {**example_of(kind.create), **fields}


def made(api: Api, kind: NamedKind[Any], **fields: Any) -> dict[str, Any]:
    response = api.post(f"/{kind.collection}", body_of(kind, **fields), api.token())
    assert response.status_code == 201, response.json
    view: dict[str, Any] = response.json["data"][kind.name]
    return view


def problem(response: Result) -> tuple[str, str]:
    """The field at fault and the error of a refusal."""
    status, _, details = error_of(response)
    assert status == 400
    return details.get("field", ""), details["error"]


def delete(api: Api, path: str, headers: dict[str, str] | None = None) -> Result:
    return api.request("DELETE", path, {**api.token(), **(headers or {})})


@ALL
def test_an_object_is_made_shown_changed_and_deleted_by_its_id_and_by_its_name(api: Api, kind: NamedKind[Any]) -> None:
    view = made(api, kind, name="first")
    for key in (view["id"], "first"):
        shown = api.get(f"/{kind.collection}/{key}", api.token())
        assert shown.json["data"][kind.name] == view
    changed = api.patch(f"/{kind.collection}/first", {"description": "other", "name": "second"}, api.token())
    assert changed.json["data"][kind.name]["description"] == "other"
    assert api.get(f"/{kind.collection}/first", api.token()).status_code == 404
    deleted = delete(api, f"/{kind.collection}/second")
    assert deleted.json["data"] == {"id": view["id"], "deleted": True}
    assert api.get(f"/{kind.collection}/{view['id']}", api.token()).status_code == 404


@ALL
def test_a_stale_revision_is_refused(api: Api, kind: NamedKind[Any]) -> None:
    made(api, kind, name="first")
    etag = api.get(f"/{kind.collection}/first", api.token()).headers["etag"]
    assert (
        api.patch(f"/{kind.collection}/first", {"description": "a"}, {**api.token(), "If-Match": etag}).status_code
        == 200
    )
    stale = {"If-Match": etag}
    changed = api.patch(f"/{kind.collection}/first", {"description": "b"}, {**api.token(), **stale})
    assert changed.status_code == delete(api, f"/{kind.collection}/first", stale).status_code == 412


@ALL
def test_a_change_of_nothing_is_none(api: Api, kind: NamedKind[Any]) -> None:
    view = made(api, kind, name="first")
    given = {name: value for name, value in body_of(kind).items() if name != "name"}
    again = api.put(f"/{kind.collection}/first", given, api.token())
    assert again.json["data"][kind.name] == view
    assert api.fleet.published(f"{kind.name}.updated") == []


@ALL
def test_a_name_is_that_of_one_object(api: Api, kind: NamedKind[Any]) -> None:
    made(api, kind, name="first")
    made(api, kind, name="second")
    taken = ("name", 'the name "first" is in use')
    assert problem(api.post(f"/{kind.collection}", body_of(kind, name="first"), api.token())) == taken
    assert problem(api.patch(f"/{kind.collection}/second", {"name": "first"}, api.token())) == taken


@ALL
def test_pages_follow_each_other_and_are_filtered(api: Api, kind: NamedKind[Any]) -> None:
    for name in ("one", "two", "three"):
        made(api, kind, name=name, description="of few" if name == "two" else "")
    path = f"/{kind.collection}"
    first = api.get(f"{path}?limit=2", api.token()).json["data"]
    assert ([each["name"] for each in first[kind.collection]], first["has_more"]) == (["one", "two"], True)
    assert kind.entries not in first[kind.collection][0]
    assert first[kind.collection][0][kind.count] == len(body_of(kind)[kind.entries])
    rest = api.get(f"{path}?limit=2&cursor={first['next_cursor']}", api.token()).json["data"]
    assert ([each["name"] for each in rest[kind.collection]], rest["next_cursor"]) == (["three"], None)
    found = api.get(f"{path}?q=FEW", api.token()).json["data"]
    assert [each["name"] for each in found[kind.collection]] == ["two"]
    assert problem(api.get(f"{path}?q=x&cursor={first['next_cursor']}", api.token()))[0] == "cursor"


@ALL
def test_changes_are_events_and_entries_of_the_audit_trail(api: Api, kind: NamedKind[Any]) -> None:
    view = made(api, kind, name="first")
    api.patch(f"/{kind.collection}/first", {"description": "other"}, api.token())
    delete(api, f"/{kind.collection}/first")
    events = [api.fleet.published(f"{kind.name}.{each}")[0] for each in ("created", "updated", "deleted")]
    assert [(each[f"{kind.name}_id"], each["name"]) for each in events] == [(view["id"], "first")] * 3
    assert events[1]["changed"] == ["description"]
    entries = rows(api, limit=3)
    assert [each["action"] for each in entries] == [f"{kind.name}.{each}" for each in ("deleted", "updated", "created")]
    assert {each["resource"]["id"] for each in entries} == {view["id"]}


@ALL
def test_a_change_is_a_revision_of_the_configuration(api: Api, kind: NamedKind[Any]) -> None:
    made(api, kind, name="first")
    newest = api.get("/revisions?limit=1", api.token()).json["data"]["revisions"][0]
    change = api.get(f"/revisions/{newest['revision']}", api.token()).json["data"]["changes"][0]
    assert (change["kind"], change["name"], change["action"]) == (kind.name, "first", "create")


@ALL
def test_a_reader_may_look_and_not_change(api: Api, kind: NamedKind[Any]) -> None:
    made(api, kind, name="first")
    api.add_user("rita", role="user", permissions=["proxy.read"])
    reader = api.token("rita")
    assert api.get(f"/{kind.collection}", reader).status_code == 200
    assert api.patch(f"/{kind.collection}/first", {"description": "a"}, reader).status_code == 403


def test_a_pool_never_shows_a_password(api: Api) -> None:
    made(api, NAMED["pools"], name="first")
    assert "correct horse" not in api.get("/pools/first", api.token()).text
    assert "correct horse" not in api.get("/audit?limit=3", api.token()).text


# --- objects that name each other ---------------------------------------------------------------------------------


def rule(name: str, *destinations: str, use: str = "direct") -> dict[str, Any]:
    return {"name": name, "match": {"destinations": [*destinations]} if destinations else {}, "action": {"use": use}}


def test_a_policy_names_lists_that_are_there(api: Api) -> None:
    policy = {"name": "builds", "rules": [rule("a"), rule("b", "a.example", "list:mirrors:443")]}
    expected = ("rules[1].match.destinations[1]", "there is no list 'mirrors'")
    assert problem(api.post("/policies", policy, api.token())) == expected
    made(api, NAMED["lists"], name="mirrors")
    assert api.post("/policies", policy, api.token()).status_code == 201


def test_a_port_of_a_host_called_list_names_no_list(api: Api) -> None:
    policy = {"name": "builds", "rules": [rule("a", "list:443")]}
    assert api.post("/policies", policy, api.token()).status_code == 201
    assert problem(api.post("/lists", body_of(NAMED["lists"], name="443"), api.token()))[0] == "name"


def test_an_object_in_use_is_neither_deleted_nor_renamed(api: Api) -> None:
    made(api, NAMED["lists"], name="mirrors")
    for number in range(12):
        body = {"name": f"policy{number}", "rules": [rule("a", "list:mirrors")]}
        assert api.post("/policies", body, api.token()).status_code == 201
    error = problem(delete(api, "/lists/mirrors"))[1]
    assert "in use by 12 (policy policy0, policy policy1, " in error
    assert "policy policy9 and 2 more)" in error
    assert problem(api.patch("/lists/mirrors", {"name": "others"}, api.token()))[0] == "name"
    assert api.patch("/lists/mirrors", {"description": "still"}, api.token()).status_code == 200
    for number in range(12):
        delete(api, f"/policies/policy{number}")
    assert delete(api, "/lists/mirrors").status_code == 200


def test_an_object_says_what_names_it_as_a_refusal_to_delete_it_does(api: Api) -> None:
    made(api, NAMED["lists"], name="mirrors")
    made(api, NAMED["lists"], name="unused")
    made(api, NAMED["pools"], name="paris")
    rules = [rule("a", "list:mirrors", "list:mirrors:443"), rule("b", use="pool:paris")]
    policy = api.post("/policies", {"name": "builds", "rules": rules}, api.token()).json["data"]["policy"]
    proxy = api.post("/proxies", {**PROXY, "name": "office", "policy": "builds"}, api.token()).json["data"]["proxy"]
    plan = {"name": "basic", "policy": "builds", "deny_destinations": ["list:mirrors"]}
    assert api.post("/plans", plan, api.token()).status_code == 201
    account = {"username": "ann", "password": "correct horse", "proxies": {"all": True}, "policy": "builds"}
    account |= {"allow_destinations": ["list:mirrors", "list:mirrors:443"], "deny_destinations": ["list:mirrors"]}
    assert api.post("/accounts", account, api.token()).status_code == 201
    assert api.patch("/settings", {"proxy": {"policy": "builds"}}, api.token()).status_code == 200

    def used(path: str) -> dict[str, Any]:
        data = api.get(path, api.token()).json["data"]
        view: dict[str, Any] = next(each for name, each in data.items() if name != "warnings")
        return view["used_by"]

    def named(path: str) -> list[str]:
        return [f"{each['kind']} {each['name']}" for each in used(path)["first"]]

    of_policy = ["setting proxy.policy", "proxy office", "plan basic", "account ann"]
    assert named("/policies/builds") == of_policy
    assert named("/lists/mirrors") == ["policy builds", "plan basic", "account ann"]
    assert named("/pools/paris") == ["policy builds"]
    assert used("/lists/unused") == {"total": 0, "first": []}
    assert used("/policies/builds")["first"][1]["id"] == proxy["id"]
    assert used("/pools/paris")["first"][0]["id"] == policy["id"]
    for collection, expected in (("policies", [4]), ("lists", [3, 0]), ("pools", [1])):
        listed = api.get(f"/{collection}", api.token()).json["data"][collection]
        assert [each["used_by"] for each in listed] == [{"total": number} for number in expected]
    assert f"in use by 4 ({', '.join(of_policy)})" in problem(delete(api, "/policies/builds"))[1]


def first_rule(api: Api, **rule: Any) -> Result:
    body = {"name": "block", "match": {"destinations": ["casino.example"]}, "action": {"use": "deny"}, **rule}
    return api.post("/policies/builds/rules", body, api.token())


def test_a_rule_is_put_before_all_others_in_place_of_one_of_its_name_and_once(api: Api) -> None:
    body = {"name": "builds", "rules": [rule("a", "a.example"), rule("b", "b.example")]}
    api.post("/policies", body, api.token())
    put = first_rule(api)
    assert put.status_code == 200
    assert [each["name"] for each in put.json["data"]["policy"]["rules"]] == ["block", "a", "b"]
    again = first_rule(api)
    assert (again.json["data"], again.headers["etag"]) == (put.json["data"], put.headers["etag"])
    assert len(api.fleet.published("policy.updated")) == 1
    later = first_rule(api, match={"destinations": ["casino.example"], "until": "2030-01-31T12:00:00+01:00"})
    found = later.json["data"]["policy"]["rules"]
    assert [each["name"] for each in found] == ["block", "a", "b"]
    assert found[0]["match"] == {"destinations": ["casino.example"], "until": "2030-01-31T11:00:00.000Z"}
    stale = {**api.token(), "If-Match": put.headers["etag"]}
    assert api.post("/policies/builds/rules", {**rule("c")}, stale).status_code == 412
    assert api.post("/policies/gone/rules", {**rule("c")}, api.token()).status_code == 404


def test_a_block_without_a_name_is_called_by_what_it_matches_and_the_same_takes_its_place(api: Api) -> None:
    api.post("/policies", {"name": "builds", "rules": []}, api.token())
    proxy = api.post("/proxies", {**PROXY, "name": "office"}, api.token()).json["data"]["proxy"]
    deny = {"use": "deny"}

    def named(match: dict[str, Any]) -> list[str]:
        put = api.post("/policies/builds/rules", {"match": match, "action": deny}, api.token())
        return [each["name"] for each in put.json["data"]["policy"]["rules"]]

    narrow = {"destinations": ["casino.example"], "accounts": ["bob"], "proxies": [proxy["id"], "tag:eu"]}
    first = "block casino.example on office, tag:eu for bob"
    assert named(narrow) == [first]
    assert named({**narrow, "until": "2030-01-31T12:00:00Z"}) == [first]
    assert named({"accounts": ["bob"]})[0] == "block all for bob"
    long = [f"{'x' * 60}.{'y' * 60}{end}.example" for end in "ab"]
    names = [named({"destinations": [each]})[0] for each in long]
    assert {len(each) for each in names} == {100}
    assert len(set(names)) == 2
    refused = api.post("/policies/builds/rules", {"match": {}, "action": {"use": "direct"}}, api.token())
    assert problem(refused) == ("name", "is required of a rule that does not deny")


def test_what_is_wrong_with_a_rule_that_is_put_first_is_named_as_its_body_has_it(api: Api) -> None:
    api.post("/policies", {"name": "builds", "rules": [rule("a")]}, api.token())
    assert problem(first_rule(api, match={"destinations": ["list:gone"]}))[0] == "match.destinations[0]"
    assert problem(first_rule(api, action={"use": "direct", "reason": "x"}))[0] == "action.reason"
    assert problem(first_rule(api, match={"tunnel": True, "methods": ["*"]}))[0] == "match.tunnel"
    full = [rule(str(number)) for number in range(1_000)]
    assert api.patch("/policies/builds", {"rules": full}, api.token()).status_code == 200
    assert problem(first_rule(api)) == ("name", "there are 1,000 rules already")
    assert first_rule(api, name="999").status_code == 200


def test_a_rule_that_has_ended_is_warned_about_and_stays(api: Api) -> None:
    api.post("/policies", {"name": "builds", "rules": []}, api.token())
    ended = first_rule(api, match={"until": "2020-01-01T00:00:00Z"}).json["data"]
    assert [each["field"] for each in ended["warnings"]] == ["rules[0].match.until"]
    exported = everything(api)["policies"][0]["rules"]
    assert exported[0]["match"] == {"until": "2020-01-01T00:00:00.000Z"}
    assert imported(api, policies=everything(api)["policies"]).json["data"]["changed"] is False


def test_a_rule_that_does_less_than_it_seems_to_is_warned_about(api: Api) -> None:
    rules = [{"name": "a", "match": {"paths": ["/simple/*"]}, "action": {"use": "deny"}}]
    response = api.post("/policies", {"name": "builds", "rules": rules}, api.token())
    assert [each["field"] for each in response.json["data"]["warnings"]] == ["rules[0].match.paths"]
    rules = [
        {"name": "plain", "match": {"methods": ["*"]}, "action": {"use": "deny"}},
        {"name": "tunnels", "match": {"tunnel": True}, "action": {"use": "deny"}},
    ]
    response = api.post("/policies", {"name": "all", "rules": rules}, api.token())
    assert response.json["data"]["policy"]["rules"][1]["match"] == {"tunnel": True}
    [warned] = response.json["data"]["warnings"]
    assert warned["warning"].endswith("so over HTTPS all requests pass")


def test_whether_tunnels_are_ended_is_of_the_change_and_in_no_response(api: Api) -> None:
    made(api, NAMED["policies"], name="builds")
    response = api.patch("/policies/builds", {"end_existing": True}, api.token())
    assert not {"end_existing", "ended"} & response.json["data"]["policy"].keys()


# --- the configuration as a whole ---------------------------------------------------------------------------------

DOCUMENT = {"kind": "proxyfleet.config", "version": 1}
POOL = {"name": "lyon", "upstreams": [{"protocol": "http", "host": "192.0.2.7", "port": 3128}]}
MIRRORS = {"name": "mirrors", "kind": "domains", "entries": ["mirror.example"]}
POLICY = {"name": "builds", "rules": [rule("a", "list:mirrors")]}


def imported(api: Api, query: str = "", **sections: Any) -> Result:
    return api.post("/config/import", {**DOCUMENT, **sections}, api.token(), query_string=query)


def everything(api: Api) -> dict[str, Any]:
    found: dict[str, Any] = api.get("/config/export", api.token()).json["data"]
    return {name: found[name] for name in NAMED}


def test_an_export_is_imported_elsewhere_with_its_secrets() -> None:
    passphrase = {"X-Passphrase": "long enough to be safe"}
    here, there = Api(), Api()
    try:
        for kind in NAMED.values():
            made(here, kind)
        exported = here.get("/config/export?secrets=encrypted", {**here.token(), **passphrase}).json["data"]
        assert "correct horse" not in str(exported)
        sections = {name: exported[name] for name in NAMED}
        refused = there.post("/config/import", {**DOCUMENT, **sections}, there.token())
        assert problem(refused)[0] == "pools[0].upstreams[0].auth.password"
        document = {**DOCUMENT, **sections, "secrets": exported["secrets"]}
        assert there.post("/config/import", document, {**there.token(), **passphrase}).status_code == 200
        assert everything(there) == everything(here)
        again = there.post("/config/import", document, {**there.token(), **passphrase})
        assert again.json["data"]["changed"] is False
    finally:
        here.close()
        there.close()


def test_a_dry_run_says_what_an_import_would_change_and_changes_nothing(api: Api) -> None:
    tried = imported(api, "dry_run=true", lists=[MIRRORS], policies=[POLICY]).json["data"]
    assert [(each["kind"], each["name"], each["action"]) for each in tried["changes"]] == [
        ("list", "mirrors", "create"),
        ("policy", "builds", "create"),
    ]
    assert everything(api) == {"lists": [], "pools": [], "policies": []}
    assert imported(api, lists=[MIRRORS], policies=[POLICY]).json["data"]["changed"] is True
    assert [each.data["name"] for each in api.fleet.events if each.type.endswith(".created")] == ["mirrors", "builds"]


def test_an_import_that_leaves_a_name_without_its_object_is_refused(api: Api) -> None:
    assert problem(imported(api, policies=[POLICY]))[0] == "policies[0].rules[0].match.destinations[0]"
    imported(api, lists=[MIRRORS], policies=[POLICY])
    field, error = problem(imported(api, "prune=true", lists=[]))
    assert (field, error) == ("lists", "the list 'mirrors' would be deleted, and the policy 'builds' names it")
    assert imported(api, "prune=true", lists=[], policies=[]).status_code == 200


def test_a_changed_rule_is_one_difference_and_so_is_one_that_is_moved(api: Api) -> None:
    rules = [{"name": "a", "match": {"accounts": ["x"]}, "action": {"use": "deny"}}, rule("b")]
    imported(api, policies=[{"name": "builds", "rules": rules}])
    rules[0]["match"] = {"accounts": ["y"]}
    (change,) = imported(api, policies=[{"name": "builds", "rules": rules}]).json["data"]["changes"]
    assert [each["field"] for each in change["fields"]] == ["rules[a].match.accounts"]
    (change,) = imported(api, policies=[{"name": "builds", "rules": rules[::-1]}]).json["data"]["changes"]
    assert change["fields"] == [{"field": "rules[b].place", "before": 2, "after": 1}]


def test_an_earlier_state_is_restored_with_what_names_each_other(api: Api) -> None:
    first = api.get("/revisions?limit=1", api.token()).json["data"]["revisions"][0]["revision"]
    imported(api, lists=[MIRRORS], policies=[POLICY])
    before = everything(api)
    later = api.get("/revisions?limit=1", api.token()).json["data"]["revisions"][0]["revision"]
    assert api.post(f"/revisions/{first}/restore", None, api.token()).status_code == 200
    assert everything(api) == {"lists": [], "pools": [], "policies": []}
    assert api.post(f"/revisions/{later}/restore", None, api.token()).status_code == 200
    assert everything(api) == before


# --- what the supervisor gets -------------------------------------------------------------------------------------


def keys_of(api: Api) -> list[str]:
    return sorted(each.key for each in api.fleet.objects.values() if each.packed)


def test_the_supervisor_gets_each_change_and_all_of_them_after_an_import(api: Api) -> None:
    made(api, NAMED["pools"], name="paris")
    made(api, NAMED["lists"], name="mirrors")
    api.post("/policies", POLICY, api.token())
    assert keys_of(api) == ["list:mirrors", "policy:builds", "pool:paris"]
    assert [each.names for each in api.fleet.objects.values()] == [(), (), ("list:mirrors",)]
    pool = next(each for each in api.fleet.objects.values() if each.key == "pool:paris")
    assert unpack(PoolSpec, pool.packed).upstreams.entries[0].password == "correct horse"
    assert "correct horse" not in repr(pool)
    delete(api, "/policies/builds")
    assert keys_of(api) == ["list:mirrors", "pool:paris"]
    imported(api, "prune=true", pools=[POOL])
    assert keys_of(api) == ["list:mirrors", "pool:lyon"]


def test_a_change_that_the_supervisor_misses_is_of_the_whole_state_that_it_gets_later(api: Api) -> None:
    with api.fleet.silent_after(0):
        made(api, NAMED["pools"], name="paris")
        assert keys_of(api) == []
        assert [each.key for each in api.services.link.desired_state().objects] == ["pool:paris"]
