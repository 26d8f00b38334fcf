"""Tags of many proxies in one change: all of them or none, one revision, and errors that name the entry."""

from __future__ import annotations

from typing import Any

import pytest

from actors.bus.messages.common import SUPERVISOR
from api.import_export.proxy_batches.batch_bodies import TAGGED_MAX
from config.model.object_fields import TAGS_MAX
from tests.kit.api_stage import PROXY, Api, error_of
from tests.kit.tables import table


@pytest.fixture
def ids(api: Api) -> list[str]:
    """Two proxies with the tags `old` and `kept`."""
    bodies = [{**PROXY, "name": f"p{number}", "port": 4000 + number, "tags": ["old", "kept"]} for number in range(2)]
    return [api.post("/proxies", body, api.token()).json["data"]["proxy"]["id"] for body in bodies]


def tag(api: Api, **body: Any) -> Any:
    return api.post("/proxies/tags", body, api.token())


def tags_of(api: Api, ids: list[str]) -> list[list[str]]:
    return [api.get(f"/proxies/{each}", api.token()).json["data"]["proxy"]["tags"] for each in ids]


def test_tags_are_added_and_removed_in_one_revision_and_others_stay(api: Api, ids: list[str]) -> None:
    data = tag(api, ids=ids, add_tags=["new", "kept"], remove_tags=["old"]).json["data"]
    assert data["changed"] == 2
    assert data["proxies"] == [
        {"id": each, "name": f"p{n}", "tags": ["kept", "new"]} for n, each in zip((0, 1), ids, strict=True)
    ]
    assert tags_of(api, ids) == [["kept", "new"]] * 2
    assert [api.fleet.desired[each].tags for each in ids] == [("kept", "new")] * 2
    revision = api.get("/revisions", api.token()).json["data"]["revisions"][0]
    assert (revision["summary"]["update"], revision["operation"]) == (2, "tagProxies")
    assert [each["proxy_id"] for each in api.fleet.published("proxy.updated")] == ids


def test_what_is_so_already_is_no_change(api: Api, ids: list[str]) -> None:
    before = [api.store.revision_of("proxies", each) for each in ids]
    assert tag(api, ids=ids, add_tags=["kept"], remove_tags=["none"]).json["data"]["changed"] == 0
    assert [api.store.revision_of("proxies", each) for each in ids] == before
    assert api.fleet.published("proxy.updated") == []


@table(
    ("body", "field"),
    [
        ({"add_tags": ["a"], "ids": []}, "ids"),
        ({"add_tags": ["a"], "ids": ["x"] * (TAGGED_MAX + 1)}, "ids"),
        ({"add_tags": ["a"], "ids": ["prx_none"]}, "ids[0]"),
        ({"add_tags": ["a"], "ids": ["FIRST", "FIRST"]}, "ids[1]"),
        ({"add_tags": ["a"], "remove_tags": ["a"]}, "ids[0]"),
        ({"add_tags": [f"t{n}" for n in range(TAGS_MAX)]}, "ids[0]"),
        ({"add_tags": [""]}, "add_tags[0]"),
        ({}, ""),
    ],
)
def test_one_wrong_entry_changes_nothing(api: Api, ids: list[str], body: dict[str, Any], field: str) -> None:
    given = {"ids": ids, **body}
    given["ids"] = [ids[0] if each == "FIRST" else each for each in given["ids"]]
    status, code, details = error_of(api.post("/proxies/tags", given, api.token()))
    first = details.get("errors", [details])[0]
    assert (status, code, first["field"]) == (400, "INVALID_REQUEST", field)
    assert tags_of(api, ids) == [["old", "kept"]] * 2


def test_without_the_supervisor_nothing_is_stored(api: Api, ids: list[str]) -> None:
    before, token = tags_of(api, ids), api.token()
    api.fleet.gone.add(SUPERVISOR)
    assert api.post("/proxies/tags", {"ids": ids, "add_tags": ["a"]}, token).status_code == 500
    api.fleet.gone.clear()
    assert tags_of(api, ids) == before


def test_tags_that_two_accounts_of_one_name_would_share_are_refused(api: Api, ids: list[str]) -> None:
    for name in ("a", "b"):
        body = {"username": "twin", "proxies": {"tags": [name]}}
        assert api.post("/accounts", body, api.token()).status_code == 201
    status, _, details = error_of(tag(api, ids=ids[:1], add_tags=["a", "b"]))
    assert (status, details.get("errors", [details])[0]["field"]) == (400, "ids[0]")
