"""Imports of accounts in lines: all of them or none, every wrong line named, and nothing left of what failed."""

from __future__ import annotations

import gzip
import inspect
import json
import re
from collections.abc import Generator
from contextlib import closing
from typing import Any

import pytest
from falcon.testing import Result

from actors.accounts.table import AccountTable
from api.audit.trail import Head, verify
from api.objects.accounts import account_batches, account_names
from api.store import StoreWriteError, Write
from api.store.accounts import Staging
from config.model.fleet_accounts import FleetAccount
from config.passwords import hash_password
from tests.kit.api_stage import Api, error_of
from tests.kit.tables import table
from tests.unit.api.audit_reader import rows
from tests.unit.api.creating import create

NDJSON = {"Content-Type": "application/x-ndjson"}


def send(api: Api, *lines: Any, query: str = "", packed: bool = False, **headers: str) -> Result:
    body = "".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in lines).encode()
    coding = {"Content-Encoding": "gzip"} if packed else {}
    return api.request(
        "POST",
        f"/accounts/import{query}",
        {**api.token(), **NDJSON, **coding, **headers},
        body=gzip.compress(body) if packed else body,
    )


def stored(api: Api, *lines: Any, **how: Any) -> dict[str, Any]:
    response = send(api, *lines, **how)
    assert response.status_code == 200, response.text
    return response.json["data"]["count"]  # type: ignore[no-any-return]


def problems(api: Api, *lines: Any, **how: Any) -> dict[str, str]:
    """Fields and errors of a refused import, which changed nothing and left no file."""
    before, trail = api.services.account_store.revision, len(rows(api))
    status, _, details = error_of(send(api, *lines, **how))
    assert status == 400, details
    assert api.services.account_store.revision == before
    assert len(rows(api)) == trail
    assert [each.name for each in api.data.temporary.glob("importing-*")] == []
    return {each["field"]: each["error"] for each in details.get("errors", [details])}


def names(api: Api) -> dict[str, FleetAccount]:
    found = (FleetAccount.model_validate(each.body) for each in api.services.account_store.find("accounts"))
    return {each.username: each for each in found}


@pytest.mark.parametrize("packed", [False, True])
def test_accounts_are_added_and_changed_in_one_step(api: Api, packed: bool) -> None:
    hashed = hash_password("correct horse", 4)
    assert stored(
        api, {"username": "a", "password_hash": hashed}, "", {"username": "b", "certificates": ["CN=b"]}, packed=packed
    ) == {"created": 2, "updated": 0, "deleted": 0}
    a, b = names(api)["a"].id, names(api)["b"].id
    assert api.services.account_store.accounts_certified("CN=b")[0].id == b
    revision = api.services.account_store.revision
    changes = [{"id": a, "enabled": False}, {"id": b, "username": "b"}, {"username": "c", "expires_at": "2099-01-01"}]
    changes[2]["expires_at"] = "2099-01-01T00:00:00Z"
    assert stored(api, *changes, packed=packed) == {"created": 1, "updated": 1, "deleted": 0}
    found = names(api)
    assert (found["a"].enabled, found["a"].password_hash, [*found]) == (False, f"plain:{hashed}", ["b", "a", "c"])
    assert api.services.account_store.revision == revision + 2
    with closing(AccountTable(api.data.fleet)) as reader:
        assert [reader.accounts_named(name)[0].enabled for name in "abc"] == [False, True, True]
    assert [each.username for each in api.services.account_store.due_ends(5e9, 9)] == ["c"]
    events = [
        (each["created"], each["updated"], each["by"]["type"]) for each in api.fleet.published("account.imported")
    ]
    assert events == [(2, 0, "user"), (1, 1, "user")]
    assert api.fleet.published("account.created") + api.fleet.published("account.updated") == []
    assert [row["resource"]["name"] for row in reversed(rows(api, action="account.created"))] == ["a", "b", "c"]
    (row,) = rows(api, action="account.updated")
    assert (row["before"], row["after"]) == ({"enabled": True}, {"enabled": False})


def test_all_wrong_lines_are_named_as_an_editor_counts_them(api: Api) -> None:
    proxy = create(api, api.token(), auth={"username": "inline", "password": "x"})
    stored(api, {"username": "a"}, {"username": "b", "certificates": ["CN=b"]})
    a, b = names(api)["a"], names(api)["b"]
    found = problems(
        api,
        {"username": "good"},
        "",
        "{",
        {"username": "x:y", "limits": {"connections": -1}},
        {"username": "c", "plan": "none"},
        {"username": "d", "expires_at": "2020-01-01T00:00:00Z"},
        {"username": "e", "password": "in the clear"},
        {"id": "acc_nothing", "enabled": False},
        {"id": a.id, "plan": "none"},
        {"id": a.id, "enabled": False},
        {"username": "twice"},
        {"username": "twice"},
        {"username": "b"},
        {"username": "inline", "proxies": {"ids": [proxy["id"]]}},
        {"username": "f", "certificates": ["CN=b"]},
        {"username": "g", "proxies": {"ids": ["prx_nothing"]}},
        [],
    )
    fields = ("3", "4.username", "4.limits.connections", "5.plan", "6.expires_at", "7.password", "8.id", "9.plan")
    more = ("10.id", "12.username", "13.username", "14.username", "15.certificates[0]", "16.proxies.ids[0]", "17")
    wanted = [re.sub("^([0-9]+)", r"lines[\1]", each) for each in (*fields, *more)]
    assert sorted(found) == sorted(wanted)
    assert b.id in found["lines[13].username"]
    assert proxy["id"] in found["lines[14].username"]
    assert {*names(api)} == {"a", "b"}


def test_names_may_be_exchanged_and_are_free_where_they_are_given_up(api: Api) -> None:
    stored(api, {"username": "a"}, {"username": "b"})
    a, b = names(api)["a"].id, names(api)["b"].id
    assert stored(api, {"id": a, "username": "b"}, {"id": b, "username": "a"})["updated"] == 2
    assert stored(api, {"id": a, "username": "z"}, {"username": "b"}) == {"created": 1, "updated": 1, "deleted": 0}
    assert {name: each.id for name, each in names(api).items()}["a"] == b


def test_a_dry_run_checks_and_stores_nothing(api: Api) -> None:
    assert stored(api, {"username": "a"}, query="?dry_run=true")["created"] == 1
    assert "lines[2].username" in problems(api, {"username": "a"}, {"username": "a"}, query="?dry_run=true")
    assert names(api) == {}


def test_no_more_lines_are_named_than_people_read_and_none_is_read_behind_them(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account_batches, "ERRORS_MAX", 3)
    monkeypatch.setattr(account_names, "ERRORS_MAX", 3)
    wrong = [{"username": f"u{number}", "plan": "none"} for number in range(9)]
    assert [*problems(api, *wrong)] == [f"lines[{number}].plan" for number in (1, 2, 3)]
    assert len(problems(api, *[{"username": "same"}] * 9)) == 3


@table(
    ("body", "headers", "status"),
    [
        (b"nothing that is packed", {"Content-Encoding": "gzip"}, 400),
        (gzip.compress(b"{}\n")[:-4], {"Content-Encoding": "gzip"}, 400),
        (b"{}", {"Content-Encoding": "br"}, 415),
        (b'{"username": "\xff"}', {}, 400),
        (b"[" * 5000, {}, 400),
        (b" " * 300_000 + b"{}", {}, 400),
    ],
    ids=["not gzip", "cut off", "another coding", "not UTF-8", "nested", "a long line"],
)
def test_a_body_that_is_none_is_refused(api: Api, body: bytes, headers: dict[str, str], status: int) -> None:
    response = api.request("POST", "/accounts/import", {**api.token(), **NDJSON, **headers}, body=body)
    assert response.status_code == status, response.text
    assert names(api) == {}


def test_a_repeated_request_with_a_key_is_made_once(api: Api) -> None:
    key = {"Idempotency-Key": "once"}
    first, again = (send(api, {"username": "a"}, **key) for _ in range(2))
    assert (first.json, again.headers["Idempotency-Replayed"]) == (again.json, "true")
    assert error_of(send(api, {"username": "b"}, **key))[2]["field"] == "Idempotency-Key"
    assert {*names(api)} == {"a"}


@pytest.mark.parametrize("place", ["staging", "commit", "space"])
def test_a_full_disk_at_any_moment_leaves_nothing_half_done(
    api: Api, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def full(*_: Any) -> Any:
        raise StoreWriteError("the disk is full")

    finish = Staging.finish

    def large(staged: Staging) -> None:
        finish(staged)
        staged.size = 2**60

    with monkeypatch.context() as patched:
        if place == "space":
            patched.setattr(Staging, "finish", large)
        else:
            patched.setattr(Staging, {"staging": "add", "commit": "merge"}[place], full)
        assert send(api, {"username": "a"}, {"username": "b"}).status_code == 500
    assert (names(api), api.services.account_store.revision) == ({}, 0)
    assert [each.name for each in api.data.temporary.glob("importing-*")] == []
    assert rows(api, action="account.created") == []
    failed = [(row["outcome"], row["details"]) for row in rows(api, action="account.imported")]
    assert failed == ([("failed", {"accounts": 2, "error": "StoreWriteError"})] if place != "staging" else [])
    assert stored(api, {"username": "a"})["created"] == 1


def test_an_import_that_fills_the_disk_in_any_table_is_whole_when_there_is_room_again(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: dict[Staging, Generator[Any, None, None]] = {}
    entries = Staging.entries
    monkeypatch.setattr(Staging, "entries", lambda staged: begun.setdefault(staged, entries(staged)))
    database = api.engine.file.database
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    lines = [{"username": f"u{number}", "metadata": {"text": "x" * 300}} for number in range(40)]
    for room in range(1, 400, 7):
        database.execute(f"PRAGMA max_page_count = {pages + room}")
        if send(api, *lines).status_code == 200:
            break
        assert names(api) == {}
    assert 20 < room < 390
    assert (len(names(api)), len(rows(api, action="account.created", limit=100))) == (40, 40)
    assert isinstance(verify(api.data), Head)
    assert {inspect.getgeneratorstate(each) for each in begun.values()} == {inspect.GEN_CLOSED}, (
        "it is read behind its end"
    )


def test_an_account_that_another_changes_meanwhile_stands_against_all(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(api, {"username": "a"})
    account = names(api)["a"]
    finish = Staging.finish

    def overtaken(staged: Staging) -> None:
        body = {**account.model_dump(mode="json"), "tags": ["new"]}
        api.engine.commit([Write("accounts", account.id, body)])
        finish(staged)

    monkeypatch.setattr(Staging, "finish", overtaken)
    assert send(api, {"id": account.id, "enabled": False}, {"username": "b"}).status_code == 412
    assert names(api)["a"].tags == ["new"]
    assert {*names(api)} == {"a"}


def test_what_was_imported_is_among_the_changes_that_actors_follow(api: Api) -> None:
    stored(api, {"username": "first"})
    with closing(AccountTable(api.data.fleet)) as reader:
        seen = reader.revision
        stored(api, {"username": "second"}, {"username": "third"})
        assert reader.changes(seen) == {("account", names(api)[name].id) for name in ("second", "third")}
        assert reader.changes(reader.revision) == set()


def test_an_import_in_parts_is_one_revision_and_a_failed_one_is_none(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def revisions() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = api.get("/revisions", api.token()).json["data"]["revisions"]
        return found

    def changes() -> int:
        with api.engine.file.reading() as database:
            return int(database.execute("SELECT count(*) FROM revision_changes").fetchone()[0])

    for each in ("api.store.accounts.staging.READ", "api.history.recorder.PRUNED_AT_ONCE"):
        monkeypatch.setattr(each, 5)
    before, first = len(revisions()), changes()
    assert stored(api, *({"username": f"u{number}"} for number in range(12)))["created"] == 12
    assert (len(revisions()), revisions()[0]["summary"]["create"], changes()) == (before + 1, 12, first + 12)
    head = verify(api.data)
    assert isinstance(head, Head)
    assert [each["action"] for each in rows(api, limit=12)] == ["account.created"] * 12

    def full(*_given: Any) -> None:
        raise StoreWriteError("full")

    with monkeypatch.context() as patched:
        patched.setattr(Staging, "merge", full)
        assert send(api, *({"username": f"v{number}"} for number in range(12))).status_code == 500
    assert (len(revisions()), changes()) == (before + 1, first + 12)
    api.post("/plans", {"name": "basic"}, api.token())
    assert [each["revision"] for each in revisions()[:2]] == [before + 2, before + 1]
    done = api.post(f"/revisions/{before}/restore", None, api.token())
    assert done.json["data"]["summary"]["delete"] == 13
    assert names(api) == {}


def test_a_policy_that_is_deleted_while_an_import_waits_for_others_is_given_to_no_account(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = api.token()
    api.post("/policies", {"name": "closed", "rules": []}, token)
    announce = api.services.link.announce

    def announce_late(policies: Any) -> None:
        announce(policies)
        assert api.request("DELETE", "/policies/closed", token).status_code == 200

    monkeypatch.setattr(api.services.link, "announce", announce_late)
    status, _, details = error_of(
        send(api, {"username": "ada", "password_hash": hash_password("x"), "policy": "closed"})
    )
    assert (status, details) == (400, {"field": "policy", "error": "there is no policy 'closed'"})
    assert names(api) == {}
