"""The contents of lists in the API: compiled when they are stored, checked, fetched."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from actors.lists.compiled import CompiledList
from actors.lists.databases import store_database
from api.backup.restore import remove_lost_secrets
from api.objects.named.list_contents import ListContents, ListState
from api.objects.named.list_kind import LISTS
from config.files.secret_box import SecretBox
from config.model.shared_objects.lists import DestinationList
from config.model.webhooks import opened_headers
from tests.kit.api_stage import Api, error_of
from tests.kit.place_databases import country, database, system
from tests.kit.tables import table
from tests.unit.api.importing import PASSPHRASE, SEALED, Importing

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


def test_names_may_be_written_in_other_letters_than_ascii(api: Api) -> None:
    view = made(api, entries=["b\u00fccher.example", "\u043f\u0440\u0438\u043c\u0435\u0440.\u0440\u0444", "a.example"])
    assert view["list"]["entries"] == ["xn--bcher-kva.example", "xn--e1afmkfd.xn--p1ai", "a.example"]
    assert check(api, "www.b%C3%BCcher.example").json["data"]["entry"] == "xn--bcher-kva.example"
    written, kept = ["*.b\u00fccher.example:443", ":80"], ["*.xn--bcher-kva.example:443", ":80"]
    rule = {"name": "a", "match": {"destinations": written}, "action": {"use": "deny"}}
    policy = api.post("/policies", {"name": "x", "rules": [rule]}, api.token()).json["data"]["policy"]
    assert policy["rules"][0]["match"]["destinations"] == kept
    base = {"name": "p", "protocol": "http", "host": "127.0.0.1", "port": 8_299}
    proxy = api.post("/proxies", {**base, "access": {"deny_destinations": written}}, api.token()).json["data"]["proxy"]
    assert proxy["access"]["deny_destinations"] == kept
    account = {"username": "ann", "password": "correct horse battery", "deny_destinations": written}
    assert api.post("/accounts", account, api.token()).json["data"]["account"]["deny_destinations"] == kept
    for entry in ("\u00fc.1", "[\u00fc]", "\u00fc" * 200, "a\u00fc..b", "\uff11.\uff12.\uff13.\uff14"):
        for path, body, field in (
            ("/lists/ads", {"entries": ["a.example", entry]}, "entries[1]"),
            (f"/proxies/{proxy['id']}", {"access": {"deny_destinations": [entry]}}, "access.deny_destinations[0]"),
        ):
            details = error_of(api.patch(path, body, api.token()))[2]
            assert details == {"field": field, "error": "is no name that a domain can have"}


def test_who_may_not_change_lists_sees_no_key_in_the_url_of_a_source(api: Api) -> None:
    url = "https://download.example/geoip?license_key=0123456789"
    made(api, entries=None, source={"url": url})
    api.add_user("reader", role="user", permissions=["proxy.read"])
    for name, shown in (("admin", url), ("reader", "https://download.example/***")):
        page = api.get("/lists", api.token(name)).json["data"]["lists"]
        one = api.get("/lists/ads", api.token(name)).json["data"]["list"]
        assert [each["source"]["url"] for each in (*page, one)] == [shown, shown]


KEYED: dict[str, Any] = {**SOURCE, "headers": {"Authorization": "Bearer of-a-list", "X-Plan": "of-a-list, too"}}


def sent(api: Api) -> dict[str, str]:
    """The headers of the next request of the list, in the clear."""
    source = record(api).source
    return opened_headers((source and source.headers) or {}, api.services.seal)


def test_values_of_headers_are_sealed_and_in_no_view(api: Api) -> None:
    view = made(api, entries=None, source=KEYED)["list"]
    assert view["source"]["headers"] == {"Authorization": "***", "X-Plan": "***"}
    api.patch("/lists/ads", {"source": {"headers": {"Authorization": "another of-a-list", "X-Plan": ""}}}, api.token())
    exported = api.get("/config/export", api.token()).json["data"]
    assert exported["lists"][0]["source"]["headers"] == {"Authorization": None, "X-Plan": None}
    newest = api.get("/revisions", api.token()).json["data"]["revisions"][0]["revision"]
    shown = [
        api.get(path, api.token()).text
        for path in (
            "/lists",
            "/lists/ads",
            "/audit",
            f"/revisions/{newest}",
            f"/revisions/{newest}/objects/{view['id']}",
        )
    ]
    assert all("X-Plan" in each or "Authorization" in each for each in shown)
    stored = record(api).model_dump_json()
    for text in (*shown, stored, json.dumps(exported), repr(record(api))):
        assert "of-a-list" not in text
    source = record(api).source
    assert source is not None
    assert source.headers
    for sealed in source.headers.values():
        assert not [each for each in shown if sealed in each]
    assert sent(api) == {"Authorization": "another of-a-list", "X-Plan": "of-a-list, too"}


KEPT = KEYED["headers"]


@table(
    ("change", "after"),
    [
        ({"interval": 3600}, KEPT),
        ({"url": "https://LISTS.example:443/other"}, KEPT),
        ({"headers": {"X-Plan": "***", "X-New": "a"}}, {"X-Plan": KEPT["X-Plan"], "X-New": "a"}),
        ({"headers": {"X-Plan": None}}, {"X-Plan": KEPT["X-Plan"]}),
        ({"headers": {}}, {}),
        ({"url": "https://other.example/domains.txt"}, {}),
        ({"url": "https://lists.example:8443/domains.txt"}, {}),
        ({"url": "http://lists.example/domains.txt"}, {}),
        ({"url": "https://other.example/", "headers": {"X-Plan": "anew"}}, {"X-Plan": "anew"}),
        ({"url": "https://other.example/", "headers": {"X-Plan": None}}, "source.headers.X-Plan"),
        ({"url": "https://other.example/", "headers": {"X-Plan": "***"}}, "source.headers.X-Plan"),
        ({"headers": {"X-None": ""}}, "source.headers.X-None"),
        ({"headers": {"Host": "a.example"}}, "source.headers"),
        ({"headers": {"X-A": "b\r\nX-Evil: c"}}, "source.headers"),
        ({"headers": {f"X-{number}": "a" for number in range(21)}}, "source.headers"),
        ({"headers": None}, "source.headers"),
    ],
)
def test_stored_headers_stay_with_their_server(api: Api, change: dict[str, Any], after: dict[str, str] | str) -> None:
    api.request("DELETE", "/lists/ads", api.token())
    made(api, entries=None, source=KEYED)
    response = api.patch("/lists/ads", {"source": change}, api.token())
    if isinstance(after, str):
        assert (response.status_code, error_of(response)[2]["field"]) == (400, after)
        assert sent(api) == KEPT
    else:
        assert (response.status_code, sent(api)) == (200, after)


def test_headers_are_for_a_url(api: Api) -> None:
    given = {"file": "/srv/world.mmdb", "headers": {"X-A": "b"}}
    refused = api.post("/lists", {"name": "world", "kind": "geo", "source": given}, api.token())
    assert (refused.status_code, error_of(refused)[2]["field"]) == (400, "source.headers")
    made_database(api, headers={"X-A": "b"})
    for change in ({"source": {"file": "/a"}}, {"source": {"url": "https://lists.example/world.mmdb"}}):
        view = api.patch("/lists/world", change, api.token()).json["data"]["list"]
        assert "headers" not in view["source"]


def test_headers_go_through_export_import_and_history_and_are_listed_when_lost(api: Api, tmp_path: Path) -> None:
    made(api, entries=None, source=KEYED)
    here = Importing(api)
    plain, sealed = here.export(), here.export("encrypted", **SEALED)
    assert here.post(plain).json["data"]["summary"]["update"] == 0
    assert sent(api) == KEPT
    there = Importing(Api())
    try:
        refused = there.post(plain)
        assert (refused.status_code, error_of(refused)[2]["field"]) == (400, "lists[0].source.headers.Authorization")
        assert there.post(sealed, X_Passphrase=PASSPHRASE).status_code == 200
        assert sent(there.api) == KEPT
    finally:
        there.api.close()
    before = api.get("/revisions", api.token()).json["data"]["revisions"][0]["revision"]
    api.patch("/lists/ads", {"source": {"url": "https://other.example/"}}, api.token())
    assert sent(api) == {}
    assert api.post(f"/revisions/{before}/restore", None, api.token()).status_code == 200
    assert sent(api) == KEPT
    other = SecretBox(tmp_path / "other.key")
    other.seal("", "")
    lost = remove_lost_secrets(api.store, other)
    assert [each.field for each in lost if each.kind == "lists"] == [f"source.headers.{name}" for name in KEPT]
    assert api.store.find("lists")[0].body["source"]["headers"] is None


PLACES = {"192.0.2.0/24": country("DE") | system(64500), "2001:db8::/32": country("FR")}


def made_database(api: Api, name: str = "world", **source: Any) -> dict[str, Any]:
    given = {"url": "https://lists.example/world.mmdb"} | source
    return made(api, name=name, kind="geo", entries=None, source={k: v for k, v in given.items() if v is not None})


def test_check_of_a_database_says_where_an_address_is(api: Api) -> None:
    view = made_database(api)["list"]
    assert view["source"]["format"] == "mmdb"
    file, entries = store_database(iter([database(PLACES)]), folder(api), view["id"], 0)
    api.services.list_contents.states.put(view["id"], ListState(kind="geo", file=file, entries=entries))
    place = {"kind": "geo", "country": "DE", "asn": 64500}
    assert check(api, "192.0.2.9:443", "world").json["data"] == {"matches": True, "entry": "192.0.2.0/24", **place}
    nowhere = {"kind": "geo", "country": None, "asn": None}
    assert check(api, "203.0.113.1", "world").json["data"] == {"matches": False, "entry": None, **nowhere}
    assert error_of(check(api, "example.com", "world"))[2]["field"] == "target"


@table(
    ("fields", "field"),
    [
        ({"kind": "geo"}, "source"),
        ({"kind": "geo", "entries": ["192.0.2.0/24"]}, "source"),
        ({"kind": "geo", "source": {}}, "source.url"),
        ({"kind": "geo", "source": {"url": "https://a.example/", "file": "/a"}}, "source.file"),
        ({"kind": "geo", "source": {"file": "a.mmdb"}}, "source.file"),
        ({"kind": "geo", "source": {"file": "/a", "format": "plain"}}, "source.format"),
        ({"kind": "domains", "source": {"file": "/etc/hosts"}}, "source.file"),
        ({"kind": "domains", "source": {"url": "https://a.example/", "format": "mmdb"}}, "source.format"),
    ],
)
def test_a_database_has_a_source_and_other_lists_no_file(api: Api, fields: dict[str, Any], field: str) -> None:
    status, _, details = error_of(api.post("/lists", {"name": "world", **fields}, api.token()))
    assert (status, details["field"]) == (400, field)


def test_url_and_file_of_a_source_take_each_others_place(api: Api) -> None:
    made_database(api, url=None, file="/srv/world.mmdb")
    changed = api.patch("/lists/world", {"source": {"url": "https://a.example/"}}, api.token()).json["data"]["list"]
    assert (changed["source"]["url"], "file" in changed["source"]) == ("https://a.example/", False)
    back = api.patch("/lists/world", {"source": {"file": "/a"}}, api.token()).json["data"]["list"]["source"]
    assert (back["file"], "url" in back, back["format"]) == ("/a", False, "mmdb")


def test_entries_name_a_list_as_what_it_is(api: Api) -> None:
    made_database(api)
    made(api)
    base = {"name": "p", "protocol": "http", "host": "127.0.0.1", "port": 8_299}
    for entry, error in (
        ("list:world", "geo:world:country=DE"),
        ("geo:ads:country=DE", "list:ads"),
        ("geo:none:asn=1", "there is no list 'none'"),
        ("geo:world:country=de", "geo:NAME:country=DE"),
    ):
        body = {"rules": [{"name": "a", "match": {"destinations": [entry]}, "action": {"use": "deny"}}]}
        status, _, details = error_of(api.post("/policies", {"name": "x", **body}, api.token()))
        assert (status, error in details["error"]) == (400, True), entry
        proxy = {**base, "access": {"deny_destinations": ["geo:world:asn=1", entry]}}
        assert error_of(api.post("/proxies", proxy, api.token()))[2]["field"] == "access.deny_destinations[1]"


def test_a_database_in_use_stays_one_and_stays(api: Api) -> None:
    made_database(api)
    rule = {"name": "a", "match": {"destinations": ["geo:world:country=DE:443"]}, "action": {"use": "deny"}}
    assert api.post("/policies", {"name": "x", "rules": [rule]}, api.token()).status_code == 201
    account = {"username": "ann", "password": "correct horse battery", "deny_destinations": ["geo:world:asn=64500"]}
    assert api.post("/accounts", account, api.token()).status_code == 201
    for response in (
        api.request("DELETE", "/lists/world", api.token()),
        api.patch("/lists/world", {"kind": "networks", "entries": []}, api.token()),
        api.patch("/lists/world", {"name": "other"}, api.token()),
    ):
        status, _, details = error_of(response)
        assert (status, "in use by 2 (policy x, account ann)" in details["error"]) == (400, True)


def test_a_database_goes_through_export_and_import(api: Api) -> None:
    made_database(api, url=None, file="/srv/world.mmdb")
    document = api.get("/config/export", api.token()).json
    exported = document.get("data", document)
    entry = exported["lists"][0]
    assert entry["source"] == {"file": "/srv/world.mmdb", "format": "mmdb", "interval": 86400, "max_bytes": 67108864}
    again = api.post("/config/import?dry_run=true", exported, api.token())
    assert again.status_code == 200, again.json
    exported["lists"][0] = {"name": "world", "kind": "networks", "entries": []}
    exported["policies"] = [
        {
            "name": "x",
            "rules": [{"name": "a", "match": {"destinations": ["geo:world:asn=1"]}, "action": {"use": "deny"}}],
        }
    ]
    refused = api.post("/config/import?dry_run=true", exported, api.token())
    assert refused.status_code == 400
    assert "has networks" in str(refused.json)


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
    newest = api.get("/audit", api.token(), query_string="limit=1&action=list.*").json["data"]["audit"][0]
    assert (newest["action"], newest["resource"]["name"]) == ("list.refreshed", "ads")
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
    started = ListContents(api.services.list_contents.states)
    assert started.settle([record(api)]) == [record(api).id]
    assert current(api).by_name("ads.example") == "ads.example"
    assert not other.exists()
    assert started.settle([record(api)]) == []
