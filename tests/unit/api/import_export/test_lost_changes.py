"""What the database of a fleet has lost is made again as it was, with ids and secrets, and nothing newer is undone."""

from __future__ import annotations

from typing import Any

import pytest

from actors.bus.messages.common import METRICS, WEBHOOKS, Done
from api.history.lost_changes import LostChanges, NothingLost, lost_changes
from api.store import Write
from config.passwords import check_password
from tests.kit.api_stage import Api
from tests.unit.api.creating import create
from tests.unit.api.revising import newest

MOMENT = "2026-11-29T04:00:00Z"
PASSWORD = "sesame-and-more"


@pytest.fixture
def token(api: Api) -> dict[str, str]:
    api.fleet.others[WEBHOOKS] = api.fleet.others[METRICS] = lambda _message: Done()
    return api.token()


def lose(api: Api, *keys: tuple[str, str]) -> list[dict[str, Any]]:
    """The database forgets these objects; their documents as a node's file has them."""
    found = []
    for collection, identifier in keys:
        document = api.store.get(collection, identifier)
        assert document is not None
        body = api.services.store.history.sealed(document.body)
        name = body.get("name") or body.get("username")
        found.append({"collection": collection, "id": identifier, "name": name, "revision": 7, "body": body})
        api.store.commit([Write(collection, identifier, None)])
    return found


def save(api: Api, *documents: dict[str, Any]) -> None:
    api.services.data.cluster.mkdir(exist_ok=True)
    LostChanges(MOMENT, "fleet", "fra1", api.store.file.last_number, [7], documents).save(api.services.data)


def reapplied(api: Api, token: dict[str, str], query: str = "", which: str = "last") -> Any:
    response = api.post(f"/lost-changes/{which}/reapply", None, token, query_string=query)
    assert response.status_code == 200, response.text
    return response.json["data"]


def proxy(api: Api, token: dict[str, str], name: str, port: int) -> str:
    auth = {"enabled": True, "username": "c", "password": PASSWORD}
    return str(create(api, token, name=name, port=port, auth=auth)["id"])


def test_lost_objects_come_back_as_they_were_once_and_a_dry_run_changes_nothing(
    api: Api, token: dict[str, str]
) -> None:
    kept = proxy(api, token, "kept", 3001)
    made = proxy(api, token, "made", 3002)
    documents = lose(api, ("proxies", made))
    assert PASSWORD not in str(documents)
    assert "$2b$" not in str(documents)
    deletion = {"collection": "proxies", "id": kept, "name": None, "revision": None, "body": None}
    save(api, *documents, deletion)
    before = newest(api)
    plan = reapplied(api, token, "dry_run=true")
    assert {(each["name"], each["action"]) for each in plan["changes"]} == {("kept", "delete"), ("made", "create")}
    assert (newest(api), api.store.get("proxies", made)) == (before, None)
    done = reapplied(api, token, which="2026-11-29T040000Z")
    assert (done["lost"], done["not_restored"]) == ("2026-11-29T040000Z", [])
    assert done["revision"] == newest(api) == before + 1
    found = api.store.get("proxies", made)
    assert found is not None
    assert check_password(PASSWORD, found.body["auth"]["password_hash"])
    assert api.store.get("proxies", kept) is None
    again = reapplied(api, token)
    assert (again["changed"], again["revision"]) == (False, None)


def test_what_was_changed_since_stays_unless_it_is_to_be_overwritten(api: Api, token: dict[str, str]) -> None:
    one, other = proxy(api, token, "one", 3001), proxy(api, token, "other", 3002)
    lost = [dict(api.services.store.history.sealed(api.store.get("proxies", each).body)) for each in (one, other)]  # type: ignore[union-attr]
    save(
        api,
        *(
            {
                "collection": "proxies",
                "id": body["id"],
                "name": body["name"],
                "revision": 7,
                "body": {**body, "port": at},
            }
            for body, at in zip(lost, (4001, 4002), strict=True)
        ),
        {"collection": "list_states", "id": "l", "name": None, "revision": 7, "body": {"id": "l"}},
    )
    api.patch(f"/proxies/{other}", {"port": 3003}, token)
    done = reapplied(api, token)
    assert {each["name"]: each["reason"] for each in done["not_restored"]} == {
        "other": "it was changed again since then, and stays so",
    }
    ports = {each.body["name"]: each.body["port"] for each in api.store.find("proxies")}
    assert ports == {"one": 4001, "other": 3003}
    reapplied(api, token, f"overwrite=true&object_id={other}")
    ports = {each.body["name"]: each.body["port"] for each in api.store.find("proxies")}
    assert ports == {"one": 4001, "other": 4002}


def test_what_was_made_anew_by_hand_keeps_its_name(api: Api, token: dict[str, str]) -> None:
    documents = lose(api, ("proxies", proxy(api, token, "shop", 3001)))
    anew = proxy(api, token, "Shop", 3004)
    save(api, *documents)
    done = reapplied(api, token)
    assert [each["reason"] for each in done["not_restored"]] == [f"its name is taken since then, by {anew}"]
    assert not done["changed"]


def test_a_file_that_is_not_there_is_not_found(api: Api, token: dict[str, str]) -> None:
    assert api.post("/lost-changes/last/reapply", None, token).status_code == 404
    save(api)
    assert lost_changes(api.services.data, "lost-2026-11-29T040000Z.json").at == MOMENT
    assert lost_changes(api.services.data, MOMENT[:10]).at == MOMENT
    for which in ("2025", "..%2Fnode.json"):
        assert api.post(f"/lost-changes/{which}/reapply", None, token).status_code == 404
    (api.services.data.cluster / "lost-2027.json").write_text("[]")
    with pytest.raises(NothingLost, match="can't be read"):
        lost_changes(api.services.data)
