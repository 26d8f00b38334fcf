"""The contents of lists in the API: compiled when they are stored, checked, fetched."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from actors.lists.compiled import CompiledList
from api.services.object_kinds import LISTS
from config.model.lists import DestinationList
from tests.kit.api_stage import Api, error_of

SOURCE = {"url": "https://lists.example/domains.txt"}


def made(api: Api, **fields: Any) -> dict[str, Any]:
    body = {"name": "ads", "kind": "domains", "entries": ["ads.example", "tracker.example"], **fields}
    given = {name: value for name, value in body.items() if value is not None}
    response = api.post("/lists", given, api.token())
    assert response.status_code == 201, response.json
    data: dict[str, Any] = response.json["data"]
    return data


def record(api: Api, name: str = "ads") -> DestinationList:
    found: DestinationList = api.services.shared_objects.get(LISTS, name).record
    return found


def folder(api: Api) -> Path:
    return api.services.data.lists


def current(api: Api) -> CompiledList:
    return CompiledList(folder(api) / api.services.list_contents.states.current_file(record(api)))


def check(api: Api, target: str | None, name: str = "ads") -> Any:
    query = "" if target is None else f"?target={target}"
    return api.get(f"/lists/{name}/check{query}", api.token())


def test_a_list_is_compiled_before_it_is_stored(api: Api) -> None:
    made(api)
    first = current(api)
    assert first.by_name("www.ads.example") == "ads.example"
    api.patch("/lists/ads", {"entries": ["other.example"]}, api.token())
    assert current(api).by_name("other.example") == "other.example"
    assert first.by_name("www.ads.example") == "ads.example", "what is mapped stays"


def test_check_names_the_entry(api: Api) -> None:
    made(api)
    found = check(api, "WWW.ads.example.")
    assert found.json["data"] == {"matches": True, "entry": "ads.example", "kind": "domains"}
    for target in ("https://a.b.tracker.example/x?y", "tracker.example:443"):
        assert check(api, target).json["data"]["entry"] == "tracker.example"
    for target in ("example", "notads.example", "192.0.2.1", "%D0%B0ds.example"):
        assert check(api, target).json["data"] == {"matches": False, "entry": None, "kind": "domains"}


def test_check_of_networks_wants_an_address(api: Api) -> None:
    made(api, kind="networks", entries=["10.0.0.0/8", "10.1.0.0/16", "2001:db8::/32"])
    for target, entry in (
        ("10.1.2.3", "10.1.0.0/16"),
        ("[::ffff:10.2.0.1]:443", "10.0.0.0/8"),
        ("2001:db8::1", "2001:db8::/32"),
        ("192.0.2.1", None),
    ):
        assert check(api, target).json["data"]["entry"] == entry
    status, _, details = error_of(check(api, "example.com"))
    assert (status, details["field"]) == (400, "target")


@pytest.mark.parametrize("target", [None, "", "a%20b", "ftp://x/", "%F0%9F%98%80..x"])
def test_check_of_no_target_is_refused(api: Api, target: str | None) -> None:
    made(api)
    status, _, details = error_of(check(api, target))
    assert (status, details["field"]) == (400, "target")


def test_the_status_of_a_list(api: Api) -> None:
    own: dict[str, Any] = {
        "fetched_at": None,
        "next_at": None,
        "last_error": None,
        "skipped": 0,
        "skipped_examples": [],
    }
    made(api)
    assert api.get("/lists/ads", api.token()).json["data"]["list"]["status"] == {"entries": 2, **own}
    data = made(api, name="fetched", entries=None, source=SOURCE)
    assert data["list"]["status"] == {"entries": 0, **own}
    assert [each["field"] for each in data["warnings"]] == ["source"]
    assert error_of(check(api, "a.example", "fetched"))[0] == 400
    listed = api.get("/lists", api.token()).json["data"]["lists"]
    assert [each["status"]["entries"] for each in listed] == [2, 0]


def test_an_empty_list_says_so(api: Api) -> None:
    assert [each["field"] for each in made(api, entries=[])["warnings"]] == ["entries"]


def test_only_a_list_with_a_source_is_refreshed(api: Api) -> None:
    view = made(api, entries=None, source=SOURCE)["list"]
    asked = api.post("/lists/ads/refresh", None, api.token())
    assert asked.json["data"] == {"id": view["id"], "refreshing": True}
    assert api.services.list_fetches.is_under_way(view["id"])
    made(api, name="own")
    assert error_of(api.post("/lists/own/refresh", None, api.token()))[0] == 400
    assert error_of(api.post("/lists/none/refresh", None, api.token()))[0] == 404


def test_missing_files_are_made_and_those_of_no_list_are_deleted(api: Api) -> None:
    made(api)
    path = folder(api) / api.services.list_contents.states.current_file(record(api))
    path.write_bytes(path.read_bytes()[:-1])
    other = folder(api) / "list_00ff-aa.list"
    other.write_bytes(b"")
    os.utime(other, (0, 0))
    assert api.services.list_contents.settle([record(api)]) == [record(api).id]
    assert current(api).by_name("ads.example") == "ads.example"
    assert not other.exists()
    assert api.services.list_contents.settle([record(api)]) == []
