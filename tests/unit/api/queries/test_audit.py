"""The audit trail: every change is in it, no secret is, and no alteration goes unnoticed."""

from __future__ import annotations

import json
import re
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from api.audit import refused
from api.audit.masking import difference
from api.audit.refused import BoundedEntries
from api.audit.trail import Broken, Head, verify
from api.engine.commit import open_engine
from api.operator.offline import peek_settings, reset_password, reset_settings
from api.operator.start import ensure_administrator
from api.store import StoreWriteError, open_store
from config.files.paths import DataDir, open_data_dir
from tests.kit.api_stage import PASSWORD, PROXY, Api, error_of
from tests.kit.folders import FOLDERS
from tests.kit.tables import table
from tests.kit.trails import opened_trail
from tests.unit.api.audit_reader import recorded, rows

# --- what is in it ------------------------------------------------------------------------------------------------


def test_a_change_says_who_by_what_from_where_and_what(api: Api) -> None:
    made = api.post("/proxies", PROXY, {**api.token(), "X-Request-Id": "mine-1"})
    proxy_id = made.json["data"]["proxy"]["id"]
    key = api.key(permissions=["proxy.write"])
    api.patch(f"/proxies/{proxy_id}", {"settings": {"timeout": 9}, "tags": ["a"]}, key)
    updated, _, created = rows(api, limit=3)
    assert created["action"] == "proxy.created"
    assert created["actor"] == {"type": "user", "user_id": api.admin.id, "username": "admin", "role": "administrator"}
    assert created["credential"]["method"] == "bearer"
    assert (created["address"], created["request_id"], created["operation"]) == ("127.0.0.1", "mine-1", "createProxy")
    assert created["resource"] == {"type": "proxy", "id": proxy_id, "name": "first"}
    assert (created["before"], created["after"]["port"]) == (None, 3128)
    assert updated["action"] == "proxy.updated"
    assert (updated["before"], updated["after"]) == (
        {"settings": {"timeout": 30}, "tags": []},
        {"settings": {"timeout": 9}, "tags": ["a"]},
    )
    assert updated["credential"]["method"] == "api_key"
    assert updated["credential"]["id"].startswith("key_")


def test_every_change_of_every_resource_is_recorded(api: Api) -> None:
    token = api.token()
    proxy_id = api.post("/proxies", PROXY, token).json["data"]["proxy"]["id"]
    for act in ("stop", "start", "restart", "test"):
        assert api.post(f"/proxies/{proxy_id}/{act}", None, token).status_code == 200
    api.request("DELETE", f"/proxies/{proxy_id}", token)
    user = {"username": "eva", "password": PASSWORD}
    user_id = api.post("/users", user, token).json["data"]["user"]["id"]
    api.patch(f"/users/{user_id}", {"status": "disabled"}, token)
    api.request("DELETE", f"/users/{user_id}", token)
    key_id = api.post("/api-keys", {"name": "k"}, token).json["data"]["api_key"]["id"]
    api.request("DELETE", f"/api-keys/{key_id}", token)
    api.patch("/settings", {"logging": {"level": "debug"}}, token)
    api.post("/auth/login", {"username": "admin", "password": PASSWORD})
    api.post("/auth/logout", None, token)
    assert [row["action"] for row in reversed(rows(api))] == [
        *("proxy.created", "proxy.stopped", "proxy.started", "proxy.restarted", "proxy.tested"),
        *("proxy.deleted", "user.created", "user.updated", "user.deleted", "api_key.created"),
        *("api_key.revoked", "settings.updated", "auth.login", "auth.logout"),
    ]


def test_actions_and_refusals_have_the_name_of_what_they_were_about(api: Api) -> None:
    proxy_id = api.post("/proxies", PROXY, api.token()).json["data"]["proxy"]["id"]
    api.post(f"/proxies/{proxy_id}/restart", None, api.token())
    assert api.request("DELETE", f"/proxies/{proxy_id}", api.key(permissions=["proxy.read"])).status_code == 403
    found = rows(api, resource_name=PROXY["name"])
    assert [row["action"] for row in found] == ["access.refused", "proxy.restarted", "proxy.created"]
    assert {row["resource"]["id"] for row in found} == {proxy_id}


def test_what_changes_nothing_and_what_is_refused_have_no_row(api: Api) -> None:
    token = api.token()
    proxy_id = api.post("/proxies", PROXY, token).json["data"]["proxy"]["id"]
    before = api.services.audit.head
    assert api.post(f"/proxies/{proxy_id}/start", None, token).json["data"]["changed"] is False
    assert api.post("/proxies", PROXY, token).status_code == 400
    assert api.patch(f"/proxies/{proxy_id}", {"name": 7}, token).status_code == 400
    assert api.patch(f"/proxies/{proxy_id}", {}, token).status_code == 200
    assert api.request("DELETE", f"/proxies/{proxy_id}", {**token, "If-Match": '"1"'}).status_code == 412
    assert api.get("/proxies", token).status_code == 200
    assert api.services.audit.head == before


def test_failed_sign_ins_and_lock_outs_are_recorded_with_the_name_and_the_reason(api: Api) -> None:
    for _ in range(6):
        api.post("/auth/login", {"username": "admin", "password": "wrong password"})
    found = [row for row in reversed(rows(api)) if row["action"].startswith("auth.")]
    assert [row["action"] for row in found] == ["auth.login_failed"] * 5 + ["auth.locked", "auth.login_failed"]
    assert {row["outcome"] for row in found} == {"failed"}
    assert found[-1]["details"] == {"reason": "locked out"}
    assert found[0]["resource"] == {"type": "user", "id": api.admin.id, "name": "admin"}
    assert found[0]["actor"]["type"] == "anonymous"


def test_a_refresh_token_that_is_used_twice_is_recorded(api: Api) -> None:
    pair = api.post("/auth/login", {"username": "admin", "password": PASSWORD}).json["data"]
    for expected in (200, 401):
        assert api.post("/auth/refresh", {"refresh_token": pair["refresh_token"]}).status_code == expected
    assert rows(api)[0]["action"] == "auth.refresh_reused"


def test_a_denied_action_is_recorded_with_the_key_and_the_reason(api: Api) -> None:
    key = api.key(name="ci2", permissions=["proxy.read"])
    assert api.request("DELETE", "/proxies/prx_1", key).status_code == 403
    row = rows(api, outcome="failed")[0]
    assert (row["action"], row["operation"]) == ("access.refused", "deleteProxy")
    assert row["resource"] == {"type": "proxy", "id": "prx_1", "name": None}
    assert row["details"] == {"required_permission": "proxy.delete"}
    assert (row["actor"]["username"], row["credential"]["name"]) == ("admin", "ci2")


def test_a_caller_who_is_refused_again_and_again_fills_no_trail() -> None:
    now, written = [0.0], []
    refusals = BoundedEntries(lambda *_row, **more: written.append(more["details"]), lambda: now[0])
    for _ in range(refused.EACH + 5):
        refusals.record("usr_1", None, {"reason": "no"})
    refusals.record("usr_2", None, {"reason": "no"})
    assert len(written) == refused.EACH + 1
    now[0] = refused.WINDOW
    refusals.record("usr_1", None, {"reason": "no"})
    refusals.record("usr_1", None, {"reason": "no"})
    assert written[-2:] == [{"reason": "no", "left_out": 5}, {"reason": "no"}]


def test_rows_of_all_callers_together_are_bounded() -> None:
    written: list[object] = []
    refusals = BoundedEntries(lambda *_row, **_more: written.append(1), lambda: 0.0)
    for number in range(refused.IN_ALL + 50):
        refusals.record(f"usr_{number}", None, {})
    assert len(written) == refused.IN_ALL


def test_rows_are_found_by_the_name_of_the_resource(api: Api) -> None:
    token = api.token()
    api.post("/proxies", {**PROXY, "name": "office"}, token)
    api.post("/proxies", {**PROXY, "name": "other", "port": 3129}, token)
    found = rows(api, resource_name="office")
    assert [(row["action"], row["resource"]["name"]) for row in found] == [("proxy.created", "office")]


def test_no_secret_gets_into_the_file(api: Api) -> None:
    secret = "planted-secret-9182"
    auth = {"enabled": True, "username": "u", "password": secret}
    made = api.post("/proxies", {**PROXY, "auth": auth}, api.token())
    proxy_id = made.json["data"]["proxy"]["id"]
    api.patch(f"/proxies/{proxy_id}", {"auth": {"password": secret + "-2"}}, api.token())
    api.post("/users", {"username": "eva", "password": secret}, api.token())
    api.post("/auth/login", {"username": "eva", "password": secret})
    key = api.key()["X-API-Key"]
    stored = api.store.get("proxies", proxy_id)
    assert stored is not None
    written = recorded(api)
    for planted in (secret, key, stored.body["auth"]["password_hash"], "$2b$"):
        assert planted.encode() not in written
    changed = rows(api, action="proxy.updated")[0]
    assert (changed["before"], changed["after"]) == (
        {"auth": {"password_hash": "***"}},
        {"auth": {"password_hash": "***"}},
    )


def test_masking_knows_headers_urls_and_long_lists() -> None:
    before = {"headers": {"X-Any": "a"}, "url": "http://u:secret@h/", "names": ["a"]}
    after = {"headers": {"X-Any": "b"}, "url": "http://u:other@h/", "names": ["a"] * 1000}
    old, new = difference(before, after)
    assert old == {"headers": {"X-Any": "***"}, "url": "http://h/***", "names": ["a"]}
    assert new is not None
    assert (new["headers"], new["names"]["entries"]) == ({"X-Any": "***"}, 1000)
    accounts = {"accounts": [{"id": "a", "n": 1}, {"id": "b", "n": 1}]}
    changed = {"accounts": [{"id": "a", "n": 1}, {"id": "b", "n": 2}, {"id": "c", "n": 1}]}
    old, new = difference(accounts, changed)
    assert (old, new) == ({"accounts": [{"id": "b", "n": 1}]}, {"accounts": [{"id": "b", "n": 2}, {"id": "c", "n": 1}]})
    assert difference({"a": 1, "updated_at": 1}, {"a": 1, "updated_at": 2}) == ({}, {})


def test_a_long_field_is_recorded_by_its_beginning_its_bytes_and_a_hash(trail: DataDir) -> None:
    name, many = "ä" * 40_000, [f"host-{number}.example" for number in range(150)]
    fields = {"name": name, "limits": {"note": name, "n": 1}, "allow": many, "odd": {str(n): n for n in range(5_000)}}
    with opened_trail(trail) as opened:
        content = opened.append("x.y", {"type": "x", "id": name, "name": None}, after=fields).content
    assert len(json.dumps(content, ensure_ascii=False).encode()) < 8 * 1024
    after = content["after"]
    assert after["limits"]["n"] == 1
    for text in (after["name"], after["limits"]["note"], content["resource"]["id"]):
        assert re.fullmatch(r"ä{512}… \(80000 bytes, SHA-256 [0-9a-f]{64}\)", text)
    assert after["allow"][:2] == many[:2]
    assert re.search(r"bytes, SHA-256 [0-9a-f]{64}", after["allow"][-1])
    assert "SHA-256" in after["odd"]["…"]


def test_callers_beyond_those_that_are_counted_share_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused, "CALLERS", 2)
    budget = refused.Budget(each=1, clock=lambda: 0.0)
    assert [budget.take(who) for who in ("a", "b", "c", "d", "a")] == [{}, {}, {}, None, None]


def test_failed_sign_ins_are_bounded_by_address(api: Api) -> None:
    for number in range(refused.EACH + 5):
        api.services._record("auth.login_failed", None, f"name-{number}", "wrong credentials")
        api.services._record_holder("account.login_failed", None, f"name-{number}", "wrong credentials")
    found = [row["action"] for row in rows(api, limit=500)]
    assert (found.count("auth.login_failed"), found.count("account.login_failed")) == (refused.EACH, refused.EACH)


def test_timestamps_have_the_format_of_the_api(api: Api) -> None:
    token = api.token()
    key = {"name": "k", "expires_at": "2099-01-31T12:00:00Z"}
    api.post("/api-keys", key, token)
    made = next(row for row in rows(api) if row["action"] == "api_key.created")["after"]
    assert made["expires_at"] == "2099-01-31T12:00:00.000Z"
    assert datetime.fromisoformat(made["created_at"]) <= datetime.now(UTC)


# --- a change is never unaudited ----------------------------------------------------------------------------------


def test_a_change_that_the_disk_refused_is_on_record_as_failed(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise StoreWriteError("the disk is full")

    token = api.token()
    with monkeypatch.context() as patch:
        patch.setattr(api.engine.documents, "take", refuse)
        assert api.post("/proxies", PROXY, token).status_code == 500
    (failed,) = rows(api)
    assert (failed["action"], failed["outcome"], failed["after"]) == ("proxy.created", "failed", None)
    assert failed["details"] == {"error": "StoreWriteError"}


def test_what_can_not_be_put_on_record_is_not_done(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise StoreWriteError("the disk is full")

    token = api.token()
    monkeypatch.setattr(api.services.audit, "insert", refuse)
    assert api.post("/proxies", PROXY, token).status_code == 500
    assert api.store.find("proxies") == []
    assert api.post("/auth/login", {"username": "admin", "password": "wrong one"}).status_code == 401


# --- reading it ---------------------------------------------------------------------------------------------------


def test_only_administrators_and_auditors_read_it(api: Api) -> None:
    for role in ("operator", "user", "auditor"):
        api.add_user(role, role=role)
    api.add_user("half", role="auditor", permissions=["proxy.read"])
    assert api.get("/audit", api.token("auditor")).status_code == 200
    for name in ("operator", "user", "half"):
        assert error_of(api.get("/audit", api.token(name)))[::2] == (403, {"required_permission": "admin"})
    assert api.get("/audit", api.key("auditor")).status_code == 200
    assert api.get("/audit", api.key("auditor", permissions=["users.read"])).status_code == 403
    assert api.get("/audit", api.key(scope={"proxies": []})).status_code == 403
    assert api.get("/audit").status_code == 401


def test_filters_pages_and_the_cursor(api: Api) -> None:
    for number in range(5):
        api.services.audit.append("proxy.created", {"type": "proxy", "id": f"p{number}", "name": None})
    api.services.audit.append("proxy.updated", {"type": "proxy", "id": "p1", "name": None})
    assert [row["action"] for row in rows(api, resource_id="p1")] == ["proxy.updated", "proxy.created"]
    assert len(rows(api, action="proxy.*")) == 6
    assert len(rows(api, action="proxy.created", limit=2, offset=4)) == 1
    assert rows(api, start_time="2999-01-01T00:00:00Z") == []
    assert len(rows(api, end_time="2999-01-01T00:00:00Z")) == 6
    page = api.get("/audit", api.token(), params={"limit": 4}).json["data"]
    assert (page["total"], page["has_more"], len(page["audit"])) == (6, True, 4)
    api.services.audit.append("proxy.deleted")  # the cursor doesn't mind
    rest = api.get("/audit", api.token(), params={"limit": 4, "cursor": page["next_cursor"]}).json["data"]
    assert [row["seq"] for row in page["audit"] + rest["audit"]] == [6, 5, 4, 3, 2, 1]
    assert rest["next_cursor"] is None


@table(
    ("query", "field"),
    [
        ({"outcome": "maybe"}, "outcome"),
        ({"cursor": "-1"}, "cursor"),
        ({"limit": "1001"}, "limit"),
        ({"start_time": "yesterday"}, "start_time"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_bad_filter_is_named(api: Api, query: dict[str, str], field: str) -> None:
    assert error_of(api.get("/audit", api.token(), params=query))[2]["field"] == field


# --- the chain ----------------------------------------------------------------------------------------------------


@pytest.fixture
def data() -> Iterator[DataDir]:
    with tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS) as folder:
        yield open_data_dir(Path(folder) / "d")


@pytest.fixture
def trail(data: DataDir) -> DataDir:
    """A directory with a trail of five rows, closed."""
    with opened_trail(data) as written:
        for number in range(5):
            written.append("proxy.created", {"type": "proxy", "id": f"p{number}", "name": None})
    return data


def tamper(data: DataDir, *statements: str) -> None:
    """As an attacker with the file would: the triggers are no obstacle."""
    with sqlite3.connect(data.fleet) as database:
        database.executescript("DROP TRIGGER audit_is_not_altered; DROP TRIGGER audit_is_not_cut;")
        for statement in statements:
            database.execute(statement)
    database.close()


def test_a_whole_chain_ends_in_its_head_and_goes_on_after_a_restart(trail: DataDir) -> None:
    head = verify(trail)
    assert isinstance(head, Head)
    assert head.seq == 5
    with opened_trail(trail) as again:
        again.append("proxy.deleted")
        last = again.head
        assert verify(trail) == last  # while it is open
    assert verify(trail, noted=head) == last
    assert verify(trail, noted=Head(3, "0" * 64)) == Broken(3, "is another row than the one whose hash was noted")


@pytest.mark.parametrize(
    ("statement", "seq", "words"),
    [
        ("UPDATE audit SET content = replace(content, 'p2', 'p9') WHERE seq = 3", 3, "doesn't go with its hash"),
        ("UPDATE audit SET hash = (SELECT hash FROM audit WHERE seq = 1) WHERE seq = 3", 3, "doesn't go with"),
        ("UPDATE audit SET content = '{}' WHERE seq = 3", 3, "it is another row"),
        ("DELETE FROM audit WHERE seq = 3", 4, "what was between them is missing"),
        ("DELETE FROM audit WHERE seq = 1", 2, "what was between them is missing"),
        ("DELETE FROM audit WHERE seq > 3", 4, "is missing: there were 5 rows"),
        ("DELETE FROM audit", 1, "is missing: there were 5 rows"),
        ("UPDATE head SET hash = 'x'", 5, "is not the last row"),
        ("UPDATE head SET seq = 'x'", 5, "is not the last row"),
    ],
)
def test_whatever_is_done_to_the_rows_shows_at_the_first_wrong_one(
    trail: DataDir, statement: str, seq: int, words: str
) -> None:
    tamper(trail, statement)
    found = verify(trail)
    assert isinstance(found, Broken)
    assert found.seq == seq
    assert words in found.error


def test_rows_that_were_cut_off_with_their_head_are_known_by_a_head_noted_elsewhere(trail: DataDir) -> None:
    noted = verify(trail)
    assert isinstance(noted, Head)
    tamper(
        trail,
        "DELETE FROM audit WHERE seq > 3",
        "UPDATE head SET seq = 3, hash = (SELECT hash FROM audit WHERE seq = 3)",
    )
    assert isinstance(verify(trail), Head)
    assert verify(trail, noted) == Broken(4, "is missing: there were 5 rows")


def test_the_file_itself_refuses_to_be_altered_in_passing_and_is_private(trail: DataDir) -> None:
    with sqlite3.connect(trail.fleet) as database:
        for statement in ("UPDATE audit SET hash = ''", "DELETE FROM audit"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                database.execute(statement)
    database.close()
    assert {file.stat().st_mode & 0o777 for file in trail.path.glob("fleet.sqlite*")} == {0o600}


def test_a_trail_that_was_altered_goes_on_and_says_so(trail: DataDir, caplog: pytest.LogCaptureFixture) -> None:
    harm = ("DELETE FROM head", "UPDATE head SET seq = 'x'", "DELETE FROM audit WHERE seq = 7")
    for broken_at, statement in enumerate(harm, start=6):
        tamper(trail, statement)
        with opened_trail(trail) as again:
            assert "was altered" in caplog.text
            caplog.clear()
            again.append("proxy.deleted")
        with sqlite3.connect(trail.fleet) as database:
            assert database.execute("SELECT max(seq) FROM audit").fetchone() == (broken_at,)
        database.close()
    found = verify(trail)
    assert isinstance(found, Broken)
    assert found.seq == 8


def test_rows_of_many_threads_make_one_chain(data: DataDir) -> None:
    with opened_trail(data) as written:
        threads = [threading.Thread(target=lambda: [written.append("a") for _ in range(10)]) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert verify(data) == written.head
        assert written.head.seq == 80


# --- without the API ----------------------------------------------------------------------------------------------


def test_the_first_start_and_the_command_line_are_on_record(data: DataDir) -> None:
    with open_engine(data, "system", "first-start") as engine:
        ensure_administrator(engine, data, PASSWORD)
    reset_password(data, "admin", "another password")
    store = open_store(data)
    store.put("settings", {"id": "settings", "server": {"port": 81}})
    store.close()
    assert peek_settings(data) == {"server": {"port": 81}}
    assert reset_settings(data) == ["server.port"]
    assert peek_settings(data) == {}
    with sqlite3.connect(data.fleet) as database:
        found = database.execute(
            "SELECT action, json_extract(content, '$.actor.type'), json_extract(content, '$.operation') FROM audit"
        ).fetchall()
    database.close()
    assert found == [
        ("user.created", "system", "first-start"),
        ("user.updated", "command_line", "reset-password"),
        ("settings.reset", "command_line", "reset-settings"),
    ]


def test_the_chain_is_verified_through_the_api(api: Api) -> None:
    token = api.token()
    api.post("/proxies", PROXY, token)
    intact = api.get("/audit/verify", token).json["data"]
    head = api.services.audit.head
    assert intact == {
        "intact": True,
        "entries": head.seq,
        "head": {"seq": head.seq, "hash": head.hash},
        "broken": None,
    }
    tamper(api.data, "UPDATE audit SET content = replace(content, 'proxy.created', 'proxy.updated') WHERE seq = 1")
    broken = api.get("/audit/verify", token).json["data"]
    assert (broken["intact"], broken["broken"]["seq"]) == (False, 1)
