"""The forms of responses: compressed where that says nothing about secrets, and not sent at all to who has them."""

from __future__ import annotations

import gzip
import re
from typing import Any

import pytest
from falcon.testing import TestClient

from api.app import OPERATIONS
from api.http.representation import form_of
from tests.kit.api_stage import PASSWORD, Api
from tests.kit.standin_actors import stats_of
from tests.kit.tables import table
from tests.unit.api.creating import create

CONTENT = b'{"success":true}' * 100
BROWSER = {"Accept-Encoding": "gzip, deflate, br, zstd"}


@table(
    ("size", "accept", "encoding"),
    [
        (1000, "gzip", "gzip"),
        (999, "gzip", "identity"),
        (1000, "gzip;q=0", "identity"),
        (1000, "br", "identity"),
        (1000, "*", "gzip"),
        (1000, "", "identity"),
        (1000, None, "identity"),
    ],
)
def test_what_is_long_is_compressed_for_who_accepts_it(size: int, accept: str | None, encoding: str) -> None:
    form = form_of(CONTENT[:size], 7, accept)
    assert form.encoding == encoding
    assert (gzip.decompress(form.made()) if encoding == "gzip" else form.made()) == CONTENT[:size]
    assert re.fullmatch(r'W/"7-[0-9a-f]{24}"' if encoding == "gzip" else r'"7-[0-9a-f]{24}"', form.etag)


def test_an_etag_follows_the_content_and_the_revision() -> None:
    tags = [form_of(content, revision, None).etag for content in (b"a", b"b") for revision in (None, 1, 2)]
    assert len(set(tags)) == 6
    assert tags[0] == form_of(b"a", None, "gzip").etag


SECRET = {
    "exportConfig": "secrets, sealed or as hashes",
    "authorizeOAuth2": "the state of a sign-in",
    "returnFromOAuth2": "a session",
    "exportLogs": "is made while it is sent",
    "reportUsage": "is made while it is sent",
}
PEOPLE = {"listApiKeys", "listSessions"}


def test_every_get_but_of_secrets_and_streams_is_conditional_and_compressed() -> None:
    reads = {each.id: each for each in OPERATIONS if each.method == "GET"}
    assert {name for name, each in reads.items() if not each.conditional} == SECRET.keys()
    assert {name for name, each in reads.items() if each.conditional and not each.compresses} == PEOPLE
    others = [each.id for each in OPERATIONS if each.method != "GET" and (each.conditional or each.compresses)]
    assert others == []


def stopped(api: Api, headers: dict[str, str], **fields: Any) -> dict[str, Any]:
    """A proxy without an uptime that goes on."""
    proxy = create(api, headers, **fields)
    assert api.post(f"/proxies/{proxy['id']}/stop", {}, headers).status_code == 200
    return proxy


@pytest.mark.parametrize("path", ["/proxies", "/users", "/settings/sources"])
def test_a_list_that_has_not_changed_is_304_in_any_form_and_else_compressed(api: Api, path: str) -> None:
    headers = api.token()
    for number in range(5):
        stopped(api, headers, name=f"p{number}", port=3000 + number)
        api.add_user(f"user{number}")
    plain = api.get(path, headers)
    packed = TestClient(api.client.app).simulate_get(f"/api/v1{path}", headers={**headers, **BROWSER})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.content) == plain.content
    assert len(packed.content) < len(plain.content) / 2
    assert packed.headers["ETag"] == f"W/{plain.headers['ETag']}"
    for known in (plain.headers["ETag"], packed.headers["ETag"], "*"):
        for more in ({}, BROWSER):
            again = api.get(path, {**headers, **more, "If-None-Match": known})
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["ETag"] == (packed if more else plain).headers["ETag"]
            assert (again.headers["Vary"], again.headers["Cache-Control"]) == ("Accept-Encoding", "no-store")
    assert api.get(path, {**headers, "If-None-Match": '"other"'}).status_code == 200


def test_rights_are_checked_before_an_etag_is_compared(api: Api) -> None:
    known = api.get("/users", api.token()).headers["ETag"]
    api.add_user("bob", role="user")
    for headers, status in ((api.token("bob"), 403), ({}, 401)):
        assert api.get("/users", {**headers, "If-None-Match": known}).status_code == status
        assert api.get("/users", {**headers, "If-None-Match": "*"}).status_code == status


def test_the_etag_of_one_resource_follows_what_it_shows_and_if_match_its_revision_alone(api: Api) -> None:
    headers = api.token()
    proxy = stopped(api, headers)
    path = f"/proxies/{proxy['id']}"
    before = api.get(path, headers).headers["ETag"]
    assert api.get(path, {**headers, "If-None-Match": before}).status_code == 304
    api.fleet.stats[proxy["id"]] = stats_of(requests=1)
    assert api.get(path, {**headers, "If-None-Match": before}).status_code == 200
    assert api.patch(path, {"description": "new"}, {**headers, "If-Match": before}).status_code == 200
    assert api.patch(path, {"description": "newer"}, {**headers, "If-Match": before}).status_code == 412


def test_what_issues_secrets_is_never_compressed(api: Api) -> None:
    headers = {**api.token(), **BROWSER}
    body = {"name": "a key", "scope": {"proxies": [f"prx_{number:016x}" for number in range(50)]}}
    made = api.post("/api-keys", body, headers)
    assert len(made.content) > 1000
    for response in (
        made,
        api.post("/auth/login", {"username": "admin", "password": PASSWORD}, BROWSER),
        api.get("/api-keys", headers),
    ):
        assert response.status_code < 300
        assert "Content-Encoding" not in response.headers
