"""The authentication back end of a proxy, as a client of the API sees it."""

from __future__ import annotations

from typing import Any

from tests.kit.api_stage import PROXY, Api, error_of
from tests.kit.tables import table
from tests.unit.api.audit_reader import recorded, rows
from tests.unit.api.creating import create
from tests.unit.api.importing import HEAD, SEALED, Importing

URL = "https://ldap.example/auth"
SECRET = "whsec_" + "QUJD" * 11


def patch(api: Api, proxy: dict[str, Any], auth: dict[str, Any]) -> dict[str, Any]:
    response = api.patch(f"/proxies/{proxy['id']}", {"auth": auth}, api.token())
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json["data"]["proxy"]
    return found


def test_a_secret_is_made_and_shown_in_the_response_that_sets_it_alone(api: Api, headers: dict[str, str]) -> None:
    made = create(api, headers, auth={"backend": {"url": URL}})
    secret = made["auth"]["backend"].pop("secret")
    assert secret.startswith("whsec_")
    assert made["auth"] == {
        "enabled": True,
        "username": None,
        "backend": {"url": URL, "timeout": 5, "cache_seconds": 60, "negative_seconds": 5, "on_error": "deny"},
    }
    shown = api.get(f"/proxies/{made['id']}", headers)
    assert secret not in shown.text
    assert "sealed" not in shown.text
    spec = api.fleet.desired[made["id"]].backend
    assert spec is not None
    assert (spec.url, spec.secret, spec.allow_cached) == (URL, secret, False)


def test_a_change_keeps_what_it_does_not_give(api: Api, headers: dict[str, str]) -> None:
    made = create(api, headers, auth={"backend": {"url": URL, "secret": SECRET, "timeout": 2.5}})
    changed = patch(api, made, {"backend": {"on_error": "allow_cached", "secret": SECRET}})["auth"]["backend"]
    assert (changed["timeout"], changed["on_error"]) == (2.5, "allow_cached")
    assert "secret" not in changed
    other = "whsec_" + "QUJE" * 11
    assert patch(api, made, {"backend": {"secret": other}})["auth"]["backend"]["secret"] == other
    spec = api.fleet.desired[made["id"]].backend
    assert spec is not None
    assert (spec.secret, spec.allow_cached) == (other, True)


def test_readers_see_no_path_and_query_of_the_url(api: Api, headers: dict[str, str]) -> None:
    made = create(api, headers, auth={"backend": {"url": URL + "?key=planted"}})
    api.add_user("reader", role="user")
    path = f"/proxies/{made['id']}"
    for name, url in (("reader", "https://ldap.example/***"), ("admin", URL + "?key=planted"), ("reader", None)):
        response = api.get(path, api.token(name))
        assert url is None or response.json["data"]["proxy"]["auth"]["backend"]["url"] == url
    assert "planted" not in response.text
    assert "planted" not in api.get("/proxies", api.token("reader")).text


def test_null_removes_it_and_credentials_are_wanted_still(api: Api, headers: dict[str, str]) -> None:
    made = create(api, headers, auth={"backend": {"url": URL}})
    assert patch(api, made, {"backend": None})["auth"] == {"enabled": True, "username": None}
    assert api.fleet.desired[made["id"]].backend is None


@table(
    ("backend", "field"),
    [
        ({}, "auth.backend.url"),
        ({"url": "ftp://x/"}, "auth.backend.url"),
        ({"url": "http://u:p@x/"}, "auth.backend.url"),
        ({"url": URL, "timeout": 0}, "auth.backend.timeout"),
        ({"url": URL, "cache_seconds": -1}, "auth.backend.cache_seconds"),
        ({"url": URL, "on_error": "allow"}, "auth.backend.on_error"),
        ({"url": URL, "secret": "short"}, "auth.backend.secret"),
        ({"url": URL, "secret": None}, "auth.backend.secret"),
        ({"url": URL, "other": 1}, "auth.backend.other"),
    ],
)
def test_what_is_wrong_is_named(api: Api, headers: dict[str, str], backend: dict[str, Any], field: str) -> None:
    refused = api.post("/proxies", {**PROXY, "auth": {"backend": backend}}, headers)
    assert refused.status_code == 400
    assert error_of(refused)[2]["field"] == field


def test_no_secret_of_it_is_in_the_store_or_the_audit_trail(api: Api, headers: dict[str, str]) -> None:
    made = create(api, headers, auth={"backend": {"url": URL + "?key=planted", "secret": SECRET}})
    stored = api.store.get("proxies", made["id"])
    assert stored is not None
    assert SECRET not in str(stored.body)
    written = recorded(api)
    assert SECRET.encode() not in written
    assert "planted" not in str(rows(api)), "where changes are shown, the path is masked"
    (created,) = api.get("/revisions?kind=proxy", headers).json["data"]["revisions"]
    shown = [f"/revisions/{created['revision']}", f"/revisions/{created['revision']}/objects/{made['id']}"]
    for path in (*shown, f"/revisions/1...{created['revision']}"):
        response = api.get(path, headers)
        assert response.status_code == 200
        assert "https://ldap.example/***" in response.text
        assert "planted" not in response.text


def test_an_export_has_it_and_seals_the_secret_for_an_import(api: Api, headers: dict[str, str]) -> None:
    importing = Importing(api)
    made = create(api, headers, auth={"backend": {"url": URL, "secret": SECRET}})
    plain = importing.export()
    assert plain["proxies"][0]["auth"]["backend"]["secret"] is None
    sealed = importing.export("encrypted", **SEALED)
    assert SECRET not in str(sealed)
    assert api.request("DELETE", f"/proxies/{made['id']}", importing.headers).status_code == 200
    refused = importing.post({**HEAD, "proxies": plain["proxies"]})
    assert refused.status_code == 400
    assert "auth.backend.secret" in refused.text
    for action in ("create", "unchanged"):
        document = {key: sealed[key] for key in ("kind", "version", "proxies", "secrets")}
        response = importing.post(document, **SEALED)
        assert response.status_code == 200, response.text
        assert response.json["data"]["summary"][action] == 1
    (spec,) = (each for each in api.fleet.desired.values() if each.backend is not None)
    assert spec.backend is not None
    assert (spec.backend.secret, spec.auth_required) == (SECRET, True)
