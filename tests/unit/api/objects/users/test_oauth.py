"""Signing in at an identity provider: from the redirect to tokens, and whose account it is."""

from __future__ import annotations

import threading
from typing import Any
from urllib.parse import parse_qs, urlsplit

from api.api_settings import ApiSettings
from api.oauth.id_token import Identity, same_address
from api.oauth.linking import mapped_role
from api.security import users
from api.security.users import User
from config.settings.settings import Auth
from tests.kit.api_stage import PASSWORD, QUIET, Api, error_of
from tests.kit.fake_provider import REDIRECT, FakeProvider, Make, begin, finish, sign_in
from tests.kit.tables import table


def user_named(api: Api, username: str) -> User:
    found = users.by_name(api.store, username)
    assert found is not None
    return found


# --- the way there and back ---------------------------------------------------------------------------------------


def test_a_browser_is_redirected_with_state_nonce_and_pkce(make: Make, provider: FakeProvider) -> None:
    response = make().get("/auth/oauth2/authorize?provider=custom", {"Accept": "text/html,*/*;q=0.8"})
    assert response.status_code == 302
    assert response.headers["cache-control"] == "no-store"
    query = parse_qs(urlsplit(response.headers["location"]).query)
    assert response.headers["location"].startswith(f"{provider.url}/authorize?")
    assert query["code_challenge_method"] == ["S256"]
    assert query["redirect_uri"] == [REDIRECT]
    assert query["scope"] == ["openid email profile"]
    assert len({query[name][0] for name in ("state", "nonce", "code_challenge")}) == 3
    assert response.json["data"]["state"] == query["state"][0]


@table("accept", [None, "*/*", "text/html", "text/html, application/json"])
def test_only_who_asks_for_json_by_name_is_not_redirected(make: Make, accept: str | None) -> None:
    headers = {} if accept is None else {"Accept": accept}
    assert make().get("/auth/oauth2/authorize", headers).status_code == 302


def test_a_sign_in_gives_tokens_that_work(make: Make, provider: FakeProvider) -> None:
    api = make()
    response = sign_in(api, provider)
    assert response.status_code == 200, response.text
    assert response.headers["cache-control"] == "no-store"
    data = response.json["data"]
    assert data["token_type"] == "Bearer"
    assert (data["user"]["email"], data["user"]["role"]) == ("jane@example.com", "user")
    assert data["user"]["oauth_provider"] == "custom"
    assert data["user"]["last_login"] is not None
    bearer = {"Authorization": f"Bearer {data['access_token']}"}
    assert api.get("/auth/test", bearer).json["data"]["user_id"] == data["user"]["id"]
    assert api.post("/auth/refresh", {"refresh_token": data["refresh_token"]}).status_code == 200
    assert [each["username"] for each in api.fleet.published("user.created")] == ["jane@example.com"]


def test_the_second_sign_in_is_the_same_account_whatever_its_address_has_become(
    make: Make, provider: FakeProvider
) -> None:
    api = make()
    first = sign_in(api, provider).json["data"]["user"]
    provider.claims |= {"email": "married@example.com", "email_verified": False}
    second = sign_in(api, provider).json["data"]["user"]
    assert second["id"] == first["id"]
    assert second["email"] == "jane@example.com"


def test_github_gives_its_verified_primary_address(make: Make, provider: FakeProvider) -> None:
    provider.userinfo = {"id": 583231, "login": "octocat", "email": "shown@example.com"}
    provider.github_emails = [
        {"email": "old@example.com", "primary": False, "verified": True},
        {"email": "octo@example.com", "primary": True, "verified": True},
    ]
    api = make(provider="github", **provider.explicit("authorize", "token", "userinfo"))
    url = begin(api)["authorization_url"]
    assert "nonce" not in url
    assert parse_qs(urlsplit(url).query)["scope"] == ["read:user user:email"]
    response = finish(api, provider.sign_in(url))
    assert response.json["data"]["user"]["email"] == "octo@example.com"
    link = user_named(api, "octo@example.com").oauth
    assert link is not None
    assert (link.provider, link.issuer, link.subject) == ("github", provider.url, "583231")


def test_a_github_account_without_a_verified_primary_address_is_refused(make: Make, provider: FakeProvider) -> None:
    provider.userinfo = {"id": 583231, "email": "shown@example.com"}
    provider.github_emails = [{"email": "octo@example.com", "primary": True, "verified": False}]
    api = make(provider="github", **provider.explicit("authorize", "token", "userinfo"))
    assert sign_in(api, provider).status_code == 401


def test_a_provider_without_id_tokens_is_asked_who_it_is(make: Make, provider: FakeProvider) -> None:
    provider.userinfo = {"sub": "7", "email": "plain@example.com", "email_verified": True}
    api = make(scopes=["email"], **provider.explicit("authorize", "token", "userinfo"))
    assert sign_in(api, provider).json["data"]["user"]["email"] == "plain@example.com"


def test_explicit_addresses_with_keys_and_issuer_check_the_id_token(make: Make, provider: FakeProvider) -> None:
    api = make(issuer=provider.url, **provider.explicit("authorize", "token", "jwks"))
    assert sign_in(api, provider).status_code == 200
    provider.alter = lambda claims: {**claims, "iss": "https://elsewhere.example"}
    assert sign_in(api, provider).status_code == 401


def test_claims_that_the_id_token_lacks_come_from_userinfo(make: Make, provider: FakeProvider) -> None:
    provider.claims = {"sub": "9"}
    provider.userinfo = {"sub": "9", "email": "info@example.com", "email_verified": True}
    api = make()
    assert sign_in(api, provider).json["data"]["user"]["email"] == "info@example.com"
    provider.userinfo = {"sub": "10", "email": "other@example.com", "email_verified": True}
    assert sign_in(api, provider).status_code == 401


def test_the_client_secret_is_sent_as_the_provider_wants_it(make: Make, provider: FakeProvider) -> None:
    assert sign_in(make(), provider).status_code == 200
    provider.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    assert sign_in(make(), provider).status_code == 200
    assert [each is None for each in provider.authorizations] == [False, True]


# --- whose account it is ------------------------------------------------------------------------------------------


def test_a_verified_address_links_to_the_account_that_has_it(make: Make, provider: FakeProvider) -> None:
    api = make()
    known = api.add_user("jane", email="Jane@Example.com", role="operator")
    data = sign_in(api, provider).json["data"]["user"]
    assert (data["id"], data["username"], data["role"]) == (known.id, "jane", "operator")
    assert api.post("/auth/login", {"username": "jane", "password": PASSWORD}).status_code == 200
    assert api.fleet.published("user.created") == []


@table("verified", [False, None, "false", "yes", 1, 0])
def test_an_address_that_is_not_verified_is_rejected(make: Make, provider: FakeProvider, verified: Any) -> None:
    api = make()
    api.add_user("jane", email="jane@example.com", role="administrator")
    provider.claims["email_verified"] = verified
    if verified is None:
        del provider.claims["email_verified"]
    assert error_of(sign_in(api, provider))[:2] == (401, "UNAUTHORIZED")
    assert user_named(api, "jane").oauth is None
    assert len(api.store.find("users")) == 2
    assert len(api.fleet.published("auth.login_failed")) == 1


def test_an_address_that_users_wrote_into_their_own_account_is_no_trap_for_its_owner(
    make: Make, provider: FakeProvider
) -> None:
    api = make()
    mallory = api.add_user("mallory", email="mallory@example.com")
    body = {"email": "jane@example.com", "current_password": PASSWORD}
    assert api.patch(f"/users/{mallory.id}", body, api.token("mallory")).status_code == 200
    assert sign_in(api, provider).json["data"]["user"]["id"] != mallory.id
    assert user_named(api, "mallory").oauth is None


def test_an_address_that_users_only_repeat_is_still_the_one_they_were_given(make: Make, provider: FakeProvider) -> None:
    api = make()
    jane = api.add_user("jane", email="jane@example.com")
    body = {"email": "jane@example.com", "current_password": PASSWORD}
    assert api.patch(f"/users/{jane.id}", body, api.token("jane")).status_code == 200
    assert sign_in(api, provider).json["data"]["user"]["id"] == jane.id


def test_an_address_that_an_administrator_confirms_links(make: Make, provider: FakeProvider) -> None:
    api = make()
    jane = api.add_user("jane")
    body = {"email": "jane@example.com", "current_password": PASSWORD}
    assert api.patch(f"/users/{jane.id}", body, api.token("jane")).status_code == 200
    assert api.patch(f"/users/{jane.id}", {"email": "jane@example.com"}, api.token()).status_code == 200
    assert sign_in(api, provider).json["data"]["user"]["id"] == jane.id


def test_two_first_sign_ins_at_the_same_time_make_one_account(make: Make, provider: FakeProvider) -> None:
    api = make()
    backs = [provider.sign_in(begin(api)["authorization_url"]) for _ in range(3)]
    start, found = threading.Barrier(3), []

    def run(back: dict[str, str]) -> None:
        start.wait()
        found.append(finish(api, back).json["data"]["user"]["id"])

    threads = [threading.Thread(target=run, args=(back,)) for back in backs]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(found) == 3
    assert len(set(found)) == 1
    assert len(api.fleet.published("user.created")) == 1


def test_an_address_that_only_folds_to_the_same_is_another() -> None:
    assert same_address("Jane@Example.com", "jane@example.COM")
    assert not same_address("bo\u017fs@example.com", "boss@example.com")
    assert not same_address("\u212aim@example.com", "kim@example.com")
    assert not same_address("", "a@example.com")


def test_a_linked_account_is_not_linked_to_a_later_owner_of_the_address(make: Make, provider: FakeProvider) -> None:
    api = make()
    assert sign_in(api, provider).status_code == 200
    provider.claims["sub"] = "the next one to have this address"
    assert sign_in(api, provider).status_code == 401


def test_an_address_of_two_accounts_identifies_neither(make: Make, provider: FakeProvider) -> None:
    api = make()
    for name in ("jane", "janet"):
        api.add_user(name, email="jane@example.com")
    assert sign_in(api, provider).status_code == 401


def test_the_same_subject_at_another_issuer_is_another_user(make: Make, provider: FakeProvider) -> None:
    api = make()
    first = sign_in(api, provider).json["data"]["user"]["id"]
    other = FakeProvider()
    try:
        other.claims["email"] = "someone@example.com"
        api.services.apply(ApiSettings(auth=Auth(oauth2=other.settings()), security=QUIET))
        assert sign_in(api, other).json["data"]["user"]["id"] != first
    finally:
        other.close()


def test_a_disabled_account_stays_out_and_no_second_one_is_made(make: Make, provider: FakeProvider) -> None:
    api = make()
    identifier = sign_in(api, provider).json["data"]["user"]["id"]
    assert api.patch(f"/users/{identifier}", {"status": "disabled"}, api.token()).status_code == 200
    assert sign_in(api, provider).status_code == 401
    known = api.add_user("mary", email="mary@example.com")
    assert api.patch(f"/users/{known.id}", {"status": "disabled"}, api.token()).status_code == 200
    provider.claims |= {"sub": "2", "email": "mary@example.com"}
    assert sign_in(api, provider).status_code == 401
    assert len(api.store.find("users")) == 3


def test_without_auto_create_only_accounts_that_exist_get_in(make: Make, provider: FakeProvider) -> None:
    api = make(auto_create=False)
    assert sign_in(api, provider).status_code == 401
    api.add_user("jane", email="jane@example.com")
    assert sign_in(api, provider).status_code == 200


def test_only_allowed_domains_get_in(make: Make, provider: FakeProvider) -> None:
    api = make(allowed_domains=["@Example.com"])
    assert sign_in(api, provider).status_code == 200
    provider.claims |= {"email_verified": False}
    assert sign_in(api, provider).status_code == 401, "of no domain that is known for certain any more"
    provider.claims |= {"sub": "2", "email": "mallory@sub.example.com", "email_verified": True}
    assert sign_in(api, provider).status_code == 401


def test_an_account_made_by_a_sign_in_has_no_password(make: Make, provider: FakeProvider) -> None:
    api = make()
    assert sign_in(api, provider).status_code == 200
    for guess in ("", "!", "None", "jane@example.com"):
        response = api.post("/auth/login", {"username": "jane@example.com", "password": guess or " "})
        assert response.status_code == 401


def test_a_user_name_that_is_taken_gets_something_behind_it(make: Make, provider: FakeProvider) -> None:
    api = make()
    api.add_user("jane@example.com", email="mallory@example.com")
    made = sign_in(api, provider).json["data"]["user"]
    assert made["username"].startswith("jane@example.com-")


def test_no_claim_makes_an_administrator_unless_the_mapping_says_so(make: Make, provider: FakeProvider) -> None:
    provider.claims |= {"role": "administrator", "roles": ["administrator"], "permissions": ["*"]}
    api = make(role_mapping={"roles=chief": "administrator", "other.example": "operator"})
    made = sign_in(api, provider).json["data"]["user"]
    assert (made["role"], made["permissions"]) == ("user", ["proxy.read", "metrics.read"])


@table(
    ("mapping", "role"),
    [
        ({}, "user"),
        ({"example.com": "operator"}, "operator"),
        ({"@EXAMPLE.com": "auditor"}, "auditor"),
        ({"ample.com": "operator", "sub.example.com": "operator"}, "user"),
        ({"jane@example.com": "administrator"}, "administrator"),
        ({"groups=ops": "operator", "example.com": "auditor"}, "operator"),
        ({"example.com": "auditor", "groups=ops": "operator"}, "auditor"),
        ({"groups=op": "operator"}, "user"),
        ({"realm.roles=fleet": "operator"}, "operator"),
        ({"https://x.example/team=net": "operator"}, "operator"),
        ({"level=3": "operator"}, "operator"),
        ({"staff=true": "operator"}, "operator"),
        ({"none=None": "administrator", "absent=None": "administrator"}, "user"),
    ],
)
def test_the_first_key_that_fits_names_the_role(mapping: dict[str, Any], role: str, provider: FakeProvider) -> None:
    claims = {
        "groups": ["staff", "ops"],
        "realm": {"roles": ["fleet"]},
        "https://x.example/team": "net",
        "level": 3,
        "staff": True,
        "none": None,
    }
    identity = Identity("custom", provider.url, "1", "jane@example.com", claims)
    assert mapped_role(identity, provider.settings(role_mapping=mapping).role_mapping) == role


# --- what is on record --------------------------------------------------------------------------------------------


def trail(api: Api) -> list[tuple[Any, ...]]:
    """Action, outcome, actor and kind of credential of what is on record, oldest first."""
    found = []
    for row in reversed(api.get("/audit", api.token()).json["data"]["audit"]):
        method = row["credential"]["method"] if row["credential"] else None
        found.append((row["action"], row["outcome"], row["actor"]["username"], method))
    return found


def test_sign_ins_and_what_they_make_are_in_the_audit_trail(make: Make, provider: FakeProvider) -> None:
    api = make()
    before = len(trail(api))
    sign_in(api, provider)
    provider.claims |= {"sub": "2", "email_verified": False}
    sign_in(api, provider)
    assert trail(api)[before:] == [
        ("user.created", "done", "jane@example.com", "oauth2"),
        ("auth.login", "done", "jane@example.com", "oauth2"),
        ("auth.login_failed", "failed", None, None),
    ]
    assert "at-1" not in api.get("/audit", api.token()).text


# --- off, and another provider ------------------------------------------------------------------------------------


def test_nothing_of_it_is_there_while_it_is_off(api: Api) -> None:
    assert error_of(api.get("/auth/oauth2/authorize"))[2]["field"] == "provider"
    assert error_of(finish(api, {"code": "c", "state": "s"}))[2]["field"] == "state"


@table("name", ["google", "", "okta", "CUSTOM"])
def test_a_provider_that_is_not_configured_is_refused(make: Make, name: str) -> None:
    status, code, details = error_of(make().get("/auth/oauth2/authorize", params={"provider": name}))
    assert (status, code, details["field"]) == (400, "INVALID_REQUEST", "provider")


def test_what_was_begun_at_a_former_provider_can_not_be_finished(make: Make, provider: FakeProvider) -> None:
    api = make()
    back = provider.sign_in(begin(api)["authorization_url"])
    api.services.apply(ApiSettings(auth=Auth(oauth2=provider.settings(auto_create=False)), security=QUIET))
    assert error_of(finish(api, back))[2]["field"] == "state"
