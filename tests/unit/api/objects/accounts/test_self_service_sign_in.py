"""Sign-ins of account holders: which account is meant, how guessing is bounded, and how long a sign-in lives."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import bcrypt
import pytest
from falcon.testing import Result

from api.concurrency_limit import ConcurrencyLimit
from api.objects.accounts.self_service import SAME_NAME_MAX
from api.security.account_sessions import LIFETIME, SESSIONS_PER_ACCOUNT, AccountSessions
from config.passwords import hash_password
from tests.kit.api_stage import Api, error_of
from tests.unit.api.audit_reader import rows
from tests.unit.api.creating import create
from tests.unit.api.holding import PASSWORD, account, refused, sign_in, with_self_service


@pytest.fixture
def api() -> Iterator[Api]:
    made = with_self_service()
    yield made
    made.close()


def test_an_account_with_a_hash_from_elsewhere_signs_in(api: Api) -> None:
    for number, hashed in enumerate((bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)), hash_password(PASSWORD, 4))):
        text = hashed if isinstance(hashed, str) else hashed.decode()
        account(api, f"user{number}", None, password_hash=text)
        assert api.get("/me", sign_in(api, f"user{number}")).status_code == 200
        assert refused(api, username=f"user{number}", password="wrong") == (401, "UNAUTHORIZED")


def test_a_hash_from_elsewhere_has_a_place_among_the_checks_of_passwords_or_is_429(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
    account(api, password=None, password_hash=hashed)
    monkeypatch.setattr(api.services.password_checker, "_places", ConcurrencyLimit(0, 0, "checks", "client"))
    assert refused(api) == (429, "RATE_LIMITED")


def test_failures_lock_the_name_for_the_address_and_are_audited(api: Api) -> None:
    account_id = account(api)
    for _ in range(5):
        assert refused(api, password="wrong") == (401, "UNAUTHORIZED")
    assert refused(api) == (429, "RATE_LIMITED")
    found = [row for row in reversed(rows(api)) if row["action"].startswith("account.l")]
    assert [row["action"] for row in found] == ["account.login_failed"] * 5 + ["account.locked", "account.login_failed"]
    assert found[0]["resource"] == {"type": "account", "id": account_id, "name": "alice"}
    assert {row["outcome"] for row in found} == {"failed"}
    users_too = api.post("/auth/login", {"username": "alice", "password": "wrong"})
    assert users_too.status_code == 401, "users of that name are counted apart"


def test_of_two_accounts_with_one_name_and_one_password_the_proxy_says_which(api: Api) -> None:
    admin = api.token()
    first, second = create(api, admin, name="p1", tags=["a"]), create(api, admin, name="p2", port=4000, tags=["b"])
    account(api, proxies={"ids": [first["id"]]})
    account(api, proxies={"tags": ["b"]})
    status, _code, details = error_of(api.post("/me/login", {"username": "alice", "password": PASSWORD}))
    assert (status, details["field"]) == (400, "proxy")
    for proxy in (first, second):
        for named in (proxy["name"], proxy["id"]):
            me = api.get("/me", sign_in(api, proxy=named)).json["data"]["account"]
            assert [each["name"] for each in me["proxies"]] == [proxy["name"]]


def test_of_two_accounts_with_one_name_the_password_says_which(api: Api) -> None:
    admin = api.token()
    ids = [create(api, admin, name=name, port=port)["id"] for name, port in (("p1", 4001), ("p2", 4002))]
    account(api, proxies={"ids": ids[:1]})
    account(api, password="another one", proxies={"ids": ids[1:]})
    me = api.get("/me", sign_in(api, password="another one")).json["data"]["account"]
    assert [each["name"] for each in me["proxies"]] == ["p2"]


def test_the_password_of_one_account_does_not_forgive_guesses_at_another_of_that_name(api: Api) -> None:
    admin = api.token()
    ids = [create(api, admin, name=name, port=port)["id"] for name, port in (("p1", 4001), ("p2", 4002))]
    account(api, proxies={"ids": ids[:1]})
    account(api, password="another one", proxies={"ids": ids[1:]})
    for _ in range(4):
        assert refused(api, password="wrong", proxy="p1") == (401, "UNAUTHORIZED")
    sign_in(api, password="another one", proxy="p2")
    assert refused(api, password="wrong", proxy="p1") == (401, "UNAUTHORIZED")
    assert refused(api, proxy="p1") == (429, "RATE_LIMITED")


def test_a_right_password_forgives_failures_before_it(api: Api) -> None:
    account(api)
    for _ in range(2):
        for _ in range(4):
            assert refused(api, password="wrong") == (401, "UNAUTHORIZED")
        sign_in(api)


def test_more_accounts_of_one_name_than_are_tried_need_a_proxy_and_read_as_none(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = api.token()
    for number in range(SAME_NAME_MAX + 1):
        proxy = create(api, admin, name=f"p{number}", port=4000 + number)
        account(api, password=f"secret {number}", proxies={"ids": [proxy["id"]]})
    checked: list[str] = []
    check = api.services.password_checker.check_password

    def counted(password: str, stored: str, address: str) -> bool:
        checked.append(stored)
        return check(password, stored, address)

    monkeypatch.setattr(api.services.password_checker, "check_password", counted)
    for password in ("secret 8", "wrong"):
        known, unknown = (
            api.post("/me/login", {"username": name, "password": password}) for name in ("alice", "unknown")
        )
        assert (known.status_code, known.json["error"]) == (unknown.status_code, unknown.json["error"])
        assert (known.status_code, len(checked), len({*checked})) == (401, 2, 1)
        checked.clear()
    assert api.get("/me", sign_in(api, password="secret 8", proxy="p8")).status_code == 200


def test_sign_ins_are_bounded_and_none_is_kept_as_text(api: Api) -> None:
    account(api)
    holders = [sign_in(api) for _ in range(3)]
    sessions = api.services.self_service._sessions
    for _ in range(SESSIONS_PER_ACCOUNT):
        sessions.issue("acc_other", "hash")
    for _ in range(SESSIONS_PER_ACCOUNT - 2):
        sessions.issue(api.services.account_store.accounts_named("alice")[0].id, "hash")
    assert [api.get("/me", each).status_code for each in holders] == [401, 200, 200], "the oldest has ended"
    token = holders[1]["Authorization"].removeprefix("Bearer ")
    with closing(sqlite3.connect(api.data.account_sessions)) as database:
        assert token not in "".join(database.iterdump())


def test_expired_sign_ins_are_removed(api: Api) -> None:
    now = [1_700_000_000.0]
    sessions = AccountSessions(api.data, api.engine, api.engine.loose, lambda: now[0])
    old = sessions.issue("acc_1", "hash")
    now[0] += LIFETIME + 1
    new = sessions.issue("acc_2", "hash")
    assert sessions.find(old) is None
    assert sessions.find(new) is not None
    sessions.close()


HERE = {"host": "127.0.0.1", "headers": {"Sec-Fetch-Site": "same-origin"}}


def cookie_sign_in(api: Api, **where: Any) -> Result:
    body = {"username": "alice", "password": PASSWORD, "session": "cookie"}
    return api.post("/me/login", body, **{**HERE, **where})


def resumed(api: Api, token: str, **where: Any) -> Result:
    given = {**HERE, **where}
    return api.post("/me/resume", None, {**given.pop("headers"), "Cookie": f"proxyfleet-holder={token}"}, **given)


def test_a_page_continues_the_sign_in_of_its_cookie_until_that_ends(api: Api) -> None:
    account(api)
    signed_in = cookie_sign_in(api)
    token = signed_in.json["data"]["access_token"]
    cookie = signed_in.cookies["proxyfleet-holder"]
    assert (cookie.value, cookie.http_only, cookie.path, cookie.max_age) == (token, True, "/api/v1/me", LIFETIME)
    found = resumed(api, token).json["data"]
    assert (found["access_token"], found["username"]) == (token, "alice")
    assert 0 < found["expires_in"] <= LIFETIME
    assert api.get("/me", {"Authorization": f"Bearer {token}"}).status_code == 200
    api.post("/me/logout", None, {"Authorization": f"Bearer {token}"})
    assert resumed(api, token).status_code == 401


def test_the_cookie_of_a_holder_is_for_pages_of_this_api_and_opens_nothing_else(api: Api) -> None:
    account(api)
    token = cookie_sign_in(api).json["data"]["access_token"]
    for headers in ({"Sec-Fetch-Site": "same-site"}, {"Origin": "http://127.0.0.1:1"}, {}):
        assert resumed(api, token, headers=headers).status_code == 403
    assert cookie_sign_in(api, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert resumed(api, "").status_code == 401
    cookie = {"Sec-Fetch-Site": "same-origin", "Cookie": f"proxyfleet-holder={token}; proxyfleet={token}"}
    assert api.get("/me", cookie, host="127.0.0.1").status_code == 401
    assert api.post("/auth/refresh", None, cookie, host="127.0.0.1").status_code == 401
    assert "set-cookie" not in cookie_sign_in(api, host="proxies.example").headers, "it would be sent in clear"
    secure = cookie_sign_in(api, host="proxies.example", protocol="https").cookies["__Host-proxyfleet-holder"]
    assert (secure.secure, secure.path, secure.same_site) == (True, "/", "Strict")
    assert "set-cookie" not in api.post("/me/login", {"username": "alice", "password": PASSWORD}, **HERE).headers
