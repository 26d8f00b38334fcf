"""Many proxies in one change: all of them or none, one revision, errors that name the entry, and a try before."""

from __future__ import annotations

from typing import Any

import pytest

from actors.bus.messages.common import SUPERVISOR
from api.import_export.proxy_batches import proxy_batch
from api.objects.proxies.proxy_operations import ListProxies
from tests.kit.api_stage import PROXY, Api, error_of
from tests.kit.tables import table

PATH = "/proxies/batch"


def batch(api: Api, query: str = "", **body: Any) -> dict[str, Any]:
    response = api.post(PATH + query, body, api.token())
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json["data"]
    return found


def tried(api: Api, **body: Any) -> dict[str, Any]:
    before = api.services.revisions.newest, dict(api.fleet.bound)
    found = batch(api, "?dry_run=true", **body)
    assert (api.services.revisions.newest, api.fleet.bound) == before
    assert api.fleet.reserved == {}
    return found


def problems(api: Api, **body: Any) -> dict[str, str]:
    """Field and error of a refused batch, which changed nothing."""
    before = api.services.revisions.newest, dict(api.fleet.bound)
    status, _, details = error_of(api.post(PATH, body, api.token()))
    assert (status, api.services.revisions.newest, api.fleet.bound, api.fleet.reserved) == (400, *before, {}), details
    return {str(each["field"]): each["error"] for each in details.get("errors", [details])}


def proxy(number: int, **more: Any) -> dict[str, Any]:
    return {**PROXY, "name": f"p{number}", "port": 4000 + number, **more}


@pytest.fixture
def ids(api: Api) -> list[str]:
    """Three proxies with a tag of their own and one of all; the last two are socks5."""
    protocols = ("http", "socks5", "socks5")
    bodies = [proxy(number, protocol=each, tags=[f"t{number}", "all"]) for number, each in enumerate(protocols)]
    return [each["id"] for each in batch(api, create=bodies)["changes"]]


@pytest.fixture
def account_id(api: Api, ids: list[str]) -> str:
    """An account that may use the first proxy."""
    account = {"username": "alice", "proxies": {"ids": [ids[0]]}}
    return str(api.post("/accounts", account, api.token()).json["data"]["account"]["id"])


def stored(api: Api, proxy_id: str) -> Any:
    return api.services.proxies.get(proxy_id).record


def test_proxies_are_created_changed_and_deleted_in_one_revision(api: Api, ids: list[str]) -> None:
    data = batch(
        api,
        create=[proxy(9)],
        update=[
            {"id": ids[0], "sleep_after": 60},
            {"where": {"tag": "t1"}, "set": {"limits": {"bandwidth_in": 2000}, "add_tags": ["slow"]}},
        ],
        delete=[ids[2]],
    )
    assert data["summary"] == {"create": 1, "update": 2, "delete": 1, "unchanged": 0}
    assert [each["name"] for each in data["changes"]] == ["p9", "p0", "p1", "p2"]
    assert data["changes"][1]["fields"] == [{"field": "sleep_after", "before": 0, "after": 60}]
    assert stored(api, ids[1]).tags == ["t1", "all", "slow"]
    assert {each.name for each in api.fleet.desired.values()} == {"p9", "p0", "p1"}
    revision = api.get("/revisions", api.token()).json["data"]["revisions"][0]
    assert (revision["revision"], revision["operation"]) == (data["revision"], "batchProxies")
    assert revision["summary"] == {"create": 1, "update": 2, "delete": 1}
    published = {kind: len(api.fleet.published(f"proxy.{kind}")) for kind in ("created", "updated", "deleted")}
    assert published == {"created": 4, "updated": 2, "deleted": 1}


@table(
    ("where", "numbers"),
    [
        ({"all": True}, [0, 1, 2]),
        ({"tag": "all"}, [0, 1, 2]),
        ({"tag": ["all", "t1"]}, [1]),
        ({"protocol": "socks5"}, [1, 2]),
        ({"protocol": "socks5", "q": "p2"}, [2]),
        ({"status": "inactive"}, []),
        ({"account": "ACCOUNT"}, [0]),
        ({"ids": ["2", "0"]}, [2, 0]),
    ],
)
def test_filters_select_as_those_of_the_list(
    api: Api, ids: list[str], account_id: str, where: dict[str, Any], numbers: list[int]
) -> None:
    given = {**where, **({"account": account_id} if "account" in where else {})}
    given |= {"ids": [ids[int(each)] for each in where["ids"]]} if "ids" in where else {}
    data = tried(api, update=[{"where": given, "set": {"description": "new"}}])
    assert [each["id"] for each in data["changes"]] == [ids[each] for each in numbers]
    assert data["summary"]["update"] == len(numbers)


def test_one_wrong_entry_changes_nothing_and_all_wrong_ones_are_named(api: Api, ids: list[str]) -> None:
    given = {
        "create": [proxy(9), proxy(8, auth={"enabled": True, "username": "alice"})],
        "update": [
            {"id": "prx_00000000000000aa", "sleep_after": 1},
            {"id": ids[0], "pool": "none"},
            {"where": {"ids": [ids[1], "prx_none"]}, "set": {"tags": ["a"], "add_tags": ["b"]}},
            {"id": ids[0]},
        ],
        "delete": [ids[0], "prx_none"],
    }
    assert problems(api, **given).keys() == {
        "create[1].auth.password",
        "update[0].id",
        "update[1].pool",
        f"update[2].{ids[1]}.tags",
        "update[2].where.ids[1]",
        "update[3].id",
        "delete[0]",
        "delete[1]",
    }
    (entry,) = problems(api, update=[{"where": {"account": "acc_none"}, "set": {}}])
    assert entry == "update[0].where.account"


def test_names_and_ports_are_unique_over_the_whole_and_may_be_swapped(api: Api, ids: list[str]) -> None:
    assert "create[1].port" in problems(api, create=[proxy(8), proxy(9, port=4008)])
    assert "create[1].name" in problems(api, create=[proxy(8), proxy(9, name="p8")])
    assert "update[0].name" in problems(api, update=[{"id": ids[0], "name": "p1"}])
    assert "update[0].port" in problems(api, update=[{"id": ids[0], "port": 4001}])
    batch(
        api,
        update=[{"id": ids[0], "port": 4001, "name": "p1"}, {"id": ids[1], "port": 4000, "name": "p0"}],
    )
    assert [(each.name, each.port) for each in (stored(api, one) for one in ids[:2])] == [("p1", 4001), ("p0", 4000)]
    batch(api, create=[proxy(2)], delete=[ids[2]])  # its name and port are free in this very change


def test_a_dry_run_says_how_many_change_which_are_so_already_and_what_is_refused(api: Api, ids: list[str]) -> None:
    batch(api, update=[{"id": ids[0], "sleep_after": 60}])
    data = tried(api, update=[{"where": {"all": True}, "set": {"sleep_after": 60}}])
    assert (data["dry_run"], data["changed"], data["revision"], data["refused"]) == (True, True, None, [])
    assert data["summary"] == {"create": 0, "update": 2, "delete": 0, "unchanged": 1}
    api.fleet.taken.add(4009)
    auth = {"auth": {"enabled": True, "username": "a"}}
    data = tried(api, create=[proxy(9)], update=[{"where": {"tag": "t0"}, "set": auth}, {"id": ids[1], "workers": 2}])
    refused = {"id": ids[0], "name": "p0", "field": "auth.password", "error": "is required when auth is enabled"}
    assert (data["refused"], data["summary"]["update"]) == ([refused], 1)
    (refused,) = tried(api, create=[proxy(9)])["refused"]
    assert (refused["id"], refused["name"], refused["field"]) == (None, "p9", "port")
    (refused,) = tried(api, delete=["prx_none"])["refused"]
    assert (refused["name"], refused["field"]) == (None, "delete[0]")


def test_what_was_tried_is_made_unless_something_has_changed(api: Api, ids: list[str]) -> None:
    body = {"update": [{"where": {"all": True}, "set": {"sleep_after": 60}}]}
    headers = {**api.token(), "If-Match": api.post(f"{PATH}?dry_run=true", body, api.token()).headers["ETag"]}
    api.patch(f"/proxies/{ids[0]}", {"description": "other"}, api.token())
    assert api.post(PATH, body, headers).status_code == 412
    headers["If-Match"] = api.post(f"{PATH}?dry_run=true", body, api.token()).headers["ETag"]
    assert api.post(PATH, body, headers).status_code == 200


def test_proxies_are_started_and_stopped(api: Api, ids: list[str]) -> None:
    batch(api, update=[{"where": {"all": True}, "set": {"status": "inactive"}}])
    assert [each["proxy_id"] for each in api.fleet.published("proxy.stopped")] == ids
    assert (api.fleet.bound, api.fleet.published("proxy.updated")) == ({}, [])
    api.fleet.taken.add(4001)
    start = [{"where": {"all": True}, "set": {"status": "active"}}]
    assert problems(api, update=start).keys() == {f"update[0].{ids[1]}.port"}
    api.fleet.taken.clear()
    assert batch(api, update=start)["summary"]["update"] == 3
    assert len(api.fleet.published("proxy.started")) == len(api.fleet.bound) == 3


def test_what_is_so_already_is_no_revision(api: Api, ids: list[str]) -> None:
    before = api.services.revisions.newest
    data = batch(api, update=[{"where": {"all": True}, "set": {"add_tags": ["all"], "status": "active"}}])
    assert (data["changed"], data["revision"], data["summary"]["unchanged"]) == (False, None, 3)
    assert (api.services.revisions.newest, api.fleet.published("proxy.updated")) == (before, [])


def test_the_revision_can_be_undone(api: Api, ids: list[str]) -> None:
    data = batch(api, update=[{"where": {"all": True}, "set": {"sleep_after": 60}}], create=[proxy(9)])
    undone = api.post(f"/revisions/{data['revision']}/undo", None, api.token())
    assert undone.status_code == 200, undone.text
    assert [stored(api, each).sleep_after for each in ids] == [0, 0, 0]
    assert len(api.services.proxies.all()) == 3


def test_to_delete_needs_the_permission_to_delete_and_a_key_of_some_proxies_may_not(api: Api, ids: list[str]) -> None:
    key = api.key(permissions=["proxy.write"])
    assert api.post(PATH, {"update": [{"id": ids[0], "workers": 2}]}, key).status_code == 200
    refused = error_of(api.post(PATH, {"delete": [ids[0]]}, key))
    assert refused == (403, "INSUFFICIENT_PERMISSIONS", {"required_permission": "proxy.delete"})
    scoped = api.key(permissions=["proxy.write", "proxy.read"], scope={"proxies": [ids[0]]})
    assert api.post(PATH, {"update": [{"id": ids[0], "workers": 3}]}, scoped).status_code == 403


def test_many_passwords_and_many_proxies_are_refused(api: Api, ids: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_batch, "PASSWORDS_MAX", 2)
    auth = {"auth": {"enabled": True, "username": "a", "password": "correct horse"}}
    assert "passwords" in str(problems(api, update=[{"where": {"all": True}, "set": auth}]))
    batch(api, update=[{"where": {"protocol": "socks5"}, "set": auth}])
    assert stored(api, ids[1]).auth.enabled
    monkeypatch.setattr(proxy_batch, "BATCH_MAX", 2)
    assert "more than 2 proxies" in str(problems(api, update=[{"where": {"all": True}, "set": {}}]))


def test_filters_that_select_all_proxies_again_and_again_are_refused_before_they_cost_much(
    api: Api, ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    matching = ListProxies.matching
    looks: list[object] = []
    monkeypatch.setattr(ListProxies, "matching", lambda *given: looks.append(given) or matching(*given))
    everything = {"where": {"q": "p"}, "set": {"workers": 2}}
    monkeypatch.setattr(proxy_batch, "BATCH_MAX", 5)
    assert problems(api, update=[everything] * 50) == {"None": "more than 5 proxies would change in one request"}
    assert len(looks) == 2
    nothing = {"where": {"q": "none"}, "set": {"workers": 2}}
    assert problems(api, update=[nothing] * 101).keys() == {"update"}
    assert len(looks) == 2


def test_the_secret_of_a_back_end_has_to_be_given(api: Api, ids: list[str]) -> None:
    backend: dict[str, Any] = {"url": "http://192.0.2.1/"}
    change = [{"id": ids[0], "auth": {"backend": backend}}]
    assert problems(api, update=change).keys() == {"update[0].auth.backend.secret"}


def test_proxies_do_not_become_a_circle_together(api: Api, ids: list[str]) -> None:
    def to(number: int) -> list[dict[str, Any]]:
        return [{"protocol": "http", "host": "127.0.0.1", "port": 4000 + number}]

    both = [{"id": ids[0], "upstreams": to(1)}, {"id": ids[1], "upstreams": to(0)}]
    assert problems(api, update=both).keys() == {"update[0].upstreams[0]", "update[1].upstreams[0]"}
    assert api.post("/pools", {"name": "back", "upstreams": to(0)}, api.token()).status_code == 201
    batch(api, update=[{"id": ids[0], "upstreams": to(1)}])
    assert problems(api, update=[{"id": ids[1], "pool": "back"}]).keys() == {"update[0].pool"}
    batch(api, update=[{"id": ids[2], "pool": "back"}])
    assert problems(api, update=[{"id": ids[2], "port": 4001}, {"id": ids[1], "port": 4002}]).keys() == {
        "update[0].pool"
    }


def test_without_the_supervisor_nothing_is_stored(api: Api, ids: list[str]) -> None:
    before, token = api.services.revisions.newest, api.token()
    api.fleet.gone.add(SUPERVISOR)
    assert api.post(PATH, {"update": [{"id": ids[0], "workers": 2}]}, token).status_code == 500
    assert api.services.revisions.newest == before
