"""The list of sessions, and the end of one."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from api.api_settings import ApiSettings
from api.security import tokens
from api.security.sessions import LONGEST_USER_AGENT, client_of
from config.settings.settings import RateLimiting, Security
from config.text.formatting import timestamp_text
from tests.kit.api_stage import PASSWORD, Api, error_of
from tests.kit.tables import table
from tests.unit.api.audit_reader import rows


def sign_in(api: Api, username: str = "admin", session: str | None = None, agent: str = "curl/8.0") -> dict[str, Any]:
    body = {"username": username, "password": PASSWORD, **({} if session is None else {"session": session})}
    response = api.post("/auth/login", body, {"User-Agent": agent}, host="127.0.0.1")
    data: dict[str, Any] = response.json["data"]
    return data


def bearer(data: dict[str, Any]) -> dict[str, str]:
    return {"Authorization": f"Bearer {data['access_token']}"}


def listed(api: Api, headers: dict[str, str], path: str = "/auth/sessions") -> list[dict[str, Any]]:
    data = api.get(path, headers).json["data"]
    assert data["total"] == len(data["sessions"])
    found: list[dict[str, Any]] = data["sessions"]
    return found


def test_users_see_their_own_sessions_and_no_others(api: Api) -> None:
    eva = api.add_user("eva")
    sign_in(api)
    page = sign_in(api, "eva", "cookie", "Mozilla/5.0 <b>")
    sign_in(api, "eva", "interactive", "proxyfleet/1")
    sign_in(api, "eva")
    found = listed(api, bearer(page))
    assert {each["user_id"] for each in found} == {eva.id}
    assert sorted(each["kind"] for each in found) == ["cookie", "interactive", "program"]
    (own,) = [each for each in found if each["current"]]
    assert (own["kind"], own["user_agent"], own["address"]) == ("cookie", "Mozilla/5.0 <b>", "127.0.0.1")
    assert datetime.fromisoformat(own["created_at"]) <= datetime.fromisoformat(own["last_used"])


def test_the_last_use_is_that_of_the_access_token_and_after_a_restart_of_the_refresh(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_700_000_000.0
    monkeypatch.setattr(api.services.tokens, "_clock", lambda: now)
    monkeypatch.setattr(api.services.sessions, "_clock", lambda: now)
    data = sign_in(api)
    now += 60
    used = api.get("/auth/test", bearer(data), extras={"REMOTE_ADDR": "192.0.2.7"})
    assert used.status_code == 200
    assert listed(api, bearer(data))[0]["last_used"] == timestamp_text(now)
    services = api.services.sessions
    services._used.clear()
    (view,) = services.of(api.admin.id)
    assert view["last_used"] == timestamp_text(now - 60)


def test_with_one_sign_in_too_many_the_oldest_of_the_user_ends(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "FAMILIES_PER_USER", 3)
    eva = api.add_user("eva")
    other, *own = (api.services.tokens.issue(user) for user in (api.admin, *[eva] * 4))
    assert len(api.store.find(tokens.COLLECTION, user_id=eva.id)) == 3
    with pytest.raises(tokens.BadToken):
        api.services.tokens.check(own[0].access_token)
    for each in (other, *own[1:]):
        api.services.tokens.check(each.access_token)


def test_an_ended_session_is_over_at_once_and_the_end_is_recorded(api: Api) -> None:
    one, other = sign_in(api), sign_in(api)
    victim = next(each["id"] for each in listed(api, bearer(one)) if not each["current"])
    response = api.request("DELETE", f"/auth/sessions/{victim}", bearer(one))
    assert response.json["data"] == {"id": victim, "ended": True}
    assert api.get("/auth/test", bearer(other)).status_code == 401
    assert api.post("/auth/refresh", {"refresh_token": other["refresh_token"]}).status_code == 401
    assert api.get("/auth/test", bearer(one)).status_code == 200
    entry = rows(api)[0]
    assert (entry["action"], entry["resource"]) == ("session.ended", {"type": "session", "id": victim, "name": "admin"})
    assert error_of(api.request("DELETE", f"/auth/sessions/{victim}", bearer(one)))[:2] == (404, "NOT_FOUND")


def test_no_one_ends_the_session_of_another_user_as_their_own(api: Api) -> None:
    api.add_user("eva")
    admin, eva = sign_in(api), sign_in(api, "eva")
    (hers,) = listed(api, bearer(eva))
    assert api.request("DELETE", f"/auth/sessions/{hers['id']}", bearer(admin)).status_code == 404
    assert api.get("/auth/test", bearer(eva)).status_code == 200


def test_administrators_list_and_end_those_of_any_user(api: Api) -> None:
    eva = api.add_user("eva", role="operator")
    admin, hers = sign_in(api), sign_in(api, "eva", "cookie")
    path = f"/users/{eva.id}/sessions"
    (found,) = listed(api, bearer(admin), path)
    assert (found["user_id"], found["kind"], found["current"]) == (eva.id, "cookie", False)
    assert error_of(api.get(path, bearer(hers)))[:2] == (403, "FORBIDDEN")
    own = listed(api, bearer(admin))[0]["id"]
    assert api.request("DELETE", f"{path}/{own}", bearer(admin)).status_code == 404, "it is not hers"
    assert api.request("DELETE", f"{path}/{found['id']}", bearer(admin)).status_code == 200
    assert api.get("/auth/test", bearer(hers)).status_code == 401
    assert error_of(api.get("/users/usr_unknown/sessions", bearer(admin)))[:2] == (404, "NOT_FOUND")


def test_the_id_of_a_session_is_no_credential(api: Api) -> None:
    data = sign_in(api, session="cookie")
    identifier = listed(api, bearer(data))[0]["id"]
    page = {"Sec-Fetch-Site": "same-origin"}
    for text in (identifier, f"rt_{identifier}", f"rt_{identifier}_{'A' * 43}"):
        assert api.get("/auth/test", {"Authorization": f"Bearer {text}"}).status_code == 401
        assert api.post("/auth/refresh", {"refresh_token": text}).status_code == 401
        cookie = {**page, "Cookie": f"proxyfleet={text}"}
        assert api.post("/auth/refresh", None, cookie, host="127.0.0.1").status_code == 401
    assert api.get("/auth/test", bearer(data)).status_code == 200


def test_a_key_can_neither_list_nor_end_sessions(api: Api) -> None:
    sign_in(api)
    key = api.key()
    assert error_of(api.get("/auth/sessions", key))[:2] == (403, "FORBIDDEN")
    assert error_of(api.request("DELETE", "/auth/sessions/nothing", key))[:2] == (403, "FORBIDDEN")


@table(
    ("given", "kept"),
    [
        (None, None),
        ("", None),
        ("\r\n\0", None),
        ("a\r\nSet-Cookie: x\x1b[31m", "aSet-Cookie: x[31m"),
        ("M\u00f6\u202e", "M\u00f6"),
        ("x" * 1000, "x" * LONGEST_USER_AGENT),
    ],
)
def test_what_a_client_says_it_is_becomes_one_line_of_text(given: str | None, kept: str | None) -> None:
    assert client_of("192.0.2.7", given).user_agent == kept


def test_the_ways_to_sign_in_need_no_credentials(api: Api) -> None:
    assert api.get("/auth/methods").json["data"] == {
        "password": True,
        "identity_provider": None,
        "self_service": False,
        "initial_password_file": None,
        "initial_password_path": None,
    }


@pytest.mark.parametrize(
    ("address", "host", "here"),
    [("127.0.0.1", "localhost", True), ("192.0.2.7", "localhost", False), ("127.0.0.1", "proxies.example", False)],
)
def test_only_the_machine_itself_learns_the_path_of_the_first_password(
    api: Api, address: str, host: str, here: bool
) -> None:
    api.data.initial_password.write_text("secret")
    found = api.get("/auth/methods", host=host, extras={"REMOTE_ADDR": address}).json["data"]
    assert found["initial_password_file"] == "initial-admin-password"
    assert found["initial_password_path"] == (str(api.data.initial_password) if here else None)
    for name in ("Forwarded", "Via", "X-Forwarded-For", "X-Real-IP"):
        headers = {name: "192.0.2.7"}
        proxied = api.get("/auth/methods", headers, host=host, extras={"REMOTE_ADDR": address}).json["data"]
        assert proxied["initial_password_path"] is None


def test_who_keeps_the_first_password_is_in_the_audit_trail_and_asked_again_in_the_next_session(api: Api) -> None:
    api.add_user("eva", role="administrator")
    first, other, eva = bearer(sign_in(api)), bearer(sign_in(api)), bearer(sign_in(api, "eva"))

    def asked(headers: dict[str, str]) -> Any:
        return api.get("/auth/test", headers).json["data"]["first_password"]

    assert asked(first) is False
    api.data.initial_password.write_text("secret")
    assert (asked(first), asked(eva)) == (True, False)
    for headers in (first, eva):
        assert api.post("/auth/first-password/keep", None, headers).status_code == 200
    assert (asked(first), asked(other)) == (False, True)
    kept = [each for each in rows(api) if each["action"] == "auth.first_password_kept"]
    assert [each["resource"]["name"] for each in kept] == ["admin"]


def test_a_session_in_a_cookie_uses_the_rates_of_sessions_and_not_those_of_its_address() -> None:
    rates = RateLimiting(requests_per_minute=2, session_per_minute=5)
    api = Api(ApiSettings(security=Security(rate_limiting=rates)))
    cookie = api.post(
        "/auth/login", {"username": "admin", "password": PASSWORD, "session": "cookie"}, host="127.0.0.1"
    ).cookies["proxyfleet"]
    page = {"Sec-Fetch-Site": "same-origin", "Cookie": f"proxyfleet={cookie.value}"}
    responses = [api.post("/auth/refresh", None, page, host="127.0.0.1") for _ in range(6)]
    assert [response.status_code for response in responses] == [200] * 5 + [429]
    assert responses[0].headers["X-RateLimit-Limit"] == "5"
    made_up = {**page, "Cookie": "proxyfleet=rt_" + "0" * 24 + "_" + "A" * 43}
    refused = [api.post("/auth/refresh", None, made_up, host="127.0.0.1").status_code for _ in range(2)]
    assert refused == [401, 429], "the sign-in was the first one of the address"
    api.close()


def test_roles_come_with_their_permissions(api: Api) -> None:
    data = api.get("/roles", api.token()).json["data"]
    roles = {each["name"]: each["permissions"] for each in data["roles"]}
    assert roles["administrator"] == ["*"]
    assert roles["user"] == ["proxy.read", "metrics.read"]
    assert {name for granted in roles.values() for name in granted} - {"*"} <= set(data["permissions"])


def test_a_sign_in_of_an_earlier_release_goes_on_and_is_of_the_present_password_from_its_next_refresh(api: Api) -> None:
    data = sign_in(api)
    (family,) = api.store.find(tokens.COLLECTION)
    earlier = {name: value for name, value in family.body.items() if name != "password"}
    api.store.put(tokens.COLLECTION, earlier)
    assert api.get("/auth/test", bearer(data)).status_code == 200
    assert api.post("/auth/refresh", {"refresh_token": data["refresh_token"]}).status_code == 200
    (refreshed,) = api.store.find(tokens.COLLECTION)
    assert refreshed.body["password"] == family.body["password"]


def test_a_sign_in_that_was_not_known_where_its_user_was_disabled_is_none_when_it_is_active_again(api: Api) -> None:
    eva = api.add_user("eva")
    data = api.post("/auth/login", {"username": "eva", "password": PASSWORD}).json["data"]
    (family,) = api.store.find(tokens.COLLECTION, user_id=eva.id)
    for status in ("disabled", "active"):
        assert api.patch(f"/users/{eva.id}", {"status": status}, api.token()).status_code == 200
        entry = rows(api, action="user.updated")[0]
        assert (entry["after"], "disabled_at" in api.get(f"/users/{eva.id}", api.token()).text) == (
            {"status": status},
            False,
        )
    api.store.put(tokens.COLLECTION, family.body)
    assert api.get("/auth/test", bearer(data)).status_code == 401
    assert api.store.get(tokens.COLLECTION, family.id) is None
    again = api.post("/auth/login", {"username": "eva", "password": PASSWORD}).json["data"]
    assert api.patch(f"/users/{eva.id}", {"email": "eva@example.com"}, api.token()).status_code == 200
    assert api.get("/auth/test", bearer(again)).status_code == 200
