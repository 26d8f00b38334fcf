"""Signing in, staying in and getting out; API keys; who may do what."""

from __future__ import annotations

import base64
import secrets
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import pytest

from api.api_settings import ApiSettings
from api.app import OPERATIONS
from api.operations import NONE, Operation
from api.security import api_keys, authentication, password_checker, tokens, users
from api.security.permissions import PERMISSIONS
from config import passwords
from config.passwords import hash_password
from config.settings.settings import Auth
from tests.kit.api_stage import PASSWORD, PROXY, QUIET, Api, error_of, revision_of
from tests.kit.tables import table


def login(api: Api, username: str = "admin", password: str = PASSWORD, **more: Any) -> Any:
    return api.post("/auth/login", {"username": username, "password": password}, **more)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def basic(username: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()}


# --- tokens -------------------------------------------------------------------------------------------------------


def test_login_gives_tokens_that_validate(api: Api) -> None:
    data = login(api).json["data"]
    assert (data["token_type"], data["expires_in"]) == ("Bearer", 3600)
    assert data["user"]["username"] == "admin"
    assert data["user"]["last_login"] is not None
    valid = api.post("/auth/validate", None, bearer(data["access_token"])).json["data"]
    assert valid["valid"] is True
    assert (valid["user_id"], valid["role"], valid["permissions"]) == (api.admin.id, "administrator", ["*"])
    assert datetime.fromisoformat(valid["expires_at"]) > datetime.now(UTC)


def test_wrong_password_unknown_user_and_disabled_user_read_the_same(api: Api) -> None:
    disabled = api.add_user("gone").model_copy(update={"status": "disabled"})
    api.store.put("users", disabled.model_dump(mode="json"))
    responses = [login(api, "admin", "wrong"), login(api, "unknown", PASSWORD), login(api, "gone", PASSWORD)]
    assert [response.status_code for response in responses] == [401, 401, 401]
    assert len({response.text for response in responses}) == 1
    assert len(api.fleet.published("auth.login_failed")) == 3


REFUSED = {
    "wrong password": ("admin", "wrong password"),
    "unknown name": ("unknown", PASSWORD),
    "disabled, right password": ("gone", PASSWORD),
    "disabled, wrong password": ("gone", "wrong password"),
}


@pytest.mark.parametrize("locked", [False, True], ids=["not locked", "locked out"])
@pytest.mark.parametrize("way", ["login", "basic"])
def test_refused_sign_ins_cost_the_same_and_read_the_same_whatever_was_wrong(
    api: Api, monkeypatch: pytest.MonkeyPatch, locked: bool, way: str
) -> None:
    """Of a lock-out the right password is one more thing that must not show."""
    disabled = api.add_user("gone").model_copy(update={"status": "disabled"})
    api.store.put("users", disabled.model_dump(mode="json"))
    names = {"admin", "unknown", "gone"}
    monkeypatch.setattr(api.services.login_throttle, "_clock", lambda: 1000.0)
    if locked:
        for name in names:
            for _ in range(5):
                login(api, name, "wrong password")
    hashed: list[bytes] = []
    right = password_checker.check_hash
    monkeypatch.setattr(password_checker, "check_hash", lambda *given: hashed.append(given[1]) or right(*given))
    kinds = {**REFUSED, **({"right password": ("admin", PASSWORD)} if locked else {})}
    responses, rows = set(), []
    for username, password in kinds.values():
        seq = api.services.audit.head.seq
        response = (
            login(api, username, password) if way == "login" else api.get("/auth/test", basic(username, password))
        )
        headers = {name: text for name, text in response.headers.items() if name.lower() != "x-request-id"}
        responses.add((response.status_code, response.text, tuple(sorted(headers.items()))))
        rows.append(api.services.audit.head.seq - seq)
    assert len(responses) == 1
    assert {status for status, *_ in responses} == {429 if locked else 401}
    assert len(hashed) == len(kinds)
    assert rows == [1] * len(kinds)


def test_an_unknown_name_is_checked_against_a_hash_of_the_same_cost() -> None:
    assert authentication.UNKNOWN_USER_HASH[:7] == hash_password("x", passwords.COST)[:7]
    assert len(authentication.UNKNOWN_USER_HASH) == len(hash_password("x"))


def test_refresh_rotates_and_the_new_tokens_work(api: Api) -> None:
    first = login(api).json["data"]
    second = api.post("/auth/refresh", {"refresh_token": first["refresh_token"]}).json["data"]
    assert second["refresh_token"] != first["refresh_token"]
    assert api.get("/auth/test", bearer(second["access_token"])).status_code == 200
    third = api.post("/auth/refresh", {"refresh_token": second["refresh_token"]})
    assert third.status_code == 200


def test_a_made_up_secret_for_a_family_that_is_known_is_401_and_ends_nothing(api: Api) -> None:
    """Access tokens and the audit trail name the family; none of these secrets was ever given out."""
    pair = login(api).json["data"]
    family = jwt.decode(pair["access_token"], options={"verify_signature": False})["fam"]
    good = pair["refresh_token"].rpartition(family + "_")[2]
    before = api.services.audit.head
    flipped = good[:-1] + ("A" if good[-1] != "A" else "B")
    for secret in ("A" * 43, secrets.token_urlsafe(32), flipped, good[21:] + good[:21]):
        response = api.post("/auth/refresh", {"refresh_token": f"rt_{family}_{secret}"})
        assert error_of(response) == (401, "UNAUTHORIZED", {})
    assert api.services.audit.head == before
    assert api.post("/auth/validate", None, bearer(pair["access_token"])).status_code == 200
    assert api.post("/auth/refresh", {"refresh_token": pair["refresh_token"]}).status_code == 200


def test_a_refresh_token_used_again_ends_the_whole_family(api: Api) -> None:
    first = login(api).json["data"]
    second = api.post("/auth/refresh", {"refresh_token": first["refresh_token"]}).json["data"]
    assert api.post("/auth/refresh", {"refresh_token": first["refresh_token"]}).status_code == 401
    assert api.post("/auth/refresh", {"refresh_token": second["refresh_token"]}).status_code == 401
    assert api.get("/auth/test", bearer(second["access_token"])).status_code == 401


def test_logout_ends_token_and_family_also_after_a_restart(api: Api) -> None:
    data, other = login(api).json["data"], login(api).json["data"]
    assert api.post("/auth/logout", None, bearer(data["access_token"])).json["data"]["message"]
    for _ in range(2):
        assert error_of(api.get("/auth/test", bearer(data["access_token"])))[:2] == (401, "UNAUTHORIZED")
        assert api.post("/auth/refresh", {"refresh_token": data["refresh_token"]}).status_code == 401
        api.start()
    assert api.get("/auth/test", bearer(other["access_token"])).status_code == 200


def test_a_token_is_good_for_its_lifetime_and_not_a_moment_longer(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time() // 1 + 0.3  # within a second, where whole seconds would show
    monkeypatch.setattr(api.services.tokens, "_clock", lambda: now)
    api.services.tokens.lifetimes = lambda: tokens.Lifetimes(1, 60)
    token = api.token()
    valid = api.post("/auth/validate", None, token).json["data"]
    assert datetime.fromisoformat(valid["expires_at"]).timestamp() == pytest.approx(now + 1, abs=0.001)
    now += 0.99
    assert api.get("/auth/test", token).status_code == 200
    now += 0.02
    response = api.get("/auth/test", token)
    assert error_of(response) == (401, "TOKEN_EXPIRED", {"expired_at": valid["expires_at"]})
    assert "WWW-Authenticate" in response.headers


FORGERIES = {
    "another key": {"key": b"x" * 32},
    "no algorithm": {"key": None, "algorithm": "none"},
    "another algorithm": {"algorithm": "HS512"},
    "another issuer": {"claims": {"iss": "someuser"}},
    "another audience": {"claims": {"aud": "somewhere"}},
    "no expiry": {"claims": {"exp": None}},
    "no id": {"claims": {"jti": None}},
    "an unknown family": {"claims": {"fam": "0" * 24}},
    "another user": {"claims": {"sub": "usr_other"}},
}


@pytest.mark.filterwarnings("ignore:The HMAC key")
@table("forgery", FORGERIES.values(), ids=FORGERIES)
def test_a_forged_token_is_401(api: Api, forgery: dict[str, Any]) -> None:
    good = login(api).json["data"]["access_token"]
    key = api.services.tokens._keys.current.secret
    claims = jwt.decode(good, key, [tokens.ALGORITHM], audience=tokens.AUDIENCE) | forgery.get("claims", {})
    claims = {name: value for name, value in claims.items() if value is not None}
    signed = jwt.encode(claims, forgery.get("key", key), forgery.get("algorithm", tokens.ALGORITHM))
    assert api.get("/auth/test", bearer(good)).status_code == 200
    assert error_of(api.get("/auth/test", bearer(signed)))[:2] == (401, "UNAUTHORIZED")


def test_nothing_secret_is_stored_in_clear(api: Api) -> None:
    data = login(api).json["data"]
    key = api.key()["X-API-Key"]
    stored = b"".join(file.read_bytes() for file in api.data.path.glob("fleet.sqlite*"))
    secret = data["refresh_token"].split("_", 2)[2]  # `rt_<family>_<secret>`; a secret may have further ones
    for text in (PASSWORD, data["access_token"], secret, key):
        assert text.encode() not in stored


# --- attempts -----------------------------------------------------------------------------------------------------


def test_too_many_failures_lock_this_name_from_this_address_only(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.services.login_throttle, "_clock", lambda: 1000.0)
    for _ in range(5):
        assert login(api, "admin", "wrong").status_code == 401
    locked = login(api)
    assert error_of(locked)[:2] == (429, "RATE_LIMITED")
    assert locked.headers["Retry-After"] == "900"
    assert api.get("/auth/test", basic("admin", PASSWORD)).status_code == 429
    assert login(api, extras={"REMOTE_ADDR": "192.0.2.7"}).status_code == 200
    assert [each["username"] for each in api.fleet.published("auth.locked")] == ["admin"]


def test_a_success_forgets_the_failures_before_it(api: Api) -> None:
    for _ in range(3):
        assert [login(api, "admin", "wrong").status_code for _ in range(4)] == [401] * 4
        assert login(api).status_code == 200


# --- HTTP Basic ---------------------------------------------------------------------------------------------------


def test_basic_works_until_the_password_changes(api: Api) -> None:
    data = api.get("/auth/test", basic("admin", PASSWORD)).json["data"]
    assert (data["username"], data["auth_method"]) == ("admin", "basic")
    changed = api.admin.model_copy(update={"password_hash": api.add_user("other").password_hash})
    api.store.put("users", {**changed.model_dump(mode="json"), "password_hash": "x"})
    assert api.get("/auth/test", basic("admin", PASSWORD)).status_code == 401


def test_a_remembered_pair_costs_no_second_hash(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    assert api.get("/auth/test", basic("admin", PASSWORD)).status_code == 200
    monkeypatch.setattr("api.security.password_checker.check_hash", lambda *_: pytest.fail("hashed again"))
    assert api.get("/auth/test", basic("admin", PASSWORD)).status_code == 200


def test_a_remembered_pair_is_locked_out_like_any_other(api: Api) -> None:
    assert api.get("/auth/test", basic("admin", PASSWORD)).status_code == 200
    for _ in range(5):
        login(api, "admin", "wrong")
    assert error_of(api.get("/auth/test", basic("admin", PASSWORD)))[:2] == (429, "RATE_LIMITED")
    elsewhere = api.client.simulate_get("/api/v1/auth/test", headers=basic("admin", PASSWORD), remote_addr="192.0.2.7")
    assert elsewhere.status_code == 200


@table("header", ["Basic", "Basic !!!", "Basic YQ==", "Basic /w==", "Digest x", "Bearer", "x", ""])
def test_unreadable_credentials_are_401(api: Api, header: str) -> None:
    response = api.get("/auth/test", {"Authorization": header})
    assert error_of(response)[:2] == (401, "UNAUTHORIZED")
    assert response.headers["WWW-Authenticate"].startswith("Bearer")


@table(
    ("headers", "offered"),
    [
        ({}, True),
        ({"Sec-Fetch-Mode": "navigate"}, True),
        ({"Sec-Fetch-Mode": "cors"}, False),
        ({"Sec-Fetch-Mode": "same-origin", "Origin": "http://localhost:8080"}, False),
        ({"Origin": "http://localhost:8080"}, False),
    ],
    ids=str,
)
@table("path", ["/auth/refresh", "/auth/login", "/auth/validate"])
def test_basic_is_not_offered_to_scripts_of_pages(api: Api, path: str, headers: dict[str, str], offered: bool) -> None:
    """A browser would ask for a password by itself, and go on sending it after the page's sign-out."""
    body = {"username": "admin", "password": "wrong"} if path.endswith("login") else None
    challenge = api.post(path, body, headers).headers["WWW-Authenticate"]
    assert challenge.startswith("Bearer ")
    assert ("Basic " in challenge) is offered


# --- API keys -----------------------------------------------------------------------------------------------------


def test_a_user_has_as_many_keys_as_the_setting_allows_and_a_revoked_one_makes_room(api: Api) -> None:
    api.services.apply(ApiSettings(auth=Auth(max_api_keys=2), security=QUIET))
    api.add_user("eva", role="administrator")
    first, _ = (api.post("/api-keys", {"name": "k"}, api.token()).json["data"]["api_key"]["id"] for _ in range(2))
    refused = error_of(api.post("/api-keys", {"name": "k"}, api.token()))
    text = "a user has at most 2 API keys (auth.max_api_keys): revoke one first"
    assert refused == (400, "INVALID_REQUEST", {"field": None, "error": text})
    assert api.post("/api-keys", {"name": "k"}, api.token("eva")).status_code == 201
    api.request("DELETE", f"/api-keys/{first}", api.token())
    assert api.post("/api-keys", {"name": "k"}, api.token()).status_code == 201


def test_a_key_is_returned_once_and_listed_by_its_prefix(api: Api) -> None:
    made = api.post("/api-keys", {"name": "ci", "permissions": ["proxy.read"]}, api.token()).json["data"]
    assert len(api.fleet.published("api_key.created")) == 1
    assert len(made["key"]) == 43
    assert made["api_key"]["prefix"] == made["key"][:11]
    listed = api.get("/api-keys", api.token())
    assert [each["id"] for each in listed.json["data"]["api_keys"]] == [made["api_key"]["id"]]
    assert made["key"] not in listed.text
    assert "key_hash" not in listed.text
    who = api.get("/auth/test", {"X-API-Key": made["key"]}).json["data"]
    assert api.get("/api-keys", api.token()).json["data"]["api_keys"][0]["last_used"] is not None
    assert who == {"authenticated": True, "key_id": made["api_key"]["id"], "permissions": ["proxy.read"]}


def test_the_use_of_a_key_is_no_change_of_it_and_survives_a_restart(api: Api) -> None:
    key, made = api.key(), api.store.find("api_keys")
    before = api.engine.file.last_number
    api.get("/auth/test", key)
    (found,) = api.get("/api-keys", api.token()).json["data"]["api_keys"]
    assert found["last_used"] is not None
    api.start()
    assert api.get("/api-keys", api.token()).json["data"]["api_keys"] == [found]
    assert api.store.find("api_keys") == made
    assert {each.collection for commit in api.engine.changes(before) for each in commit.documents} == {
        "refresh_families"
    }, "tokens were issued, and nothing else"
    api.request("DELETE", f"/api-keys/{found['id']}", api.token())
    assert api.engine.last_used("api_keys") == {}


def test_a_revoked_key_is_dead_at_once(api: Api) -> None:
    key = api.key()
    key_id = api.get("/auth/test", key).json["data"]["key_id"]
    assert api.request("DELETE", f"/api-keys/{key_id}", api.token()).json["data"] == {"id": key_id, "revoked": True}
    assert error_of(api.get("/auth/test", key))[:2] == (401, "INVALID_API_KEY")
    assert api.request("DELETE", f"/api-keys/{key_id}", api.token()).status_code == 404
    assert [len(api.fleet.published(f"api_key.{what}")) for what in ("created", "revoked")] == [1, 1]


def test_a_rotated_key_has_the_same_rights_and_the_old_one_is_dead_at_once(api: Api) -> None:
    networks = ["127.0.0.0/8", "192.0.2.0/24"]
    body = {"name": "ci", "permissions": ["proxy.read"], "scope": {"ip_whitelist": networks}}
    made = api.post("/api-keys", body, api.token()).json["data"]
    response = api.post(f"/api-keys/{made['api_key']['id']}/rotate", None, api.token())
    data = response.json["data"]
    assert (response.status_code, response.headers["Cache-Control"]) == (201, "no-store")
    assert data["previous"] == {"id": made["api_key"]["id"], "revoked": True, "expires_at": None}
    same = ("name", "permissions", "scope", "expires_at", "user_id")
    assert [data["api_key"][name] for name in same] == [made["api_key"][name] for name in same]
    assert api.get("/auth/test", {"X-API-Key": data["key"]}).json["data"]["permissions"] == ["proxy.read"]
    assert error_of(api.get("/auth/test", {"X-API-Key": made["key"]}))[:2] == (401, "INVALID_API_KEY")
    assert [each["id"] for each in api.get("/api-keys", api.token()).json["data"]["api_keys"]] == [
        data["api_key"]["id"]
    ]
    assert [len(api.fleet.published(f"api_key.{what}")) for what in ("created", "revoked")] == [2, 1]
    assert api.post(f"/api-keys/{made['api_key']['id']}/rotate", None, api.token()).status_code == 404


def test_a_rotated_key_stays_valid_for_its_grace_and_not_beyond_its_own_end(api: Api) -> None:
    now = datetime.now(UTC)
    made = api.post("/api-keys", {"name": "k", "expires_at": (now + timedelta(hours=2)).isoformat()}, api.token())
    key_id = made.json["data"]["api_key"]["id"]
    first = api.post(f"/api-keys/{key_id}/rotate", {"grace": 3600}, api.token()).json["data"]
    ends = datetime.fromisoformat(first["previous"]["expires_at"])
    assert timedelta(minutes=59) < ends - now < timedelta(minutes=61)
    fresh = datetime.fromisoformat(first["api_key"]["expires_at"])
    assert timedelta(minutes=119) < fresh - now < timedelta(minutes=121)
    assert api.get("/auth/test", {"X-API-Key": made.json["data"]["key"]}).status_code == 200
    again = api.post(f"/api-keys/{key_id}/rotate", {"grace": 86_400}, api.token()).json["data"]
    assert datetime.fromisoformat(again["previous"]["expires_at"]) == ends
    assert api.post(f"/api-keys/{key_id}/rotate", {"grace": -1}, api.token()).status_code == 400


def test_the_time_of_a_rotated_key_begins_anew() -> None:
    body = api_keys.ApiKeyCreate.model_construct(name="k", permissions=None, scope=None, expires_at=100.0)
    key, _text = api_keys.new_key(body, "usr_1", (), now=0.0)
    assert api_keys.rotated(key, now=50.0)[0].expires_at == 150.0


def test_a_key_is_rotated_by_its_owner_alone_and_with_grace_only_where_there_is_room(api: Api) -> None:
    api.services.apply(ApiSettings(auth=Auth(max_api_keys=1), security=QUIET))
    api.add_user("eva", role="administrator")
    key_id = api.post("/api-keys", {"name": "k"}, api.token()).json["data"]["api_key"]["id"]
    assert error_of(api.post(f"/api-keys/{key_id}/rotate", None, api.token("eva")))[:2] == (403, "FORBIDDEN")
    assert api.post(f"/api-keys/{key_id}/rotate", {"grace": 60}, api.token()).status_code == 400
    assert len(api.store.find("api_keys")) == 1
    data = api.post(f"/api-keys/{key_id}/rotate", None, api.token()).json["data"]
    refused = api.post(f"/api-keys/{data['api_key']['id']}/rotate", None, {"X-API-Key": data["key"]})
    assert error_of(refused)[:2] == (403, "FORBIDDEN")


def test_a_key_dies_at_its_expiry_and_can_not_be_made_expired(api: Api) -> None:
    now = datetime.now(UTC)
    key = api.key(expires_at=(now + timedelta(hours=1)).isoformat())
    assert api.get("/auth/test", key).status_code == 200
    stored = api.store.find("api_keys")[0]
    api.store.put("api_keys", {**stored.body, "expires_at": now.timestamp() - 1})
    assert error_of(api.get("/auth/test", key))[:2] == (401, "INVALID_API_KEY")
    late = api.post("/api-keys", {"name": "late", "expires_at": (now - timedelta(seconds=1)).isoformat()}, api.token())
    assert error_of(late)[2]["field"] == "expires_at"


@table(
    ("fields", "field"),
    [
        ({"name": ""}, "name"),
        ({"permissions": ["proxy.fly"]}, "permissions"),
        ({"permissions": "proxy.read"}, "permissions"),
        ({"expires_at": "tomorrow"}, "expires_at"),
        ({"expires_at": 1_900_000_000}, "expires_at"),
        ({"scope": {"ip_whitelist": ["10.0.0.0/33"]}}, "scope.ip_whitelist[0]"),
        ({"scope": {"port": 1}}, "scope.port"),
        ({"prefix": "pf_"}, "prefix"),
    ],
)
def test_a_bad_key_body_is_400_naming_the_field(api: Api, fields: dict[str, Any], field: str) -> None:
    response = api.post("/api-keys", {"name": "ci", **fields}, api.token())
    assert (response.status_code, error_of(response)[2]["field"]) == (400, field)


@table("text", ["", "pf_", "pf_" + "a" * 40, "x" * 43, "pf_" + "é" * 40])
def test_an_unknown_key_is_invalid(api: Api, text: str) -> None:
    assert error_of(api.get("/auth/test", {"X-API-Key": text}))[:2] == (401, "INVALID_API_KEY")


def test_a_key_sent_as_bearer_is_unauthorized(api: Api) -> None:
    response = api.get("/auth/test", bearer(api.key()["X-API-Key"]))
    assert error_of(response)[:2] == (401, "UNAUTHORIZED")


def test_keys_make_list_and_revoke_no_keys(api: Api) -> None:
    key = api.key()
    key_id = api.get("/auth/test", key).json["data"]["key_id"]
    responses = [
        api.get("/api-keys", key),
        api.post("/api-keys", {"name": "x"}, key),
        api.request("DELETE", f"/api-keys/{key_id}", key),
    ]
    assert {error_of(response)[:2] for response in responses} == {(403, "FORBIDDEN")}


def test_a_user_cannot_grant_a_key_more_than_they_have(api: Api) -> None:
    api.add_user("reader", role="user")
    response = api.post("/api-keys", {"name": "x", "permissions": ["proxy.read", "proxy.write"]}, api.token("reader"))
    assert error_of(response) == (403, "FORBIDDEN", {"required_permission": "proxy.write"})


def test_a_key_has_no_more_than_its_owner_has_now(api: Api) -> None:
    owner = api.add_user("owner", role="operator")
    key = api.key("owner", permissions=["proxy.write", "proxy.read"])
    token = api.token("owner")
    assert api.post("/proxies", PROXY, key).status_code == 201
    demoted = owner.model_copy(update={"role": "user"})
    api.store.put("users", demoted.model_dump(mode="json"))
    assert api.get("/proxies", key).status_code == 200
    response = error_of(api.post("/proxies", PROXY, key))
    assert response == (403, "INSUFFICIENT_PERMISSIONS", {"required_permission": "proxy.write"})
    api.store.put("users", {**demoted.model_dump(mode="json"), "status": "disabled"})
    assert error_of(api.get("/proxies", key))[:2] == (401, "INVALID_API_KEY")
    assert api.get("/proxies", token).status_code == 401


def test_others_keys_are_seen_and_revoked_by_administrators_only(api: Api) -> None:
    api.add_user("one")
    api.add_user("two")
    key_id = api.get("/auth/test", api.key("one")).json["data"]["key_id"]
    assert api.get("/api-keys", api.token("two")).json["data"]["api_keys"] == []
    assert api.request("DELETE", f"/api-keys/{key_id}", api.token("two")).status_code == 404
    assert api.request("DELETE", f"/api-keys/{key_id}", api.token("admin")).status_code == 200


def test_a_scope_of_proxies_limits_lists_and_everything_else(api: Api) -> None:
    first, second = (
        api.post("/proxies", {**PROXY, "name": name, "port": port}, api.token()).json["data"]["proxy"]["id"]
        for name, port in (("a", 4001), ("b", 4002))
    )
    key = api.key(scope={"proxies": [first]})
    assert [each["id"] for each in api.get("/proxies", key).json["data"]["proxies"]] == [first]
    assert api.get(f"/proxies/{first}", key).status_code == 200
    for response in (api.get(f"/proxies/{second}", key), api.post("/proxies", {**PROXY, "name": "c"}, key)):
        assert error_of(response)[:2] == (403, "FORBIDDEN")
        assert "scope" in error_of(response)[2]["reason"]


def test_an_ip_whitelist_limits_where_a_key_works(api: Api) -> None:
    key = api.key(scope={"ip_whitelist": ["192.0.2.0/24", "2001:db8::/32"]})

    def status(address: str) -> int:
        return api.get("/auth/test", key, extras={"REMOTE_ADDR": address}).status_code

    addresses = ["192.0.2.9", "::ffff:192.0.2.9", "2001:db8::1", "192.0.3.1", "::1"]
    assert [status(address) for address in addresses] == [200, 200, 200, 403, 403]


# --- users --------------------------------------------------------------------------------------------------------


@table("username", ["admin ", "\u0430dmin", "adm\u200bin", "\u202enimda"])
def test_a_name_that_resembles_another_is_400(api: Api, username: str) -> None:
    body = {"username": username, "password": "long enough"}
    status, _, details = error_of(api.post("/users", body, api.token()))
    assert (status, details["field"]) == (400, "username")


def test_a_name_is_stored_in_its_normal_form_and_found_by_any(api: Api) -> None:
    body = {"username": "jose\u0301", "password": "long enough"}
    assert api.post("/users", body, api.token()).json["data"]["user"]["username"] == "jos\u00e9"
    for name in ("jos\u00e9", "jose\u0301", "JOS\u00c9", "\uff4aos\u00e9"):
        assert login(api, name, "long enough").status_code == 200
    assert error_of(api.post("/users", {**body, "username": "\uff41dmin"}, api.token()))[0] == 400, "it is admin"


def test_the_name_of_an_older_release_still_signs_in_and_can_be_changed(api: Api) -> None:
    user = api.add_user("old").model_copy(update={"username": "\u0430dmin "})
    api.store.put("users", user.model_dump(mode="json"))
    assert login(api, "\u0430dmin ", PASSWORD).json["data"]["user"]["id"] == user.id
    assert api.patch(f"/users/{user.id}", {"email": "a@example.org"}, api.token()).status_code == 200


def test_guesses_in_different_forms_of_a_name_count_together(api: Api) -> None:
    for name in ("admin", "ADMIN", "\uff41dmin", "a\uff44min", "ad\uff4din"):
        assert login(api, name, "wrong password").status_code == 401
    assert login(api).status_code == 429


@table("password", ["password", "Password123", "qwertyuiop", "11111111", "zzzzzzzzzz", "Someuser"])
def test_a_password_that_is_guessed_first_is_400(api: Api, password: str) -> None:
    refused = [
        api.post("/users", {"username": "someuser", "password": password}, api.token()),
        api.patch(f"/users/{api.add_user('someuser').id}", {"password": password}, api.token()),
    ]
    for response in refused:
        status, _, details = error_of(response)
        assert (status, details["field"]) == (400, "password")


def test_a_password_is_hashed_while_others_are_served(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    user = api.add_user("eva")
    free: list[bool] = []

    def hashed(password: str) -> str:
        free.append(not users.one_change.locked())
        return hash_password(password)

    monkeypatch.setattr("api.security.users.hash_password", hashed)
    assert api.patch(f"/users/{user.id}", {"password": "another one"}, api.token()).status_code == 200
    assert free == [True]


def test_two_changes_of_a_password_at_once_are_one(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    user = api.add_user("eva")

    def hashed(password: str) -> str:
        """Another request is faster."""
        api.store.put("users", {**user.model_dump(mode="json"), "password_hash": hash_password("faster one")})
        return hash_password(password)

    monkeypatch.setattr("api.security.users.hash_password", hashed)
    body = {"password": "another one", "current_password": PASSWORD}
    assert api.patch(f"/users/{user.id}", body, api.token("eva")).status_code == 412
    assert login(api, "eva", "faster one").status_code == 200


def test_a_created_user_signs_in_and_is_listed_without_secrets(api: Api) -> None:
    body = {"username": "ann", "email": "ann@example.org", "password": "eight888", "role": "operator"}
    made = api.post("/users", body, api.token())
    assert made.status_code == 201
    assert made.json["data"]["user"]["permissions"][0] == "proxy.read"
    assert login(api, "ann", "eight888").status_code == 200
    listed = api.get("/users", api.token())
    assert listed.json["data"]["total"] == 2
    assert "password" not in listed.text
    assert [each["username"] for each in api.fleet.published("user.created")] == ["ann"]


@table(
    ("fields", "field"),
    [
        ({"username": "ADMIN"}, "username"),
        ({"username": "a:b"}, "username"),
        ({"password": "short77"}, "password"),
        ({"password": "x" * 129}, "password"),
        ({"email": "nowhere"}, "email"),
        ({"role": "king"}, "role"),
        ({"permissions": ["all"]}, "permissions"),
        ({"status": "active"}, "status"),
    ],
)
def test_a_bad_user_is_400_naming_the_field(api: Api, fields: dict[str, Any], field: str) -> None:
    body = {"username": "ann", "password": "eight888", **fields}
    response = api.post("/users", body, api.token())
    assert (response.status_code, error_of(response)[2]["field"]) == (400, field)


def test_a_user_cannot_create_a_user_with_more_than_they_have(api: Api) -> None:
    api.add_user("clerk", permissions=["users.write", "proxy.read"])
    body = {"username": "ann", "password": "eight888"}
    response = api.post("/users", {**body, "role": "administrator"}, api.token("clerk"))
    assert error_of(response) == (403, "FORBIDDEN", {"required_permission": "*"})
    assert api.post("/users", {**body, "permissions": ["proxy.read"]}, api.token("clerk")).status_code == 201


def test_only_an_administrator_gives_that_role_even_with_few_permissions(api: Api) -> None:
    clerk = api.add_user("clerk", permissions=["users.write", "proxy.read"])
    few = {"role": "administrator", "permissions": ["proxy.read"]}
    body = {"username": "ann", "password": "eight888"}
    for response in (
        api.post("/users", {**body, **few}, api.token("clerk")),
        api.patch(f"/users/{clerk.id}", few, api.token("clerk")),
    ):
        assert error_of(response) == (403, "FORBIDDEN", {"required_permission": "admin"})
    made = api.post("/users", {**body, **few}, api.token())
    assert (made.status_code, made.json["data"]["user"]["permissions"]) == (201, ["proxy.read"])


# --- every operation ----------------------------------------------------------------------------------------------


def path_of(operation: Operation) -> str:
    return (
        operation.path.replace("{proxy_id}", "prx_none")
        .replace("{key_id}", "key_none")
        .replace("{user_id}", "usr_none")
    )


GUARDED = [operation for operation in OPERATIONS if operation.access != NONE]
PERMITTED = [operation for operation in OPERATIONS if operation.permission]


@table("operation", GUARDED, ids=lambda each: each.id)
def test_without_credentials_every_guarded_operation_is_401_even_with_a_bad_body(
    api: Api, operation: Operation
) -> None:
    response = api.request(operation.method, path_of(operation), body=b"{")
    assert error_of(response)[:2] == (401, "UNAUTHORIZED")


@pytest.fixture
def keys(api: Api) -> dict[str, dict[str, str]]:
    """Headers of a key that has all permissions but one, for each; and there are users `without-it` and `with-it`."""
    keys = {}
    for each in {operation.permission for operation in PERMITTED}:
        others = [other for other in PERMISSIONS if other not in (each, "admin")]
        api.add_user(f"without-{each}", permissions=others)
        api.add_user(f"with-{each}", permissions=[each])
        keys[each] = api.key("admin", permissions=others)
    return keys


# --- one user -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["user", "operator", "administrator"])
def test_users_of_every_role_change_their_own_password_with_the_current_one_and_all_tokens_end(
    api: Api, role: users.Role
) -> None:
    ann = api.add_user("ann", role=role)
    token, path = api.token("ann"), f"/users/{ann.id}"
    assert api.get(path, token).json["data"]["user"]["username"] == "ann"
    new = {"password": "new password"}
    assert error_of(api.patch(path, new, token))[2]["field"] == "current_password"
    assert error_of(api.patch(path, {**new, "current_password": "wrong"}, token))[2]["field"] == "current_password"
    assert error_of(api.patch(path, {"email": "ann@example.com"}, token))[2]["field"] == "current_password"
    assert api.patch(path, {**new, "current_password": PASSWORD}, token).status_code == 200
    assert api.get("/auth/test", token).status_code == 401
    assert login(api, "ann", "new password").status_code == 200


def test_a_user_who_signs_in_meanwhile_changes_the_password(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    eva = api.add_user("eva")
    hashes = 0

    def hashed(password: str) -> str:
        nonlocal hashes
        hashes += 1
        assert login(api, "eva", PASSWORD).status_code == 200
        return hash_password(password)

    monkeypatch.setattr("api.security.users.hash_password", hashed)
    assert api.patch(f"/users/{eva.id}", {"password": "new password"}, api.token()).status_code == 200
    assert hashes == 1
    assert api.get(f"/users/{eva.id}", api.token()).json["data"]["user"]["last_login"] is not None
    assert login(api, "eva", "new password").status_code == 200


def test_a_sign_in_is_no_change_of_the_user_and_its_time_outlives_changes_and_a_restart(api: Api) -> None:
    eva, headers = api.add_user("eva"), api.token()

    def seen() -> tuple[Any, Any]:
        result = api.get(f"/users/{eva.id}", headers)
        (listed,) = [each for each in api.get("/users", headers).json["data"]["users"] if each["id"] == eva.id]
        assert listed == result.json["data"]["user"]
        return revision_of(result), listed["last_login"]

    tag, never = seen()
    assert never is None
    given = login(api, "eva", PASSWORD).json["data"]["user"]["last_login"]
    assert seen() == (tag, given)
    assert given is not None
    changed = api.patch(f"/users/{eva.id}", {"email": "eva@example.com"}, {**headers, "If-Match": f'"{tag}"'})
    assert changed.json["data"]["user"]["last_login"] == given
    api.start()
    assert seen()[1] == given


def test_guesses_at_the_current_password_count_together_with_those_at_the_same_time(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = api.add_user("ann")
    token, attempts = api.token("ann"), api.services.login_throttle
    check = api.services.password_checker.check_password

    def checked(password: str, stored: str, client: str) -> bool:
        for _ in range(5):
            attempts.failed("ann", client)
        return check(password, stored, client)

    monkeypatch.setattr(api.services.password_checker, "check_password", checked)
    body = {"password": "new password", "current_password": PASSWORD}
    assert api.patch(f"/users/{ann.id}", body, token).status_code == 429


def test_a_user_gives_themself_no_role(api: Api) -> None:
    ann = api.add_user("ann")
    promoted = api.patch(f"/users/{ann.id}", {"role": "administrator", "current_password": PASSWORD}, api.token("ann"))
    assert error_of(promoted) == (403, "FORBIDDEN", {"required_permission": "users.write"})


@pytest.mark.parametrize("body", [{"password": "another password"}, {"email": "thief@example.com"}])
def test_an_api_key_does_not_take_over_the_account_of_its_owner(api: Api, body: dict[str, str]) -> None:
    key = api.key()
    admin = api.get("/auth/test", api.token()).json["data"]["user_id"]
    for given in (body, {**body, "current_password": PASSWORD}):
        response = api.patch(f"/users/{admin}", given, key)
        assert response.status_code == 403, response.json
        assert "owner" in response.json["error"]["details"]["reason"]
    assert login(api, "admin", PASSWORD).status_code == 200
    other = api.add_user("ann")
    assert api.patch(f"/users/{other.id}", body, key).status_code == 200, "which is a matter of users.write"


def test_users_write_changes_nothing_of_a_user_who_has_more(api: Api) -> None:
    api.add_user("clerk", permissions=["users.write", "users.delete", "proxy.read", "metrics.read"])
    plain = api.add_user("plain", role="user")
    clerk = api.token("clerk")
    for body in ({"password": "eight888"}, {"role": "user"}, {"status": "disabled"}, {"permissions": []}):
        assert error_of(api.patch(f"/users/{api.admin.id}", body, clerk))[:2] == (403, "FORBIDDEN")
    assert api.request("DELETE", f"/users/{api.admin.id}", clerk).status_code == 403
    assert api.patch(f"/users/{plain.id}", {"permissions": ["settings.write"]}, clerk).status_code == 403
    assert api.patch(f"/users/{plain.id}", {"permissions": []}, clerk).json["data"]["user"]["permissions"] == []


def test_who_may_not_read_the_audit_trail_makes_and_takes_over_no_auditor(api: Api) -> None:
    reads = ["proxy.read", "metrics.read", "users.read", "settings.read"]
    api.add_user("clerk", permissions=[*reads, "users.write", "users.delete"])
    auditor, plain = api.add_user("auditor", role="auditor"), api.add_user("plain", role="user")
    half = api.add_user("half", role="auditor", permissions=["proxy.read"])
    clerk = api.token("clerk")
    body = {"username": "second", "password": "eight888", "role": "auditor"}
    for response in (
        api.post("/users", body, clerk),
        api.patch(f"/users/{plain.id}", {"role": "auditor"}, clerk),
        api.patch(f"/users/{half.id}", {"permissions": reads}, clerk),
        api.patch(f"/users/{auditor.id}", {"password": "eight888"}, clerk),
        api.request("DELETE", f"/users/{auditor.id}", clerk),
    ):
        assert error_of(response)[::2] == (403, {"required_permission": "admin"})
    assert api.post("/users", {**body, "permissions": ["proxy.read"]}, clerk).status_code == 201
    api.add_user("chief", role="auditor", permissions=[*reads, "users.write"])
    assert api.patch(f"/users/{auditor.id}", {"password": "eight888"}, api.token("chief")).status_code == 200


def test_disabling_a_user_ends_tokens_and_keys(api: Api) -> None:
    ann = api.add_user("ann")
    token, key = api.token("ann"), api.key("ann")
    assert api.patch(f"/users/{ann.id}", {"status": "disabled"}, api.token()).status_code == 200
    assert [api.get("/auth/test", each).status_code for each in (token, key)] == [401, 401]
    assert api.patch(f"/users/{ann.id}", {"status": "active"}, api.token()).status_code == 200
    assert [api.get("/auth/test", each).status_code for each in (token, key)] == [401, 200]


def test_a_deleted_user_takes_tokens_and_keys_along(api: Api) -> None:
    ann = api.add_user("ann")
    token, key = api.token("ann"), api.key("ann")
    assert api.request("DELETE", f"/users/{ann.id}", api.token()).json["data"] == {"id": ann.id, "deleted": True}
    assert [api.get("/auth/test", each).status_code for each in (token, key)] == [401, 401]
    assert api.store.find("api_keys") == []
    assert api.get(f"/users/{ann.id}", api.token()).status_code == 404


def test_no_key_remains_of_a_user_who_is_deleted_while_it_is_made(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = api.add_user("owner")
    headers, admin = api.token("owner"), api.token()
    made = api_keys.new_key

    def meanwhile(*given: Any) -> Any:
        assert api.request("DELETE", f"/users/{owner.id}", admin).status_code == 200
        return made(*given)

    monkeypatch.setattr(api_keys, "new_key", meanwhile)
    assert error_of(api.post("/api-keys", {"name": "k"}, headers))[:2] == (401, "UNAUTHORIZED")
    assert api.store.find("api_keys") == []


def test_each_key_of_a_deleted_user_is_published_as_revoked(api: Api) -> None:
    user = api.add_user("owner")
    for _ in range(2):
        api.key("owner")
    assert api.request("DELETE", f"/users/{user.id}", api.token()).status_code == 200
    published = api.fleet.published("api_key.revoked")
    assert [each["user_id"] for each in published] == [user.id] * 2
    assert all(each["request_id"] == published[0]["request_id"] for each in published)
    assert [event.type for event in api.fleet.events[-3:]] == ["api_key.revoked", "api_key.revoked", "user.deleted"]


def test_the_last_active_administrator_stays(api: Api) -> None:
    path, admin = f"/users/{api.admin.id}", api.token()
    for body in ({"role": "user"}, {"status": "disabled"}, {"permissions": ["proxy.read"]}):
        assert api.patch(path, body, admin).status_code == 400
    assert api.request("DELETE", path, admin).status_code == 400
    api.add_user("second", role="administrator")
    assert api.patch(path, {"role": "user"}, admin).status_code == 200


def test_a_refresh_token_raced_from_many_threads_has_one_winner_and_then_the_family_is_dead(api: Api) -> None:
    for _ in range(5):
        pair = login(api).json["data"]
        responses: list[Any] = []
        gate = threading.Barrier(20)

        def use(token: str = pair["refresh_token"], to: Any = responses, gate: threading.Barrier = gate) -> None:
            gate.wait()
            to.append(api.post("/auth/refresh", {"refresh_token": token}))

        threads = [threading.Thread(target=use) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(response.status_code for response in responses) == [200] + [401] * 19
        winner = next(response.json["data"] for response in responses if response.status_code == 200)
        for token in (pair["access_token"], winner["access_token"]):
            assert api.get("/auth/test", bearer(token)).status_code == 401
        assert api.post("/auth/refresh", {"refresh_token": winner["refresh_token"]}).status_code == 401
